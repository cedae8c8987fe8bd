"""`SystemdManager` on the real system bus.

The bus library is asynchronous, the daemon is not: the connection lives on a thread with an event loop
of its own, and callers wait for its answers. Both are made with the first call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent.systemdbus.manager import JOB_FAILED, NO_BUS, ListedUnit, SystemdError
from agent.systemdbus.properties import ACTIVE, SIGNATURES, Properties, from_the_bus, on_the_bus
from agent.systemdbus.unitname import object_path

if TYPE_CHECKING:
    from dbus_fast import Message
    from dbus_fast.aio import MessageBus

T = TypeVar("T")

SYSTEM_BUS: Final = "unix:path=/run/dbus/system_bus_socket"
_NAME: Final = "org.freedesktop.systemd1"
_PATH: Final = "/org/freedesktop/systemd1"
_MANAGER: Final = "org.freedesktop.systemd1.Manager"
_PROPERTIES: Final = "org.freedesktop.DBus.Properties"
_NO_SUCH_UNIT: Final = "org.freedesktop.systemd1.NoSuchUnit"
_NAME_COLUMN, _STATE_COLUMN, _JOB_COLUMN = 0, 3, 7
"""Of a row that ListUnitsByNames answers with."""
_NO_JOB: Final = 0
_KEPT_IN: Final = ("system.control", "transient")
"""Where drop-ins of runtime properties are, of a unit with a file and of one without."""
_PAUSE: Final = 0.002
_PATIENCE: Final = 25.0
"""Seconds, D-Bus's own default: a machine at full load is slow, above all to reload its units."""
_AT_ONCE: Final = 100
"""The messages that are sent before their answers are awaited."""
_NO_BUS_HINT: Final = "is systemd the init system here, and does dbus run? systemctl status dbus.socket"


@dataclass(frozen=True, slots=True)
class _Call:
    """A method call about ``unit``."""

    unit: str
    path: str
    interface: str
    member: str
    signature: str
    body: list[Any]


class SystemdBus:
    """Talks to the bus at ``address``; gives up on an answer after ``timeout`` seconds.

    Below ``run`` is what systemd keeps until the next boot.
    """

    def __init__(
        self, address: str = SYSTEM_BUS, *, timeout: float = _PATIENCE, run: Path = Path("/run/systemd")
    ) -> None:
        self._address = address
        self._run = run
        self._timeout = timeout
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bus: MessageBus | None = None

    def properties(self, unit: str) -> Properties:
        """See `SystemdManager.properties`."""
        return self.properties_of([unit])[unit]

    def properties_of(self, units: Sequence[str]) -> Mapping[str, Properties]:
        """See `SystemdManager.properties_of`."""
        every_interface = ""
        asked = [_Call(u, object_path(u), _PROPERTIES, "GetAll", "s", [every_interface]) for u in units]
        shown = {unit: found for unit, (found,) in zip(units, self._calls(asked), strict=True)}
        return {
            unit: {name: from_the_bus(name, found[name].value) for name in SIGNATURES if name in found}
            for unit, found in shown.items()
        }

    def set_properties(self, unit: str, properties: Properties) -> None:
        """See `SystemdManager.set_properties`."""
        self.set_properties_of({unit: properties})

    def set_properties_of(self, changes: Mapping[str, Properties]) -> None:
        """See `SystemdManager.set_properties_of`."""
        runtime = True
        self._calls(
            [
                _managers(unit, "SetUnitProperties", "sba(sv)", [unit, runtime, _variants(unit, properties)])
                for unit, properties in changes.items()
            ]
        )

    def forget_property(self, units: Sequence[str], name: str) -> None:
        """See `SystemdManager.forget_property`.

        RevertUnitFiles would take an administrator's own files below /etc away, too.
        """
        removed = [self._without_drop_in(unit, name) for unit in units]
        if any(removed):
            self._manage("", "Reload", "", [])

    def _without_drop_in(self, unit: str, name: str) -> bool:
        """Remove what `unit_write_setting` in systemd has written; tells whether there was anything."""
        found = False
        for kept_in in _KEPT_IN:
            folder = self._run / kept_in / f"{unit}.d"
            with suppress(OSError):
                (folder / f"50-{name}.conf").unlink()
                found = True
                folder.rmdir()
        return found

    def start_transient(self, unit: str, properties: Properties) -> None:
        """See `SystemdManager.start_transient`."""
        body = [unit, "fail", _variants(unit, properties), []]
        self._manage(unit, "StartTransientUnit", "ssa(sv)a(sa(sv))", body)
        self._settled(unit, ACTIVE)

    def start_loaded(self, unit: str) -> None:
        """See `SystemdManager.start_loaded`."""
        self._manage(unit, "StartUnit", "ss", [unit, "fail"])
        self._settled(unit, ACTIVE)

    def stop(self, unit: str) -> None:
        """See `SystemdManager.stop`."""
        try:
            self._manage(unit, "StopUnit", "ss", [unit, "replace"])
        except SystemdError as error:
            if error.code != _NO_SUCH_UNIT:
                raise
            return
        self._settled(unit, "inactive")

    def units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        """See `SystemdManager.units`."""
        (rows,) = self._manage("", "ListUnitsByPatterns", "asas", [[], list(patterns)])
        return tuple(sorted((ListedUnit(row[0], row[2], row[3]) for row in rows), key=lambda one: one.name))

    def close(self) -> None:
        """See `SystemdManager.close`."""
        with self._lock:
            loop, self._loop = self._loop, None
            bus, self._bus = self._bus, None
        if loop is None:
            return
        if bus is not None:
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(_disconnected(bus), loop).result(self._timeout)
        loop.call_soon_threadsafe(loop.stop)

    def states(self, units: Sequence[str]) -> Mapping[str, str]:
        """See `SystemdManager.states`: it does what it was told before it takes the next question."""
        return {row[_NAME_COLUMN]: row[_STATE_COLUMN] for row in self._listed(units)}

    def _listed(self, units: Sequence[str]) -> list[list[Any]]:
        (rows,) = self._manage(units[0] if len(units) == 1 else "", "ListUnitsByNames", "as", [list(units)])
        return list(rows)

    def _settled(self, unit: str, wanted: str) -> None:
        """Wait for the unit's job to end. Raises SystemdError if the unit is not as ``wanted`` then."""
        deadline = time.monotonic() + self._timeout
        while True:
            (row,) = self._listed([unit])
            state = row[_STATE_COLUMN]
            if row[_JOB_COLUMN] == _NO_JOB:
                break
            if time.monotonic() > deadline:
                raise SystemdError(unit, f"is {state} after {self._timeout:g} s, not {wanted}", JOB_FAILED)
            time.sleep(_PAUSE)
        if state != wanted and (wanted, state) != ("inactive", "failed"):
            hint = f"journalctl -u {unit} tells why"
            raise SystemdError(unit, f"is {state}, not {wanted}", JOB_FAILED, hint=hint)

    def _manage(self, unit: str, member: str, signature: str, body: list[Any]) -> list[Any]:
        return self._calls([_managers(unit, member, signature, body)])[0]

    def _calls(self, calls: Sequence[_Call]) -> list[list[Any]]:
        """The bodies of the answers. Many calls are under way at the same time; systemd takes them in order."""
        answers: list[Message] = []
        for start in range(0, len(calls), _AT_ONCE):
            part = calls[start : start + _AT_ONCE]
            answers += self._await(part[0].unit, self._exchange(part))
        return [_body(call, answer) for call, answer in zip(calls, answers, strict=True)]

    async def _exchange(self, calls: Sequence[_Call]) -> list[Message]:
        from dbus_fast.aio import MessageBus  # noqa: PLC0415 - only hosts that use systemd pay for the import

        if self._bus is None or not self._bus.connected:
            self._bus = await MessageBus(bus_address=self._address).connect()
        return await asyncio.gather(*(self._bus.call(_message(call)) for call in calls))

    def _await(self, unit: str, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the bus's thread; after any failure the next call connects anew."""
        from dbus_fast.errors import DBusFastError  # noqa: PLC0415 - as above

        with self._lock:
            loop = self._running_loop()
            future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, self._timeout), loop)
            try:
                return future.result()
            except (OSError, EOFError, DBusFastError, TimeoutError) as error:
                if self._bus is not None:
                    asyncio.run_coroutine_threadsafe(_disconnected(self._bus), loop)
                    self._bus = None
                cause = str(error) or f"no answer within {self._timeout:g} s"
                raise SystemdError(
                    unit, f"cannot be asked at {self._address}: {cause}", NO_BUS, hint=_NO_BUS_HINT
                ) from error

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()

            def serve() -> None:
                loop.run_forever()
                loop.close()

            Thread(target=serve, name="systemd-bus", daemon=True).start()
        return self._loop


def _managers(unit: str, member: str, signature: str, body: list[Any]) -> _Call:
    return _Call(unit, _PATH, _MANAGER, member, signature, body)


def _message(call: _Call) -> Message:
    from dbus_fast import Message  # noqa: PLC0415 - as above

    return Message(
        destination=_NAME,
        path=call.path,
        interface=call.interface,
        member=call.member,
        signature=call.signature,
        body=call.body,
    )


def _body(call: _Call, answer: Message) -> list[Any]:
    from dbus_fast import MessageType  # noqa: PLC0415 - as above

    if answer.message_type is MessageType.ERROR:
        text = str(answer.body[0]) if answer.body else answer.error_name
        raise SystemdError(call.unit, f"{call.member}: {text}", str(answer.error_name))
    return list(answer.body)


async def _disconnected(bus: MessageBus) -> None:
    bus.disconnect()
    with suppress(Exception):  # how a connection ends is no matter once it is given up
        await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]  # the library leaves it untyped


def _variants(unit: str, properties: Properties) -> list[list[Any]]:
    from dbus_fast import Variant  # noqa: PLC0415 - as above

    try:
        typed = [(name, *on_the_bus(name, value)) for name, value in properties.items()]
    except ValueError as error:
        raise SystemdError(unit, str(error), "INVALID") from error
    return [[name, Variant(signature, body)] for name, signature, body in typed]
