"""docs/monitoring against what is really exported: the table of metrics, the rules, the dashboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics_core import Metric

from agent.config import Config
from agent.domain.settings import TopologyPolicy
from tests.containermanager.node import budgeted, manifest
from tests.metrics.scraped import Scraped

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
OF_PROMETHEUS = {"up"}
OF_SCRAPING = {"instance", "job"}
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "info": ("_info",)}

_STRING = re.compile(r"\"[^\"]*\"")
_SELECTOR = re.compile(r"\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"\b[a-zA-Z_:][a-zA-Z0-9_:]*\b(?!\s*\()")
_OPERATORS = {"and", "or", "unless", "bool", "offset"}


@dataclass(frozen=True, slots=True)
class Family:
    names: tuple[str, ...]
    type: str
    labels: frozenset[str]
    text: str

    @classmethod
    def of(cls, family: Metric) -> Family:
        names = tuple(family.name + suffix for suffix in SUFFIXES.get(family.type, ("",)))
        labels = frozenset(label for sample in family.samples for label in sample.labels)
        return cls(names, family.type, labels, family.documentation)


@pytest.fixture(scope="module")
def families() -> list[Family]:
    """Every family with every label it can have."""
    scraped = Scraped(
        Config(
            topology_policy=TopologyPolicy.SINGLE_NUMA_NODE,
            cpu_options={"full-pcpus-only": "true", "prefer-align-cpus-by-uncorecache": "true"},
        )
    )
    scraped.admit(manifest("a"), budgeted("b"))
    scraped.start()  # what was held before is what memory may have drifted from
    return [Family.of(family) for family in scraped.metrics.families()]


def described(family: Family) -> str:
    """Its row in the table."""
    name = family.names[0].removesuffix("_bucket")
    # The kubelet's counters without _total have no type in the formats, see agent/metrics/families.py.
    kind = {"unknown": "counter", "info": "gauge"}.get(family.type, family.type)
    labels = ", ".join(f"`{label}`" for label in sorted(family.labels - {"le"})) or "-"
    return f"| `{name}` | {kind} | {labels} | {family.text} |"


def test_the_table_lists_every_metric_as_it_is(families: list[Family]) -> None:
    rows = [
        line for line in (MONITORING / "README.md").read_text().splitlines() if re.match(r"\| `[a-z]", line)
    ]
    assert sorted(rows) == sorted(map(described, families))


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def labels_in(expression: str) -> set[str]:
    plain = _STRING.sub('""', expression)
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", " ".join(_SELECTOR.findall(plain)))
    grouped = re.findall(r"\w+", " ".join(_GROUPING.findall(plain)))
    return {*matched, *grouped}


def metrics_in(expression: str) -> set[str]:
    plain = _STRING.sub("", expression)
    for pattern in (_SELECTOR, _GROUPING, _RANGE):
        plain = pattern.sub("", plain)
    return set(_NAME.findall(plain)) - _OPERATORS


@pytest.mark.parametrize(("where", "expression"), tuple(expressions()))
def test_what_is_asked_for_is_exported(where: str, expression: str, families: list[Family]) -> None:
    by_name = {name: family for family in families for name in family.names}
    used = metrics_in(expression)
    assert used, where
    assert used <= by_name.keys() | OF_PROMETHEUS
    labels = {label for name in used & by_name.keys() for label in by_name[name].labels}
    assert labels_in(expression) <= labels | OF_SCRAPING


def test_the_expressions_are_taken_apart_right() -> None:
    expression = 'sum by (a, le) (rate(x_total{b=~"q_total|r", c!="1"}[5m])) / on (d) y > bool 0 and z'
    assert metrics_in(expression) == {"x_total", "y", "z"}
    assert labels_in(expression) == {"a", "le", "b", "c", "d"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_is_wrong_why_it_matters_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    grouped = set(re.findall(r"\w+", " ".join(_GROUPING.findall(rule["expr"]))))
    assert not grouped or used <= grouped  # what is summed up over is no label of the alert


def test_every_alert_is_tested() -> None:
    tested = (MONITORING / "alerts_test.yml").read_text()
    assert [rule["alert"] for rule in rules() if rule["alert"] not in tested] == []
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in README()] == []


def README() -> str:  # noqa: N802 - the file's name
    return (MONITORING / "README.md").read_text()


def test_the_dashboards_panels_do_not_overlap_and_are_complete() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert dashboard["uid"] == "numalet"
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "instance"}
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        assert panel["title"]
        assert panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0
        assert 0 <= panel["gridPos"]["x"] <= 24 - panel["gridPos"]["w"]
    for one, other in combinations((panel["gridPos"] for panel in panels()), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
