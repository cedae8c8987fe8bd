"""Init containers leave their memory to the containers behind them (initContainersReusableMemory)."""

from __future__ import annotations

import pytest

from agent.domain.pod import MEMORY, Container
from agent.domain.state import MemoryState
from agent.memorymanager.policy import NO_REUSE
from tests.memorymanager.build import (
    HUGE_2MI,
    MIB,
    admit,
    app,
    block,
    entries,
    hint,
    init,
    manager,
    pod,
    reserved_and_assigned,
    sidecar,
)

CASES = [
    pytest.param([init("i", 4), app("a", 4)], {"i": 0, "a": 4}, 4, id="taken-over-whole"),
    pytest.param([init("i", 6), app("a", 4)], {"i": 2, "a": 4}, 6, id="rest-stays-with-the-init-container"),
    pytest.param([init("i", 4), app("a", 6)], {"i": 0, "a": 6}, 6, id="more-is-added"),
    pytest.param(
        [init("i", 4), init("j", 6), app("a", 5)], {"i": 0, "j": 1, "a": 5}, 6, id="init-reuses-init"
    ),
    pytest.param([init("i", 6), init("j", 4), app("a", 5)], {"i": 0, "j": 1, "a": 5}, 6, id="largest-counts"),
    pytest.param(
        [init("i", 6), app("a", 4), app("b", 4)], {"i": 0, "a": 4, "b": 4}, 8, id="used-up-one-after-another"
    ),
    pytest.param(
        [init("i", 6), sidecar("s", 4), app("a", 4)],
        {"i": 0, "s": 4, "a": 4},
        8,
        id="a-sidecar-keeps-its-own",
    ),
    pytest.param(
        [sidecar("s", 4), init("i", 6), app("a", 4)], {"s": 4, "i": 2, "a": 4}, 10, id="nothing-of-a-sidecar"
    ),
]


@pytest.mark.parametrize(("containers", "sizes", "reserved"), CASES)
def test_later_containers_reuse_what_init_containers_had(
    containers: list[Container], sizes: dict[str, int], reserved: int
) -> None:
    static = manager([20])
    after = admit(static, static.restore(MemoryState()), pod(*containers))
    assert {name: blocks[0].size // MIB for name, blocks in entries(after).items()} == sizes
    assert reserved_and_assigned(after) == [(reserved, len(containers), "0")]


def test_reuse_is_per_type() -> None:
    static = manager([20], [10])
    after = admit(static, static.restore(MemoryState()), pod(init("i", 4, 6), app("a", 6, 2)))
    assert entries(after)["i"] == (block("0", 4, HUGE_2MI), block("0", 0))
    assert reserved_and_assigned(after) == [(6, 4, "0")]
    assert reserved_and_assigned(after, HUGE_2MI) == [(6, 4, "0")]


def test_reuse_is_for_exactly_the_same_nodes() -> None:
    static = manager([20, 20])
    one = pod(init("i", 4), app("a", 4))
    state = static.restore(MemoryState())
    first = static.allocate(state, one, one.containers[0], hint("0"), NO_REUSE)
    second = static.allocate(first.state, one, one.containers[1], hint("1"), first.reuse)
    assert entries(second.state) == {"i": (block("0", 4),), "a": (block("1", 4),)}
    assert second.reuse.of(0b01, MEMORY) == 4 * MIB


def test_a_container_that_fits_only_by_reuse_is_placed_on_the_init_containers_node() -> None:
    static = manager([10, 4])
    after = admit(static, static.restore(MemoryState()), pod(init("i", 9), app("a", 9)))
    assert entries(after) == {"i": (block("0", 0),), "a": (block("0", 9),)}


def test_containers_that_hold_memory_already_move_the_reuse_on() -> None:
    static = manager([20])
    one = pod(init("i", 6), app("a", 4), app("b", 4))
    state = static.restore(MemoryState())
    held = static.allocate(state, one, one.containers[0], hint("0"), NO_REUSE)
    again = static.allocate(held.state, one, one.containers[0], hint("0"), NO_REUSE)
    assert again.reuse == held.reuse


def test_a_start_releases_the_init_containers_before_but_no_sidecar() -> None:
    static = manager([40])
    one = pod(init("i", 6), sidecar("s", 4), init("j", 8), app("a", 2))
    state = admit(static, static.restore(MemoryState()), one)
    started = static.started(state, one, one.containers[2])
    assert sorted(entries(started)) == ["a", "j", "s"]
    started = static.started(started, one, one.containers[3])
    assert sorted(entries(started)) == ["a", "s"]
    assert reserved_and_assigned(started) == [(6, 2, "0")]
