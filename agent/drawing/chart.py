"""Charts as SVG: bars and lines of percentages, one colour a series in all of them, light and dark.

The colours are Okabe and Ito's; lines differ in their dashes, too, and bars stand in the order of the legend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent.drawing.palette import DARK, LIGHT, Theme
from agent.drawing.picture import fitted
from agent.drawing.svg import CHARACTER, xml_text

COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
DASHES: Final = ("none", "7 3", "2 3", "9 3 2 3")
LEFT, RIGHT, TOP, BOTTOM, PLOT = 56, 16, 40, 44, 170
HEAD: Final = 34
STEPS: Final = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """``values`` by series, in each of them one percentage a group."""

    title: str
    groups: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """``values`` by series: percentages at even distances, the last of them at ``across``."""

    title: str
    unit: str
    across: float
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Panels one below the other, with one legend of the ``series``."""

    title: str
    description: str
    series: tuple[str, ...]
    panels: tuple[Bars | Lines, ...]


def chart_svg(chart: Chart, width: int = 820) -> str:
    """A whole SVG file."""
    legend, top = _legend(chart.series, width, HEAD)
    body: list[str] = []
    for panel in chart.panels:
        body += _panel(panel, width, top)
        top += TOP + PLOT + BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="numalet" role="img" aria-labelledby="numalet-title"'
        f' aria-describedby="numalet-desc" width="{width}" height="{top}" viewBox="0 0 {width} {top}">'
        f'<title id="numalet-title">{xml_text(chart.title)}</title>'
        f'<desc id="numalet-desc">{xml_text(chart.description)}</desc><style>{_style(len(chart.series))}</style>'
        f'<rect class="ground" width="100%" height="100%"/>{_label("heading", LEFT, 22, chart.title, 14)}'
        f"{''.join(legend)}{''.join(body)}</svg>\n"
    )


def _legend(series: Sequence[str], width: int, top: int) -> tuple[list[str], int]:
    pieces: list[str] = []
    x, y = LEFT, top
    for number, name in enumerate(series):
        shown = fitted(name, width - LEFT - 60, 11 * CHARACTER)
        across = 44 + int(len(shown) * 11 * CHARACTER)
        if x > LEFT and x + across > width - RIGHT:
            x, y = LEFT, y + 20
        pieces.append(
            f'<rect class="bar s{number}" x="{x}" y="{y}" width="12" height="12"/>'
            f'<path class="line s{number}" d="M{x + 14} {y + 6}h20"/>{_label("note", x + 38, y + 10, shown, 11)}'
        )
        x += across + 12
    return pieces, y + 20


def _panel(panel: Bars | Lines, width: int, top: int) -> Iterator[str]:
    most = _most(value for series in panel.values for value in series)
    yield _label("heading", LEFT, top + 22, panel.title, 12)
    plot = top + TOP
    for tick in range(5):
        y = plot + PLOT - PLOT * tick / 4
        yield f'<path class="grid" d="M{LEFT} {y:g}H{width - RIGHT}"/>'
        yield _label("note", LEFT - 6, y + 4, f"{most * tick / 4:g} %", 10, "end")
    if isinstance(panel, Bars):
        yield from _bars(panel, width, plot, most)
    else:
        yield from _lines(panel, width, plot, most)


def _bars(panel: Bars, width: int, plot: int, most: float) -> Iterator[str]:
    room = (width - LEFT - RIGHT) / len(panel.groups)
    bar = min(48.0, room * 0.8 / len(panel.values))
    for place, group in enumerate(panel.groups):
        middle = LEFT + room * (place + 0.5)
        yield _label("note", middle, plot + PLOT + 16, fitted(group, room, 11 * CHARACTER), 11, "middle")
        for number, series in enumerate(panel.values):
            height = PLOT * series[place] / most
            x, y = middle + bar * (number - len(panel.values) / 2), plot + PLOT - height
            yield (
                f'<rect class="bar s{number}" x="{x + 1:.1f}" y="{y:.1f}" width="{bar - 2:.1f}"'
                f' height="{height:.1f}"><title>{xml_text(group)}: {series[place]:.1f} %</title></rect>'
            )
            if bar >= 26:
                yield _label("note", x + bar / 2, y - 4, f"{series[place]:.1f}", 10, "middle")


def _lines(panel: Lines, width: int, plot: int, most: float) -> Iterator[str]:
    room = width - LEFT - RIGHT
    step = _step(panel.across / 6)
    for tick in range(int(panel.across / step) + 1):
        x = LEFT + room * tick * step / panel.across
        yield f'<path class="grid" d="M{x:.1f} {plot + PLOT}v4"/>'
        yield _label("note", x, plot + PLOT + 16, f"{tick * step:g}", 10, "middle")
    yield _label("note", LEFT + room / 2, plot + PLOT + 32, panel.unit, 11, "middle")
    for number, series in enumerate(panel.values):
        points = " ".join(
            f"{LEFT + room * (place + 1) / len(series):.1f},{plot + PLOT - PLOT * value / most:.1f}"
            for place, value in enumerate(series)
        )
        yield f'<polyline class="line s{number}" points="{LEFT},{plot + PLOT} {points}"/>'


def _most(values: Iterator[float]) -> float:
    """Where the axis ends: a multiple of four that is easy to read."""
    return min(100.0, 4 * _step(max(max(values, default=0.0), 1.0) / 4))


def _step(least: float) -> float:
    """The next number from ``least`` on that is 1, 2, 2.5 or 5 times a power of ten."""
    power = 1.0
    while power > least:
        power /= 10
    while power * 10 <= least:
        power *= 10
    return next(step * power for step in STEPS if step * power >= least * 0.999999)


def _style(series: int) -> str:
    lines = [
        ".numalet text{font-family:system-ui,sans-serif;font-variant-numeric:tabular-nums}",
        ".numalet .heading{font-weight:600}.numalet .line{fill:none;stroke-width:2}",
    ]
    for number in range(series):
        colour = COLOURS[number % len(COLOURS)]
        dash = DASHES[number % len(DASHES)]
        lines.append(
            f".bar.s{number}{{fill:{colour}}}.line.s{number}{{stroke:{colour};stroke-dasharray:{dash}}}"
        )
    lines.append(_colours(LIGHT))
    lines.append(f"@media (prefers-color-scheme:dark){{{_colours(DARK)}}}")
    return "\n".join(lines)


def _colours(theme: Theme) -> str:
    return (
        f".ground{{fill:{theme.ground}}}.heading{{fill:{theme.ink}}}.note{{fill:{theme.quiet}}}"
        f".grid{{stroke:{theme.boxes['core'].edge};stroke-width:1}}.bar{{stroke:{theme.ink};stroke-width:.75}}"
    )


def _label(name: str, x: float, y: float, words: str, font: int, anchor: str = "start") -> str:
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" font-size="{font}" text-anchor="{anchor}">'
        f"{xml_text(words)}</text>"
    )
