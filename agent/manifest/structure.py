"""From an object to a `Pod`: fields, types, names and quantities; no rule that compares values.

Everything readable is read even when something else is not, so that one pass finds all problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from agent.domain.pod import (
    CPU,
    Container,
    ContainerKind,
    Pod,
    PodUid,
    ResourceName,
    Resources,
    RestartPolicy,
    is_memory_type,
)
from agent.domain.quantity import Quantity, parse_quantity
from agent.manifest import fields, names
from agent.manifest.bindings import read_bindings
from agent.manifest.problem import Problems, child, shown

DEFAULT_NAMESPACE: Final = "default"

_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_RESTART_POLICIES = tuple(policy.value for policy in RestartPolicy)
_EMPTY: Final[dict[str, Any]] = {}


def pod_from(document: dict[str, Any], source: str = "manifest") -> Pod:
    """Read one `apiVersion: v1, kind: Pod` object, without defaults or rules.

    ``source`` names the file: in messages, and in the uid of a pod that states none.
    Raises ManifestError.
    """
    problems = Problems(source)
    check_kind(document, "$", problems)
    pod, _ = read_pod(document, "$", problems)
    problems.raise_any()
    return pod


def pod_from_object(obj: dict[str, Any], source: str = "object") -> Pod:
    """Read a pod as the kubelet's managers see it: metadata and spec, defaults already in.

    Raises ManifestError.
    """
    problems = Problems(source)
    pod, _ = read_pod(obj, "$", problems)
    problems.raise_any()
    return pod


def check_kind(document: Mapping[str, Any], place: str, problems: Problems) -> None:
    """Note any other apiVersion or kind than a Pod's."""
    for field, expected in (("apiVersion", "v1"), ("kind", "Pod")):
        stated = document.get(field)
        if stated is None:
            problems.add(place, f"{field} is missing (expected {shown(expected)})")
        elif stated != expected:
            problems.add(f"{place}.{field}", f"{shown(stated)} is not known (expected {shown(expected)})")


def read_pod(document: dict[str, Any], place: str, problems: Problems) -> tuple[Pod, bool]:
    """Read what can be read; whether all resources could be read, so that rules may compare them."""
    fields.check_fields(document, fields.POD, place, problems)
    metadata, spec = _object(document, "metadata"), _object(document, "spec")
    _check_metadata(metadata, f"{place}.metadata", problems)
    where = f"{place}.spec"
    _check_spec(spec, where, problems)
    before = len(problems)
    containers = tuple(_containers(spec, where, problems))
    resources = _resources(spec, fields.POD_RESOURCES, where, problems)
    sound = len(problems) == before and all(_is_list(spec.get(name)) for name in _LISTS)
    name = _text(metadata, "name")
    namespace = _text(metadata, "namespace") or DEFAULT_NAMESPACE
    annotations = _text_map(metadata, "annotations")
    uid = _text(metadata, "uid") or names.derived_uid(problems.source, namespace, name)
    pod = Pod(
        name=name,
        namespace=namespace,
        uid=PodUid(uid),
        containers=containers,
        resources=resources,
        ephemeral=tuple(_text(item, "name") for item in _objects(spec, "ephemeralContainers")),
        restart_policy=_restart_policy(spec),
        annotations=annotations,
        labels=_text_map(metadata, "labels"),
        bindings=read_bindings(annotations, containers, f"{place}.metadata.annotations", problems),
        manifest=document,
    )
    return pod, sound


def _check_metadata(metadata: dict[str, Any], path: str, problems: Problems) -> None:
    fields.check_fields(metadata, fields.METADATA, path, problems)
    if metadata.get("name") in (None, ""):
        problems.add(path, "name is missing")
    for field, complaint_of in (
        ("name", names.bad_subdomain),
        ("namespace", names.bad_label),
        ("uid", names.bad_uid),
    ):
        text = _text(metadata, field)
        _complain(complaint_of(text) if text else "", f"{path}.{field}", problems)
    for field in ("labels", "annotations"):
        for key in _text_map(metadata, field):
            _complain(names.bad_qualified_name(key), f"{path}.{field}", problems)
    for key, text in _text_map(metadata, "labels").items():
        _complain(names.bad_label_value(text), child(f"{path}.labels", key), problems)


def _check_spec(spec: dict[str, Any], path: str, problems: Problems) -> None:
    fields.check_fields(spec, fields.POD_SPEC, path, problems)
    if spec.get("containers") in (None, []):
        problems.add(path, "containers is missing (expected at least one container)")
    _check_choice(spec, "restartPolicy", path, problems)
    seen: dict[str, str] = {}
    for field in _LISTS:
        table = fields.EPHEMERAL_CONTAINER if field == "ephemeralContainers" else fields.CONTAINER
        for index, item in enumerate(_list(spec, field)):
            if isinstance(item, dict):
                where = f"{path}.{field}[{index}]"
                fields.check_fields(item, table, where, problems)
                _check_choice(item, "restartPolicy", where, problems)
                _check_container_name(item, where, seen, problems)


def _check_container_name(item: dict[str, Any], path: str, seen: dict[str, str], problems: Problems) -> None:
    name = _text(item, "name")
    if item.get("name") in (None, ""):
        problems.add(path, "name is missing")
    if not name:
        return
    _complain(names.bad_label(name), f"{path}.name", problems)
    first = seen.setdefault(name, path)
    if first != path:
        problems.add(f"{path}.name", f"{shown(name)} is already the name of {first}")


def _check_choice(value: dict[str, Any], field: str, path: str, problems: Problems) -> None:
    text = _text(value, field)
    if text and text not in _RESTART_POLICIES:
        known = ", ".join(map(shown, _RESTART_POLICIES))
        problems.add(f"{path}.{field}", f"{shown(text)} is not known (expected one of {known})")


def _complain(complaint: str, path: str, problems: Problems) -> None:
    if complaint:
        problems.add(path, complaint)


def _restart_policy(spec: dict[str, Any]) -> RestartPolicy:
    text = _text(spec, "restartPolicy")
    return RestartPolicy(text) if text in _RESTART_POLICIES else RestartPolicy.ALWAYS


def _containers(spec: dict[str, Any], path: str, problems: Problems) -> Iterator[Container]:
    """Init containers first, then app containers; ephemeral ones are checked and not yielded."""
    for field in _LISTS:
        for index, item in enumerate(_list(spec, field)):
            where = f"{path}.{field}[{index}]"
            if not isinstance(item, dict):
                continue
            if field == "ephemeralContainers":
                if item.get("resources"):
                    problems.add(f"{where}.resources", "Forbidden: cannot be set for an Ephemeral Container")
                continue
            yield Container(
                name=_text(item, "name"),
                kind=_kind(field, item),
                resources=_resources(item, fields.CONTAINER_RESOURCES, where, problems),
            )


def _kind(field: str, item: dict[str, Any]) -> ContainerKind:
    if field == "containers":
        return ContainerKind.APP
    sidecar = item.get("restartPolicy") == RestartPolicy.ALWAYS.value
    return ContainerKind.SIDECAR if sidecar else ContainerKind.INIT


def _resources(owner: dict[str, Any], table: fields.Table, path: str, problems: Problems) -> Resources:
    stated = owner.get("resources")
    if not isinstance(stated, dict):
        return Resources()
    where = f"{path}.resources"
    fields.check_fields(stated, table, where, problems)
    return Resources(
        requests=_amounts(_object(stated, "requests"), f"{where}.requests", problems),
        limits=_amounts(_object(stated, "limits"), f"{where}.limits", problems),
    )


def _amounts(stated: dict[str, Any], path: str, problems: Problems) -> dict[ResourceName, Quantity]:
    amounts = {}
    for key, value in stated.items():
        name = ResourceName(key)
        quantity = _quantity(value)
        if quantity is None:
            problems.add(
                child(path, key), f"{shown(value)} is not a quantity (expected e.g. {_example(name)})"
            )
        else:
            amounts[name] = quantity
    return amounts


def _quantity(value: Any) -> Quantity | None:
    """Read text or a number, the latter by its text; spaces around it are no matter to Kubernetes."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return parse_quantity(str(value).strip(" \t\n"))
    except ValueError:
        return None


def _example(name: ResourceName) -> str:
    if name == CPU:
        return '"2" or "1500m"'
    return '"4Gi" or "512Mi"' if is_memory_type(name) else '"1"'


def _object(value: dict[str, Any], field: str) -> dict[str, Any]:
    held = value.get(field)
    return held if isinstance(held, dict) else _EMPTY


def _list(value: dict[str, Any], field: str) -> list[Any]:
    held = value.get(field)
    return held if isinstance(held, list) else []


def _objects(value: dict[str, Any], field: str) -> Iterable[dict[str, Any]]:
    return (item for item in _list(value, field) if isinstance(item, dict))


def _is_list(value: Any) -> bool:
    """Whether a list of containers has the shape that index-based paths need."""
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


def _text(value: dict[str, Any], field: str) -> str:
    held = value.get(field)
    return held if isinstance(held, str) else ""


def _text_map(value: dict[str, Any], field: str) -> dict[str, str]:
    return {key: text for key, text in _object(value, field).items() if isinstance(text, str)}
