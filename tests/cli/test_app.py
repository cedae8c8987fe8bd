"""The command as a whole: help that loads next to nothing, exit statuses, bad configuration."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from agent import __version__
from agent.cli.app import COMMANDS, numalet
from tests.cli.command import invoke

HEAVY = (
    "agent.daemon",
    "agent.metrics",
    "agent.admission",
    "agent.containermanager",
    "agent.sysfs",
    "agent.manifest",
    "yaml",
    "prometheus_client",
    "pyudev",
    "psutil",
    "inotify_simple",
    "tabulate",
    "http.server",
    "logging",
    "json",
)
PROGRAM = """
import sys
from agent.cli.app import run_command_line
status = run_command_line(sys.argv[1:])
print(*sorted(sys.modules), sep="\\n", file=sys.stderr)
sys.exit(status)
"""


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


def loaded(*arguments: str) -> set[str]:
    result = run(*arguments)
    assert result.returncode == 0
    return set(result.stderr.splitlines())


def test_help_loads_nothing_but_click_and_the_list_of_commands() -> None:
    modules = loaded("--help")
    assert modules.isdisjoint(HEAVY)
    assert {name for name in modules if name.startswith("agent")} == {
        "agent",
        "agent.cli",
        "agent.cli.app",
        "agent.errors",
    }


@pytest.mark.parametrize("command", ["run", "get", "apply", "exec"])
def test_help_of_a_command_loads_no_daemon(command: str) -> None:
    heavy = {
        "agent.daemon",
        "agent.admission",
        "yaml",
        "prometheus_client",
        "pyudev",
        "inotify_simple",
        "tabulate",
        "ssl",
        "email",
        "agent.domain.pod",
        "agent.domain.topology",
    }
    assert loaded(command, "--help").isdisjoint(heavy)


def test_help_lists_every_command() -> None:
    result = invoke("--help")
    assert result.status == 0
    for name, (_, text) in COMMANDS.items():
        assert f"  {name} " in result.out
        assert text in result.out
    assert "Exit status: 0 done, 1 refused" in " ".join(result.out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = invoke(command, "--help")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"Usage: numalet {command} ")


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, and every command of a command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


@pytest.mark.parametrize("path", [path for path, _ in commands(numalet)], ids=" ".join)
def test_the_help_of_every_command_has_an_example(path: tuple[str, ...]) -> None:
    after_usage = invoke(*path, "--help").out.partition("\n")[2]
    examples = re.findall(rf"^ +(?:.*[ (])?numalet {' '.join(path)}\b.*$", after_usage, re.MULTILINE)
    assert examples, after_usage


def test_the_version() -> None:
    assert invoke("--version").out == f"numalet, version {__version__}\n"


@pytest.mark.parametrize("arguments", [("nonsense",), ("--nonsense",), ("get", "pods", "-o", "xml")])
def test_wrong_use(arguments: tuple[str, ...]) -> None:
    assert invoke(*arguments).status == 2


def test_the_socket_can_be_named_in_the_environment(tmp_path: Path) -> None:
    result = run("get", "pods", NUMALET_SOCKET=str(tmp_path / "elsewhere"))
    assert result.returncode == 3
    assert f"no daemon answers on {tmp_path}/elsewhere" in result.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "agent", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(30) == 141
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memoryPolicy: None\nstateDir: x\n", ['memoryPolicy: unknown field (did you mean "memoryManagerPolicy"?)', '$.stateDir: "x" is not an absolute path']),
        ("a: [", ["not YAML"]),
    ],
)  # fmt: skip
def test_run_refuses_a_bad_configuration_with_every_problem(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    result = run("run", "--config", str(file))
    assert result.returncode == 2
    assert result.stderr.startswith(f"numalet: {file}:")
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.stderr


def test_run_without_its_configuration_file_is_wrong_use(tmp_path: Path) -> None:
    assert invoke("run", "--config", str(tmp_path / "missing.yaml")).status == 2


def test_run_refuses_a_bad_metrics_address() -> None:
    result = invoke("run", "--metrics", "9447")
    assert result.status == 2
    assert '"9447" is not HOST:PORT' in result.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    assert "_NUMALET_COMPLETE" in invoke("completion", shell).out


def test_a_command_that_is_misspelt_is_guessed_and_nothing_else_is() -> None:
    assert "Did you mean 'explain'?" in invoke("explainn").err
    assert "Did you mean" not in invoke("qqq").err
    assert invoke("explainn").status == invoke("qqq").status == 2
