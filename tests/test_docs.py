"""What the documentation shows is what happens; what it links to is there; every refusal is explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli.app import COMMANDS
from agent.config import Config
from agent.cpumanager.options import ALPHA, BETA, STABLE
from agent.domain.settings import CpuPolicy, MemoryPolicy, TopologyPolicy, TopologyScope
from agent.metrics.decisions import REASONS as COUNTED
from tests.cli.command import invoke
from tests.docs import ANY, File, Shell, as_printed, leads_somewhere, links, steps

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
SHOWN = [page for page in PAGES if "```console\n" in page.read_text()]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def invoked(*words: str) -> tuple[int, str]:
    done = invoke(*words)
    return done.status, done.out + done.err


@pytest.mark.parametrize("page", SHOWN, ids=named)
def test_the_commands_of_a_page_print_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")  # whatever terminal the tests run in
    shell = Shell(invoked)
    for step in steps(page.read_text()):
        if isinstance(step, File):
            (tmp_path / step.name).write_text(step.text)
            continue
        printed = shell.run(step.words)
        where = f"{named(page)}:{step.line}: $ {' '.join(step.words)}"
        assert as_printed(step.expected, printed), f"{where}\nprints now:\n{printed}"


def test_every_mode_has_a_runnable_example() -> None:
    words = {
        word
        for step in steps((DOCS / "modes.md").read_text())
        for word in re.findall(r"[\w-]+", step.text if isinstance(step, File) else " ".join(step.words))
    }
    policies = {
        policy for kind in (CpuPolicy, MemoryPolicy, TopologyPolicy, TopologyScope) for policy in kind
    }
    config = Config()  # what it says is in force wherever an example says nothing
    policies -= {config.cpu_policy, config.memory_policy, config.topology_policy, config.topology_scope}
    assert {policy.value for policy in policies} | ALPHA | BETA | STABLE | {
        "hugepages-2Mi",
        "reservedMemory",
    } <= words


def reasons_in_code() -> Iterator[str]:
    """The texts that a refusal can give as its reason: what is passed as one, or is a constant made for it."""
    for source in (ROOT / "agent").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            match node:
                case ast.keyword(arg="reason", value=ast.Constant(value=str(text))):
                    yield text
                case ast.arguments(kwonlyargs=names, kw_defaults=defaults):
                    for name, default in zip(names, defaults, strict=True):
                        if name.arg == "reason" and isinstance(default, ast.Constant):
                            yield str(default.value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text))):
                    if name.endswith("_ERROR") or source.name == "verdict.py":
                        yield text
                case _:
                    pass


def test_the_reasons_in_the_code_are_found() -> None:
    assert {*COUNTED, "AlreadyExists", "InvalidPod", "SMTAlignmentError"} <= set(reasons_in_code())


@pytest.mark.parametrize("reason", sorted(set(filter(None, reasons_in_code()))))
def test_troubleshooting_explains_every_reason_of_a_refusal(reason: str) -> None:
    assert re.search(rf"^#+ .*`{reason}`", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page) if not leads_somewhere(page, link)] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop().resolve()
        if page.suffix == ".md" and page not in seen:
            seen.add(page)
            ahead += [page.parent / link.partition("#")[0] for link in links(page)]
    assert {named(page) for page in PAGES} == {named(page) for page in seen}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_names_only_commands_that_exist(page: Path) -> None:
    code = "\n".join(re.findall(r"^```.*?^```|`[^`\n]+`", page.read_text(), re.MULTILINE | re.DOTALL))
    commands = re.findall(r"(?:`|^|&& |\$ )numalet ([a-z][a-z-]+)\b", code, re.MULTILINE)
    assert [word for word in commands if word not in COMMANDS] == []


def test_a_line_of_dots_stands_for_any_lines_and_for_nothing_else() -> None:
    printed = "a\nb\nc\nd\n"
    for expected in ("a\nb\nc\nd", f"a\n{ANY}\nd", f"{ANY}\nc\n{ANY}", f"{ANY}", f"a\nb\n{ANY}\nc\nd"):
        assert as_printed(expected, printed), expected
    for expected in (
        "a\nb\nc",
        f"a\n{ANY}\nc",
        f"{ANY}\nc\n{ANY}\nb\n{ANY}",
        f"b\n{ANY}",
        f"a\nb\nc\n{ANY}\nc\nd",
    ):
        assert not as_printed(expected, printed), expected
