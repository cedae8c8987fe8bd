"""A bundle comes from anybody: what is packed comes back, what is not honest is refused as a whole."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.bundle import archive
from agent.bundle.archive import MANIFEST, ROOT, pack, unpack
from agent.errors import NumaletError

FILES = {MANIFEST: b"{}", "machine.json": b"{ }", "state/pods/a.json": b"x" * 70_000, "empty": b""}
Change = Callable[[tarfile.TarInfo], None]


def as_is(_member: tarfile.TarInfo) -> None: ...


def tarred(path: Path, *members: tuple[str, bytes, Change]) -> Path:
    """A gzipped tar of a manifest and of members that may be changed."""
    plain = (f"{ROOT}/{MANIFEST}", b"{}", as_is)
    with tarfile.open(path, "w:gz") as tar:
        for name, data, change in (plain, *members):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            change(member)
            tar.addfile(member, io.BytesIO(data))
    return path


def linked(kind: bytes) -> Change:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = kind, "/etc/shadow", 0

    return change


def test_what_was_packed_comes_back_and_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_bytes(pack(FILES, 1_800_000_000))
    assert unpack(path) == FILES
    assert pack(FILES, 1_800_000_000) == path.read_bytes()


def test_tar_itself_unpacks_a_bundle_into_one_directory(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_bytes(pack(FILES, 0))
    with tarfile.open(path) as tar:
        assert {Path(name).parts[0] for name in tar.getnames()} == {ROOT}


@pytest.mark.parametrize(
    "name",
    [
        "/etc/cron.d/x", "../x", f"{ROOT}/../x", f"{ROOT}/a/../../x", f"{ROOT}//etc/x", f"{ROOT}/./x", f"{ROOT}/a/",
        f"{ROOT}/.hidden", "other/x", ROOT, f"{ROOT}/a\nb", f"{ROOT}/a\u2215b", f"{ROOT}/{'x' * 400}", f"{ROOT}/{MANIFEST}",
    ],
)  # fmt: skip
def test_a_name_that_leaves_its_place_or_comes_twice_refuses_the_bundle(tmp_path: Path, name: str) -> None:
    with pytest.raises(NumaletError, match="is not a bundle: "):
        unpack(tarred(tmp_path / "b.tar.gz", (name, b"x", as_is)))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_only_plain_files_are_taken(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(NumaletError, match="is not a plain file"):
        unpack(tarred(tmp_path / "b.tar.gz", (f"{ROOT}/machine.json", b"", linked(kind))))


def test_a_sparse_file_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    def sparse(member: tarfile.TarInfo) -> None:
        member.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40)}

    with pytest.raises(NumaletError, match="is not a plain file"):
        unpack(tarred(tmp_path / "b.tar.gz", (f"{ROOT}/machine.json", b"x", sparse)))


def test_what_unpacks_to_more_than_the_limit_is_refused_before_it_is_all_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_TOTAL", 1 << 20)
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(NumaletError, match="unpacks to more than 1 MiB"):
        unpack(path)


def test_more_files_than_any_bundle_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    path = tmp_path / "b.tar.gz"
    path.write_bytes(pack({MANIFEST: b"{}", **{f"f{i}": b"" for i in range(3)}}, 0))
    with pytest.raises(NumaletError, match="more than 3 files"):
        unpack(path)


WHOLE = pack(FILES, 0)


@pytest.mark.parametrize(
    "raw",
    [b"", b"text", WHOLE[:-20], WHOLE[: len(WHOLE) // 2], gzip.compress(b""), gzip.compress(b"no tar" * 200), pack({"a": b""}, 0)],
    ids=["empty", "text", "cut", "half", "empty gzip", "gzip of text", "no manifest"],
)  # fmt: skip
def test_what_is_no_bundle_says_so_and_how_one_is_made(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_bytes(raw)
    with pytest.raises(NumaletError, match="is not a bundle: ") as refused:
        unpack(path)
    assert "numalet gather" in refused.value.hint
