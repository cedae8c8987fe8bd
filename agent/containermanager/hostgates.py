"""`Host` on this machine: systemd, /proc/irq and the cgroup hierarchy put together."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from agent.cgroup.preflight import mount_of
from agent.cgroup.toplevel import top_level_cpus
from agent.checkpoint.store import HOST_FILE, Store
from agent.config.model import Config, HostIsolation
from agent.containermanager.hostisolation import ConfinedHost, Host, LooseHost, check_place, spared_slice
from agent.containermanager.hostslices import HostSlices
from agent.containermanager.hoststate import Originals
from agent.containermanager.irqsteering import IrqSteering
from agent.domain.topology import Topology
from agent.irq.procirq import ProcIrq
from agent.systemdbus.dbus import SystemdBus


def host_of(config: Config, store: Store, boot_id: str, topology: Topology) -> Host:
    """The host as the configuration wants it; what another configuration left behind is given back.

    Raises ConfigError, HostError, StateError.
    """
    root = PurePosixPath(config.cgroup_root)
    originals = Originals(store, boot_id)
    slices = irqs = None
    if config.host_isolation is not HostIsolation.NONE:
        mount = mount_of(Path(root))
        check_place(root, PurePosixPath(mount))
        slices = _slices(mount, originals, spared_slice(root, PurePosixPath(mount)))
    if config.irq_affinity:
        irqs = IrqSteering(ProcIrq(), originals)
    if slices and irqs:
        return ConfinedHost(config.host_isolation, originals, slices, irqs)
    release_host(Path(root), store, boot_id, topology)
    if slices or irqs:
        return ConfinedHost(config.host_isolation, Originals(store, boot_id), slices, irqs)
    return LooseHost()


def release_host(cgroup_root: Path, store: Store, boot_id: str, topology: Topology) -> bool:
    """Give the host back what was taken from it; False if nothing was. Raises HostError, StateError."""
    if store.read(HOST_FILE) is None:
        return False
    originals = Originals(store, boot_id)
    slices = _slices(mount_of(cgroup_root), originals, "")
    host = ConfinedHost(HostIsolation.NONE, originals, slices, IrqSteering(ProcIrq(), originals))
    host.release(topology.online | topology.offline)
    return True


def _slices(mount: Path, originals: Originals, spared: str) -> HostSlices:
    return HostSlices(SystemdBus(), lambda: top_level_cpus(mount), originals, frozenset({spared}))
