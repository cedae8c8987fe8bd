"""`Host` on this machine: systemd, /proc/irq and the cgroup hierarchy put together."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.preflight import mount_of
from agent.cgroup.toplevel import top_level_cpus
from agent.checkpoint.store import HOST_FILE, Store
from agent.config.model import Config
from agent.containermanager.boundgates import release_bound
from agent.containermanager.cgroupgates import names_at
from agent.containermanager.hostisolation import Host, HostGates, check_place, host_with, spared_slice
from agent.containermanager.hostpartitions import HostPartitions, dissolve
from agent.containermanager.hostslices import HostSlices
from agent.containermanager.hoststate import Originals
from agent.containermanager.irqsteering import IrqSteering
from agent.domain.topology import Topology
from agent.irq.procirq import ProcIrq
from agent.systemdbus.dbus import SystemdBus


def host_of(config: Config, store: Store, boot_id: str, topology: Topology) -> Host:
    """The host as the configuration wants it, see `host_with`. Raises ConfigError, HostError, StateError."""
    root = PurePosixPath(config.cgroup_root)
    mount = PurePosixPath(mount_of(Path(root)))
    check_place(config.host_isolation, root, mount)
    originals = Originals(store, boot_id)
    slices, irqs = _gates(mount, originals, spared_slice(root, mount))
    everything = topology.online | topology.offline
    gates = HostGates(slices=slices, irqs=irqs, partitions=HostPartitions(str(root), originals))
    return host_with(config.host_isolation, gates, everything, irq_affinity=config.irq_affinity)


def release_host(cgroup_root: Path, store: Store, boot_id: str, topology: Topology) -> bool:
    """Give the host back what was taken from it; False if nothing was. Raises HostError, StateError."""
    unbound = release_bound(mount_of(cgroup_root), store, boot_id, topology)
    if store.read(HOST_FILE) is None:
        return unbound
    originals = Originals(store, boot_id)
    slices, irqs = _gates(PurePosixPath(mount_of(cgroup_root)), originals, "")
    # No partition file is a unit property: systemd need not be asked.
    dissolve(originals, lambda root: CgroupFs(root, names=names_at(store, root)))
    slices.release(topology.online | topology.offline)
    irqs.release()
    store.remove(HOST_FILE)  # one of an earlier boot
    return True


def _gates(mount: PurePosixPath, originals: Originals, spared: str) -> tuple[HostSlices, IrqSteering]:
    slices = HostSlices(SystemdBus(), lambda: top_level_cpus(Path(mount)), originals, frozenset({spared}))
    return slices, IrqSteering(ProcIrq(), originals)
