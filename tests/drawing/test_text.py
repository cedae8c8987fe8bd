"""The picture in characters."""

from __future__ import annotations

import re
from dataclasses import replace
from textwrap import dedent

from agent.domain.topology import CpuId, Topology
from agent.drawing.picture import bare_picture
from agent.drawing.text import ASCII, text
from tests.drawing.pictures import HOLDERS, full_picture
from tests.drawing.test_layout import topologies
from tests.sysfs.synthetic import machine


def test_a_picture() -> None:
    picture = full_picture(machine(sockets=2, cores=2))
    holders = {CpuId(cpu): HOLDERS[n] for cpu, n in enumerate((0, 4, 1, 1, 3, 3, 4, 7))}
    assert text(replace(picture, holders=holders), 100) == dedent("""\
        8 CPUs, 4 cores, 2 packages, 2 NUMA nodes, 8.0 GiB
        ┌─Package 0──────────────────────────┐ ┌─Package 1──────────────────────────┐
        │ ┌─NUMA node 0────────────────────┐ │ │ ┌─NUMA node 1────────────────────┐ │
        │ │ ███▒░░░░ memory 1.3 of 4.0 GiB │ │ │ │ ███▒░░░░ memory 1.3 of 4.0 GiB │ │
        │ │ █▒░░ hugepages-2Mi 5 of 16 MiB │ │ │ │ █▒░░ hugepages-2Mi 5 of 16 MiB │ │
        │ │ ┌─L3 0-3───────┐               │ │ │ │ ┌─L3 4-7───────┐               │ │
        │ │ │ 0= 1.  2A 3A │               │ │ │ │ │ 4a 5a  6. 7~ │               │ │
        │ │ └──────────────┘               │ │ │ │ └──────────────┘               │ │
        │ └────────────────────────────────┘ │ │ └────────────────────────────────┘ │
        └────────────────────────────────────┘ └────────────────────────────────────┘
        A exclusive slice: 2-3
        a pod shared pool: 4-5
        . node shared pool: 1,6
        = reserved: 0
        ~ isolated: 7
        memory: █ held by pods, ▒ reserved, ░ free
        A default/a  2-5
        """)


@topologies
def test_every_cpu_is_there_once_and_lines_fit_the_terminal(topology: Topology) -> None:
    drawn = text(bare_picture(topology), 100)
    lines = [line for line in drawn.splitlines() if line.startswith(("│", "┌", "└"))]
    assert max(map(len, drawn.splitlines())) <= 100
    cells = re.sub(r"┌[^┐]*┐|[█▒░]+ \S+ [^│]*│", " ", "\n".join(lines))
    numbers = [int(word) for word in re.findall(r"(?<![\d-])\d+(?![\d-])", cells)]
    alone = {int(run) for run in str(topology.offline).split(",") if run.isdigit()}
    assert sorted(set(numbers) - alone) == list(topology.online)
    assert len(numbers) == len(set(numbers))


@topologies
def test_without_unicode_it_is_ascii(topology: Topology) -> None:
    drawn = text(replace(bare_picture(topology)), 80, ASCII)
    assert drawn.isascii()
    assert max(map(len, drawn.splitlines())) <= 80
