"""A world repeats its recording, and the comparison finds each difference, at its place."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawblox.errors import RecordingError
from clawblox.recording.blocks import (
    Moment,
    Track,
    digest_history,
    encode_block,
    require_zstandard,
)
from clawblox.recording.writer import BlockCollector, observation_fields
from clawblox.replay.comparison import RecordingComparison
from clawblox.replay.new_recording import NewRecording
from clawblox.replay.plan import MAX_GAP_TICKS, find_obstacle, write_script
from clawblox.replay.results import ReplayProgress, StateDigest
from clawblox.server import Halted, HostedWorld
from clawblox.server import recording as recording_module
from clawblox.server.recording import RecordingWriter
from clawblox.server.replaying import ScriptedReplay
from clawblox.server.snapshot_document import make_snapshot, restore_document
from tests.recording.files import Records, read_all, reading, rewrite
from tests.server.dice import Dice
from tests.server.recordings import open_recording

SEED = 5
OLD = Path(__file__).parents[1] / "recording" / "events-v1.jsonl"


class Script:
    """A recorded world that a test drives."""

    def __init__(self, directory: Path, *, resumed: HostedWorld | None = None) -> None:
        self.world = HostedWorld(Dice())
        if resumed is not None:
            restore_document(self.world, copy.deepcopy(make_snapshot(resumed)))
        else:
            self.world.reseed(SEED)
            self.world.begin()
        reseed = None if resumed else SEED
        self.recorder: RecordingWriter = open_recording(
            directory, self.world, resumed=resumed is not None, reseed=reseed
        )
        self.world.recorder = self.recorder
        self.path = self.recorder.path
        self.agents = {session.name: session for session in self.world.sessions}

    def join(self, name: str) -> str:
        self.agents[name] = self.world.join(name)
        return self.agents[name].agent_id

    def act(self, name: str, action: str, data: object = None) -> None:
        self.world.queue(self.agents[name], action, data)
        self.world.apply_inputs()

    def look(self, name: str) -> None:
        self.world.observe(self.agents[name])

    def step(self, ticks: int) -> None:
        for _ in range(ticks):
            self.world.step()

    def close(self, *, is_clean: bool = True) -> Path:
        self.recorder.close(is_clean=is_clean)
        return self.path


def play(script: Script) -> None:
    """Two agents bet, talk, look, are refused, removed and leave, in 100 ticks."""
    script.join("Ada")
    bo = script.join("Bo")
    script.look("Ada")
    for number in range(10):
        script.act("Ada", "Bet", number)
        script.step(10)
        script.look("Ada")
        if number == 3:
            script.act("Bo", "Bet", "all")
            script.world.say(script.agents["Bo"], "hello")
            script.look("Bo")
        if number == 5:
            script.act("Ada", "Kick", bo)
        if number == 7:
            script.world.leave(script.agents["Ada"])
            script.join("Ada")


@pytest.fixture(autouse=True, scope="module")
def _record_everything() -> Iterator[None]:
    """Frames and digests of the state are limited by real time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording_module, "FRAME_SHARE", 1e9)
        patch.setattr(recording_module, "STATE_SHARE", 1e9)
        patch.setattr(recording_module, "MAX_STATE_S", 60.0)
        yield


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, _record_everything: None) -> Path:
    script = Script(tmp_path_factory.mktemp("recorded"))
    play(script)
    return script.close()


def replay(
    path: Path, simulation: Dice | None = None, digest_ticks: tuple[int, ...] = ()
) -> ReplayProgress:
    """Repeat a recording in a world of this process, and compare what it records."""
    with tempfile.TemporaryDirectory() as scratch, reading(path) as recorded:
        try:
            obstacle = find_obstacle(recorded)
        except RecordingError as error:
            obstacle = str(error)
        if obstacle is not None:
            return ReplayProgress("impossible", obstacle)
        script, made = Path(scratch, "script"), Path(scratch, "made")
        made.mkdir()
        with script.open("xb") as file:
            plan = write_script(recorded, file, digest_ticks=digest_ticks)
        if plan.is_empty:
            return ReplayProgress("impossible", plan.obstacle)
        repeated = ScriptedReplay(HostedWorld(simulation or Dice()), script, made)
        repeated.begin()
        anyio.run(repeated.run)
        assert repeated.is_done
        comparison = RecordingComparison(recorded, plan)
        with NewRecording(made, recorded.size) as new:
            while new.compare(comparison):
                pass
        reason = repeated.problem or new.problem
        return comparison.finish(is_done=True, reason=reason)


Edit = Callable[[Records], Records]


def changing(chosen: dict[str, Any], **changes: Any) -> Edit:
    """Change keys of the first record that has the chosen ones."""

    def edit(records: Records) -> Records:
        fields = next(fields for _, fields in records if chosen.items() <= fields.items())
        fields.update(changes)
        return records

    return edit


def changing_on(track: Track, tick: int, **changes: Any) -> Edit:
    """Change keys of the first record of a track at a tick."""

    def edit(records: Records) -> Records:
        chosen = (fields for on, fields in records if (on, fields["tick"]) == (track, tick))
        next(chosen).update(changes)
        return records

    return edit


def without(**chosen: Any) -> Edit:
    """Leave out the record that has the chosen keys."""

    def edit(records: Records) -> Records:
        kept = [record for record in records if not chosen.items() <= record[1].items()]
        assert len(kept) == len(records) - 1
        return kept

    return edit


def without_hints(records: Records) -> Records:
    """Leave out fingerprints and digests, so that only what shows is compared."""
    for track, fields in records:
        if track is Track.FRAMES:
            fields.pop("fingerprints", None)
            fields.pop("state", None)
    return records


def shown_only(edit: Edit) -> Edit:
    return lambda records: without_hints(edit(records))


def test_a_recording_is_repeated_to_its_end(recording: Path) -> None:
    progress = replay(recording)
    assert (progress.outcome, progress.reason, progress.divergence) == ("equal", "", None)
    assert (progress.is_complete, progress.tick, progress.last_tick) == (True, 100, 100)
    records = read_all(recording)
    events = [fields["event"] for fields in records if "event" in fields]
    assert progress.events == len(events) - 2
    assert {"join", "leave", "removed", "input", "chat"} < set(events)
    assert progress.observations == sum("observation" in fields for fields in records) > 10
    assert progress.frames == sum("frame" in fields for fields in records) == 17
    assert progress.fingerprints == 100
    assert progress.states > 0


PLANTED: list[tuple[Edit, int, str, str]] = [
    (shown_only(changing({"data": 4}, data=5)), 50, "the observation of 'Ada'", "bets"),
    (changing({"data": 4}, data=5), 42, "the digest of the state", ""),
    (changing({"data": "all"}, data=7), 40, "the event 'input'", "refusal"),
    (changing({"data": "all"}, refusal=None), 40, "the event 'input'", "refusal"),
    (changing({"event": "chat"}, agent_name="Al"), 40, "the event 'chat'", "agent_name"),
    (changing({"event": "chat"}, id=7), 40, "the event 'chat'", "id"),
    (changing({"event": "join", "name": "Bo"}, extra=1), 0, "the event 'join'", "extra"),
    (changing({"event": "removed"}, agent_id="x"), 61, "the event 'removed'", "agent_id"),
    (changing_on(Track.OBSERVATIONS, 60, observation={"shown": 1}), 60,
     "the observation of 'Ada'", "shown"),
    (changing_on(Track.FRAMES, 42, frame={"shown": 0}), 42, "the view of a spectator", "shown"),
    (changing_on(Track.FRAMES, 42, state="0" * 64), 42, "the digest of the state", ""),
    (changing_on(Track.FRAMES, 42, fingerprints=[0] * 6), 37, "the fingerprint of the state", ""),
    (changing_on(Track.FRAMES, 42, time=0.71), 42, "the simulation time of the tick", ""),
    (changing({"data": "all"}, time=0.6), 40, "the simulation time of the tick", ""),
    (without(event="removed"), 61, "the event 'removed' happens only in the replay", ""),
    (shown_only(without(data=2)), 30, "the observation of 'Ada'", "bets"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "tick", "what", "path"), PLANTED)
def test_a_planted_difference_is_found_at_its_place(
    recording: Path, tmp_path: Path, edit: Edit, tick: int, what: str, path: str
) -> None:
    progress = replay(rewrite(recording, tmp_path / "planted", edit))
    assert progress.outcome == "different", progress
    found = progress.divergence
    assert found is not None
    assert (found.tick, found.what, found.path) == (tick, what, path)
    assert found.recorded != found.replayed


# ---------------------------------------------------------------------------- another world


class TwoDraws(Dice):
    extra_draw_at = 33


class Unmarked(Dice):
    has_fingerprint = False


def test_a_fingerprint_finds_another_draw_at_its_tick(recording: Path) -> None:
    found = replay(recording, TwoDraws()).divergence
    assert found is not None
    assert (found.tick, found.what) == (33, "the fingerprint of the state")


def test_without_fingerprints_another_draw_is_found_where_it_shows(
    recording: Path, tmp_path: Path
) -> None:
    path = rewrite(recording, tmp_path / "shown", without_hints)
    found = replay(path, TwoDraws()).divergence
    assert found is not None
    assert (found.tick, found.what, found.path) == (60, "the view of a spectator", "shown")


def test_a_fingerprint_is_found_before_what_differs_earlier_in_the_recording(
    recording: Path, tmp_path: Path
) -> None:
    """An observation at tick 40 differs; the frame at tick 42 has the fingerprint of tick 39."""

    class Cheat(Dice):
        def observe(self, agent_id: str) -> dict[str, Any]:
            seen: dict[str, Any] = super().observe(agent_id)  # type: ignore[no-untyped-call]
            return {**seen, "extra": self.ticks == 40}

    class Early(Cheat):
        extra_draw_at = 39

    path = rewrite(recording, tmp_path / "path", lambda records: records)
    found = replay(path, Early()).divergence
    assert found is not None
    assert found.tick == 0  # the key is in each observation
    ahead = replay(rewrite(recording, tmp_path / "bare", ignoring_extra), Early()).divergence
    assert ahead is not None
    assert (ahead.tick, ahead.what) == (39, "the fingerprint of the state")


def ignoring_extra(records: Records) -> Records:
    for track, fields in records:
        if track is Track.OBSERVATIONS:
            fields["observation"]["extra"] = False
    return records


def test_a_world_without_fingerprints_differs_from_one_with_them(recording: Path) -> None:
    found = replay(recording, Unmarked()).divergence
    assert found is not None
    assert (found.tick, found.replayed) == (1, None)


def test_a_fresh_world_with_other_files_begins_again_with_its_seed(recording: Path) -> None:
    class Changed(Dice):
        content = "other rules"

    progress = replay(recording, Changed())
    assert (progress.outcome, progress.has_other_files) == ("equal", True)
    assert not replay(recording).has_other_files

    class ChangedDraws(Changed, TwoDraws):
        pass

    found = replay(recording, ChangedDraws()).divergence
    assert found is not None
    assert found.tick == 33


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reseed": None}, "the recording names no seed"),
        ({"reseed": -1}, "the recording names no seed"),
        ({"reseed": 1.5}, "the recording names no seed"),
        ({"resumed": True}, "the world refuses the snapshot of the recording: its scene_hash"),
    ],
)
def test_without_a_seed_a_world_with_other_files_cannot_repeat(
    recording: Path, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    class Changed(Dice):
        content = "other rules"

    path = rewrite(recording, tmp_path / "path", changing({"event": "start"}, **changes))
    progress = replay(path, Changed())
    assert progress.outcome == "impossible"
    assert reason in progress.reason


@pytest.mark.parametrize("call", ["spectate", "snapshot", "fingerprint"])
def test_world_that_fails_only_in_the_replay_is_different(recording: Path, call: str) -> None:
    def fail(self: Dice) -> None:
        raise RuntimeError("out of order")

    progress = replay(recording, type("Failing", (Dice,), {call: fail})())
    assert progress.outcome == "different"
    assert progress.divergence is not None
    shown = "the world fails: RuntimeError: out of order" if call == "snapshot" else None
    assert progress.divergence.replayed == shown


# ---------------------------------------------------------------------------- halts


@pytest.mark.parametrize("call", ["join", "input", "step", "observe", "audience", "chat"])
def test_a_halt_is_repeated(tmp_path: Path, call: str) -> None:
    script = Script(tmp_path)
    script.join("Ada")
    script.step(3)
    script.act("Ada", "Break", call)
    halting = {
        "join": lambda: script.join("Jonah"),
        "input": lambda: script.act("Ada", "Divide"),
        "step": lambda: script.step(1),
        "observe": lambda: script.look("Ada"),
    }
    with pytest.raises(Halted):
        halting.get(call, lambda: script.world.say(script.agents["Ada"], "hello"))()
    script.world.say(script.agents["Ada"], "is it over?")
    path = script.close()
    progress = replay(path)
    assert (progress.outcome, progress.divergence) == ("equal", None)
    events = [fields["event"] for fields in read_all(path) if "event" in fields]
    assert "halted" in events
    assert progress.events == len(events) - 2
    other = changing({"event": "halted"}, error="another reason")
    planted = replay(rewrite(path, tmp_path / "planted", other)).divergence
    assert planted is not None
    assert (planted.what, planted.path) == ("the event 'halted'", "error")

    class Sturdy(Dice):
        def fail(self, call: str) -> None:
            return

    if call not in ("join", "input"):
        found = replay(path, Sturdy()).divergence
        assert found is not None
        assert found.what == "the event 'halted' does not happen"


def test_a_halt_that_is_new_is_different(recording: Path) -> None:
    class Weak(Dice):
        def step(self) -> None:
            if self.ticks == 20:
                raise Halted("too weak")
            super().step()  # type: ignore[no-untyped-call]

    found = replay(recording, Weak()).divergence
    assert found is not None
    assert (found.tick, found.what) == (20, "the event 'halted' happens only in the replay")
    assert found.replayed["error"] == "too weak"


def test_a_halt_that_the_recording_lacks_at_its_end_is_different(tmp_path: Path) -> None:
    script = Script(tmp_path)
    with pytest.raises(Halted):
        script.join("Jonah")
    path = rewrite(script.close(is_clean=False), tmp_path / "cut", without(event="halted"))
    found = replay(path).divergence
    assert found is not None
    assert found.what == "the event 'halted' happens only in the replay"


# ---------------------------------------------------------------------------- what cannot be


def adding(place: int, **fields: Any) -> Edit:
    """Insert a record into the inputs, with the moment of the one before."""

    def edit(records: Records) -> Records:
        stamp = {key: records[place - 1][1][key] for key in ("tick", "time", "utc")}
        return [*records[:place], (Track.INPUTS, {**stamp, **fields}), *records[place:]]

    return edit


def snapshot_with(**changes: Any) -> Edit:
    def edit(records: Records) -> Records:
        start = records[0][1]
        start["snapshot"] = {**start["snapshot"], **changes}
        return records

    return edit


def unseeded(edit: Edit) -> Edit:
    """Change a recording whose world has no seed, and so begins with the recorded state."""
    return lambda records: edit(changing({"event": "start"}, reseed=None)(records))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (changing({"data": 4}, tick=3), "inputs, record 9: its tick is 3, after one of tick 40"),
        (changing({"data": 4}, tick=10**15), f"inputs, record 9: its tick is {10**15}"),
        (changing({"data": 4}, tick=41 + MAX_GAP_TICKS), "ticks after the last"),
        (changing({"data": 4}, agent_id="nobody"), "the agent 'nobody' is not in the world"),
        (changing({"data": 4}, agent_id=4), "inputs, record 9: its 'agent_id' is not a text"),
        (changing({"data": 4}, action=None), "its 'action' is not a text"),
        (changing({"data": 4}, event="jump"), "its event 'jump' is unknown"),
        (changing({"data": 4}, event=["x"]), "its event ['x'] is unknown"),
        (changing({"event": "chat"}, content=1), "its 'content' is not a text"),
        (changing({"event": "chat"}, media_url=1), "its 'media_url' is not a text"),
        (changing({"event": "join"}, name={}), "inputs, record 1: its 'name' is not a text"),
        (changing({"event": "leave"}, agent_id=""), "the agent '' is not in the world"),
        (adding(2, event="start"), "the event 'start' is out of place"),
        (lambda records: [*records, records[-1]], "it follows the event 'end'"),
        (changing({"event": "start"}, writer="other"), "not recorded by a world on the kit"),
        (changing({"event": "start"}, snapshot=3), "no snapshot of its start"),
        (unseeded(changing({"event": "start"}, snapshot={})), "of the recording: it has no"),
        (changing({"event": "start"}, snapshot={"unavailable": "x\n"}), "has no snapshot: x"),
        (changing({"event": "start"}, rows={"unavailable": "shared"}), "has no rows: shared"),
        (changing({"event": "start"}, tick=4), "its tick is 4, but the tick of its snapshot is 0"),
        (unseeded(snapshot_with(state=None)), "its state cannot be restored"),
        (unseeded(snapshot_with(tick="x")), "its 'tick' is of the wrong type"),
        (unseeded(snapshot_with(tick=10**30)), "the tick of its snapshot is 1000000"),
        (unseeded(snapshot_with(sessions=[3])), "its 'sessions' are malformed"),
        (unseeded(snapshot_with(sessions=[{"agent_id": 3, "name": ""}])), "its 'sessions' are m"),
        (unseeded(snapshot_with(chat=[])), "its 'chat' is of the wrong type"),
    ],
)  # fmt: skip
def test_a_hostile_recording_cannot_be_verified(
    recording: Path, tmp_path: Path, edit: Edit, reason: str
) -> None:
    progress = replay(rewrite(recording, tmp_path / "hostile", edit))
    assert progress.outcome == "impossible", progress
    assert reason in progress.reason


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda state: state["state"].update(hidden=1000), "state.hidden"),
        (lambda state: state["state"]["bets"].update(Eve=1000), "state.bets.Eve"),
        (lambda state: state["sessions"].append({"agent_id": "e", "name": "Eve"}), "sessions[0]"),
        (lambda state: state["chat"].update(posted=3), "chat.posted"),
        (lambda state: state.update(seed=6), "seed"),
        (lambda state: state.update(time=-0.0), ""),
    ],
)
def test_a_fresh_world_begins_with_the_state_that_its_seed_gives(
    recording: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], None], path: str
) -> None:
    def change(records: Records) -> Records:
        edit(records[0][1]["snapshot"])
        return records

    assert replay(recording).has_begun_again
    progress = replay(rewrite(recording, tmp_path / "forged", change))
    found = progress.divergence
    assert progress.outcome == "different"
    assert found is not None
    assert (found.tick, found.what, found.path) == (0, "the state at the start", path)


def test_without_a_seed_a_fresh_world_begins_with_the_recorded_state(
    recording: Path, tmp_path: Path
) -> None:
    path = rewrite(recording, tmp_path / "unseeded", unseeded(lambda records: records))
    progress = replay(path)
    assert (progress.outcome, progress.has_begun_again) == ("equal", False)
    with_rows = changing({"event": "start"}, rows="")  # `begin` may have changed them
    progress = replay(rewrite(recording, tmp_path / "rows", with_rows))
    assert (progress.outcome, progress.has_begun_again) == ("equal", False)


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_observation_after_events_that_do_not_exist_is_not_equal(
    tmp_path: Path, is_clean: bool
) -> None:
    script = Script(tmp_path)
    agent_id = script.join("Ada").encode()
    script.step(6)
    path = script.close(is_clean=is_clean)
    made_at = Moment(6, 0.1, "2026-06-22T18:59:25.104Z")
    collector = BlockCollector()
    for _ in range(3):
        fields = observation_fields(b'"%b"' % agent_id, 10**9, b'{"score":1000}')
        collector.add(Track.OBSERVATIONS, made_at, fields, 0.0)
    (block,) = collector.take(float("inf"))
    path.write_bytes(path.read_bytes() + encode_block(block, require_zstandard()))
    progress = replay(path)
    if is_clean:
        assert progress.outcome == "impossible"
        assert "it follows the event 'end'" in progress.reason
    else:
        assert (progress.outcome, progress.unchecked) == ("equal", 3)


def test_an_agent_joins_once(recording: Path, tmp_path: Path) -> None:
    def edit(records: Records) -> Records:
        place = next(n for n, (_, fields) in enumerate(records) if fields.get("event") == "join")
        return [*records[: place + 1], *records[place:]]

    progress = replay(rewrite(recording, tmp_path / "twice", edit))
    assert progress.outcome == "impossible"
    assert "joins a second time" in progress.reason


def test_a_route_of_the_world_that_halted_it_is_in_no_recording(tmp_path: Path) -> None:
    script = Script(tmp_path)
    with pytest.raises(Halted), script.world.running():
        raise Halted("by a route")
    progress = replay(script.close())
    assert progress.outcome == "impossible"
    assert "a route of the world's own halted it" in progress.reason


def test_a_recording_of_the_older_format_cannot_be_verified() -> None:
    progress = replay(OLD)
    assert progress.outcome == "impossible"
    assert "older format" in progress.reason


def test_a_damaged_recording_names_the_file_and_the_place(recording: Path, tmp_path: Path) -> None:
    content = bytearray(recording.read_bytes())
    content[-20] ^= 255
    path = tmp_path / "damaged"
    path.write_bytes(content)
    progress = replay(path)
    assert progress.outcome == "impossible"
    assert str(path) in progress.reason


def test_a_difference_counts_although_the_recording_is_damaged_later(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.world.say(script.world.join("Ada"), "hello")
    script.step(6 * 60)  # more frames than fit in a block
    chat = rewrite(script.close(), tmp_path / "chat", changing({"event": "chat"}, id=7))
    with reading(chat) as recorded:
        last = [block for block in recorded.index if block.header.track is Track.FRAMES][-1]
    content = bytearray(chat.read_bytes())
    content[last.offset + last.header.compressed // 2] ^= 255
    chat.write_bytes(content)
    found = replay(chat).divergence
    assert found is not None
    assert (found.what, found.path) == ("the event 'chat'", "id")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_replay_with_any_value_has_an_outcome(
    recording: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    def edit(records: Records) -> Records:
        _, fields = data.draw(st.sampled_from(records))
        key = data.draw(st.sampled_from(sorted(fields)))
        if key == "snapshot" and data.draw(st.booleans()):
            fields = fields[key]
            key = data.draw(st.sampled_from(sorted(fields)))
        fields[key] = data.draw(VALUES)
        return records

    path = rewrite(recording, tmp_path_factory.mktemp("any") / "recording", edit)
    progress = replay(path)
    assert progress.outcome in ("equal", "different", "impossible")
    assert "the replay failed" not in progress.reason


# ---------------------------------------------------------------------------- lives


def test_a_replay_reaches_the_state_that_a_later_recording_begins_with(tmp_path: Path) -> None:
    first = Script(tmp_path)
    first.join("Ada")
    first.step(20)
    first.act("Ada", "Bet", 3)
    later = Script(tmp_path, resumed=first.world)
    first.act("Ada", "Bet", 4)  # in the same tick, after the save
    first.step(5)
    first.close(is_clean=False)
    later.step(7)
    later.look("Ada")
    later.close()

    start = replay(later.path).start
    assert start == StateDigest(20, digest_history(read_start(later)))
    progress = replay(first.path, digest_ticks=(20, 23, 1000))
    assert (progress.outcome, progress.is_complete) == ("equal", False)
    assert [digest.tick for digest in progress.digests] == [20, 20, 20, 23]
    assert start in progress.digests
    assert progress.start is None


def test_inputs_that_waited_in_the_snapshot_are_applied_once(tmp_path: Path) -> None:
    first = Script(tmp_path)
    first.join("Ada")
    first.world.queue(first.agents["Ada"], "Bet", 3)
    later = Script(tmp_path, resumed=first.world)
    first.close()
    later.world.apply_inputs()
    later.look("Ada")
    later.step(1)
    progress = replay(later.close())
    assert (progress.outcome, progress.events, progress.observations) == ("equal", 1, 1)


def read_start(script: Script) -> dict[str, Any]:
    with reading(script.path) as recorded:
        return dict(recorded.start()["snapshot"])


def test_a_killed_world_without_further_inputs_reaches_later_saves(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.step(5)
    path = script.close(is_clean=False)
    script.step(3)
    progress = replay(path, digest_ticks=(8,))
    assert progress.digests == (StateDigest(8, digest_history(make_snapshot(script.world))),)
    assert (progress.outcome, progress.tick, progress.last_tick) == ("equal", 5, 5)


def test_a_recording_with_another_seed_continues_nothing(tmp_path: Path) -> None:
    first = Script(tmp_path)
    first.step(5)
    first.close()
    later = Script(tmp_path, resumed=first.world)
    path = later.close()
    reseeded = rewrite(path, tmp_path / "reseeded", changing({"event": "start"}, reseed=3))
    assert replay(path).start is not None
    assert replay(reseeded).start is None


class Engine(Dice):
    revision = 2


def test_the_revisions_of_two_engines_are_noted_if_they_differ(
    recording: Path, tmp_path: Path
) -> None:
    def without_revision(records: Records) -> Records:
        del records[0][1]["revision"]
        return records

    first = rewrite(recording, tmp_path / "first", without_revision)
    assert replay(first, Engine()).revisions == (1, 2)
    assert replay(first, Engine()).outcome == "equal"
    assert replay(first).revisions is None
    for revision, noted in ((3, (3, 2)), (2, None), (None, None), ("2", None), (-1, None)):
        edit = changing({"event": "start"}, revision=revision)
        path = rewrite(recording, tmp_path / repr(revision), edit)
        assert replay(path, Engine()).revisions == noted


def test_a_recording_without_a_digest_of_files_is_of_an_earlier_version(
    recording: Path, tmp_path: Path
) -> None:
    def without_digest(records: Records) -> Records:
        del records[0][1]["world_files"]
        return records

    assert not replay(recording).is_of_earlier_version
    assert replay(rewrite(recording, tmp_path / "old", without_digest)).is_of_earlier_version
