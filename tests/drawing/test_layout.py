"""Where things go, on every recorded machine and on large ones, in pixels and in characters."""

from __future__ import annotations

from itertools import combinations

import pytest

from agent.domain.topology import NO_NODE, CpuId, Topology
from agent.drawing.layout import Box, layout
from agent.drawing.parts import Level, parts
from agent.drawing.picture import bare_picture
from agent.drawing.svg import METRICS
from agent.drawing.text import metrics
from tests.sysfs.machines import NAMES, discovered
from tests.sysfs.synthetic import machine

LARGE = machine(sockets=4, nodes=2, cores=32, threads=2)
MACHINES = {**{name: discovered(name) for name in NAMES}, "512 CPUs": LARGE, "4 CPUs": machine()}
WIDTHS = (328, 1040, 2400)
topologies = pytest.mark.parametrize("topology", MACHINES.values(), ids=MACHINES)


def placed(topology: Topology, width: int) -> Box:
    return layout(parts(bare_picture(topology)), METRICS, width)


@topologies
@pytest.mark.parametrize("width", WIDTHS)
def test_boxes_lie_inside_the_one_around_them_and_apart_from_each_other(
    topology: Topology, width: int
) -> None:
    drawn = (placed(topology, width), layout(parts(bare_picture(topology)), metrics(5), width // 8))
    for outer in (box for machine_box in drawn for box in all_boxes(machine_box)):
        assert all(inside(inner, outer) for inner in outer.boxes)
        assert not any(overlap(one, other) for one, other in combinations(outer.boxes, 2))


@topologies
@pytest.mark.parametrize("width", WIDTHS)
def test_every_cpu_is_drawn_once_in_the_box_of_its_numa_node(topology: Topology, width: int) -> None:
    boxes = list(placed(topology, width).all())
    cells = {int(box.part.title): box for box in boxes if box.part.cpus <= topology.online and is_cpu(box)}
    assert sorted(cells) == list(topology.online)
    assert sum(is_cpu(box) and box.part.cpus <= topology.online for box in boxes) == len(cells)
    for cpu in topology.cpus:
        title = "no NUMA node" if cpu.node == NO_NODE else f"NUMA node {cpu.node}"
        around = [box for box in boxes if box.part.level is Level.NODE and covers(box, cells[cpu.id])]
        assert [box.part.title for box in around] == [title]


@topologies
def test_cores_and_caches_hold_their_cpus_together(topology: Topology) -> None:
    boxes = list(placed(topology, 1040).all())
    cores = {box.part.cpus for box in boxes if box.part.level is Level.CORE}
    assert cores == {cpus for cpus in topology.cores.values() if len(cpus) > 1}
    for box in boxes:
        if box.part.level is Level.CACHE:
            assert len({topology.by_id[cpu].uncore for cpu in ids(box)}) == 1


@topologies
def test_offline_cpus_and_nodes_without_cpus_are_there(topology: Topology) -> None:
    boxes = list(placed(topology, 1040).all())
    offline = {cpu for box in boxes if is_cpu(box) for cpu in box.part.cpus if cpu in topology.offline}
    assert offline == set(topology.offline)
    nodes = {box.part.title.removeprefix("NUMA node ").removesuffix(", no CPUs") for box in boxes}
    assert {str(node.id) for node in topology.nodes} <= nodes


@topologies
def test_a_page_is_wide_enough_for_every_machine_and_a_phone_for_most(topology: Topology) -> None:
    assert placed(topology, 1040).width <= 1040
    assert placed(topology, 328).width <= 328


def test_512_cpus_fit_a_screen_and_a_half() -> None:
    box = placed(LARGE, 1600)
    assert (box.width <= 1600, box.height <= 1400) == (True, True)


def test_a_wider_page_is_a_lower_picture() -> None:
    heights = [placed(LARGE, width).height for width in WIDTHS]
    assert heights == sorted(heights, reverse=True)
    assert len(set(heights)) == len(heights)


def all_boxes(box: Box) -> list[Box]:
    return [box, *(inner for child in box.boxes for inner in all_boxes(child))]


def inside(inner: Box, outer: Box) -> bool:
    across = inner.x >= 0 and inner.x + inner.width <= outer.width
    return across and inner.y >= 0 and inner.y + inner.height <= outer.height


def overlap(one: Box, other: Box) -> bool:
    across = one.x < other.x + other.width and other.x < one.x + one.width
    return across and one.y < other.y + other.height and other.y < one.y + one.height


def covers(outer: Box, inner: Box) -> bool:
    across = outer.x <= inner.x and inner.x + inner.width <= outer.x + outer.width
    return across and outer.y <= inner.y and inner.y + inner.height <= outer.y + outer.height


def is_cpu(box: Box) -> bool:
    return box.part.level is Level.CPU


def ids(box: Box) -> list[CpuId]:
    return [CpuId(cpu) for cpu in box.part.cpus]
