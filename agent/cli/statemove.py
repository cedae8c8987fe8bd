"""`numalet state import` and `export`: a node moves from the kubelet to numalet and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from agent.admission import restore
from agent.checkpoint.codec import NO_EXTRA, encode_cpu, encode_memory
from agent.checkpoint.convert import convert_cpu, convert_memory
from agent.checkpoint.podrecord import PodRecord, encode_record
from agent.checkpoint.reading import CpuFile, MemoryFile
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, StateDir, record_name
from agent.cli.common import F, machine_option
from agent.cli.statefiles import Stored, check_free, read_path, read_pods, replace_file
from agent.cli.statehost import Host, chosen_config, findings_within
from agent.config import Config
from agent.containermanager.handover import Stamp, adopted, container_ids, holders
from agent.containermanager.machine import Machine
from agent.containermanager.recovery import without_strangers
from agent.domain.idset import NO_CPUS, union
from agent.domain.pod import PodUid
from agent.domain.settings import Settings
from agent.domain.state import NodeState
from agent.errors import StateError
from agent.explain.english import plural
from agent.explain.words import blocks_text, cpus_text

EXIT_REFUSED: Final = 1

KUBELETS: Final = {"1.37": (4, 3), "1.36": (3, 2), "1.35": (2, 1)}
"""What each kubelet writes: CPU and memory version. 1.36 does so only with PodLevelResourceManagers on."""

Finding = tuple[str, str]


def pods_option(command: F) -> F:
    """``--pods``: whose the uids and container ids are."""
    return click.option(
        "--pods",
        "pods",
        multiple=True,
        type=click.Path(exists=True, path_type=Path),
        help="Manifests with uids (file or directory), or what kubectl get pods -A -o json prints. Repeatable.",
    )(command)


def config_option(command: F) -> F:
    """``--config``: numalet's configuration."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="numalet's configuration [default: /etc/numalet/config.yaml, unless --machine is given].",
    )(command)


def _state_option(command: F) -> F:
    return click.option(
        "--state",
        "state_dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="numalet's state directory [default: the configuration's stateDir].",
    )(command)


@click.command("import")
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The kubelet's directory, usually /var/lib/kubelet; it is only read.",
)
@pods_option
@click.option("--drop-unknown", is_flag=True, help="Release what pods without a manifest hold.")
@_state_option
@config_option
@machine_option
def import_state(
    source: Path,
    pods: tuple[Path, ...],
    drop_unknown: bool,  # noqa: FBT001 - a flag is a bool
    state_dir: Path | None,
    config_file: Path | None,
    machine: Path | None,
) -> None:
    """Take over a kubelet's state: its pods keep exactly their CPUs and memory under numalet.

    Stop the kubelet first; numalet must not run. The kubelet's files name pods by uid alone, so their
    manifests must be given: what kubectl prints while the API server has them (static pods are in it,
    too), or manifests that state the uid. Nothing is written unless everything fits this machine and
    the configuration. If it is interrupted, run it again before numalet starts. Exit status: 0 imported, 1 refused, 2 bad input.

    \b
    kubectl get pods -A -o json --field-selector spec.nodeName=$(hostname) > pods.json
    numalet state import --from /var/lib/kubelet --pods pods.json
    """
    config = chosen_config(config_file, live=machine is None) or Config()
    host = Host.of(machine, config)
    known = read_pods(pods)
    stored = read_path(source, container_ids(known))
    root = state_dir or Path(config.state_dir)
    with _refusing("import"):
        _require_none((*findings_within(stored), *host.findings(stored), *_gate_off(stored, config)))
        left = _kept(stored.state, host.managed, frozenset(known), drop_unknown=drop_unknown)
        stamp = Stamp(_boot_id(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), f"import:{source}")
        kept, records = adopted(left, holders(left, known, host.managed), host.managed, stamp)
        with StateDir(root) as store:
            write_imported(store, stored, kept, records, host.managed.settings)
    for record in records:
        click.echo(f"pod {record.namespace}/{record.name} keeps {_held(kept, record.uid)}")
    for uid in sorted(stored.state.pods() - kept.pods()):
        click.echo(f"pod {uid} is dropped: released {_held(stored.state, uid)}")
    click.echo(f"{root}: {plural(len(records), 'pod')} imported")


def _gate_off(stored: Stored, config: Config) -> Iterator[Finding]:
    state = stored.state
    if config.gates.pod_level_resource_managers:
        return
    for uid in sorted({*state.cpu.pod_entries, *state.memory.pod_entries}):
        text = f"pod {uid} was allocated as one, which needs PodLevelResourceManagers in featureGates"
        yield stored.cpu_name, text


def _kept(state: NodeState, machine: Machine, known: frozenset[PodUid], *, drop_unknown: bool) -> NodeState:
    """The state to go on with; raises StateError naming the pods that nobody knows."""
    unknown = sorted(state.pods() - known)
    if unknown and not drop_unknown:
        raise StateError(
            "\n".join(
                f"no manifest states the uid of pod {uid}, which holds {_held(state, uid)}" for uid in unknown
            ),
            hint="give more manifests with --pods; --drop-unknown releases what these pods hold",
        )
    return without_strangers(machine.managers, restore(machine.managers, state), known)


def write_imported(
    store: StateDir, stored: Stored, kept: NodeState, records: Sequence[PodRecord], settings: Settings
) -> None:
    """Write all or nothing, records last; what an interrupted import of the same left is written over.

    Raises StateError if other pods are there, StorageError.
    """
    if any(map(store.read, (CPU_FILE, MEMORY_FILE))) or store.records().pods:
        there = read_path(store.root)
        holds = there.unread or there.records or there.state.pods()
        if holds and not _is_begun(there, kept, records):
            raise StateError(
                f"{store.root} holds pods already, or files that cannot be read",
                hint="numalet state show says which; import into an empty directory",
            )
    cpu_extra = stored.cpu.extra if stored.cpu else NO_EXTRA
    memory_extra = stored.memory.extra if stored.memory else NO_EXTRA
    new = {
        CPU_FILE: encode_cpu(settings.cpu_policy.value, kept.cpu, extra=cpu_extra),
        MEMORY_FILE: encode_memory(settings.memory_policy.value, kept.memory, extra=memory_extra),
        **{record_name(record.uid): encode_record(record) for record in records},
    }
    try:
        for name, raw in new.items():
            store.write(name, raw)
    except StateError:
        for name in reversed(new):
            with suppress(StateError):
                store.remove(name)
        raise


def _is_begun(there: Stored, kept: NodeState, records: Sequence[PodRecord]) -> bool:
    """Whether an import of the same pods was interrupted here, and no daemon has run since."""
    new = {record.uid: record for record in records}
    return (
        not there.unread
        and len(there.records) < len(records)
        and all(_is_same(record, new.get(record.uid)) for record in there.records)
        and (there.cpu is None or there.cpu.state == kept.cpu)
        and (there.memory is None or there.memory.state == kept.memory)
    )


def _is_same(record: PodRecord, new: PodRecord | None) -> bool:
    """The same import would write the record; only the time differs."""
    return new is not None and replace(record, admitted_at=new.admitted_at, boot_id=new.boot_id) == new


@click.command("export")
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The kubelet's directory, usually /var/lib/kubelet.",
)
@click.option(
    "--kubelet",
    type=click.Choice(list(KUBELETS)),
    default="1.37",
    show_default=True,
    help="Oldest kubelet that is to read the files.",
)
@click.option("--force", is_flag=True, help="Replace the files that are there.")
@_state_option
@config_option
@machine_option
def export_state(
    target: Path,
    kubelet: str,
    force: bool,  # noqa: FBT001 - a flag is a bool
    state_dir: Path | None,
    config_file: Path | None,
    machine: Path | None,
) -> None:
    """Write the state for a kubelet: each pod that it has under the same uid keeps its CPUs and memory.

    numalet and the kubelet must not run. numalet's own records stay where they are. What an older
    kubelet cannot hold is said. Exit status: 0 exported, 1 refused, 2 bad input.

    \b
    numalet state export --to /var/lib/kubelet
    numalet state export --to /tmp/for-1.35 --kubelet 1.35
    """
    config = chosen_config(config_file, live=machine is None) or Config()
    host = Host.of(machine, config)
    root = state_dir or Path(config.state_dir)
    if not root.is_dir():  # opening it for the lock would make it
        raise StateError(f"there is no state directory {root}", hint="--state names another")
    with _refusing("export"):
        with StateDir(root):  # no daemon may change one file while the other is read
            stored = read_path(root)
        _require_none((*findings_within(stored), *host.findings(stored)))
        cpu, memory = _both(stored)
        cpu_version, memory_version = KUBELETS[kubelet]
        as_one = bool(cpu.state.pod_entries or memory.state.pod_entries)
        if kubelet == "1.36" and not as_one:
            cpu_version, memory_version = KUBELETS["1.35"]  # which 1.36 reads with the gate on and off
        new = {
            target / CPU_FILE: convert_cpu(cpu, cpu_version),
            target / MEMORY_FILE: convert_memory(memory, memory_version),
        }
        check_free(new, force=force)
    for path, converted in new.items():
        replace_file(path, converted.raw)
        tell_losses(converted.losses)
        click.echo(f"{path}: written")
    if as_one and kubelet != "1.35":
        click.echo(
            "the kubelet needs featureGates PodLevelResourceManagers: true, or it forgets the pods' own sets"
        )


def _both(stored: Stored) -> tuple[CpuFile, MemoryFile]:
    if stored.cpu is None or stored.memory is None:
        missing = MEMORY_FILE if stored.cpu else CPU_FILE
        raise StateError(f"there is no {missing}", hint="numalet run writes it anew from the pod records")
    return stored.cpu, stored.memory


def tell_losses(losses: Iterable[str]) -> None:
    """Print what a version cannot hold, a line each."""
    for loss in losses:
        click.echo(f"lost: {loss}")


def _held(state: NodeState, uid: PodUid) -> str:
    cpus = union((*state.cpu.entries.get(uid, {}).values(), state.cpu.pod_entries.get(uid, NO_CPUS)))
    own = tuple(block for pod in state.memory.entries.get(uid, {}).values() for block in pod)
    memory = blocks_text(state.memory.pod_entries.get(uid) or own)
    return f"{cpus_text(cpus)}, {memory or 'no memory'}"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _require_none(findings: Sequence[Finding]) -> None:
    if findings:
        raise StateError("\n".join(f"{name}: {text}" for name, text in findings))


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn a StateError, all lines of it, into a refusal: nothing was written."""
    try:
        yield
    except StateError as error:
        for line in error.message.splitlines():
            click.echo(f"numalet: {what} refused: {line}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        raise click.exceptions.Exit(EXIT_REFUSED) from error
