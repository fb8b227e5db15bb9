"""Worlds repeat their recordings in new processes: equal to the end, or different at the tick."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.world.world_state import REVISION
from clawblox.errors import ConfigError, UsageError
from clawblox.recording.blocks import Block, Track, encode_block, require_zstandard
from clawblox.replay import VerifiedReplay, VerifiedRun
from clawblox.replay.results import RecordingLink, parse_run
from clawblox.rundir.manifest import manifest_path
from clawblox.views.verified_runs import describe_replay
from tests.recording.files import Records, reading, rewrite
from tests.replay.lives import (
    BETS,
    HOME,
    Action,
    copied,
    first_input,
    recorded_lives,
    verified,
    with_changed,
)
from tests.support.processes import marked_processes
from tests.support.sampling import sampled
from tests.support.worlds import make_world


@pytest.fixture(autouse=True)
def _nothing_remains() -> Iterator[None]:
    yield
    assert not list(Path(tempfile.gettempdir()).glob("clawblox-verify-*"))


def outcomes(run: VerifiedRun) -> list[str]:
    return [replay.progress.outcome for replay in run.replays]


def reasons(run: VerifiedRun) -> list[str]:
    return [replay.progress.reason for replay in run.replays]


# ---------------------------------------------------------------------------- a world on the kit


def test_both_recordings_of_a_killed_world_are_equal_and_one_history(lives: Path) -> None:
    seen: list[VerifiedReplay] = []
    progress: list[tuple[int, int]] = []
    run = verified(lives, on_replay=seen.append, on_progress=lambda *at: progress.append(at))
    first, second = (replay.progress for replay in run.replays)
    assert (first.outcome, second.outcome, run.exit_status) == ("equal", "equal", 0)
    assert (first.is_complete, second.is_complete) == (False, True)
    assert first.events > 24
    assert second.observations > 20
    assert min(first.fingerprints, second.fingerprints) > 60
    assert run.replays[0].link is None
    assert [replay.start_checked_by for replay in run.replays] == ["seed", "earlier"]
    assert run.document()["equal"]
    assert second.first_tick > 60
    assert run.replays[1].link == RecordingLink("continues", second.first_tick, 1)
    assert seen == [*run.replays]
    assert (
        progress[-1][0] == progress[-1][1] == first.last_tick + second.last_tick - second.first_tick
    )


@pytest.mark.thorough
def test_a_moved_run_with_a_world_elsewhere_is_verified(
    lives: Path, dice: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(lives, tmp_path / "moved", symlinks=True)
    world = shutil.copytree(dice, tmp_path / "world")
    shown: list[str] = []

    async def show(world: str) -> None:
        assert not reached
        shown.append(world)

    reached: list[int] = []
    run = verified(
        moved,
        number=2,
        world_dir=world,
        on_world=show,
        on_progress=lambda done, _total: reached.append(done),
    )
    reached.clear()
    assert [(replay.number, replay.progress.outcome) for replay in run.replays] == [(2, "equal")]
    file = moved / "recordings" / "recording-0002.jsonl.zst"
    (replay,) = verified(file, on_world=show).replays
    assert (replay.number, replay.world) == (2, str(dice))
    assert shown == [str(world), str(dice)]
    moved.chmod(0o777)
    for given in (moved, file):
        with pytest.raises(UsageError, match=f"other users can write {moved}"):
            verified(given, on_world=show)
    assert len(shown) == 2


def test_a_changed_input_is_found_at_its_tick(lives: Path, tmp_path: Path) -> None:
    def edit(records: Records) -> Records:
        first_input(records, 30)["refusal"] = "not allowed"
        return records

    run = verified(with_changed(lives, tmp_path / "run", 1, edit), number=1)
    found = run.replays[0].progress.divergence
    assert found is not None
    assert (found.tick, found.what, found.path) == (30, "the event 'input'", "refusal")
    assert found.recorded == "not allowed"
    assert run.exit_status == 1


def test_a_changed_world_begins_again_and_differs_at_its_tick(
    lives: Path, dice: Path, tmp_path: Path
) -> None:
    changed = copied(dice, tmp_path / "dice", "world.py", "extra_draw_at: int | None = None",
                     'extra_draw_at = 40')  # fmt: skip
    text = (changed / "world.py").read_text().replace('content = "dice"', 'content = "other"')
    (changed / "world.py").write_text(text)
    run = verified(lives, world_dir=changed)
    found = run.replays[0].progress.divergence
    assert found is not None
    assert (found.tick, found.what) == (40, "the fingerprint of the state")
    assert run.replays[1].progress.outcome == "impossible"
    assert "its scene_hash is 'dice'" in run.replays[1].progress.reason
    assert run.exit_status == 1


@pytest.mark.parametrize(
    "change",
    sampled(
        [
            (("state", "hidden"), 1),
            (("chat", "messages", 0, "content"), "never said"),
            (("chat", "messages", 0, "agent_name"), "Eve"),
            (("sessions", 0, "name"), "Eve"),
            (("seed",), 4),
        ],
        every=5,
    ),
)
def test_start_that_no_earlier_recording_reached_is_a_difference(
    lives: Path, tmp_path: Path, change: tuple[tuple[str | int, ...], object]
) -> None:
    place, value = change

    def edit(records: Records) -> Records:
        part: Any = records[0][1]["snapshot"]
        *path, last = place
        for key in path:
            part = part[key]
        assert part[last] != value
        part[last] = value
        return [records[0]]

    run = verified(with_changed(lives, tmp_path / "run", 2, edit))
    assert outcomes(run) == ["equal", "equal"]
    assert run.replays[1].link == RecordingLink("differs", run.replays[1].progress.first_tick, 1)
    assert run.exit_status == 1


def without_last_inputs(source: Path, target: Path, since: int) -> None:
    """Write a recording again whose world was killed before its last inputs were written."""
    zstandard = require_zstandard()
    with reading(source) as recorded, target.open("xb") as file:
        for entry in recorded.index:
            for number, line in enumerate(recorded.read_lines(entry), entry.number):
                track, at = entry.header.track, recorded.parse_line(entry, number, line).moment
                if track is not Track.INPUTS or at.tick < since:
                    file.write(encode_block(Block(track, 1, at, at, line + b"\n"), zstandard))


def test_inputs_lost_by_a_killed_world_do_not_fail_later_recordings(
    lives: Path, tmp_path: Path
) -> None:
    run_dir = shutil.copytree(lives, tmp_path / "run", symlinks=True)
    first, second = (f"recordings/recording-{number:04}.jsonl.zst" for number in (1, 2))
    with reading(run_dir / second) as recorded:
        since = recorded.start()["tick"] - 6
    (run_dir / first).unlink()
    without_last_inputs(lives / first, run_dir / first, since)
    run = verified(run_dir)
    assert outcomes(run) == ["equal", "equal"], reasons(run)
    assert run.replays[0].progress.last_tick > run.replays[1].progress.first_tick
    assert run.replays[1].link == RecordingLink("unknown", run.replays[1].progress.first_tick)
    assert run.exit_status == 0


# ---------------------------------------------------------------------------- what cannot be


def start_with(**changes: Any) -> Any:
    def edit(records: Records) -> Records:
        records[0][1].update(changes)
        return records

    return edit


def test_unverifiable_recording_has_a_reason(lives: Path, tmp_path: Path) -> None:
    source = lives / "recordings" / "recording-0001.jsonl.zst"
    run_dir = shutil.copytree(lives, tmp_path / "run", symlinks=True)
    edits = {
        "rows": start_with(rows="not base64!"),
        "shared": start_with(rows={"unavailable": "the database is shared"}),
        "list": start_with(rows=["x"]),
        "proxy": start_with(writer="clawblox.proxy"),
    }
    for name, edit in edits.items():
        rewrite(source, run_dir / "recordings" / name, edit)
    (run_dir / "recordings" / "garbage").write_bytes(b"garbage" * 100)
    (run_dir / "recordings" / "link").symlink_to(source)
    shutil.copy(HOME / "tests" / "recording" / "events-v1.jsonl", run_dir / "recordings" / "old")
    names = [*edits, "garbage", "link", "old", "missing"]
    formats = {"old": "clawblox-events-v1"}
    entries = [
        {"path": f"recordings/{name}", "format": formats.get(name, "clawblox-recording-v2")}
        for name in names
    ]
    entries.insert(2, {"path": "recordings/other", "format": "of-a-stranger"})
    document = json.loads(manifest_path(run_dir).read_text()) | {"recordings": entries}
    manifest_path(run_dir).write_text(json.dumps(document))

    run = verified(run_dir)
    assert run.exit_status == 3
    assert [replay.number for replay in run.replays] == [1, 2, 0, 3, 4, 5, 6, 7, 8]
    expected = [
        "its rows are not base64 text: ",
        "no rows: the database is shared",
        "its format is 'of-a-stranger', of another program",
        "its rows are not base64 text",
        "it was not recorded by a world on the kit",
        "garbage",
        "link",
        "older format",
        "missing",
    ]
    for reason, part in zip(reasons(run), expected, strict=True):
        assert part in reason


def test_an_impossible_data_store_does_not_end_other_replays(lives: Path, tmp_path: Path) -> None:
    run = verified(with_changed(lives, tmp_path / "run", 1, start_with(datastore="none")))
    assert outcomes(run) == ["impossible", "equal"]
    assert reasons(run)[0].startswith("its 'datastore' is not possible: ")


@pytest.mark.parametrize("name", sampled(["tick_rate", "world_format", "ticks_per_input"], every=3))
def test_times_that_the_world_decides_are_compared(lives: Path, tmp_path: Path, name: str) -> None:
    run_dir = with_changed(lives, tmp_path / "run", 1, start_with(**{name: 999}))
    found = verified(run_dir, number=1).replays[0].progress.divergence
    assert found is not None
    assert (found.tick, found.what, found.path) == (0, "the event 'start'", name)


def test_hostile_rows_are_opened_by_the_world_alone(lives: Path, tmp_path: Path) -> None:
    run_dir = with_changed(lives, tmp_path / "run", 1, start_with(rows="AAAA"))
    assert outcomes(verified(run_dir, number=1)) == ["equal"]  # this world has no rows


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("__import__('threading').Event().wait()", "the replay made no progress for 1 s"),
        pytest.param(
            "import os; os._exit(3)",
            "its world ended during the replay: exit status 3",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_world_that_does_not_finish_is_ended(
    lives: Path, dice: Path, tmp_path: Path, step: str, reason: str
) -> None:
    line = "        self.ticks += 1\n"
    stuck = f"{line}        if self.ticks == 50:\n            {step}\n"
    world = copied(dice, tmp_path / "dice", "world.py", line, stuck)
    run = verified(lives, number=1, world_dir=world, stall_timeout=1.0)
    assert (reasons(run), run.exit_status) == ([reason], 3)
    assert not marked_processes()


def test_a_world_that_is_not_on_the_kit_cannot_repeat(lives: Path, tmp_path: Path) -> None:
    run = verified(lives, number=1, world_dir=make_world(tmp_path))
    [reason] = reasons(run)
    assert "only worlds on the kit or the engine can repeat a recording" in reason
    assert "update the clawblox that the world uses" in reason


def test_a_world_that_does_not_start_is_a_reason(lives: Path, dice: Path, tmp_path: Path) -> None:
    world = copied(dice, tmp_path / "dice", "world.py", "serve(Dice())", "raise SystemExit(4)")
    [reason] = reasons(verified(lives, number=1, world_dir=world))
    assert reason.startswith("the world did not start: ")
    assert "exit status 4" in reason


def test_wrong_arguments_are_refused(lives: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no recording 3"):
        verified(lives, number=3)
    alone = tmp_path / "alone"
    shutil.copy(lives / "recordings" / "recording-0001.jsonl.zst", alone)
    with pytest.raises(UsageError, match="it is not known which world made"):
        verified(alone)
    with pytest.raises(ConfigError, match="nowhere"):
        verified(lives, world_dir=tmp_path / "nowhere")


@pytest.mark.thorough
def test_the_variables_of_the_run_are_needed(
    dice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "    serve(Dice())"
    reading = "    import os\n\n    Dice.extra_draw_at = int(os.environ['EXTRA'])\n"
    world = copied(dice, tmp_path / "dice", "world.py", line, reading + line)
    run_dir = recorded_lives(world, tmp_path / "run", BETS, rounds=4, env={"EXTRA": "9"})
    with pytest.raises(ConfigError, match="no value for EXTRA"):
        verified(run_dir)
    assert outcomes(verified(run_dir, number=1, env={"EXTRA": "9"})) == ["equal"]
    monkeypatch.setenv("EXTRA", "10")
    found = verified(run_dir, number=1).replays[0].progress.divergence
    assert found is not None
    assert found.tick == 9


# ---------------------------------------------------------------------------- engine worlds

SCRIPT = """
local board = Instance.new("Folder")
board.Name = "Board"
board.Parent = Workspace
local rows = game:GetService("DataStoreService"):GetDataStore("rows")
local EXTRA, EVERY = -1, 40
local hidden, ticks = 0, 0
game:GetService("RunService").Heartbeat:Connect(function()
	ticks += 1
	hidden += math.random(1000)
	if ticks == EXTRA then
		math.random()
	end
	if ticks % EVERY == 0 then
		board:SetAttribute("Shown", hidden)
	end
end)
game:GetService("AgentInputService").InputReceived:Connect(function(player, action, data)
	if action == "MoveTo" then
		player.Character.Humanoid:MoveTo(Vector3.new(unpack(data)))
	elseif action == "Keep" then
		rows:SetAsync("kept", data)
	elseif action == "Recall" then
		board:SetAttribute("Recalled", rows:GetAsync("kept"))
	end
end)
"""
MOVES: list[Action] = [
    ("MoveTo", [10, 0, 5]),
    ("MoveTo", [-8, 0, 3]),
    ("Keep", 7),
    ("Recall", None),
]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("worlds") / "draws"
    directory.mkdir()
    (directory / "world.toml").write_text('name = "draws"\n[scripts]\nmain = "main.lua"\n')
    (directory / "main.lua").write_text(SCRIPT)
    return directory


@pytest.fixture(scope="module")
def scripted_lives(scripted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "draws"
    return recorded_lives(scripted, run_dir, MOVES, rounds=30, later=[("Recall", None)])


def test_both_recordings_of_a_real_time_engine_world_are_equal(scripted_lives: Path) -> None:
    run = verified(scripted_lives)
    assert (outcomes(run), run.exit_status) == (["equal", "equal"], 0)
    first, second = run.replays
    assert (first.progress.has_begun_again, second.progress.has_begun_again) == (True, False)
    assert min(first.progress.fingerprints, second.progress.fingerprints) > 0
    assert first.progress.frames > 0
    assert second.link == RecordingLink("continues", second.progress.first_tick, 1)
    assert [replay.status for replay in run.replays] == ["equal", "equal_unchecked_start"]
    assert second.progress.has_given_rows


@pytest.mark.thorough
def test_a_difference_to_a_recording_of_an_older_engine_is_explained(
    scripted_lives: Path, tmp_path: Path
) -> None:
    def make_older(records: Records) -> Records:
        del records[0][1]["revision"]
        return records

    def reorder(records: Records) -> Records:
        first_input(records, 10)["refusal"] = "too late"
        return make_older(records)

    older = verified(with_changed(scripted_lives, tmp_path / "older", 1, make_older), number=1)
    assert (older.replays[0].status, older.exit_status) == ("equal_unchecked_start", 0)
    assert "made by an older engine" in describe_replay(older.replays[0])
    other = verified(with_changed(scripted_lives, tmp_path / "other", 1, reorder), number=1)
    assert (other.replays[0].status, other.exit_status) == ("different", 1)
    assert "made by an older engine (revision 1;" in describe_replay(other.replays[0])
    (document,) = other.document()["recordings"]
    assert document["revisions"] == (1, REVISION)
    read = parse_run(json.loads(json.dumps(other.document())))
    assert read.replays[0].progress.revisions == (1, REVISION)


@pytest.mark.thorough
def test_rows_are_there_when_the_replay_begins(scripted_lives: Path, tmp_path: Path) -> None:
    run_dir = with_changed(scripted_lives, tmp_path / "run", 2, start_with(rows=None))
    found = verified(run_dir, number=2).replays[0].progress.divergence
    assert found is not None
    assert "Recalled" in found.path or "state" in found.what


@pytest.mark.thorough
def test_a_recording_alone_is_verified_with_its_data_store(scripted: Path, tmp_path: Path) -> None:
    keep = 'rows:SetAsync("kept", data)'
    trying = 'board:SetAttribute("Kept", (pcall(rows.SetAsync, rows, "kept", data)))'
    world = copied(scripted, tmp_path / "draws", "main.lua", keep, trying)
    run_dir = recorded_lives(world, tmp_path / "run", MOVES[:3], rounds=8, datastore="none")
    alone = tmp_path / "alone.jsonl.zst"
    shutil.copy(run_dir / "recordings" / "recording-0001.jsonl.zst", alone)
    assert outcomes(verified(alone, world_dir=world)) == ["equal"]
    other = rewrite(alone, tmp_path / "sqlite", start_with(datastore="sqlite"))
    assert outcomes(verified(other, world_dir=world)) == ["different"]


@pytest.mark.thorough
def test_replay_never_uses_the_database_named_in_a_recording(
    scripted_lives: Path, tmp_path: Path
) -> None:
    changes = start_with(datastore="postgres", rows=None)
    run_dir = with_changed(scripted_lives, tmp_path / "run", 1, changes)
    assert outcomes(verified(run_dir, number=1)) == ["different"]  # it starts, without rows


@pytest.mark.parametrize(
    ("new", "first", "last"),
    [
        ("EXTRA, EVERY = 23, 40", 23, 23),  # a random number, which only the fingerprint knows
        pytest.param(  # from then on it is what the next observation shows
            "EXTRA, EVERY = -1, 39", 39, 77, marks=pytest.mark.thorough
        ),
    ],
)
def test_a_changed_script_is_found_when_it_first_shows(
    scripted: Path, scripted_lives: Path, tmp_path: Path, new: str, first: int, last: int
) -> None:
    changed = copied(scripted, tmp_path / "draws", "main.lua", "EXTRA, EVERY = -1, 40", new)
    found = verified(scripted_lives, number=1, world_dir=changed).replays[0].progress.divergence
    assert found is not None
    assert first <= found.tick <= last, found
    assert (found.what == "the fingerprint of the state") == (first == last)


RACE: list[Action] = [
    ("MoveTo", {"position": [20, 0, 0]}),
    ("Leap", {"position": [30, 0, 0]}),
    ("Jump", None),
    ("Restart", None),
]
WORKSHOP: list[Action] = [
    ("MoveTo", {"position": [10, 0, 10]}),
    ("MoveTo", {"position": [-20, 0, 5]}),
    ("Gather", None),
    ("Craft", {"item": "Plank"}),
    ("Place", {"position": [1, 1, 9]}),
    ("Jump", None),
]
STEERING: list[Action] = [
    ("Steer", {"direction": [1, 0]}),
    ("Steer", {"direction": [0.2, -1]}),
    ("Brake", None),
    ("Fly", None),
]
PUSHES: list[Action] = [("Push", {"force": 0.5}), ("Push", {"force": -0.8})]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "actions", "clock"),
    [
        ("platform_race", RACE, ""),
        ("workshop", WORKSHOP, ""),
        ("marbles", STEERING, ""),
        ("marbles", STEERING, "realtime"),
        ("mujoco_carts", PUSHES, ""),
        ("mujoco_carts", PUSHES, "realtime"),
    ],
)
def test_example_worlds_repeat_both_recordings(
    tmp_path: Path, name: str, actions: list[Action], clock: str
) -> None:
    if name == "mujoco_carts":
        pytest.importorskip("mujoco")
    world = HOME / "examples" / name
    if clock:
        world = copied(world, tmp_path / name, "world.toml", '"world.py"]',
                       f'"world.py", "--clock", "{clock}"]')  # fmt: skip
    run = verified(recorded_lives(world, tmp_path / "run", actions, rounds=100))
    assert (outcomes(run), run.exit_status) == (["equal", "equal"], 0)
    link = run.replays[1].link
    assert link is not None
    assert (link.kind, link.number) == ("continues", 1)


def test_observations_of_one_track_are_enough(lives: Path, tmp_path: Path) -> None:
    """A recorder that lacks frames is verified by what agents saw."""

    def edit(records: Records) -> Records:
        return [record for record in records if record[0] is not Track.FRAMES]

    run = verified(with_changed(lives, tmp_path / "run", 1, edit), number=1)
    assert outcomes(run) == ["equal"]
    assert run.replays[0].progress.frames == 0
