"""The results of a verified replay are kept in its directory, and show later changes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from clawblox.errors import ClawbloxError
from clawblox.replay import VerifiedRun
from clawblox.replay.kept_verification import (
    keep_verification,
    read_verification,
)
from clawblox.world.kept_reports import KeptReport
from tests.replay.lives import copied, dice_world, recorded_lives, verified

FIRST, SECOND = (f"recordings/recording-000{number}.jsonl.zst" for number in (1, 2))


@pytest.fixture(scope="module")
def kept(lives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its results."""
    run = copied_run(lives, tmp_path_factory.mktemp("kept") / "run")
    keep_verification(run, verified(run), "0.1.0")
    return run


@pytest.fixture
def moved(kept: Path, tmp_path: Path) -> Path:
    """A copy of the run somewhere else."""
    return copied_run(kept, tmp_path / "moved")


def copied_run(run: Path, target: Path) -> Path:
    ignore = shutil.ignore_patterns("*.sock")
    return shutil.copytree(run, target, symlinks=True, ignore=ignore)


def read(run: Path) -> KeptReport[VerifiedRun]:
    kept = read_verification(run)
    assert kept is not None
    return kept


def test_results_are_read_back_also_from_a_directory_that_was_moved(
    lives: Path, moved: Path
) -> None:
    kept = read(moved)
    assert [replay.status for replay in kept.report.replays] == ["equal", "equal"]
    places = [moved / FIRST, moved / SECOND]
    assert [replay.recording for replay in kept.report.replays] == places
    assert kept.report.document()["recordings"][1]["link"]["kind"] == "continues"
    assert kept.judged.keys() == {".", str(lives.parent / "dice")}
    assert kept.find_changes() == ()
    assert read_verification(moved.parent) is None


def test_changed_files_are_named(moved: Path, dice: Path) -> None:
    os.truncate(moved / SECOND, 99)
    assert read(moved).find_changes() == (SECOND,)
    (moved / FIRST).unlink()
    assert read(moved).find_changes() == (FIRST, SECOND)
    (moved / ".clawblox" / "manifest.json").unlink()
    assert read(moved).find_changes() == (FIRST, SECOND)


def test_a_world_that_changed_or_is_gone_since_is_named(
    lives: Path, moved: Path, tmp_path: Path
) -> None:
    world = copied(lives.parent / "dice", tmp_path / "other", "world.toml", "dice", "cube")
    keep_verification(moved, verified(moved, world_dir=world), "0.1.0")
    assert read(moved).find_changes() == ()
    (world / "notes.txt").touch()
    assert read(moved).find_changes() == (f"{world}/notes.txt",)
    shutil.rmtree(world)
    assert read(moved).find_changes() == (str(world),)


@pytest.mark.thorough
def test_a_run_in_its_world_may_move_with_it(tmp_path: Path) -> None:
    world = dice_world(tmp_path)
    run = world / ".clawblox" / "runs" / "r1"
    recorded_lives(world, run, [("Bet", 3)], rounds=2)
    keep_verification(run, verified(run), "0.1.0")
    world.rename(tmp_path / "elsewhere")
    kept = read(tmp_path / "elsewhere" / ".clawblox" / "runs" / "r1")
    assert kept.find_changes() == ()
    (tmp_path / "elsewhere" / "notes.txt").touch()
    assert kept.find_changes() == ("../../../notes.txt",)


def test_single_recording_file_has_no_judged_files(lives: Path, dice: Path) -> None:
    assert verified(lives / SECOND, world_dir=dice).judged == {}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"outcome": "different"}, "an outcome does not follow"),
        ({"outcome": None}, "an outcome does not follow"),
        ({"recording": 7}, "at `$.replays[1].recording`"),
        ({"recording": "a\x00b"}, "a recording has no path"),
        ({"damage": "burnt"}, "burnt"),
        ({"tick": "9"}, "Expected `int`, got `str`"),
        ({"link": {"kind": "likes", "tick": 1}}, "likes"),
        ({"divergence": []}, "Expected"),
    ],
)
def test_results_of_another_shape_are_refused(
    moved: Path, change: Mapping[str, object], text: str
) -> None:
    file = moved / ".clawblox" / "verify.json"
    document = json.loads(file.read_text())
    document["report"]["recordings"][1] |= change
    file.write_text(json.dumps(document))
    with pytest.raises(ClawbloxError, match="cannot be read") as refused:
        read_verification(moved)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    "report", [{}, {"recordings": 1}, {"recordings": [1]}, {"recordings": [], "scores": 1}]
)
def test_file_other_than_results_is_refused(moved: Path, report: Mapping[str, object]) -> None:
    file = moved / ".clawblox" / "verify.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "report": report}))
    with pytest.raises(ClawbloxError, match="cannot be read"):
        read_verification(moved)
