"""The manual pages: one for every command, without a complaint of groff's, and readable."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click
import pytest

from scripts.man import contexts, page, page_name

ROOT = Path(__file__).parents[1]
PAGES = {page_name(context): context for context in contexts()}


def rendered(text: str) -> str:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-c", "-P-b", "-P-u"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_warnings_and_holds_every_option_and_example(name: str) -> None:
    context = PAGES[name]
    shown = rendered(page(context))
    words = " ".join(shown.split())
    options = (option for param in context.command.params for option in (*param.opts, *param.secondary_opts))
    for option in options:
        assert option in words or not option.startswith("-"), option
    examples = [line.strip() for line in (context.command.help or "").split("\n") if "numalet " in line]
    assert examples
    for example in (e for e in examples if e.startswith("numalet ")):
        assert " ".join(example.split()) in words


def test_a_page_says_what_the_command_says() -> None:
    shown = rendered(page(PAGES["numalet-get"]))
    assert shown.startswith("NUMALET-GET(1)")
    assert "numalet get [OPTIONS] {pods|cpus|nodes|status}" in shown
    assert "-h, --help" in shown
    assert "SEE ALSO" in shown
    assert "numalet(1)" in shown


def test_what_roff_would_take_for_a_request_is_text() -> None:
    @click.command("odd")
    def odd() -> None:
        """First.

        .SH is no section, nor is 'quoted' -- or C:\\path ~user ^caret.
        """

    shown = " ".join(rendered(page(click.Context(odd, info_name="odd"))).split())
    assert ".SH is no section, nor is 'quoted' -- or C:\\path ~user ^caret." in shown


def test_every_command_has_its_file_and_the_same_commands_give_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts/gen-man", tmp_path / "man"], check=True)
    files = {file.name: file.read_text("utf-8") for file in (tmp_path / "man").iterdir()}
    assert files == {f"{name}.1": page(context) for name, context in PAGES.items()}
    assert {"numalet.1", "numalet-status.1", "numalet-state-show.1"} <= files.keys()
