"""A picture as characters: the same boxes, with lines of Unicode or of plain ASCII."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from agent.domain.topology import CpuId
from agent.drawing.layout import Box, Frame, Metrics, layout
from agent.drawing.parts import Level, Part, parts
from agent.drawing.picture import Kind, Memory, Picture, fitted, summary

_MARKS: Final = {Kind.NODE_SHARED: ".", Kind.RESERVED: "=", Kind.ISOLATED: "~"}
"""The mark behind the number of a CPU that no pod holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """What boxes and bars are made of."""

    top: str
    bottom: str
    level: str
    upright: str
    held: str
    reserved: str
    free: str
    cut: str


UNICODE: Final = Glyphs(
    top="┌┐", bottom="└┘", level="─", upright="│", held="█", reserved="▒", free="░", cut="…"
)
ASCII: Final = Glyphs(
    top="++", bottom="++", level="-", upright="|", held="#", reserved="=", free=".", cut="~"
)


def text(picture: Picture, width: int = 100, glyphs: Glyphs = UNICODE) -> str:
    """A drawing within ``width`` columns where the machine allows it, and its legend; ends in a newline."""
    marks = {cpu: _mark(picture, cpu) for cpu in picture.holders}
    cell = max((len(f"{cpu}{mark}") for cpu, mark in marks.items()), default=1)
    machine = layout(parts(picture), metrics(cell), width)
    canvas = _Canvas(machine.width, machine.height, glyphs)
    for box in machine.all():
        canvas.draw(box, _words(box.part, marks))
    lines = (
        *textwrap.wrap(summary(picture), width),
        *canvas.lines(),
        *_legend(picture, width, glyphs),
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def metrics(cell: int) -> Metrics:
    """Lengths in characters, a CPU being ``cell`` wide."""
    around = Frame(side=2, top=1, bottom=1, gap=1, least=14)
    cores = replace(around, gap=2)
    return Metrics(
        frames={
            Level.MACHINE: Frame(gap=1),
            Level.PACKAGE: around,
            Level.NODE: replace(cores, least=34),
            Level.CACHE: cores,
            Level.CORE: Frame(gap=1),
            Level.ABSENT: cores,
        },
        cell_width=cell,
        cell_height=1,
        character=1,
        cell_margin=0,
        memory_line=1,
    )


def _mark(picture: Picture, cpu: CpuId) -> str:
    return picture.mark(cpu) or _MARKS.get(picture.holders[cpu].kind, "")


def _words(part: Part, marks: dict[CpuId, str]) -> str:
    if part.level is not Level.CPU:
        return part.title
    return part.title + marks.get(CpuId(min(part.cpus)), "")


class _Canvas:
    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self.glyphs = glyphs
        self.rows = [[" "] * width for _ in range(height)]

    def lines(self) -> Iterator[str]:
        return ("".join(row) for row in self.rows)

    def draw(self, box: Box, words: str) -> None:
        if box.part.level is Level.CPU:
            self._put(box.x, box.y, words.rjust(box.width))
        elif box.part.level not in {Level.MACHINE, Level.CORE}:
            self._frame(box, words)
            for number, memory in enumerate(box.part.memory):
                self._put(box.x + 2, box.y + 1 + number, self._bar(memory, box.width - 4))

    def _frame(self, box: Box, words: str) -> None:
        glyphs, inner = self.glyphs, box.width - 2
        head = f"{glyphs.level}{self._fitted(words, inner - 2)}".ljust(inner, glyphs.level)
        self._put(box.x, box.y, glyphs.top[0] + head + glyphs.top[1])
        foot = glyphs.level * inner
        self._put(box.x, box.y + box.height - 1, glyphs.bottom[0] + foot + glyphs.bottom[1])
        for y in range(box.y + 1, box.y + box.height - 1):
            self._put(box.x, y, glyphs.upright)
            self._put(box.x + box.width - 1, y, glyphs.upright)

    def _bar(self, memory: Memory, width: int) -> str:
        words = " " + self._fitted(memory.words, width - 5)
        room = max(4, min(20, width - len(words)))
        held = _share(memory.held, memory.total, room)
        reserved = min(room - held, _share(memory.reserved, memory.total, room))
        glyphs = self.glyphs
        return (
            glyphs.held * held + glyphs.reserved * reserved + glyphs.free * (room - held - reserved) + words
        )

    def _fitted(self, words: str, width: int) -> str:
        return fitted(words, width, 1).replace("…", self.glyphs.cut)

    def _put(self, x: int, y: int, words: str) -> None:
        self.rows[y][x : x + len(words)] = words


def _share(amount: int, total: int, width: int) -> int:
    return min(width, max(1, round(width * amount / total))) if amount and total else 0


def _legend(picture: Picture, width: int, glyphs: Glyphs) -> Iterator[str]:
    signs = {Kind.EXCLUSIVE: "A ", Kind.POD_SHARED: "a ", **{k: f"{m} " for k, m in _MARKS.items()}}
    told = (f"{signs.get(kind, '')}{kind.value}: {cpus}" for kind, cpus in picture.kinds.items())
    for line in told:
        yield from textwrap.wrap(line, width, subsequent_indent="    ", break_on_hyphens=False)
    if any(memory.held or memory.reserved for kinds in picture.memory.values() for memory in kinds):
        yield f"memory: {glyphs.held} held by pods, {glyphs.reserved} reserved, {glyphs.free} free"
    for pod, letter in picture.letters.items():
        yield f"{letter} {pod}  {picture.pod_cpus(pod)}"
