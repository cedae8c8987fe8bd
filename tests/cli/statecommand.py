"""`numalet state` on stored state of kubelets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from tests.cli.command import Result, invoke
from tests.data.state.generate import FOLDER
from tests.sysfs.machines import FOLDER as MACHINES

Json = dict[str, Any]
MACHINE: Final = FOLDER / "machine.json.xz"
PODS: Final = FOLDER / "pods.json"
OTHER_MACHINE: Final = MACHINES / "64amd64-4p2n4ca2co.json.xz"


def state(*arguments: object) -> Result:
    return invoke("state", *map(str, arguments))


def copied(tmp_path: Path, name: str) -> Path:
    return shutil.copytree(FOLDER / name, tmp_path / name)


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}
