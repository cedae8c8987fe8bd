"""A simulation's figures as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.cli.common import gib, table
from agent.explain.english import plural
from agent.simulate.fleet import Demand, Fleet
from agent.simulate.report import Figures, share, template_rates

MOST_PLACES = 16
"""NUMA nodes that are listed; `-o json` has all."""


def report_text(fleet: Fleet, found: Sequence[Figures]) -> str:
    """What was simulated, the variants side by side, why pods were refused, what is left where."""
    parts = [_head(fleet, found), _variants(fleet, found), _templates(fleet, found)]
    parts += [*_reasons(found), _places(fleet, found)]
    return "\n\n".join(part for part in parts if part)


def _head(fleet: Fleet, found: Sequence[Figures]) -> str:
    shapes = ", ".join(
        f"{shape.count:,} {shape.name} ({len(shape.topology.cpus)} CPUs, {len(shape.topology.nodes)} NUMA nodes)"
        for shape in fleet.shapes
    )
    demands = "; ".join(f"{one.name}: {_demand(one)}" for one in fleet.demands)
    done = found[0].result.cells
    rows = [
        ("Fleet", f"{fleet.nodes:,} nodes in {plural(fleet.cells, 'cell')}: {shapes}"),
        ("Pods", f"{fleet.pods:,} over {fleet.horizon / 3600:,.1f} hours, seed {fleet.seed}"),
        ("Scheduler", f"{fleet.score.value}, {fleet.retries} more nodes after a refusal"),
        ("Sizes", demands),
        ("Cells done", f"{done} of {fleet.cells}, the figures are theirs" if done < fleet.cells else ""),
    ]
    return "\n".join(f"{label:<10} {text}" for label, text in rows if text)


def _demand(one: Demand) -> str:
    return (
        f"{plural(one.cpus, 'CPU')}" + (f", {gib(one.memory)}" if one.memory else "") + f" ({one.template})"
    )


def _variants(fleet: Fleet, found: Sequence[Figures]) -> str:
    headings = ("variant", "admitted", "requested", "exclusive", "free", *_rooms(fleet))
    rows = [
        (one.name, *map(_percent, (one.rate, one.requested, one.exclusive, one.free, *one.useless)))
        for one in found
    ]
    told = (
        "Of all pods; of all CPUs, on average over the later half of the time. No room for: free CPUs on NUMA\n"
        "nodes that lack the CPUs or the memory for a pod of that size; for the smallest: stranded."
    )
    return f"{table(headings, rows)}\n{told}"


def _rooms(fleet: Fleet) -> Iterator[str]:
    for one in fleet.demands:
        yield "stranded" if one is fleet.demands[0] else f"no room for {one.name}"


def _templates(fleet: Fleet, found: Sequence[Figures]) -> str:
    rates = [template_rates(fleet, one.result) for one in found]
    rows = [(name, *(_percent(by_name[name]) for by_name in rates)) for name in rates[0]]
    return table(("admitted of", *(one.name for one in found)), rows)


def _reasons(found: Sequence[Figures]) -> Iterator[str]:
    for heading, counts in (
        ("refused by nodes", [one.result.refusals for one in found]),
        ("pods without a node", [one.result.lost for one in found]),
    ):
        reasons = sorted({reason for one in counts for reason in one})
        if reasons:
            rows = [(reason, *(f"{one[reason]:,}" for one in counts)) for reason in reasons]
            yield table((heading, *(one.name for one in found)), rows)


def _places(fleet: Fleet, found: Sequence[Figures]) -> str:
    """Free CPUs of a NUMA node on average, and how many of them are no use to the median pod."""
    places = sorted({place for one in found for place in one.result.places})
    if not places:
        return ""
    median = 1
    rows = []
    for place in places[:MOST_PLACES]:
        shape, numa = place
        cells = []
        for one in found:
            free = one.result.places.get(place)
            cells.append(
                f"{share(free.cpus, free.looks):.1f}, {share(free.useless[median], free.looks):.1f} of no use"
                if free
                else "-"
            )
        rows.append((fleet.shapes[shape].name, str(numa), *cells))
    more = f"\nand {len(places) - MOST_PLACES} more NUMA nodes (-o json)" if len(places) > MOST_PLACES else ""
    headings = ("free cpus on", "numa node", *(one.name for one in found))
    return f"{table(headings, rows)}{more}\nOf no use: to a pod of the median size."


def _percent(part: float) -> str:
    return f"{part:.1%}"
