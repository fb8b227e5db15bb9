"""Files of an experiment that a cleanup removes or keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.errors import ClawbloxError, RunLockedError
from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.lines import About
from clawblox.experiment.leftovers import list_leftovers, remove_leftovers
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.running.opening import begin_or_continue
from clawblox.team.pointer import write_pointer
from tests.support.worlds import make_world

SHA = "ab" * 32


class Scene:
    """An experiment whose lines and files are written by hand."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "exp"
        self.directory.mkdir()
        plan = Plan(make_world(root), [AgentSpec("claude")], name="exp", generations=2)
        with Journal(self.directory) as journal:
            begin_or_continue(journal, self.directory, plan)

    @property
    def runs(self) -> Path:
        return self.directory / "chains" / "r1" / "runs"

    def write(self, attempt: str, generation: int, *lines: tuple[Any, dict[str, Any]]) -> None:
        with Journal(self.directory) as journal:
            for type_, data in lines:
                journal.append(type_, data, About("r1", generation, attempt))

    def archive(self, run: str, file: str) -> Path:
        path = self.runs / run / "checkpoints" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 100)
        return path

    def names(self) -> list[str]:
        leftovers = list_leftovers(read_experiment(self.directory))
        return [str(leftover.path.relative_to(self.runs)) for leftover in leftovers]

    def remove(self) -> None:
        record = read_experiment(self.directory)
        remove_leftovers(self.directory, list_leftovers(record))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


OPENED = ("opened", {"origin": None, "phase": "work", "revision": 0})
COMMITTED = ("committed", {"usage": [], "agents": [], "workspaces": []})


def checkpoint(file: str, kind: str = "periodic") -> tuple[Any, dict[str, Any]]:
    return "checkpoint", {"file": file, "sha256": SHA, "kind": kind, "elapsed_s": 1.0}


def failed(moved_to: str) -> tuple[Any, dict[str, Any]]:
    return "failed", {"cause": "world", "text": "died", "usage": [], "moved_to": moved_to}


def test_script_run_with_the_name_of_a_spent_attempt_is_kept(scene: Scene) -> None:
    scene.archive("a", "of-the-script.ckpt")
    scene.archive("a.failed-1", "t1.ckpt")
    scene.write("a", 1, OPENED, checkpoint("t1.ckpt", "pause"), ("paused", {"usage": []}))
    with Journal(scene.directory) as journal:
        data = {"run_id": "a", "rows": [], "workspaces": []}
        journal.append("imported", data, About("r1", 1))
    assert scene.names() == []
    scene.remove()
    assert (scene.runs / "a").is_dir()


def test_failed_runs_and_periodic_checkpoints_of_committed_generations_are_removed(
    scene: Scene,
) -> None:
    scene.archive("a.failed-1", "t1.ckpt")
    for file in ("t2.ckpt", "boundary.ckpt", "end.ckpt"):
        scene.archive("b", file)
    scene.write("a", 1, OPENED, checkpoint("t1.ckpt"), failed("a.failed-1"))
    points = (checkpoint("t2.ckpt"), checkpoint("boundary.ckpt", "boundary"))
    scene.write("b", 1, OPENED, *points, checkpoint("end.ckpt", "end"), COMMITTED)
    assert scene.names() == ["a.failed-1", "b/checkpoints/t2.ckpt"]
    scene.remove()
    assert scene.names() == []
    assert sorted(path.name for path in scene.runs.rglob("*.ckpt")) == ["boundary.ckpt", "end.ckpt"]
    (generation,) = read_experiment(scene.directory).state.chain("r1").generations.values()
    assert [point.ref.file for point in generation.checkpoints()] == ["boundary.ckpt", "end.ckpt"]


def test_run_of_the_archive_in_the_pointer_is_kept(scene: Scene) -> None:
    archive = scene.archive("a.failed-1", "t1.ckpt")
    scene.archive("b", "none").unlink()
    scene.write("a", 1, OPENED, checkpoint("t1.ckpt"), failed("a.failed-1"))
    scene.write("b", 1, OPENED, COMMITTED)
    assert scene.names() == ["a.failed-1"]
    pointer = scene.runs.parent / "checkpoint.json"
    write_pointer(pointer, archive, {})
    assert scene.names() == []


def test_files_needed_for_a_retry_are_kept(scene: Scene) -> None:
    scene.archive("a.failed-1", "t1.ckpt")
    scene.archive("b.failed-2", "none").unlink()
    scene.write("a", 1, OPENED, checkpoint("t1.ckpt"), failed("a.failed-1"))
    scene.write("b", 1, OPENED, failed("b.failed-2"))
    assert scene.names() == ["b.failed-2"]


def test_sources_of_forks_are_kept(scene: Scene) -> None:
    scene.archive("a", "t1.ckpt")
    scene.archive("b", "t2.ckpt")
    interrupted = ("interrupted", {"usage": []})
    scene.write("a", 1, OPENED, checkpoint("t1.ckpt"), interrupted)
    scene.write("b", 1, OPENED, checkpoint("t2.ckpt"), COMMITTED)
    assert scene.names() == ["a", "b/checkpoints/t2.ckpt"]
    for number, (attempt, file) in enumerate([("a", "t1.ckpt"), ("b", "t2.ckpt")], 1):
        source = {"chain": "r1", "generation": 1, "attempt": attempt, "file": file, "sha256": SHA}
        with Journal(scene.directory) as journal:
            facts = {"source": source, "group": 1, "number": number}
            journal.append("chain.forked", facts, About(f"r1-f1-{number}"))
    assert scene.names() == []


def test_source_of_a_concurrent_fork_is_kept(scene: Scene) -> None:
    archive = scene.archive("b", "t2.ckpt")
    scene.write("b", 1, OPENED, checkpoint("t2.ckpt"), COMMITTED)
    leftovers = list_leftovers(read_experiment(scene.directory))
    assert [leftover.path for leftover in leftovers] == [archive]
    (ref,) = leftovers[0].checkpoints
    with Journal(scene.directory) as journal:
        facts = {"source": attrs.asdict(ref), "group": 1, "number": 1}
        journal.append("chain.forked", facts, About("r1-f1-1"))
    remove_leftovers(scene.directory, leftovers)
    assert archive.exists()
    assert list(read_experiment(scene.directory).state.checkpoints())


def test_run_of_an_unfinished_attempt_is_kept(scene: Scene) -> None:
    scene.archive("a", "none").unlink()
    scene.write("a", 1, OPENED)
    assert scene.names() == []


def test_no_file_behind_a_link_is_removed(scene: Scene, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    scene.runs.mkdir(parents=True)
    (scene.runs / "a.failed-1").symlink_to(outside)
    scene.write("a", 1, OPENED, failed("a.failed-1"))
    with pytest.raises(ClawbloxError, match="symbolic link"):
        scene.remove()
    assert (outside / "file").exists()


def test_archive_in_the_pointer_is_kept(scene: Scene) -> None:
    archive = scene.archive("b", "t2.ckpt")
    scene.write("b", 1, OPENED, checkpoint("t2.ckpt"), COMMITTED)
    pointer = scene.directory / "chains" / "r1" / "checkpoint.json"
    pointer.write_text(f'{{"checkpoint": "{archive}"}}')
    assert scene.names() == []


def test_running_experiment_is_not_cleaned(scene: Scene) -> None:
    scene.archive("b", "t2.ckpt")
    scene.write("b", 1, OPENED, checkpoint("t2.ckpt"), COMMITTED)
    with Journal(scene.directory), pytest.raises(RunLockedError):
        scene.remove()
    assert scene.names() == ["b/checkpoints/t2.ckpt"]
