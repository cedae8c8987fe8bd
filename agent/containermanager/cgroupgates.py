"""`CgroupBackend` on this machine, as ``cgroupDriver`` has it; and that no pods run elsewhere when it changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from agent.cgroup import layout
from agent.cgroup.backend import CgroupBackend
from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.containerwatch import ContainerWatch
from agent.cgroup.layout import Kind
from agent.cgroup.naming import PLAIN, CgroupNames, SliceNames, names_by
from agent.cgroup.preflight import mount_of
from agent.cgroup.slices import SystemdCgroups
from agent.cgroup.tree import top_down
from agent.cgroup.watch import DriftWatch
from agent.checkpoint.store import CGROUPS_FILE, Store
from agent.config.model import DEFAULT_SLICE, CgroupDriver, Config
from agent.errors import ConfigError, HostError, StateError
from agent.systemdbus.dbus import SystemdBus
from agent.systemdbus.unitname import is_top_level_slice

_DRIVER: Final = "cgroupDriver"
_ROOT: Final = "cgroupRoot"
_OURS: Final = frozenset({Kind.QOS, Kind.POD, Kind.POOL, Kind.CONTAINER, Kind.POOLED, Kind.NESTED})


@dataclass(frozen=True, slots=True)
class Place:
    """Where the pods' cgroups are, and who made them."""

    driver: CgroupDriver
    root: str

    @classmethod
    def of(cls, config: Config) -> Place:
        """As the configuration has it."""
        return cls(config.cgroup_driver, config.cgroup_root)

    @property
    def names(self) -> CgroupNames:
        """How the cgroups there are called."""
        return names_by(self.driver.value, self.root)


def cgroups_at(
    place: Place, watch: DriftWatch | None = None, containers: ContainerWatch | None = None
) -> CgroupBackend:
    """The subtree there. Raises ConfigError for a slice that is not at the top, HostError without cgroup v2."""
    root, names = Path(place.root), place.names
    files = CgroupFs(root, watch=watch, containers=containers, names=names)
    if not isinstance(names, SliceNames):
        return files
    check_slice(root, mount_of(root))
    return SystemdCgroups(files, SystemdBus(), names, watch)


def check_slice(root: PurePath, mount: PurePath) -> None:
    """Refuse a cgroup root that systemd would make elsewhere. Raises ConfigError."""
    if root.parent != mount or not is_top_level_slice(root.name):
        raise ConfigError(
            f"$.cgroupRoot: {root} is no slice right below {mount}, which cgroupDriver: systemd needs",
            hint=f"with cgroupDriver: systemd take {DEFAULT_SLICE}, the default then",
        )


def move_in(store: Store, place: Place, backend_at: Callable[[Place], CgroupBackend]) -> None:
    """Remember where the pods' cgroups are from now on; what an earlier place has left is removed.

    Raises HostError where processes of pods are still there: they would run on, and nobody would know.
    """
    before = _remembered(store)
    if before == place:
        return
    if before is not None:
        _vacate(before, backend_at(before), place)
    document = {_DRIVER: place.driver.value, _ROOT: place.root}
    store.write(CGROUPS_FILE, json.dumps(document, indent=1).encode() + b"\n")


def names_at(store: Store, root: Path) -> CgroupNames:
    """How the cgroups below ``root`` are called, by what `move_in` has remembered. Raises StateError."""
    place = _remembered(store)
    return place.names if place and place.root == str(root) else PLAIN


def _vacate(before: Place, backend: CgroupBackend, place: Place) -> None:
    seen = backend.observe().dirs
    uids = [
        layout.pod_uid_of(d) for d in top_down(seen) if layout.kind_of(d) is Kind.POD and seen[d].populated
    ]
    if uids:
        raise HostError(
            f"$.{_changed(before, place)}: pods still run in {before.root}, which cgroupDriver:"
            f" {before.driver.value} made: {', '.join(filter(None, uids))}",
            hint=f"start once more with cgroupDriver: {before.driver.value} and cgroupRoot: {before.root}, delete the"
            " pods or end their processes, and change it then",
        )
    for directory in reversed(top_down(seen)):
        if layout.kind_of(directory) in _OURS:
            backend.remove(directory)


def _changed(before: Place, place: Place) -> str:
    return _ROOT if before.driver is place.driver else _DRIVER


def _remembered(store: Store) -> Place | None:
    raw = store.read(CGROUPS_FILE)
    if raw is None:
        return None
    try:
        document = json.loads(raw)
        return Place(CgroupDriver(document[_DRIVER]), document[_ROOT])
    except (ValueError, KeyError, TypeError) as error:
        hint = (
            f"remove {CGROUPS_FILE} from the state directory, if no pod of another cgroupRoot runs any more"
        )
        raise StateError(
            f"{CGROUPS_FILE} does not say where pods' cgroups are: {error}", hint=hint
        ) from error
