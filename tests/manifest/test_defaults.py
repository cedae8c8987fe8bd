"""KEP-2837 defaulting and KEP-753 aggregation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent.domain.pod import Pod, ResourceName
from agent.domain.qos import QosClass, qos_class
from agent.domain.quantity import Quantity
from agent.domain.settings import Gates
from agent.manifest import pod_from, with_defaults
from agent.manifest.defaults import aggregate, limits_of, requests_of
from tests.manifest.pods import manifest

Texts = dict[str, str]


def texts(amounts: Mapping[ResourceName, Quantity]) -> Texts:
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def stated(requests: Texts | None = None, limits: Texts | None = None) -> dict[str, Any]:
    return {"requests": requests or {}, "limits": limits or {}}


def pod(
    *containers: dict[str, Any],
    budget: dict[str, Any] | None = None,
    init: list[dict[str, Any]] | None = None,
) -> Pod:
    """A pod of containers with these resources; of ``init`` ones ``restartPolicy`` may be given beside them."""
    return pod_from(
        manifest(
            {
                "resources": budget,
                "initContainers": [
                    {"name": f"i{i}", "resources": {k: v for k, v in one.items() if k != "restartPolicy"}}
                    | ({"restartPolicy": "Always"} if "restartPolicy" in one else {})
                    for i, one in enumerate(init or [])
                ],
                "containers": [{"name": f"c{i}", "resources": one} for i, one in enumerate(containers)],
            }
        )
    )


SIDECAR = {"restartPolicy": "Always"}
NONE = stated()
ONE = {"cpu": "1", "memory": "1Gi"}
HUGE = {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"}


def test_a_container_request_follows_its_limit_unless_stated() -> None:
    one = pod(
        stated({"cpu": "500m"}, {"cpu": "1", "memory": "1Gi", "a.b/gpu": "1"}), init=[stated(limits=ONE)]
    )
    done = with_defaults(one, Gates())
    assert texts(done.containers[1].resources.requests) == {"cpu": "500m", "memory": "1Gi", "a.b/gpu": "1"}
    assert texts(done.containers[0].resources.requests) == ONE
    assert done.resources == one.resources
    assert done.manifest == one.manifest


POD_LEVEL = {
    "no budget, no defaults": (pod(stated(ONE, ONE)), {}, {}),
    "empty budget": (pod(stated(ONE, ONE), budget=NONE), {}, {}),
    "limits, silent containers": (pod(NONE, budget=stated(limits=ONE)), ONE, ONE),
    "limits, containers with requests": (
        pod(stated({"cpu": "500m"}), stated({"cpu": "250m"}), budget=stated(limits={"cpu": "4", "memory": "2Gi"})),
        {"cpu": "750m", "memory": "2Gi"},
        {"cpu": "4", "memory": "2Gi"},
    ),
    "limits, one container with a limit": (
        pod(stated(limits={"cpu": "1"}), NONE, budget=stated(limits={"cpu": "4"})),
        {"cpu": "1"},
        {"cpu": "4"},
    ),
    "requests, all containers with limits": (
        pod(stated(limits=ONE), stated(limits=ONE), budget=stated({"cpu": "2"})),
        {"cpu": "2", "memory": "2Gi"},
        {"cpu": "2", "memory": "2Gi"},
    ),
    "requests, one container without a limit": (
        pod(stated(limits=ONE), stated(limits={"cpu": "1"}), budget=stated({"cpu": "2"})),
        {"cpu": "2", "memory": "1Gi"},
        {"cpu": "2"},
    ),
    "requests, an init container without a limit": (
        pod(stated(limits=ONE), budget=stated({"cpu": "2"}), init=[NONE]),
        {"cpu": "2", "memory": "1Gi"},
        {},
    ),
    "stated values stay": (
        pod(stated(limits=ONE), budget=stated({"cpu": "3", "memory": "3Gi"}, {"cpu": "4", "memory": "4Gi"})),
        {"cpu": "3", "memory": "3Gi"},
        {"cpu": "4", "memory": "4Gi"},
    ),
    "huge pages of any container": (
        pod(stated(limits=HUGE), NONE, budget=stated(limits={"cpu": "4"})),
        {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
        {"cpu": "4", "hugepages-2Mi": "4Mi"},
    ),
    "huge pages requested by the pod": (
        pod(stated(limits=HUGE), NONE, budget=stated({"hugepages-2Mi": "8Mi"}, {"cpu": "4"})),
        {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "8Mi"},
        {"cpu": "4"},
    ),
    "devices are not the pod's": (
        pod(stated(limits={"a.b/gpu": "1", "cpu": "1"}), budget=stated(limits={"cpu": "4"})),
        {"cpu": "1"},
        {"cpu": "4"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("one", "requests", "limits"), POD_LEVEL.values(), ids=POD_LEVEL.keys())
def test_pod_level_defaults(one: Pod, requests: Texts, limits: Texts) -> None:
    done = with_defaults(one, Gates())
    assert (texts(done.resources.requests), texts(done.resources.limits)) == (
        dict(sorted(requests.items())),
        dict(sorted(limits.items())),
    )
    assert with_defaults(done, Gates()) == done


def test_with_the_gate_off_the_budget_stays_as_written() -> None:
    one = pod(NONE, budget=stated(limits=ONE))
    assert with_defaults(one, Gates(pod_level_resources=False, pod_level_resource_managers=False)) == one


def test_a_budget_of_limits_alone_makes_a_guaranteed_pod() -> None:
    assert qos_class(with_defaults(pod(NONE, budget=stated(limits=ONE)), Gates())) is QosClass.GUARANTEED


def cpu(amount: str, **more: str) -> dict[str, Any]:
    return {**stated({"cpu": amount}, {"cpu": amount}), **more}


AGGREGATES = {
    "apps add up": (pod(cpu("1"), cpu("500m")), "1500m"),
    "an init container runs before them": (pod(cpu("1"), init=[cpu("3"), cpu("2")]), "3"),
    "apps outweigh init containers": (pod(cpu("2"), cpu("2"), init=[cpu("3")]), "4"),
    "a sidecar stays": (pod(cpu("2"), init=[cpu("1", **SIDECAR)]), "3"),
    "init runs beside earlier sidecars": (pod(cpu("1"), init=[cpu("2", **SIDECAR), cpu("3"), cpu("1", **SIDECAR)]), "5"),
    "init does not run beside later sidecars": (pod(cpu("1"), init=[cpu("3"), cpu("2", **SIDECAR)]), "3"),
    "all sidecars and apps": (pod(cpu("2"), init=[cpu("1", **SIDECAR), cpu("3"), cpu("2", **SIDECAR)]), "5"),
}  # fmt: skip


@pytest.mark.parametrize(("one", "total"), AGGREGATES.values(), ids=AGGREGATES.keys())
def test_the_aggregate_of_containers(one: Pod, total: str) -> None:
    assert texts(aggregate(one, requests_of)) == texts(aggregate(one, limits_of)) == {"cpu": total}


def test_a_resource_of_an_init_container_alone_is_in_the_aggregate() -> None:
    one = pod(cpu("1"), init=[stated({"memory": "1Gi"})])
    assert texts(aggregate(one, requests_of)) == {"cpu": "1", "memory": "1Gi"}
    assert texts(aggregate(one, limits_of)) == {"cpu": "1"}
