"""Manual pages from the commands themselves: what --help says, in man(7).

A page per command, ``numalet-state-show.1`` for a command of a command. The same commands give the same
bytes: pages carry a version, no date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from agent import __version__
from agent.cli.app import numalet

_ENVIRONMENT = {
    "NUMALET_SOCKET": "The control socket of the daemon, where \\-\\-socket names none.",
    "NO_COLOR": "Not empty: no colours on a terminal.",
    "NUMALET_DEBUG": "Not empty: an internal error shows where it happened.",
}
_FILES = {
    "/etc/numalet/config.yaml": "The configuration.",
    "/run/numalet/control.sock": "The control socket.",
    "/var/lib/numalet": "State: cpu_manager_state, memory_manager_state, pods/.",
}


def contexts(
    command: click.Command = numalet, parent: click.Context | None = None
) -> Iterator[click.Context]:
    """A context for the command and, depth first, for every command of it."""
    name = "numalet" if parent is None else command.name
    context = click.Context(command, parent, info_name=name, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None  # noqa: S101 - it was listed
            yield from contexts(below, context)


def page_name(context: click.Context) -> str:
    """``numalet-state-show`` for ``numalet state show``."""
    return context.command_path.replace(" ", "-")


def page(context: click.Context) -> str:
    """The whole page in man(7)."""
    name, command = page_name(context), context.command
    title, *paragraphs = _paragraphs(command)
    lines = [
        f'.TH {_escaped(name.upper())} 1 "" "numalet {__version__}" "User Commands"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(re.split('[:;]', _one_line(title))[0])}",
        ".SH SYNOPSIS",
        f".B {_escaped(context.command_path)}",
        _escaped(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_description(title, [text for text in paragraphs if not _is_example(text)]),
        *_commands(context),
        *_options(context),
        *_examples([text for text in paragraphs if _is_example(text)]),
    ]
    if context.parent is None:
        lines += [*_terms("ENVIRONMENT", _ENVIRONMENT), *_terms("FILES", _FILES)]
    lines += [".SH EXIT STATUS", *_exit_status(), *_see_also(context)]
    return "\n".join(lines) + "\n"


def _paragraphs(command: click.Command) -> list[str]:
    text = (command.help or "").replace("\r", "")
    return [part for part in re.split(r"\n\s*\n", text.strip()) if part.strip()]


def _is_example(paragraph: str) -> bool:
    """click keeps the lines of a paragraph that begins with \\b: they are examples."""
    return paragraph.lstrip().startswith("\b")


def _one_line(text: str) -> str:
    return " ".join(text.split()).split(". ")[0].rstrip(".")


def _description(title: str, paragraphs: list[str]) -> Iterator[str]:
    for text in (title, *paragraphs):
        yield ".PP"
        yield _escaped(" ".join(text.split()))


def _examples(paragraphs: list[str]) -> Iterator[str]:
    for text in paragraphs:
        yield from (".SH EXAMPLES", ".nf")
        yield from (_escaped(line.strip()) for line in text.replace("\b", "").strip().split("\n"))
        yield ".fi"


def _commands(context: click.Context) -> Iterator[str]:
    command = context.command
    if not isinstance(command, click.Group):
        return
    yield ".SH COMMANDS"
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None  # noqa: S101 - it was listed
        yield from (".TP", f".BR {_escaped(page_name(context))}\\-{_escaped(name)} (1)")
        yield _escaped(_one_line(_paragraphs(below)[0]) + ".")


def _options(context: click.Context) -> Iterator[str]:
    records = (parameter.get_help_record(context) for parameter in context.command.get_params(context))
    yield ".SH OPTIONS"
    for flags, text in filter(None, records):
        if not text:  # an argument: the synopsis shows it
            continue
        yield from (".TP", f".B {_escaped(flags)}", _escaped(" ".join(text.split())))


def _terms(title: str, terms: dict[str, str]) -> Iterator[str]:
    yield f".SH {title}"
    for term, text in terms.items():
        yield from (".TP", f".B {_escaped(term)}", text)


def _exit_status() -> Iterator[str]:
    told = (numalet.epilog or "").removeprefix("Exit status: ").rstrip(".")
    for status in told.split(", "):
        number, _, meaning = status.partition(" ")
        yield from (".TP", f".B {number}", _escaped(meaning[:1].upper() + meaning[1:] + "."))


def _see_also(context: click.Context) -> Iterator[str]:
    if context.parent is not None:
        yield from (".SH SEE ALSO", f".BR {_escaped(page_name(context.parent))} (1)")


def _escaped(text: str) -> str:
    """Text that roff takes as it is: no hyphen turned into a dash, no line taken for a request."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    safe = safe.replace('"', "\\(dq").replace("~", "\\(ti").replace("^", "\\(ha")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe


def write_pages(directory: Path) -> Iterator[Path]:
    """Write every page into the directory, which is made if it is missing; the files, as they are written."""
    directory.mkdir(parents=True, exist_ok=True)
    for context in contexts():
        path = directory / f"{page_name(context)}.1"
        path.write_text(page(context), "utf-8")
        yield path


def main() -> None:
    """Write every page into the directory named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: scripts/gen-man DIRECTORY")
    for _ in write_pages(Path(sys.argv[1])):
        pass


if __name__ == "__main__":
    main()
