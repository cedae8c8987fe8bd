"""What is built to be installed: the wheel by itself, the Debian package's contents, the lock both rest on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from agent import __version__
from scripts.lock import pinned, problems
from scripts.man import contexts, page_name

ROOT = Path(__file__).parents[1]
MACHINE = ROOT / "tests/data/machines/64amd64-4p2n4ca2co.json.xz"
HASH = "--hash=sha256:" + 64 * "a"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = directory.glob("*.whl")
    return built


def test_the_wheel_holds_all_of_the_program_and_nothing_of_the_tree(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).namelist()
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "agent"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    program = {name for name in files if name.split("/")[0] == "agent"}
    assert program == set(tracked)
    assert {"agent/py.typed", "agent/config/schema.json", "agent/api/page/page.html"} <= program
    about = f"numalet-{__version__}"
    assert {name.split("/")[0] for name in files} == {"agent", f"{about}.dist-info", f"{about}.data"}
    assert f"{about}.dist-info/licenses/LICENSE" in files
    assert f"{about}.data/data/share/numalet/numalet.service" in files
    pages = {Path(name).stem for name in files if name.startswith(f"{about}.data/data/share/man/man1/")}
    assert pages == {page_name(context) for context in contexts()}


def test_the_wheel_runs_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    install = [sys.executable, "-m", "pip", f"--python={tmp_path}/venv/bin/python", "install", "--no-index"]
    subprocess.run([*install, "--no-deps", "--quiet", str(wheel)], cwd=tmp_path, check=True)
    (packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # after its own
    assert (tmp_path / "venv/share/numalet/numalet.service").read_bytes() == (
        ROOT / "systemd/numalet.service"
    ).read_bytes()

    def numalet(*words: str | Path) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMALET"))}
        return subprocess.run(
            [tmp_path / "venv/bin/numalet", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert numalet("--version") == f"numalet, version {__version__}\n"
    assert numalet("topology", "--machine", MACHINE).startswith("64 CPUs, 32 cores, 4 sockets")
    assert numalet("config", "schema") == (ROOT / "agent/config/schema.json").read_text()
    where = [f"{tmp_path}/venv/bin/python", "-c", "import agent; print(agent.__file__)"]
    loaded = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert loaded.startswith(str(tmp_path))


def test_the_lock_is_whole_and_has_a_hash_for_every_package() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(wanted) > 10
    assert list(problems(wanted, pinned((ROOT / "requirements.lock").read_text()))) == []


@pytest.mark.parametrize(
    ("wanted", "lock", "problem"),
    [
        ("click>=8.1,<9", "", "pyproject.toml needs click<9,>=8.1, which is not in it"),
        ("click>=8.1,<9", f"click==9.0 \\\n    {HASH}", "pyproject.toml needs click<9,>=8.1, it has 9.0"),
        ("click>=8.1,<9", "click==8.1", "click 8.1 has no hash"),
        (
            "click>=8.1,<9",
            f"click==8.1 \\\n    {HASH}\nPyYAML==6.0 \\\n    {HASH}",
            "nothing needs pyyaml",
        ),
    ],
    ids=["missing", "forbidden", "without-hash", "for-nothing"],
)
def test_a_lock_that_does_not_fit_is_told(wanted: str, lock: str, problem: str) -> None:
    assert list(problems([wanted], pinned(lock + "\n"))) == [problem]


def test_the_changelog_knows_the_version() -> None:
    assert re.search(rf"^## \[{re.escape(__version__)}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
