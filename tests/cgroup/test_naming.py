"""Names of cgroups: the layout's own, and slices that systemd puts where they belong."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cgroup import layout
from agent.cgroup.backend import EnforcementError
from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.containerwatch import ContainerWatch
from agent.cgroup.layout import ROOT, CgroupDir, Kind
from agent.cgroup.naming import PLAIN, SliceNames, names_by
from agent.cgroup.watch import DriftWatch
from agent.domain.pod import PodUid
from agent.domain.qos import QosClass
from agent.systemdbus.unitname import is_top_level_slice

SLICES = SliceNames("numalet.slice")

UIDS = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
LABELS = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)


@st.composite
def directories(draw: st.DrawFn) -> CgroupDir:
    """Any cgroup of the layout."""
    pod = layout.pod_dir(PodUid(draw(UIDS)), draw(st.sampled_from(QosClass)))
    name = draw(LABELS)
    return draw(
        st.sampled_from(
            (
                ROOT,
                layout.BURSTABLE,
                layout.BEST_EFFORT,
                pod,
                layout.pool_dir(pod),
                layout.container_dir(pod, name),
                layout.pooled_dir(pod, name),
            )
        )
    )


@pytest.mark.parametrize(
    ("directory", "path"),
    [
        ("", ""),
        ("burstable", "numalet-burstable.slice"),
        ("pod1f-2a", "numalet-pod1f_2a.slice"),
        ("pod1f-2a/web", "numalet-pod1f_2a.slice/numalet-pod1f_2a-web.slice"),
        (
            "besteffort/podx/shared.pool/side-car",
            (
                "numalet-besteffort.slice/numalet-besteffort-podx.slice/numalet-besteffort-podx-shared.pool.slice"
                "/numalet-besteffort-podx-shared.pool-side_car.slice"
            ),
        ),
        ("poda_b.c", r"numalet-poda\x5fb.c.slice"),
        ("podx/@web.service", "numalet-podx.slice/web.service"),
    ],
)
def test_a_slice_is_named_after_all_slices_above_it(directory: str, path: str) -> None:
    assert SLICES.path(CgroupDir(directory)) == path
    assert SLICES.directory(path) == directory


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("web", Kind.FOREIGN),
        ("podx", Kind.FOREIGN),
        ("numalet-other.slice", Kind.FOREIGN),
        ("other-podx.slice", Kind.FOREIGN),
        ("numalet-podx.slice/web", Kind.NESTED),
        ("numalet-podx.slice/shared.pool", Kind.NESTED),
        ("numalet-podx.slice/numalet-web.slice", Kind.NESTED),
        ("numalet-podx.slice/numalet-podx-web.scope", Kind.NESTED),
        ("numalet-podx.slice/numalet-podx-web.slice/job.service", Kind.NESTED),
        ("numalet-podx.slice/numalet-podx-web.slice/numalet-podx-web-job.slice", Kind.NESTED),
        ("numalet-podx.slice/numalet-podx-web-job.slice", Kind.NESTED),
        (r"numalet-pod\x2dx.slice", Kind.FOREIGN),
        ("numalet-podx.slice/numalet-podx-web.slice", Kind.CONTAINER),
    ],
)
def test_what_is_not_named_like_a_slice_of_the_layout_is_none(path: str, kind: Kind) -> None:
    directory = SLICES.directory(path)
    assert layout.kind_of(directory) is kind
    assert SLICES.path(directory) == path


@given(directories())
def test_every_cgroup_of_the_layout_has_a_slice_and_is_found_by_it(directory: CgroupDir) -> None:
    assert SLICES.directory(SLICES.path(directory)) == directory
    assert SLICES.directory_of(SLICES.unit(directory)) == directory
    assert "--" not in SLICES.unit(directory)


@given(directories(), directories())
def test_no_two_cgroups_share_a_slice(one: CgroupDir, other: CgroupDir) -> None:
    assert (SLICES.unit(one) == SLICES.unit(other)) == (one == other)


@given(st.lists(st.text("ab-_.@x5f\\", min_size=1).filter(lambda name: name not in {".", ".."}), max_size=4))
def test_every_path_there_may_be_is_a_directory_of_its_own(names: list[str]) -> None:
    path = "/".join(names)
    assert SLICES.path(SLICES.directory(path)) == path


@given(directories())
def test_plain_names_are_the_layouts(directory: CgroupDir) -> None:
    assert PLAIN.path(directory) == PLAIN.directory(directory) == directory


def test_the_driver_decides_about_the_names() -> None:
    assert names_by("cgroupfs", "/sys/fs/cgroup/numalet.slice") is PLAIN
    assert names_by("systemd", "/sys/fs/cgroup/numalet.slice") == SLICES
    assert (PLAIN.driver, SLICES.driver) == ("cgroupfs", "systemd")


@pytest.mark.parametrize("name", ["numalet.slice", "pods_1.slice", "a.b.slice"])
def test_a_slice_at_the_top_has_one_word(name: str) -> None:
    assert is_top_level_slice(name)


@pytest.mark.parametrize("name", ["numalet", "-.slice", "a-b.slice", ".slice", "numalet.scope", "a/b.slice"])
def test_others_are_elsewhere_or_no_slices(name: str) -> None:
    assert not is_top_level_slice(name)


def test_what_looks_and_listens_goes_by_the_names(tmp_path: Path) -> None:
    pod, main = CgroupDir("pod1-2"), CgroupDir("pod1-2/main")
    for directory in (ROOT, pod, main):
        cgroup = tmp_path / SLICES.path(directory)
        cgroup.mkdir(exist_ok=True)
        for file, text in {
            "cgroup.events": "populated 0\n",
            "cgroup.subtree_control": "",
            "cpu.max": "",
        }.items():
            (cgroup / file).write_text(text)
    with (
        closing(DriftWatch(tmp_path, SLICES)) as drift,
        closing(ContainerWatch(tmp_path, SLICES)) as containers,
    ):
        fs = CgroupFs(tmp_path, watch=drift, containers=containers, names=SLICES)
        assert list(fs.observe().dirs) == [ROOT, pod, main]
        assert list(fs.observe(pod).dirs) == [pod, main]
        assert fs.children(ROOT) == (pod,)
        assert fs.children(pod) == (main,)
        containers.follow([main])
        (tmp_path / SLICES.path(main) / "cpu.max").write_text("1")
        assert drift.drain() == frozenset({main})
        (tmp_path / SLICES.path(main) / "cgroup.events").write_text("populated 1\n")
        assert containers.drain() == {main}
        (tmp_path / "numalet-podb.slice").mkdir()
        assert drift.drain() == frozenset({ROOT})
        (tmp_path / "podc").mkdir()
        assert drift.drain() == frozenset()
        with pytest.raises(EnforcementError) as caught:
            fs.write(main, "cpu.weight", "1")
        assert caught.value.path == f"{tmp_path}/numalet-pod1_2.slice/numalet-pod1_2-main.slice"
