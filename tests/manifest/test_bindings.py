"""Which annotations bind a container, and which texts never do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.domain.binding import Binding, BindingKind
from agent.domain.settings import Gates
from agent.manifest import ManifestError, load_manifests


def read(annotations: dict[str, str], **spec: Any) -> dict[str, Binding]:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": [{"name": "db"}, {"name": "web"}], **spec},
    }
    (pod,) = load_manifests(json.dumps(document).encode(), "test.yaml", Gates())
    return dict(pod.bindings)


@pytest.mark.parametrize(
    "unit",
    ["postgresql.service", "worker@1.service", "docker-0123abcd.scope", "a-b_c:d.service", "x\\x2dy.service"],
)
def test_a_container_is_a_unit(unit: str) -> None:
    assert read({"numalet/unit.db": unit}) == {"db": Binding(BindingKind.UNIT, unit)}


@pytest.mark.parametrize("path", ["db", "containers/db", "machine.slice/libpod-0a.scope/container", "_x/y@1"])
def test_a_container_is_a_cgroup(path: str) -> None:
    assert read({"numalet/cgroup.db": path}) == {"db": Binding(BindingKind.CGROUP, path)}


def test_other_annotations_bind_nothing() -> None:
    assert read({"example.com/unit.db": "../..", "numalet.dev/unit.db": "x"}) == {}


def test_a_sidecar_is_bound() -> None:
    sidecar = {"name": "log", "restartPolicy": "Always"}
    assert "log" in read({"numalet/unit.log": "rsyslog.service"}, initContainers=[sidecar])


HOSTILE = [
    "",
    " ",
    ".",
    "..",
    "/",
    "/db",
    "/sys/fs/cgroup/db",
    "a/../b",
    "../b",
    "a/..",
    "a/.",
    "a//b",
    "a/",
    "a\x00b",
    "a\nb",
    "db\n",
    "a b",
    "-rf",
    "a/-x",
    "$(reboot)",
    "a;b",
    "a*",
    "\u2024\u2024/b",
    "d\u00fc",
    "cgroup.procs\r",
    "a" * 2000,
]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_path_that_could_lead_elsewhere_is_refused_with_its_place(path: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read({"numalet/cgroup.db": path})
    (problem,) = caught.value.problems
    assert problem.path == '$.metadata.annotations["numalet/cgroup.db"]'
    assert "is not a cgroup's path below the cgroup mount" in problem.text
    assert len(problem.text) < 400
    assert problem.text.isprintable()


@pytest.mark.parametrize(
    "unit", [*HOSTILE, "postgresql", "system.slice", "a.socket", "../x.service", "a/b.service", "x.service\n"]
)
def test_what_is_no_service_or_scope_is_refused(unit: str) -> None:
    with pytest.raises(ManifestError, match="is not a service or scope") as caught:
        read({"numalet/unit.db": unit})
    assert caught.value.problems[0].text.isprintable()


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"numalet/unti.db": "a.service"}, "is not known"),
        ({"numalet/unit": "a.service"}, "names no container"),
        ({"numalet/unit.nobody": "a.service"}, "names no container"),
        ({"numalet/unit.init": "a.service"}, "is an init container"),
        ({"numalet/unit.db": "init.scope"}, "systemd itself"),
        ({"numalet/unit.db": "a@.service"}, "is a template"),
        ({"numalet/cgroup.db": "system.slice/a.service"}, "numalet/unit.CONTAINER: a.service"),
        ({"numalet/cgroup.db": "user.slice"}, "which systemd sets"),
        (
            {"numalet/unit.db": "a.service", "numalet/cgroup.db": "b"},
            "container db is unit a.service already",
        ),
        ({"numalet/unit.db": "a.service", "numalet/unit.web": "a.service"}, "is container db already"),
    ],
)
def test_what_cannot_be_bound_is_refused_with_what_was_expected(
    annotations: dict[str, str], words: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        read(annotations, initContainers=[{"name": "init"}])
    (problem,) = caught.value.problems
    assert words in problem.text
