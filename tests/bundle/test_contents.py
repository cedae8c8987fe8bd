"""What does not fit into a bundle is told, and what fits is read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.bundle import contents
from agent.bundle.archive import pack, unpack
from agent.bundle.contents import Contents


def test_a_file_that_is_too_large_is_left_out_and_of_a_log_the_end_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contents, "MAX_FILE", 10)
    into = Contents()
    into.add("a.json", "", b"x" * 11)
    into.add_text("journal.txt", "the journal", b"first line, last line")
    assert into.files == {"journal.txt": b" last line"}
    assert into.about["journal.txt"] == "the journal; only its end"
    assert [what for what, _ in into.missing] == ["a.json"]


def test_a_full_bundle_takes_no_more_and_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_CONTENT", 25)
    into = Contents()
    for name in ("a", "b", "c"):
        into.add(name, "", b"x" * 10)
    assert list(into.files) == ["a", "b"]
    assert into.missing == [("c", "the bundle is full")]
    path = tmp_path / "b.tar.gz"
    path.write_bytes(pack({"MANIFEST.json": into.manifest("now", "0"), **into.files}, 0))
    assert unpack(path).keys() == {"MANIFEST.json", "a", "b"}
