"""``python -m scripts.bench.kernelless CONFIG``: the daemon of `pretended`, started as `numalet run` is."""

import gc
import sys
from pathlib import Path

if __name__ == "__main__":
    gc.disable()  # as `agent.cli.daemon.run` does
    from scripts.bench.pretended import run

    run(Path(sys.argv[1]))
