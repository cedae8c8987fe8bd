"""Pod records: deterministic, self-checking, tolerant of newer minor versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.checkpoint.podrecord import PodRecord, decode_record, encode_record, record_of
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import Container, Pod, PodUid, ResourceName
from agent.domain.settings import Gates
from agent.domain.state import Block, CpuState, MemoryState, NodeState
from agent.errors import StateError

few = settings(max_examples=40, deadline=None)

UID = PodUid("uid-1")
BLOCK = Block(NodeMask.of([0, 1]), ResourceName("memory"), 1 << 40)
POD = Pod(
    name="web",
    namespace="default",
    uid=UID,
    containers=(Container(name="main"),),
    manifest={"spec": {"containers": [{"name": "é<&>"}], "x": 1.5, "y": None}, "kind": "Pod"},
)
STATE = NodeState(
    cpu=CpuState(entries={UID: {"main": CpuSet.parse("1-2")}}, pod_entries={UID: CpuSet.parse("1-4")}),
    memory=MemoryState(entries={UID: {"main": (BLOCK,)}}, pod_entries={UID: (BLOCK,)}),
)
RECORD = record_of(
    POD,
    STATE,
    gates=Gates(cpu_alpha_options=False),
    boot_id="5d6a",
    admitted_at="2026-01-02T03:04:05Z",
    source="web.yaml",
)
GOLDEN = (
    '{"admittedAt":"2026-01-02T03:04:05Z","bootID":"5d6a","cpu":{"containers":{"main":"1-2"},"pod":"1-4"},'
    '"gates":{"CPUManagerPolicyAlphaOptions":false,"CPUManagerPolicyBetaOptions":true,'
    '"PodLevelResourceManagers":true,"PodLevelResources":true},"manifest":{"kind":"Pod","spec":'
    '{"containers":[{"name":"é<&>"}],"x":1.5,"y":null}},"memory":{"containers":{"main":'
    '[{"nodes":[0,1],"size":1099511627776,"type":"memory"}]},"pod":[{"nodes":[0,1],"size":1099511627776,'
    '"type":"memory"}]},"name":"web","namespace":"default","sha256":"%s","source":"web.yaml","uid":"uid-1","version":"1.0"}\n'
)
DIGEST = hashlib.sha256(GOLDEN.replace('"sha256":"%s",', "").strip().encode()).hexdigest()


def _document(record: PodRecord = RECORD) -> dict[str, Any]:
    document = json.loads(encode_record(record))
    assert isinstance(document, dict)
    return document


def test_the_bytes_are_these() -> None:
    raw = encode_record(RECORD)
    assert raw.decode() == GOLDEN % DIGEST


def test_a_record_comes_back_as_it_was_written() -> None:
    assert decode_record(encode_record(RECORD)) == RECORD


def test_a_pod_that_holds_nothing_has_a_record_too() -> None:
    record = record_of(POD, NodeState(), gates=Gates(), boot_id="", admitted_at="", source="")
    assert decode_record(encode_record(record)) == record
    assert record.pod_cpus is None
    assert record.pod_blocks is None


def _newer() -> bytes:
    """A record of a newer minor version, with fields in every part."""
    record = replace(
        RECORD,
        minor=7,
        unknown={
            "resize": {"generation": 3},
            "cpu": {"baseline": "1"},
            "memory": {"tier": 2},
            "gates": {"Later": True},
        },
    )
    return encode_record(record)


def test_unknown_fields_and_the_newer_minor_version_survive_a_rewrite() -> None:
    read = decode_record(_newer())
    assert read.minor == 7
    rewritten = encode_record(replace(read, cpus={"main": CpuSet.parse("3")}))
    document = json.loads(rewritten)
    assert document["version"] == "1.7"
    assert document["resize"] == {"generation": 3}
    assert document["cpu"] == {"baseline": "1", "containers": {"main": "3"}, "pod": "1-4"}
    assert document["memory"]["tier"] == 2
    assert document["gates"]["Later"] is True
    assert encode_record(decode_record(rewritten)) == rewritten


def test_a_newer_major_version_is_refused_with_a_way_out() -> None:
    raw = encode_record(RECORD).replace(b'"version":"1.0"', b'"version":"2.0"')
    with pytest.raises(StateError, match=r"version 2\.0, this agent reads 1\.x") as caught:
        decode_record(raw)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b"\xff", "not JSON", id="not-utf8"),
        pytest.param(b"[" * 100_000, "not JSON", id="too-deep"),
        pytest.param(b'{"version":NaN}', "not JSON", id="nan"),
        pytest.param(b"[]", "not a JSON object", id="array"),
        pytest.param(b"{}", "no readable version", id="no-version"),
        pytest.param(b'{"version":"1.0"}', "corrupted", id="no-digest"),
        pytest.param(b'{"version":"1.0","x":"\\ud800"}', "cannot be written", id="surrogate"),
    ],
)
def test_what_is_no_record_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(StateError, match=message):
        decode_record(raw)


def test_a_record_without_its_fields_is_refused() -> None:
    """The checksum of such a record is right: a stranger wrote it."""
    with pytest.raises(StateError, match="incomplete: KeyError: 'cpu'"):
        decode_record(_signed({"version": "1.0"}))
    with pytest.raises(StateError, match="uid is not a string"):
        decode_record(_signed({**_document(), "uid": 1}))


def _signed(document: dict[str, Any]) -> bytes:
    """``document`` with the digest that the refusal of a wrong one names."""
    raw = json.dumps({**document, "sha256": ""}).encode()
    with pytest.raises(StateError) as caught:
        decode_record(raw)
    digest = caught.value.hint.rsplit(" ", 1)[-1]
    return json.dumps({**document, "sha256": digest}).encode()


def test_a_manifest_that_is_not_json_is_refused() -> None:
    with pytest.raises(StateError, match="cannot be written as JSON"):
        encode_record(replace(RECORD, manifest={"x": {1, 2}}))
    with pytest.raises(StateError, match="cannot be written as JSON"):
        encode_record(replace(RECORD, manifest={"x": float("nan")}))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('aé"\\<\n'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abé", max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@few
@given(manifest=st.dictionaries(st.text("abé", max_size=3), JSON, max_size=4))
def test_any_manifest_survives(manifest: dict[str, Any]) -> None:
    raw = encode_record(replace(RECORD, manifest=manifest))
    read = decode_record(raw)
    assert read.manifest == manifest
    assert encode_record(read) == raw


def test_every_flipped_bit_is_detected_or_changes_nothing(
    record_property: Callable[[str, object], None],
) -> None:
    raw, detected = encode_record(RECORD), 0
    for at in range(len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            try:
                read = decode_record(bytes(damaged))
            except StateError:
                detected += 1
                continue
            assert read == RECORD
    record_property("flipped bits of records, detected", detected)
    record_property("flipped bits of records, harmless", 8 * len(raw) - detected)
