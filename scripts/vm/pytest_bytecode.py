"""Move the bytecode that pytest keeps of test modules: FOLDER is a copy of a checkout that will lie in TARGET.

pytest, other than the interpreter, takes the name of the source from the bytecode, and shows in a failure what is there.
"""

from __future__ import annotations

import marshal
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType

HEADER = 16


def moved(code: CodeType, source: str) -> CodeType:
    """The code, and all in it, as of another file."""
    constants = (moved(one, source) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=source, co_consts=tuple(constants))


def main(folder: Path, target: Path) -> None:
    """Move all there is; what another Python wrote is left out."""
    for file in folder.rglob("__pycache__/*-pytest-*.pyc"):
        data = file.read_bytes()
        if not data.startswith(MAGIC_NUMBER):
            file.unlink()
            continue
        source = target / file.parent.parent.relative_to(folder) / f"{file.name.partition('.')[0]}.py"
        code = marshal.loads(data[HEADER:])  # noqa: S302 - our own
        file.write_bytes(data[:HEADER] + marshal.dumps(moved(code, str(source))))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
