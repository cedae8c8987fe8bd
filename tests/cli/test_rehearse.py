"""`numalet explain` and `numalet plan` as a user or CI runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

import agent.cli.scratch
from agent.checkpoint.codec import encode_cpu, encode_memory
from agent.cli.app import numalet
from agent.cli.scratch import live_node
from agent.errors import NumaletError
from tests.explain.build import container, pod, resources, scratch
from tests.sysfs.machines import FOLDER, discovered

NAME: Final = "64amd64-4p2n4ca2co"
MACHINE: Final = FOLDER / f"{NAME}.json.xz"

POD: Final = """\
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
    - name: main
      image: busybox
      resources:
        requests: {cpu: "%d", memory: 1Gi}
        limits: {cpu: "%d", memory: 1Gi}
"""
STEP_FIELDS: Final[Mapping[str, set[str]]] = {
    "qosClass": {"qosClass", "why"},
    "hints": {"manager", "hints"},
    "merge": {"numaNodes", "preferred", "admitted"},
    "cpus": {"cpus", "source", "picks"},
    "memory": {"blocks", "source"},
    "shared": {"resource", "pool", "why"},
    "kept": {"resource"},
    "refused": {"manager", "reason", "message", "remedy"},
}


def manifest(folder: Path, name: str, *cpus: int) -> Path:
    """A manifest with one pod for each number of CPUs."""
    path = folder / f"{name}.yaml"
    names = [name] if len(cpus) == 1 else [f"{name}-{number}" for number, _ in enumerate(cpus)]
    path.write_text("---\n".join(POD % (n, cpu, cpu) for n, cpu in zip(names, cpus, strict=True)))
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(numalet, [*map(str, args), "--machine", str(MACHINE)])


def test_explain_says_under_what_it_was_decided_and_exits_with_0(tmp_path: Path) -> None:
    result = run("explain", "-f", manifest(tmp_path, "app", 2))
    assert result.exit_code == 0
    head = result.output.splitlines()
    assert head[0] == f"Machine    {MACHINE}: 64 CPUs, 8 NUMA nodes, memory ~125.8Gi"
    assert head[1] == "Policies   cpu static, memory Static, topology restricted, scope pod"
    assert head[2] == "Reserved   CPUs 0-1, memory 100Mi on NUMA node 0"
    assert head[3] == "State      an empty node"
    assert "Pod default/app would be admitted" in head


def test_explain_tries_the_pods_of_a_file_one_after_the_other(tmp_path: Path) -> None:
    result = run("explain", "-f", manifest(tmp_path, "app", 4, 4, 64))
    assert result.exit_code == 1
    stories = [line for line in result.output.splitlines() if line.startswith("Pod ")]
    assert stories == [
        "Pod default/app-0 would be admitted",
        "Pod default/app-1 would be admitted",
        "Pod default/app-2 would be refused: TopologyAffinityError",
    ]
    assert "exclusive slice, CPUs 2-5 of the node shared pool" in result.output
    assert "exclusive slice, CPUs 8-11 of the node shared pool" in result.output


def test_explain_reads_standard_input() -> None:
    result = CliRunner().invoke(
        numalet, ["explain", "-f", "-", "--machine", str(MACHINE)], input=POD % ("app", 2, 2)
    )
    assert result.exit_code == 0


def test_the_json_carries_settings_verdicts_and_structured_steps(tmp_path: Path) -> None:
    result = run("explain", "-f", manifest(tmp_path, "app", 4, 64), "-o", "json")
    assert result.exit_code == 1
    answer: dict[str, Any] = json.loads(result.output)
    assert answer["machine"] == str(MACHINE)
    assert answer["settings"]["topologyManagerPolicy"] == "restricted"
    assert answer["settings"]["reservedCPUs"] == "0-1"
    admitted, refused = answer["pods"]
    assert (admitted["verdict"], admitted["reason"], admitted["remedy"]) == ("admitted", "", "")
    assert admitted["containers"][0]["cpus"] == "2-5"
    assert (refused["verdict"], refused["reason"]) == ("rejected", "TopologyAffinityError")
    assert refused["remedy"] == refused["steps"][-1]["remedy"] != ""
    for one in answer["pods"]:
        for step in one["steps"]:
            assert step.keys() - {"step", "text", "container"} == STEP_FIELDS[step["step"]]
            assert step["text"]
    cpus = next(step for step in admitted["steps"] if step["step"] == "cpus")
    assert cpus["picks"] == [{"cpus": "2-5", "rule": "whole free cores"}]
    hints = next(step for step in admitted["steps"] if step["step"] == "hints")
    assert hints["hints"]["cpu"]["preferred"] == [str(node) for node in range(8)]
    assert hints["hints"]["cpu"]["otherCount"] == 247


def stored(folder: Path) -> Path:
    """A state directory in which pod app holds 3 CPUs."""
    node = scratch(discovered(NAME))
    one = pod("app", [container("main", 2, "1Gi"), container("side")], resources(3, "2Gi"))
    assert node.rehearse(one, "app.yaml").refusal is None
    state = folder / "state"
    state.mkdir()
    (state / "cpu_manager_state").write_bytes(encode_cpu("static", node.state.cpu))
    (state / "memory_manager_state").write_bytes(encode_memory("Static", node.state.memory))
    return state


def test_a_stored_state_is_begun_with_and_never_written(tmp_path: Path) -> None:
    state = stored(tmp_path)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in state.iterdir()}
    result = run("explain", "-f", manifest(tmp_path, "other", 5), "--state", state)
    assert result.exit_code == 0
    assert f"State      {state}: 1 pod there already" in result.output
    assert "exclusive slice, CPUs 8-12" in result.output  # node 0 has only 4 CPUs left
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in state.iterdir()}


def test_the_stored_state_may_lack_one_file_but_not_both(tmp_path: Path) -> None:
    state = stored(tmp_path)
    (state / "memory_manager_state").unlink()
    assert run("plan", "-f", manifest(tmp_path, "other", 5), "--state", state).exit_code == 0
    (state / "cpu_manager_state").unlink()
    result = run("plan", "-f", manifest(tmp_path, "other", 5), "--state", state)
    assert isinstance(result.exception, NumaletError)
    assert "holds neither cpu_manager_state nor memory_manager_state" in result.exception.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpu_manager_state", '{"policyName":"static","defaultCpuSet":"0-3","checksum":1}'),
        ("cpu_manager_state", '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'),
        ("memory_manager_state", "{"),
    ],
    ids=["corrupt", "other policy", "not JSON"],
)
def test_a_state_that_cannot_be_used_is_bad_input(tmp_path: Path, name: str, text: str) -> None:
    state = stored(tmp_path)
    (state / name).write_text(text)
    result = run("explain", "-f", manifest(tmp_path, "other", 5), "--state", state)
    assert isinstance(result.exception, NumaletError)


def planned(folder: Path) -> Path:
    """A directory with pods that fit, one that does not, and a file that is no manifest."""
    pods = folder / "pods"
    pods.mkdir()
    manifest(pods, "b", 8)
    manifest(pods, "a", 2)
    manifest(pods, "c", 64)
    (pods / ".hidden.yaml").write_text("kind: Nothing")
    (pods / "broken.yaml").write_text("kind: Nothing")
    return pods


def test_plan_shows_verdicts_in_the_order_of_the_file_names_and_what_remains(tmp_path: Path) -> None:
    result = run("plan", "-f", planned(tmp_path))
    assert result.exit_code == 1
    rows = [line.split() for line in result.output.splitlines()]
    assert ["a", "a.yaml", "admitted", "0", "2-3", "-"] in rows
    assert ["b", "b.yaml", "admitted", "1", "8-15", "-"] in rows
    assert ["c", "c.yaml", "refused", "-", "-", "TopologyAffinityError"] in rows
    assert ["1", "-", "8", "memory", "~14.7Gi", "~15.7Gi"] in rows
    assert 'broken.yaml: $.kind: "Nothing" is not known' in result.output
    assert ".hidden" not in result.output
    assert result.output.splitlines()[-1] == "3 pods: 2 admitted, 1 refused, 1 file not read"


def test_plan_in_json(tmp_path: Path) -> None:
    result = run("plan", "-f", planned(tmp_path), "-o", "json")
    assert result.exit_code == 1
    answer = json.loads(result.output)
    assert [(one["pod"], one["verdict"]) for one in answer["pods"]] == [
        ("default/a", "admitted"),
        ("default/b", "admitted"),
        ("default/c", "rejected"),
    ]
    assert answer["pods"][1] | {"uid": ""} == {
        "pod": "default/b", "uid": "", "file": "b.yaml", "verdict": "admitted", "reason": "",
        "message": "", "remedy": "", "cpus": "8-15", "numaNodes": "1", "podSharedPool": "",
    }  # fmt: skip
    (unread,) = answer["problems"]
    assert unread["file"] == "broken.yaml"
    assert len(unread["problems"]) == 4
    assert answer["numaNodes"][0]["freeCPUs"] == "4-7"


def test_plan_exits_with_0_only_if_every_pod_fits(tmp_path: Path) -> None:
    good = manifest(tmp_path, "good", 2)
    assert run("plan", "-f", good).exit_code == 0
    assert run("plan", "-f", good, "-f", manifest(tmp_path, "bad", 64)).exit_code == 1


def test_plan_exits_with_2_if_there_was_nothing_to_plan(tmp_path: Path) -> None:
    assert run("plan", "-f", tmp_path).exit_code == 2
    (tmp_path / "broken.yaml").write_text("[")
    result = run("plan", "-f", tmp_path)
    assert result.exit_code == 2
    assert "broken.yaml" in result.output


def test_two_pods_of_one_name_with_different_specs_cannot_both_be(tmp_path: Path) -> None:
    one, other = manifest(tmp_path, "app", 2), tmp_path / "other.yaml"
    other.write_text(POD % ("app", 3, 3))
    result = run("plan", "-f", one, "-f", other)
    assert result.exit_code == 1
    assert "AlreadyExists" in result.output


def test_container_scope_and_options_come_from_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "topologyManagerScope: container\ncpuManagerPolicyOptions: {full-pcpus-only: true}\n"
        "featureGates: {PodLevelResourceManagers: false}\n"
    )
    result = run("explain", "-f", manifest(tmp_path, "app", 3), "--config", config)
    assert result.exit_code == 1
    assert "scope container" in result.output
    assert "Options    full-pcpus-only=true" in result.output
    assert "Gates off  PodLevelResourceManagers" in result.output
    assert "change cpu of main to 4 or 2" in result.output


def test_a_machine_recorded_without_memory_sizes_needs_memory_policy_none(tmp_path: Path) -> None:
    bare = FOLDER / "x86_64-epyc_7451.json.xz"
    arguments = ["explain", "-f", str(manifest(tmp_path, "app", 2)), "--machine", str(bare)]
    error = CliRunner().invoke(numalet, arguments).exception
    assert isinstance(error, NumaletError)
    assert "memoryManagerPolicy None" in error.hint
    config = tmp_path / "config.yaml"
    config.write_text("memoryManagerPolicy: None\n")
    assert CliRunner().invoke(numalet, [*arguments, "--config", str(config)]).exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [["-f", "MISSING"], ["-f", "EMPTY"], ["-f", "BROKEN"], ["-f", "GOOD", "--config", "BROKEN"]],
    ids=["no file", "no pod", "no manifest", "no configuration"],
)
def test_bad_input_ends_with_status_2(tmp_path: Path, arguments: list[str]) -> None:
    files = {
        "MISSING": tmp_path / "missing.yaml",
        "EMPTY": tmp_path / "empty.yaml",
        "BROKEN": tmp_path / "broken.yaml",
        "GOOD": manifest(tmp_path, "good", 2),
    }
    files["EMPTY"].write_text("")
    files["BROKEN"].write_text("kind: Nothing")
    chosen = [str(files.get(word, word)) for word in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "agent", "explain", "--machine", str(MACHINE), *chosen],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_machine_the_live_node_is_the_configured_one_with_what_its_pods_hold(
    tmp_path: Path,
) -> None:
    state = stored(tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text(f"stateDir: {state}\n")
    assert live_node(config) == (config, state)
    config.write_text(f"stateDir: {tmp_path / 'none'}\n")
    assert live_node(config) == (config, None)


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_on_this_host_its_own_configuration_holds_and_another_one_may_be_tried(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "config.yaml", tmp_path / "other.yaml"
    own.write_text(f"topologyManagerPolicy: best-effort\nstateDir: {tmp_path}/state\n")
    other.write_text(f"topologyManagerPolicy: single-numa-node\nstateDir: {tmp_path}/state\n")
    monkeypatch.setattr(agent.cli.scratch, "DEFAULT_CONFIG", own)
    file = manifest(tmp_path, "small", 1)

    def policy(*options: str) -> str:
        done = CliRunner().invoke(numalet, [command, "-f", str(file), "-o", "json", *options])
        found: str = json.loads(done.stdout)["settings"]["topologyManagerPolicy"]
        return found

    assert policy() == "best-effort"
    assert policy("--config", str(other)) == "single-numa-node"
    assert policy("--machine", str(MACHINE)) == "restricted"
