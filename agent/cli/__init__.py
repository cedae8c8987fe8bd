"""The command line: `main` is the `numalet` command.

Exit status: 0 done; 1 refused, or a check failed; 2 wrong use or bad input; 3 the daemon cannot
be reached; 4 no such pod or container.
"""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exit."""
    gc.disable()  # until the command is loaded: what is loaded stays, and looks for garbage are 6 % of a start
    from agent.cli.app import run_command_line  # noqa: PLC0415 - keeps `import agent.cli` free of click

    sys.exit(run_command_line())
