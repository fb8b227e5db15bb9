"""``clawblox replay``: recordings as text, as JSON, at a moment, and in the world's own viewer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import anyio
import pytest

from clawblox import ActionRefusedError, AsyncWorld
from clawblox.recording.blocks import Track
from clawblox.rundir.manifest import manifest_path
from tests.cli.conftest import Start
from tests.recording.files import Recorded, content
from tests.server.conftest import TALLY
from tests.support.processes import marked_processes
from tests.support.waiting import wait_until
from tests.support.worlds import make_world
from tests.worlds.viewers import world_with_viewer

OLD = Path(__file__).parents[2] / "recording" / "events-v1.jsonl"
ROCKY, MOLLY = "3a1b9c5e-0000-4000-8000-000000000001", "77a2c0de-0000-4000-8000-000000000002"


def make_recording(directory: Path) -> Path:
    """Record a chase of two agents for five seconds, with a block per track and second."""
    recorded = Recorded(directory)
    recorded.add(Track.INPUTS, 1, event="join", agent_id=ROCKY, name="Rocky")
    recorded.frame(5, fingerprints=[7, 8], state="c0ffee" * 10, frame={"ball": [1, 2]})
    recorded.observe(6, ROCKY, {"tick": 6, "player": {"x": 1, "y": 0}})
    recorded.flush()
    recorded.add(Track.INPUTS, 10, event="join", agent_id=MOLLY, name="Molly")
    recorded.add(
        Track.INPUTS, 11, event="input", agent_id=ROCKY, action="Roll", data={"by": [1, 0]}
    )
    recorded.observe(12, ROCKY, {"tick": 12, "player": {"x": 2, "y": 0}})
    recorded.observe(13, ROCKY, {"tick": 13, "player": {"x": 2, "y": 0}})
    recorded.flush()
    recorded.add(
        Track.INPUTS, 20, event="input", agent_id=MOLLY, action="Fly", data=None, refusal="no wings"
    )
    recorded.add(Track.INPUTS, 21, event="chat", agent_id=MOLLY, content="hello")
    recorded.frame(25, frame={"ball": [3, 4]})
    recorded.flush()
    recorded.add(Track.INPUTS, 30, event="leave", agent_id=MOLLY)
    recorded.add(Track.INPUTS, 40, event="removed", agent_id=ROCKY)
    recorded.add(Track.INPUTS, 50, event="halted", error="ZeroDivisionError: ball")
    recorded.add(Track.INPUTS, 50, event="end")
    return recorded.close()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return make_recording(tmp_path)


def make_run(directory: Path, *recordings: str) -> Path:
    """Make a run directory whose manifest lists recordings."""
    (directory / "recordings").mkdir(parents=True)
    entries = [{"path": path, "format": "clawblox-recording-v2"} for path in recordings]
    manifest_path(directory).parent.mkdir()
    manifest_path(directory).write_text(json.dumps({"schema_version": 1, "recordings": entries}))
    return directory


TIMELINE = """\
     0.000s        0                the recording starts
     0.100s        1  Rocky         joins
     0.600s        6  Rocky         sees {tick: 6, player: {x: 1, y: 0}}
     1.000s       10  Molly         joins
     1.100s       11  Rocky         Roll {by: [1, 0]}
     1.200s       12  Rocky         sees player.x: 1 -> 2
     1.300s       13  Rocky         sees no change
     2.000s       20  Molly         Fly  refused: "no wings"
     2.100s       21  Molly         says "hello"
     3.000s       30  Molly         leaves
     4.000s       40  Rocky         is removed
     5.000s       50                the world halted: "ZeroDivisionError: ball"
     5.000s       50                the world ended
"""


def test_a_recording_is_printed_as_a_timeline(call: Start, recording: Path) -> None:
    command = call("replay", str(recording))
    assert (command.out, command.err, command.wait()) == (TIMELINE, "", 0)
    later = call("replay", str(recording), "--since", "2.05", "--track", "inputs").out
    assert later.splitlines() == TIMELINE.splitlines()[8:]
    frames = call("replay", str(recording), "--track", "frames").out.splitlines()
    assert frames[0].endswith("state c0ffeec0, 2 fingerprints, frame {ball: [1, 2]}")


def test_records_are_printed_as_lines_of_json(call: Start, recording: Path) -> None:
    lines = [json.loads(line) for line in call("replay", str(recording), "--json").out.splitlines()]
    assert [line["tick"] for line in lines] == [
        0, 1, 5, 6, 10, 11, 12, 13, 20, 21, 25, 30, 40, 50, 50
    ]  # fmt: skip
    assert lines[2]["track"] == "frames"
    assert lines[2]["frame"] == {"ball": [1, 2]}


def test_at_shows_the_last_frame_and_observations_before_the_moment(
    call: Start, recording: Path
) -> None:
    out = call("replay", str(recording), "--at", "2.6").out
    head, _, rest = out.partition("\n\n")
    assert head == "At 2.600s\nAgents: Rocky, Molly"
    frame, seen, before, after = rest.split("\n\n")
    assert frame.startswith("Frame of 2.500s:\n  ball: [3, 4]")
    assert seen.startswith("Rocky saw at 1.300s:\n  tick: 13")
    assert before.splitlines() == [
        "Before:",
        *(TIMELINE.splitlines()[at] for at in (1, 3, 4, 7, 8)),
    ]
    assert after.splitlines() == ["After:", *TIMELINE.splitlines()[9:]]

    at = json.loads(call("replay", str(recording), "--at", "0.55", "--json").out)
    assert at["agents"] == [{"agent_id": ROCKY, "name": "Rocky"}]
    assert at["frame"]["frame"] == {"ball": [1, 2]}
    assert at["observations"] == []
    assert [event["tick"] for event in at["after"]] == [10, 11, 20, 21, 30]


def test_recording_in_the_older_format_is_printed(call: Start) -> None:
    lines = call("replay", str(OLD)).out.splitlines()
    assert (
        lines[3]
        == '     0.300s        3  Rocky         Add "two"  refused: "Add needs a whole number"'
    )
    assert len(lines) == 6


def test_recording_damaged_after_its_end_is_noted_and_listed(call: Start, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "recordings/recording-0001.jsonl.zst", "recordings/gone")
    recording = make_recording(run / "recordings")
    document = json.loads(manifest_path(run).read_text())
    document["recordings"][0] |= content(recording)
    manifest_path(run).write_text(json.dumps(document))
    whole = call("replay", str(run), "--recording", "1")
    assert (whole.out, whole.err) == (TIMELINE, "")
    recording.write_bytes(recording.read_bytes()[:-5])
    cut = call("replay", str(run), "--recording", "1")
    assert "recording-0001.jsonl.zst is incomplete: it was cut after it was finished" in cut.err
    recording.write_bytes(recording.read_bytes() + b"other")
    listed = call("replay", str(run))
    first, second = listed.err.splitlines()[1:3]
    assert first.endswith("recordings/recording-0001.jsonl.zst  (changed)")
    assert second.endswith("recordings/gone")  # without a digest, like older versions


def test_incomplete_recording_is_printed_with_a_note(call: Start, recording: Path) -> None:
    recording.write_bytes(recording.read_bytes()[:-5])
    command = call("replay", str(recording))
    assert command.out == "".join(TIMELINE.splitlines(keepends=True)[:9])
    assert "ends with an incomplete block, which is left out" in command.err
    assert command.wait() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--at", "1", "--since", "1"], "--at shows all tracks at one time"),
        (["--at", "1", "--track", "frames"], "--at shows all tracks at one time"),
        (["--at", "nan"], "must be"),
        (["--viewer", "--json"], "--viewer shows the whole recording"),
        (["--world", "."], "--world is the world of the viewer"),
        (["--recording", "1"], "--recording is for run directories"),
        (["--track", "secrets"], "is not one of 'inputs', 'observations', 'frames'"),
    ],
)
def test_contradicting_options_of_replay_are_refused(
    call: Start, recording: Path, options: list[str], message: str
) -> None:
    command = call("replay", str(recording), *options)
    assert (command.wait(), command.out) == (2, "")
    assert message in command.err


# --------------------------------------------------------------------------------- run directories


def test_the_only_recording_of_a_run_is_found(call: Start, tmp_path: Path, recording: Path) -> None:
    run = make_run(tmp_path / "run", f"recordings/{recording.name}")
    shutil.copy(recording, run / "recordings")
    assert call("replay", str(run)).out == TIMELINE


def test_recording_option_is_required_for_several_recordings(
    call: Start, tmp_path: Path, recording: Path
) -> None:
    run = make_run(tmp_path / "run", "recordings/gone.jsonl.zst", str(recording))
    several = call("replay", str(run))
    assert several.wait() == 2
    assert several.err.splitlines()[0] == "Error: --recording: there are several:"
    assert [line.split()[0] for line in several.err.splitlines()[1:]] == ["1", "2"]
    assert call("replay", str(run), "--recording", "2").out == TIMELINE
    assert "there is no recording 3:" in call("replay", str(run), "--recording", "3").err
    gone = call("replay", str(run), "--recording", "1")
    assert (gone.wait(), "the recording cannot be read: No such file" in gone.err) == (1, True)


def test_recordings_of_many_instances_are_listed_with_their_names(
    call: Start, tmp_path: Path, recording: Path
) -> None:
    run = make_run(tmp_path / "run")
    for name in ("w000", "w001"):
        inner = make_run(run / name, f"recordings/{recording.name}")
        shutil.copy(recording, inner / "recordings")
    instances = [{"name": name, "dir": name} for name in ("w000", "w001", "lost", "\x1b[2J")]
    manifest_path(run).write_text(json.dumps({"schema_version": 1, "instances": instances}))
    listed = call("replay", str(run)).err.splitlines()[1:]
    assert [line.split()[:2] for line in listed] == [["1", "w000"], ["2", "w001"]]
    assert call("replay", str(run), "--recording", "2").out == TIMELINE


def test_a_run_without_recordings_is_an_error(call: Start, tmp_path: Path) -> None:
    command = call("replay", str(make_run(tmp_path / "run")))
    assert command.wait() == 2
    assert "There are no recordings in" in command.err
    assert "--record" in command.err


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "link above"])
def test_only_regular_files_below_the_run_are_read(
    call: Start, tmp_path: Path, recording: Path, kind: str
) -> None:
    run = make_run(tmp_path / "run", "recordings/r")
    place = run / "recordings" / "r"
    if kind == "link":
        place.symlink_to(recording)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    else:
        place.parent.rmdir()
        place.parent.symlink_to(tmp_path)
        recording.rename(tmp_path / "r")
    command = call("replay", str(run))
    assert (command.wait(), command.out) == (1, "")
    assert "the recording cannot be read: " in command.err


def test_hostile_text_in_a_recording_is_escaped(call: Start, tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    hostile = "\x1b]0;t\x07\x9b2J\u202e\n"
    recorded.add(Track.INPUTS, 1, event="join", agent_id=hostile, name=hostile)
    recorded.add(Track.INPUTS, 2, event=hostile, agent_id=hostile)
    recorded.add(
        Track.INPUTS, 3, event="input", agent_id=7, action=hostile, data={hostile: hostile}
    )
    recorded.add(Track.INPUTS, 4, event="chat", agent_id=[1], content=hostile)
    recorded.observe(5, hostile, {hostile: hostile})
    recorded.observe(6, hostile, {hostile: 1})
    recorded.observe(7, hostile, "\ud800")
    recorded.frame(8, frame={hostile: hostile}, state=hostile, fingerprints=hostile)
    path = recorded.close()
    for options in ([], ["--json"], ["--track", "frames"], ["--at", "9"], ["--at", "9", "--json"]):
        command = call("replay", str(path), *options)
        assert (command.wait(), command.err) == (0, "")
        assert all(char == "\n" or char.isprintable() for char in command.out), options


@pytest.mark.thorough
def test_viewer_of_the_world_shows_the_recording_of_a_run(
    start: Start, call: Start, tmp_path: Path
) -> None:
    world, run = world_with_viewer(tmp_path, "{recording}"), tmp_path / "run"
    shutil.copy(TALLY, world)
    with (world / "world.toml").open("a") as config:
        config.write(f"[run]\ncommand = ['{sys.executable}', 'tally.py']\n")
    words = ("run", str(world), "--port", "0", "--record", "--run-dir", str(run))
    command = start(*words)
    command.wait_for("is ready at")
    assert call("act", str(run), "Add", "2", "--as", "Rocky").wait() == 0
    command.interrupt()
    lines = call("replay", str(run)).out.splitlines()
    assert [line.split()[-1] for line in lines[1:3]] == ["joins", "2"]
    assert lines[-1].endswith("the world ended")
    shown = call("replay", str(run), "--viewer")
    assert shown.out.startswith(f"{run}/recordings/recording-0001.jsonl.zst\n"), shown.err
    assert shown.err.startswith(f"World: {world}\n")
    run.chmod(0o777)
    refused = call("replay", str(run), "--viewer")
    assert (refused.wait(), refused.out) == (2, "")
    assert f"other users can write {run}" in refused.err


# ------------------------------------------------------------------------------------- the viewer


def test_the_viewer_gets_the_recording_and_a_free_port(
    call: Start, tmp_path: Path, recording: Path
) -> None:
    world = world_with_viewer(tmp_path, "{recording}", "port={port}", "{other}")
    command = call("replay", str(recording), "--viewer", "--world", str(world))
    assert command.wait() == 3
    path, port, other, stray = command.out.splitlines()
    assert (path, other, stray) == (str(recording), "{other}", r"\x1b[2J")
    assert f"The viewer gets the address http://127.0.0.1:{port[5:]}" in command.err
    assert 20000 <= int(port[5:]) < 32000


def test_signal_ends_the_viewer_and_its_child_processes(
    start: Start, tmp_path: Path, recording: Path
) -> None:
    world = world_with_viewer(tmp_path, "stay")
    command = start("replay", str(recording), "--viewer", "--world", str(world))
    command.wait_for("started 2")
    wait_until(lambda: len(marked_processes()) >= 2)  # the environment is empty during an exec
    command.send(signal.SIGTERM)
    assert command.wait() == 128 + signal.SIGTERM
    assert marked_processes() == set()


def test_processes_left_by_a_viewer_are_ended(call: Start, tmp_path: Path, recording: Path) -> None:
    world = world_with_viewer(tmp_path, "leave")
    command = call("replay", str(recording), "--viewer", "--world", str(world))
    assert (command.wait(), "left" in command.out) == (0, True)
    assert marked_processes() == set()


def test_a_killed_command_leaves_no_viewer(start: Start, tmp_path: Path, recording: Path) -> None:
    world = world_with_viewer(tmp_path, "stay")
    command = start("replay", str(recording), "--viewer", "--world", str(world))
    command.wait_for("started 2")
    command.send(signal.SIGKILL)
    command.wait()
    wait_until(lambda: not marked_processes())


def test_a_world_without_a_viewer_is_an_error(call: Start, tmp_path: Path, recording: Path) -> None:
    world = tmp_path / "world"
    world.mkdir()
    (world / "world.toml").write_text('name = "w"\n')
    command = call("replay", str(recording), "--viewer", "--world", str(world))
    assert command.wait() == 2
    assert command.err.startswith("Error: replay.command: must be set to a command that shows")
    assert "--world" in call("replay", str(recording), "--viewer").err
    (world / "world.toml").write_text('name = "w"\n[replay]\ncommand = ["./nothing"]\n')
    missing = call("replay", str(recording), "--viewer", "--world", str(world))
    assert (missing.wait(), "The viewer cannot be started" in missing.err) == (1, True)


# -------------------------------------------------------- worlds that do not record themselves


def test_the_agents_of_a_world_that_cannot_record_itself_are_shown(
    call: Start, tmp_path: Path
) -> None:
    directory, run = make_world(tmp_path, toml_extra='recorder = "clawblox"'), tmp_path / "run"

    async def live() -> None:
        async with AsyncWorld(dir=directory) as world:
            await world.start(run_dir=run, record=True)
            async with await world.join("Rocky") as rocky:
                await rocky.act("add", 2)
                with pytest.raises(ActionRefusedError):
                    await rocky.act("fly")

    anyio.run(live)
    assert call("replay", str(run)).out == (
        "     0.000s        0                the recording starts\n"
        "     0.000s        0  Rocky         joins\n"
        "     0.000s        0  Rocky         add 2\n"
        '     0.500s        0  Rocky         sees {agent_id: "agent-1", time: 0.5, counter: 2}\n'
        '     0.500s        0  Rocky         fly  refused: "unknown type of input"\n'
        "     0.500s        0  Rocky         leaves\n"
        "     0.500s        0                the recording ends\n"
    )
    assert "\nAgents: Rocky\n" in call("replay", str(run), "--at", "0.25").out
    verified = call("verify", str(run))
    assert "it was not recorded by a world on the kit or the engine" in verified.out
    assert verified.wait() == 3


def test_events_unique_to_foreign_recordings_are_shown(call: Start, tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.add(Track.INPUTS, 1, event="join", agent_id=ROCKY, name="Rocky", rejoined=True)
    refused = {"agent_id": ROCKY, "content": "hi", "status": 400, "refusal": "too loud"}
    recorded.add(Track.INPUTS, 2, event="chat", **refused)
    unknown = {"agent_id": ROCKY, "action": None, "data": [1], "status": None, "refusal": None}
    recorded.add(Track.INPUTS, 3, event="input", **unknown)
    recorded.add(Track.INPUTS, 4, event="end", exit="killed by \x1b[31mSIGKILL")
    lines = call("replay", str(recorded.close())).out.splitlines()
    assert [line[36:] for line in lines[1:]] == [
        "is in the world already",
        'says "hi"  refused: "too loud"',
        "[1]  without an answer",
        "the world ended: killed by \\x1b[31mSIGKILL",
    ]
