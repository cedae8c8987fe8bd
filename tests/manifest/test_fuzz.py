"""Manifests are untrusted: whatever is in one, it becomes pods with safe names, or a list of problems."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNT = 10_000


@pytest.mark.timeout(600)  # a loaded machine is no reason to fail
def test_ten_thousand_mutated_manifests_are_read_or_refused_within_bounds() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.manifest.fuzz", str(COUNT)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout)
    assert sum(seen.values()) == COUNT
    assert min(seen["accepted"], seen["refused"]) > COUNT // 50, "both ways are tried"
