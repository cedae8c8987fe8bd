"""Text to objects: YAML as Kubernetes reads it, JSON, and hostile text."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml

from agent.manifest import MAX_BYTES, ManifestError, decode
from agent.manifest.problem import Problems
from agent.manifest.yamltext import read_yaml


def value(text: str) -> Any:
    (document,) = decode(f"v: {text}".encode(), "x")
    return document["v"]


def problem(text: bytes) -> str:
    with pytest.raises(ManifestError) as caught:
        decode(text, "x")
    return str(caught.value)


SCALARS: list[tuple[str, Any]] = [
    ("", None), ("~", None), ("null", None), ("text", "text"), ("'1'", "1"), ('"true"', "true"),
    ("true", True), ("yes", True), ("on", True), ("y", True), ("no", False), ("Off", False), ("N", False),
    ("1", 1), ("-7", -7), ("+7", 7), ("0", 0), ("0644", 420), ("0o17", 15), ("0x1F", 31), ("0b101", 5),
    ("1_000", 1000), ("08", 8.0), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("5.", 5.0),
    ("1:30", "1:30"), ("2001-01-01", "2001-01-01"), ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
    (".inf", ".inf"), (".nan", ".nan"), ("1e999", "1e999"), ("1.2.3", "1.2.3"), ("1m", "1m"),
    ("!!str 5", "5"), ("!!int 5", 5), ("! 5", "5"), ("!!null x", "x"), ("12345678901234567890", 12345678901234567890.0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SCALARS, ids=repr)
def test_a_scalar_means_what_it_means_to_kubernetes(text: str, expected: Any) -> None:
    read = value(text)
    assert read == expected
    assert isinstance(read, bool) == isinstance(expected, bool)


@pytest.mark.parametrize("text", ["0.1", "0.10", "1e3", "100000000000000000000000", "2.50", "08"])
def test_a_number_keeps_its_text(text: str) -> None:
    (from_json,) = decode(f'{{"v": {text}}}'.encode(), "x") if text != "08" else decode(b"v: 08", "x")
    assert str(value(text)) == str(from_json["v"]) == text
    json.loads(json.dumps(from_json))


def test_documents_lists_and_empty_documents() -> None:
    text = b"""
# a comment is not a document
---
---
a: 1
---
apiVersion: v1
kind: List
items: [{b: 2}, {c: 3}]
...
---
null
"""
    assert decode(text, "x") == ({"a": 1}, {"b": 2}, {"c": 3})


@pytest.mark.parametrize("text", [b"", b"\n", b"---\n", b"# nothing\n", b"\xef\xbb\xbf"])
def test_text_without_a_document_gives_none(text: bytes) -> None:
    assert decode(text, "x") == ()


def test_json_is_read_as_json() -> None:
    assert decode(b'{"a": "\\ud83d\\ude00 \\/", "b": [1, 0.1, null, true]}', "x") == (
        {"a": "\U0001f600 /", "b": [1, 0.1, None, True]},
    )


def test_a_flow_mapping_that_is_not_json_is_yaml() -> None:
    assert decode(b"{a: b, c: [d]}", "x") == ({"a": "b", "c": ["d"]},)


def test_anchors_aliases_and_merge_keys_work() -> None:
    text = b"""
base: &base {image: busybox, tty: true}
scalar: &s text
"key": &k value
one: {<<: *base, tty: false}
two: {tty: 1, <<: [*base, {image: other, extra: *s}]}
quoted: {"<<": 5}
"""
    (document,) = decode(text, "x")
    assert document["one"] == {"image": "busybox", "tty": False}
    assert document["two"] == {"tty": 1, "image": "busybox", "extra": "text"}
    assert document["quoted"] == {"<<": 5}


REFUSED = {
    "two times the key": (b"a: 1\nb:\n  c: 1\n  c: 2\n", 'x: line 4, column 3: key "c" is given twice in one mapping'),
    "two times the key in json": (b'{"a": {"b": 1, "b": 2}}', 'x: $: key "b" is given twice in one object'),
    "null byte": (b"a: \0", "x: $: holds NUL bytes (expected text)"),
    "latin-1": (b"a: \xfc", "x: $: not UTF-8 at byte 3"),
    "control character": (b"a: \x07", "x: $: not YAML: "),
    "too large": (b"#" * (MAX_BYTES + 1), f"x: $: {MAX_BYTES + 1} bytes are too many for a manifest (at most {MAX_BYTES})"),
    "a list": (b"- a\n", "x: $: a list is not an object (expected fields, each with a value)"),
    "second is text": (b"a: 1\n---\nhello\n", 'x: document 2: $: "hello" is not an object'),
    "broken": (b"a: [1\nb: 2\n", "x: line 2, column 2: not YAML: did not find expected ',' or ']'"),
    "broken json": (b'{"a": 1,,}', "x: line 1, column 9: not YAML: "),
    "tab": (b"a:\n\tb: 1\n", "x: line 2, column 1: not YAML: found character that cannot start any token"),
    "python tag": (b"a: !!python/object:os.system x", 'x: line 1, column 4: tag "tag:yaml.org,2002:python/object:os.system" is not for manifests (expected plain values)'),
    "binary tag": (b"a: !!binary aGk=", 'x: line 1, column 4: tag "tag:yaml.org,2002:binary" is not for manifests (expected plain values)'),
    "set tag": (b"a: !!set {b}", 'x: line 1, column 4: tag "tag:yaml.org,2002:set" is not for manifests (expected plain values)'),
    "no anchor": (b"a: *b", "x: line 1, column 4: alias *b has no anchor before it"),
    "alias to itself": (b"a: &a [*a]", "x: line 1, column 8: alias *a has no anchor before it"),
    "anchor of another document": (b"a: &a 1\n---\nb: *a", "x: line 3, column 4: alias *a has no anchor before it"),
    "key is a list": (b"? [a]\n: b", "x: line 1, column 3: a key is a list, a mapping or an alias (expected text)"),
    "key is an alias": (b"a: &a b\n*a : c", "x: line 2, column 1: a key is a list, a mapping or an alias (expected text)"),
    "merge of text": (b"<<: text", "x: line 1, column 5: << merges mappings only"),
    "half a surrogate": (b'{"a": "\\ud800"}', "x: $: holds half a surrogate pair (expected Unicode text)"),
    "list of nothing": (b"apiVersion: v1\nkind: List", "x: $.items: null is not a list"),
    "list of text": (b"apiVersion: v1\nkind: List\nitems: [a]", 'x: $.items[0]: "a" is not an object (expected a Pod)'),
    "list of another version": (b"apiVersion: v2\nkind: List\nitems: []", 'x: $.apiVersion: "v2" is not known (expected "v1")'),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_text_is_refused_with_its_place(text: bytes, expected: str) -> None:
    assert problem(text).startswith(expected)


def test_all_double_keys_are_reported_at_once() -> None:
    assert problem(b"{a: 1, a: 2, b: {c: 1, c: 2}}").count("given twice") == 2


EXPANSION = "x: $: aliases expand it beyond what a manifest may hold"
NESTED = "nested deeper than 100 levels"
TOO_MANY = "too many values for a manifest (more than 100000)"
HOSTILE = {
    "nested flow": (b"{a: " * 100_000, NESTED),
    "nested block": (b"- " * 100_000, NESTED),
    "nested json": (b'{"a":' * 900 + b"1" + b"}" * 900, NESTED),
    "very nested json": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, NESTED),
    "many items": (b"- a\n" * 200_000, TOO_MANY),
    "many documents": (b"---\n" * 200_000, TOO_MANY),
    "many json items": (b'{"a":[' + b"1," * 200_000 + b"1]}", TOO_MANY),
    "billion laughs": (
        b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12)),
        EXPANSION,
    ),
    "one long string many times": (b'a: &a "' + b"x" * 2**20 + b'"\nb: [' + b"*a, " * 100 + b"]", EXPANSION),
    "merged many times": (
        b"a: &a {" + b",".join(b"k%d: 1" % i for i in range(2000)) + b"}\nb:\n" + b"- {<<: *a}\n" * 2000,
        TOO_MANY,
    ),
    "nothing merged many times": (
        b"a: &a {}\nl: &l [" + b"*a, " * 10_000 + b"]\nb: [" + b"{<<: *l}, " * 10_000 + b"]",
        TOO_MANY,
    ),
    "many tag directives": (b"".join(b"%%TAG !e%d! tag:x\n" % i for i in range(100_000)), "more than 100 YAML directives"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused_in_little_time(text: bytes, expected: str) -> None:
    begin = time.process_time()
    assert expected in problem(text)
    assert time.process_time() - begin < 1


def test_without_libyaml_the_pure_loader_reads_the_same() -> None:
    text = b"a: &a [1, 0.10, yes, 'x']\nb: {<<: {c: *a}}\n---\nd: |\n  text\n"
    problems = Problems("x")
    assert read_yaml(text, problems, yaml.SafeLoader) == read_yaml(text, problems)
    assert not problems.found
    assert read_yaml(b'a: "\\UFFFFFFFF"', problems, yaml.SafeLoader) == []
    assert "not YAML" in problems.found[0].text
