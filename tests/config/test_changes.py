"""A reload takes over what can change while pods run, and tells what needs a restart."""

from __future__ import annotations

from dataclasses import replace

from agent.config import Config
from agent.config.changes import reloaded
from agent.config.model import LogLevel
from agent.config.table import FIELDS
from agent.domain.idset import CpuSet
from agent.domain.settings import TopologyPolicy


def test_nothing_changes_where_the_file_says_the_same() -> None:
    outcome = reloaded(Config(), Config())
    assert (outcome.config, outcome.live, outcome.restart) == (Config(), (), ())


def test_live_values_are_in_force_and_the_others_wait_for_a_restart() -> None:
    wanted = Config(
        log_level=LogLevel.DEBUG,
        topology_policy=TopologyPolicy.BEST_EFFORT,
        state_dir="/srv/state",
        reserved_cpus=CpuSet.of([0, 1]),
    )
    outcome = reloaded(Config(), wanted)
    assert outcome.config == Config(log_level=LogLevel.DEBUG, topology_policy=TopologyPolicy.BEST_EFFORT)
    assert [str(change) for change in outcome.live] == [
        'topologyManagerPolicy: "restricted" -> "best-effort"',
        'logLevel: "info" -> "debug"',
    ]
    assert [str(change) for change in outcome.restart] == [
        'reservedSystemCPUs: (computed) -> "0-1"',
        'stateDir: "/var/lib/numalet" -> "/srv/state"',
    ]


def test_what_waits_for_a_restart_waits_until_it_is_taken_back() -> None:
    first = reloaded(Config(), Config(state_dir="/srv/state"))
    second = reloaded(first.config, Config(state_dir="/srv/state", reconcile_period=5.0))
    assert [change.key for change in second.restart] == ["stateDir"]
    assert reloaded(second.config, Config(reconcile_period=5.0)).restart == ()


def test_every_attribute_of_the_configuration_has_exactly_one_key() -> None:
    assert sorted(field.name for field in FIELDS.values()) == sorted(Config.__slots__)
    assert all(hasattr(replace(Config()), field.name) for field in FIELDS.values())
