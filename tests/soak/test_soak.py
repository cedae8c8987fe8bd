"""Some thousand random operations on whole nodes; `make soak` does a million."""

from __future__ import annotations

import pytest

from scripts.soak.__main__ import live

SEED = 7


@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", range(6))
def test_random_operations_with_crashes_failures_and_damage_keep_every_invariant(machine: int) -> None:
    lived = live(SEED, machine, operations=500)
    assert lived.failure == ""
    assert lived.done.total() == 500
