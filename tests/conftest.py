"""Hypothesis profiles: `dev` for every day, `ci` (chosen where the environment has CI) for every commit."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline in either: one example builds managers for a whole machine, and cores are shared.
settings.register_profile("dev", max_examples=50, deadline=None, print_blob=True)
settings.register_profile("ci", max_examples=300, deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
