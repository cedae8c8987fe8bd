"""``python -m agent`` is ``numalet``."""

from agent.cli import main

if __name__ == "__main__":  # a process of multiprocessing imports it, too
    main()
