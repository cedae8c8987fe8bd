"""Mutates manifests and reads each: ``python -m tests.manifest.fuzz COUNT [SEED]`` (see test_fuzz.py).

The same seed makes the same manifests. Each is either pods whose names stay inside the cgroup root and
the state directory, or a ManifestError; anything else is printed and ends the program. The process may not
grow by more than 100 MB, and SIGALRM ends it, also inside of a library, where one manifest takes minutes.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from agent.cgroup import layout
from agent.checkpoint.store import record_name
from agent.domain.pod import Pod
from agent.domain.qos import qos_class
from agent.domain.settings import Gates
from agent.manifest import ManifestError, decode, load_manifests

SEED: Final = 5526
GROWTH: Final = 100 << 20
HANG_SECONDS: Final = 120
ROOT: Final = Path(__file__).parents[2]
CORPUS: Final = tuple(file.read_bytes() for file in sorted((ROOT / "docs/examples").glob("*.yaml")))
OBJECTS: Final = tuple(decode(text, "example")[0] for text in CORPUS)

HOSTILE: Final[tuple[Any, ...]] = (
    "..", "../../etc/passwd", "/", "a/b", ".", "", " ", "\0", "a\0b", "a\nb", "a\r\n", "-", "_", "a" * 64,
    "a" * 300, "x" * 100_000, "shared.pool", "cgroup.procs", "pod..", "\u2025", "\uff0e\uff0e\uff0f", "\u0430dmin",
    "a\u0301", "\u202etxt.exe", "\ud800", "\U0001f600", "\u0660", "\ufeffa", "\x7f", "\x1b[31m", "%s%n", "$(reboot)",
    "`id`", "'; true #", "{{", "*a", "&a", "!!binary", "<<", "0x7fffffffffffffff", "1e400", "-1", "0", "1e-30",
    "9" * 400, "99999999999999999999Ei", "0.0000000001", "NaN", "Infinity", "1_000", "0777", "1:30", "~", "2001-01-01",
    None, True, False, 0, -1, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, 5e-324, [], {}, [[]], [None], {"": ""},
    {"..": 1}, {"limits": {}}, ["a"] * 500,
)  # fmt: skip
PIECES: Final = (
    b"\0", b"\xff\xfe", b"\xc0\xaf", b"\t", b"\r", b"---\n", b"...\n", b"%YAML 9.9\n", b"%TAG ! x\n", b"&a ", b"*a ",
    b"&a [*a, *a]", b"<<: *a\n", b"!!python/object/apply:os.system [x]", b"? ", b": ", b"- ", b"[" * 200, b"{" * 200,
    b"|\n", b">\n", b"'", b'"', b"#", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"metadata:\n", b"..", b"../",
)  # fmt: skip

Mutation = Callable[[random.Random], bytes]


def flipped(rng: random.Random) -> bytes:
    """A few bytes changed, cut out, doubled, or replaced by something YAML takes for syntax."""
    text = bytearray(rng.choice(CORPUS))
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(text))
        end = at + rng.randint(0, 20)
        piece = rng.choice((bytes([rng.randrange(256)]), b"", bytes(text[at:end]) * 2, rng.choice(PIECES)))
        text[at:end] = piece
    return bytes(text) or b" "


def replaced(rng: random.Random) -> bytes:
    """Values and keys anywhere in the object replaced by hostile ones."""
    value = json.loads(json.dumps(rng.choice(OBJECTS)))
    for _ in range(rng.randint(1, 2)):
        _spoil(value, rng)
    return json.dumps(value).encode()


def named(rng: random.Random) -> bytes:
    """Hostile names: uid, pod, namespace, container, annotation."""
    value = json.loads(json.dumps(rng.choice(OBJECTS)))
    metadata = value["metadata"]
    metadata[rng.choice(("uid", "name", "namespace"))] = _hostile(rng)
    metadata["annotations"] = {str(_hostile(rng)): _hostile(rng)}
    rng.choice(value["spec"]["containers"])["name"] = _hostile(rng)
    return json.dumps(value).encode()


def nested(rng: random.Random) -> bytes:
    """Something deep, in JSON, YAML flow or YAML block."""
    depth = rng.choice((10, 99, 100, 101, 1000, 20_000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"- ", b""), (b"? ", b"")))
    return b'{"spec": ' + opened * depth + b"1" + closed * depth + b"}"


def bomb(rng: random.Random) -> bytes:
    """Aliases and merge keys that multiply."""
    width, levels = rng.randint(2, 10), rng.randint(5, 60)
    lines = [b"a0: &a0 {x: 1}"]
    for level in range(1, levels):
        below = b"*a%d" % (level - 1)
        many = b", ".join([below] * width)
        lines.append(
            b"a%d: &a%d " % (level, level) + rng.choice((b"[%s]", b"{<<: [%s]}", b"{k: [%s]}")) % many
        )
    return b"\n".join(lines)


def large(rng: random.Random) -> bytes:
    """Long texts and many of everything, up to what a file may be."""
    count = rng.choice((1_000, 20_000))
    return rng.choice(
        (
            b"a: " + b"x" * count,
            b"[1, " * count,
            b"- 1\n" * count,
            b"k%d: 1\n" * 50 % tuple(range(50)) * (count // 500),
            b"\n%" * count,
            b'"\\u0000' * count,
        )
    )


MUTATIONS: Final[tuple[tuple[Mutation, int], ...]] = (
    (flipped, 40), (replaced, 35), (named, 20), (nested, 2), (bomb, 2), (large, 1),
)  # fmt: skip


def _hostile(rng: random.Random) -> Any:
    return deepcopy(rng.choice(HOSTILE))


def _spoil(value: Any, rng: random.Random) -> None:
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        below = value[key]
        if isinstance(below, dict | list) and below and rng.random() < 0.8:
            value = below
            continue
        if isinstance(value, dict) and rng.random() < 0.2:
            value[str(_hostile(rng))] = value.pop(key)
        else:
            value[key] = _hostile(rng)
        return


def check_names(pod: Pod) -> None:
    """What an accepted pod is called stays where it belongs."""
    directory = layout.pod_dir(pod.uid, qos_class(pod))
    assert "/" not in record_name(pod.uid).removeprefix("pods/")
    for container in pod.containers:
        for place in (
            layout.container_dir(directory, container.name),
            layout.pooled_dir(directory, container.name),
        ):
            assert place.startswith(f"{directory}/")
            assert not {"..", ".", ""} & set(place.split("/"))
            assert place.isprintable()


def run(count: int, seed: int) -> Counter[str]:
    """Read ``count`` mutated manifests; how many were accepted and refused."""
    rng = random.Random(seed)  # noqa: S311 - the same manifests every time
    mutations, weights = zip(*MUTATIONS, strict=True)
    seen: Counter[str] = Counter()
    for number in range(count):
        (mutation,) = rng.choices(mutations, weights)
        text = mutation(rng)
        signal.alarm(HANG_SECONDS)
        try:
            seen[_read(text)] += 1
        except BaseException:
            sys.stderr.write(f"manifest {number}, {mutation.__name__}: {text[:2000]!r}\n")
            raise
    return seen


def _read(text: bytes) -> str:
    complaint = ""
    pods: tuple[Pod, ...] = ()
    try:
        pods = load_manifests(text, "fuzz.yaml", Gates())
    except ManifestError as error:
        complaint = str(error)
    for pod in pods:
        check_names(pod)
    assert complaint.replace("\n", "").isprintable(), "what is told cannot steer a terminal"
    return "refused" if complaint else "accepted"


def main() -> None:
    """Bound memory, then run."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + GROWTH
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sys.stdout.write(json.dumps(run(int(sys.argv[1]), int((*sys.argv[2:], str(SEED))[0]))) + "\n")


if __name__ == "__main__":
    main()
