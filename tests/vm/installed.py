"""The Debian package on a machine: its service, and what a user does with it.

Its configuration is the packaged one, with the driver of `tests.vm.node.DRIVER`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from agent.api.client import ControlClient
from agent.cgroup.layout import CgroupDir
from agent.cgroup.naming import names_by
from tests.vm.node import (
    DEFAULT_ROOT,
    DRIVER,
    Json,
    allowed,
    is_alive,
    is_command,
    wait_until,
)
from tests.vm.units import systemctl

DEBS: Final = Path("/opt/debs")
"""scripts/vm-lane puts the packages there: the same build as revisions 1 and 2."""
UNIT: Final = "numalet.service"
ROOT: Final = DEFAULT_ROOT
CONFIG: Final = Path("/etc/numalet/config.yaml")
BEFORE_BOOT: Final = Path("/opt/before-boot.json")
"""What tests of a machine's first boot leave to those of its second."""
COMMAND: Final = "/usr/bin/numalet"
"""Not the tree's, which comes first in the guest's PATH."""


class Installed:
    """The package, its service, and what a user does with it."""

    def __init__(self) -> None:
        self.client = ControlClient(Path("/run/numalet/control.sock"))
        self.processes: list[subprocess.Popen[bytes]] = []

    def dpkg(self, *words: str | Path) -> str:
        """Run dpkg, which need not wait for the disk; returns all that was printed."""
        done = subprocess.run(
            ["dpkg", "--no-triggers", "--force-unsafe-io", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def install(self) -> str:
        """Install on a machine that never had it, and choose the driver as an administrator does."""
        printed = self._unpack(1)
        if DRIVER != "cgroupfs":
            with CONFIG.open("a") as config:
                config.write(f"\ncgroupDriver: {DRIVER}\n")
            systemctl("restart", UNIT)
        return printed

    def upgrade(self) -> str:
        """Install the next revision."""
        return self._unpack(2)

    def _unpack(self, revision: int) -> str:
        found = list(DEBS.glob(f"numalet_*-{revision}_*.deb"))
        assert len(found) == 1, f"{DEBS} has {found}: run scripts/vm-lane, which puts them there"
        return self.dpkg("--install", *found)

    def show(self, name: str) -> str:
        """A property of the unit."""
        return systemctl("show", "--value", "--property", name, UNIT).strip()

    def numalet(self, *words: str) -> str:
        """The installed command."""
        done = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False, cwd="/")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def at(self, directory: str) -> Path:
        """A cgroup of the layout, as ``poduid-web/main``."""
        return ROOT / names_by(DRIVER, str(ROOT)).path(CgroupDir(directory))

    def pods(self) -> dict[str, Json]:
        """All pods by name."""
        return {pod["name"]: pod for pod in self.client.call("GET", "/v1/pods")["pods"]}

    def held(self) -> dict[str, tuple[str, Json, str]]:
        """What each container was given, and its cgroup."""
        return {
            f"{pod}/{container['name']}": (container["cpus"], container["memory"], container["cgroup"])
            for pod, told in self.pods().items()
            for container in told["containers"]
        }

    def run(self, pod: str, container: str) -> int:
        """Run a process in a container, as users do; its id."""
        command = [COMMAND, "exec", pod, container, "--", "sleep", "900"]
        process = subprocess.Popen(command, cwd="/")
        self.processes.append(process)
        wait_until(lambda: is_command(process.pid, "sleep"), "it has become the command")
        return process.pid

    def placed(self) -> list[str]:
        """Where each process that was started may run."""
        return [
            f"{process.pid}: {allowed(process.pid)}" for process in self.processes if is_alive(process.pid)
        ]

    def restarted(self, pid: str) -> bool:
        """Whether another daemon than this one is ready."""
        return self.show("ActiveState") == "active" and self.show("MainPID") not in (pid, "0")

    def end_processes(self) -> None:
        """End what was started; the machine is not used again."""
        for process in self.processes:
            process.kill()
            process.wait()
