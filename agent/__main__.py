"""``python -m agent`` is ``numalet``."""

from agent.cli import main

main()
