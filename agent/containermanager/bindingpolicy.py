"""Whose pods may be bound to what is not numalet's: the operator's choice."""

from __future__ import annotations

from agent.config.model import BindingPolicy
from agent.containermanager.binder import BindingError
from agent.domain.pod import Pod

MANIFEST_SOURCE = "file:"
"""How the source of a pod in staticPodPath begins."""


def check_policy(policy: BindingPolicy, pod: Pod, source: str) -> None:
    """Raise BindingError for a bound pod of a source that may not bind."""
    if not pod.bindings or policy is BindingPolicy.ALL:
        return
    if policy is BindingPolicy.MANIFESTS and source.startswith(MANIFEST_SOURCE):
        return
    name, binding = min(pod.bindings.items())
    if policy is BindingPolicy.NONE:
        raise BindingError(
            f"container {name} ({binding}): bindings is none in the configuration",
            hint="set bindings: manifests, or take the annotation away",
        )
    raise BindingError(
        f"container {name} ({binding}): with bindings: manifests only pods in staticPodPath may be bound",
        hint="put the manifest into staticPodPath, or set bindings: all (docs/security.md)",
    )
