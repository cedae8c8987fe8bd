"""`numalet config`: problems with file and line, what came out on a machine, a kubelet's file taken over."""

from __future__ import annotations

import json
from pathlib import Path

from agent.config import Config, load_config
from agent.config.model import HostIsolation
from tests.cli.command import invoke

MACHINE = str(Path(__file__).parents[1] / "data/machines/64amd64-4p2n4ca2co.json.xz")


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return str(file)


def test_check_tells_every_problem_of_the_file_with_its_line(tmp_path: Path) -> None:
    file = written(tmp_path, "stateDir: state\n\ncpuManagerPolicy: dynamic\n")
    result = invoke("config", "check", file, "--machine", MACHINE)
    assert result.status == 1
    assert [line.partition(": $")[0] for line in result.out.splitlines()] == [f"{file}:1", f"{file}:3"]


def test_check_tells_every_problem_on_the_machine_with_its_line(tmp_path: Path) -> None:
    text = "cpuManagerPolicyOptions:\n  full-pcpus: true\nreservedMemory:\n- {numaNode: 0, limits: {memory: 1Gi}}\n"
    file = written(tmp_path, text)
    result = invoke("config", "check", file, "--machine", MACHINE)
    assert result.status == 1
    assert [line.partition(": $")[0] for line in result.out.splitlines()] == [f"{file}:2", f"{file}:3"]
    assert "evictionHard 100Mi = 100Mi" in result.out


def test_check_names_a_group_that_does_not_exist(tmp_path: Path) -> None:
    file = written(tmp_path, "memoryManagerPolicy: None\ncontrolSocketGroup: no-such-group\n")
    result = invoke("config", "check", file)
    assert result.status == 1
    assert result.out == (
        f"{file}:2: $.controlSocketGroup: there is no group no-such-group (groupadd --system no-such-group)\n"
    )


def test_check_says_what_a_sound_configuration_reserves(tmp_path: Path) -> None:
    result = invoke("config", "check", written(tmp_path, ""), "--machine", MACHINE)
    assert result.status == 0
    assert result.out.endswith("no problem; reserves CPUs 0-1, memory 100Mi of node 0\n")


def test_show_tells_what_was_computed_on_the_machine_and_why(tmp_path: Path) -> None:
    file = written(tmp_path, "stateDir: /srv\n")
    shown = invoke("config", "show", file, "--machine", MACHINE)
    assert shown.status == 0
    assert load_config(shown.out.encode(), "shown").state_dir == "/srv"
    assert "# computed: no cpu is reserved, so one whole core is" in shown.out
    answer = invoke("config", "show", file, "--machine", MACHINE, "-o", "json").json
    assert answer["config"]["reservedSystemCPUs"] == "0-1"
    assert answer["config"]["podResourcesSocket"] == "/srv/pod-resources/kubelet.sock"
    assert answer["computed"].keys() == {"reservedSystemCPUs", "reservedMemory", "podResourcesSocket"}
    stated = invoke("config", "show", file, "--stated", "-o", "json").json
    assert "reservedSystemCPUs" not in stated["config"]


def test_the_default_file_is_the_defaults_with_the_isolation_of_a_packaged_service() -> None:
    packaged = Config(host_isolation=HostIsolation.SLICES)
    for words in (("default",), ("show", "--default")):
        assert load_config(invoke("config", *words).out.encode(), "config.yaml") == packaged
    assert load_config(invoke("config", "default", "-o", "json").out.encode(), "config.yaml") == Config()


def test_a_kubelets_file_becomes_one_that_passes_the_check(tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet.json"
    kubelet.write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "cpuManagerPolicy": "static",
                "systemReserved": {"cpu": "1", "memory": "1Gi"},
                "topologyManagerPolicy": "best-effort",
                "tlsMinVersion": "VersionTLS12",
            }
        )
    )
    made = tmp_path / "made.yaml"
    result = invoke("config", "from-kubelet", str(kubelet), "-o", str(made))
    assert result.status == 0
    assert "left out: tlsMinVersion: numalet has nothing like it" in result.err
    assert "taken over: memoryManagerPolicy (the kubelet's default)" in result.err
    assert invoke("config", "check", str(made), "--machine", MACHINE).status == 0


def test_a_kubelets_file_with_mistakes_is_refused_with_its_own_lines(tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "cpuCFSQuotaPeriod: 5ms\ntopologyManagerPolicy: strict\n"
    )
    result = invoke("config", "from-kubelet", str(kubelet))
    assert result.status == 1
    assert [line.partition(": $")[0] for line in result.err.splitlines()] == [f"{kubelet}:3", f"{kubelet}:4"]
    assert result.out == ""
