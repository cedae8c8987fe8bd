"""Print debian/copyright: numalet's licence, and that of every package in the directory it is shipped with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

_HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: numalet

Files: *
Copyright: 2026 the numalet authors
License: Apache-2.0

License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0."""


def _stanza(found: Distribution, directory: Path) -> Iterator[str]:
    about = found.metadata
    classified = [
        c.rsplit(" :: ", 1)[1] for c in about.get_all("Classifier", []) if c.startswith("License :: ")
    ]
    stated = (about[field] for field in ("License-Expression", "License") if field in about)
    licence = next(stated, ", ".join(classified))
    folder = next(directory.glob(f"{about['Name'].replace('-', '_').lower()}-*.dist-info"))
    texts = sorted(p for p in folder.rglob("*") if p.name.startswith(("LICENSE", "COPYING", "NOTICE")))
    if not licence or not texts:
        sys.exit(f"{about['Name']} {found.version} states no licence")
    yield ""
    yield f"Files: usr/lib/numalet/ (Python package {about['Name']} {found.version})"
    yield f"Copyright: the authors of {about['Name']}"
    yield f"License: {licence}"
    yield " The full text is in:"
    yield from (f" /usr/lib/numalet/{path.relative_to(directory)}" for path in texts)


def main() -> None:
    """Read the directory named on the command line."""
    directory = Path(sys.argv[1])
    print(_HEAD)
    found = {d.metadata["Name"].lower(): d for d in distributions(path=[str(directory)])}
    for name in sorted(found.keys() - {"numalet"}):
        print(*_stanza(found[name], directory), sep="\n")


if __name__ == "__main__":
    main()
