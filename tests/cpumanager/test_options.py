"""cpuManagerPolicyOptions: what is read, what is refused and with which words."""

from __future__ import annotations

import pytest

from agent.cpumanager.distribute import Distributed
from agent.cpumanager.options import CpuOptions, check_options, parse_options
from agent.cpumanager.packed import Packed
from agent.domain.settings import Gates, TopologyPolicy
from agent.errors import ConfigError
from tests.cpumanager.build import machine

TRUE = ("1", "t", "T", "TRUE", "true", "True")
FALSE = ("0", "f", "F", "FALSE", "false", "False")

REFUSED = [
    ({"full-pcpus": "true"}, 'unknown CPU Manager Policy option: "full-pcpus"'),
    (
        {"full-pcpus-only": "yes"},
        'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "yes": invalid syntax',
    ),
    (
        {"strict-cpu-reservation": ""},
        'bad value for option "strict-cpu-reservation": strconv.ParseBool: parsing "": invalid syntax',
    ),
    (
        {"full-pcpus-only": "true", "distribute-cpus-across-cores": "true"},
        (
            "static policy options full-pcpus-only and distribute-cpus-across-cores"
            " can not be used at the same time"
        ),
    ),
    (
        {"distribute-cpus-across-numa": "true", "distribute-cpus-across-cores": "true"},
        (
            "static policy options distribute-cpus-across-numa and distribute-cpus-across-cores"
            " can not be used at the same time"
        ),
    ),
    (
        {"prefer-align-cpus-by-uncorecache": "true", "distribute-cpus-across-cores": "true"},
        (
            "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-cores"
            " can not be used at the same time"
        ),
    ),
    (
        {"prefer-align-cpus-by-uncorecache": "true", "distribute-cpus-across-numa": "true"},
        (
            "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa"
            " can not be used at the same time"
        ),
    ),
]

GATED = [
    ("align-by-socket", "Alpha"),
    ("distribute-cpus-across-cores", "Alpha"),
    ("distribute-cpus-across-numa", "Beta"),
    ("prefer-align-cpus-by-uncorecache", "Beta"),
]


@pytest.mark.parametrize(("texts", "message"), REFUSED, ids=[" ".join(texts) for texts, _ in REFUSED])
def test_bad_options_are_refused_in_the_kubelets_words(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_options(texts, Gates())
    assert refusal.value.message == message


@pytest.mark.parametrize(("name", "level"), GATED)
def test_an_option_that_is_not_stable_needs_its_gate(name: str, level: str) -> None:
    closed = Gates(cpu_alpha_options=level != "Alpha", cpu_beta_options=level != "Beta")
    with pytest.raises(ConfigError) as refusal:
        parse_options({name: "true"}, closed)
    assert refusal.value.message == (
        f'CPU Manager Policy {level}-level Options not enabled, but option "{name}" provided'
    )
    parse_options({name: "true"}, Gates())


@pytest.mark.parametrize("name", ["full-pcpus-only", "strict-cpu-reservation"])
def test_stable_options_need_no_gate(name: str) -> None:
    parse_options({name: "true"}, Gates(cpu_alpha_options=False, cpu_beta_options=False))


@pytest.mark.parametrize(("text", "value"), [*((t, True) for t in TRUE), *((f, False) for f in FALSE)])
def test_values_are_those_of_strconv_parse_bool(text: str, value: bool) -> None:
    assert parse_options({"full-pcpus-only": text}, Gates()) == CpuOptions(full_pcpus_only=value)


def test_options_switched_off_exclude_nothing() -> None:
    texts = {"full-pcpus-only": "true", "distribute-cpus-across-cores": "false"}
    assert parse_options(texts, Gates()) == CpuOptions(full_pcpus_only=True)


def test_align_by_socket_excludes_single_numa_node() -> None:
    options = CpuOptions(align_by_socket=True)
    with pytest.raises(ConfigError, match="Topolgy manager single-numa-node policy is incompatible"):
        check_options(options, machine(8), TopologyPolicy.SINGLE_NUMA_NODE)
    check_options(options, machine(8), TopologyPolicy.RESTRICTED)


def test_align_by_socket_needs_no_more_sockets_than_nodes() -> None:
    options = CpuOptions(align_by_socket=True)
    with pytest.raises(ConfigError, match="number of sockets are more than number of NUMA"):
        check_options(options, machine(8, sockets=2), TopologyPolicy.NONE)
    check_options(options, machine(8, sockets=2, nodes=2), TopologyPolicy.NONE)


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        (CpuOptions(), Packed()),
        (CpuOptions(full_pcpus_only=True), Packed()),
        (CpuOptions(distribute_across_cores=True), Packed(spread=True)),
        (CpuOptions(prefer_uncore=True), Packed(uncore=True)),
        (CpuOptions(distribute_across_numa=True), Distributed()),
        (CpuOptions(distribute_across_numa=True, full_pcpus_only=True), Distributed(group_size=4)),
    ],
)
def test_options_choose_the_strategy(options: CpuOptions, strategy: Packed | Distributed) -> None:
    assert options.strategy(4) == strategy
