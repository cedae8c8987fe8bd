"""What the kernel shows of one cgroup, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from agent.cgroup.backend import CgroupBackend, EnforcementError
from agent.cgroup.layout import CgroupDir

VIEWED_FILES: Final = (
    "cpuset.cpus.effective",
    "cpuset.mems.effective",
    "cpu.max",
    "cpu.weight",
    "memory.max",
)


def kernel_view(cgroups: CgroupBackend, directory: CgroupDir) -> Mapping[str, str]:
    """The files that tell what holds there, as the kernel shows them; what is not there is left out."""
    view: dict[str, str] = {}
    for file in VIEWED_FILES:
        with suppress(EnforcementError):  # a file this kernel does not have
            view[file] = cgroups.read(directory, file)
    with suppress(EnforcementError):
        view |= {key: str(value) for key, value in cgroups.stat(directory).items()}
        view["processes"] = str(len(cgroups.procs(directory)))
    return view
