"""The file of a bundle: a gzipped tar. What is read from one comes from anybody, and is not trusted."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from agent.errors import NumaletError

ROOT: Final = "numalet-bundle"
MANIFEST: Final = "MANIFEST.json"
MAX_TOTAL: Final = 256 << 20
"""Bytes of a bundle when it is unpacked."""
MAX_MEMBERS: Final = 20_000
MAX_NAME: Final = 300


def pack(files: Mapping[str, bytes], when: int) -> bytes:
    """The bundle's bytes; ``when`` (seconds of the epoch) is each member's time. Same input, same bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=when) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in files.items():
            member = tarfile.TarInfo(f"{ROOT}/{name}")
            member.size, member.mtime, member.mode = len(data), when, 0o600
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def unpack(path: Path) -> dict[str, bytes]:
    """What is in a bundle, by name. Raises NumaletError where it is none, too large or not honest."""
    try:
        raw = _unzipped(path)
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
            files = dict(_members(path, tar))
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise _no_bundle(path, "not a gzip file") from error
        raise
    except (EOFError, zlib.error, tarfile.TarError, ValueError, RecursionError) as error:
        raise _no_bundle(path, str(error)) from error
    if MANIFEST not in files:
        raise _no_bundle(path, f"it has no {ROOT}/{MANIFEST}")
    return files


def _unzipped(path: Path) -> bytes:
    with gzip.open(path) as zipped:
        raw = zipped.read(MAX_TOTAL + 1)
    if len(raw) > MAX_TOTAL:
        raise _no_bundle(path, f"it unpacks to more than {MAX_TOTAL >> 20} MiB")
    return raw


def _members(path: Path, tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    seen: set[str] = set()
    for member in tar:
        name = member.name.removeprefix(f"{ROOT}/")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
            raise _no_bundle(path, f"{member.name[:MAX_NAME]!r} is not a plain file")
        if name == member.name or not is_safe(name) or name in seen:
            raise _no_bundle(path, f"it holds {member.name[:MAX_NAME]!r}")
        if len(seen) >= MAX_MEMBERS:
            raise _no_bundle(path, f"it holds more than {MAX_MEMBERS} files")
        seen.add(name)
        content = tar.extractfile(member)
        assert content is not None  # noqa: S101 - it is a plain file
        yield name, content.read()


def is_safe(name: str) -> bool:
    """Whether a name stays below the directory it is put in, on any file system."""
    parts = name.split("/")
    return (
        len(name.encode(errors="replace")) <= MAX_NAME
        and name.isprintable()
        and name.isascii()
        and all(part and not part.startswith(".") for part in parts)
    )


def _no_bundle(path: Path, why: str) -> NumaletError:
    return NumaletError(f"{path} is not a bundle: {why}", hint="numalet gather FILE.tar.gz makes one")
