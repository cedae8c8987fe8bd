"""The whole path from a manifest's text to pods, with every problem of the text in one error."""

from __future__ import annotations

from typing import Any

from agent.domain.pod import Pod
from agent.domain.settings import Gates
from agent.manifest.decode import read_documents
from agent.manifest.defaults import with_defaults
from agent.manifest.problem import Problems
from agent.manifest.structure import check_kind, read_pod
from agent.manifest.validation import validate


def load_manifests(text: bytes, source: str, gates: Gates) -> tuple[Pod, ...]:
    """Read all pods of ``text``, defaults filled in, rules checked; no pod at all is an empty tuple.

    ``source`` is the file's name. Raises ManifestError with all problems of all documents.
    """
    problems = Problems(source)
    documents = read_documents(text, problems)
    pods = [_read(document.value, document.place, gates, problems) for document in documents]
    holders: dict[str, str] = {}
    for pod, document in zip(pods, documents, strict=True):
        first = holders.setdefault(pod.uid, document.place)
        if first != document.place:
            problems.add(
                f"{document.place}.metadata", f"pod {pod.full_name} has the uid {pod.uid} of {first}"
            )
    problems.raise_any()
    return tuple(pods)


def parse_pod(document: dict[str, Any], source: str, gates: Gates | None = None) -> Pod:
    """Read one decoded Pod object, defaults filled in, rules checked; raises ManifestError."""
    problems = Problems(source)
    pod = _read(document, "$", gates or Gates(), problems)
    problems.raise_any()
    return pod


def _read(document: dict[str, Any], place: str, gates: Gates, problems: Problems) -> Pod:
    check_kind(document, place, problems)
    pod, sound = read_pod(document, place, problems)
    pod = with_defaults(pod, gates)
    if sound:
        problems.extend(validate(pod, gates, problems.source, place))
    return pod
