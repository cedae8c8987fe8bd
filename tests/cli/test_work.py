"""`numalet attach`, `debug`, and what `get` and `describe` show of containers' lives."""

from __future__ import annotations

import os

import pytest
from click.shell_completion import ShellComplete

from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import CgroupDir
from agent.cli.app import numalet as group
from agent.domain.pod import PodUid
from tests.cli.command import Command
from tests.containermanager.node import budgeted, manifest


def cgroups(numalet: Command) -> FakeCgroups:
    fake = numalet.owner.containers.cgroups
    assert isinstance(fake, FakeCgroups)
    return fake


def run(numalet: Command, directory: str, *, times: int = 1) -> None:
    for _ in range(times):
        pid = cgroups(numalet).spawn()
        cgroups(numalet).add_process(CgroupDir(directory), pid)
        numalet.owner.containers.changed([CgroupDir(directory)])
        cgroups(numalet).exit(pid)
        numalet.owner.containers.changed([CgroupDir(directory)])


def test_pods_are_shown_with_what_runs(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("team.yaml", budgeted("team")))
    run(numalet, "poduid-team/main", times=3)
    out = numalet("get", "pods").out
    assert "exited (2 restarts)" in out
    text = numalet("describe", "pod", "team").out
    assert "\n  status                 exited (2 restarts) since 2026-01-01 " in text
    assert "\n  status                 waiting\n" in text


def test_a_pod_that_ended_is_shown_until_it_is_deleted(numalet: Command) -> None:
    document = manifest("job")
    document["spec"]["restartPolicy"] = "Never"
    file = numalet.file("job.yaml", document)
    numalet("apply", "-f", file)
    run(numalet, "poduid-job/main")
    numalet.owner.end(PodUid("uid-job"))
    assert numalet("get", "pods").out.splitlines()[1].split() == [
        "default/job",
        "Succeeded",
        *["-"] * 3,
        "Completed",
        *["-"] * 2,
    ]
    wide = numalet("get", "pods", "-o", "wide").out.splitlines()[1]
    assert "Completed: all its containers have run and exited; it holds nothing any more" in wide
    assert "0 admitted, 0 degraded, 1 succeeded, 0 rejected\n" in numalet("status").out
    text = numalet("describe", "pod", "job").out
    assert "State      Succeeded\nReason     Completed\n" in text
    assert "Container  main (app)\n  status                 exited since " in text
    assert numalet("apply", "-f", file).out == (
        "pod default/job unchanged: it ended; to run it again: numalet delete default/job\n"
    )
    assert numalet("delete", "job").status == 0
    assert numalet("apply", "-f", file).out == "pod default/job admitted\n"


def test_debug_that_cannot_join_says_why(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("a.yaml", manifest("a")))
    result = numalet("debug", "a", "--", "true")
    assert result.status == 1  # the kernel of this test knows no process of ours
    assert result.err.startswith(f"numalet: cannot write '{os.getpid()}' to poduid-a/debug-1/cgroup.procs")


@pytest.mark.parametrize("words", [("debug", "nobody"), ("attach", "nobody", "main", "--pid", "7")])
def test_no_such_pod(numalet: Command, words: tuple[str, ...]) -> None:
    assert numalet(*words).status == 4


def test_attach_needs_a_process(numalet: Command) -> None:
    result = numalet("attach", "a", "main")
    assert result.status == 2
    assert "Missing option '--pid'" in result.err


@pytest.mark.parametrize("command", ["exec", "attach"])
def test_pods_and_then_their_containers_are_completed(numalet: Command, command: str) -> None:
    numalet("apply", "-f", numalet.file("team.yaml", budgeted("team")))
    complete = ShellComplete(group, {}, "numalet", "_NUMALET_COMPLETE")

    def completed(*words: str) -> list[str]:
        found = complete.get_completions([command, "--socket", numalet.socket, *words], "")
        return [item.value for item in found]

    assert completed() == ["team"]
    assert completed("team") == ["main", "helper"]
    assert completed("nobody") == []
