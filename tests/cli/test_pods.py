"""`numalet apply`, `delete` and `exec`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.api.client import ControlClient, ControlError
from agent.cli.work import container_cgroup
from agent.domain.pod import PodUid
from agent.manifest import MAX_BYTES
from tests.cli.command import Command, invoke
from tests.containermanager.node import budgeted, manifest


def test_apply_tells_the_verdict_on_each_pod(numalet: Command) -> None:
    result = numalet("apply", "-f", numalet.file("a.yaml", manifest("a", cpu="1"), budgeted("team")))
    assert (result.status, result.err) == (0, "")
    assert result.out == "pod default/a admitted\npod default/team admitted\n"
    again = numalet("apply", "-f", numalet.file("a.yaml", manifest("a", cpu="1")))
    assert (again.status, again.out) == (0, "pod default/a unchanged\n")


def test_a_refusal_has_the_kubelets_words_then_numbers_and_the_way_out(numalet: Command) -> None:
    result = numalet("apply", "-f", numalet.file("big.yaml", manifest("big", cpu="64")))
    assert result.status == 1
    first, *rest = result.out.splitlines()
    assert first == (
        "pod default/big rejected: TopologyAffinityError:"
        " Resources cannot be allocated with Topology locality"
    )
    assert all(line.startswith("  ") for line in rest)


def test_apply_in_json(numalet: Command) -> None:
    files = (numalet.file("a.yaml", manifest("a")), numalet.file("big.yaml", manifest("big", cpu="64")))
    result = numalet("apply", "-o", "json", "-f", files[0], "-f", files[1])
    assert result.status == 1
    assert [one["verdict"] for one in result.json["results"]] == ["admitted", "rejected"]


def test_apply_shows_what_was_done_before_a_bad_file(numalet: Command) -> None:
    bad = numalet.root / "bad.yaml"
    bad.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {}\n")
    result = numalet("apply", "-f", numalet.file("a.yaml", manifest("a")), "-f", str(bad))
    assert result.status == 2
    assert result.out == "pod default/a admitted\n"
    assert result.err.startswith("numalet: bad.yaml: $.spec: containers is missing")


def test_apply_reads_all_files_before_it_admits_any(numalet: Command) -> None:
    result = numalet("apply", "-f", numalet.file("a.yaml", manifest("a")), "-f", "/nowhere/b.yaml")
    assert result.status == 2
    assert "/nowhere/b.yaml" in result.err
    assert numalet.owner.snapshot().pods == {}


def test_apply_of_a_directory_is_wrong_use(numalet: Command) -> None:
    assert numalet("apply", "-f", str(numalet.root)).status == 2


def test_apply_of_a_huge_file_is_refused_in_words(numalet: Command) -> None:
    huge = numalet.root / "huge.yaml"
    huge.write_bytes(b"#" * (MAX_BYTES + 1))
    result = numalet("apply", "-f", str(huge))
    assert (result.status, result.out) == (2, "")
    assert "are too many for a manifest" in result.err


def test_apply_reads_standard_input(numalet: Command) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "agent", "apply", "--socket", numalet.socket, "-f", "-"],
        input=json.dumps(manifest("a")).encode(),
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"pod default/a admitted\n", b"")


def test_delete_says_which_pod_is_gone(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("a.yaml", manifest("a")))
    result = numalet("delete", "a", "--grace-period", "0")
    assert (result.status, result.out, result.err) == (0, "pod default/a deleted\n", "")
    assert numalet.owner.snapshot().pods == {}


def test_delete_in_json(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("a.yaml", manifest("a", namespace="telco")))
    result = numalet("delete", "telco/a", "-o", "json")
    assert result.json == {"pod": "telco/a", "uid": "uid-a", "verdict": "deleted"}


@pytest.mark.parametrize("name", ["nobody", "telco/nobody", "../etc/passwd", "a/b/c", "", "ä b?&#%"])
@pytest.mark.parametrize("command", [("delete",), ("describe", "pod")], ids=lambda words: words[0])
def test_an_unknown_pod_has_its_own_exit_status(
    numalet: Command, command: tuple[str, ...], name: str
) -> None:
    result = numalet(command[0], *command[1:], name)
    assert (result.status, result.out) == (4, "")
    assert result.err.startswith("numalet: no pod ")


def test_without_a_daemon_the_exit_status_and_the_hint_say_so(tmp_path: Path) -> None:
    for command in (("get", "pods"), ("describe", "pod", "a"), ("delete", "a"), ("exec", "a", "b", "true")):
        result = invoke(*command[:1], "--socket", str(tmp_path / "s"), *command[1:])
        assert result.status == 3
        assert result.err == (
            f"numalet: no daemon answers on {tmp_path}/s\n"
            "  start it: systemctl start numalet, or numalet run --config FILE; --socket names another socket\n"
        )


def test_exec_finds_the_cgroup_of_every_kind_of_container(numalet: Command) -> None:
    document = budgeted("team")
    document["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    numalet("apply", "-f", numalet.file("team.yaml", document))
    client = ControlClient(Path(numalet.socket))
    base = Path("/sys/fs/cgroup/test/poduid-team")
    assert container_cgroup(client, "team", "main") == base / "main"
    assert container_cgroup(client, "default/team", "helper") == base / "shared.pool" / "helper"
    assert container_cgroup(client, "team", "debug") == base / "debug"


def test_exec_says_which_containers_there_are(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("team.yaml", budgeted("team")))
    result = numalet("exec", "team", "other", "--", "true")
    assert result.status == 4
    assert result.err == "numalet: pod default/team has no container other\n  it has: main, helper\n"


def test_exec_in_a_refused_pod_is_refused(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("big.yaml", manifest("big", cpu="64")))
    result = numalet("exec", "big", "main", "true")
    assert result.status == 1
    assert result.err.startswith("numalet: pod default/big is not admitted: TopologyAffinityError: ")


def test_exec_in_a_pod_that_leaves_is_refused(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("a.yaml", manifest("a")))
    numalet.owner._leaving.add(PodUid("uid-a"))
    try:
        with pytest.raises(ControlError, match="pod default/a is being deleted") as caught:
            container_cgroup(ControlClient(Path(numalet.socket)), "a", "main")
        assert caught.value.status == 409
    finally:
        numalet.owner._leaving.clear()


def test_exec_that_cannot_join_says_where(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("a.yaml", manifest("a")))
    result = numalet("exec", "a", "main", "--", "true")
    assert result.status == 2
    assert result.err.startswith("numalet: cannot join /sys/fs/cgroup/test/poduid-a/main: ")
