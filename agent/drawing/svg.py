"""A picture as SVG: one image with a title and a description, a tooltip on every CPU and bar."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from agent.domain.topology import CpuId
from agent.drawing.layout import Box, Frame, Metrics, layout
from agent.drawing.palette import css_class, stylesheet
from agent.drawing.parts import Level, parts
from agent.drawing.picture import Kind, Memory, Picture, fitted, size, summary

CHARACTER: Final = 0.62
"""Width of an average character by font size: on the wide side of what sans-serif fonts have."""
METRICS: Final = Metrics(
    frames={
        Level.MACHINE: Frame(gap=12, line_gap=12),
        Level.PACKAGE: Frame(side=9, top=27, bottom=9, gap=9, line_gap=9, least=110),
        Level.NODE: Frame(side=8, top=25, bottom=8, gap=7, line_gap=7, least=176),
        Level.CACHE: Frame(side=6, top=17, bottom=6, gap=4, line_gap=4, least=56),
        Level.CORE: Frame(side=3, top=3, bottom=3, gap=2, line_gap=2),
        Level.ABSENT: Frame(side=9, top=27, bottom=9, gap=4, line_gap=4, least=110),
    },
    cell_width=32,
    cell_height=30,
    character=11 * CHARACTER,
    cell_margin=4,
    memory_line=27,
)
LEAST_WIDTH: Final = 300
MOST_PODS: Final = 60
"""Pods that the legend names; how many more there are, it says."""
_FRAMES: Final = {
    Level.PACKAGE: ("package", 7, 13),
    Level.NODE: ("node", 6, 12),
    Level.CACHE: ("cache", 4, 10),
    Level.CORE: ("core", 4, 0),
    Level.ABSENT: ("absent", 7, 13),
}
"""Class, corner radius and size of the title."""
PATTERNS: Final = {Kind.POD_SHARED: "hatch", Kind.RESERVED: "dots", Kind.ISOLATED: "lines"}
"""The ``numalet-…`` pattern over the colour, for who cannot tell colours apart."""
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DEFINITIONS: Final = (
    '<defs><pattern id="numalet-hatch" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><rect width="2" height="6" fill="#000" opacity=".16"/></pattern>'
    '<pattern id="numalet-dots" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<circle cx="1.5" cy="1.5" r="1.1" fill="#000" opacity=".28"/></pattern>'
    '<pattern id="numalet-lines" width="6" height="5" patternUnits="userSpaceOnUse">'
    '<rect width="6" height="1.5" fill="#000" opacity=".2"/></pattern></defs>'
)


class Names(Enum):
    """Whether the legend tells which letter is which pod."""

    SHOWN = True
    ELSEWHERE = False


def svg(picture: Picture, width: int = 1040, *, names: Names = Names.SHOWN, scale: float = 1) -> str:
    """A drawing within ``width`` pixels where the machine allows it, shown ``scale`` times as large.

    It is styled by `stylesheet`, which is not included.
    """
    drawing = _Drawing(picture)
    machine = layout(parts(picture), METRICS, width)
    across = max(machine.width, min(width, LEAST_WIDTH))
    heading = list(drawing.heading(across))
    top = 18 * len(heading) + 8
    legend, bottom = drawing.legend(across, top + machine.height + 16, names)
    body = (
        _DEFINITIONS,
        *heading,
        *(piece for box in machine.all(0, top) for piece in drawing.box(box)),
        *legend,
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="numalet" role="img"'
        f' aria-labelledby="numalet-title" aria-describedby="numalet-desc" width="{across * scale:g}" height="{bottom * scale:g}"'
        f' viewBox="0 0 {across} {bottom}">'
        f'<title id="numalet-title">{xml_text(summary(picture))}</title>'
        f'<desc id="numalet-desc">{xml_text("; ".join(description(picture)))}</desc>'
        f"{''.join(body)}</svg>"
    )


def standalone(picture: Picture, width: int = 1040) -> str:
    """A whole SVG file: the drawing on its own ground, with its style."""
    drawing = svg(picture, width)
    style = f'<style>{escape(stylesheet())}</style><rect class="ground" width="100%" height="100%"/>'
    inside = drawing.index(_DEFINITIONS)
    margin = 16
    match = re.search(r'width="(\d+)" height="(\d+)" viewBox="0 0 \d+ \d+"', drawing)
    assert match  # noqa: S101 - written above
    across, down = (int(length) + 2 * margin for length in match.groups())
    head = (
        drawing[: match.start()]
        + f'width="{across}" height="{down}" viewBox="0 0 {across} {down}"'
        + drawing[match.end() : inside]
    )
    rest = drawing[inside:].removesuffix("</svg>")
    return f'{head}{style}<g transform="translate({margin} {margin})">{rest}</g></svg>\n'


def description(picture: Picture) -> Iterator[str]:
    """Who holds which CPUs, in words."""
    for kind, cpus in picture.kinds.items():
        yield f"{kind.value}: CPUs {cpus}"
    for pod, letter in picture.letters.items():
        yield f"{letter} is pod {pod}: CPUs {picture.pod_cpus(pod)}"


class _Drawing:
    def __init__(self, picture: Picture) -> None:
        self.picture = picture

    def heading(self, width: int) -> Iterator[str]:
        lines = textwrap.wrap(summary(self.picture), max(10, int(width / (13 * CHARACTER))))
        for number, line in enumerate(lines):
            yield _label("heading", 0, 13 + 18 * number, line, 13, bold=True)

    def box(self, box: Box) -> Iterator[str]:
        part = box.part
        if part.level is Level.CPU:
            yield self._cell(box)
        elif part.level in _FRAMES:
            name, radius, font = _FRAMES[part.level]
            yield (
                f'<rect class="{name}" x="{box.x + 0.5}" y="{box.y + 0.5}" width="{box.width - 1}"'
                f' height="{box.height - 1}" rx="{radius}"><title>{xml_text(part.title)}: CPUs {part.cpus or "none"}'
                f"</title></rect>"
            )
            if font:
                yield self._title(box, font)
            for number, memory in enumerate(part.memory):
                yield self._memory(box, number, memory)

    def _title(self, box: Box, font: int) -> str:
        """The title on the left and, where there is room for them, the CPUs on the right."""
        frame = METRICS.frames[box.part.level]
        room = box.width - 2 * frame.side
        if box.part.level is Level.CACHE:
            words = box.part.title if len(box.part.title) * font * CHARACTER <= room else "L3"
            return _label("note", box.x + frame.side, box.y + 12, words, font)
        words = fitted(box.part.title, room, font * CHARACTER)
        title = _label("heading", box.x + frame.side, box.y + frame.top - 8, words, font, bold=True)
        note = f"CPUs {box.part.cpus}" if box.part.cpus else ""
        if len(note) * 11 * CHARACTER > room - len(words) * font * CHARACTER - 8:
            return title
        right = box.x + box.width - frame.side
        return title + _label("note", right, box.y + frame.top - 8, note, 11, anchor="end")

    def _memory(self, box: Box, number: int, memory: Memory) -> str:
        frame = METRICS.frames[box.part.level]
        x, width = box.x + frame.side, box.width - 2 * frame.side
        y = box.y + frame.top + number * METRICS.memory_line
        told = f"{memory.type}: {size(memory.total)}, {size(memory.held)} held by pods, {size(memory.reserved)} reserved"
        held = _share(memory.held, memory.total, width)
        reserved = _share(memory.reserved, memory.total, width - held)
        free = width - held - reserved
        kind = Kind.NODE_SHARED if Kind.NODE_SHARED in self.picture.kinds else Kind.ONLINE
        bars = (
            _bar(Kind.EXCLUSIVE, x, y + 11, held),
            _bar(Kind.RESERVED, x + held, y + 11, reserved),
            _bar(kind, x + held + reserved, y + 11, free),
        )
        label = _label("note", x, y + 7, fitted(memory.words, width, 10 * CHARACTER), 10)
        return f'<g class="memory"><title>{xml_text(told)}</title>{label}{"".join(bars)}</g>'

    def _cell(self, box: Box) -> str:
        part = box.part
        cpu = CpuId(min(part.cpus))
        holder = self.picture.holders.get(cpu)
        kind = holder.kind if holder else Kind.OFFLINE
        mark = self.picture.mark(cpu) if holder else ""
        where = self.picture.topology.by_id.get(cpu)
        told = f"CPU {part.title}: {holder or kind.value}"
        if where:
            told += f" (core {where.core}, package {where.socket}, NUMA node {where.node})"
        pod = f" data-pod={quoteattr(_legal(holder.pod))}" if holder and holder.pod else ""
        middle = box.x + box.width / 2
        marked = _label("mark", middle, box.y + 25, mark, 11, bold=True, anchor="middle") if mark else ""
        number = _label("id", middle, box.y + (13 if mark else 19), part.title, 11, anchor="middle")
        return (
            f'<g class="cpu {css_class(kind)}" data-cpu="{part.title}"{pod}><title>{xml_text(told)}</title>'
            f"{_tile(kind, box.x, box.y, box.width, box.height)}{number}{marked}</g>"
        )

    def legend(self, width: int, top: int, names: Names) -> tuple[list[str], int]:
        """What colours and letters mean, and where it ends."""
        kinds = [(kind, "", f"{kind.value} {len(cpus)}") for kind, cpus in self.picture.kinds.items()]
        lines, y = _flow(kinds, width, top)
        if names is Names.ELSEWHERE or not self.picture.letters:
            return lines, y
        pods = list(self.picture.letters.items())
        named = [
            (Kind.EXCLUSIVE, letter, f"{pod}  {self.picture.pod_cpus(pod)}")
            for pod, letter in pods[:MOST_PODS]
        ]
        more, y = _flow(named, width, y + 6)
        if len(pods) > MOST_PODS:
            more.append(_label("note", 0, y + 10, f"and {len(pods) - MOST_PODS} more pods", 11))
            y += 18
        return [*lines, *more], y


def _flow(entries: Iterable[tuple[Kind, str, str]], width: int, top: int) -> tuple[list[str], int]:
    """Swatches with words, in lines; returns where the last line ends."""
    pieces: list[str] = []
    x, y = 0, top
    for kind, mark, words in entries:
        shown = fitted(words, width - 30, 11 * CHARACTER)
        across = 30 + int(len(shown) * 11 * CHARACTER)
        if x and x + across > width:
            x, y = 0, y + 24
        letter = _label("mark", x + 12, y + 13, mark, 10, bold=True, anchor="middle") if mark else ""
        pieces.append(
            f'<g class="{css_class(kind)}">{_tile(kind, x, y, 24, 18)}{letter}</g>'
            + _label("heading", x + 30, y + 13, shown, 11)
        )
        x += across + 18
    return pieces, y + 24


def _tile(kind: Kind, x: float, y: float, width: float, height: float) -> str:
    place = f'x="{x + 0.5}" y="{y + 0.5}" width="{width - 1}" height="{height - 1}" rx="3"'
    pattern = PATTERNS.get(kind)
    over = f'<rect {place} fill="url(#numalet-{pattern})"/>' if pattern else ""
    return f'<rect class="cell" {place}/>{over}'


def _bar(kind: Kind, x: int, y: int, width: int) -> str:
    place = f'x="{x + 0.5}" y="{y + 0.5}" width="{width - 1}" height="8"'
    return f'<g class="{css_class(kind)}"><rect class="cell" {place}/></g>' if width > 1 else ""


def _share(amount: int, total: int, width: int) -> int:
    """The pixels that show ``amount``: what is not nothing is seen."""
    return min(width, max(3, round(width * amount / total))) if amount and total else 0


def _label(  # noqa: PLR0913 - what SVG's text takes
    name: str, x: float, y: float, words: str, font: int, *, bold: bool = False, anchor: str = ""
) -> str:
    weight = ' font-weight="600"' if bold else ""
    where = f' text-anchor="{anchor}"' if anchor else ""
    return (
        f'<text class="{name}" x="{x:g}" y="{y:g}" font-size="{font}"{weight}{where}>{xml_text(words)}</text>'
    )


def xml_text(words: str) -> str:
    """``words`` as XML text, without what no XML document may contain."""
    return escape(_legal(words))


def _legal(words: str) -> str:
    """``words`` without what no XML document may contain."""
    return _ILLEGAL.sub("�", words)
