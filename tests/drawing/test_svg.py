"""What is in the SVG: valid XML, every CPU with its tooltip, words that fit, nothing that runs."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from agent.domain.topology import NO_NODE, CpuId, Topology
from agent.drawing.palette import DARK, LIGHT, Paint, Theme, stylesheet
from agent.drawing.picture import Holder, Kind, Picture, bare_picture
from agent.drawing.svg import CHARACTER, MOST_PODS, Names, standalone, svg
from tests.drawing.pictures import full_picture
from tests.drawing.test_layout import LARGE, topologies
from tests.sysfs.machines import discovered
from tests.sysfs.synthetic import machine

NS = "{http://www.w3.org/2000/svg}"


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 - our own


def cells(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    found = [group for group in root.iter(f"{NS}g") if "data-cpu" in group.attrib]
    by_cpu = {group.attrib["data-cpu"]: group for group in found}
    assert len(by_cpu) == len(found)
    return by_cpu


def tooltip(group: ElementTree.Element) -> str:
    return group.findtext(f"{NS}title") or ""


@topologies
def test_every_online_cpu_is_there_once_with_a_tooltip(topology: Topology) -> None:
    found = cells(parsed(svg(full_picture(topology))))
    assert {int(cpu) for cpu, group in found.items() if "offline" not in group.attrib["class"]} == set(
        topology.online
    )
    assert all(tooltip(group).startswith(f"CPU {cpu}: ") for cpu, group in found.items())


@topologies
@pytest.mark.parametrize("width", [328, 1040])
def test_words_fit_where_they_stand(topology: Topology, width: int) -> None:
    root = parsed(svg(full_picture(topology), width))
    _, _, across, down = map(int, root.attrib["viewBox"].split())
    for label in root.iter(f"{NS}text"):
        left, right = extent(label)
        assert left >= 0
        assert right <= across
        assert float(label.attrib["y"]) <= down
    for group in cells(root).values():
        tile = group.find(f"{NS}rect")
        assert tile is not None
        left, right = float(tile.attrib["x"]), float(tile.attrib["x"]) + float(tile.attrib["width"])
        for label in group.iter(f"{NS}text"):
            assert left <= extent(label)[0]
            assert extent(label)[1] <= right


def extent(label: ElementTree.Element) -> tuple[float, float]:
    """Where a label begins and ends, with average characters."""
    x, width = float(label.attrib["x"]), len(label.text or "") * int(label.attrib["font-size"]) * CHARACTER
    return {
        "middle": (x - width / 2, x + width / 2),
        "end": (x - width, x),
    }.get(label.attrib.get("text-anchor", ""), (x, x + width))


def test_it_is_one_image_with_a_name_and_a_description() -> None:
    root = parsed(svg(full_picture(machine())))
    assert root.attrib["role"] == "img"
    ids = {element.attrib["id"]: element for element in root.iter() if "id" in element.attrib}
    title, description = (ids[root.attrib[f"aria-{by}"]] for by in ("labelledby", "describedby"))
    assert title.text == "4 CPUs, 2 cores, 1 package, 1 NUMA node, 4.0 GiB"
    assert description.text == (
        "exclusive slice: CPUs 1-2; pod shared pool: CPUs 3; reserved: CPUs 0; A is pod default/a: CPUs 1-3"
    )


def test_the_tooltip_says_whose_a_cpu_is_and_where() -> None:
    found = cells(parsed(svg(full_picture(machine()))))
    assert tooltip(found["1"]) == "CPU 1: exclusive slice of default/a/main (core 0, package 0, NUMA node 0)"
    assert [found[cpu].findtext(f"{NS}text[@class='mark']") for cpu in "0123"] == [None, "A", "A", "a"]


def test_what_a_pod_is_called_is_never_markup() -> None:
    for drawn in (svg(full_picture(LARGE)), standalone(full_picture(LARGE))):
        root = parsed(drawn)
        assert not list(root.iter(f"{NS}script"))
        assert any("<script>" in tooltip(group) for group in cells(root).values())
        assert "\x00" not in drawn
        assert "\x1b" not in drawn


def test_a_drawing_runs_nothing_and_loads_nothing() -> None:
    for element in parsed(standalone(full_picture(machine()))).iter():
        assert element.tag.removeprefix(NS) not in {"script", "image", "use", "foreignObject", "a"}
        assert not {name for name in element.attrib if name.startswith("on") or name.endswith("href")}
    assert "url(" not in stylesheet()
    assert "@import" not in stylesheet()


def test_without_style_of_its_own_it_obeys_a_strict_page() -> None:
    drawn = svg(full_picture(machine()))
    assert "<style" not in drawn
    assert "style=" not in drawn


def test_the_legend_names_a_bounded_number_of_pods() -> None:
    bare = bare_picture(LARGE)
    holders = {cpu: Holder(Kind.EXCLUSIVE, f"default/pod-{cpu:03}", "main") for cpu in bare.holders}
    crowded = Picture(topology=LARGE, holders=holders)
    legend = "".join(parsed(svg(crowded)).itertext())
    assert f"and {512 - MOST_PODS} more pods" in legend
    assert "more pods" not in "".join(parsed(svg(crowded, names=Names.ELSEWHERE)).itertext())
    assert [crowded.letters[f"default/pod-{n:03}"] for n in (0, 25, 26, 511)] == ["A", "Z", "AA", "SR"]


def test_memory_bars_show_what_is_held_and_what_is_reserved() -> None:
    picture = full_picture(machine())
    (node,) = picture.memory
    told = [tooltip(g) for g in parsed(svg(picture)).iter(f"{NS}g") if g.attrib.get("class") == "memory"]
    assert told == [
        "memory: 4.0 GiB, 1.3 GiB held by pods, 410 MiB reserved",
        "hugepages-2Mi: 16 MiB, 5 MiB held by pods, 2 MiB reserved",
    ]
    none_held = tuple(replace(kind, held=0) for kind in picture.memory[node])
    assert none_held[0].words == "memory 4.0 GiB"
    assert picture.memory[node][1].words == "hugepages-2Mi 5 of 16 MiB"


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_words_stand_out_from_what_they_stand_on(theme: Theme) -> None:
    for kind, paint in theme.cpus.items():
        ground = theme.boxes["package"].fill if paint.fill == "none" else paint.fill
        assert contrast(paint.ink, ground) >= 4.5, kind
    for ground in {theme.ground, *(p.fill for p in theme.boxes.values() if p.fill != "none")}:
        assert contrast(theme.ink, ground) >= 7
        assert contrast(theme.quiet, ground) >= 4.5


def test_every_kind_that_is_handed_out_has_a_colour_of_its_own() -> None:
    for theme in (LIGHT, DARK):
        paints: list[Paint] = [theme.cpus[kind] for kind in Kind if kind is not Kind.ONLINE]
        assert len({paint.fill for paint in paints}) == len(paints)


def test_beside_the_colour_there_is_a_letter_or_a_pattern() -> None:
    found = cells(parsed(svg(full_picture(machine(cores=8)))))
    signs: dict[str, set[str]] = {}
    for group in found.values():
        patterns = {r.attrib["fill"] for r in group.iter(f"{NS}rect") if "fill" in r.attrib}
        letters = {
            "letter" if (t.text or "").isupper() else "small letter"
            for t in group.iter(f"{NS}text")
            if t.attrib["class"] == "mark"
        }
        signs[group.attrib["class"]] = patterns | letters
    assert len(signs) == 5
    assert len({frozenset(sign) for sign in signs.values()}) == len(signs)


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast ratio of two #rrggbb colours."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_held_cpu_that_is_on_no_node_is_drawn_too() -> None:
    picture = full_picture(discovered("offline-cpu0-node0"))
    assert picture.topology.by_id[CpuId(6)].node == NO_NODE
    assert picture.mark(CpuId(6)) == picture.letters["default/a"]
    assert "no NUMA node" in svg(picture)
