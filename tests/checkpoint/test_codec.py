"""What the codec promises beside the vectors: worked examples, round trips, damage, unknown fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from fnv_hash_fast import fnv1a_32
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.checkpoint.codec import (
    CorruptCheckpointError,
    Decoded,
    Extra,
    Memo,
    decode_cpu,
    decode_memory,
    encode_cpu,
    encode_cpu_v1,
    encode_memory,
    require_policy,
)
from agent.checkpoint.codec.gojson import quote
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import PodUid, ResourceName
from agent.domain.settings import Gates
from agent.domain.state import Block, CpuState, MemoryState, MemoryTable, NodeMemory
from agent.domain.topology import NodeId
from agent.errors import StateError

few = settings(max_examples=40, deadline=None)

ON = Gates()
OFF = Gates(pod_level_resource_managers=False)
UID = PodUid("uid-1")

CPU = CpuState(
    default=CpuSet.parse("0,5-7"),
    entries={UID: {"main": CpuSet.parse("1-2"), "side": CpuSet.parse("3-4")}},
    pod_entries={UID: CpuSet.parse("1-4")},
)
BLOCK = Block(NodeMask.of([0]), ResourceName("memory"), 512)
TABLE = MemoryTable(total=2048, system_reserved=512, allocatable=1536, reserved=512, free=1024)
MEMORY = MemoryState(
    nodes={
        NodeId(0): NodeMemory(assignments=1, cells=NodeMask.of([0]), tables={ResourceName("memory"): TABLE})
    },
    entries={UID: {"main": (BLOCK,)}},
    pod_entries={UID: (BLOCK,)},
)
V1_CONTAINERS = {"cid-1": (UID, "main"), "cid-2": (UID, "side")}

CPU_V2 = (
    b'{"policyName":"static","defaultCpuSet":"0,5-7","entries":{"uid-1":{"main":"1-2","side":"3-4"}},'
    b'"checksum":37253695}'
)
CPU_V4 = (
    b'{"policyName":"static","defaultCpuSet":"0,5-7","entries":{"uid-1":{"main":"1-2","side":"3-4"}},'
    b'"podEntries":{"uid-1":{"cpuSet":"1-4"}},"checksum":0,"data":"{\\"policyName\\":\\"static\\",'
    b'\\"defaultCpuSet\\":\\"0,5-7\\",\\"entries\\":{\\"uid-1\\":{\\"main\\":\\"1-2\\",\\"side\\":\\"3-4\\"}},'
    b'\\"podEntries\\":{\\"uid-1\\":{\\"cpuSet\\":\\"1-4\\"}}}","dataChecksum":2387227553}'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "(*state.CPUManagerCheckpoint){PolicyName:(string)none DefaultCPUSet:(string) "
            "Entries:(map[string]map[string]string)map[] Checksum:(checksum.Checksum)0}",
            1353318690,
            id="cpu-v2-empty",
        ),
        pytest.param('(string){"policyName":"static","defaultCpuSet":"0-7"}', 3294586087, id="static"),
        pytest.param('(string){"policyName":"none","defaultCpuSet":""}', 3028111495, id="none"),
        pytest.param("", 2166136261, id="nothing"),
    ],
)
def test_fnv1a_matches_the_worked_examples(text: str, expected: int) -> None:
    assert fnv1a_32(text.encode()) == expected


def _checksum(raw: bytes, field: str = "checksum") -> Any:
    return json.loads(raw)[field]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(encode_cpu("none", CpuState(), version=2), 1353318690, id="cpu-v2-empty"),
        pytest.param(encode_cpu("static", CPU, version=2), 37253695, id="cpu-v2"),
        pytest.param(encode_cpu("static", CPU, version=3), 2109255383, id="cpu-v3"),
        pytest.param(encode_cpu("static", CPU), 0, id="cpu-v4"),
        pytest.param(encode_memory("None", MemoryState(), version=1), 4236770233, id="memory-v1-empty"),
        pytest.param(encode_memory("Static", MEMORY, version=1), 1801862584, id="memory-v1"),
        pytest.param(encode_memory("Static", MEMORY), 1801862584, id="memory-v3-inline"),
    ],
)
def test_checksums_match_the_worked_examples(raw: bytes, expected: int) -> None:
    assert _checksum(raw) == expected


def test_a_v1_file_of_an_old_kubelet_is_migrated() -> None:
    raw = b'{"policyName":"none","defaultCpuSet":"0-7","checksum":3347658615}'
    decoded = decode_cpu(raw, gates=ON, v1_containers={})
    assert (decoded.version, decoded.policy, decoded.state) == (
        1,
        "none",
        CpuState(default=CpuSet.parse("0-7")),
    )


def test_data_checksums_match_the_worked_examples() -> None:
    assert _checksum(encode_memory("Static", MEMORY), "dataChecksum") == 3570587268
    assert encode_cpu("static", CPU) == CPU_V4
    assert encode_cpu("static", CPU, version=2) == CPU_V2


def test_a_nil_map_is_hashed_as_nil() -> None:
    raw = b'{"policyName":"none","defaultCpuSet":"","entries":null,"checksum":3278619453}'
    assert decode_cpu(raw, gates=ON).state == CpuState()


def test_a_v3_file_hashed_under_its_own_name_is_accepted() -> None:
    raw = encode_cpu("static", CPU, version=3).replace(b"2109255383", b"3321139246")
    assert decode_cpu(raw, gates=ON).state == CPU


def test_what_v4_writes_is_v2_to_an_older_kubelet_and_loses_the_pod_entries_only() -> None:
    fields = json.loads(encode_cpu("static", CPU))
    old = {name: fields[name] for name in ("policyName", "defaultCpuSet", "entries", "checksum")}
    decoded = decode_cpu(json.dumps(old).encode(), gates=ON)
    assert (decoded.version, decoded.verified) == (2, False)
    assert decoded.state == replace(CPU, pod_entries={})


def test_what_memory_v3_writes_is_a_verified_v1_to_an_older_kubelet() -> None:
    fields = json.loads(encode_memory("Static", MEMORY))
    old = {name: fields[name] for name in ("policyName", "machineState", "entries", "checksum")}
    decoded = decode_memory(json.dumps(old).encode(), gates=ON)
    assert decoded.verified
    assert decoded.state == replace(MEMORY, pod_entries={})


@pytest.mark.parametrize("version", [3, 4])
def test_with_the_gate_off_pod_entries_are_passed_over(version: int) -> None:
    decoded = decode_cpu(encode_cpu("static", CPU, version=version), gates=OFF)
    assert decoded.state == replace(CPU, pod_entries={})
    memory = decode_memory(encode_memory("Static", MEMORY, version=version - 1), gates=OFF)
    assert memory.state == replace(MEMORY, pod_entries={})


def test_v1_is_refused_unless_the_containers_are_known() -> None:
    entries = {"cid-1": CpuSet.parse("1-2"), "cid-2": CpuSet.parse("3-4"), "cid-3": CpuSet.parse("9")}
    raw = encode_cpu_v1("static", CpuSet.parse("0,5-7"), entries)
    with pytest.raises(StateError):
        decode_cpu(raw, gates=ON)
    decoded = decode_cpu(raw, gates=ON, v1_containers=V1_CONTAINERS)
    assert decoded.dropped == ("cid-3",)
    assert decoded.state == replace(CPU, default=CpuSet.parse("0,5-7,9"), pod_entries={})


def test_a_wrong_checksum_is_named_with_the_right_one() -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        decode_cpu(CPU_V2.replace(b"37253695", b"1"), gates=ON)
    assert caught.value.message == "checkpoint is corrupted"
    assert (caught.value.stored, caught.value.computed) == (1, 37253695)
    assert "37253695" in caught.value.hint


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        pytest.param(
            CPU_V4.replace(b"2387227553", b"1"),
            "could not load v4 checkpoint: checkpoint is corrupted",
            id="wrong-data-checksum",
        ),
        pytest.param(
            b'{"data":"","dataChecksum":5}',
            "could not load v4 checkpoint: failed to deserialize cpu manager checkpoint data:"
            " unexpected end of JSON input",
            id="no-data",
        ),
        pytest.param(b"", "unexpected end of JSON input", id="empty-file"),
        pytest.param(
            CPU_V2 + b'}"', "invalid JSON: Extra data: line 1 column 116 (char 115)", id="trailing-bytes"
        ),
        pytest.param(b"[]", "expected a JSON object, found an array", id="array"),
        pytest.param(b"[" * 100_000, "exceeded max depth", id="too-deep"),
        pytest.param(b'{"checksum":NaN}', "invalid JSON: NaN is not JSON", id="nan"),
        pytest.param(
            b'{"checksum":1.5}',
            "field 'checksum': expected an unsigned 64-bit number, found the number 1.5",
            id="fraction",
        ),
        pytest.param(
            b'{"entries":[]}', "field 'entries': expected an object, found an array", id="entries-array"
        ),
        pytest.param(
            b'{"policyName":true}',
            "field 'policyName': expected a string, found a boolean",
            id="policy-boolean",
        ),
        pytest.param(
            b'{"defaultCpuSet":"3-1"}',
            "could not parse default CPU set \"3-1\": range '3-1' runs backwards",
            id="backwards",
        ),
        pytest.param(
            b'{"defaultCpuSet":" 1"}', 'could not parse default CPU set " 1": not a list of CPUs', id="blank"
        ),
        pytest.param(
            b'{"entries":{"u":{"c":"0-7:2/4"}}}',
            'could not parse cpuset "0-7:2/4" for container "c" in pod "u": not a list of CPUs',
            id="stride",
        ),
    ],
)
def test_a_damaged_cpu_file_is_refused_in_clear_words(raw: bytes, message: str) -> None:
    with pytest.raises(StateError) as caught:
        decode_cpu(raw, gates=ON)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        pytest.param(
            '{"x":{}}', "field 'machineState': expected NUMA node numbers as keys, found a string", id="node"
        ),
        pytest.param('{"0":null}', "field 'machineState': expected an object, found null", id="null-node"),
        pytest.param(
            '{"0":{"cells":[true]}}',
            "field 'cells': expected an array of NUMA nodes, found an array",
            id="cell",
        ),
        pytest.param(
            '{"0":{"cells":7}}',
            "field 'cells': expected an array of NUMA nodes, found the number 7",
            id="cells",
        ),
        pytest.param(
            '{"0":{"memoryMap":{"memory":{"total":-1}}}}',
            "field 'total': expected an unsigned 64-bit number, found the number -1",
            id="negative",
        ),
    ],
)
def test_a_damaged_memory_file_is_refused_in_clear_words(machine: str, message: str) -> None:
    with pytest.raises(StateError) as caught:
        decode_memory(f'{{"policyName":"Static","machineState":{machine}}}'.encode(), gates=ON)
    assert caught.value.message == message


def test_blocks_must_be_a_list() -> None:
    with pytest.raises(StateError, match="expected an array, found a string"):
        decode_memory(b'{"entries":{"u":{"c":"x"}}}', gates=ON)


def test_nulls_read_as_nothing() -> None:
    cpu = decode_cpu(b'{"defaultCpuSet":null,"entries":{"u":null},"podEntries":{"u":null}}', gates=ON)
    assert cpu.state == CpuState(entries={PodUid("u"): {}})
    raw = b'{"machineState":{"0":{"memoryMap":null,"cells":null}},"entries":{"u":null,"v":{"c":null}}}'
    memory = decode_memory(raw, gates=ON).state
    assert memory.nodes == {NodeId(0): NodeMemory(assignments=0, cells=NodeMask(), tables={})}
    assert memory.entries == {PodUid("u"): {}, PodUid("v"): {"c": ()}}
    assert decode_memory(b'{"machineState":null,"entries":null}', gates=ON).state == MemoryState()
    assert decode_cpu(b"null", gates=ON).policy == ""


def test_field_names_match_without_regard_to_case_as_in_go() -> None:
    assert decode_cpu(CPU_V2.replace(b"policyName", b"PolicyNAME"), gates=ON).policy == "static"


def test_bytes_that_are_not_utf8_and_lone_surrogates_become_the_replacement_character() -> None:
    raw = b'{"entries":{"a\xff\xc3":{"\\ud800\\u0041\\ud83d\\ude00\\\\ud800":"1"}}}'
    assert decode_cpu(raw, gates=ON).state.entries == {
        PodUid("a\ufffd\ufffd"): {"\ufffdA\U0001f600\\ud800": CpuSet.parse("1")}
    }


def test_strings_are_escaped_as_go_escapes_them() -> None:
    assert quote('a"\\<&>\n\x01\u2028é') == r'"a\"\\\u003c\u0026\u003e\n\u0001\u2028é"'


def test_the_policy_must_be_the_configured_one() -> None:
    decoded = decode_memory(encode_memory("None", MEMORY), gates=ON)
    require_policy(decoded, "None")
    with pytest.raises(StateError) as caught:
        require_policy(decoded, "Static", prefix="[memorymanager] ")
    assert caught.value.message == (
        '[memorymanager] configured policy "Static" differs from state checkpoint policy "None"'
    )


UIDS = st.text('ab0é<&"\\\n\u2028\U0001f600', min_size=1, max_size=4).map(PodUid)
CPU_SETS = st.builds(CpuSet, st.integers(0, (1 << 70) - 1))
NODE_MASKS = st.builds(NodeMask, st.integers(0, (1 << 12) - 1))
SIZES = st.integers(0, (1 << 64) - 1)
TYPES = st.sampled_from([ResourceName(name) for name in ("memory", "hugepages-2Mi", "hugepages-1Gi")])
BLOCKS = st.lists(st.builds(Block, NODE_MASKS, TYPES, SIZES), max_size=3).map(tuple)
CPU_STATES = st.builds(
    CpuState,
    default=CPU_SETS,
    entries=st.dictionaries(UIDS, st.dictionaries(UIDS, CPU_SETS, max_size=3), max_size=4),
    pod_entries=st.dictionaries(UIDS, CPU_SETS, max_size=3),
)
TABLES = st.builds(
    MemoryTable, total=SIZES, system_reserved=SIZES, allocatable=SIZES, reserved=SIZES, free=SIZES
)
NODES = st.builds(
    NodeMemory,
    assignments=st.integers(0, 9),
    cells=NODE_MASKS,
    tables=st.dictionaries(TYPES, TABLES, max_size=2),
)
MEMORY_STATES = st.builds(
    MemoryState,
    nodes=st.dictionaries(st.integers(0, 300).map(NodeId), NODES, max_size=4),
    entries=st.dictionaries(UIDS, st.dictionaries(UIDS, BLOCKS, max_size=3), max_size=3),
    pod_entries=st.dictionaries(UIDS, BLOCKS, max_size=3),
)


@few
@given(state=CPU_STATES, policy=st.text(st.characters(codec="utf-8"), max_size=5), version=st.integers(2, 4))
def test_a_cpu_state_comes_back_as_it_was_written(state: CpuState, policy: str, version: int) -> None:
    decoded = decode_cpu(encode_cpu(policy, state, version=version), gates=ON)
    kept = state if version > 2 or not state.pod_entries else replace(state, pod_entries={})
    assert (decoded.policy, decoded.state) == (policy, kept)


@few
@given(state=MEMORY_STATES, version=st.integers(1, 3))
def test_a_memory_state_comes_back_as_it_was_written(state: MemoryState, version: int) -> None:
    decoded = decode_memory(encode_memory("Static", state, version=version), gates=ON)
    assert decoded.state == (state if version > 1 else replace(state, pod_entries={}))


@settings(few, max_examples=15)
@given(states=st.lists(st.tuples(CPU_STATES, MEMORY_STATES), min_size=2, max_size=4))
def test_what_a_writer_remembers_changes_no_byte(states: list[tuple[CpuState, MemoryState]]) -> None:
    cpu_memo, memory_memo = Memo(), Memo()
    for cpu, memory in [*states, *states]:
        assert encode_cpu("static", cpu, memo=cpu_memo) == encode_cpu("static", cpu)
        assert encode_memory("Static", memory, memo=memory_memo) == encode_memory("Static", memory)


def test_a_pod_that_cannot_be_written_leaves_no_trace_in_what_is_remembered() -> None:
    def render(uid: PodUid, value: str) -> tuple[bytes, bytes]:
        if value == "bad":
            raise ValueError(uid)
        return f"{uid}={value};".encode(), value.encode()

    a, b, c = map(PodUid, "abc")
    memo = Memo()
    assert memo.joined("x", {b: "1"}, render, 2) == (b"b=1;", b"1")
    with pytest.raises(ValueError, match="c"):
        memo.joined("x", {b: "1", a: "2", c: "bad"}, render, 2)
    assert memo.joined("x", {b: "1"}, render, 2) == (b"b=1;", b"1")
    assert memo.joined("x", {c: "3", b: "1", a: "22"}, render, 2) == (b"a=22;b=1;c=3;", b"2213")
    assert memo.joined("x", {c: "3", b: "11", a: "2"}, render, 2) == (b"a=2;b=11;c=3;", b"2113")
    assert memo.joined("x", {c: "4"}, render, 2) == (b"c=4;", b"4")
    assert memo.joined("x", {}, render, 2) == (b"", b"")


UNKNOWN = ' {"a" : [1e400, 1.0, "<\\u00e9>"]}'


def test_unknown_fields_survive_a_rewrite_untouched() -> None:
    data = '{"policyName":"static","defaultCpuSet":"0-7","allocations":' + UNKNOWN + ',"later":null}'
    checksum = fnv1a_32(f"(string){data}".encode())
    raw = f'{{"first":{UNKNOWN},"data":{quote(data)},"dataChecksum":{checksum},"more":[ ]}}'.encode()
    read = decode_cpu(raw, gates=ON)
    assert read.extra == Extra(
        file=(("first", UNKNOWN.strip()), ("more", "[ ]")),
        data=(("allocations", UNKNOWN.strip()), ("later", "null")),
    )
    again = decode_cpu(encode_cpu("static", CPU, extra=read.extra), gates=ON)
    assert again == replace(read, state=CPU)


@few
@given(extra=st.dictionaries(st.sampled_from(["x", "é<", "zz"]), st.sampled_from(["1", '"&"', "{}"])))
def test_unknown_fields_survive_in_every_version(extra: Mapping[str, str]) -> None:
    fields = Extra(file=tuple(extra.items()))
    for version in (2, 3, 4):
        raw = encode_cpu("static", CPU, version=version, extra=fields)
        assert decode_cpu(raw, gates=ON).extra == fields
        memory = encode_memory("Static", MEMORY, version=version - 1, extra=fields)
        assert decode_memory(memory, gates=ON).extra == fields


def _v1(raw: bytes) -> Decoded[CpuState]:
    return decode_cpu(raw, gates=ON, v1_containers=V1_CONTAINERS)


def _cpu(raw: bytes) -> Decoded[CpuState]:
    return decode_cpu(raw, gates=ON)


def _memory(raw: bytes) -> Decoded[MemoryState]:
    return decode_memory(raw, gates=ON)


V1 = encode_cpu_v1(
    "static", CPU.default, {"cid-1": CPU.entries[UID]["main"], "cid-2": CPU.entries[UID]["side"]}
)


@pytest.mark.parametrize(
    ("raw", "decode", "unseen"),
    [
        pytest.param(V1, _v1, 0, id="cpu-v1"),
        pytest.param(CPU_V2, _cpu, 0, id="cpu-v2"),
        pytest.param(encode_cpu("static", CPU, version=3), _cpu, 56, id="cpu-v3"),
        pytest.param(CPU_V4, _cpu, 0, id="cpu-v4"),
        pytest.param(encode_memory("Static", MEMORY, version=1), _memory, 0, id="memory-v1"),
        pytest.param(encode_memory("Static", MEMORY, version=2), _memory, 56, id="memory-v2"),
        pytest.param(encode_memory("Static", MEMORY), _memory, 0, id="memory-v3"),
    ],
)
def test_every_flipped_bit_is_detected_or_changes_nothing(
    raw: bytes,
    decode: Callable[[bytes], Decoded[Any]],
    unseen: int,
    record_property: Callable[[str, object], None],
) -> None:
    """``unseen`` flips hit the checksum's name: the kubelet then reads an older version, without pods."""
    whole = decode(raw)
    detected = changed = 0
    for at in range(len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            try:
                read = decode(bytes(damaged))
            except StateError:
                detected += 1
                continue
            if (read.policy, read.state) != (whole.policy, whole.state):
                assert not read.verified
                assert read.state == replace(whole.state, pod_entries={})
                changed += 1
    assert changed == unseen
    record_property("flipped bits of checkpoints, detected", detected)
    record_property("flipped bits of checkpoints, harmless", 8 * len(raw) - detected - changed)
    record_property("flipped bits of checkpoints, read as an older version without pods", changed)
