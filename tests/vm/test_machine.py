"""The machine as numalet sees it, beside what the kernel's own tools say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import PATIENCE, numalet

pytestmark = [pytest.mark.vm, pytest.mark.matrix]


def output(*command: object) -> str:
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def topology(*options: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(numalet("topology", "-o", "json", *options).stdout)
    return found


def groups(column: str) -> list[str]:
    """The CPUs of each core, socket or node by lscpu."""
    found: dict[str, set[int]] = {}
    for line in output("lscpu", f"--parse=CPU,{column}").splitlines():
        if not line.startswith("#"):
            cpu, group = line.split(",")
            found.setdefault(group, set()).add(int(cpu))
    return [str(CpuSet.of(cpus)) for cpus in sorted(found.values(), key=min)]


def test_topology_agrees_with_proc_and_lscpu(tmp_path: Path) -> None:
    found = topology()
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    assert CpuSet.parse(found["onlineCPUs"]) == CpuSet.of(
        int(line.split(":")[1]) for line in cpuinfo if line.startswith("processor")
    )
    assert (found["cores"], found["sockets"]) == (groups("CORE"), groups("SOCKET"))
    assert [node["cpus"] for node in found["numaNodes"] if node["cpus"]] == groups("NODE")
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert sum(node["memory"] for node in found["numaNodes"]) == int(meminfo["MemTotal"].split()[0]) << 10
    assert found["warnings"] == []

    file = tmp_path / "guest.json.xz"
    numalet("record", file).check_returncode()
    assert topology("--machine", file) == found
