"""Reads the specification of a fleet: YAML to `Fleet`, or every problem with its line and place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from agent.admission import new_managers
from agent.config import Config
from agent.config.fields import choice, mapping, near, seconds, text
from agent.config.load import Problem, located, read_values
from agent.config.table import POLICIES, RESERVATIONS
from agent.cpumanager.requests import pod_guaranteed_cpus
from agent.domain.pod import CPU, MEMORY, Pod, ResourceName, is_memory_type
from agent.domain.settings import Gates, Settings
from agent.domain.topology import Topology, hugepages_resource
from agent.errors import ConfigError, NumaletError
from agent.manifest import ManifestError, aggregate, decode
from agent.manifest.defaults import requests_of
from agent.manifest.problem import shown
from agent.simulate.fleet import (
    Amounts,
    Demand,
    Fleet,
    Law,
    Lifetime,
    PodClass,
    Score,
    Shape,
    Variant,
)
from agent.simulate.machines import MOST_CPUS, Numbers, made
from agent.simulate.reading import Section, positive, size, whole
from agent.simulate.template import pod_of, sizes

API_VERSION: Final = "numalet/v1"
KIND: Final = "Fleet"
MOST: Final = 1_000_000_000

_FLEET = ("apiVersion", "kind", "seed", "cellNodes", "nodes", "variants", "scheduler", "pods")
_NUMBERS = ("sockets", "numaNodes", "cores", "threads", "memory", "hugepages")
_SETTINGS = tuple(field.key for field in (*POLICIES, *RESERVATIONS))

Recorded = Callable[[str], Topology]
"""The topology of a recorded machine's file, as the specification names it. Raises NumaletError."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A variant as it is stated, before machines are known."""

    name: str
    config: Config
    place: str


def load_fleet(raw: bytes, source: str, recorded: Recorded) -> Fleet:
    """Read a specification's bytes; raises ConfigError listing every problem with line and place."""
    try:
        documents = decode(raw, source)
    except ManifestError as error:
        raise ConfigError(str(error)) from error
    if len(documents) != 1:
        raise ConfigError(f"{source}: holds {len(documents)} documents, expected one")
    problems: list[Problem] = []
    fleet = _fleet(Section(documents[0], "$", problems, _FLEET), recorded)
    if fleet is None:
        raise ConfigError(located(raw, source, dict.fromkeys(problems)))
    return fleet


def _fleet(root: Section, recorded: Recorded) -> Fleet | None:
    """None where there are problems; those of settings on machines show when both can be read."""
    root.take("apiVersion", partial(_constant, API_VERSION))
    root.take("kind", partial(_constant, KIND))
    shapes = [
        _shape(section, recorded)
        for section in root.parts("nodes", "name", "count", "machine", "maxPods", *_NUMBERS)
    ]
    choices = [_variant(section) for section in root.parts("variants", "name", "config")]
    section = root.part("pods", "total", "perHour", "templates")
    total, rate = section.take("total", whole(1, MOST)), section.take("perHour", positive)
    gates = [one.config.gates for one in choices]
    classes = [one for part in section.parts("templates", *_TEMPLATE) for one in _classes(part, gates)]
    scheduler = root.part("scheduler", "score", "retries") if "scheduler" in root.values else None
    score = (
        scheduler.take("score", choice(Score), Score.MOST_ALLOCATED) if scheduler else Score.MOST_ALLOCATED
    )
    retries = scheduler.take("retries", whole(0, 100), 2) if scheduler else 2
    cell_size = root.take("cellNodes", whole(1, 10_000), 100)
    seed = root.take("seed", whole(0, MOST), 1)
    if root.problems:
        return None
    variants = [_on_shapes(one, shapes, root.problems) for one in choices]
    if root.problems:
        return None
    return Fleet(
        shapes=tuple(shapes),
        variants=tuple(variants),
        classes=tuple(classes),
        demands=tuple(_demands(classes)),
        pods=total,
        horizon=total / rate * 3600,
        score=score,
        retries=retries,
        cell_size=cell_size,
        seed=seed,
    )


def _constant(expected: str, value: Any) -> str:
    if value != expected:
        raise ValueError(f'{shown(value)} is not supported (expected "{expected}")')
    return expected


def _shape(section: Section, recorded: Recorded) -> Shape:
    name = section.take("name", text)
    count = section.take("count", whole(1, MOST))
    most_pods = section.take("maxPods", whole(1, 10_000), 110)
    before = len(section.problems)
    topology = _recorded(section, recorded) if "machine" in section.values else _made(section)
    if len(section.problems) == before and not any(node.memory for node in topology.nodes):
        section.add("", "no memory sizes are known of this machine")
    return Shape(name=name, count=count, topology=topology, most_pods=most_pods)


def _recorded(section: Section, recorded: Recorded) -> Topology:
    for key in _NUMBERS:
        if key in section.values:
            section.add(f".{key}", "a recorded machine is as it is (leave this out, or leave out machine)")

    def read(value: Any) -> Topology:
        try:
            return recorded(text(value))
        except NumaletError as error:
            raise ValueError(str(error)) from error

    return section.take("machine", read)


def _made(section: Section) -> Topology:
    before = len(section.problems)
    numbers = Numbers(
        sockets=section.take("sockets", whole(1, 64), 1),
        numa_nodes=section.take("numaNodes", whole(1, 64), 1),
        cores=section.take("cores", whole(1, MOST_CPUS)),
        threads=section.take("threads", whole(1, 8), 1),
        memory=section.take("memory", size),
        hugepages=section.take("hugepages", _hugepages, {}),
    )
    if len(section.problems) == before:
        nodes = numbers.sockets * numbers.numa_nodes
        cpus = nodes * numbers.cores * numbers.threads
        if cpus > MOST_CPUS or nodes > 64:
            section.add("", f"{cpus} CPUs in {nodes} NUMA nodes are too many (at most {MOST_CPUS} in 64)")
        else:
            return made(numbers)
    return Topology(cpus=(), nodes=())


_PAGES: Final = {hugepages_resource(kib): kib for kib in (64, 2048, 32768, 1 << 20)}


def _hugepages(value: Any) -> dict[int, int]:
    """Pages by page size in KiB."""
    pages = {}
    for name, amount in mapping(value).items():
        if name not in _PAGES:
            known = ", ".join(_PAGES)
            raise ValueError(f"{shown(name)} is not a size of huge pages (expected one of {known})")
        page = _PAGES[ResourceName(name)] << 10
        stated = size(amount)
        if stated % page:
            raise ValueError(f"{name}: {shown(amount)} is not a multiple of the page")
        pages[page >> 10] = stated // page
    return pages


def _variant(section: Section) -> _Choice:
    name = section.take("name", text)
    stated: Mapping[str, Any] = section.take("config", mapping, {})
    place = f"{section.place}.config"
    for key in stated:
        if key not in _SETTINGS:
            why = f"decides nothing about pods{near(key, _SETTINGS)}"
            section.problems.append((f"{place}.{key}", f"{why} (expected one of {', '.join(_SETTINGS)})"))
    values, problems = read_values({key: stated[key] for key in stated if key in _SETTINGS})
    section.problems += [(place + where.removeprefix("$"), why) for where, why in problems]
    return _Choice(name, Config(**values), place)


def _on_shapes(one: _Choice, shapes: Sequence[Shape], problems: list[Problem]) -> Variant:
    settings = tuple(one.config.settings(shape.topology) for shape in shapes)
    for shape, chosen in zip(shapes, settings, strict=True):
        try:
            new_managers(chosen, shape.topology)
        except ConfigError as error:
            problems.append((one.place, f"on nodes {shown(shape.name)}: {error.message}"))
    return Variant(
        name=one.name,
        settings=settings,
        allocatable=tuple(
            _allocatable(shape.topology, chosen) for shape, chosen in zip(shapes, settings, strict=True)
        ),
    )


def _allocatable(topology: Topology, settings: Settings) -> Amounts:
    """What the kubelet tells the scheduler: capacity less reservations; huge pages are no ordinary memory."""
    sizes: dict[ResourceName, int] = {
        CPU: len(topology.cpus) * 1000,
        MEMORY: sum(node.memory for node in topology.nodes),
    }
    for node in topology.nodes:
        for kib, pages in node.hugepages.items():
            name = hugepages_resource(kib)
            sizes[name] = sizes.get(name, 0) + (kib * pages << 10)
            sizes[MEMORY] -= kib * pages << 10
    for name, amount in settings.node_reserved.items():
        if name in sizes:
            sizes[name] = max(0, sizes[name] - (amount.milli if name == CPU else amount.value))
    return sizes


_TEMPLATE = ("name", "weight", "lifetime", "spec")


def _classes(section: Section, gates: Sequence[Gates]) -> Iterator[PodClass]:
    name = section.take("name", text)
    weight = section.take("weight", positive, 1.0)
    lifetime = section.take("lifetime", partial(_lifetime, section))
    before = len(section.problems)
    spec: Mapping[str, Any] = section.take("spec", mapping)
    if len(section.problems) > before:
        return
    unfolded = sizes(spec, f"{section.place}.spec", section.problems)
    total = sum(share for share, _ in unfolded)
    for share, one in unfolded:
        pods = {
            gate: pod_of(str(name), one, gate, section.place, section.problems)
            for gate in dict.fromkeys((Gates(), *gates))
        }
        if len(section.problems) == before:
            usual = pods[Gates()]
            yield PodClass(
                template=name,
                weight=weight * share / total,
                lifetime=lifetime,
                pods=tuple(pod for gate in gates if (pod := pods[gate])),
                request=_request(usual) if usual else {},
                exclusive=pod_guaranteed_cpus(usual, Gates()) if usual else 0,
            )


def _request(pod: Pod) -> Amounts:
    """What a scheduler counts of a pod: its budget, else the most its containers ask for at one time."""
    stated = {**aggregate(pod, requests_of), **pod.resources.requests}
    return {
        name: amount.milli if name == CPU else amount.value
        for name, amount in stated.items()
        if name == CPU or is_memory_type(name)
    }


def _lifetime(section: Section, value: Any) -> Lifetime:
    laws = [law.value for law in Law]
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in laws:
        raise ValueError(
            "expected one of {constant: 2h}, {exponential: 2h}, {lognormal: {median: 2h, sigma: 1}}"
        )
    law = Law(next(iter(value)))
    if law is not Law.LOGNORMAL:
        return Lifetime(law=law, seconds=seconds(value[law.value]))
    part = Section(
        value[law.value], f"{section.place}.lifetime.lognormal", section.problems, ("median", "sigma")
    )
    return Lifetime(law=law, seconds=part.take("median", seconds), sigma=part.take("sigma", positive))


def _demands(classes: Sequence[PodClass]) -> Iterator[Demand]:
    """The smallest, the median and the ninth decile of pods that want CPUs to themselves."""
    wanting = [one for one in classes if one.exclusive] or list(classes)
    wanting.sort(key=lambda one: (_cpus(one), one.request.get(MEMORY, 0), one.template))
    total = sum(one.weight for one in wanting)
    for name, share in (("smallest", 0.0), ("median", 0.5), ("large", 0.9)):
        below = 0.0
        for one in wanting:
            below += one.weight
            if below >= share * total or one is wanting[-1]:
                memory = one.request.get(MEMORY, 0) if one.exclusive else 0
                yield Demand(name=name, template=one.template, cpus=_cpus(one), memory=memory)
                break


def _cpus(one: PodClass) -> int:
    return one.exclusive or -(-one.request.get(CPU, 0) // 1000)
