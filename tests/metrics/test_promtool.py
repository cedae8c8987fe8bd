"""Prometheus's own tool judges the rules and the configuration that are shipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
PROMTOOL = Path(sys.executable).with_name("promtool")


@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
        ("check", "config", "prometheus.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts_what_is_shipped(words: tuple[str, ...]) -> None:
    assert PROMTOOL.exists(), "promtool is missing: scripts/bootstrap --unit"
    done = subprocess.run(
        [PROMTOOL, *words], cwd=MONITORING, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
