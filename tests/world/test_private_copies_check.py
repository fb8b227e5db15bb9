"""Private copies of worlds that need files outside of their directory contain these files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox import AsyncWorld
from clawblox.conformance import Report, check_world
from clawblox.world import private_copies
from clawblox.world.private_copies import copy_world, find_paths_above
from tests.replay.lives import DICE, recorded_lives, verified
from tests.replay.test_verified_replay import BETS
from tests.support.sampling import sampled

pytestmark = pytest.mark.needs("git")

CHECKS = ("contract.ready", "contract.flags", "refuse.missing", "restore.sessions")


def git(directory: Path, *words: str) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "-C", str(directory), *words], check=True, env=env, capture_output=True)


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def make_repository(top: Path, command: str = '["{python}", "../../server.py"]') -> Path:
    """Write a repository with a world whose program is two directories above; return the world."""
    write(top / "server.py", DICE.read_text())
    world = top / "worlds" / "dice"
    run = f'[run]\ncommand = {command}\nlisten = "inherit"\nreseed = true\n'
    write(world / "world.toml", f'name = "dice"\n{run}')
    write(top / ".gitignore", "*.log\n/private/\n")
    git(top, "init")
    return world


def check(world: Path, *names: str, **options: Any) -> Report:
    return anyio.run(lambda: check_world(world, names or CHECKS, seed=1, **options))


def copy(world: Path, scratch: Path, **options: Any) -> AsyncWorld:
    async def make() -> AsyncWorld:
        return await copy_world(world, scratch, **options)

    return anyio.run(make)


def files_in(directory: Path) -> list[str]:
    found = (Path(parent, name) for parent, _, names in os.walk(directory) for name in names)
    return sorted(str(path.relative_to(directory)) for path in found)


def make_silent_repository(top: Path) -> Path:
    """Write a repository whose world needs a module above that ``world.toml`` does not name."""
    world = make_repository(top, '["{python}", "world.py"]')
    lines = ["import runpy", "from pathlib import Path"]
    lines.append(
        "runpy.run_path(str(Path(__file__).parents[2] / 'server.py'), run_name='__main__')"
    )
    write(world / "world.py", "\n".join(lines))
    return world


def statuses(report: Report) -> set[str]:
    return {result.status for result in report.checks}


def test_a_world_whose_program_is_two_directories_above_is_checked(tmp_path: Path) -> None:
    report = check(make_repository(tmp_path))
    assert report.obstacle == ""
    assert statuses(report) == {"passed"}


@pytest.mark.thorough
def test_a_world_with_an_unnamed_module_above_is_checked(tmp_path: Path) -> None:
    world = make_silent_repository(tmp_path)
    assert statuses(check(world)) == {"passed"}


@pytest.mark.thorough
@pytest.mark.parametrize("make", sampled([make_repository, make_silent_repository], every=2))
def test_a_recording_of_a_world_with_a_module_above_is_verified(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    world = make(tmp_path / "repository")
    run = recorded_lives(world, tmp_path / "run", BETS, rounds=6)
    outcomes = [replay.progress.outcome for replay in verified(run, world_dir=world).replays]
    assert outcomes == ["equal", "equal"]


@pytest.mark.thorough
def test_the_error_of_a_replay_explains_why_the_first_copy_failed(tmp_path: Path) -> None:
    world = make_silent_repository(tmp_path / "repository")
    run = recorded_lives(world, tmp_path / "run", BETS, rounds=2)
    write(tmp_path / "repository" / "server.py", "raise SystemExit('broken')")
    [replay] = verified(run, number=1, world_dir=world).replays
    assert replay.status == "impossible"
    assert replay.progress.reason.startswith("the world did not start: ")
    assert "No such file or directory" in replay.progress.reason
    assert "--in-place" in replay.progress.reason


def test_a_copy_contains_all_files_that_git_does_not_ignore(tmp_path: Path) -> None:
    top = tmp_path / "repository"
    world = make_repository(top)
    write(world / "model.log", "an ignored file of the world itself")
    write(top / "tracked.log")
    git(top, "add", "--force", "tracked.log")
    write(top / "ignored.log")
    write(top / "private" / "key")
    write(top / "ä b\n.txt")
    write(top / "nested" / "file")
    git(top / "nested", "init")
    write(top / "__pycache__" / "server.pyc")
    write(top / "runs" / ".clawblox" / "manifest.json")
    write(top / "deleted")
    git(top, "add", "deleted")
    (top / "deleted").unlink()
    (top / "inside").symlink_to("worlds/dice/world.toml")
    (top / "outside").symlink_to(os.path.relpath(write(tmp_path / "elsewhere"), top))
    os.mkfifo(top / "pipe")
    copied = copy(world, tmp_path / "scratch")
    assert copied.dir == tmp_path / "scratch" / "world" / "worlds" / "dice"
    assert files_in(tmp_path / "scratch" / "world") == [
        ".gitignore",
        "inside",
        "server.py",
        "tracked.log",
        "worlds/dice/model.log",
        "worlds/dice/world.toml",
        "ä b\n.txt",
    ]


def test_a_world_without_paths_above_is_copied_alone(tmp_path: Path) -> None:
    world = make_repository(tmp_path / "repository", '["{python}", "a/../world.py", "../nowhere"]')
    assert copy(world, tmp_path / "scratch").dir == tmp_path / "scratch" / "world"


def too_many(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_copies, "MAX_BESIDE_FILES", 1)


def too_large(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (top / "data").open("wb") as file:
        file.truncate((512 << 20) + 1)


def no_repository(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / ".git").rename(top / "git")


def smaller_repository(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(top / "worlds", "init")


def no_git(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(top))


def ignored_program(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top / ".gitignore", "server.py\n")


def damaged_repository(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top / ".git" / "index", "nothing that git can read")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (too_many, "has more than 1 files"),
        (too_large, "has more than 512 MB"),
        (no_repository, "the directory is not in a git repository"),
        (smaller_repository, "the git repository is only "),
        (no_git, "git is not installed"),
        (ignored_program, "git ignores it"),
        (damaged_repository, "git cannot list "),
    ],
)
def test_the_error_names_a_path_that_cannot_be_copied(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, pytest.MonkeyPatch], None],
    reason: str,
) -> None:
    world = make_repository(tmp_path)
    change(tmp_path, monkeypatch)
    report = check(world, "restore.trace", "refuse.missing", "static.world_toml", "contract.ready")
    assert report.exit_status() == 3
    assert [result.status for result in report.checks] == [
        "passed",
        "could_not_run",
        "could_not_run",
        "could_not_run",
    ]
    assert "../../server.py" in report.verdict.sentence
    assert reason in report.verdict.sentence
    assert "--in-place" in report.obstacle
    assert {result.evidence for result in report.unverified} == {report.obstacle.splitlines()[0]}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_repository_of_another_user_is_listed(tmp_path: Path) -> None:
    world = make_repository(tmp_path)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 12345, 12345)
    assert statuses(check(world, "contract.ready")) == {"passed"}


def test_a_world_that_cannot_be_copied_is_checked_in_place_on_request(tmp_path: Path) -> None:
    world = make_repository(tmp_path)
    (tmp_path / ".git").rename(tmp_path / "git")
    assert statuses(check(world, "contract.ready", in_place=True)) == {"passed"}


def test_verify_names_a_path_that_cannot_be_copied(tmp_path: Path) -> None:
    world = make_repository(tmp_path / "repository")
    run = recorded_lives(world, tmp_path / "run", BETS, rounds=6)
    (tmp_path / "repository" / ".git").rename(tmp_path / "git")
    replay = verified(run, number=1, world_dir=world).replays[0]
    assert replay.progress.outcome == "impossible"
    assert "world.toml names ../../server.py" in replay.progress.reason
    assert "--in-place" in replay.progress.reason


def test_the_configuration_of_a_repository_starts_no_program(tmp_path: Path) -> None:
    top = tmp_path / "repository"
    world = make_repository(top)
    program = write(tmp_path / "program", f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    elsewhere = write(tmp_path / "elsewhere" / "file").parent
    (top / ".git" / "hooks").mkdir(exist_ok=True)
    (top / ".git" / "hooks" / "post-index-change").symlink_to(program)
    write(top / ".gitattributes", "* filter=own\n")
    for name, value in {
        "core.fsmonitor": str(program),
        "core.worktree": str(elsewhere),
        "core.sshCommand": str(program),
        "core.pager": str(program),
        "filter.own.clean": str(program),
        "alias.ls-files": f"!{program}",
        "extensions.partialClone": "origin",
        "remote.origin.url": str(top),
        "remote.origin.uploadpack": str(program),
        "remote.origin.promisor": "true",
    }.items():
        git(top, "config", name, value)
    copied = copy(world, tmp_path / "scratch")
    assert (copied.dir / "../../server.py").is_file()
    assert not (copied.dir / "../../file").exists()
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("run", "paths"),
    [
        ({"command": ["python", "../../server.py"]}, ["../../server.py"]),
        ({"command": ["uv", "run", "--project", "../.."]}, ["../.."]),
        ({"command": ["uv", "--project=../..", "x"]}, ["../.."]),
        ({"command": ["bash", "-c", "cd ../.. && exec python server.py"]}, ["../.."]),
        ({"command": ["bash", "run.sh", "models/../../a b"]}, ["models/../../a b"]),
        ({"command": ["run", "../nowhere", "models/../x", "/a/../../b", "...", "a..b"]}, []),
        ({"sidecar": [{"command": ["node", "../../server.py"]}]}, ["../../server.py"]),
        ({"command": ["x\0/../../.."]}, []),
    ],
)
def test_paths_above_a_world_are_found_in_its_commands(
    tmp_path: Path, run: dict[str, Any], paths: list[str]
) -> None:
    write(tmp_path / "server.py")
    write(tmp_path / "worlds" / "a b")
    world = tmp_path / "worlds" / "panda"
    (world / "models").mkdir(parents=True)
    assert find_paths_above(world, {"run": run}) == paths


@given(st.lists(st.text("./ =:'\0aé\n")))
def test_the_search_for_paths_never_fails(command: list[str]) -> None:
    for path in find_paths_above(Path("/proc"), {"run": {"command": command}}):
        assert ".." in path


def test_a_world_that_does_not_start_is_reported_once(tmp_path: Path) -> None:
    world = make_repository(tmp_path)
    write(tmp_path / "server.py", "import a_module_that_nobody_has\n")
    report = check(world, "static", "contract", "refuse", "hygiene")
    telling = "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"
    assert report.verdict.sentence.startswith("Restore not shown: the world did not start: ")
    assert telling in report.verdict.sentence
    assert len({result.evidence for result in report.unverified}) == 1
    assert {result.id for result in report.having("passed")} == {
        "static.world_toml",
        "static.spelling",
    }
    assert json.loads(json.dumps(report.document()))["obstacle"].count(telling) == 1
