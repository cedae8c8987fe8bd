"""Charts: valid XML with every series and value, names escaped, axes that are easy to read."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from agent.drawing.chart import COLOURS, DASHES, Bars, Chart, Lines, chart_svg

NS = "{http://www.w3.org/2000/svg}"


def drawn(*panels: Bars | Lines, series: tuple[str, ...] = ("one", "<two> & more")) -> ElementTree.Element:
    text = chart_svg(Chart(title="Title", description="Words", series=series, panels=panels))
    return ElementTree.fromstring(text)  # noqa: S314 - our own


def words(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{NS}text")]


def bars(*values: tuple[float, ...]) -> Bars:
    return Bars(title="Bars", groups=("a", "b"), values=values)


def test_every_bar_is_there_as_high_as_its_value() -> None:
    root = drawn(bars((10, 20), (40, 0)))
    found = [one for one in root.iter(f"{NS}rect") if one.find(f"{NS}title") is not None]
    heights = [float(one.attrib["height"]) for one in found]
    assert [one.findtext(f"{NS}title") for one in found] == [
        "a: 10.0 %",
        "a: 40.0 %",
        "b: 20.0 %",
        "b: 0.0 %",
    ]
    assert heights == pytest.approx([heights[1] / 4, heights[1], heights[1] / 2, 0])


def test_a_line_begins_at_nothing_and_has_a_point_a_value() -> None:
    lines = Lines(title="Lines", unit="hours", across=12, values=((10, 50, 25), (1, 2, 3)))
    found = list(drawn(lines).iter(f"{NS}polyline"))
    points = [
        [tuple(map(float, point.split(","))) for point in one.attrib["points"].split()] for one in found
    ]
    assert [len(one) for one in points] == [4, 4]
    first, second, third = (points[0][0][1] - y for _, y in points[0][1:])
    assert (second, third) == pytest.approx((5 * first, 2.5 * first), abs=0.5)  # tenths of a pixel
    assert {"0", "2", "12", "hours"} <= set(words(drawn(lines)))


def test_names_are_escaped_and_told() -> None:
    root = drawn(bars((1, 2), (3, 4)))
    assert {"one", "<two> & more", "Title", "Bars"} <= set(words(root))
    assert root.findtext(f"{NS}desc") == "Words"


@pytest.mark.parametrize(
    ("largest", "top"),
    [(0, "1 %"), (0.7, "1 %"), (7, "8 %"), (9, "10 %"), (38, "40 %"), (81, "100 %"), (100, "100 %")],
)
def test_the_axis_ends_at_an_easy_number(largest: float, top: str) -> None:
    told = [text for text in words(drawn(bars((largest, 0), (0, 0)))) if text.endswith(" %")]
    assert told[4] == top


def test_series_differ_by_more_than_colour() -> None:
    looks = {(COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]) for number in range(12)}
    assert len(looks) == 12


def test_light_and_dark_are_both_there() -> None:
    assert "prefers-color-scheme:dark" in chart_svg(Chart(title="", description="", series=("a",), panels=()))
