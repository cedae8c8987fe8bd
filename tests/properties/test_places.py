"""No name leaves the cgroup root or the state directory: it becomes one place below them, or an error."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cgroup import layout
from agent.cgroup.layout import CgroupDir, Kind
from agent.checkpoint.store import CPU_FILE, StateDir, StorageError, record_name
from agent.domain.pod import PodUid
from agent.domain.qos import QosClass
from agent.domain.settings import Gates
from agent.errors import StateError
from agent.manifest import ManifestError, load_manifests
from agent.podsource import ManifestDir

ROOT = "/sys/fs/cgroup/numalet"
PARTS = ["..", ".", "/", "\0", "\n", "a", "A", "0", "-", "_", "\\", " ", "pod", "shared.pool", "cgroup.procs", "\u2025", "\uff0e", "\uff0f", "\u0430", "\ud800", "\x1b", "%2e", "x" * 70]  # fmt: skip
names = st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map("".join) | st.text(max_size=80)


def below(root: str, directory: CgroupDir) -> list[str]:
    """The parts of a path below ``root``, as the kernel would resolve them."""
    place = os.path.normpath(f"{root}/{directory}")
    assert place == f"{root}/{directory}"
    assert place.isascii()
    assert place.isprintable()
    return place.removeprefix(f"{root}/").split("/")


@given(uid=names, qos=st.sampled_from(QosClass), name=names)
def test_a_cgroup_is_below_its_pods_which_is_below_the_root(uid: str, qos: QosClass, name: str) -> None:
    try:
        pod = layout.pod_dir(PodUid(uid), qos)
    except ValueError:
        return
    parts = below(ROOT, pod)
    assert parts[-1] == f"pod{uid}"
    assert len(parts) == (1 if qos is QosClass.GUARANTEED else 2)
    assert layout.kind_of(pod) is Kind.POD
    try:
        own, pooled = layout.container_dir(pod, name), layout.pooled_dir(pod, name)
    except ValueError:
        return
    assert below(ROOT, own) == [*parts, name]
    assert below(ROOT, pooled) == [*parts, layout.SHARED_POOL, name]
    assert "." not in name, "interface files have a dot, containers have none"


@given(uid=names)
def test_a_record_is_one_file_in_the_directory_of_records(uid: str) -> None:
    try:
        name = record_name(PodUid(uid))
    except StateError:
        return
    place = Path(os.path.normpath(f"/var/lib/numalet/{name}"))
    assert place.parent == Path("/var/lib/numalet/pods")
    assert place.name == f"{uid}.json"
    assert len(place.name.encode()) <= 255


@given(uid=names, namespace=names, name=names, container=names, key=names)
def test_whatever_a_manifest_is_called_an_accepted_pod_has_its_places(
    uid: str, namespace: str, name: str, container: str, key: str
) -> None:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "annotations": {key: uid},
        "labels": {key: uid},
    }
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": container}]},
    }
    try:
        (pod,) = load_manifests(json.dumps(document).encode(), name, Gates())
    except ManifestError:
        return
    directory = layout.pod_dir(pod.uid, QosClass.BEST_EFFORT)
    below(ROOT, layout.container_dir(directory, pod.containers[0].name))
    record_name(pod.uid)


@given(uid=st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True))
def test_what_may_be_a_uid_in_a_manifest_names_a_cgroup_and_a_file(uid: str) -> None:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": uid}, "spec": {"containers": [{"name": "a"}]}}  # fmt: skip
    try:
        (pod,) = load_manifests(json.dumps(document).encode(), "a.yaml", Gates())
    except ManifestError:
        return
    layout.pod_dir(pod.uid, QosClass.GUARANTEED)
    record_name(pod.uid)


def test_writing_state_follows_no_symbolic_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    record = record_name(PodUid("a"))
    with StateDir(tmp_path / "state") as store:
        (store.root / CPU_FILE).symlink_to(outside)
        (store.root / record).symlink_to(outside)
        store.write(CPU_FILE, b"{}")
        store.write(record, b"{}")
        assert not (store.root / CPU_FILE).is_symlink()
        assert outside.read_text() == "precious"
        (store.root / f".{CPU_FILE}.tmp").symlink_to(outside)
        with pytest.raises(StorageError):
            store.write(CPU_FILE, b"{}")
        assert outside.read_text() == "precious"


def test_a_lock_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    root = tmp_path / "state"
    root.mkdir()
    (root / "lock").symlink_to(outside)
    with pytest.raises(StorageError), StateDir(root):
        pass
    assert outside.read_text() == "precious"


def test_links_to_pipes_devices_directories_and_themselves_are_no_manifests(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, target in (
        ("a.yaml", "pipe"),
        ("b.yaml", "/dev/zero"),
        ("c.yaml", "."),
        ("d.yaml", "d.yaml"),
        ("e.yaml", "/nowhere"),
    ):
        (tmp_path / name).symlink_to(target)
    manifests = ManifestDir(tmp_path, Gates())
    try:
        change = manifests.scan()
    finally:
        manifests.close()
    assert (change.loaded, change.gone) == ({}, ())
