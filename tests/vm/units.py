"""Units of the guest's systemd."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.vm.node import PATIENCE

_UNITS: Final = Path("/run/systemd/system")


def systemctl(*words: str) -> str:
    """Run systemctl and return what it prints; fails where it fails."""
    done = subprocess.run(
        ["systemctl", *words], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Unit:
    """A unit that is there in the block, with a drop-in if one is given.

    systemd knows no unit of the name before, and looks for it when it is asked for: no daemon-reload is needed.
    """

    def __init__(self, name: str, text: str, drop_in: str = "") -> None:
        self.name = name
        self._text = text
        self._drop_in = drop_in

    def __enter__(self) -> Self:
        (_UNITS / self.name).write_text(self._text)
        drop_ins = _UNITS / f"{self.name}.d"
        drop_ins.mkdir()
        (drop_ins / "test.conf").write_text(self._drop_in)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        systemctl("stop", self.name)
        (_UNITS / self.name).unlink()
        shutil.rmtree(_UNITS / f"{self.name}.d")

    def show(self, name: str) -> str:
        """One property."""
        return systemctl("show", "--value", "--property", name, self.name).strip()

    @property
    def main_pid(self) -> int:
        """The process that systemd takes for the service's own."""
        return int(self.show("MainPID"))
