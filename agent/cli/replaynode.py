"""`numalet replay --bundle`: the pods of a node, decided again in the order they came."""

from __future__ import annotations

from agent.checkpoint.podrecord import PodRecord, record_of
from agent.cli.recorded import Recorded
from agent.cli.scratch import Scratch, scratch_node
from agent.cli.statefiles import read_path
from agent.containermanager.takeover import pod_of
from agent.errors import NumaletError
from agent.explain.words import blocks_text, cpus_text
from agent.manifest import ManifestError


def replayed(node: Recorded) -> tuple[int, list[str]]:
    """How many pods are decided as they are held, and a line for each. Raises NumaletError."""
    if node.state is None:
        raise NumaletError(f"{node}: holds no state", hint="its MANIFEST.json says why")
    scratch = scratch_node(node.path, node.config, None)
    records = [record for record in read_path(node.state).records if not record.ended_at]
    lines = [_line(scratch, record) for record in sorted(records, key=lambda r: (r.admitted_at, r.uid))]
    return sum(line.startswith("same ") for line in lines), lines


def _line(scratch: Scratch, record: PodRecord) -> str:
    name = f"pod {record.namespace}/{record.name}"
    try:
        pod = pod_of(record)
    except ManifestError as error:
        return f"refused {name}: {error}; held {_held(record)}"
    done = scratch.rehearse(pod, record.source)
    if done.refusal:
        return f"refused {name}: {done.refusal.reason}: {done.refusal.message}; held {_held(record)}"
    stamp = {"boot_id": record.boot_id, "admitted_at": record.admitted_at, "source": record.source}
    now = record_of(pod, done.state, gates=record.gates, **stamp)
    if _holdings(now) == _holdings(record):
        return f"same {name}: {_held(record)}"
    return f"differs {name}: {_held(now)}; held {_held(record)}"


def _holdings(record: PodRecord) -> tuple[object, ...]:
    return record.cpus, record.pod_cpus, record.blocks, record.pod_blocks


def _held(record: PodRecord) -> str:
    blocks = record.pod_blocks or tuple(block for held in record.blocks.values() for block in held)
    return f"{cpus_text(record.held)}, {blocks_text(blocks) or 'no memory'}"
