"""The three log formats, as a process writes them to stderr."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import logging, os, sys
from agent.log import set_up_logging
set_up_logging(sys.argv[1], sys.argv[2], os.environ)
log = logging.getLogger("agent.test")
log.debug("quiet")
log.info("admitted pod %s", "default/a")
log.error("two\\nlines")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("broken")
"""


def logged(level: str, form: str, stderr: int = subprocess.PIPE, **environ: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, level, form],
        stderr=stderr,
        text=True,
        check=True,
        env={**os.environ, **environ},
    )
    return result.stderr or ""


def test_text_has_time_and_level() -> None:
    first = logged("info", "text").splitlines()[0]
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO    admitted pod default/a", first)


def test_the_level_is_the_least_that_is_logged() -> None:
    assert "quiet" in logged("debug", "text")
    assert logged("error", "text").splitlines()[0].endswith("ERROR   two")


def test_json_is_one_object_a_line() -> None:
    entries = [json.loads(line) for line in logged("info", "json").splitlines()]
    assert [(e["level"], e["logger"], e["message"]) for e in entries] == [
        ("info", "agent.test", "admitted pod default/a"),
        ("error", "agent.test", "two\nlines"),
        ("error", "agent.test", "broken"),
    ]
    assert "ZeroDivisionError" in entries[2]["exception"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", entries[0]["time"])


def journalled(form: str) -> list[str]:
    journal, ours = socket.socketpair()
    with journal, ours:
        status = os.fstat(ours.fileno())
        logged("info", form, ours.fileno(), JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}")
        ours.close()
        return journal.makefile().read().splitlines()


def test_the_journal_gets_a_priority_on_every_line_of_json() -> None:
    lines = journalled("json")
    assert [line[:3] for line in lines] == ["<6>", "<3>", "<3>"]
    assert json.loads(lines[0][3:])["message"] == "admitted pod default/a"


def test_the_journal_gets_a_priority_on_every_line() -> None:
    lines = journalled("text")
    assert lines[:3] == ["<6>admitted pod default/a", "<3>two", "<3>lines"]
    assert all(line.startswith("<3>") for line in lines[3:])


def test_a_journal_that_is_not_our_stderr_is_none(tmp_path: Path) -> None:
    status = tmp_path.stat()
    text = logged("info", "text", JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}")
    assert not text.startswith("<")
