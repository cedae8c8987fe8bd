"""`numalet run` on this very host, as far as it gets where there is no cgroup v2 at the root it is given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "agent", "run", "--log-level", "error"),
            *("--cgroup-root", str(root / "cgroup"), "--state-dir", str(root / "state")),
            *("--manifests", str(root / "manifests"), "--socket", str(root / "control.sock")),
            *("--metrics", "", *arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_without_cgroups_it_says_so_with_the_way_out_and_leaves_nothing_behind(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 2
    assert result.stderr == (
        f"numalet: no cgroup v2 hierarchy is mounted at or above {tmp_path}/cgroup\n"
        "  boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2 at /sys/fs/cgroup\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_reserved_memory_that_does_not_add_up_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "kubeReserved: {memory: 64Mi}\nreservedMemory: [{numaNode: 0, limits: {memory: 3Mi}}]\n"
    )
    result = run(tmp_path, "--config", str(config))
    assert result.returncode == 2
    assert 'the total amount "3Mi" of type "memory" is not equal to the value "164Mi"' in result.stderr
    assert "kubeReserved 64Mi + systemReserved 0 + evictionHard 100Mi = 164Mi" in result.stderr
