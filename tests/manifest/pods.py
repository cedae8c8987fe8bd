"""Manifests to start from: `manifest` builds one as an object, `text_of` writes it."""

from __future__ import annotations

import json
from typing import Any

from agent.domain.settings import Gates
from agent.manifest import ManifestError, load_manifests

SOURCE = "trading.yaml"


def manifest(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A valid Pod of one container; ``spec`` replaces whole fields of it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trading", **metadata},
        "spec": {"containers": [{"name": "main"}], **(spec or {})},
    }


def text_of(*documents: Any) -> bytes:
    """The documents as one YAML stream; JSON is YAML."""
    return b"".join(b"---\n" + json.dumps(document).encode() + b"\n" for document in documents)


def problems_of(text: bytes, gates: Gates | None = None) -> list[str]:
    """What is wrong with ``text``, a line each, without the name of the file."""
    try:
        load_manifests(text, SOURCE, gates or Gates())
    except ManifestError as error:
        lines = str(error).split("\n")
        assert all(line.startswith((f"{SOURCE}: ", "…")) for line in lines)
        return [line.removeprefix(f"{SOURCE}: ") for line in lines]
    return []
