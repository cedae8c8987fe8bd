"""Hypothesis profiles: `dev` for every day, `ci` (chosen where the environment has CI) for every commit.

The test VM has no Hypothesis: no test there uses it, and emulated CPUs take seconds to import it.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from importlib.util import find_spec

import pytest

# What contracts assert is told with its values, as in test modules.
pytest.register_assert_rewrite("tests.systemdbus.contract", "tests.cgroup.contract")

# A shell that runs this in the background has it ignore SIGINT, and the commands that tests start inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

if find_spec("hypothesis"):
    from hypothesis import settings

    # No deadline in either: one example builds managers for a whole machine, and cores are shared.
    settings.register_profile("dev", max_examples=50, deadline=None, print_blob=True)
    settings.register_profile("ci", max_examples=300, deadline=None, print_blob=True, derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what tests counted, by name: the sums of their recorded properties."""
    counted = Counter[str]()
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            counted[str(name)] += int(str(value))
    for name, total in sorted(counted.items()):
        terminalreporter.write_line(f"{name}: {total}")
