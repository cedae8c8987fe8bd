"""Run the soak: ``python -m scripts.soak [--operations N] [--seed S] [--processes P] [--first M]``, or `make soak`.

Each machine has a seed of its own, made of the run's seed and its number, and lives for so many
operations. A failure prints what repeats it; once it is mended, ``--first`` goes on from there.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from scripts.soak.site import Site

PER_MACHINE = 1000
PROGRESS_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Lived:
    """How a machine fared: operations by name, and what went wrong, if anything."""

    machine: int
    done: Counter[str]
    failure: str = ""


def live(seed: int, machine: int, operations: int) -> Lived:
    """Let one machine live through ``operations``, or up to its first failure."""
    site = Site(random.Random(f"{seed}/{machine}"))
    try:
        for _ in range(operations):
            site.step()
        site.check(in_full=True)
    except Exception:  # noqa: BLE001 - whatever it is, it is told and can be repeated
        last = "\n  ".join(site.told[-15:])
        number = sum(site.done.values())
        again = f"python -m scripts.soak --seed {seed} --machine {machine}"
        return Lived(
            machine,
            site.done,
            f"{again} fails at operation {number}, after\n  {last}\n{traceback.format_exc()}",
        )
    return Lived(machine, site.done)


def main() -> None:
    """Run machines until enough operations are done; exit 1 at the first failure."""
    options = _options()
    logging.disable(logging.CRITICAL)
    started = time.monotonic()
    if options.machine is not None:
        sys.exit(live(options.seed, options.machine, PER_MACHINE).failure)
    print(f"soak: seed {options.seed}, {options.operations} operations", flush=True)
    done: Counter[str] = Counter()
    shown = started
    sizes = [PER_MACHINE] * (options.operations // PER_MACHINE)
    if options.operations % PER_MACHINE:
        sizes.append(options.operations % PER_MACHINE)
    machines = list(enumerate(sizes))[options.first :]
    with ProcessPoolExecutor(options.processes) as pool:
        futures = [pool.submit(live, options.seed, number, size) for number, size in machines]
        for future in as_completed(futures):
            lived = future.result()
            done += lived.done
            if lived.failure:
                pool.shutdown(cancel_futures=True)  # leaving the context would let the others live on
                sys.exit(lived.failure)
            if time.monotonic() - shown > PROGRESS_SECONDS:
                shown = time.monotonic()
                print(f"soak: {done.total()} operations in {shown - started:.0f} s", flush=True)
    kinds = ", ".join(f"{number} {name}" for name, number in done.most_common())
    print(f"soak: {done.total()} operations on {len(machines)} machines kept every invariant: {kinds}")
    print(f"soak: seed {options.seed}, {time.monotonic() - started:.0f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--machine", type=int, help="only this one")
    parser.add_argument("--first", type=int, default=0, help="leave out those before this one")
    return parser.parse_args()


if __name__ == "__main__":
    main()
