"""The records of a hosted world: events, observations, frames, and the state at the start."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from clawblox.recording import background
from clawblox.recording.blocks import BLOCK_RECORDS, Track, digest_value
from clawblox.recording.writer import BLOCK_AGE_S, RecordingFile
from clawblox.server import Halted, HostedWorld
from clawblox.server import recording as recording_module
from clawblox.server.recording import RecordingWriter
from clawblox.server.sessions import AgentSession
from clawblox.server.snapshot_document import restore_document, with_new_secrets
from tests.recording.files import content, read_all, reading
from tests.server.conftest import TALLY
from tests.server.recordings import open_recording
from tests.server.seen import Seen
from tests.server.tally import Tally
from tests.support.waiting import HANG_S, wait_until, wait_until_async

JSON = {"Content-Type": "application/json"}
STAMP = ("tick", "time", "utc")


def events_of(path: Path) -> list[dict]:
    return [fields for fields in read_all(path) if "event" in fields]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    (directory / ".clawblox").mkdir(parents=True)
    return directory


@pytest.fixture
def manifest(run_dir: Path) -> Path:
    return run_dir / ".clawblox" / "manifest.json"


@pytest.fixture
def recorder(hosted: HostedWorld, tmp_path: Path) -> RecordingWriter:
    hosted.recorder = open_recording(tmp_path, hosted, resumed=False)
    return hosted.recorder


# ------------------------------------------------------------------------- a program that records


def test_a_recording_has_every_event_with_its_simulation_time(launch, run_dir, manifest):
    manifest.write_text('{"schema_version": 1, "run": {"id": "r1"}, "unknown": [1]}')
    env = {
        "PYTHONWARNINGS": "always::ResourceWarning",
        "WORLD_RECORD": "1",
        "WORLD_RECORD_DIR": str(run_dir / "recordings"),
        "CLAWBLOX_MANIFEST_PATH": str(manifest),
    }
    world = launch(env=env)
    joined = world.ask("POST", "/join?name=Rocky").json()
    headers = {"X-Session": joined["session"], **JSON}
    answer = world.ask("POST", "/input", headers=headers, body=b'{"type":"Add","data":2}')
    world.ask("POST", "/input", headers=headers, body=b'{"type":"Add","data":"two"}')
    world.ask("POST", "/chat", headers=headers, body=b'{"content":"hi"}')
    world.ask("POST", "/leave", headers=headers)
    assert world.stop() == 0
    assert "ResourceWarning" not in world.log

    path = run_dir / "recordings" / "recording-0001.jsonl.zst"
    assert f"Recording to: {path}" in world.log
    assert path.stat().st_mode & 0o777 == 0o600
    agent = {"agent_id": joined["agent_id"]}
    start, join, *rest = events_of(path)
    assert start["format"] == "clawblox-recording-v2"
    assert (start["world_format"], start["scene_hash"]) == ("tally-v1", "tally")
    assert (start["resumed"], start["reseed"], start["clock"]) == (False, None, "lockstep")
    assert join == {
        "tick": 0, "time": 0.0, "utc": join["utc"], "event": "join", "name": "Rocky", **agent
    }  # fmt: skip
    assert [(event["tick"], event["event"]) for event in rest] == [
        (0, "input"),
        (3, "input"),
        (3, "chat"),
        (3, "leave"),
        (3, "end"),
    ]
    assert [event.get("refusal") for event in rest[:2]] == [None, "Add needs a whole number"]
    with reading(path) as recording:
        [seen] = recording.read_track(Track.OBSERVATIONS)
        frames = [record.moment.tick for record in recording.read_track(Track.FRAMES)]
        assert all(joined["session"].encode() not in record.line for record in recording.read())
    assert (seen.observation, seen.after) == (answer.body, 3)
    assert frames[0] == 0
    assert set(frames) <= {0, 1, 2, 3}, "fewer on a machine that is busy"

    registered = json.loads(manifest.read_text())
    entry = "recordings/recording-0001.jsonl.zst"
    assert registered == {
        "schema_version": 1,
        "run": {"id": "r1"},
        "unknown": [1],
        "recordings": [
            {"path": entry, "events": entry, "format": "clawblox-recording-v2", **content(path)}
        ],
    }
    assert [path.name for path in manifest.parent.iterdir()] == ["manifest.json"]


def test_a_killed_world_leaves_everything_up_to_its_last_block(launch, run_dir):
    world = launch(TALLY, "--record", "--record-dir", str(run_dir))
    joined = world.ask("POST", "/join?name=Rocky").json()
    path = run_dir / "recording-0001.jsonl.zst"
    wait_until(lambda: len(events_of(path)) == 2)
    headers = {"X-Session": joined["session"], **JSON}
    for _ in range(48):  # these and the join fill a block
        world.ask("POST", "/input", headers=headers, body=b'{"type":"Add","data":1}')
    size = path.stat().st_size
    world.ask("POST", "/input", headers=headers, body=b'{"type":"Add","data":1}')
    world.ask("POST", "/input", headers=headers, body=b'{"type":"Add","data":1}')
    wait_until(lambda: path.stat().st_size > size)
    world.process.send_signal(signal.SIGKILL)
    world.process.wait(HANG_S)
    names = [event["event"] for event in events_of(path)]
    assert names[:2] == ["start", "join"]
    assert set(names[2:]) == {"input"}
    with reading(path) as recording:
        assert recording.torn_at is None


def test_every_launch_writes_its_own_recording(hosted, tmp_path):
    (tmp_path / "recording-0001.jsonl").write_text("")  # of the older format
    paths = []
    for _ in range(2):
        recorder = open_recording(tmp_path, hosted, resumed=False)
        recorder.close()
        paths.append(recorder.path.name)
    assert paths == ["recording-0002.jsonl.zst", "recording-0003.jsonl.zst"]


def test_a_world_that_cannot_record_exits_with_a_reason(launch, tmp_path):
    (tmp_path / "file").write_text("")
    world = launch(TALLY, "--record", "--record-dir", str(tmp_path / "file"))
    assert world.process.wait(HANG_S) == 1
    assert "cannot record into" in world.log
    assert world.log.count("\n") == 1


def test_a_broken_manifest_is_unchanged_and_the_world_serves(launch, run_dir, manifest):
    manifest.write_text("[broken")
    env = {"CLAWBLOX_MANIFEST_PATH": str(manifest)}
    world = launch(TALLY, "--record", "--record-dir", str(run_dir), env=env)
    assert world.ask("GET", "/api.md").status == 200
    assert f"ERROR: {manifest}: cannot register the recording: " in world.log
    assert manifest.read_text() == "[broken"
    assert not manifest.with_name("manifest.json.tmp").exists()


# --------------------------------------------------------------------------------------- the start


def test_the_first_event_describes_the_start_of_the_world(hosted, tmp_path):
    recorder = open_recording(tmp_path, hosted, resumed=True, reseed=7)
    recorder.close()
    start, end = events_of(recorder.path)
    assert (start["resumed"], start["reseed"], start["rows"]) == (True, 7, None)
    assert end["event"] == "end"


def test_a_world_continues_from_its_recording_alone(hosted, tmp_path):
    session = hosted.join("Rocky")
    hosted.say(session, "hello")
    hosted.queue(session, "Add", 3)
    hosted.step()
    recorder = open_recording(tmp_path, hosted, resumed=False)
    recorder.close()
    snapshot = events_of(recorder.path)[0]["snapshot"]
    text = json.dumps(snapshot)
    assert session.session not in text
    assert hosted.ids.document()["key"] not in text

    replayed = HostedWorld(Tally())
    restore_document(replayed, with_new_secrets(snapshot))
    for world in (hosted, replayed):
        world.apply_inputs()
        world.step()
    assert [session.name for session in replayed.sessions] == ["Rocky"]
    assert replayed.chat.latest(1, None) == hosted.chat.latest(1, None)
    assert digest_value(replayed.simulation.snapshot()) == digest_value(
        hosted.simulation.snapshot()
    )


def test_a_world_that_cannot_be_saved_is_recorded_without_its_start(hosted, tmp_path, caplog):
    hosted.simulation.extra = {1, 2}
    recorder = open_recording(tmp_path, hosted, resumed=False)
    recorder.close()
    start = events_of(recorder.path)[0]
    assert start["snapshot"] == {
        "unavailable": "TypeError: Object of type set is not JSON serializable"
    }


def test_rows_are_in_the_recording_unless_the_database_is_shared(hosted, tmp_path, monkeypatch):
    def rows_after(**attributes: object) -> object:
        for name, value in attributes.items():
            monkeypatch.setattr(hosted.simulation, name, value)
        recorder = open_recording(tmp_path, hosted, resumed=False)
        recorder.close()
        return events_of(recorder.path)[0]["rows"]

    assert rows_after() is None
    assert rows_after(rows_copier=lambda: lambda path: path.write_bytes(b"rows")) == "cm93cw=="
    unavailable = {"unavailable": "the database is shared"}
    assert rows_after(rows_copier=lambda: None, has_shared_rows=True) == unavailable
    monkeypatch.setattr(recording_module, "MAX_ROWS_BYTES", 3)
    rows = rows_after(rows_copier=lambda: lambda path: path.write_bytes(b"rows"))
    assert rows == {"unavailable": "the database has 4 bytes"}
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".zst"] * 4


# ------------------------------------------------------------------------------------- the records


@pytest.mark.parametrize(
    ("cause", "call"),
    [
        (lambda world, session: world.join("Jonah"), "join"),
        (lambda world, session: world.queue(session, "Explode", 1), "input"),
        (lambda world, session: world.queue(session, "FailAtNextStep", None), "step"),
    ],
)
def test_the_event_that_halts_a_world_is_recorded_before_the_halt(hosted, cause, call):
    session = hosted.join("Rocky")
    hosted.recorder = recorder = Seen()
    with pytest.raises(Halted):
        _ = cause(hosted, session), hosted.apply_inputs(), hosted.step()
    [(event, _), (halted, fields)] = recorder.events
    assert (event, halted, fields["call"]) == (
        "join" if call == "join" else "input",
        "halted",
        call,
    )


def test_an_agent_is_admitted_with_the_id_that_it_had(hosted):
    hosted.recorder = recorder = Seen()
    for number in range(hosted.simulation.max_agents + 1):  # the original decided who may join
        hosted.admit(AgentSession(f"s{number}", f"a{number}", "Rocky"))
    assert recorder.events[0] == ("join", {"agent_id": "a0", "name": "Rocky"})
    assert [session.agent_id for session in hosted.sessions] == ["a0", "a1", "a2", "a3"]
    assert [*hosted.simulation.sums] == ["a0", "a1", "a2", "a3"]


def test_an_observation_is_recorded_once_for_each_version_of_the_state(hosted):
    session = hosted.join("Rocky")
    hosted.recorder = recorder = Seen()
    for is_fresh in (False, False, True, True):
        hosted.observe(session, is_fresh=is_fresh)
    assert len(recorder.observations) == 1
    hosted.step()
    observation = hosted.observe(session)
    assert recorder.observations[1:] == [(session.agent_id, observation)]


def test_an_observation_keeps_its_place_among_the_events(hosted, recorder):
    rocky = hosted.join("Rocky")
    hosted.observe(rocky)
    hosted.join("Molly")
    hosted.observe(rocky)
    recorder.close()
    with reading(recorder.path) as recording:
        names = [record.fields.get("event", record.track) for record in recording.read()]
    assert names == ["start", "frames", "join", "observations", "join", "observations", "end"]


def test_frames_are_taken_ten_times_per_second_with_a_fingerprint_of_each_tick(
    hosted, tmp_path, monkeypatch
):
    ticks = iter(range(1000))
    monkeypatch.setattr(recording_module, "FRAME_SHARE", 1e9)  # whatever they cost here
    monkeypatch.setattr(Tally, "time", property(lambda tally: tally.ticks / 30))
    monkeypatch.setattr(Tally, "spectate", lambda tally: {"at": tally.ticks})
    monkeypatch.setattr(Tally, "fingerprint", lambda tally: next(ticks))
    hosted.recorder = open_recording(tmp_path, hosted, resumed=False)
    for _ in range(7):
        hosted.step()
    hosted.recorder.close()
    frames = [fields for fields in read_all(hosted.recorder.path) if "after" in fields]
    assert [fields.get("frame") for fields in frames] == [{"at": 0}, {"at": 3}, {"at": 6}, None]
    fingerprints = [fields.get("fingerprints") for fields in frames]
    assert fingerprints == [None, [0, 1, 2], [3, 4, 5], [6]]
    assert frames[0]["state"] == digest_value(Tally().snapshot())


def test_a_slow_state_is_digested_once(hosted, tmp_path, monkeypatch):
    monkeypatch.setattr(recording_module, "MAX_STATE_S", 0.0)
    hosted.recorder = open_recording(tmp_path, hosted, resumed=False)
    for _ in range(5):
        hosted.step()
    hosted.recorder.close()
    assert [
        "state" in fields for fields in read_all(hosted.recorder.path) if "after" in fields
    ] == [True]


def test_frames_that_cost_much_are_taken_less_often(hosted, tmp_path, monkeypatch):
    now = 0.0

    def spectate(tally: Tally) -> int:
        nonlocal now
        now += 0.02
        return tally.ticks

    monkeypatch.setattr(recording_module, "monotonic_s", lambda: now)
    monkeypatch.setattr(Tally, "spectate", spectate)
    hosted.recorder = open_recording(tmp_path, hosted, resumed=False)
    for _ in range(100):
        hosted.step()
        now += 0.1
    hosted.recorder.close()
    count = sum("frame" in fields for fields in read_all(hosted.recorder.path))
    assert now * 0.1 / 0.02 - 2 < count < now * 0.1 / 0.02 + 7


@pytest.mark.parametrize("method", ["spectate", "fingerprint", "snapshot"])
def test_a_world_runs_on_when_a_method_for_recordings_fails(
    hosted, tmp_path, monkeypatch, caplog, method
):
    monkeypatch.setattr(recording_module, "FRAME_SHARE", 1e9)  # whatever they cost here
    hosted.recorder = open_recording(tmp_path, hosted, resumed=False)

    def fail(tally: Tally) -> None:
        raise LookupError("lost")

    monkeypatch.setattr(Tally, method, fail)
    for _ in range(3):
        hosted.step()
    hosted.recorder.close()
    assert caplog.messages == [f"{method} failed, so the recording lacks it: LookupError: lost"]
    assert hosted.failure is None
    assert [event["event"] for event in events_of(hosted.recorder.path)] == ["start", "end"]


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("place", ["event", "observed", "ticked"])
def test_a_defect_in_a_recorder_ends_the_recording_but_not_the_world(
    hosted, recorder, monkeypatch, caplog, place
):
    rocky = hosted.join("Rocky")

    def fail(*_arguments: object) -> None:
        raise AssertionError("a defect")

    monkeypatch.setattr(recorder, "_add", fail)
    if place == "event":
        hosted.join("Molly")
    elif place == "observed":
        hosted.observe(rocky)
    else:
        for _ in range(10):
            hosted.step()
    assert hosted.failure is None
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("AssertionError: a defect")
    recorder.close()
    assert [event["event"] for event in events_of(recorder.path)] == ["start"]


def test_a_value_too_deep_to_be_encoded_ends_the_recording_but_not_the_world(
    hosted, recorder, caplog
):
    recorder.event("input", {"data": nested(100_000)})
    assert "the recording ends here, and the world continues: input: Recurs" in caplog.messages[0]
    recorder.close()


def test_a_state_too_deep_to_be_encoded_is_missing(hosted, tmp_path, monkeypatch):
    monkeypatch.setattr(Tally, "snapshot", lambda _tally: nested(100_000))
    recorder = open_recording(tmp_path, hosted, resumed=False)
    recorder.close()
    assert "RecursionError" in events_of(recorder.path)[0]["snapshot"]["unavailable"]


# ----------------------------------------------------------------------------------------- writing


@pytest.mark.anyio
async def test_no_event_is_lost_when_the_writer_is_cancelled(hosted, tmp_path, monkeypatch):
    monkeypatch.setitem(BLOCK_AGE_S, Track.FRAMES, 0.0)
    recorder = await to_thread.run_sync(partial(open_recording, tmp_path, hosted, resumed=False))
    take = recorder._writer._collector.take

    with anyio.CancelScope() as scope:

        def take_and_cancel(now: float) -> list:
            scope.cancel()
            return take(float("inf"))

        monkeypatch.setattr(recorder._writer._collector, "take", take_and_cancel)
        await recorder.run()
    recorder.event("chat", {"number": 1})
    await to_thread.run_sync(recorder.close)
    assert [event.get("number") for event in events_of(recorder.path)] == [None, 1, None]


@pytest.mark.anyio
async def test_events_are_written_in_order_while_new_ones_arrive(hosted, tmp_path):
    recorder = await to_thread.run_sync(partial(open_recording, tmp_path, hosted, resumed=False))
    size = recorder.path.stat().st_size
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        for number in range(100):
            recorder.event("chat", {"number": number})
            await anyio.sleep(0)
        await wait_until_async(lambda: recorder.path.stat().st_size > size)
        tasks.cancel_scope.cancel()
    await to_thread.run_sync(recorder.close)
    assert [event["number"] for event in events_of(recorder.path)[1:-1]] == [*range(100)]


def test_a_full_disk_ends_the_recording_but_not_the_world(hosted, caplog):
    file = RecordingFile(Path("/dev/full"), Path("/dev/full").open("wb"))  # noqa: SIM115
    hosted.recorder = recorder = RecordingWriter(hosted, file)
    for name in ("Rocky", "Molly"):
        hosted.join(name)
        recorder._writer.write(recorder._writer._collector.take(float("inf")))
    recorder.close()
    reason = "/dev/full: the recording ends here, and the world continues: No space left on device"
    assert caplog.messages == [reason]
    assert len(hosted.sessions) == 2


def test_a_recording_ends_when_too_much_waits_to_be_written(hosted, recorder, monkeypatch, caplog):
    monkeypatch.setattr(background, "MAX_WAITING_BYTES", 1000)
    rocky = hosted.join("Rocky")
    for _ in range(10):
        hosted.say(rocky, "x" * 500)
    assert [message.rpartition(": ")[2] for message in caplog.messages] == [
        "more than 1000 bytes wait to be written"
    ]
    assert len(hosted.chat.latest(50, None)) == 10
    recorder.close()


@pytest.mark.anyio
async def test_a_defect_in_the_writing_thread_ends_the_recording_but_not_the_world(
    hosted, tmp_path, monkeypatch, caplog
):
    recorder = await to_thread.run_sync(partial(open_recording, tmp_path, hosted, resumed=False))

    def fail(*_arguments: object) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(recorder._writer._file, "write", fail)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        for number in range(BLOCK_RECORDS):
            recorder.event("chat", {"number": number})
        await wait_until_async(lambda: bool(caplog.messages))
        tasks.cancel_scope.cancel()
    await to_thread.run_sync(recorder.close)
    assert [message.rpartition("continues: ")[2] for message in caplog.messages] == [
        "MemoryError: no memory"
    ]
