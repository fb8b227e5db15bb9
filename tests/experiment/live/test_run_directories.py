"""Run directories of attempts: complete or absent; checks, pruning and renames."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox import ClawbloxError
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.layout import chain_dir, runs_dir
from clawblox.experiment.live import live_backend, run_directories
from clawblox.experiment.live.live_backend import LiveBackend
from clawblox.experiment.live.run_directories import (
    discard_partial,
    making_run,
    prune_agent_dir,
    set_aside,
    validate_agent_dir,
)
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.system import files
from clawblox.system.trees import discard_tree, make_writable
from tests.support.deep import constrained, make_deep
from tests.support.worlds import make_world

FILES = (
    "logs/agent.log",
    "runtime/system_prompt.md",
    "codex_session_id.txt",
    "world_session.txt",
    "workspace/SOUL.md",
)
PRUNED = ("sandbox-home/.local/share/claude/versions", "runtime/python", "workspace/.venv")


@pytest.fixture
def agent_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "Eko"
    for name in FILES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("text")
    return directory


def link(path: Path) -> None:
    (path.parent / "target").write_text("text")
    path.symlink_to("target")


REPLACED: list[Callable[[Path], object]] = [Path.touch, Path.mkdir, os.mkfifo, link]


def test_a_complete_directory_is_valid(agent_dir: Path) -> None:
    validate_agent_dir(agent_dir, "codex")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(agent_dir: Path, name: str) -> None:
    (agent_dir / name).unlink()
    with pytest.raises(ClawbloxError, match=f"{name.split('/SOUL')[0]} is missing or empty"):
        validate_agent_dir(agent_dir, "codex")


@pytest.mark.parametrize("replace", REPLACED)
def test_a_file_that_is_empty_or_not_regular_is_invalid(
    agent_dir: Path, replace: Callable[[Path], object]
) -> None:
    (agent_dir / "world_session.txt").unlink()
    replace(agent_dir / "world_session.txt")
    with pytest.raises(ClawbloxError, match=r"world_session\.txt is missing or empty"):
        validate_agent_dir(agent_dir, "codex")


def test_a_workspace_that_is_a_link_is_invalid(agent_dir: Path) -> None:
    (agent_dir / "workspace").rename(agent_dir / "elsewhere")
    (agent_dir / "workspace").symlink_to("elsewhere")
    with pytest.raises(ClawbloxError, match="workspace is missing or empty"):
        validate_agent_dir(agent_dir, "codex")


def test_an_agent_directory_with_the_id_of_another_program_is_invalid(agent_dir: Path) -> None:
    with pytest.raises(ClawbloxError, match=r"claude_session_id\.txt is missing"):
        validate_agent_dir(agent_dir, "claude")


# -- pruning ------------------------------------------------------------------------------------


def test_pruning_removes_only_recreatable_files(agent_dir: Path) -> None:
    for name in PRUNED:
        (agent_dir / name / "lib").mkdir(parents=True)
        (agent_dir / name / "lib" / "file").write_text("text")
    prune_agent_dir(agent_dir)
    assert not any((agent_dir / name).exists() for name in PRUNED)
    validate_agent_dir(agent_dir, "codex")
    prune_agent_dir(agent_dir)


def test_a_tree_of_any_depth_is_removed(agent_dir: Path) -> None:
    for name in PRUNED:
        make_deep(agent_dir / name)
    with constrained():
        prune_agent_dir(agent_dir)
    assert not any((agent_dir / name).exists() for name in PRUNED)


@pytest.mark.parametrize("at", [".", "runtime/python", "workspace", "sandbox-home/.local"])
def test_no_file_behind_a_link_is_removed(agent_dir: Path, tmp_path: Path, at: str) -> None:
    for name in PRUNED:
        (agent_dir / name).mkdir(parents=True)
    outside = tmp_path / "outside"
    (agent_dir / at).rename(outside)
    before = sorted(outside.rglob("*"))
    (agent_dir / at).symlink_to(outside)
    prune_agent_dir(agent_dir)
    assert sorted(outside.rglob("*")) == before


# -- renames ------------------------------------------------------------------------------------


def test_a_failed_run_is_renamed_once_and_durably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(run_directories, "fsync_directory", synced.append)
    run = tmp_path / "runs" / "exp-g001"
    run.mkdir(parents=True)
    for _ in range(2):
        set_aside(tmp_path, "exp-g001", "exp-g001.failed-S")
        assert [path.name for path in run.parent.iterdir()] == ["exp-g001.failed-S"]
        assert synced == [run.parent]


def test_a_run_that_was_never_made_needs_no_rename(tmp_path: Path) -> None:
    set_aside(tmp_path, "exp-g001", "exp-g001.failed-S")
    assert list(tmp_path.iterdir()) == []


def test_set_aside_run_does_not_replace_another_run(tmp_path: Path) -> None:
    for name in ("exp-g001", "exp-g001.failed-S"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    with pytest.raises(FileExistsError):
        set_aside(tmp_path, "exp-g001", "exp-g001.failed-S")


@pytest.mark.anyio
async def test_scored_attempt_is_moved_away_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(make_world(tmp_path), [AgentSpec("claude")], name="exp")
    runs = runs_dir(chain_dir(tmp_path / "exp", "r1", "chains"))
    run_dir = runs / "exp-r1-g001.rescored-1"
    (run_dir / ".clawblox" / "control").mkdir(parents=True)
    order = AttemptOrder(
        chain=plan.chains()[0], generation=1, attempt_id=run_dir.name, phase="score"
    )

    def discard(path: Path) -> None:
        assert not run_dir.exists()  # otherwise its world creates its control socket again
        discard_tree(path)

    monkeypatch.setattr(live_backend, "discard_tree", discard)
    backend = LiveBackend(tmp_path / "exp", "chains", {})
    for _ in range(2):
        await backend.discard(order)
        assert list(runs.iterdir()) == []


# -- new run directories --------------------------------------------------------------------

ATTEMPT = "exp-g002"


def runs(chain_dir: Path) -> list[str]:
    return [path.name for path in (chain_dir / "runs").iterdir()]


def test_a_run_has_its_name_once_it_is_complete(tmp_path: Path) -> None:
    with making_run(tmp_path, ATTEMPT) as partial:
        assert runs(tmp_path) == [partial.name] == [f".{ATTEMPT}.partial"]
        (partial / "agents" / "a0").mkdir()
    assert runs(tmp_path) == [ATTEMPT]
    run = tmp_path / "runs" / ATTEMPT
    assert sorted(path.name for path in run.iterdir()) == [
        "agents",
        "checkpoints",
        "logs",
        "recordings",
        "runtime",
    ]
    assert (run / "agents" / "a0").is_dir()


def test_run_is_durable_before_its_name_and_its_name_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        files, "sync_file_system", lambda _fd: synced.append(("all", runs(tmp_path)))
    )
    monkeypatch.setattr(
        files, "fsync_directory", lambda path: synced.append((path.name, runs(tmp_path)))
    )
    with making_run(tmp_path, ATTEMPT):
        assert synced == []
    assert synced == [("all", [f".{ATTEMPT}.partial"]), ("runs", [ATTEMPT])]


def test_failed_preparation_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), making_run(tmp_path, ATTEMPT):
        1 / 0  # noqa: B018
    assert runs(tmp_path) == []


def test_a_complete_run_is_never_replaced(tmp_path: Path) -> None:
    with making_run(tmp_path, ATTEMPT) as partial:
        (partial / "first").touch()
    with pytest.raises(FileExistsError), making_run(tmp_path, ATTEMPT):
        pass
    assert (tmp_path / "runs" / ATTEMPT / "first").exists()
    assert runs(tmp_path) == [ATTEMPT]


KILLED = """
import os, signal, sys
from pathlib import Path
from clawblox.experiment.live.run_directories import making_run
with making_run(Path(sys.argv[1]), sys.argv[2]) as partial:
    (partial / "agents" / "old" / "workspace").mkdir(parents=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.thorough
def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, tmp_path, ATTEMPT], check=False)
    assert runs(tmp_path) == [f".{ATTEMPT}.partial"]
    with making_run(tmp_path, ATTEMPT):
        pass
    assert runs(tmp_path) == [ATTEMPT]
    assert list((tmp_path / "runs" / ATTEMPT / "agents").iterdir()) == []


def test_discarding_is_idempotent(tmp_path: Path) -> None:
    discard_partial(tmp_path, ATTEMPT)
    (tmp_path / "runs" / f".{ATTEMPT}.partial" / "agents").mkdir(parents=True)
    for _ in range(2):
        discard_partial(tmp_path, ATTEMPT)
        assert runs(tmp_path) == []


def test_an_incomplete_run_is_discarded_at_any_depth(tmp_path: Path) -> None:
    partial = tmp_path / "runs" / f".{ATTEMPT}.partial"
    make_deep(partial)
    partial.chmod(0o500)
    with constrained():
        make_writable(partial)
        discard_partial(tmp_path, ATTEMPT)
    assert runs(tmp_path) == []


def test_a_tree_can_be_made_writable_without_following_links(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a" / "b").mkdir(parents=True)
    outside.mkdir()
    (root / "link").symlink_to(outside)
    for directory in (root / "a" / "b", root / "a", outside):
        directory.chmod(0)
    make_writable(root)
    modes = [path.stat().st_mode & 0o777 for path in (root / "a", root / "a" / "b", outside)]
    assert modes == [0o700, 0o700, 0]
    outside.chmod(0o700)
