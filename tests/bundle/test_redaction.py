"""No secret leaves the host, and what is left is decided about as before."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agent.bundle.redaction import REDACTED, kernel_command_line, manifest
from agent.domain.settings import Gates
from agent.manifest import load_manifests
from tests.containermanager.node import budgeted

HUSH = "hush-hush"


def talkative() -> dict[str, Any]:
    """A pod with a secret wherever there is room for one."""
    pod = budgeted("talkative")
    pod["metadata"] |= {
        "annotations": {"example.com/token": HUSH, "numalet.example/x": "ours", "notnumalet/x": HUSH},
        "labels": {"name": HUSH, "kind": HUSH},
    }
    main = pod["spec"]["containers"][0]
    main |= {
        "image": f"registry.example/{HUSH}",
        "command": ["sh", "-c", HUSH],
        "args": [HUSH],
        "workingDir": f"/{HUSH}",
        "env": [
            {"name": "PASSWORD", "value": HUSH},
            {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": HUSH, "key": HUSH}}},
        ],
        "livenessProbe": {"exec": {"command": [HUSH]}, "periodSeconds": 5},
        "volumeMounts": [{"name": HUSH, "mountPath": f"/{HUSH}"}],
    }
    pod["spec"] |= {
        "volumes": [{"name": HUSH, "csi": {"volumeAttributes": {"name": HUSH, "resources": HUSH}}}],
        "nodeSelector": {"name": HUSH},
        "imagePullSecrets": [{"name": HUSH}],
        "serviceAccountName": HUSH,
        "restartPolicy": "Never",
    }
    return pod


def test_no_secret_is_left_in_a_manifest() -> None:
    assert HUSH not in json.dumps(manifest(talkative()))


def test_names_of_variables_stay_and_so_do_our_own_annotations() -> None:
    shown = manifest(talkative())
    assert [one["name"] for one in shown["spec"]["containers"][0]["env"]] == ["PASSWORD", "OTHER"]
    assert shown["metadata"]["annotations"] == {
        "example.com/token": REDACTED,
        "numalet.example/x": "ours",
        "notnumalet/x": REDACTED,
    }


def test_the_redacted_manifest_is_the_same_pod_to_every_decision() -> None:
    before, after = (
        load_manifests(json.dumps(document).encode(), "pod.yaml", Gates())[0]
        for document in (talkative(), manifest(talkative()))
    )
    before, after = (replace(pod, manifest={}, annotations={}, labels={}) for pod in (before, after))
    assert before == after


def test_a_manifest_of_any_shape_is_redacted() -> None:
    odd = {
        "metadata": HUSH,
        "spec": {"containers": {"name": HUSH}, "initContainers": [HUSH, {"env": HUSH}]},
    }
    assert HUSH not in json.dumps(manifest(odd))


def test_of_the_kernels_parameters_those_that_matter_keep_their_values() -> None:
    text = (
        f'root=UUID=1 isolcpus=2-7 nohz_full=2-7 quiet rd.luks.key={HUSH} dyndbg="file {HUSH} +p" "x=a {HUSH}"'
        f" systemd.unified_cgroup_hierarchy=1 -- --password {HUSH} isolcpus={HUSH}\n"
    )
    assert kernel_command_line(text) == (
        f"root={REDACTED} isolcpus=2-7 nohz_full=2-7 quiet rd.luks.key={REDACTED} dyndbg={REDACTED}"
        f' "x={REDACTED} systemd.unified_cgroup_hierarchy=1 -- {REDACTED}'
    )
