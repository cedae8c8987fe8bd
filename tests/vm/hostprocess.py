"""Processes of the host that spin, in slices of their own, and where they may run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.domain.idset import CpuSet
from tests.vm.node import PATIENCE, allowed, text_of, wait_until
from tests.vm.units import systemctl

_SAMPLES = 40


@contextmanager
def spinning(slice_name: str) -> Iterator[int]:
    """The pid of a shell in an endless loop, in a service in ``slice_name``.

    It spins for a tenth of the time, or nothing else would get on with it where CPUs are emulated.
    """
    unit = f"spin-{slice_name.removesuffix('.slice')}.service"
    subprocess.run(
        [
            *("systemd-run", "--quiet", f"--unit={unit}", f"--slice={slice_name}"),
            "--property=CPUQuota=5%",  # spins, but leaves the emulated machine alive
            *("sh", "-c", "while :; do :; done"),
        ],
        check=True,
        timeout=PATIENCE,
    )
    try:
        wait_until(lambda: _pid(unit) > 0, f"{unit} runs")
        yield _pid(unit)
    finally:
        systemctl("stop", unit)


def _pid(unit: str) -> int:
    return int(systemctl("show", "--value", "--property=MainPID", unit))


def last_cpu(pid: int) -> int:
    """The CPU the process ran on last: field 39 of /proc/PID/stat."""
    return int(text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[36])


def may_run_on(pid: int, cpu: int) -> bool:
    """Whether the kernel lets the process go to one CPU; its own affinity is as before afterwards."""
    before = os.sched_getaffinity(pid)
    try:
        os.sched_setaffinity(pid, {cpu})
    except OSError:
        return False
    os.sched_setaffinity(pid, before)
    return True


def assert_kept_off(pids: tuple[int, ...], held: CpuSet) -> None:
    """The processes are not allowed on ``held``, cannot be moved there, and do not run there."""
    assert held
    for pid in pids:
        assert allowed(pid).isdisjoint(held)
        assert not any(may_run_on(pid, cpu) for cpu in held)
        for _ in range(_SAMPLES):
            assert allowed(pid).isdisjoint(held)
            assert last_cpu(pid) not in held
