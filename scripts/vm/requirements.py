"""Print what the guest's Python needs: the project's dependencies and its `guest` extra."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
wanted = [*project.get("dependencies", []), *project.get("optional-dependencies", {})["guest"]]
print(*sorted(wanted), sep="\n")
