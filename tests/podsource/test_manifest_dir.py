"""What a scan of the manifest directory finds, and what it makes of files that cannot be used."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.domain.settings import Gates
from agent.manifest import MAX_BYTES
from agent.podsource import Change, ManifestDir
from tests.containermanager.node import manifest


def write(path: Path, *documents: dict[str, Any]) -> None:
    path.write_text("---\n".join(json.dumps(document) + "\n" for document in documents))


def names(change: Change) -> dict[str, list[str]]:
    return {file: [pod.name for pod in pods] for file, pods in change.loaded.items()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "manifests"


@pytest.fixture
def watched(root: Path) -> Iterator[ManifestDir]:
    root.mkdir()
    manifests = ManifestDir(root, Gates())
    yield manifests
    manifests.close()


def test_new_files_are_loaded_once_in_order(watched: ManifestDir, root: Path) -> None:
    write(root / "b.json", manifest("b"))
    write(root / "a.yaml", manifest("a"), manifest("a2"))
    change = watched.scan()
    assert list(change.loaded) == ["a.yaml", "b.json"]
    assert names(change) == {"a.yaml": ["a", "a2"], "b.json": ["b"]}
    assert watched.scan() == Change()


def test_a_changed_file_is_loaded_again_and_a_missing_one_is_gone(watched: ManifestDir, root: Path) -> None:
    write(root / "a.yaml", manifest("a"))
    write(root / "b.yaml", manifest("b"))
    watched.scan()
    write(root / "a.yaml", manifest("other"))
    (root / "b.yaml").unlink()
    change = watched.scan()
    assert names(change) == {"a.yaml": ["other"]}
    assert change.gone == ("b.yaml",)
    assert watched.scan() == Change()


def test_dot_files_folders_and_pipes_are_no_manifests(watched: ManifestDir, root: Path) -> None:
    write(root / ".a.yaml.swp", manifest("a"))
    (root / "folder").mkdir()
    write(root / "folder" / "b.yaml", manifest("b"))
    os.mkfifo(root / "pipe.yaml")
    assert watched.scan() == Change()


def test_a_link_to_a_manifest_is_one(watched: ManifestDir, root: Path, tmp_path: Path) -> None:
    write(tmp_path / "real.yaml", manifest("a"))
    (root / "a.yaml").symlink_to(tmp_path / "real.yaml")
    (root / "dangling.yaml").symlink_to(tmp_path / "nowhere")
    assert names(watched.scan()) == {"a.yaml": ["a"]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"a: [", "bad.yaml: line ", id="malformed"),
        pytest.param(b"{}", "bad.yaml: $: apiVersion is missing", id="not a pod"),
        pytest.param(b"", "bad.yaml: holds no pod; pods go when their file is gone", id="empty"),
        pytest.param(b"#" * (MAX_BYTES + 1), "are too many for a manifest", id="huge"),
        pytest.param(b"[" * 5000, "maximum nesting depth", id="deep"),
        pytest.param(b"\xff", "not UTF-8", id="binary"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_problem_until_it_is_mended_and_its_pods_stay(
    watched: ManifestDir, root: Path, content: bytes, words: str
) -> None:
    write(root / "bad.yaml", manifest("a"))
    watched.scan()
    (root / "bad.yaml").write_bytes(content)
    change = watched.scan()
    assert words in change.problems[0]
    assert (change.loaded, change.gone) == ({}, ())
    assert watched.scan() == change
    write(root / "bad.yaml", manifest("a"))
    assert names(watched.scan()) == {"bad.yaml": ["a"]}
    assert watched.scan().problems == ()


def test_a_bad_file_that_is_removed_is_gone_and_no_problem_any_more(watched: ManifestDir, root: Path) -> None:
    (root / "bad.yaml").write_text("a: [")
    watched.scan()
    (root / "bad.yaml").unlink()
    assert watched.scan() == Change(gone=("bad.yaml",))


def test_a_file_that_cannot_be_read_is_tried_again_at_each_scan(watched: ManifestDir, root: Path) -> None:
    (root / "bad.yaml").symlink_to("/proc/self/mem")
    for _ in range(2):
        assert watched.scan() == Change(problems=("bad.yaml: Input/output error",))
    (root / "bad.yaml").unlink()
    assert watched.scan() == Change(gone=("bad.yaml",))


def test_a_file_deleted_while_it_was_to_be_read_is_no_problem(watched: ManifestDir) -> None:
    assert watched._load("ghost.yaml", (1, 2, 3)) == ()
    assert watched.scan() == Change()


def test_every_problem_of_a_file_is_one(watched: ManifestDir, root: Path) -> None:
    document = manifest("a")
    document["spec"]["containers"] = [{"name": "shared.pool"}, {"name": "../x"}, {"image": "i"}]
    write(root / "bad.yaml", document)
    assert len(watched.scan().problems) == 3


def test_a_missing_directory_takes_no_pod_and_is_followed_once_it_is_there(root: Path) -> None:
    manifests = ManifestDir(root, Gates())
    manifests.known(frozenset({"a.yaml"}))
    expected = f"{root}: No such file or directory: its pods stay as they are"
    assert manifests.scan() == Change(problems=(expected,))
    root.mkdir()
    write(root / "b.yaml", manifest("b"))
    change = manifests.scan()
    assert names(change) == {"b.yaml": ["b"]}
    assert change.gone == ("a.yaml",)
    assert change.problems == ()
    manifests.close()


def test_a_directory_that_is_a_file_takes_no_pod(root: Path) -> None:
    root.write_text("")
    manifests = ManifestDir(root, Gates())
    manifests.known(frozenset({"a.yaml"}))
    change = manifests.scan()
    assert (change.gone, change.problems) == ((), (f"{root}: Not a directory: its pods stay as they are",))
    manifests.close()


def test_files_known_from_before_are_read_and_those_that_are_gone_are_missed(
    watched: ManifestDir, root: Path
) -> None:
    write(root / "a.yaml", manifest("a"))
    watched.known(frozenset({"a.yaml", "b.yaml"}))
    change = watched.scan()
    assert (names(change), change.gone) == ({"a.yaml": ["a"]}, ("b.yaml",))


def test_a_file_can_be_asked_for_again(watched: ManifestDir, root: Path) -> None:
    write(root / "a.yaml", manifest("a"))
    watched.scan()
    watched.again("a.yaml")
    watched.again("gone.yaml")
    change = watched.scan()
    assert (names(change), change.gone) == ({"a.yaml": ["a"]}, ("gone.yaml",))


def test_waiting_ends_when_a_file_was_written_or_the_time_is_over(watched: ManifestDir, root: Path) -> None:
    watched.scan()
    begin = time.monotonic()
    watched.wait(0.01)
    threading.Timer(0.05, write, (root / "a.yaml", manifest("a"))).start()
    watched.wait(30)
    assert time.monotonic() - begin < 10
    assert names(watched.scan()) == {"a.yaml": ["a"]}


def test_a_rewrite_that_leaves_size_and_time_as_they_were_is_seen(watched: ManifestDir, root: Path) -> None:
    file = root / "a.yaml"
    write(file, manifest("a"))
    os.utime(file, ns=(1, 1))
    watched.scan()
    write(file, manifest("b"))
    os.utime(file, ns=(1, 1))
    watched.wait(5)
    assert names(watched.scan()) == {"a.yaml": ["b"]}


def test_whoever_never_stops_writing_does_not_hold_up_the_scan(watched: ManifestDir, root: Path) -> None:
    watched.scan()
    done = threading.Event()

    def scribble() -> None:
        while not done.wait(0.005):
            (root / ".log").write_text("x")

    writer = threading.Thread(target=scribble)
    writer.start()
    begin = time.monotonic()
    watched.wait(30)
    elapsed = time.monotonic() - begin
    done.set()
    writer.join()
    assert elapsed < 10


def test_a_directory_made_anew_is_watched_anew(watched: ManifestDir, root: Path) -> None:
    watched.scan()
    root.rmdir()
    watched.wait(5)
    assert "No such file or directory" in watched.scan().problems[0]
    root.mkdir()
    watched.scan()
    write(root / "a.yaml", manifest("a"))
    watched.wait(5)
    assert names(watched.scan()) == {"a.yaml": ["a"]}
