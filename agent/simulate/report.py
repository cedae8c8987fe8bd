"""What a simulation says: figures of each variant, as JSON values and as a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.drawing.chart import Bars, Chart, Lines
from agent.explain.english import plural
from agent.simulate.fleet import Fleet
from agent.simulate.result import SAMPLES, Look, Result

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One variant. Shares are of the fleet's CPUs, means over the later half of the time.

    ``requested`` by schedulers' count, ``exclusive`` held by somebody alone, ``useless`` by demand: free on
    NUMA nodes that have no room for it.
    """

    name: str
    result: Result
    requested: float
    exclusive: float
    free: float
    useless: tuple[float, ...]

    @property
    def arrived(self) -> int:
        """Pods that came."""
        return self.result.arrived.total()

    @property
    def admitted(self) -> int:
        """Pods that a node took."""
        return self.result.admitted.total()

    @property
    def rate(self) -> float:
        """The admitted share of the pods."""
        return share(self.admitted, self.arrived)


def share(part: float, whole: float) -> float:
    """A part of a whole; 0 of nothing."""
    return part / whole if whole else 0.0


def figures(fleet: Fleet, results: Sequence[Result]) -> tuple[Figures, ...]:
    """The figures of each variant."""
    return tuple(
        _figures(fleet, variant.name, result) for variant, result in zip(fleet.variants, results, strict=True)
    )


def _figures(fleet: Fleet, name: str, result: Result) -> Figures:
    late = Look()
    for look in result.looks[SAMPLES // 2 :]:
        late.add(look)
    cpus = late.exclusive + late.free.cpus
    return Figures(
        name=name,
        result=result,
        requested=share(late.requested, late.allocatable),
        exclusive=share(late.exclusive, cpus),
        free=share(late.free.cpus, cpus),
        useless=tuple(share(late.free.useless[index], cpus) for index in range(len(fleet.demands))),
    )


def template_rates(fleet: Fleet, result: Result) -> Mapping[str, float]:
    """The admitted share of each template's pods."""
    counts: dict[str, tuple[int, int]] = {}
    for index, one in enumerate(fleet.classes):
        admitted, arrived = counts.get(one.template, (0, 0))
        counts[one.template] = admitted + result.admitted[index], arrived + result.arrived[index]
    return {name: share(*pair) for name, pair in counts.items()}


def report_json(fleet: Fleet, all_figures: Sequence[Figures]) -> Json:
    """Everything, in shares from 0 to 1; arrays over time have one value a sample."""
    return {
        "seed": fleet.seed,
        "nodes": fleet.nodes,
        "cells": {"all": fleet.cells, "done": max((one.result.cells for one in all_figures), default=0)},
        "horizonSeconds": fleet.horizon,
        "scheduler": {"score": fleet.score.value, "retries": fleet.retries},
        "demands": [
            {"name": one.name, "template": one.template, "cpus": one.cpus, "memory": one.memory}
            for one in fleet.demands
        ],
        "variants": [_variant_json(fleet, one) for one in all_figures],
    }


def _variant_json(fleet: Fleet, one: Figures) -> Json:
    result = one.result
    return {
        "name": one.name,
        "pods": one.arrived,
        "admitted": one.admitted,
        "admissionRate": one.rate,
        "running": result.running,
        "ended": result.ended,
        "notPlaced": dict(sorted(result.lost.items())),
        "refusalsByNodes": dict(sorted(result.refusals.items())),
        "refusalsNotDecidedAnew": result.remembered,
        "requestedCPUs": one.requested,
        "exclusiveCPUs": one.exclusive,
        "freeCPUs": one.free,
        "freeWithoutRoom": {
            demand.name: value for demand, value in zip(fleet.demands, one.useless, strict=True)
        },
        "templates": dict(template_rates(fleet, result)),
        "overTime": {
            "requestedCPUs": [share(look.requested, look.allocatable) for look in result.looks],
            "exclusiveCPUs": [
                share(look.exclusive, look.exclusive + look.free.cpus) for look in result.looks
            ],
        },
        "numaNodes": [
            {
                "nodes": fleet.shapes[shape].name,
                "id": numa,
                "freeCPUs": share(free.cpus, free.looks),
                "freeWithoutRoom": {
                    demand.name: share(free.useless[index], free.looks)
                    for index, demand in enumerate(fleet.demands)
                },
            }
            for (shape, numa), free in sorted(result.places.items())
        ],
    }


def chart(fleet: Fleet, all_figures: Sequence[Figures]) -> Chart:
    """Admission by template, utilisation over time, and free CPUs that serve nobody."""
    rates = [template_rates(fleet, one.result) for one in all_figures]
    return Chart(
        title=f"{fleet.nodes:,} nodes, {fleet.pods:,} pods",
        description="; ".join(
            f"{one.name}: {one.rate:.1%} admitted, {one.requested:.1%} of the CPUs requested"
            for one in all_figures
        ),
        series=tuple(one.name for one in all_figures),
        panels=(
            Bars(
                title="Pods admitted, of those that came",
                groups=("all", *rates[0]),
                values=tuple(
                    (one.rate * 100, *(rate * 100 for rate in by_template.values()))
                    for one, by_template in zip(all_figures, rates, strict=True)
                ),
            ),
            Lines(
                title="CPUs requested by admitted pods, of those allocatable",
                unit="hours",
                across=fleet.horizon / 3600,
                values=tuple(
                    tuple(100 * share(look.requested, look.allocatable) for look in one.result.looks)
                    for one in all_figures
                ),
            ),
            Bars(
                title="CPUs free on NUMA nodes without room for a pod, of all CPUs",
                groups=tuple(f"the {one.name} pod ({plural(one.cpus, 'CPU')})" for one in fleet.demands),
                values=tuple(tuple(100 * value for value in one.useless) for one in all_figures),
            ),
        ),
    )
