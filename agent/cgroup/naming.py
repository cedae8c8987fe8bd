"""How a cgroup of the layout is called in the file system, and which one a name there is.

`PlainNames` (``cgroupDriver: cgroupfs``) takes the layout's own words. `SliceNames` (``systemd``) makes a
slice of each: the name of a slice repeats those of all slices above it, joined by ``-`` (systemd.slice(5)),
so ``-`` in a uid or a container's name becomes ``_``, as the kubelet has it, and ``_`` becomes ``\\x5f``
(systemd.unit(5)): ``pod1f-2a/web`` is ``numalet-pod1f_2a.slice/numalet-pod1f_2a-web.slice``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from agent.cgroup import layout
from agent.cgroup.layout import ROOT, CgroupDir
from agent.systemdbus.unitname import SLICE

SYSTEMD: Final = "systemd"
_WORD: Final = re.compile(r"(?:[A-Za-z0-9_.]|\\x5f)+", re.ASCII)
_UNDERSCORE: Final = r"\x5f"
_NOT_OURS: Final = "@"
"""In front of a name that is no slice of the layout: no word of the layout begins like this."""


class CgroupNames(Protocol):
    """Paths are relative to the cgroup root, ``/``-separated."""

    @property
    def driver(self) -> str:
        """The ``cgroupDriver`` that has these names."""

    def path(self, directory: CgroupDir) -> str:
        """Where the cgroup of the layout is."""

    def directory(self, path: str) -> CgroupDir:
        """The cgroup that is there: `path` the other way round."""


class PlainNames:
    """`CgroupNames` that are the layout's."""

    driver = "cgroupfs"

    def path(self, directory: CgroupDir) -> str:
        """See `CgroupNames.path`."""
        return directory

    def directory(self, path: str) -> CgroupDir:
        """See `CgroupNames.directory`."""
        return CgroupDir(path)


@dataclass(frozen=True, slots=True)
class SliceNames:
    """`CgroupNames` below the top-level slice ``root``, such as ``numalet.slice``."""

    root: str

    @property
    def driver(self) -> str:
        """See `CgroupNames.driver`."""
        return SYSTEMD

    def path(self, directory: CgroupDir) -> str:
        """See `CgroupNames.path`."""
        return _path(self.root, directory)

    def directory(self, path: str) -> CgroupDir:
        """See `CgroupNames.directory`. What is no slice of the layout's names keeps its name, behind a ``@``."""
        return _directory(self.root, path)

    @property
    def below(self) -> str:
        """A glob of the names of all slices below."""
        return f"{self.root.removesuffix(SLICE)}-*{SLICE}"

    def directory_of(self, unit: str) -> CgroupDir:
        """The cgroup of a slice that is ``root`` or `below` it: `unit` the other way round."""
        words = unit.removesuffix(SLICE).split("-")
        return self.directory("/".join("-".join(words[:end]) + SLICE for end in range(2, len(words) + 1)))

    def unit(self, directory: CgroupDir) -> str:
        """The slice whose cgroup it is."""
        return self.path(directory).rpartition("/")[2] if directory else self.root


PLAIN: Final = PlainNames()


def names_by(driver: str, root: str) -> CgroupNames:
    """The names that cgroups have below ``root``, an absolute path, by their ``cgroupDriver``."""
    return SliceNames(root.rpartition("/")[2]) if driver == SYSTEMD else PLAIN


@lru_cache(maxsize=4096)
def _path(root: str, directory: CgroupDir) -> str:
    if directory == ROOT:
        return ""
    above = _path(root, layout.parent_of(directory))
    word = directory.rpartition("/")[2]
    return f"{above}/{_name(root, above, word)}" if above else _name(root, above, word)


def _name(root: str, above: str, word: str) -> str:
    """The name of the cgroup ``word`` in the cgroup ``above``."""
    if word.startswith(_NOT_OURS):
        return word.removeprefix(_NOT_OURS)
    return _prefix(root, above) + word.replace("_", _UNDERSCORE).replace("-", "_") + SLICE


def _prefix(root: str, above: str) -> str:
    """What the slices in the cgroup ``above`` begin with."""
    return (above.rpartition("/")[2] or root).removesuffix(SLICE) + "-"


@lru_cache(maxsize=4096)
def _directory(root: str, path: str) -> CgroupDir:
    if not path:
        return ROOT
    above, _, name = path.rpartition("/")
    word = name.removeprefix(_prefix(root, above)).removesuffix(SLICE)
    if _WORD.fullmatch(word):
        word = word.replace("_", "-").replace(_UNDERSCORE, "_")
        if _name(root, above, word) == name:
            return layout.child(_directory(root, above), word)
    return layout.child(_directory(root, above), _NOT_OURS + name)
