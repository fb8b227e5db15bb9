"""A finished recording has size and digest in its manifest, so later damage has a name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawblox.replay import VerifiedReplay
from clawblox.rundir.recordings import find_damage, list_recordings
from clawblox.views.verified_runs import describe_replay, sum_up
from tests.recording.files import content, rewrite
from tests.replay.lives import verified

SECOND = "recordings/recording-0002.jsonl.zst"


def entries(run: Path) -> list[dict[str, Any]]:
    document = json.loads((run / ".clawblox" / "manifest.json").read_text())
    return list(document["recordings"])


def damaged(lives: Path, target: Path, damage: Callable[[Path], object]) -> Path:
    run = shutil.copytree(lives, target, symlinks=True)
    damage(run / SECOND)
    return run


def second(run: Path) -> tuple[VerifiedReplay, int, str]:
    """Verify the second recording; return the result, the exit status and the sum."""
    result = verified(run, number=2)
    return result.replays[0], result.exit_status, sum_up(result)


def test_only_a_finished_recording_has_a_digest(lives: Path) -> None:
    killed, finished = entries(lives)
    assert killed.keys() == {"path", "events", "format"}
    assert finished.items() >= content(lives / SECOND).items()
    assert [find_damage(found, lives) for found in list_recordings(lives)] == [None, None]


def test_a_cut_recording_is_incomplete(lives: Path, tmp_path: Path) -> None:
    run = damaged(lives, tmp_path / "run", lambda path: os.truncate(path, path.stat().st_size - 9))
    replay, status, total = second(run)
    assert (replay.damage, replay.status, status) == ("incomplete", "incomplete", 3)
    assert "incomplete, its file was cut after it was finished" in describe_replay(replay)
    assert total.endswith(": 1 incomplete")
    assert replay.document()["damage"] == "incomplete"


def test_a_recording_with_other_content_is_reported_as_changed(lives: Path, tmp_path: Path) -> None:
    def write_again(path: Path) -> None:
        path.unlink()
        rewrite(lives / SECOND, path, lambda records: records[:-1])
        size = (lives / SECOND).stat().st_size
        if path.stat().st_size < size:  # as long as before: the digest decides
            with path.open("ab") as file:
                file.truncate(size)

    replay, status, _ = second(damaged(lives, tmp_path / "run", write_again))
    assert (replay.damage, replay.status, status) == ("changed", "different", 1)
    longer = damaged(
        lives, tmp_path / "longer", lambda path: path.write_bytes(path.read_bytes() + b"\0")
    )
    assert second(longer)[0].damage == "changed"


def test_an_entry_without_a_usable_digest_is_read_as_before(lives: Path, tmp_path: Path) -> None:
    for number, sha256 in enumerate([None, 7, "x" * 64, "A" * 64]):
        run = shutil.copytree(lives, tmp_path / str(number), symlinks=True)
        document = json.loads((run / ".clawblox" / "manifest.json").read_text())
        document["recordings"][1] |= {"sha256": sha256, "size_bytes": 1}
        (run / ".clawblox" / "manifest.json").write_text(json.dumps(document))
        assert [find_damage(found, run) for found in list_recordings(run)] == [None, None]


# ------------------------------------------------------------------------- the files of the world


def test_corrected_comment_is_named_without_other_effects(lives: Path, tmp_path: Path) -> None:
    world = shutil.copytree(lives.parent / "dice", tmp_path / "world")
    same = verified(lives, number=2, world_dir=world)
    assert [replay.changed_files for replay in same.replays] == [()]
    (world / "world.py").write_text((world / "world.py").read_text() + "# mended\n")
    (world / "notes.txt").write_text("new")
    run = verified(lives, world_dir=world)
    assert run.exit_status == 0
    assert [replay.status for replay in run.replays] == ["equal", "equal"]
    assert [replay.changed_files for replay in run.replays] == [("notes.txt", "world.py")] * 2
    for replay in run.replays:
        assert "; notes.txt, world.py changed since the recording" in describe_replay(replay)
    assert run.document()["recordings"][0]["changed_files"] == ("notes.txt", "world.py")


@pytest.mark.thorough
def test_a_recording_without_the_list_of_files_says_that_some_changed(
    lives: Path, tmp_path: Path
) -> None:
    world = shutil.copytree(lives.parent / "dice", tmp_path / "world")
    (world / "notes.txt").write_text("new")
    alone = shutil.copy(lives / "recordings" / "recording-0001.jsonl.zst", tmp_path)
    (replay,) = verified(Path(alone), world_dir=world).replays
    assert replay.changed_files == (".",)
    assert "; files of the world changed since the recording" in describe_replay(replay)

    def without(records: Any) -> Any:
        del records[0][1]["world_files"]
        return records

    older = rewrite(Path(alone), tmp_path / "older.jsonl.zst", without)
    assert verified(older, world_dir=world).replays[0].changed_files is None
