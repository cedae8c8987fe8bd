"""The rules that compare values, with the API server's words."""

from __future__ import annotations

from typing import Any

import pytest

from agent.domain.settings import Gates
from agent.manifest import pod_from, validate
from tests.manifest.pods import manifest, problems_of, text_of

C0 = "$.spec.containers[0].resources"
C1 = "$.spec.containers[1].resources"
POD = "$.spec.resources"


def spec(*containers: dict[str, Any], budget: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A pod of containers with these resources."""
    named = [{"name": f"c{i}", "resources": one} for i, one in enumerate(containers)]
    return manifest({"containers": named, "resources": budget, **more})


def both(**amounts: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): amount for name, amount in amounts.items()}
    return {"requests": named, "limits": named}


GOOD = {
    "nothing": spec({}),
    "limits above the budget in sum": spec(
        {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}},
        {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}},
        budget=both(cpu="4"),
    ),
    "exactly the budget": spec(both(cpu="3", memory="1Gi"), both(cpu="1", memory="1Gi"), budget=both(cpu="4", memory="2Gi")),
    "budget of huge pages with cpu": spec({}, budget=both(cpu="1", **{"hugepages-1Gi": "2Gi"})),
    "huge pages": spec(both(memory="1Gi", **{"hugepages-2Mi": "4Mi"})),
    "one millicpu": spec(both(cpu="1m")),
    "an init container above the pod's limit": spec(
        {}, budget=both(cpu="1"), initContainers=[{"name": "i", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]
    ),
    "windows without a budget": spec({}, os={"name": "windows"}),
    "numbers": spec(both(cpu=0.1, memory=1073741824)),
}  # fmt: skip


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD.keys())
def test_a_good_pod_has_no_problems(good: dict[str, Any]) -> None:
    assert problems_of(text_of(good)) == []


BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "container request above limit": (
        spec({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        [f'{C0}.requests.cpu: Invalid value: "2": must be less than or equal to cpu limit of 1'],
    ),
    "pod request above limit": (
        spec({}, budget={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}),
        [f'{POD}.requests.memory: Invalid value: "2Gi": must be less than or equal to memory limit of 1Gi'],
    ),
    "huge pages request differs": (
        spec({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}),
        [f'{C0}.requests.hugepages-2Mi: Invalid value: "2Mi": must be equal to hugepages-2Mi limit of 4Mi'],
    ),
    "huge pages request without limit": (
        spec({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}}),
        [f"{C0}.limits.hugepages-2Mi: Required value: Limit must be set for non overcommitable resources"],
    ),
    "device request without limit": (
        spec({"requests": {"a.b/gpu": "1"}}),
        [f'{C0}.limits["a.b/gpu"]: Required value: Limit must be set for non overcommitable resources'],
    ),
    "huge pages alone": (
        spec(both(**{"hugepages-2Mi": "2Mi"})),
        [f"{C0}: Forbidden: HugePages require cpu or memory"],
    ),
    "huge pages of a pod alone": (
        spec({}, budget=both(**{"hugepages-2Mi": "2Mi"})),
        [f"{POD}: Forbidden: HugePages require cpu or memory"],
    ),
    "not whole pages": (
        spec(both(cpu="1", **{"hugepages-2Mi": "3Mi"})),
        [f'{C0}.limits.hugepages-2Mi: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi'],
    ),
    "no page size": (
        spec(both(cpu="1", **{"hugepages-big": "2Mi"})),
        [f'{C0}.limits.hugepages-big: Invalid value: "2Mi": 2Mi is not positive integer multiple of hugepages-big'],
    ),
    "negative": (
        spec(both(cpu="-1")),
        [f'{C0}.limits.cpu: Invalid value: "-1": must be greater than or equal to 0'],
    ),
    "finer than a millicpu": (
        spec(both(cpu="100u")),
        [f'{C0}.limits.cpu: Invalid value: "100u": must not be finer than 1m'],
    ),
    "half a device": (
        spec(both(**{"a.b/gpu": "0.5"})),
        [f'{C0}.limits["a.b/gpu"]: Invalid value: "500m": must be an integer'],
    ),
    "unknown resource": (
        spec(both(gpu="1")),
        [
            f'{C0}.limits.gpu: Invalid value: "gpu": must be a standard resource type or fully qualified',
        ],
    ),
    "unsupported at pod level": (
        spec({}, budget=both(**{"ephemeral-storage": "1Gi"})),
        [f'{POD}.limits.ephemeral-storage: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"'],
    ),
    "containers request more than the pod": (
        spec(both(cpu="1500m"), both(cpu="1500m"), budget={"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}),
        [f'{POD}.requests.cpu: Invalid value: "2": must be greater than or equal to aggregate container requests of 3'],
    ),
    "sidecars count": (
        spec(
            both(memory="1Gi"),
            budget=both(memory="1536Mi"),
            initContainers=[{"name": "s", "restartPolicy": "Always", "resources": both(memory="777Mi")}],
        ),
        [f'{POD}.requests.memory: Invalid value: "1536Mi": must be greater than or equal to aggregate container requests of 1801Mi'],
    ),
    "huge pages of containers above the pod's": (
        spec(both(cpu="1", **{"hugepages-2Mi": "4Mi"}), both(cpu="1", **{"hugepages-2Mi": "4Mi"}), budget=both(cpu="2", **{"hugepages-2Mi": "6Mi"})),
        [
            f'{POD}.requests.hugepages-2Mi: Invalid value: "6Mi": must be greater than or equal to aggregate container requests of 8Mi',
            f'{POD}.limits.hugepages-2Mi: Invalid value: "6Mi": must be greater than or equal to aggregate container limits of 8Mi',
        ],
    ),
    "a container's limit above the pod's": (
        spec({}, {"requests": {"cpu": "1"}, "limits": {"cpu": "5"}}, budget=both(cpu="4")),
        [f'{C1}.limits.cpu: Invalid value: "5": must be less than or equal to pod limits of 4'],
    ),
    "windows": (
        spec({}, budget=both(cpu="4"), os={"name": "windows"}),
        [f"{POD}: Forbidden: may not be set for a windows pod"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("bad", "expected"), BAD.values(), ids=BAD.keys())
def test_a_broken_rule_is_told_as_the_api_server_does(bad: dict[str, Any], expected: list[str]) -> None:
    assert problems_of(text_of(bad)) == expected


def test_with_the_gate_off_a_pod_cannot_have_a_budget() -> None:
    gates = Gates(pod_level_resources=False, pod_level_resource_managers=False)
    assert problems_of(text_of(spec({}, budget=both(cpu="4"))), gates) == [
        f"{POD}: Forbidden: may not be set unless the PodLevelResources feature gate is enabled"
    ]
    assert problems_of(text_of(spec(both(cpu="4"))), gates) == []


def test_rules_can_be_checked_alone() -> None:
    pod = pod_from(spec(both(cpu="-1")))
    (problem,) = validate(pod, Gates(), "a.yaml")
    assert (
        str(problem)
        == 'a.yaml: $.spec.containers[0].resources.limits.cpu: Invalid value: "-1": must be greater than or equal to 0'
    )
