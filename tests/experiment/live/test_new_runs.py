"""Run directories are complete or absent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.experiment.live.new_runs import discard_partial, making_run
from clawblox.system import files
from clawblox.system.trees import make_writable
from tests.deep import constrained, make_deep

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


def test_a_run_is_on_disk_before_it_has_its_name_and_then_the_name_is(
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


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
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
from clawblox.experiment.live.new_runs import making_run
with making_run(Path(sys.argv[1]), sys.argv[2]) as partial:
    (partial / "agents" / "old" / "workspace").mkdir(parents=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
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
