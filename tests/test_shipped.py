"""What README shows and what is shipped beside the code does what is said of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.cli.app import COMMANDS
from agent.cli.scratch import Rehearsed, scratch_node
from agent.config import Config, load_config
from agent.config.model import HostIsolation
from agent.domain.settings import Gates, TopologyScope
from agent.manifest import load_manifests

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
MACHINE = ROOT / "tests/data/machines/64amd64-4p2n4ca2co.json.xz"
EXAMPLES = ROOT / "docs/examples"


def rehearsed(manifest: bytes, tmp_path: Path, scope: TopologyScope) -> Rehearsed:
    config = tmp_path / "config.yaml"
    config.write_text(f"topologyManagerScope: {scope.value}\n")
    (pod,) = load_manifests(manifest, "pod.yaml", Gates())
    return scratch_node(MACHINE, config, None).rehearse(pod, "pod.yaml")


def cpus(done: Rehearsed) -> dict[str, int]:
    """How many CPUs each container that has an entry holds."""
    return {name: len(held) for name, held in done.state.cpu.entries[done.pod.uid].items()}


def test_the_example_of_the_readme_gives_two_cpus_alone_and_two_shared(tmp_path: Path) -> None:
    match = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert match
    done = rehearsed(match[1].encode(), tmp_path, TopologyScope.POD)
    assert done.refusal is None
    entries = done.state.cpu.entries[done.pod.uid]
    assert cpus(done) == {"engine": 2, "logger": 2}
    assert entries["engine"].isdisjoint(entries["logger"])


@pytest.mark.parametrize(
    ("example", "scope", "held"),
    [
        ("pod-scope-mixed", TopologyScope.POD, {"main-app": 2, "metrics-sidecar": 2, "logging-sidecar": 2}),
        ("empty-shared-pool", TopologyScope.POD, None),
        ("container-scope-mixed", TopologyScope.CONTAINER, {"infrastructure-sidecar": 2}),
    ],
)
def test_the_example_manifests_do_what_their_comments_say(
    tmp_path: Path, example: str, scope: TopologyScope, held: dict[str, int] | None
) -> None:
    done = rehearsed((EXAMPLES / f"{example}.yaml").read_bytes(), tmp_path, scope)
    assert (None if done.refusal else cpus(done)) == held


def test_the_shipped_configuration_says_the_defaults_and_keeps_the_host_off_exclusive_cpus() -> None:
    shipped = load_config((ROOT / "systemd/config.yaml").read_bytes(), "config.yaml")
    assert shipped == Config(host_isolation=HostIsolation.SLICES)


def test_the_readme_names_every_command_and_no_other() -> None:
    table = README.split("| command | what for |")[1].split("\n\n")[0]
    named = {
        word.removeprefix("numalet ").split()[0].split("\\|")[0]
        for cell in re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
        for word in re.findall(r"`([^`]+)`", cell)
    }
    assert named == COMMANDS.keys()
