"""What cannot be a container, and whose pods may not say that it is: refused, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cgroup.backend import EnforcementError
from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.layout import CgroupDir
from agent.checkpoint.store import BINDINGS_FILE
from agent.config import Config
from agent.config.model import BindingPolicy
from agent.containermanager import VerdictKind
from agent.containermanager.boundgates import own_cgroup
from agent.containermanager.boundtargets import BoundCgroup
from agent.containermanager.verdict import BINDING_ERROR
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from tests.containermanager.binding import (
    DB,
    SOURCE,
    admit,
    bound,
    confined,
    refused,
    set_there,
)
from tests.containermanager.node import Node, manifest


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("unit nowhere.service", "unit nowhere.service is not-found, not loaded"),
        ("unit numalet.service", "system.slice/numalet.service, the daemon"),
        ("unit alias.service", "it is an alias of db.service"),
        ("cgroup test/poduid-x/main", "numalet's cgroupRoot"),
        ("cgroup test", "numalet's cgroupRoot"),
    ],
)
def test_what_can_never_be_is_refused(target: str, words: str) -> None:
    node = Node()
    for unit in (DB, "numalet.service"):
        node.outside.install(unit)
    node.outside.install("alias.service")
    node.outside._units["alias.service"]["Id"] = DB
    verdict = refused(node.owner(), bound(manifest("p"), main=target))
    assert verdict.reason == BINDING_ERROR
    assert words in verdict.message
    assert verdict.remedy


@pytest.mark.parametrize(
    "second", ["unit db.service", "cgroup system.slice", "cgroup system.slice/db.service/inner"]
)
def test_what_is_bound_already_is_refused(second: str) -> None:
    node = Node()
    node.outside.start(DB)
    owner = node.owner()
    admit(owner, bound(manifest("p"), main=f"unit {DB}"))
    if second == "cgroup system.slice":
        node.outside.make("other/inner")
        admit(owner, bound(manifest("r"), main="cgroup other/inner"))
        second = "cgroup other"
    verdict = refused(owner, bound(manifest("q"), main=second))
    assert verdict.reason == BINDING_ERROR
    assert "which is bound already: pod default/" in verdict.message


def test_a_systemd_that_does_not_answer_refuses_the_pod_not_the_node() -> None:
    node = Node()
    owner = node.owner()
    node.outside.broken = True
    verdict = refused(owner, bound(manifest("p"), main=f"unit {DB}"))
    assert (verdict.reason, verdict.remedy) == (BINDING_ERROR, "mend it")
    assert owner.snapshot().exclusive == CpuSet()


def test_a_unit_whose_slice_lacks_the_cpus_is_refused_and_given_back() -> None:
    node = Node()
    node.outside.start(DB)
    node.outside.force(CgroupDir("system.slice"), "cpuset.cpus", "6-7")
    before = set_there(node)
    owner = node.owner()
    verdict = refused(owner, bound(manifest("p"), main=f"unit {DB}"))
    assert "a slice above system.slice/db.service does not have them all" in verdict.message
    assert "Slice=" in verdict.remedy
    assert set_there(node) == before
    assert owner.snapshot().exclusive == CpuSet()


def test_under_another_cgroup_root_what_became_our_own_is_left_alone() -> None:
    node = Node()
    admit(node.owner(), bound(manifest("p"), main="cgroup containers/db"))
    node.outside.ours[CgroupDir("containers")] = "numalet's cgroupRoot"
    node.outside.make("containers/db")
    owner = node.owner()
    assert "containers, numalet's cgroupRoot" in owner.snapshot().problems[0]
    assert node.outside.cpus("containers/db") == CpuSet.parse("0-7")
    assert owner.snapshot().failures == ()


@pytest.mark.parametrize(
    ("policy", "source", "allowed"),
    [
        (BindingPolicy.MANIFESTS, SOURCE, True),
        (BindingPolicy.MANIFESTS, "api", False),
        (BindingPolicy.ALL, "api", True),
        (BindingPolicy.NONE, SOURCE, False),
        (BindingPolicy.NONE, "api", False),
    ],
)
def test_the_operator_decides_whose_pods_may_bind(policy: BindingPolicy, source: str, allowed: bool) -> None:
    node = Node(Config(bindings=policy))
    node.outside.start(DB)
    owner = node.owner()
    verdict = owner.admit(bound(manifest("p"), main=f"unit {DB}"), source)
    assert (verdict.kind is VerdictKind.ADMITTED) == allowed
    if not allowed:
        assert verdict.reason == BINDING_ERROR
        assert verdict.remedy
        assert node.outside.log == []
        owner.allow_bindings(BindingPolicy.ALL)
        admit(owner, bound(manifest("p"), main=f"unit {DB}"), source)


def test_no_process_joins_a_bound_container_by_numalet() -> None:
    node = Node()
    node.outside.start(DB)
    owner = node.owner()
    admit(owner, bound(manifest("p"), main=f"unit {DB}"))
    assert "is unit db.service" in owner.containers.may_join(PodUid("uid-p"), "main")


def test_a_unit_in_a_slice_that_is_kept_off_every_exclusive_cpu_is_refused_with_the_way_out() -> None:
    node = confined(Node())
    node.outside.start(DB)
    verdict = refused(node.owner(), bound(manifest("p"), main=f"unit {DB}"))
    assert "it is in system.slice, which hostIsolation keeps off exclusive CPUs" in verdict.message
    assert "Slice=main.slice" in verdict.remedy


def test_no_path_leads_over_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "db").mkdir(parents=True)
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(EnforcementError, match="symbolic link"):
        BoundCgroup("link/db", CgroupFs(tmp_path))
    assert BoundCgroup("elsewhere/nowhere", CgroupFs(tmp_path)).missing
    (tmp_path / "file").touch()
    with pytest.raises(EnforcementError, match="a file or a symbolic link is in the way"):
        BoundCgroup("file/db", CgroupFs(tmp_path))


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("0::/system.slice/numalet.service\n", "system.slice/numalet.service"),
        ("12:cpuset:/x\n0::/\n", ""),
        ("", ""),
    ],
)
def test_the_daemons_own_cgroup_is_read(text: str, own: str) -> None:
    assert own_cgroup(text) == own


def test_a_record_of_what_units_had_that_cannot_be_read_is_no_reason_to_forget() -> None:
    node = Node()
    node.outside.start(DB)
    node.store.write(BINDINGS_FILE, b"{")
    owner = node.owner()
    (failure,) = owner.snapshot().failures
    assert BINDINGS_FILE in failure
