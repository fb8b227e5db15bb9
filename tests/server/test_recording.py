"""Recordings: what happened, on disk and in the manifest of the run."""

from __future__ import annotations

import json
import signal
import threading
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from clawblox.server import recording as recording_module
from clawblox.server.recording import open_recording, register_recording
from tests.server.conftest import TALLY
from tests.support import wait_until, wait_until_async

JSON = {"Content-Type": "application/json"}


def read_events(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    (directory / ".clawblox").mkdir(parents=True)
    return directory


@pytest.fixture
def manifest(run_dir: Path) -> Path:
    return run_dir / ".clawblox" / "manifest.json"


def test_a_recording_holds_every_event_with_its_simulation_time(launch, run_dir, manifest):
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
    world.ask("POST", "/input", headers=headers, body=b'{"type":"Add","data":2}')
    world.ask("POST", "/input", headers=headers, body=b'{"type":"Add","data":"two"}')
    world.ask("POST", "/chat", headers=headers, body=b'{"content":"hi"}')
    world.ask("POST", "/leave", headers=headers)
    assert world.stop() == 0
    assert "ResourceWarning" not in world.log

    path = run_dir / "recordings" / "recording-0001.jsonl"
    assert f"Recording to: {path}" in world.log
    agent = {"agent_id": joined["agent_id"]}
    start, join, *rest = read_events(path)
    assert start["format"] == "clawblox-events-v1"
    assert (start["world_format"], start["scene_hash"]) == ("tally-v1", "tally")
    assert (start["resumed"], start["reseed"]) == (False, None)
    assert join == {"tick": 0, "time": 0.0, "event": "join", "name": "Rocky", **agent}
    assert [(event["tick"], event["event"]) for event in rest] == [
        (0, "input"),
        (3, "input"),
        (3, "chat"),
        (3, "leave"),
    ]
    assert [event.get("refusal") for event in rest[:2]] == [None, "Add needs a whole number"]
    assert joined["session"] not in path.read_text()

    registered = json.loads(manifest.read_text())
    entry = "recordings/recording-0001.jsonl"
    assert registered == {
        "schema_version": 1,
        "run": {"id": "r1"},
        "unknown": [1],
        "recordings": [{"path": entry, "events": entry, "format": "clawblox-events-v1"}],
    }
    assert [path.name for path in manifest.parent.iterdir()] == ["manifest.json"]


def test_events_reach_the_file_while_the_world_runs(launch, run_dir):
    world = launch(TALLY, "--record", "--record-dir", str(run_dir))
    world.ask("POST", "/join?name=Rocky")
    path = run_dir / "recording-0001.jsonl"
    wait_until(lambda: path.read_text().count("\n") == 2)
    world.process.send_signal(signal.SIGKILL)
    world.process.wait(10)
    assert [event["event"] for event in read_events(path)] == ["start", "join"]


@pytest.mark.thorough
def test_every_launch_writes_its_own_recording(launch, run_dir):
    for _ in range(2):
        world = launch(TALLY, "--record", "--record-dir", str(run_dir))
        assert world.port
        world.stop()
    assert sorted(path.name for path in run_dir.glob("*.jsonl")) == [
        "recording-0001.jsonl",
        "recording-0002.jsonl",
    ]


def test_a_world_that_cannot_record_exits_with_a_reason(launch, tmp_path):
    (tmp_path / "file").write_text("")
    world = launch(TALLY, "--record", "--record-dir", str(tmp_path / "file"))
    assert world.process.wait(10) == 1
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


def test_a_path_outside_the_run_is_registered_absolute(manifest, tmp_path):
    register_recording(manifest, tmp_path / "elsewhere.jsonl")
    entry = json.loads(manifest.read_text())["recordings"][0]
    assert entry["path"] == str(tmp_path / "elsewhere.jsonl")


def test_a_manifest_is_written_in_the_documented_form(manifest, run_dir):
    register_recording(manifest, run_dir / "a.jsonl")
    text = manifest.read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert json.loads(text)["schema_version"] == 1


def test_a_path_is_registered_once(manifest, run_dir):
    for _ in range(2):
        register_recording(manifest, run_dir / "a.jsonl")
    assert len(json.loads(manifest.read_text())["recordings"]) == 1


@pytest.mark.parametrize("text", ["[]", '{"recordings": {}}', ""])
def test_a_file_that_is_not_a_manifest_is_not_overwritten(manifest, run_dir, text):
    manifest.write_text(text)
    with pytest.raises(ValueError, match=r"manifest|Expecting value"):
        register_recording(manifest, run_dir / "a.jsonl")
    assert manifest.read_text() == text


def test_many_worlds_register_without_losing_an_entry(manifest, run_dir):
    paths = [run_dir / f"{number}.jsonl" for number in range(12)]
    threads = [threading.Thread(target=register_recording, args=(manifest, p)) for p in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    registered = json.loads(manifest.read_text())["recordings"]
    assert sorted(entry["path"] for entry in registered) == sorted(path.name for path in paths)


def test_a_stale_temporary_file_is_replaced(manifest, run_dir, monkeypatch):
    monkeypatch.setattr(recording_module, "LOCK_WAIT_S", 0.02)
    manifest.with_name("manifest.json.tmp").write_text("half")
    register_recording(manifest, run_dir / "a.jsonl")
    assert len(json.loads(manifest.read_text())["recordings"]) == 1


def test_the_first_event_describes_the_start_of_the_world(hosted, tmp_path):
    recording = open_recording(tmp_path, hosted, resumed=True, reseed=7)
    recording.close()
    (start,) = read_events(recording.path)
    assert (start["resumed"], start["reseed"]) == (True, 7)


@pytest.mark.anyio
async def test_no_event_is_lost_when_the_writer_is_cancelled(hosted, tmp_path, monkeypatch):
    recording = await to_thread.run_sync(partial(open_recording, tmp_path, hosted, resumed=False))
    take = recording._take

    with anyio.CancelScope() as scope:

        def take_and_cancel():
            scope.cancel()
            return take()

        monkeypatch.setattr(recording, "_take", take_and_cancel)
        await recording.run()
    recording.write({"number": 1})
    await to_thread.run_sync(recording.close)
    assert [event.get("number") for event in read_events(recording.path)] == [None, 1]


@pytest.mark.anyio
async def test_events_are_written_in_order_while_new_ones_arrive(hosted, tmp_path):
    recording = await to_thread.run_sync(partial(open_recording, tmp_path, hosted, resumed=False))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recording.run)
        for number in range(100):
            recording.write({"number": number})
            await anyio.sleep(0)
        await wait_until_async(lambda: recording.path.stat().st_size > 0)
        tasks.cancel_scope.cancel()
    await to_thread.run_sync(recording.close)
    assert [event["number"] for event in read_events(recording.path)[1:]] == [*range(100)]


def test_a_full_disk_ends_the_recording_but_not_the_world(hosted, caplog):
    recording = recording_module.Recording(Path("/dev/full"), Path("/dev/full").open("w"))  # noqa: SIM115
    hosted.record = recording.write
    for name in ("Rocky", "Molly"):
        hosted.join(name)
        recording._append(recording._take())
    recording.close()
    assert caplog.messages == ["/dev/full: the recording ends here; the world runs on"]
    assert len(hosted.sessions) == 2
