"""A node on which no container is bound to anything."""

from __future__ import annotations

from pathlib import Path

from agent.cgroup.boundwatch import BoundWatch
from agent.cgroup.fake import FakeCgroups
from agent.checkpoint.store import Store
from agent.containermanager.binder import Binder
from agent.containermanager.boundstate import BoundOriginals
from agent.domain.idset import CpuSet, NodeMask
from agent.systemdbus.dbus import SystemdBus


def unbound(store: Store, nowhere: Path) -> Binder:
    """Nobody is asked anything."""
    nobody = FakeCgroups(CpuSet(), NodeMask())
    return Binder(SystemdBus(), nobody, BoundOriginals(store, "bench"), BoundWatch(nowhere), {}, str(nowhere))
