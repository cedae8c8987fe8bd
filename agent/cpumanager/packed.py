"""takeByTopology, packed: fill what is already in use before breaking up anything wholly free.

In this order, as long as CPUs are needed: whole outer units, whole inner units, uncore caches (if
preferred), whole cores (unless spreading), single CPUs. Units are tried fewest free CPUs first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.cpumanager.tables import CpuTables, Unit, by_free
from agent.domain.idset import CpuSet
from agent.domain.trace import Pick, Rule
from agent.errors import AdmissionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """``spread`` is distribute-cpus-across-cores, ``uncore`` prefer-align-cpus-by-uncorecache."""

    spread: bool = False
    uncore: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """The chosen CPUs and, in order, by which rule."""

    cpus: CpuSet
    picks: tuple[Pick, ...]


class _Accumulator:
    """What is still free, what is taken, and how many CPUs are missing."""

    __slots__ = ("free", "needed", "picked", "taken")

    def __init__(self, free: int, needed: int) -> None:
        self.free = free
        self.needed = needed
        self.taken = 0
        self.picked: list[Pick] = []

    def take(self, cpus: int, rule: Rule) -> None:
        """Take ``cpus``; every CPU in it counts, also one that was not free (Fidelity.KUBELET)."""
        self.free &= ~cpus
        self.taken |= cpus
        self.needed -= cpus.bit_count()
        self.picked.append(Pick(rule, CpuSet(cpus)))


def take_packed(tables: CpuTables, available: CpuSet, n: int, packed: Packed) -> Taken:
    """Choose ``n`` of ``available``; raise AdmissionError if there are not as many."""
    acc = _Accumulator(available.bits & tables.online, n)
    if n > acc.free.bit_count():
        raise not_enough(n, available)
    if acc.needed > 0:
        _take_whole_units(acc, tables)
    if acc.needed > 0 and packed.uncore:
        _take_uncores(acc, tables)
    if acc.needed > 0 and not packed.spread:
        _take_whole_cores(acc, tables)
    if acc.needed > 0:
        _take_single_cpus(acc, tables, packed)
    if acc.needed > 0:
        raise AdmissionError("failed to allocate cpus")
    return Taken(CpuSet(acc.taken), tuple(acc.picked))


def not_enough(n: int, available: CpuSet) -> AdmissionError:
    """The refusal when more CPUs are asked for than there are."""
    return AdmissionError(
        f"not enough cpus available to satisfy request: requested={n}, available={len(available)}"
    )


def _take_whole_units(acc: _Accumulator, tables: CpuTables) -> None:
    node, socket = Rule.WHOLE_NODE, Rule.WHOLE_SOCKET
    outer_rule, inner_rule = (node, socket) if tables.numa_first else (socket, node)
    if acc.needed >= tables.smallest_outer:
        _take_whole(acc, tables.outer_order(acc.free), outer_rule)
    if acc.needed >= max(1, tables.smallest_inner):
        _take_whole(acc, tables.inner_order(acc.free), inner_rule)


def _take_whole(acc: _Accumulator, units: Iterable[Unit], rule: Rule) -> None:
    for unit in units:
        if unit.size <= acc.needed and (acc.free & unit.cpus).bit_count() == unit.whole:
            acc.take(unit.cpus, rule)


def _take_uncores(acc: _Accumulator, tables: CpuTables) -> None:
    """Whole uncore caches, then the rest inside the first one that can hold all of it."""
    order = _uncore_order(acc, tables)
    if acc.needed >= tables.cpus_per_uncore:
        _take_whole(acc, order, Rule.WHOLE_UNCORE)
    for uncore in order:
        if acc.needed < 1:
            return
        _take_partial_uncore(acc, uncore, tables)


def _uncore_order(acc: _Accumulator, tables: CpuTables) -> list[Unit]:
    free = acc.free
    return [uncore for node in tables.node_order(free) for uncore in by_free(node.uncores, free, node.cpus)]


def _take_partial_uncore(acc: _Accumulator, uncore: Unit, tables: CpuTables) -> None:
    """Take the free CPUs of as many of its cores as needed, if they are just as many as needed."""
    threads = tables.threads_per_core
    cores_needed = -(-acc.needed // threads)
    free = 0
    for core in uncore.cores:
        if acc.free & uncore.cpus & core:
            free |= acc.free & core
            cores_needed -= 1
            if cores_needed == 0:
                break
    if acc.needed % 2 and threads > 1 and free.bit_count() > acc.needed:
        # An odd request leaves one thread of its last core behind.
        free ^= 1 << (free.bit_length() - 1)
    if free.bit_count() == acc.needed:
        acc.take(free, Rule.PARTIAL_UNCORE)


def _take_whole_cores(acc: _Accumulator, tables: CpuTables) -> None:
    if acc.needed < tables.smallest_core:
        return
    whole, free, needed, taken = tables.threads_per_core, acc.free, acc.needed, 0
    for unit in tables.inner_order(free):
        for core in unit.whole_cores:
            own = free & core
            if own and own.bit_count() == whole and core.bit_count() <= needed:
                taken |= core
                free ^= own
                needed -= core.bit_count()
                if needed < tables.smallest_core:
                    break
        if needed < tables.smallest_core:
            break
    if taken:
        acc.take(taken, Rule.WHOLE_CORE)


def _take_single_cpus(acc: _Accumulator, tables: CpuTables, packed: Packed) -> None:
    if packed.spread:
        # CPU numbering usually lists one thread of every core first, then the siblings.
        pools = [acc.free & socket.cpus for socket in tables.socket_order(acc.free)]
        acc.take(_first_of(pools, acc.needed), Rule.SPREAD_CPU)
        return
    taken = 0
    for unit in tables.inner_order(acc.free):
        free = acc.free & ~taken
        cores = [free & core for core in unit.cores if free & core]
        cores.sort(key=int.bit_count)
        taken |= _first_of(cores, acc.needed - taken.bit_count())
        if taken.bit_count() >= acc.needed:
            break
    acc.take(taken, Rule.SINGLE_CPU)


def _first_of(pools: Iterable[int], n: int) -> int:
    """The first ``n`` CPUs of ``pools``, pool by pool, ascending within each."""
    taken = 0
    for pool in pools:
        missing = n - taken.bit_count()
        if missing <= 0:
            break
        taken |= _lowest(pool & ~taken, missing)
    return taken


def _lowest(bits: int, n: int) -> int:
    """The ``n`` lowest one bits."""
    if bits.bit_count() <= n:
        return bits
    rest = bits
    for _ in range(n):
        rest &= rest - 1
    return bits ^ rest
