"""clawblox records requests and observations of agents for worlds that cannot record."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from clawblox import (
    ActionRefusedError,
    AsyncWorld,
    ConfigError,
    StartedWorld,
    WorldCallError,
    WorldError,
    WorldExitedError,
)
from clawblox.concurrency.threads import run_blocking
from clawblox.recording.writer import RecordingFile
from clawblox.system.request import Answer
from clawblox.world import recorder as recorder_module
from clawblox.world.access import Actor
from clawblox.world.exchanges import Transcript
from clawblox.world.recorder import AgentRecorder, RecordedLife
from clawblox.zstd import find_zstandard
from tests.recording.files import content as content_of
from tests.recording.files import read_all, reading
from tests.support.orchestrators import orchestrator
from tests.support.processes import marked_processes
from tests.support.provable import make_provable_world
from tests.support.running import manifest_of, next_event, requests, switch
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.worlds import ask, make_world
from tests.world.test_access_grants import Program, at_work

pytestmark = pytest.mark.anyio

RECORDER = 'recorder = "clawblox"'
KILLED_TEXT = "killed by SIGKILL (by a person, a program, or for lack of memory)"
NAME = "recording-{:04}.jsonl.zst"
JSON = {"Content-Type": "application/json"}


def make_counter(tmp_path: Path, *flags: str) -> Path:
    return make_world(tmp_path, *flags, toml_extra=RECORDER)


@contextlib.asynccontextmanager
async def recorded(
    world_dir: Path, run: Path, **options: Any
) -> AsyncIterator[tuple[AsyncWorld, StartedWorld]]:
    """Run one instance that is recorded."""
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=world_dir) as world:
            yield world, await world.start(run_dir=run, record=True, **options)


def recording(run: Path, number: int = 1) -> Path:
    return run / "recordings" / NAME.format(number)


def decompressed(path: Path) -> bytes:
    """Return everything in a recording, its headers included, for a search in it."""
    zstandard = find_zstandard()
    assert zstandard is not None
    with reading(path) as reader:
        lines = [record.line for record in reader.read()]
    return b"\n".join([path.read_bytes(), *lines])


def summary(path: Path) -> list[tuple[str, str, str]]:
    """Return event, agent and some further fields of each record."""
    names = {}
    lines = []
    for fields in read_all(path):
        agent, event = fields.get("agent_id", ""), fields.get("event", "sees")
        if event == "join":
            names[agent] = fields["name"]
        key = {"input": "action", "chat": "content", "halted": "error", "end": "exit"}.get(event)
        detail = fields.get("rejoined", "") if event == "join" else fields.get(key, "")
        lines.append((event, names.get(agent, agent), str(detail)))
    return lines


# --- agents ---------------------------------------------------------------------------------


async def test_two_agents_are_recorded_through_a_death_and_a_restart(tmp_path: Path) -> None:
    directory = make_provable_world(tmp_path, clock="lockstep")
    toml = directory / "world.toml"
    toml.write_text(toml.read_text().replace("[run]", f"[run]\n{RECORDER}"))
    run = tmp_path / "run"
    async with recorded(directory, run, restart="checkpoint") as (world, started):
        assert started.record_dir == run / "recordings"
        assert started.env["WORLD_RECORD"] == "0"
        assert "WORLD_RECORD_DIR" not in started.env
        rocky, molly = await world.join("Rocky"), await world.join("Molly")
        seen = await rocky.observe()
        seen_later = await rocky.act("push", {"force": 2.5})
        await molly.say(f"hello {started.env['WORLD_SPECTATOR_TOKEN']}")
        with pytest.raises(ActionRefusedError):
            await molly.act("fly")
        await world.save()
        async with world.events() as events:
            await run_blocking(subprocess.run, ["kill", "-KILL", str(started.pid)])
            await next_event(events, "ready")
        await molly.act("pick")
        await rocky.leave()
        await world.leave(molly.access)
        sessions = [rocky.access.session, molly.access.session]
        tokens = [started.env["WORLD_OPERATOR_TOKEN"], started.env["WORLD_SPECTATOR_TOKEN"]]

    first, second = recording(run), recording(run, 2)
    assert summary(first) == [
        ("start", "", ""),
        ("join", "Rocky", ""),
        ("join", "Molly", ""),
        ("sees", "Rocky", ""),
        ("input", "Rocky", "push"),
        ("sees", "Rocky", ""),
        ("chat", "Molly", "hello ***"),
        ("input", "Molly", "fly"),
        ("end", "", KILLED_TEXT),
    ]
    assert summary(second) == [
        ("start", "", ""),
        ("join", "Molly", "True"),
        ("input", "Molly", "pick"),
        ("sees", "Molly", ""),
        ("join", "Rocky", "True"),
        ("leave", "Rocky", ""),
        ("leave", "Molly", ""),
        ("end", "", "None"),
    ]
    records = read_all(first)
    assert [each["observation"] for each in records if "observation" in each] == [seen, seen_later]
    assert records[-1] | {"utc": "", "left_out": 0} == records[-1] | {"utc": ""}
    start, again = records[0], read_all(second)[0]
    assert (start["writer"], start["world"], start["resumed"]) == ("clawblox", "Orchard", False)
    assert start["snapshot"] == {"unavailable": "the world does not record itself"}
    assert (again["resumed"], again["time"]) == (True, seen_later["time"])
    for path in (first, second):
        content = decompressed(path)
        assert not [secret for secret in sessions + tokens if secret.encode() in content]
        assert path.stat().st_mode & 0o777 == 0o600
    assert manifest_of(run)["recordings"] == [
        {
            "events": place,
            "format": "clawblox-recording-v2",
            "path": place,
            **content_of(run / place),
        }
        for place in (f"recordings/{first.name}", f"recordings/{second.name}")
    ]


async def test_an_agent_program_is_recorded_at_its_own_address(tmp_path: Path) -> None:
    agent, run = Program("Rocky-r003", tmp_path / "rocky"), tmp_path / "run"
    async with (
        recorded(make_counter(tmp_path), run, restart="fresh") as (world, started),
        at_work(agent),
    ):
        access = await world.connect(agent)
        port = int(access["base_url"].rpartition(":")[2])

        def act(target: str, body: bytes) -> int:
            return ask(port, "POST", target, headers=JSON, body=body).status

        assert await run_blocking(act, "/input", b'{"type": "add", "data": 5}') == 200
        assert await run_blocking(act, "/input", b'{"type": "fly"}') == 400
        assert await run_blocking(act, "/snapshot", b"") == 403
        assert (await run_blocking(ask, port, "GET", "/observe?all=1")).status == 200
        assert await run_blocking(act, "/chat", b'{"content": "hi"}') == 200
        switch(started, acting="die")
        async with world.events() as events:
            assert await run_blocking(act, "/input", b'{"type": "add", "data": 7}') == 502
            await next_event(events, "ready")
        assert (await run_blocking(ask, port, "GET", "/observe")).status == 200
        headers = json.loads((agent.dir / "world_join.json").read_text())
    assert summary(recording(run)) == [
        ("start", "", ""),
        ("join", "Rocky", ""),
        ("input", "Rocky", "add"),
        ("sees", "Rocky", ""),
        ("input", "Rocky", "fly"),
        ("sees", "Rocky", ""),
        ("chat", "Rocky", "hi"),
        ("input", "Rocky", "add"),
        ("end", "", KILLED_TEXT),
    ]
    inputs = [fields for fields in read_all(recording(run)) if fields.get("event") == "input"]
    assert [fields["status"] for fields in inputs] == [200, 400, None]
    # Its session was lost, so the agent was first joined again.
    assert summary(recording(run, 2)) == [
        ("start", "", ""), ("join", "Rocky", ""), ("sees", "Rocky", ""), ("end", "", "None")
    ]  # fmt: skip
    for path in (recording(run), recording(run, 2)):
        content = decompressed(path)
        assert access["session"].encode() not in content
        assert headers["session"].encode() not in content


async def test_answers_that_are_not_observations_are_counted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with capture_logs() as logs:
        async with recorded(make_counter(tmp_path), run) as (world, started):
            rocky = await world.join("Rocky")
            for fault in ("not-json", "status-500"):
                switch(started, acting=fault)
                with pytest.raises(WorldCallError):
                    await rocky.act("add", 1)
    acted = [fields for fields in read_all(recording(run)) if fields.get("event") == "input"]
    assert [(fields["status"], fields["refusal"]) for fields in acted] == [
        (200, None), (500, "Traceback (most recent call last): ...")
    ]  # fmt: skip
    assert read_all(recording(run))[-1]["left_out"] == 1
    assert [log["number"] for log in logs if log["event"] == "requests not recorded"] == [1]


async def test_an_input_that_kills_the_world_is_recorded_without_an_answer(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    async with recorded(make_counter(tmp_path, "--acting", "die"), run) as (world, _):
        rocky = await world.join("Rocky")
        with pytest.raises(WorldExitedError):
            await rocky.act("add", 1)
        await world.wait()
    *_, acted, ended = read_all(recording(run))
    assert (acted["event"], acted["status"], acted["refusal"]) == ("input", None, None)
    assert (ended["event"], ended["exit"]) == ("end", KILLED_TEXT)


async def test_an_input_that_fails_because_the_world_is_stopped_is_recorded(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with recorded(make_counter(tmp_path, "--acting", "hang"), run) as (world, started):
        rocky = await world.join("Rocky")

        async def act() -> None:
            with pytest.raises(WorldExitedError):
                await rocky.act("add", 1)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(act)
            await wait_until_async(lambda: requests(started, "/input"))
            await world.stop(grace_seconds=0.1)
    *_, acted, ended = read_all(recording(run))
    assert (acted["event"], acted["status"]) == ("input", None)
    assert (ended["event"], ended["exit"]) == ("end", None)


# --- which worlds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "record", "variable"),
    [("", True, "1"), (RECORDER, False, "0"), ('recorder = "world"', True, "1")],
)
async def test_clawblox_records_only_for_worlds_that_request_it(
    tmp_path: Path, toml: str, record: bool, variable: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, toml_extra=toml)) as world:
        started = await world.start(run_dir=tmp_path / "run", record=record)
        await (await world.join("Rocky")).observe()
        assert started.env["WORLD_RECORD"] == variable
    assert list(tmp_path.glob("run/recordings/*")) == []


async def test_each_of_many_instances_has_its_own_recordings(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_counter(tmp_path)) as world:
        await world.start_many([{"record": True}, {"record": False}], run_dir=run)
        for name in ("w000", "w001"):
            await world.join("Rocky", instance=name)
        await world.restart("w000", fresh=True)
    inner = run / "worlds" / "w000"
    assert [path.relative_to(run) for path in sorted(run.rglob("*.zst"))] == [
        inner.relative_to(run) / "recordings" / NAME.format(number) for number in (1, 2)
    ]
    assert len(manifest_of(inner)["recordings"]) == 2
    assert summary(recording(inner)) == [
        ("start", "", ""), ("join", "Rocky", ""), ("end", "", "None")
    ]  # fmt: skip


@pytest.mark.parametrize("many", [False, True])
async def test_a_recorded_start_is_refused_without_zstandard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    monkeypatch.setattr("clawblox.zstd.find_zstandard", lambda: None)
    async with AsyncWorld(dir=make_counter(tmp_path)) as world:
        start = partial(world.start_many, [{}]) if many else world.start
        with pytest.raises(ConfigError) as caught:
            await start(run_dir=tmp_path / "run", record=True)
        assert caught.value.key == "record"
        assert "[zstd]" in str(caught.value.hint)
        assert world.instances == ()


async def test_an_attached_instance_continues_to_be_recorded(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with recorded(make_counter(tmp_path), run, detach=True) as (world, _):
        rocky = await world.join("Rocky")
    async with await run_blocking(AsyncWorld.attach, run) as world:
        await world.connect("Molly")
        await world.leave(rocky.access)
        await world.stop()
    assert summary(recording(run))[-1] == ("end", "", "None")
    assert [line[:2] for line in summary(recording(run, 2))] == [
        ("start", ""), ("join", "Molly"), ("end", "")
    ]  # fmt: skip


# --- kills and failures ---------------------------------------------------------------------

KILLED = """
async def main():
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=run_dir, record=True)
        agent = await world.join("Rocky")
        for _ in range(3):
            await agent.act("add", 1)
        tell("acted")
        await hear_async()
anyio.run(main)
"""


def test_a_recording_keeps_all_written_records_after_sigkill(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with orchestrator(KILLED, make_counter(tmp_path), run) as program:
        assert program.hear() == "acted"
        path = recording(run)
        wait_until(lambda: sum("event" in fields for fields in read_all(path)) == 5)
        program.kill()
    assert [line[0] for line in summary(path)] == ["start", "join", "input", "input", "input"]
    with reading(path) as reader:
        assert reader.torn_at is None
    wait_until(lambda: not marked_processes())


@contextlib.contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> Iterator[None]:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(where, name, fail)
        yield


@pytest.mark.parametrize(
    ("where", "name"),
    [(Transcript, "records"), (recorder_module, "AgentExchange"), (recorder_module, "route_kinds")],
)
async def test_a_bug_in_the_recorder_does_not_affect_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    run = tmp_path / "run"
    is_start = name == "route_kinds"
    with capture_logs() as logs:
        async with recorded(make_counter(tmp_path), run, restart="fresh") as (world, _):
            with failing(monkeypatch, where, name):
                if is_start:
                    await world.restart(fresh=True)
                rocky = await world.join("Rocky")
                assert (await rocky.act("add", 3))["counter"] == 3
                await world.stop()
    reports = [log["event"] for log in logs if log["log_level"] == "error"]
    assert reports
    assert all("record" in report for report in reports)
    assert [line[0] for line in summary(recording(run))][:1] == ["start"]


async def test_a_full_disk_ends_only_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full")

    def create(_directory: Path) -> RecordingFile:
        return RecordingFile(full, full.open("wb"))

    run, directory = tmp_path / "run", make_counter(tmp_path)
    with capture_logs() as logs:
        async with recorded(directory, run) as (world, _):
            monkeypatch.setattr(recorder_module, "create_next", create)
            await world.restart(fresh=True)
            rocky = await world.join("Rocky")
            assert (await rocky.act("add", 3))["counter"] == 3
    reasons = [log.get("reason") or log.get("error") for log in logs if log["log_level"] == "error"]
    assert reasons
    assert all("No space left on device" in reason for reason in reasons)


async def test_a_first_start_that_cannot_be_recorded_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(directory: Path) -> None:
        raise OSError(30, "Read-only file system", str(directory))

    monkeypatch.setattr(recorder_module, "create_next", refuse)
    async with AsyncWorld(dir=make_counter(tmp_path)) as world:
        with pytest.raises(WorldError, match="Read-only file system"):
            await world.start(run_dir=tmp_path / "run", record=True)
        assert world.instances == ()


# --- the recorder alone ---------------------------------------------------------------------


def make_recorder(tmp_path: Path) -> AgentRecorder:
    return AgentRecorder(
        RecordedLife(
            instance="w000",
            world="counter",
            directory=tmp_path,
            api={"observe": "/observe", "input": "/input"},
            resumed=False,
            time=0.0,
            reseed=None,
            secrets=(),
            register=lambda *_: None,
        )
    )


ROCKY = Actor("session-of-rocky", "agent-1", "Rocky")


async def test_notes_of_other_threads_are_written_until_the_recording_ends(
    tmp_path: Path,
) -> None:
    recorder, answer = make_recorder(tmp_path), Answer(200, b'{"time": 1}')
    path = tmp_path / NAME.format(1)
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recorder.run)
            await recorder.is_open.wait()

            def act_often(number: int) -> None:
                actor = Actor(f"session-of-{number}", f"agent-{number}", f"Agent {number}")
                for at in range(100):
                    body = json.dumps({"type": "add", "data": at}).encode()
                    recorder.note(actor, "POST", "/input", body, answer)

            threads = [threading.Thread(target=act_often, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            await wait_until_async(lambda: not any(thread.is_alive() for thread in threads))
            await wait_until_async(lambda: len(read_all(path)) >= 400)
            recorder.end(exit=None, halt="the reactor melted")
            recorder.end(exit="exit status 1", halt=None)
    recorder.note_join(ROCKY, rejoined=False)
    records = await run_blocking(read_all, path)
    for number in range(4):
        sent = [
            r["data"] for r in records if r.get("agent_id") == f"agent-{number}" and "data" in r
        ]
        assert sent == [*range(100)]
    *_, halted, ended = records
    assert (halted["event"], halted["error"]) == ("halted", "the reactor melted")
    assert (ended["event"], ended["exit"]) == ("end", None)


async def test_a_recording_ends_when_its_queue_overflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make_recorder(tmp_path)
    monkeypatch.setattr("clawblox.recording.background.MAX_WAITING_BYTES", 100_000)
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recorder.run)
            await recorder.is_open.wait()
            for _ in range(20):
                recorder.note(ROCKY, "GET", "/observe", None, Answer(200, b'"%b"' % (b"x" * 9000)))
            assert 100_000 < recorder._notes_bytes < 120_000
            recorder.end(exit=None, halt=None)
    assert [log["reason"] for log in logs] == ["more than 100000 bytes wait to be written"]


async def test_a_cancelled_recording_is_complete(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        await recorder.is_open.wait()
        recorder.note_join(ROCKY, rejoined=False)
        tasks.cancel_scope.cancel()
    events = await run_blocking(read_all, tmp_path / NAME.format(1))
    assert [each["event"] for each in events] == ["start", "join", "end"]
