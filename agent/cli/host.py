"""`numalet release-host`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("release-host")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/numalet"),
    show_default=True,
    help="The daemon's stateDir, where the host's own settings are remembered.",
)
def release_host(state_dir: Path) -> None:
    """Give the host's processes and interrupts back the CPUs that numalet keeps them off.

    Bound units and cgroups get back what they had, too. For a host that numalet is removed from, or after
    hostIsolation was turned off; the daemon must be down. Pods and their cgroups stay as they are, but
    partitions are dissolved. Nothing to undo is no error.

    \b
    systemctl stop numalet && numalet release-host
    numalet release-host --state-dir /srv/numalet
    """
    from agent.checkpoint.store import StateDir  # noqa: PLC0415 - help must not wait for it
    from agent.containermanager.hostgates import release_host as give_back  # noqa: PLC0415
    from agent.sysfs.discovery import discover  # noqa: PLC0415
    from agent.sysfs.reader import HostSysfs  # noqa: PLC0415

    if not state_dir.is_dir():
        raise click.BadParameter(f"{state_dir} does not exist", param_hint="--state-dir")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    with StateDir(state_dir) as store:
        done = give_back(Path("/sys/fs/cgroup"), store, boot_id, discover(HostSysfs(Path("/"))))
    click.echo("the host has its CPUs and interrupts back" if done else "nothing of the host was changed")
