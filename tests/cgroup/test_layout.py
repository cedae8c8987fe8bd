import pytest

from agent.cgroup import layout
from agent.cgroup.layout import CgroupDir, Kind
from agent.domain.pod import PodUid
from agent.domain.qos import QosClass

UID = PodUid("0b1c-4e")


@pytest.mark.parametrize(
    ("qos", "path"),
    [
        (QosClass.GUARANTEED, "pod0b1c-4e"),
        (QosClass.BURSTABLE, "burstable/pod0b1c-4e"),
        (QosClass.BEST_EFFORT, "besteffort/pod0b1c-4e"),
    ],
    ids=str,
)
def test_a_pod_is_where_the_kubelet_would_put_it(qos: QosClass, path: str) -> None:
    assert layout.pod_dir(UID, qos) == path
    assert layout.container_dir(layout.pod_dir(UID, qos), "main") == f"{path}/main"
    assert layout.pooled_dir(layout.pod_dir(UID, qos), "main") == f"{path}/shared.pool/main"


@pytest.mark.parametrize("uid", ["", "..", "a/b", "../x", ".hidden", "x" * 300, "a b", "é"])
def test_a_uid_that_could_leave_its_place_is_refused(uid: str) -> None:
    with pytest.raises(ValueError, match="cannot name a cgroup"):
        layout.pod_dir(PodUid(uid), QosClass.GUARANTEED)


@pytest.mark.parametrize("name", ["", "..", "a/b", "shared.pool", "cgroup.procs", "Main", "-a", "a" * 64])
def test_a_container_name_is_a_dns_label(name: str) -> None:
    with pytest.raises(ValueError, match="DNS label"):
        layout.container_dir(CgroupDir("podx"), name)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("", Kind.ROOT),
        ("burstable", Kind.QOS),
        ("podx", Kind.POD),
        ("burstable/podx", Kind.POD),
        ("podx/shared.pool", Kind.POOL),
        ("podx/main", Kind.CONTAINER),
        ("podx/shared.pool/main", Kind.POOLED),
        ("podx/main/inner", Kind.NESTED),
        ("podx/other.scope", Kind.NESTED),
        ("podx/shared.pool/main/inner", Kind.NESTED),
        ("numalet.service", Kind.FOREIGN),
        ("burstable/other", Kind.FOREIGN),
        ("pod", Kind.FOREIGN),
        ("other/podx", Kind.FOREIGN),
    ],
)
def test_a_path_tells_what_it_is(path: str, kind: Kind) -> None:
    assert layout.kind_of(CgroupDir(path)) is kind


def test_parents_and_ancestors() -> None:
    assert list(layout.ancestors(CgroupDir("burstable/podx/main"))) == ["burstable/podx", "burstable"]
    assert layout.parent_of(CgroupDir("podx")) == layout.ROOT == layout.parent_of(layout.ROOT)
