"""Where numalet cannot enforce it does not start, writes nothing, and says why and what to do."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.node import MOUNT, NUMALET, PATIENCE, numalet, remove_cgroup

pytestmark = pytest.mark.vm

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture
def work() -> Iterator[Path]:
    """A directory that anybody may use."""
    work = Path(tempfile.mkdtemp(prefix="numalet-test-"))
    work.chmod(0o777)
    yield work
    shutil.rmtree(work)


@pytest.fixture
def crowded() -> Iterator[Path]:
    """A cgroup that holds a process and passes on nothing: it can have no children with controllers."""
    parent = MOUNT / "numalet-test-crowded"
    parent.mkdir()
    with subprocess.Popen(["sleep", "600"]) as process:
        (parent / "cgroup.procs").write_text(str(process.pid))
        yield parent
        remove_cgroup(parent)


def refusal(work: Path, cgroup_root: Path, *prefix: str) -> str:
    """What a daemon says that does not start and leaves nothing."""
    controllers = (MOUNT / "cgroup.subtree_control").read_text()
    options = ("--state-dir", work / "state", "--socket", work / "run/control.sock", "--metrics", "")
    words = list(map(str, ("run", "--cgroup-root", cgroup_root, "--manifests", work, *options)))
    if prefix:
        program = [*prefix, *NUMALET, *words]
        done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)
    else:
        done = numalet(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert list(work.iterdir()) == []
    assert not cgroup_root.exists()
    assert (MOUNT / "cgroup.subtree_control").read_text() == controllers
    return done.stderr


def test_a_root_outside_cgroup_v2_is_refused(work: Path) -> None:
    told = refusal(work, Path("/tmp/x"))  # noqa: S108 - it is not to be made
    assert "no cgroup v2 hierarchy is mounted at or above /tmp/x" in told
    assert "mount cgroup2" in told


def test_somebody_who_is_not_root_is_refused(work: Path) -> None:
    told = refusal(work, MOUNT / "numalet-test-nobody/below", *NOBODY)
    assert f"{MOUNT}/numalet-test-nobody/below cannot be made: {MOUNT} is not writable" in told
    assert "run as root" in told


def test_a_parent_that_cannot_pass_a_controller_on_is_refused(work: Path, crowded: Path) -> None:
    told = refusal(work, crowded / "below")
    assert f"{crowded} holds processes, so it cannot pass on cpu, cpuset, memory" in told
    assert "move them into a child cgroup" in told
