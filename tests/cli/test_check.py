"""`numalet check`, on whatever host the tests run: what it prints, and what its status is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import invoke


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(f"stateDir: {tmp_path}/state\ncontrolSocket: {tmp_path}/control.sock\n")
    return file


def test_a_line_per_check_the_same_as_json(config: Path) -> None:
    text, answer = (
        invoke("check", "--config", str(config)),
        invoke("check", "--config", str(config), "-o", "json"),
    )
    checks = answer.json["checks"]
    assert len(text.out.splitlines()) == len(checks)
    for line, check in zip(text.out.splitlines(), checks, strict=True):
        assert line.split()[0] == check["level"]
        assert f"{check['subject']} " in line
        assert line.endswith(check["remedy"] or check["text"])
    assert text.status == answer.status == int("fail" in {check["level"] for check in checks})


def test_a_configuration_that_cannot_be_read_is_one_of_the_lines(config: Path) -> None:
    config.write_text("staticPodPaht: /tmp\n")
    done = invoke("check", "--config", str(config), "-o", "json")
    assert done.status == 1
    (line,) = [check for check in done.json["checks"] if check["subject"] == "configuration"]
    assert line["level"] == "fail"
    assert "staticPodPaht" in line["text"]
    assert len(done.json["checks"]) > 10, "the others are made all the same"


def test_no_such_configuration() -> None:
    assert invoke("check", "--config", "/none.yaml").status == 2
