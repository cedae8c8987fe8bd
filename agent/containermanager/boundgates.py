"""`Binder` on this machine: systemd, the whole cgroup mount, and what is numalet's there."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from agent.cgroup.boundwatch import BoundWatch
from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.layout import CgroupDir
from agent.cgroup.preflight import mount_of
from agent.checkpoint.store import BINDINGS_FILE, Store
from agent.config.model import Config
from agent.containermanager.binder import Binder
from agent.containermanager.boundstate import BoundOriginals
from agent.domain.topology import Topology
from agent.systemdbus.dbus import SystemdBus


def binder_of(config: Config, store: Store, boot_id: str, watch: BoundWatch) -> Binder:
    """Bound containers as the configuration wants them. Raises HostError where there is no cgroup v2."""
    root = Path(config.cgroup_root)
    mount = mount_of(root)
    ours = {
        own_cgroup(Path("/proc/self/cgroup").read_text()): "where the daemon itself runs",
        CgroupDir(str(root.relative_to(mount))): "numalet's cgroupRoot",
    }
    return Binder(
        SystemdBus(),
        CgroupFs(mount),
        BoundOriginals(store, boot_id),
        watch,
        {place: what for place, what in ours.items() if place},
        str(mount),
    )


def release_bound(mount: Path, store: Store, boot_id: str, topology: Topology) -> bool:
    """Give back what bound units and cgroups had; False if nothing was bound. Raises HostError, StateError."""
    if store.read(BINDINGS_FILE) is None:
        return False
    with closing(BoundWatch(mount)) as watch:
        originals = BoundOriginals(store, boot_id)
        binder = Binder(SystemdBus(), CgroupFs(mount), originals, watch, {}, str(mount))
        binder.settle((topology.online | topology.offline, topology.memory_nodes))
    store.remove(BINDINGS_FILE)  # one of an earlier boot
    return True


def own_cgroup(text: str) -> CgroupDir:
    """Our cgroup v2 in /proc/self/cgroup (cgroups(7)), below the mount; empty for the top one."""
    line = next((line for line in text.splitlines() if line.startswith("0::")), "0::/")
    return CgroupDir(line.removeprefix("0::").strip("/"))
