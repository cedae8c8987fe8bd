"""What a container and a pod ask for (KEP-753, KEP-5526)."""

from __future__ import annotations

import pytest

from agent.domain.pod import CPU, MEMORY, Container, Pod, Resources
from agent.domain.quantity import Quantity, parse_quantity
from agent.errors import AdmissionError
from agent.memorymanager.requests import container_requests, pod_requests
from tests.memorymanager.build import HUGE_2MI, MIB, app, init, pod, resources, sharing, sidecar

PODS = [
    pytest.param(pod(app("a", 10), app("b", 20)), {MEMORY: 30}, id="apps-add-up"),
    pytest.param(pod(init("i", 50), app("a", 10)), {MEMORY: 50}, id="init-peak-wins"),
    pytest.param(pod(init("i", 50), init("j", 60), app("a", 70)), {MEMORY: 70}, id="apps-win"),
    pytest.param(pod(sidecar("s", 5), init("i", 50), app("a", 10)), {MEMORY: 55}, id="sidecar-then-init"),
    pytest.param(pod(init("i", 50), sidecar("s", 5), app("a", 10)), {MEMORY: 50}, id="init-then-sidecar"),
    pytest.param(pod(init("i", 5, 4), app("a", 10)), {MEMORY: 10}, id="type-only-of-init-is-left-out"),
    pytest.param(
        pod(app("a", 10), sharing("b"), budget=resources(64, 8)), {HUGE_2MI: 8, MEMORY: 64}, id="pod-budget"
    ),
]


@pytest.mark.parametrize(("asking", "expected"), PODS)
def test_a_pod_asks_for_what_it_needs_at_once(asking: Pod, expected: dict[str, int]) -> None:
    assert {kind: size // MIB for kind, size in pod_requests(asking).items()} == expected


def test_types_are_in_order() -> None:
    assert list(pod_requests(pod(app("a", 10, 2)))) == [HUGE_2MI, MEMORY]


def test_a_container_that_is_not_guaranteed_equivalent_shares_in_a_pod_with_a_budget() -> None:
    half = Container(name="h", resources=Resources(requests={MEMORY: Quantity.bytes(MIB)}))
    budgeted = pod(half, app("a", 1), budget=resources(64))
    assert [container_requests(budgeted, c) for c in budgeted.containers] == [{}, {MEMORY: MIB}]


def test_a_fractional_cpu_does_not_make_memory_shared() -> None:
    stated = {CPU: parse_quantity("500m"), MEMORY: Quantity.bytes(MIB)}
    fraction = Container(name="f", resources=Resources(requests=stated, limits=stated))
    assert container_requests(pod(fraction, budget=resources(64)), fraction) == {MEMORY: MIB}


def test_a_fraction_of_a_byte_is_refused() -> None:
    odd = Container(name="o", resources=Resources(requests={MEMORY: parse_quantity("1500m")}))
    with pytest.raises(AdmissionError, match="failed to represent quantity as int64"):
        container_requests(pod(odd), odd)
