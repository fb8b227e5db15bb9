"""A world that reports a halt is ended, reported with its reason, and restarted."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawblox import AsyncWorld, ProcessExit, SnapshotError, StartedWorld, WorldExitedError
from clawblox.instance.supervisor import Supervisor
from clawblox.protocol import parse_halt
from clawblox.results import Access
from clawblox.telemetry.log_times import index_path
from clawblox.world.agent_client import AsyncAgentClient
from clawblox.world.places import FleetPlace, make_granter
from tests.instance.supervision.support import LIFE, now
from tests.support.crowd import join, kinds, leftovers, on_disk, past, until
from tests.support.processes import marked_processes
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask

pytestmark = pytest.mark.anyio

TALLY = Path(__file__).parents[2] / "server" / "tally.py"
LIVELY = '[run.liveness]\npath = "/health"\nperiod = 0.05\ntimeout = 20\n'
REASON = "OverflowError: the sums are too high"


def tally(tmp_path: Path, *flags: str, liveness: str = LIVELY) -> Path:
    """Write a world on the server library that an agent can halt."""
    directory = tmp_path / "tally"
    directory.mkdir()
    command = json.dumps([sys.executable, str(TALLY), *flags])
    (directory / "world.toml").write_text(f'name = "tally"\n[run]\ncommand = {command}\n{liveness}')
    return directory


def act(started: StartedWorld, session: str, action: str, data: object = None) -> int:
    body = json.dumps({"type": action, "data": data}).encode()
    headers = {"X-Session": session, "Content-Type": "application/json"}
    return ask(started.port, "POST", "/input", body=body, headers=headers).status


@pytest.mark.thorough
async def test_halt_emits_an_event_and_is_recorded_with_its_reason(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=tally(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        await past(events)
        sick = batch["w001"]
        assert act(sick, await join(world, sick), "FailAtNextStep") == 503
        seen = await until(events, "exited", ["w001"])
        assert kinds(seen, "w001") == ["halted", "exited"]
        assert kinds(seen, "w000") == []
        halted, exited = (one.data for one in seen)
        assert halted == {"reason": REASON}
        assert (exited["halt"], exited["unresponsive"]) == (REASON, False)
        assert exited["exit"] == ProcessExit(status=0)
        assert world.instances == ("w000",)
        with pytest.raises(WorldExitedError, match=f"has halted: {REASON}"):
            await world.save(instance="w001")
        metrics = world.metrics
        assert (metrics.halts, metrics.unresponsive, metrics.exits) == (1, 0, 1)
        await world.stop_all()
    status = await now(run, "w001")
    assert (status.state, status.halt, status.has_died) == ("halted", REASON, True)
    assert (await now(run, "w000")).state == "exited"
    assert manifest_of(sick.instance_dir)["run"]["status"] == "failed"
    assert leftovers(run, [sick.port]) == []


@pytest.mark.thorough
async def test_a_halted_world_is_brought_back_from_its_last_save(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=tally(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="checkpoint")
        session = await join(world, started)
        assert act(started, session, "Add", 5) == 200
        saved = await world.save()
        assert act(started, session, "Add", 100) == 200
        await past(events)
        assert act(started, session, "Divide") == 503
        seen = await until(events, "ready", ["w000"])
        assert kinds(seen, "w000") == ["halted", "exited", *LIFE]
        assert seen[2].data["resume_path"] == saved.path
        observed = ask(started.port, "GET", "/observe", headers={"X-Session": session})
        assert observed.json()["sum"] == 5
        status = await now(run)
        assert (status.state, status.halt, status.restarts) == ("ready", None, 1)
        (entry,) = manifest_of(started.instance_dir)["restarts"]
        assert entry["exit"] == "halted: ZeroDivisionError: Divide"
        await world.stop()
    status = await now(run)
    assert (status.state, status.halt) == ("exited", None)


@pytest.mark.thorough
async def test_world_that_halts_repeatedly_is_abandoned(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=tally(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh", max_restarts=1)
        await past(events)
        for kind in ("ready", "gave_up"):
            ask(started.port, "POST", "/join?name=Jonah")  # no simulation of this world survives it
            seen = await until(events, kind, ["w000"])
        assert kinds(seen, "w000")[-1] == "gave_up"
        await wait_until_async(lambda: not marked_processes(), HANG_S)
    status = await now(run)
    assert (status.state, status.halt) == ("halted", "RuntimeError: no room on the ship")


@pytest.mark.thorough
async def test_a_halted_world_is_brought_back_on_request(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=tally(tmp_path)) as world:
        (started,) = await world.start_many(1, run_dir=run)
        session = await join(world, started)
        assert act(started, session, "Divide") == 503
        await world.wait()
        await world.restart()
    (entry,) = manifest_of(started.instance_dir)["restarts"]
    assert entry["exit"] == "halted: ZeroDivisionError: Divide"


PATIENT = LIVELY.replace("0.05", "1000")
"""A probe period longer than any test."""


async def halted_unseen(world: AsyncWorld, run: Path, **options: Any) -> StartedWorld:
    """Start a world that halts without being noticed."""
    (started,) = await world.start_many(1, run_dir=run, **options)
    assert act(started, await join(world, started), "FailAtNextStep") == 503
    return started


Call = Callable[[AsyncWorld, AsyncAgentClient], Awaitable[object]]
CALLS: dict[str, Call] = {
    "join": lambda world, client: world.join("late"),
    "connect": lambda world, client: world.connect(agent="late"),
    "observe": lambda world, client: client.observe(),
    "act": lambda world, client: client.act("Add", 1),
    "save": lambda world, client: world.save(),
}


@pytest.mark.parametrize(
    "name",
    [
        name if number == 0 else pytest.param(name, marks=pytest.mark.thorough)
        for number, name in enumerate(CALLS)
    ],
)
async def test_halt_seen_by_a_call_is_recorded_and_restarted_immediately(
    name: str, tmp_path: Path, run: Path
) -> None:
    directory = tally(tmp_path, liveness=PATIENT)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh")
        client = await world.join("Rocky")
        await past(events)
        assert act(started, client.access.session, "FailAtNextStep") == 503
        with pytest.raises(WorldExitedError, match=f"has halted: {REASON}"):
            await CALLS[name](world, client)
        seen = await until(events, "ready", ["w000"])
        assert [kind for kind in kinds(seen, "w000") if kind != "save_failed"] == [
            "halted",
            "exited",
            *LIFE,
        ]
        await world.stop()


@pytest.mark.thorough
async def test_caller_that_waits_for_restarts_gets_the_answer_after_the_restart(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=tally(tmp_path, liveness=PATIENT)) as world:
        (started,) = await world.start_many(1, run_dir=run, restart="checkpoint")
        client = await world.join("Rocky", wait_restart=HANG_S)
        await client.act("Add", 5)
        await world.save()
        assert act(started, client.access.session, "FailAtNextStep") == 503
        assert (await client.observe())["sum"] == 5
        await world.stop()


@pytest.mark.thorough
async def test_halt_answer_to_an_agents_proxy_hurries_the_probe(tmp_path: Path, run: Path) -> None:
    directory = tally(tmp_path, liveness=PATIENT)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        await halted_unseen(world, run)
        place = FleetPlace(world._open_fleet(), world._open_fleet().find("w000"))
        grants: list[Any] = []
        agent: Any = SimpleNamespace(grant_access=lambda grant: grants.append(grant) or "")
        await make_granter(place)(agent, Access("s", None, "Rocky", {}, "", ""))
        grants[0].suspect()  # like the proxy of an agent
        await until(events, "halted", ["w000"])


@pytest.mark.thorough
async def test_run_of_an_unnoticed_halt_is_incomplete_and_can_be_resumed(
    tmp_path: Path, run: Path
) -> None:
    directory = tally(tmp_path, liveness=PATIENT)
    async with AsyncWorld(dir=directory) as world:
        started = await halted_unseen(world, run)
        await world.stop()
    status = await now(run)
    assert (status.state, status.halt, status.has_died) == ("halted", REASON, True)
    assert manifest_of(started.instance_dir)["run"]["status"] == "failed"
    async with AsyncWorld(dir=directory) as world:
        batch = await world.resume_all(run)
        assert list(batch.done) == ["w000"]
        await world.stop_all()
    assert manifest_of(started.instance_dir)["run"]["status"] == "complete"


@pytest.mark.thorough
async def test_a_halted_world_is_not_saved(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=tally(tmp_path, liveness="")) as world:
        (started,) = await world.start_many(1, run_dir=run)
        session = await join(world, started)
        await world.save()
        before = on_disk(started.instance_dir)
        act(started, session, "FailAtNextStep")
        with pytest.raises(SnapshotError) as caught:
            await world.save()
        assert caught.value.status == 503
        assert f"Game halted: {REASON}" in str(caught.value)
        assert on_disk(started.instance_dir) == before
        assert len(manifest_of(started.instance_dir)["checkpoints"]) == 1
        await world.stop()


@pytest.mark.thorough
async def test_running_save_fails_when_the_world_halts(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A halted world must not be asked again, even if it would answer."""
    original: Callable[..., Any] = Supervisor._clear_away
    refused = []

    async def clear_away(supervisor: Supervisor) -> bool:
        if supervisor.instance.halt is not None:
            with pytest.raises(WorldExitedError, match="has halted: "):
                async with supervisor.calls.call():
                    raise AssertionError("it was called")
            refused.append(supervisor.instance.name)
        return bool(await original(supervisor))

    monkeypatch.setattr(Supervisor, "_clear_away", clear_away)
    async with AsyncWorld(dir=tally(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run)
        act(started, await join(world, started), "FailAtNextStep")
        await until(events, "exited", ["w000"])
    assert refused == ["w000"]


@pytest.mark.thorough
async def test_world_that_exits_on_its_halt_needs_no_probe(tmp_path: Path, run: Path) -> None:
    directory = tally(tmp_path, "--exit-on-halt", liveness="")
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh")
        await past(events)
        act(started, await join(world, started), "FailAtNextStep")
        seen = await until(events, "ready", ["w000"])
        assert kinds(seen, "w000") == ["exited", *LIFE]
        assert seen[0].data["exit"] == ProcessExit(status=70)
        await world.stop()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"status": "halted", "reason": "ValueError: x"}', "ValueError: x"),
        (b'{"status": "halted", "reason": "x", "tick": 7}', "x"),
        (b'{"status": "halted"}', "no reason given"),
        (b'{"status": "halted", "reason": ""}', "no reason given"),
        (b'{"status": "halted", "reason": 7}', "no reason given"),
        (b'{"status": "halted", "reason": "%s"}' % (b"x" * 5000), "x" * 1000),
        (b'{"status": "starting", "reason": "x"}', None),
        (b'{"status": ["halted"]}', None),
        (b'{"reason": "halted"}', None),
        (b'["halted"]', None),
        (b'"halted"', None),
        (b"halted", None),
        (b"Game halted: x. See logs for full stack trace.", None),
        (b'{"status": "halted", "reason": "x"', None),
        (b"[" * 100_000, None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_world_counts_as_halted_only_if_it_reports_a_halt(body: bytes, reason: str | None) -> None:
    assert parse_halt(body) == reason


HALTING = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

class World(BaseHTTPRequestHandler):
    def do_GET(self):
        halt = Path(sys.argv[1], os.environ.get("HALTS_BY", "-"))
        body = halt.read_bytes() if halt.exists() else b"{}"
        self.send_response(200 if body == b"{}" else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(os.environ["WORLD_PORT"])), World).serve_forever()
"""
"""A world that answers with the contents of a file, to halt with any reason."""

thorough = partial(pytest.param, marks=pytest.mark.thorough)
TEXT = r'"reason": "the \ud800 value"'


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        pytest.param(TEXT, "the \ufffd value", id="a lone surrogate"),
        thorough(f'{TEXT}, "tick": {"9" * 5000}', "the \ufffd value", id="a long number"),
        thorough('"reason": "late", "at": NaN', "late", id="a number that is none"),
        thorough(f'"reason": "deep", "at": {"[" * 500}{"]" * 500}', "deep", id="depth"),
    ],
)
async def test_unwritable_halt_reason_only_ends_its_instance(
    tmp_path: Path, run: Path, members: str, reason: str
) -> None:
    directory = tmp_path / "halting"
    directory.mkdir()
    (directory / "world.py").write_text(HALTING)
    command = json.dumps([sys.executable, "-I", str(directory / "world.py"), str(tmp_path)])
    toml = f'name = "halting"\n[run]\ncommand = {command}\n{LIVELY}'
    (directory / "world.toml").write_text(toml.replace("/health", "/"))
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        alone = await world.start(run_dir=run, name="alone", env={"HALTS_BY": "halt"})
        await past(events)
        (tmp_path / "halt").write_text(f'{{"status": "halted", {members}}}')
        seen = await until(events, "exited", ["alone"])
        assert seen[0].data == {"reason": reason}
        await world.wait("alone")
        assert world.instances == tuple(one.name for one in batch)
        assert (await world.stop(instance="w000", grace_seconds=HANG_S)).rung == "terminated"
    status = await now(run, "alone")
    assert (status.state, status.halt) == ("halted", reason)
    assert f"it had halted: {reason}" in index_path(alone.log_file).read_text()
    assert not marked_processes()
