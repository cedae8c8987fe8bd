"""A host in memory with units and cgroups that are not numalet's: systemd's settings come to the kernel's files."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agent.cgroup.backend import EnforcementError
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import CgroupDir
from agent.checkpoint.store import Store
from agent.containermanager.binder import Binder
from agent.containermanager.boundstate import BoundOriginals
from agent.domain.idset import CpuSet, IdSet, NodeMask
from agent.domain.topology import Topology
from agent.systemdbus.fake import FakeSystemd
from agent.systemdbus.place import place_of
from agent.systemdbus.properties import INFINITY, LOAD_STATE, Properties, PropertyValue

CONTROLLERS = ("cpuset", "cpu", "memory")


class Watch:
    """Remembers what is followed."""

    def __init__(self) -> None:
        self.places: tuple[CgroupDir, ...] = ()
        self.before: Callable[[], object] = lambda: None
        """What happens just before it is followed."""

    def follow(self, places: Iterable[CgroupDir]) -> None:
        self.before()
        self.places = tuple(places)


class BoundHost(FakeSystemd):
    """Units in `system.slice` or where their Slice says, and other cgroups below the same mount."""

    def __init__(self, machine: Topology) -> None:
        super().__init__()
        self.cgroups = FakeCgroups(
            machine.online, NodeMask(machine.all_nodes.bits), possible=machine.possible
        )
        self.cgroups.prepare()
        self.cgroups.enable(CgroupDir(""), CONTROLLERS)
        self.watch = Watch()
        self.ours = {
            CgroupDir("test"): "numalet's cgroupRoot",
            CgroupDir("system.slice/numalet.service"): "the daemon",
        }

    def binder(self, store: Store, boot_id: str) -> Binder:
        originals = BoundOriginals(store, boot_id)
        return Binder(self, self.cgroups, originals, self.watch, self.ours, "/sys/fs/cgroup")

    def make(self, path: str) -> CgroupDir:
        """A cgroup, all controllers on above it."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            here = CgroupDir("/".join(parts[:depth]))
            if not self.cgroups.exists(here):
                self.cgroups.make(here)
            if depth < len(parts):
                self.cgroups.enable(here, CONTROLLERS)
        return CgroupDir(path)

    def start(self, unit: str, **properties: PropertyValue) -> CgroupDir:
        """A unit starts: it has a cgroup with its settings, in a slice at the top, and a process."""
        if properties or self.properties(unit)[LOAD_STATE] != "loaded":
            self.install(unit, active=True, **properties)
        else:
            self.run(unit)
        top = str(self.properties(unit)["Slice"])
        if not self.units([top]):
            self._load(top, {})
        place = self.make(place_of(unit, self.properties(unit)))
        self._write(place, self.properties(unit))
        self.cgroups.add_process(place, self.cgroups.spawn())
        return place

    def end(self, unit: str) -> None:
        """A unit stops: its cgroup goes."""
        place = self.place(unit)
        self.halt(unit)
        self.cgroups.kill(place)
        self.cgroups.remove(place)

    def place(self, unit: str) -> CgroupDir:
        return CgroupDir(place_of(unit, self.properties(unit)))

    def set_properties(self, unit: str, properties: Properties) -> None:
        super().set_properties(unit, properties)
        if self.cgroups.exists(self.place(unit)):
            self._write(self.place(unit), self.properties(unit))

    def _write(self, place: CgroupDir, properties: Properties) -> None:
        """As systemd 252 does: a set that is taken back stays in the kernel; a memory limit is written blindly."""
        quota, period = properties["CPUQuotaPerSecUSec"], properties["CPUQuotaPeriodUSec"]
        assert isinstance(quota, int)
        assert isinstance(period, int)
        period = 100_000 if period == INFINITY else period
        bandwidth = f"{'max' if quota == INFINITY else quota * period // 1_000_000} {period}"
        for file, text in (
            ("cpuset.cpus", _text(properties["AllowedCPUs"], "")),
            ("cpuset.mems", _text(properties["AllowedMemoryNodes"], "")),
            ("cpu.max", bandwidth),
            ("cpu.weight", _text(properties["CPUWeight"], "100")),
            ("memory.max", _text(properties["MemoryMax"], "max")),
        ):
            if text:
                self.force(place, file, text)

    def force(self, place: CgroupDir, file: str, text: str) -> None:
        """What a stranger writes, whatever comes of it."""
        try:
            self.cgroups.write(place, file, text)
        except EnforcementError as error:
            if error.code != "READ-BACK":
                raise

    def cpus(self, place: str) -> CpuSet:
        """Where its processes may run."""
        return self.cgroups.effective_cpus(CgroupDir(place))


def _text(value: PropertyValue, unset: str) -> str:
    if isinstance(value, IdSet):
        return str(value)
    return unset if value == INFINITY else str(value)
