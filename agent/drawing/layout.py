"""Where each part goes: rows of boxes inside boxes, as low as the width allows.

Every box is tried with several shapes, from tall to wide; the lowest picture that fits the width wins.
Lengths are whole units of whoever draws: pixels or characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from agent.drawing.parts import Level, Part

_SHAPES: Final = (0.4, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 9.0, 1e9)
"""Width by height that inner boxes come close to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The space a box keeps around its children, and between them; ``least`` is its least width."""

    side: int = 0
    top: int = 0
    bottom: int = 0
    gap: int = 0
    line_gap: int = 0
    least: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Lengths: the frame of each level, the least CPU cell, its text and what is around it, a line of memory."""

    frames: Mapping[Level, Frame]
    cell_width: int
    cell_height: int
    character: float
    cell_margin: int
    memory_line: int


@dataclass(frozen=True, slots=True)
class Box:
    """A part's place, its origin relative to the box it is in."""

    part: Part
    x: int
    y: int
    width: int
    height: int
    boxes: tuple[Box, ...] = ()

    def all(self, x: int = 0, y: int = 0) -> Iterator[Box]:
        """This box and all in it, outer ones first, in the coordinates of the whole."""
        x, y = x + self.x, y + self.y
        yield Box(self.part, x, y, self.width, self.height)
        for box in self.boxes:
            yield from box.all(x, y)


def layout(part: Part, metrics: Metrics, width: int) -> Box:
    """Place everything within ``width``, or in as little more as it takes."""
    tries = (_Layout(metrics, shape).placed(part, width) for shape in _SHAPES)
    return min(tries, key=lambda box: (max(width, box.width), box.height, box.width))


class _Layout:
    def __init__(self, metrics: Metrics, shape: float) -> None:
        self.metrics = metrics
        self.shape = shape
        self._counts: dict[tuple[object, ...], int] = {}

    def placed(self, part: Part, width: int) -> Box:
        if part.level is Level.CPU:
            return self._cell(part)
        frame = self.metrics.frames[part.level]
        top = frame.top + self.metrics.memory_line * len(part.memory)
        inner = [self.placed(child, width - 2 * frame.side) for child in part.children]
        # The machine itself is as wide as it may be.
        shape = 1e9 if part.level is Level.MACHINE else self.shape
        rows = self._rows(inner, frame, width - 2 * frame.side, shape)
        boxes = []
        y = top
        for row in rows:
            x = frame.side
            for box in row:
                boxes.append(Box(box.part, x, y, box.width, box.height, box.boxes))
                x += box.width + frame.gap
            y += max(box.height for box in row) + frame.line_gap
        bottom = y - frame.line_gap if rows else top
        across = max((box.x + box.width for box in boxes), default=frame.side) + frame.side
        return Box(part, 0, 0, max(across, frame.least), bottom + frame.bottom, tuple(boxes))

    def _rows(self, boxes: Sequence[Box], frame: Frame, width: int, shape: float) -> list[Sequence[Box]]:
        """The boxes in their best rows; boxes of the same sizes are many, and looked at once."""
        if not boxes:
            return []
        sizes = (frame, width, shape, *((box.width, box.height) for box in boxes))
        if sizes not in self._counts:
            self._counts[sizes] = len(_best(boxes, frame, width, shape)[0])
        return _in_rows(boxes, self._counts[sizes])

    def _cell(self, part: Part) -> Box:
        width = max(
            self.metrics.cell_width, ceil(self.metrics.character * len(part.title)) + self.metrics.cell_margin
        )
        return Box(part, 0, 0, width, self.metrics.cell_height)


def _best(boxes: Sequence[Box], frame: Frame, width: int, shape: float) -> list[Sequence[Box]]:
    """The boxes in rows of equal number, no wider than ``width`` if possible, nearest to ``shape``."""
    counts = sorted({-(-len(boxes) // rows) for rows in range(1, len(boxes) + 1)}, reverse=True)
    ways = [_in_rows(boxes, count) for count in counts]
    fitting = [way for way in ways if _width(way, frame) <= width] or ways[-1:]
    return min(fitting, key=lambda way: _oddness(way, _width(way, frame) / _height(way, frame) / shape))


def _in_rows(boxes: Sequence[Box], count: int) -> list[Sequence[Box]]:
    return [boxes[i : i + count] for i in range(0, len(boxes), count)]


def _oddness(rows: Sequence[Sequence[Box]], ratio: float) -> float:
    """How far the rows are from the shape, and from filling their last line."""
    holes = len(rows[0]) - len(rows[-1])
    return max(ratio, 1 / ratio) * (1 + holes / (len(rows) * len(rows[0])))


def _width(rows: Sequence[Sequence[Box]], frame: Frame) -> int:
    return max(sum(box.width for box in row) + frame.gap * (len(row) - 1) for row in rows)


def _height(rows: Sequence[Sequence[Box]], frame: Frame) -> int:
    return sum(max(box.height for box in row) for row in rows) + frame.line_gap * (len(rows) - 1)
