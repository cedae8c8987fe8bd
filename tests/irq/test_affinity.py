"""Where interrupts go while CPUs are exclusive, and the gate to /proc/irq on a file system of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from agent.irq.affinity import DEFAULT, mask_text, wanted
from agent.irq.procirq import ProcIrq


def sets(**texts: str) -> dict[str, CpuSet]:
    return {name.removeprefix("n"): CpuSet.parse(text) for name, text in texts.items()}


@pytest.mark.parametrize(
    ("now", "originals", "allowed", "changes"),
    [
        (sets(n1="0-7"), {}, "0-3", sets(n1="0-3")),
        (sets(n1="2-5"), {}, "0-3", sets(n1="2-3")),
        (sets(n1="5"), {}, "0-3", sets(n1="0-3")),
        (sets(n1="1"), {}, "0-3", {}),
        (sets(n1="0-3"), sets(n1="2-5"), "0-7", sets(n1="2-5")),
        (sets(n1="2-3"), sets(n1="2-5"), "0-4", sets(n1="2-4")),
        (sets(n1="2-5"), sets(n1="2-5"), "0-7", {}),
    ],
    ids=[
        "an interrupt leaves the exclusive CPUs",
        "and keeps its own where any is left",
        "one that has none left goes to all that are free",
        "one that never was there is left alone",
        "one that was moved goes back",
        "as far as it may",
        "and one that is back stays",
    ],
)
def test_steering(
    now: dict[str, CpuSet], originals: dict[str, CpuSet], allowed: str, changes: dict[str, CpuSet]
) -> None:
    assert wanted(now, originals, CpuSet.parse(allowed)) == changes


@pytest.mark.parametrize(
    ("cpus", "text"),
    [
        ("", "00000000"),
        ("0-3", "0000000f"),
        ("4,31-32", "00000001,80000010"),
        ("64", "00000001,00000000,00000000"),
    ],
)
def test_masks_are_words_of_32_cpus_highest_first(cpus: str, text: str) -> None:
    assert mask_text(CpuSet.parse(cpus)) == text
    assert CpuSet.parse_mask(text) == CpuSet.parse(cpus)


def test_the_gate_reads_and_writes_each_interrupt_and_the_default(tmp_path: Path) -> None:
    irqs = tmp_path / "proc/irq"
    for number in ("9", "24"):
        (irqs / number).mkdir(parents=True)
        (irqs / number / "smp_affinity_list").write_text("0-63\n")
    (irqs / "default_smp_affinity").write_text("ffffffff,ffffffff\n")
    gate = ProcIrq(tmp_path)
    everything = CpuSet.parse("0-63")
    assert gate.affinities() == {"9": everything, "24": everything, DEFAULT: everything}
    assert gate.set_affinity("24", CpuSet.parse("0-1"))
    assert gate.set_affinity(DEFAULT, CpuSet.parse("0-1,33"))
    assert gate.set_affinity("77", CpuSet.parse("0"))  # gone meanwhile: nothing to do
    found = gate.affinities()
    assert (found["24"], found[DEFAULT]) == (CpuSet.parse("0-1"), CpuSet.parse("0-1,33"))
    assert not (irqs / "77").exists()


def test_an_interrupt_is_served_where_the_hardware_delivers_it(tmp_path: Path) -> None:
    irq = tmp_path / "proc/irq/24"
    irq.mkdir(parents=True)
    gate = ProcIrq(tmp_path)
    assert gate.serving("24") == CpuSet()
    (irq / "smp_affinity_list").write_text("0-7\n")
    assert gate.serving("24") == CpuSet.parse("0-7")
    (irq / "effective_affinity_list").write_text("3\n")
    assert gate.serving("24") == CpuSet.parse("3")


def test_irqbalance_is_seen_by_its_socket(tmp_path: Path) -> None:
    gate = ProcIrq(tmp_path)
    assert not gate.irqbalance()
    (tmp_path / "run/irqbalance").mkdir(parents=True)
    (tmp_path / "run/irqbalance/irqbalance812.sock").touch()
    assert gate.irqbalance()
