"""Annotations ``numalet/unit.<container>`` and ``numalet/cgroup.<container>``: which containers run elsewhere.

What they name is text of a stranger's until it was read here: unit names by systemd.unit(5), paths by
names that lead nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from agent.domain.binding import Binding, BindingKind, Bindings
from agent.domain.pod import CPU_ISOLATION, Container
from agent.manifest.problem import Problems, child, shown

PREFIX: Final = "numalet/"

_UNIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9:_.\\@-]*\.(service|scope)", re.ASCII)
_UNIT_LENGTH: Final = 255
_INIT: Final = "init.scope"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9:_.\\@-]*", re.ASCII)
_SYSTEMDS = re.compile(r".*\.(service|scope|slice|socket|mount|swap)")
_PATH_LENGTH: Final = 1024
_KINDS: Final = {kind.value: kind for kind in BindingKind}


def read_bindings(
    annotations: Mapping[str, str], containers: tuple[Container, ...], place: str, problems: Problems
) -> Bindings:
    """The bindings among ``annotations``, which are at ``place``. Each container and each target is there once."""
    known = {container.name: container for container in containers}
    bindings: dict[str, Binding] = {}
    for key, value in annotations.items():
        if key == CPU_ISOLATION or not key.startswith(PREFIX):
            continue
        word, _, name = key.removeprefix(PREFIX).partition(".")
        complaints = list(_complaints(_KINDS.get(word), known.get(name), value))
        if not complaints:
            binding = Binding(_KINDS[word], value)
            complaints = list(_doubles(bindings, name, binding))
            bindings.setdefault(name, binding)
        for complaint in complaints:
            problems.add(child(place, key), complaint)
    return bindings


def _complaints(kind: BindingKind | None, container: Container | None, value: str) -> Iterator[str]:
    if kind is None:
        yield "is not known (expected numalet/unit.CONTAINER, numalet/cgroup.CONTAINER or numalet/cpu-isolation)"
        return
    if container is None:
        yield "names no container of the pod (expected an app container or a sidecar)"
    elif not container.kind.keeps_running:
        yield (
            f"{container.name} is an init container, whose CPUs pass on to later ones"
            " (expected an app container or a sidecar)"
        )
    complaint = _bad_unit(value) if kind is BindingKind.UNIT else _bad_path(value)
    if complaint:
        yield complaint


def _doubles(bindings: Bindings, name: str, binding: Binding) -> Iterator[str]:
    if name in bindings:
        yield f"container {name} is {bindings[name]} already (expected one of the two)"
    holder = next((other for other, bound in bindings.items() if bound == binding), name)
    if holder != name:
        yield f"{binding} is container {holder} already (expected each once)"


def _bad_unit(text: str) -> str:
    """Complain unless ``text`` is the full name of a unit that holds processes of its own."""
    if len(text) > _UNIT_LENGTH or not _UNIT.fullmatch(text):
        return f'{shown(text)} is not a service or scope of systemd\'s (expected e.g. "postgresql.service")'
    if text == _INIT:
        return f"{_INIT} is systemd itself"
    if "@." in text:
        return f'{shown(text)} is a template (expected an instance, e.g. "worker@1.service")'
    return ""


def _bad_path(text: str) -> str:
    """Complain unless ``text`` is the path of a cgroup that is not systemd's, below the mount."""
    names = text.split("/")
    if len(text) > _PATH_LENGTH or not all(map(_NAME.fullmatch, names)):
        return (
            f"{shown(text)} is not a cgroup's path below the cgroup mount (expected e.g."
            ' "containers/db": no slash in front, no ".", "..", blanks or control characters)'
        )
    if _SYSTEMDS.fullmatch(names[-1]):
        return f"{shown(text)} is a unit's cgroup, which systemd sets (expected numalet/unit.CONTAINER: {names[-1]})"
    return ""
