"""The whole path: examples of the documentation, speed, and text that nobody meant."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.pod import ContainerKind, Pod
from agent.domain.qos import QosClass, is_guaranteed_equivalent, qos_class
from agent.domain.settings import Gates
from agent.manifest import ManifestError, load_manifests, pod_from_object
from tests.manifest.pods import SOURCE, manifest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def load(text: bytes) -> tuple[Pod, ...]:
    return load_manifests(text, SOURCE, Gates())


def pods_or_error(attempt: Callable[[], tuple[Pod, ...]]) -> tuple[Pod, ...] | ManifestError:
    try:
        return attempt()
    except ManifestError as error:
        return error


def example(name: str) -> Pod:
    (pod,) = load((EXAMPLES / f"{name}.yaml").read_bytes())
    return pod


EXCLUSIVE = {
    "pod-scope-mixed": {"main-app"},
    "empty-shared-pool": {"first-exclusive", "second-exclusive"},
    "container-scope-mixed": {"infrastructure-sidecar"},
}


@pytest.mark.parametrize("name", EXCLUSIVE)
def test_an_example_is_a_guaranteed_pod_of_four_cpus_with_these_exclusive_containers(name: str) -> None:
    pod = example(name)
    assert pod.name == name
    assert qos_class(pod) is QosClass.GUARANTEED
    assert str(next(iter(pod.resources.limits.values()))) == "4"
    assert {c.name for c in pod.containers if is_guaranteed_equivalent(c)} == EXCLUSIVE[name]
    assert all(item["image"] == "busybox" and item["command"] for item in pod.manifest["spec"]["containers"])


def test_the_infrastructure_sidecar_is_a_sidecar() -> None:
    assert example("container-scope-mixed").containers[0].kind is ContainerKind.SIDECAR


VALID = b"\n---\n".join(path.read_bytes() for path in sorted(EXAMPLES.glob("*.yaml")))
TOKENS = [b"*a", b"&a ", b"<<: ", b"!!x ", b"- ", b": ", b"{", b"]", b"\n", b"\t", b"\xff", b"\0", b"%TAG ! x\n", b"|", b"\"", b"---\n", b"null", b"-1", b"1e9", b"? "]  # fmt: skip


@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(VALID)), st.integers(0, 30), st.sampled_from(TOKENS) | st.binary(max_size=3)
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=300, deadline=None)
def test_a_damaged_manifest_gives_pods_or_a_manifest_error(edits: list[tuple[int, int, bytes]]) -> None:
    text = VALID
    for at, cut, insert in edits:
        text = text[:at] + insert + text[at + cut :]
    answer = pods_or_error(lambda: load(text))
    if isinstance(answer, ManifestError):
        assert answer.problems
        assert all(str(problem).isprintable() for problem in answer.problems)
    else:
        for pod in answer:
            json.dumps(pod.manifest, allow_nan=False)


FIELD_NAMES = st.sampled_from(
    [
        "name",
        "namespace",
        "uid",
        "labels",
        "annotations",
        "resources",
        "requests",
        "limits",
        "cpu",
        "memory",
        "hugepages-2Mi",
        "containers",
        "initContainers",
        "ephemeralContainers",
        "restartPolicy",
        "os",
        "command",
        "spec",
        "metadata",
        "kind",
        "apiVersion",
        "items",
    ]
) | st.text(max_size=4)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["1", "500m", "-1", "4Gi", "Always", "v1", "Pod", "List", "a", "..", "windows"])
    | st.text(alphabet=string.printable + "é😀\udc00", max_size=6)
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(FIELD_NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(value=VALUES, field=st.sampled_from(["metadata", "spec", "containers", "resources", "document"]))
@settings(max_examples=200, deadline=None)
def test_any_structure_gives_a_pod_or_a_manifest_error(value: Any, field: str) -> None:
    document: Any = manifest()
    if field == "document":
        document = value
    elif field in document:
        document[field] = value
    else:
        document["spec"][field] = value
    answers = [pods_or_error(lambda: load(json.dumps(document).encode()))]
    if isinstance(document, dict):
        answers.append(pods_or_error(lambda: (pod_from_object(document),)))
    for answer in answers:
        assert not isinstance(answer, ManifestError) or answer.problems


@given(VALUES)
@settings(max_examples=50, deadline=None)
def test_the_same_text_gives_the_same_answer(value: Any) -> None:
    text = json.dumps(manifest(annotations=value)).encode()
    first, second = (pods_or_error(lambda: load(text)) for _ in range(2))
    assert str(first) == str(second)
