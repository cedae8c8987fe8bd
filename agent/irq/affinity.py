"""Where interrupts are to go: pure functions of where they went and which CPUs are exclusive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.domain.idset import CpuSet

DEFAULT: Final = "default"
"""Stands for ``default_smp_affinity``, the mask that new interrupts get; the other names are numbers."""

Affinities = Mapping[str, CpuSet]


def steered(original: CpuSet, allowed: CpuSet) -> CpuSet:
    """Where an interrupt goes while only ``allowed`` may serve it: of its own CPUs, if any is left."""
    return original & allowed or allowed


def wanted(now: Affinities, originals: Affinities, allowed: CpuSet) -> Affinities:
    """The interrupts to be changed and what they get.

    One that never touched an exclusive CPU is left alone; one in ``originals`` goes back as far as it may.
    """
    targets = {irq: steered(originals.get(irq, cpus), allowed) for irq, cpus in now.items()}
    moved = {irq for irq, cpus in now.items() if irq in originals or not cpus <= allowed}
    return {irq: targets[irq] for irq in sorted(moved) if targets[irq] != now[irq]}


def mask_text(cpus: CpuSet) -> str:
    """The kernel's mask format: 32-bit hexadecimal words, highest first, joined by commas."""
    bits = cpus.bits
    words = [f"{bits & 0xFFFFFFFF:08x}"]
    while bits := bits >> 32:
        words.append(f"{bits & 0xFFFFFFFF:08x}")
    return ",".join(reversed(words))
