"""Objects to pods: what is kept, what is refused, and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from agent.domain.pod import ContainerKind, RestartPolicy
from agent.domain.settings import Gates
from agent.manifest import ManifestError, fields, load_manifests, parse_pod, pod_from, pod_from_object
from tests.manifest.pods import SOURCE, manifest, problems_of, text_of

FULL = b"""
apiVersion: v1
kind: Pod
metadata:
  name: full.eu-1
  namespace: trading
  uid: 6b9f0a3e-Ab_c.1
  labels: {app.kubernetes.io/name: full, empty: ""}
  annotations: {example.com/note: "any text, even \\u00fc"}
  creationTimestamp: null
spec:
  restartPolicy: Never
  hostNetwork: true
  terminationGracePeriodSeconds: 5
  nodeSelector: {disk: ssd}
  volumes: [{name: data, emptyDir: {medium: HugePages}}]
  resources:
    limits: {cpu: 8, memory: 8Gi, hugepages-2Mi: 4Mi}
  initContainers:
    - {name: prepare, command: [sh, -c, "true"]}
    - name: proxy
      restartPolicy: Always
      resources: {requests: {cpu: 0.1}}
  containers:
    - name: main
      image: busybox
      env: [{name: A, value: b}]
      resources:
        requests: {cpu: 1.50, memory: 1073741824, nvidia.com/gpu: 1, ephemeral-storage: 1Gi}
        limits: {nvidia.com/gpu: 1}
        claims: [{name: nic}]
    - {name: side, resources: }
  ephemeralContainers:
    - {name: debugger, image: busybox, targetContainerName: main}
status: {phase: Pending}
"""


def test_a_full_manifest_is_kept_whole() -> None:
    (pod,) = load_manifests(FULL, SOURCE, Gates())
    assert (pod.full_name, pod.uid) == ("trading/full.eu-1", "6b9f0a3e-Ab_c.1")
    assert pod.labels == {"app.kubernetes.io/name": "full", "empty": ""}
    assert pod.annotations == {"example.com/note": "any text, even ü"}
    assert pod.restart_policy is RestartPolicy.NEVER
    assert pod.ephemeral == ("debugger",)
    assert [(c.name, c.kind) for c in pod.containers] == [
        ("prepare", ContainerKind.INIT),
        ("proxy", ContainerKind.SIDECAR),
        ("main", ContainerKind.APP),
        ("side", ContainerKind.APP),
    ]
    main = pod.containers[2].resources
    assert {name: str(amount) for name, amount in main.requests.items()} == {
        "cpu": "1500m",
        "memory": "1073741824",
        "nvidia.com/gpu": "1",
        "ephemeral-storage": "1Gi",
    }
    assert str(pod.containers[1].resources.requests[next(iter(main.requests))]) == "100m"
    assert pod.manifest["spec"]["volumes"] == [{"name": "data", "emptyDir": {"medium": "HugePages"}}]
    assert pod.manifest["status"] == {"phase": "Pending"}


CONTAINER = "$.spec.containers[0]"
LABEL = (
    'is not a DNS label (expected lower-case letters, digits and inner dashes, at most 63, e.g. "main-app")'
)
SUBDOMAIN = (
    "is not a DNS subdomain (expected lower-case letters, digits, inner dashes and dots, at most 253,"
    ' e.g. "trading.eu-1")'
)
UID = "is not a uid (expected letters, digits and inner dots, dashes and underscores, no two dots in a row, at most 63)"
QUALIFIED = 'is not a qualified name (expected e.g. "app" or "example.com/app")'
CPU_TEXT = 'is not a quantity (expected e.g. "2" or "1500m")'


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **fields}]}


def limits(**amounts: Any) -> dict[str, Any]:
    return container(resources={"limits": amounts})


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": (manifest({"nodename": "x"}), '$.spec: unknown field "nodename" (did you mean "nodeName"?)'),
    "unknown container field": (manifest(container(resource={})), f'{CONTAINER}: unknown field "resource" (did you mean "resources"?)'),
    "unknown top field": ({**manifest(), "metdata": {}}, '$: unknown field "metdata" (did you mean "metadata"?)'),
    "unknown and unlike": (manifest({"quux": 1}), '$.spec: unknown field "quux"'),
    "unknown resources field": (manifest(container(resources={"limit": {}})), f'{CONTAINER}.resources: unknown field "limit" (did you mean "limits"?)'),
    "claims of a pod": (manifest({"resources": {"claims": []}}), '$.spec.resources: unknown field "claims" (did you mean "limits"?)'),
    "flag": (manifest({"hostPID": "yes"}), '$.spec.hostPID: "yes" is not true or false'),
    "flag as number": (manifest(container(tty=1)), f"{CONTAINER}.tty: 1 is not true or false"),
    "number": (manifest({"priority": "7"}), '$.spec.priority: "7" is not a whole number'),
    "number as flag": (manifest({"priority": True}), "$.spec.priority: true is not a whole number"),
    "fraction": (manifest({"priority": 1.5}), "$.spec.priority: 1.5 is not a whole number"),
    "text": (manifest(container(image=1.10)), f"{CONTAINER}.image: 1.1 is not a string (put it in quotes)"),
    "text as list": (manifest(container(image=["x"])), f"{CONTAINER}.image: a list is not a string"),
    "object": (manifest({"resources": "4"}), '$.spec.resources: "4" is not a mapping'),
    "list": (manifest({"volumes": {}}), "$.spec.volumes: a mapping is not a list of mappings"),
    "list of texts": (manifest(container(command="sh")), f'{CONTAINER}.command: "sh" is not a list of strings'),
    "text in a list": (manifest(container(args=["a", 1])), f"{CONTAINER}.args[1]: 1 is not a string (put it in quotes)"),
    "container is text": (manifest({"containers": ["main"]}), '$.spec.containers[0]: "main" is not a mapping'),
    "map of texts": (manifest({"nodeSelector": []}), "$.spec.nodeSelector: a list is not a mapping of strings"),
    "annotation": (manifest(annotations={"a.b/c": True}), '$.metadata.annotations["a.b/c"]: true is not a string (put it in quotes)'),
    "no name": (manifest(name=None), "$.metadata: name is missing"),
    "empty name": (manifest(name=""), "$.metadata: name is missing"),
    "no container name": (manifest({"containers": [{}]}), f"{CONTAINER}: name is missing"),
    "upper case": (manifest(name="Trading"), f'$.metadata.name: "Trading" {SUBDOMAIN}'),
    "slash": (manifest(name="a/b"), f'$.metadata.name: "a/b" {SUBDOMAIN}'),
    "dots": (manifest(name=".."), f'$.metadata.name: ".." {SUBDOMAIN}'),
    "look-alike": (manifest(name="trad\u0456ng"), f'$.metadata.name: "trad\\u0456ng" {SUBDOMAIN}'),
    "newline": (manifest(name="a\n"), f'$.metadata.name: "a\\n" {SUBDOMAIN}'),
    "arabic digit": (manifest(name="a\u0663"), f'$.metadata.name: "a\\u0663" {SUBDOMAIN}'),
    "long name": (manifest(name="a" * 254), f'$.metadata.name: "{"a" * 60}"… {SUBDOMAIN}'),
    "namespace": (manifest(namespace="a.b"), f'$.metadata.namespace: "a.b" {LABEL}'),
    "shared pool": (manifest({"containers": [{"name": "shared.pool"}]}), f'{CONTAINER}.name: "shared.pool" {LABEL}'),
    "long container name": (manifest({"containers": [{"name": "a" * 64}]}), f'{CONTAINER}.name: "{"a" * 60}"… {LABEL}'),
    "same name twice": (manifest({"initContainers": [{"name": "main"}]}), f'{CONTAINER}.name: "main" is already the name of $.spec.initContainers[0]'),
    "same name as ephemeral": (manifest({"ephemeralContainers": [{"name": "main"}]}), f'$.spec.ephemeralContainers[0].name: "main" is already the name of {CONTAINER}'),
    "uid up": (manifest(uid=".."), f'$.metadata.uid: ".." {UID}'),
    "uid like an option": (manifest(uid="-1"), f'$.metadata.uid: "-1" {UID}'),
    "uid with a dash behind": (manifest(uid="a-"), f'$.metadata.uid: "a-" {UID}'),
    "uid with dots": (manifest(uid="a..b"), f'$.metadata.uid: "a..b" {UID}'),
    "uid path": (manifest(uid="a/b"), f'$.metadata.uid: "a/b" {UID}'),
    "uid long": (manifest(uid="a" * 64), f'$.metadata.uid: "{"a" * 60}"… {UID}'),
    "label key": (manifest(labels={"-a": "b"}), f'$.metadata.labels: "-a" {QUALIFIED}'),
    "annotation key": (manifest(annotations={"a/b/c": "d"}), f'$.metadata.annotations: "a/b/c" {QUALIFIED}'),
    "label value": (manifest(labels={"a": "b c"}), '$.metadata.labels.a: "b c" is not a label value (expected letters, digits and inner -_., at most 63)'),
    "restart policy": (manifest({"restartPolicy": "always"}), '$.spec.restartPolicy: "always" is not known (expected one of "Always", "OnFailure", "Never")'),
    "no containers": (manifest({"containers": []}), "$.spec: containers is missing (expected at least one container)"),
    "null containers": (manifest({"containers": None}), "$.spec: containers is missing (expected at least one container)"),
    "ephemeral resources": (manifest({"ephemeralContainers": [{"name": "d", "resources": {"limits": {"cpu": "1"}}}]}), "$.spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container"),
    "quantity": (manifest(limits(cpu="2 cores")), f'{CONTAINER}.resources.limits.cpu: "2 cores" {CPU_TEXT}'),
    "quantity null": (manifest(limits(cpu=None)), f"{CONTAINER}.resources.limits.cpu: null {CPU_TEXT}"),
    "quantity true": (manifest(limits(cpu=True)), f"{CONTAINER}.resources.limits.cpu: true {CPU_TEXT}"),
    "quantity list": (manifest(limits(cpu=[])), f"{CONTAINER}.resources.limits.cpu: a list {CPU_TEXT}"),
    "memory": (manifest(limits(memory="4GB")), f'{CONTAINER}.resources.limits.memory: "4GB" is not a quantity (expected e.g. "4Gi" or "512Mi")'),
    "device": (manifest(limits(**{"a.b/gpu": "x"})), f'{CONTAINER}.resources.limits["a.b/gpu"]: "x" is not a quantity (expected e.g. "1")'),
    "deployment": ({**manifest(), "kind": "Deployment"}, '$.kind: "Deployment" is not known (expected "Pod")'),
    "version": ({**manifest(), "apiVersion": "v2"}, '$.apiVersion: "v2" is not known (expected "v1")'),
    "no kind": ({k: v for k, v in manifest().items() if k != "kind"}, '$: kind is missing (expected "Pod")'),
}  # fmt: skip


@pytest.mark.parametrize(("bad", "expected"), BAD.values(), ids=BAD.keys())
def test_a_bad_manifest_is_refused_with_place_value_and_expectation(
    bad: dict[str, Any], expected: str
) -> None:
    assert problems_of(text_of(bad)) == [expected]


def test_all_problems_of_all_documents_come_in_one_error() -> None:
    bad = manifest(container(image=1, resources={"limits": {"cpu": "x", "memory": "y"}}), name="A", uid="?")
    rule = manifest(container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}), name="b")
    found = problems_of(text_of(bad, manifest(), rule) + b"--- [syntax")
    assert [line.split(": ")[1] for line in found if line.startswith("document")] == [
        "$.metadata.name",
        "$.metadata.uid",
        "$.spec.containers[0].image",
        "$.spec.containers[0].resources.limits.cpu",
        "$.spec.containers[0].resources.limits.memory",
        "$.spec.containers[0].resources.requests.cpu",
    ]
    assert found[0].startswith("line 8, column 1: not YAML")


def test_an_error_holds_its_problems_as_values() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_pod(manifest(name="A"), SOURCE)
    (problem,) = caught.value.problems
    assert (problem.source, problem.path) == (SOURCE, "$.metadata.name")


def test_more_than_a_hundred_problems_are_counted_only() -> None:
    found = problems_of(text_of(manifest({f"x{i}": 1 for i in range(250)})))
    assert len(found) == 101
    assert found[-1] == "… and 150 more"


def test_null_is_the_same_as_absent() -> None:
    bare = manifest({"resources": None, "initContainers": None}, labels=None, annotations=None, uid=None)
    bare["spec"]["containers"][0] |= {"resources": {"limits": None}, "command": None}
    assert load_manifests(text_of(bare), SOURCE, Gates()) == load_manifests(
        text_of(manifest()), SOURCE, Gates()
    )


def test_the_uid_of_a_file_survives_edits_and_moves_but_not_renames() -> None:
    def uid(source: str, **metadata: Any) -> str:
        return pod_from(manifest(**metadata), source).uid

    assert uid("a.yaml") == uid("/etc/numalet/manifests/a.yaml", labels={"edited": "yes"}, uid="")
    assert uid("a.yaml") == "170b82e517748ce721b8c5bdf9f4267a"
    others = {uid("b.yaml"), uid("a.yaml", name="other"), uid("a.yaml", namespace="other"), uid("a.yaml")}
    assert len(others) == 4


def test_two_pods_of_one_text_cannot_share_a_uid() -> None:
    assert problems_of(text_of(manifest(uid="u"), manifest(uid="u", name="other"))) == [
        "document 2: $.metadata: pod default/other has the uid u of document 1: $"
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": [manifest(), manifest(name="b"), manifest()]}
    (found,) = problems_of(text_of(listed))
    assert found.startswith("$.items[2].metadata: pod default/trading has the uid ")
    assert found.endswith(" of $.items[0]")


def test_a_pod_object_needs_no_kind_and_gets_no_defaults() -> None:
    obj = {"metadata": {"name": "p", "uid": "u"}, "spec": container(resources={"limits": {"cpu": "2e0"}})}
    pod = pod_from_object(obj)
    assert (pod.uid, pod.namespace) == ("u", "default")
    assert pod.containers[0].resources.requests == {}
    with pytest.raises(ManifestError, match=r"object: \$\.spec: containers is missing"):
        pod_from_object({"metadata": {"name": "p"}})


def test_the_field_tables_agree_with_themselves() -> None:
    assert fields.CONTAINER.items() <= fields.EPHEMERAL_CONTAINER.items()
    assert set(fields.Kind) == {
        kind for table in (fields.METADATA, fields.POD_SPEC, fields.CONTAINER) for kind in table.values()
    }
