"""Resumed recordings without an earlier one are checked by the saves that they began from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import AsyncWorld
from clawblox.replay import VerifiedReplay
from clawblox.replay.sources import find_save, read_saved_start
from clawblox.rundir.lives import Origin
from clawblox.views.verified_runs import describe_replay
from tests.recording.files import Records, content, rewrite
from tests.replay.lives import dice_world, play, verified
from tests.support.sampling import sampled


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is recorded only after it was resumed from its save."""
    place = tmp_path_factory.mktemp("resumed")

    async def record() -> None:
        async with AsyncWorld(dir=dice_world(place), run_dir=place / "run") as world:
            await world.start()
            agent = await world.join("Ada")
            await play([agent], [("Bet", 3)], 4, 1)
            save = await world.save()
            await world.stop()
            await world.start(resume=save, record=True)
            await play([await world.join("Bo")], [("Bet", 3)], 4, 1)

    anyio.run(record)
    return place / "run"


def only(run: Path) -> VerifiedReplay:
    (replay,) = verified(run).replays
    return replay


def moved(run: Path, target: Path) -> Path:
    """Copy a run as if it had always been there."""
    shutil.copytree(run, target, symlinks=True)
    for name in ("manifest.json", "instances/records.jsonl"):
        file = target / ".clawblox" / name
        file.write_text(file.read_text().replace(str(run), str(target)))
    return target


def forged(run: Path, target: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """Copy a run with another snapshot at the start of its recording."""

    def change(records: Records) -> Records:
        edit(records[0][1]["snapshot"])
        return records

    moved(run, target)
    path = target / "recordings" / "recording-0001.jsonl.zst"
    path.unlink()
    rewrite(run / "recordings" / path.name, path, change)
    manifest = target / ".clawblox" / "manifest.json"
    document = json.loads(manifest.read_text())
    document["recordings"][0] |= content(path)
    manifest.write_text(json.dumps(document))
    return target


def find_only_save(run: Path) -> Path:
    (path,) = (run / "checkpoints").glob("*.json")
    return path


def test_a_start_is_checked_by_the_save_that_it_began_from(resumed: Path) -> None:
    replay = only(resumed)
    assert (replay.status, replay.start_checked_by, replay.link) == ("equal", "save", None)
    assert "; starts with the state of its save, at tick " in describe_replay(replay)
    assert verified(resumed, strict=True).exit_status == 0


def test_a_start_with_another_chat_than_its_save_is_different(
    resumed: Path, tmp_path: Path
) -> None:
    def edit(snapshot: dict[str, Any]) -> None:
        snapshot["chat"]["messages"][0]["content"] = "never said"

    replay = only(forged(resumed, tmp_path / "run", edit))
    assert (replay.status, replay.start_checked_by) == ("different", None)
    assert "does not start with the state of its save, at tick " in describe_replay(replay)


@pytest.mark.parametrize(
    "damage", sampled([Path.unlink, lambda path: path.write_text("{}")], every=2)
)
def test_a_start_whose_save_is_gone_or_changed_is_unchecked(
    resumed: Path, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    run = moved(resumed, tmp_path / "run")
    assert only(run).status == "equal"
    damage(find_only_save(run))
    assert only(run).status == "equal_unchecked_start"


@pytest.mark.thorough
def test_a_branch_with_another_seed_is_repeated_from_its_save(tmp_path: Path) -> None:
    async def record() -> None:
        async with AsyncWorld(dir=dice_world(tmp_path), run_dir=tmp_path / "run") as world:
            (parent,) = await world.start_many(1, record=True)
            await play([await world.join("Ada", instance=parent.name)], [("Bet", 3)], 4, 1)
            save = await world.save(instance=parent.name)
            await world.fork(save, reseed=3, record=True)
            await play([await world.join("Bo", instance="w001")], [("Bet", "all")], 4, 1)

    anyio.run(record)
    run = verified(tmp_path / "run", strict=True)
    assert [replay.start_checked_by for replay in run.replays] == ["seed", "earlier"]
    assert run.exit_status == 0

    def edit(records: Records) -> Records:
        records[0][1]["snapshot"]["chat"]["messages"][0]["content"] = "never said"
        return records

    path = run.replays[1].recording
    other = rewrite(path, tmp_path / "other", edit)
    path.unlink()
    other.rename(path)
    found = verified(tmp_path / "run").replays[1].progress.divergence
    assert found is not None
    assert (found.what, found.path) == ("the state at the start", "chat.messages[m1].content")


def test_ambiguous_save_is_not_used() -> None:
    first, second = (Origin(Path(f"/{name}"), name * 64, None, 0.4) for name in "ab")
    assert find_save([first, first], 0.4) == first
    assert find_save([first, second], 0.4) is None
    assert find_save([first], 0.5) is None
    assert find_save([first, Origin(Path("/c"))], 0.4) is None
    assert find_save([], 0.4) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ids": {}}', '{"ids": [], "sessions": 1}'])
def test_file_other_than_a_kit_snapshot_is_not_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "save"
    path.write_text(text)
    assert read_saved_start(Origin(path, content(path)["sha256"])) is None


def test_a_start_gets_no_secret_of_its_save(resumed: Path) -> None:
    path = find_only_save(resumed)
    secrets = json.loads(path.read_text())
    start = read_saved_start(Origin(path, content(path)["sha256"]))
    assert start is not None
    text = json.dumps(start)
    assert start["sessions"][0]["name"] == "Ada"
    assert secrets["ids"]["key"] not in text
    assert secrets["sessions"][0]["session"] not in text
