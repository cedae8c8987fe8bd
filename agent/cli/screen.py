"""A terminal that is drawn over in place, and a key that ends it. Plain ANSI; no state is left behind."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from contextlib import ExitStack
from typing import Final, Self

import click

from agent.cli.look import titled

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, without a cursor; xterm's control sequences, which all terminals know."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_TO_END_OF_LINE: Final = "\x1b[K"
_TO_END_OF_SCREEN: Final = "\x1b[J"
_ENDS: Final = (b"q", b"Q", b"")
"""The keys; nothing is read where the terminal is gone."""


class Screen:
    """Draws over what it drew before; where it is not ``active`` it prints one text after the other."""

    def __init__(self, *, active: bool) -> None:
        self.active = active
        self._keys = active and sys.stdin.isatty()
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        if self._keys:
            before = termios.tcgetattr(sys.stdin)
            self._undo.callback(termios.tcsetattr, sys.stdin, termios.TCSADRAIN, before)
            tty.setcbreak(sys.stdin)
        if self.active:
            self._undo.callback(self._control, _LEAVE)
            self._control(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def draw(self, heading: str, text: str) -> None:
        """Show a heading and lines, cut to what fits."""
        if not self.active:
            click.echo(text)
            return
        columns, rows = shutil.get_terminal_size()
        lines = [line[:columns] for line in text.split("\n")[: rows - 2]]
        shown = [titled(heading[:columns]), *lines]
        self._control(_HOME)
        for line in shown:
            click.echo(line, nl=False)
            self._control(_TO_END_OF_LINE + "\n")
        self._control(_TO_END_OF_SCREEN)

    def wait(self, seconds: float) -> bool:
        """Wait; tell whether a key asked for the end meanwhile."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not self._keys:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 1) in _ENDS:
                return True
        return False

    @staticmethod
    def _control(sequence: str) -> None:
        sys.stdout.write(sequence)
        sys.stdout.flush()
