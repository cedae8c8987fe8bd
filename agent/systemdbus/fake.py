"""`SystemdManager` in memory, with systemd's answers; shipped for tests and rehearsals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from agent.domain.idset import NO_CPUS, NodeMask
from agent.systemdbus.manager import NO_BUS, UNIT_EXISTS, ListedUnit, SystemdError
from agent.systemdbus.properties import (
    ACTIVE,
    ACTIVE_STATE,
    ALLOWED_CPUS,
    ALLOWED_MEMORY_NODES,
    CONTROL_GROUP,
    CPU_QUOTA,
    CPU_QUOTA_PERIOD,
    CPU_WEIGHT,
    INFINITY,
    LOAD_STATE,
    MEMORY_MAX,
    TASKS_MAX,
    Properties,
    PropertyValue,
    on_the_bus,
)

_FRESH: Final[Properties] = {
    ALLOWED_CPUS: NO_CPUS,
    ALLOWED_MEMORY_NODES: NodeMask(),
    CPU_QUOTA: INFINITY,
    CPU_QUOTA_PERIOD: INFINITY,
    CPU_WEIGHT: INFINITY,
    MEMORY_MAX: INFINITY,
    TASKS_MAX: INFINITY,
}
_MISSING: Final[Properties] = {LOAD_STATE: "not-found", ACTIVE_STATE: "inactive"}


class FakeSystemd:
    """A manager with these units active; ``log`` is every change, ``broken`` lets everything fail."""

    def __init__(self, units: Sequence[str] = ("init.scope", "system.slice", "user.slice")) -> None:
        self.log: list[tuple[str, str, Properties]] = []
        self.broken = False
        self._units: dict[str, dict[str, PropertyValue]] = {}
        for unit in units:
            self._load(unit, {})

    def install(self, unit: str, *, active: bool = False, **properties: PropertyValue) -> None:
        """A service that has a file, running or not, in system.slice unless told otherwise."""
        self._load(unit, {"Slice": "system.slice", **properties})
        if not active:
            self.halt(unit)

    def halt(self, unit: str) -> None:
        """A unit stops by itself: it stays loaded, with its properties."""
        self._units[unit] |= {ACTIVE_STATE: "inactive", CONTROL_GROUP: ""}

    def run(self, unit: str) -> None:
        """A unit that is loaded starts."""
        self._load(unit, self._units[unit])

    def properties(self, unit: str) -> Properties:
        """See `SystemdManager.properties`."""
        self._answer()
        return dict(self._units.get(unit, self._unloaded(unit)))

    @staticmethod
    def _unloaded(unit: str) -> dict[str, PropertyValue]:
        """A slice needs no file: it is inactive, but loaded."""
        missing = {LOAD_STATE: "loaded"} if unit.endswith(".slice") else {}
        return {**_FRESH, **_MISSING, **missing, "Id": unit}

    def set_properties(self, unit: str, properties: Properties) -> None:
        """See `SystemdManager.set_properties`."""
        self._answer()
        self._check(unit, properties)
        self._units.setdefault(unit, self._unloaded(unit)).update(properties)
        self.log.append(("set", unit, dict(properties)))

    def properties_of(self, units: Sequence[str]) -> Mapping[str, Properties]:
        """See `SystemdManager.properties_of`."""
        return {unit: self.properties(unit) for unit in units}

    def set_properties_of(self, changes: Mapping[str, Properties]) -> None:
        """See `SystemdManager.set_properties_of`."""
        for unit, properties in changes.items():
            self.set_properties(unit, properties)

    def states(self, units: Sequence[str]) -> Mapping[str, str]:
        """See `SystemdManager.states`."""
        return {unit: str(self.properties(unit)[ACTIVE_STATE]) for unit in units}

    def forget_property(self, units: Sequence[str], name: str) -> None:
        """See `SystemdManager.forget_property`; units have no files of their own here."""
        self._answer()
        for unit in units:
            self._units[unit][name] = _FRESH[name]
            self.log.append(("forget", unit, {}))

    def start_transient(self, unit: str, properties: Properties) -> None:
        """See `SystemdManager.start_transient`."""
        self._answer()
        self._check(unit, properties)
        if unit in self._units:
            raise SystemdError(
                unit,
                f"StartTransientUnit: Unit {unit} was already loaded or has a fragment file.",
                UNIT_EXISTS,
            )
        self._load(unit, properties)
        self.log.append(("start", unit, dict(properties)))

    def start_loaded(self, unit: str) -> None:
        """See `SystemdManager.start_loaded`."""
        self._answer()
        self._units.setdefault(unit, self._unloaded(unit))[ACTIVE_STATE] = ACTIVE
        self.log.append(("start", unit, {}))

    def stop(self, unit: str) -> None:
        """See `SystemdManager.stop`."""
        self._answer()
        if self._units.pop(unit, None) is not None:
            self.log.append(("stop", unit, {}))

    def units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        """See `SystemdManager.units`."""
        self._answer()
        found = (unit for unit in sorted(self._units) if any(fnmatchcase(unit, glob) for glob in patterns))
        return tuple(
            ListedUnit(unit, str(self._units[unit][LOAD_STATE]), str(self._units[unit][ACTIVE_STATE]))
            for unit in found
        )

    def close(self) -> None:
        """See `SystemdManager.close`."""

    def _answer(self) -> None:
        if self.broken:
            raise SystemdError("", "cannot be asked", NO_BUS, hint="mend it")

    @staticmethod
    def _check(unit: str, properties: Mapping[str, PropertyValue]) -> None:
        try:
            for name, value in properties.items():
                on_the_bus(name, value)
        except ValueError as error:
            raise SystemdError(unit, str(error), "INVALID") from error

    def _load(self, unit: str, properties: Properties) -> None:
        parent = str(properties.get("Slice", ""))
        self._units[unit] = {
            **_FRESH,
            **{name: value for name, value in properties.items() if name != "PIDs"},
            "Id": unit,
            LOAD_STATE: "loaded",
            ACTIVE_STATE: ACTIVE,
            CONTROL_GROUP: f"{f'/{parent}' if parent not in {'', '-.slice'} else ''}/{unit}",
        }
