"""The daemon: puts the parts together and runs until a signal ends it.

Pods outlive the daemon: it stops without touching them, and takes them over when it starts again.
Three things go on at once: this loop (reconcile, hotplug, watchdog), the manifest directory (which
may wait for processes to end), and the servers, each in a thread of its own.
"""

from __future__ import annotations

import gc
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

from agent.api.configuration import configuration_routes
from agent.api.http import Page, PageServer, Request
from agent.api.page import page_routes
from agent.api.podresources.server import PodResourcesServer
from agent.api.routes import QUICK, control_routes
from agent.api.server import ControlServer
from agent.api.unixsocket import group_id
from agent.cgroup.backend import CgroupBackend
from agent.cgroup.boundwatch import BoundWatch
from agent.cgroup.containerwatch import ContainerWatch
from agent.cgroup.preflight import mount_of, require
from agent.cgroup.watch import DriftWatch
from agent.checkpoint.store import StateDir, Store
from agent.config import Config
from agent.config.address import parse_address
from agent.config.source import ConfigSource
from agent.containermanager import ContainerManager
from agent.containermanager.binder import Binder
from agent.containermanager.boundgates import binder_of
from agent.containermanager.cgroupgates import Place, cgroups_at, move_in
from agent.containermanager.follower import ChangeSource, ContainerFollower
from agent.containermanager.hostgates import host_of
from agent.containermanager.hostisolation import Host
from agent.containermanager.machine import Machine
from agent.domain.topology import Topology
from agent.errors import HostError, NumaletError
from agent.log import set_up_logging
from agent.metrics import DecisionMetrics, NodeMetrics
from agent.podsource import ManifestDir, ManifestFollower
from agent.reload import Apply, Configuration
from agent.sysfs.discovery import discover
from agent.sysfs.hotplug import HotplugWatch, watch_hotplug
from agent.sysfs.reader import HostSysfs
from agent.systemd import Notifier

log = logging.getLogger(__name__)

_BURST_SECONDS: Final = 0.1
"""Writes to cgroups that follow one another as quickly are looked at together."""
_FIRST_SYNC_SECONDS: Final = 10.0
"""Ready means that the manifests were followed once, unless that takes longer than this."""


def run_daemon(source: ConfigSource, environ: Mapping[str, str]) -> None:
    """Run until SIGTERM or SIGINT, reload on SIGHUP; raises NumaletError where the daemon cannot start."""
    config = source.load()
    set_up_logging(config.log_level.value, config.log_format.value, environ)
    place, root = Place.of(config), Path(config.cgroup_root)
    with ExitStack() as stack:
        hotplug = watch_hotplug()  # before the first look: no change is missed between the two
        stack.callback(hotplug.close)
        drift = stack.enter_context(closing(DriftWatch(root, place.names)))
        containers = stack.enter_context(closing(ContainerWatch(root, place.names)))
        cgroups = cgroups_at(place, drift, containers)
        edges = Edges(
            hotplug=hotplug,
            look=_look,
            cgroups=cgroups,
            containers=containers,
            drift=drift,
            host=host_of,
            bound=lambda config: BoundWatch(mount_of(Path(config.cgroup_root))),
            binder=binder_of,
        )
        serve(source, config, environ, edges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The machine the daemon runs on: what it is by a configuration, its cgroups, and who tells of changes."""

    hotplug: HotplugWatch
    look: Callable[[Config], Machine]
    cgroups: CgroupBackend
    containers: ChangeSource
    drift: DriftWatch
    host: Callable[[Config, Store, str, Topology], Host]
    bound: Callable[[Config], BoundWatch]
    binder: Callable[[Config, Store, str, BoundWatch], Binder]


def serve(source: ConfigSource, config: Config, environ: Mapping[str, str], edges: Edges) -> None:
    """Run by ``config``, which ``source`` had last; see `run_daemon`."""
    with ExitStack() as stack:
        machine = edges.look(config)
        for warning in machine.topology.warnings:
            log.warning("topology: %s", warning)
        decisions = DecisionMetrics()
        require(edges.cgroups.preflight())  # before a file or a socket is made for nothing
        store = stack.enter_context(StateDir(Path(config.state_dir)))
        place = Place.of(config)
        move_in(store, place, cgroups_at)
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        bound = stack.enter_context(closing(edges.bound(config)))
        owner = ContainerManager(
            machine=machine,
            store=store,
            cgroups=edges.cgroups,
            cgroup_root=config.cgroup_root,
            cgroup_names=place.names,
            recovery=config.state_recovery,
            pids_limit=config.pod_pids_limit,
            boot_id=boot_id,
            host=edges.host(config, store, boot_id, machine.topology),
            binder=edges.binder(config, store, boot_id, bound),
            binding_policy=config.bindings,
            now=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            observers=(decisions.decided,),
            timed=decisions.timed,
        )
        metrics = NodeMetrics(decisions, owner.snapshot, edges.cgroups.stat)
        notifier = Notifier(environ)
        configuration = Configuration(source, config, owner, edges.look, notifier)
        kernel = Kernel(
            edges.hotplug,
            lambda: edges.look(configuration.current),
            edges.containers,
            edges.drift,
            bound,
        )
        daemon = stack.enter_context(Daemon(configuration, owner, metrics, kernel, notifier))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: daemon.stop())
        signal.signal(signal.SIGHUP, lambda *_: daemon.ask_reload())
        daemon.live["logLevel"] = daemon.live["logFormat"] = lambda wanted: set_up_logging(
            wanted.log_level.value, wanted.log_format.value, environ
        )
        daemon.run()


def _look(config: Config) -> Machine:
    topology = discover(HostSysfs(Path("/")))
    return Machine.of(topology, config.settings(topology), config.reservation_arithmetic(topology))


@dataclass(frozen=True, slots=True)
class Kernel:
    """Tells of hotplug, what the machine has then become, of processes that come and go, and of strangers."""

    hotplug: HotplugWatch
    look: Callable[[], Machine]
    containers: ChangeSource
    drift: DriftWatch
    bound: BoundWatch


class Daemon:
    """The owner with its faces. A context: leaving it gives up sockets and threads, no pod."""

    def __init__(
        self,
        configuration: Configuration,
        owner: ContainerManager,
        metrics: NodeMetrics,
        kernel: Kernel,
        notifier: Notifier,
    ) -> None:
        self.configuration = configuration
        self.owner = owner
        self.kernel = kernel
        self.follower = ContainerFollower(owner, kernel.containers)
        self.notifier = notifier
        self.ready = Event()
        self._metrics = metrics
        self._stack = ExitStack()
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = Event()
        self._synced = Event()
        self._reload_asked = Event()
        self._pages: PageServer | None = None
        self._reconciling = _Chore(self.config.reconcile_period, self._reconcile)
        self._repairing = _Chore(inf, owner.repair_drift)
        self.live: dict[str, Apply] = {
            "podPidsLimit": lambda wanted: owner.limit_pids(wanted.pod_pids_limit),
            "bindings": lambda wanted: owner.allow_bindings(wanted.bindings),
            "cpuManagerReconcilePeriod": self._reconcile_every,
            "metricsBindAddress": lambda wanted: self._serve_pages(wanted.metrics_address),
        }
        """How each key that a reload changes at once is brought into force."""
        configuration.live = self.live

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.configuration.current

    def __enter__(self) -> Self:
        self._stack.callback(os.close, self._wake)
        self._stack.callback(self._selector.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._stack.close()

    def stop(self) -> None:
        """Let `run` return; from any thread, and from a signal handler."""
        if not self._stopping.is_set():
            self._stopping.set()
            os.eventfd_write(self._wake, 1)

    def ask_reload(self) -> None:
        """Read the configuration again soon; from any thread, and from a signal handler."""
        self._reload_asked.set()
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Take over, serve, and say so; returns after `stop`. Raises NumaletError."""
        with _nothing_collected():
            self._start()
        self._loop()
        self.notifier.stopping()
        self.owner.settle()
        log.info("stopping: pods keep running")

    def _start(self) -> None:
        # The sockets first: a second daemon finds them taken before it touches any cgroup.
        routes = {**control_routes(self.owner), **configuration_routes(self.configuration)}
        group = group_id(self.config.control_group)
        control = ControlServer(Path(self.config.control_socket), routes, group, QUICK)
        self._stack.callback(control.stop)
        self.live["controlSocketGroup"] = lambda wanted: control.admit_group(group_id(wanted.control_group))
        self._pages = self._page_server(self.config.metrics_address)
        self._stack.callback(self._stop_pages)
        listers = self._pod_resources_server()
        self.owner.start()
        self.follower.take_over()
        control.start()
        if self._pages:
            self._pages.start()
        for lister in listers:
            lister.start()
        self._follow_manifests()
        self.ready.set()
        self.notifier.ready(self.owner.status_line())
        address = self.config.metrics_address or "off"
        lister_path = self.config.pod_resources_path or "off"
        log.info(
            "ready: %s; control=%s metrics=%s pod-resources=%s",
            self.owner.status_line(),
            control.path,
            address,
            lister_path,
        )

    def _page_server(self, text: str) -> PageServer | None:
        address = parse_address(text)
        if address is None:
            return None
        routes: dict[str, Callable[[Request], Page]] = {
            "/metrics": self._metrics_page,
            "/healthz": _healthy,
            "/readyz": self._ready_page,
        }
        if self.config.ui:
            routes |= page_routes(self.owner, address)
        return PageServer(address, routes)

    def _stop_pages(self) -> None:
        if self._pages:
            self._pages.stop()

    def _serve_pages(self, address: str) -> None:
        """Serve there instead; raises HostError, and then as before (the two may share a port)."""
        self._stop_pages()
        try:
            self._pages = self._page_server(address)
        except HostError:
            self._pages = self._page_server(self.config.metrics_address)
            raise
        finally:
            if self._pages:
                self._pages.start()

    def _pod_resources_server(self) -> tuple[PodResourcesServer, ...]:
        path = self.config.pod_resources_path
        if not path:
            return ()
        count = self._metrics.pod_resources.count
        lister = PodResourcesServer(Path(path), self.config.pod_resources_mode, self.owner.snapshot, count)
        self._stack.callback(lister.stop)
        return (lister,)

    def _follow_manifests(self) -> None:
        manifests = ManifestDir(Path(self.config.manifest_dir), self.config.gates)
        follower = ManifestFollower(manifests, self.owner)
        self.live["fileCheckFrequency"] = lambda _wanted: manifests.interrupt()

        def follow() -> None:
            while not self._stopping.is_set():
                with _outlived("manifest directory"):
                    follower.sync()
                self.notifier.status(self.owner.status_line())
                self._synced.set()
                manifests.wait(self.config.manifest_scan_period)
            self._synced.set()  # stopped before the first time: nobody is to wait for it
            manifests.close()

        Thread(target=follow, name="manifests", daemon=True).start()
        self._synced.wait(_FIRST_SYNC_SECONDS)

    def _loop(self) -> None:
        """Serve events and periods until told to stop."""
        chores = [self._reconciling, self._repairing]
        if self.notifier.watchdog_interval:
            chores.append(_Chore(self.notifier.watchdog_interval, self.notifier.alive))
        hotplug, containers = self.kernel.hotplug, self.kernel.containers
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)
        self._selector.register(hotplug.fileno(), selectors.EVENT_READ, self._hardware_changed)
        if containers.fileno() >= 0:
            self._selector.register(containers.fileno(), selectors.EVENT_READ, self.follower.follow)
        self._selector.register(self.kernel.drift.fileno(), selectors.EVENT_READ, self._cgroups_touched)
        if self.kernel.bound.fileno() >= 0:
            self._selector.register(self.kernel.bound.fileno(), selectors.EVENT_READ, self._bound_touched)
        while not self._stopping.is_set():
            wait = min(self.follower.due, *(chore.due for chore in chores)) - time.monotonic()
            for key, _ in self._selector.select(max(0.0, wait)):
                with _outlived("event"):
                    key.data()
            self.follower.end_settled()
            for chore in chores:
                chore.run_if_due(time.monotonic())

    def _woken(self) -> None:
        os.eventfd_read(self._wake)
        if self._reload_asked.is_set():
            self._reload_asked.clear()
            # Beside the loop, which feeds the watchdog however long this takes.
            Thread(target=self._reload, name="reload", daemon=True).start()

    def _reload(self) -> None:
        with _outlived("reload"):
            self.configuration.reload()

    def _reconcile_every(self, wanted: Config) -> None:
        self._reconciling.repeat_every(wanted.reconcile_period)
        os.eventfd_write(self._wake, 1)

    def _hardware_changed(self) -> None:
        if self.kernel.hotplug.drain():
            self.owner.hardware_changed(self.kernel.look)

    def _cgroups_touched(self) -> None:
        if self.kernel.drift.is_stirred():
            self._repairing.due_within(_BURST_SECONDS)

    def _bound_touched(self) -> None:
        if self.kernel.bound.drain():
            self.owner.repair_drift()
            self.follower.follow_bound()

    def _reconcile(self) -> None:
        if self.owner.is_withdrawn:
            self.owner.hardware_changed(self.kernel.look)
        self.owner.reconcile()
        self.follower.follow()  # those that nothing tells of
        self.follower.follow_bound()

    def _metrics_page(self, request: Request) -> Page:
        return Page(200, *self._metrics.page(request.accept))

    def _ready_page(self, _request: Request) -> Page:
        failures = self.owner.snapshot().failures
        text = "\n".join(failures or ("ok",)) + "\n"
        return Page(503 if failures else 200, text.encode())


class _Chore:
    """Something to do every ``period`` seconds; with an endless period only when asked."""

    def __init__(self, period: float, work: Callable[[], object]) -> None:
        self.period = period
        self.work = work
        self.due = time.monotonic() + period

    def repeat_every(self, period: float) -> None:
        """Change the period, which begins anew."""
        self.period = period
        self.due = time.monotonic() + period

    def due_within(self, seconds: float) -> None:
        """Do it by then."""
        self.due = min(self.due, time.monotonic() + seconds)

    def run_if_due(self, now: float) -> None:
        if now >= self.due:
            self.due = now + self.period
            with _outlived("periodic work"):
                self.work()


@contextmanager
def _outlived(what: str) -> Iterator[None]:
    """Let the daemon outlive a failed piece of work, and say what failed."""
    try:
        yield
    except NumaletError as error:
        log.error("%s: %s%s", what, error.message, f" ({error.hint})" if error.hint else "")  # noqa: TRY400 - a clear sentence needs no traceback
    except Exception:
        log.exception("%s: internal error", what)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Spare the garbage collector what stays as long as the daemon: a look at all pods takes 30 ms."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _healthy(_request: Request) -> Page:
    return Page(200, b"ok\n")
