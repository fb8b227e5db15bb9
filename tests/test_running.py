"""An instance that is ready: calls of agents, its death, events, logs, and calls out of order."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import attrs
import pytest

import clawblox.fleet
from clawblox import (
    AsyncWorld,
    ConfigError,
    LogLine,
    StartedWorld,
    UsageError,
    WorldCallError,
    WorldError,
    WorldEvent,
    WorldExit,
    WorldExitedError,
    WorldSessionError,
)
from clawblox.events import EventStream
from tests.support import (
    ask,
    is_alive,
    is_listening,
    make_world,
    running_world,
    wait_until_async,
)

pytestmark = pytest.mark.anyio

HANG_S = 30.0
"""What takes longer than this hangs; nothing here measures time."""


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path, *flags: str, **options: Any
) -> AsyncIterator[tuple[AsyncWorld, StartedWorld]]:
    """Run one instance of a counter world."""
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path, *flags), **options) as world:
            yield world, await world.start(run_dir=tmp_path / "run")


def switch(started: StartedWorld, **faults: str) -> None:
    """Switch faults of a running world."""
    query = "&".join(f"{name.replace('_', '-')}={value}" for name, value in faults.items())
    ask(started.port, "POST", f"/__set?{query}")


def requests(started: StartedWorld, path: str = "") -> list[Any]:
    """Return the requests that a world received, to one path or to all."""
    received = ask(started.port, "GET", "/__requests").json()
    return [one for one in received if not path or one["path"] == path]


def manifest_of(run_dir: Path) -> Any:
    return json.loads((run_dir / ".clawblox" / "manifest.json").read_text())


async def next_event(events: EventStream, kind: str) -> WorldEvent:
    """Return the next event of a kind."""
    async for event in events:
        if event.kind == kind:
            return event
    raise AssertionError(f"no event {kind!r}")


@attrs.define
class Bot:
    """What an agent is to a world: a name and a directory."""

    name: str
    dir: Path


# ---------------------------------------------------------------------------------- death


async def test_a_death_is_an_event_though_nobody_asks_the_world(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started), world.events() as events:
        os.kill(started.pid, signal.SIGSTOP)  # from here on it could not answer anybody
        os.kill(started.pid, signal.SIGKILL)
        event = await next_event(events, "exited")
        assert event.instance == started.name
        assert event.detail["exit"] == WorldExit(signal="SIGKILL")
        assert world.instances == ()


async def test_every_call_to_a_dead_world_says_how_it_ended(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        access = await world.connect("Rocky")
        async with world.events() as events:
            ask(started.port, "POST", "/__die?status=3")
            await next_event(events, "exited")
        for call in calls_with(access):
            with pytest.raises(WorldExitedError) as caught:
                await call(world)
            assert_exited(caught.value, started, WorldExit(status=3))
        assert world.url == started.url
        assert not list((tmp_path / "run" / "checkpoints").glob("*"))


def assert_exited(error: WorldExitedError, started: StartedWorld, exit_: WorldExit) -> None:
    """Check that an error says all that is known of a dead instance."""
    assert error.exit == exit_
    assert error.log_lines[-1] == f"Spectator frontend: {started.url}/"
    assert error.elapsed_s is not None
    assert attrs.asdict(started, filter=lambda field, _: hasattr(error, field.name)) == {
        name: getattr(error, name) for name in ("url", "port", "command_file", "log_file")
    }
    for fact in (started.url, str(exit_), started.log_file, started.command_file, started.run_dir):
        assert str(fact) in str(error)
    assert error.instance == started.name
    assert f"world directory: {error.world_dir}\n" in str(error)


HANGING: dict[str, tuple[dict[str, str], str, Callable[[AsyncWorld], Awaitable[Any]]]] = {
    "join": ({"join": "hang"}, "/join", lambda world: world.connect("Rocky")),
    "snapshot-headers": ({"snapshot": "hang-before-headers"}, "/snapshot", AsyncWorld.save),
    "snapshot-body": ({"snapshot": "hang-in-body"}, "/snapshot", AsyncWorld.save),
}


@contextlib.asynccontextmanager
async def hanging_call(
    world: AsyncWorld, started: StartedWorld, name: str
) -> AsyncIterator[list[WorldError]]:
    """Have a call in flight that the world does not answer; yield the errors that it raised."""
    faults, path, call = HANGING[name]
    errors: list[WorldError] = []

    async def run() -> None:
        try:
            await call(world)
        except WorldError as error:
            errors.append(error)

    switch(started, **faults)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await wait_until_async(lambda: requests(started, path), what="the call has arrived")
        await anyio.wait_all_tasks_blocked()
        assert not errors
        yield errors


@pytest.mark.parametrize("name", HANGING)
async def test_a_call_in_flight_ends_with_the_world(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as (world, started):
        async with hanging_call(world, started, name) as errors:
            ask(started.port, "POST", "/__die?signal=SIGKILL")
        assert isinstance(errors[0], WorldExitedError)
        assert_exited(errors[0], started, WorldExit(signal="SIGKILL"))
        assert not list((tmp_path / "run" / "checkpoints").glob("*"))


@pytest.mark.parametrize("name", HANGING)
async def test_a_call_in_flight_ends_when_the_world_is_stopped(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as (world, started):
        async with hanging_call(world, started, name) as errors:
            assert (await world.stop()).rung == "terminated"
        assert isinstance(errors[0], WorldExitedError)
        assert not list((tmp_path / "run" / "checkpoints").glob("*"))


def is_connected(port: int) -> bool:
    """Say whether somebody has an open connection to a local port."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[2].endswith(f":{port:04X}") and row.split()[3] == "01" for row in rows)


async def test_a_call_does_not_wait_for_what_outlives_the_world(tmp_path: Path) -> None:
    errors: list[WorldError] = []

    async def connect() -> None:
        with pytest.raises(WorldExitedError) as caught:
            await world.connect("Rocky")
        errors.append(caught.value)

    async with running(tmp_path, "--daemon") as (world, started):
        pid_file = tmp_path / "counter" / "daemon.pid"
        await wait_until_async(pid_file.exists, what="the daemon lives")
        os.kill(started.pid, signal.SIGSTOP)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            await wait_until_async(lambda: is_connected(started.port))
            # Its daemon holds the port, and with it the connection that nobody accepted.
            os.kill(started.pid, signal.SIGKILL)
        assert errors[0].exit == WorldExit(signal="SIGKILL")
        assert is_alive(int(pid_file.read_text()))
        await world.stop(grace_seconds=0)
        assert not is_alive(int(pid_file.read_text()))


async def test_nothing_is_sent_to_whoever_has_the_port_of_a_dead_world(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        access = await world.connect("Rocky")
        async with world.events() as events:
            ask(started.port, "POST", "/__die?status=3")
            await next_event(events, "exited")
        env = {"WORLD_PORT": str(started.port)}
        with running_world(tmp_path, env=env, listens=False):
            await wait_until_async(lambda: is_listening(started.port))
            for call in calls_with(access):
                with pytest.raises(WorldExitedError):
                    await call(world)
            assert requests(started) == []


def calls_with(access: dict[str, Any]) -> list[Callable[[AsyncWorld], Awaitable[Any]]]:
    """Return every call that goes to the world itself."""
    return [AsyncWorld.save, lambda w: w.connect("Natasha"), lambda w: w.leave(access)]


async def test_a_world_that_died_can_be_stopped_and_started_again(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        async with world.events() as events:
            ask(started.port, "POST", "/__die?status=3")
            await next_event(events, "exited")
        result = await world.stop()
        assert (result.rung, result.exit) == ("already_exited", WorldExit(status=3))
        assert (await world.stop()).rung == "not_running"
        again = await world.start(run_dir=tmp_path / "run", port=started.port)
        assert again.name == started.name
        assert (await world.connect("Rocky"))["agent_id"] == "agent-1"


async def test_the_death_of_one_instance_touches_no_other(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, first):
        second = await world.start(run_dir=tmp_path / "run")
        async with world.events() as events:
            ask(first.port, "POST", "/__die?status=3")
            assert (await next_event(events, "exited")).instance == first.name
        assert world.instances == (second.name,)
        access = await world.connect("Rocky", instance=second.name)
        assert access["base_url"] == second.url


async def test_a_world_that_hears_nobody_any_more_is_not_called_dead(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        ask(started.port, "POST", "/__close-listener")
        with pytest.raises(WorldCallError, match="POST /join failed") as caught:
            await world.connect("Rocky")
        assert caught.value.exit is None
        assert caught.value.url == started.url
        assert is_alive(started.pid)


# -------------------------------------------------------------------------------- connect


async def test_a_name_is_connected_by_one_post_without_a_body(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        access = await world.connect(agent="Rocky")
        (request,) = requests(started, "/join")
    session = access["session"]
    assert access == {
        "session": session,
        "agent_id": "agent-1",
        "name": "Rocky",
        "headers": {"X-Session": session},
        "base_url": started.url,
        "internal_base_url": started.url,
    }
    assert (request["method"], request["query"], request["body"]) == (
        "POST",
        {"name": "Rocky"},
        "",
    )
    assert "x-session" not in request["headers"]
    assert "x-operator-token" not in request["headers"]


async def test_any_name_arrives_as_it_is(tmp_path: Path) -> None:
    name = "Ročky & co/? 100% #1"
    async with running(tmp_path) as (world, started):
        assert (await world.connect(name))["name"] == name
        assert requests(started, "/join")[0]["query"] == {"name": name}


@pytest.mark.parametrize(
    ("run_name", "name"), [("Rocky-r003", "Rocky"), ("Rocky-red", "Rocky-red"), ("-r1", "-r1")]
)
async def test_the_world_sees_the_name_up_to_its_run_suffix(
    tmp_path: Path, run_name: str, name: str
) -> None:
    async with running(tmp_path) as (world, started):
        assert (await world.connect(Bot(run_name, tmp_path / "bot")))["name"] == name
        assert requests(started, "/join")[0]["query"] == {"name": name}
    (entry,) = manifest_of(tmp_path / "run")["agents"]
    assert entry == {
        "dir": str(tmp_path / "bot"),
        "name": name,
        "run_name": run_name,
        "world_agent_id": "agent-1",
    }


async def test_the_session_of_an_agent_is_kept_in_its_directory_and_rejoined(
    tmp_path: Path,
) -> None:
    bot = Bot("Rocky", tmp_path / "run" / "agents" / "rocky")
    async with running(tmp_path) as (world, started):
        first = await world.connect(bot)
        file = bot.dir / "world_session.txt"
        assert file.read_text().strip() == first["session"]
        inode = file.stat().st_ino
        assert await world.connect(bot) == first
        assert requests(started, "/join")[1]["headers"]["x-session"] == first["session"]
        assert file.stat().st_ino == inode
        saved = await world.save()
        await world.stop()
        await world.start(run_dir=tmp_path / "run", resume=saved["path"])
        assert (await world.connect(bot))["session"] == first["session"]
    assert [entry["dir"] for entry in manifest_of(tmp_path / "run")["agents"]] == ["agents/rocky"]


async def test_another_session_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path) as (world, started):
        session = (await world.connect(bot))["session"]
        switch(started, join="another-session")
        with pytest.raises(
            WorldSessionError, match=f"expected session {session}, got another"
        ) as caught:
            await world.connect(bot)
        assert caught.value.url == started.url
    assert (bot.dir / "world_session.txt").read_text().strip() == session


async def test_a_session_that_a_fresh_world_does_not_know_is_refused(tmp_path: Path) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path) as (world, _):
        session = (await world.connect(bot))["session"]
        await world.stop()
        await world.start(run_dir=tmp_path / "run")
        with pytest.raises(WorldSessionError, match=f"expected session {session}, got "):
            await world.connect(bot)
    assert (bot.dir / "world_session.txt").read_text().strip() == session


STRICT = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
class Strict(BaseHTTPRequestHandler):
    def do_GET(self): self.answer(200)
    def do_POST(self): self.answer(401)
    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"what")
HTTPServer(("127.0.0.1", int(os.environ["WORLD_PORT"])), Strict).serve_forever()
"""


async def test_a_session_that_the_world_refuses_is_told_as_lost(tmp_path: Path) -> None:
    directory, bot = tmp_path / "strict", Bot("Rocky", tmp_path / "bot")
    directory.mkdir()
    bot.dir.mkdir()
    (bot.dir / "world_session.txt").write_text("the-old-one\n")
    command = json.dumps([sys.executable, "-I", "-S", "-c", STRICT])
    (directory / "world.toml").write_text(f'name = "strict"\n[run]\ncommand = {command}\n')
    async with AsyncWorld(dir=directory) as world:
        await world.start(run_dir=tmp_path / "run")
        with pytest.raises(WorldSessionError, match="expected session the-old-one") as caught:
            await world.connect(bot)
        assert (caught.value.status, caught.value.body_start) == (401, "what")
        with pytest.raises(WorldCallError, match="POST /join answered 401") as refused:
            await world.connect("Bullwinkle")
        assert not isinstance(refused.value, WorldSessionError)


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", b"x" * 600])
async def test_a_session_file_that_holds_no_session_is_named(
    tmp_path: Path, content: bytes
) -> None:
    bot = Bot("Rocky", tmp_path)
    (tmp_path / "world_session.txt").write_bytes(content)
    async with running(tmp_path) as (world, started):
        with pytest.raises(ConfigError) as caught:
            await world.connect(bot)
        assert caught.value.path == tmp_path / "world_session.txt"
        assert requests(started, "/join") == []


async def test_a_session_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "world_session.txt").mkdir()
    async with running(tmp_path) as (world, _):
        with pytest.raises(ConfigError) as caught:
            await world.connect(Bot("Rocky", tmp_path))
        assert caught.value.path == tmp_path / "world_session.txt"


async def test_an_agent_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    async with running(tmp_path) as (world, _):
        with pytest.raises(ConfigError) as caught:
            await world.connect(Bot("Rocky", tmp_path / "a-file" / "bot"))
        assert "a-file" in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "message", "status"),
    [
        ("no-session", "no usable 'session'", 200),
        ("bad-session", "no usable 'session'", 200),
        ("not-an-object", "not a JSON object", 200),
        ("not-json", "not JSON", 200),
        ("status-500", "POST /join answered 500", 500),
    ],
)
async def test_an_unusable_answer_is_told_with_status_and_body(
    tmp_path: Path, fault: str, message: str, status: int
) -> None:
    bot = Bot("Rocky", tmp_path / "bot")
    async with running(tmp_path, "--join", fault) as (world, started):
        with pytest.raises(WorldCallError, match=message) as caught:
            await world.connect(bot)
        error = caught.value
        assert (error.status, error.url, error.instance) == (status, started.url, started.name)
        assert error.log_lines
        assert error.body_start
        assert f"body: {error.body_start!r}" in str(error)
        assert not (bot.dir / "world_session.txt").exists()
        switch(started, join="extra-fields")
        session = (await world.connect(bot))["session"]
        assert (bot.dir / "world_session.txt").read_text().strip() == session


async def test_what_else_the_world_answers_is_part_of_the_access(tmp_path: Path) -> None:
    async with running(tmp_path, "--join", "extra-fields") as (world, _):
        assert (await world.connect("Rocky"))["spawn"] == {"x": 1.5}


async def test_a_call_without_an_answer_ends_with_its_time(tmp_path: Path) -> None:
    async with running(tmp_path, "--join", "hang") as (world, started):
        with pytest.raises(WorldCallError, match=r"no answer within 0\.1 s") as caught:
            await world.connect("Rocky", timeout=0.1)
        assert caught.value.status is None
        assert caught.value.elapsed_s is not None
        switch(started, join="extra-fields")
        assert (await world.connect("Rocky"))["session"]


@pytest.mark.parametrize(
    "agent",
    [
        *(None, 7, "", SimpleNamespace(name="Rocky"), SimpleNamespace(dir="bot")),
        *(SimpleNamespace(name="", dir="bot"), SimpleNamespace(name="Rocky", dir=None)),
    ],
    ids=str,
)
async def test_what_is_no_agent_is_refused(tmp_path: Path, agent: Any) -> None:
    async with running(tmp_path) as (world, started):
        with pytest.raises(ConfigError, match=r"an agent is a name, or has \.name and \.dir"):
            await world.connect(agent)
        assert requests(started, "/join") == []


async def test_an_agent_that_left_is_unknown_to_the_world(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        access = await world.connect("Rocky")
        observe = functools.partial(ask, started.port, "GET", "/observe", headers=access["headers"])
        assert observe().status == 200
        await world.leave(access)
        assert observe().status == 401
        with pytest.raises(WorldCallError, match="POST /leave answered 401") as caught:
            await world.leave(access)
        assert caught.value.status == 401
        assert caught.value.body_start == "join first"


async def test_to_leave_takes_an_access(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        with pytest.raises(ConfigError, match="an access is what connect returned"):
            await world.leave({"session": "x"})


async def test_the_api_path_is_the_address_for_a_prompt(tmp_path: Path) -> None:
    world = AsyncWorld(dir=make_world(tmp_path))
    access = {"base_url": "http://world.example:1/x"}
    assert world.api_path(access=access) == "http://world.example:1/x/api.md"
    assert world.api_path(path="/observe", access=access) == "http://world.example:1/x/observe"


async def test_an_instance_is_named_when_there_are_several(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, first):
        second = await world.start(run_dir=tmp_path / "run", name="second")
        access = await world.connect("Rocky", instance="second")
        assert access["base_url"] == second.url
        assert requests(first, "/join") == []


# --------------------------------------------------------------------------------- events


async def test_the_events_of_a_life_come_in_order_and_end_with_the_world(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        events = world.events()
        started = await world.start(run_dir=tmp_path / "run")
        saved = await world.save()
        await world.stop()
    seen = [event async for event in events]
    assert [event.kind for event in seen] == ["started", "ready", "saved", "stopped"]
    assert {event.instance for event in seen} == {started.name}
    assert all(event.at.endswith("Z") for event in seen)
    details = [dict(event.detail) for event in seen]
    assert details == [
        {"port": started.port},
        {"url": started.url, "ready_s": started.ready_s},
        {
            "path": saved["path"],
            "size_bytes": saved["size_bytes"],
            "elapsed_s": details[2]["elapsed_s"],
        },
        {"rung": "terminated", "exit": WorldExit(status=0)},
    ]
    assert 0 < details[2]["elapsed_s"] < 60


async def test_leaving_the_world_is_an_event_too(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        events = world.events()
        await world.start(run_dir=tmp_path / "run")
    assert [event.kind async for event in events] == ["started", "ready", "stopped"]


async def test_a_failed_start_is_an_error_and_only_half_a_life(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--exit-at-once", "1")) as world:
        events = world.events()
        with pytest.raises(WorldError):
            await world.start(run_dir=tmp_path / "run")
    assert [event.kind async for event in events] == ["started", "start_failed"]


async def test_every_listener_hears_everything_from_its_beginning_on(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        async with world.events() as early:
            await world.save()
            late = world.events()
            await world.stop()
            assert [(await next_event(early, kind)).kind for kind in ("saved", "stopped")]
        assert [event async for event in early] == []
    assert [event.kind async for event in late] == ["stopped"]


async def test_a_listener_waits_for_what_comes(tmp_path: Path) -> None:
    heard: list[str] = []

    async def listen(events: EventStream) -> None:
        heard.extend([event.kind async for event in events])

    async with anyio.create_task_group() as tasks, running(tmp_path) as (world, _):
        tasks.start_soon(listen, world.events())
        await anyio.wait_all_tasks_blocked()
        await world.save()
    assert heard == ["saved", "stopped"]


# ----------------------------------------------------------------------------------- logs


async def collect(world: AsyncWorld, **options: Any) -> list[LogLine]:
    """Return the lines of the log."""
    async with world.logs(**options) as lines:
        return [line async for line in lines]


async def follow_log(world: AsyncWorld, seen: list[str], tail: int | None = None) -> None:
    """Add the text of each line to ``seen`` as it comes."""
    async with world.logs(follow=True, tail=tail) as lines:
        async for line in lines:
            seen.append(line.text)  # noqa: PERF401 - it is looked at meanwhile


def texts(lines: Sequence[LogLine]) -> list[str]:
    return [line.text for line in lines]


async def test_the_log_is_read_from_the_first_line_with_true_offsets(tmp_path: Path) -> None:
    async with running(tmp_path, "--flood-lines", "5000") as (world, started):
        lines = await collect(world)
        whole = started.log_file.read_bytes()
    assert len(lines) == 5002
    assert {line.instance for line in lines} == {started.name}
    assert [line.text.encode() for line in lines] == whole.splitlines()
    assert all(whole[line.offset :].startswith(line.text.encode()) for line in lines)
    assert sum(len(line.text) + 1 for line in lines) == len(whole)


@pytest.mark.parametrize("tail", [0, 1, 2, 100, 5002, 9999])
async def test_a_tail_is_the_last_lines(tmp_path: Path, tail: int) -> None:
    async with running(tmp_path, "--flood-lines", "5000") as (world, _):
        whole = await collect(world)
        assert await collect(world, tail=tail) == whole[len(whole) - min(tail, len(whole)) :]


async def test_a_tail_counts_a_line_that_has_no_end_yet(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        with started.log_file.open("a") as log:
            log.write("one\ntwo\nthr")
        assert texts(await collect(world, tail=2)) == ["two", "thr"]


async def test_a_progress_bar_is_one_line_in_the_tail_too(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        with started.log_file.open("a") as log:
            log.write("10%\r50%\r100%\ndone\r\n")
        assert texts(await collect(world, tail=2)) == ["10%\r50%\r100%", "done"]


async def test_a_log_is_followed_to_the_last_line_of_the_world(tmp_path: Path) -> None:
    followed: list[str] = []
    async with running(tmp_path) as (world, started), anyio.create_task_group() as tasks:
        tasks.start_soon(follow_log, world, followed, 1)
        await wait_until_async(lambda: followed, what="the last line so far")
        with started.log_file.open("a") as log:
            log.write("in two ")
            log.flush()
            await anyio.wait_all_tasks_blocked()
            assert len(followed) == 1
            log.write("pieces\n")
        await wait_until_async(lambda: len(followed) == 2, what="the line that came")
        await world.stop()
    assert followed == [f"Spectator frontend: {started.url}/", "in two pieces", "stopped"]


async def test_the_log_of_a_dead_world_can_be_read(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        async with world.events() as events:
            ask(started.port, "POST", "/__die?status=3")
            await next_event(events, "exited")
        assert texts(await collect(world, follow=True))[0].startswith("counter world, process ")


async def test_an_endless_line_comes_in_pieces(tmp_path: Path) -> None:
    async with running(tmp_path, "--long-line", "200000") as (world, _):
        lines = await collect(world)
    pieces = [line for line in lines if line.text.startswith("y")]
    assert len(pieces) == 4
    assert all(len(piece.text) == 65536 for piece in pieces[:-1])
    assert "".join(texts(pieces)).count("y") == 200000
    assert [piece.offset for piece in pieces] == [
        pieces[0].offset + 65536 * number for number in range(4)
    ]


async def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, "--raw-bytes") as (world, started):
        lines = await collect(world)
        assert "caf\ufffd \ufffd\ufffd \x00 end" in texts(lines)
        assert lines[-1].text == f"Spectator frontend: {started.url}/"


async def test_a_log_that_was_removed_has_no_lines(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        started.log_file.unlink()
        assert await collect(world) == []
        assert await collect(world, tail=3) == []
        await world.connect("Rocky")


@pytest.fixture
def _cut_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clawblox.fleet, "_TRIM_INTERVAL_S", 0.01)


def first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()


@pytest.mark.usefixtures("_cut_often")
async def test_a_log_that_outgrows_its_limit_keeps_its_newer_half(tmp_path: Path) -> None:
    flags = ("--flood-lines", "1000", "--flood-rate", "200")
    async with running(tmp_path, *flags, max_log_bytes=50_000) as (world, started):
        log_file = started.log_file
        mark = b"[clawblox] log over 50000 bytes, older half removed\n"
        await wait_until_async(lambda: first_line(log_file) == mark, what="the log is cut")
        after = log_file.read_bytes()
        assert len(after) < 50_000
        assert b"steady zzz" in after
        await wait_until_async(
            lambda: len(log_file.read_bytes()) != len(after), what="the world goes on writing"
        )
        assert texts(await collect(world))[0] == mark.decode().strip()
        await world.connect("Rocky")


@pytest.mark.usefixtures("_cut_often")
async def test_a_reader_follows_a_log_that_is_cut(tmp_path: Path) -> None:
    followed: list[str] = []

    def has_gone_on() -> bool:
        with started.log_file.open("a") as log:
            log.write("on\n")
        return "on" in followed

    options = {"max_log_bytes": 50_000}
    async with (
        running(tmp_path, "--flood-lines", "1000", **options) as (world, started),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(follow_log, world, followed)
        await wait_until_async(lambda: first_line(started.log_file).startswith(b"[clawblox]"))
        await wait_until_async(lambda: followed, what="the reader follows")
        await wait_until_async(has_gone_on, what="the reader goes on")
        await world.stop()
    assert followed[-1] == "stopped"


@pytest.mark.usefixtures("_cut_often")
async def test_a_log_without_a_limit_is_never_cut(tmp_path: Path) -> None:
    async with running(tmp_path, "--flood-lines", "1000", max_log_bytes=None) as (world, _):
        second = await world.start(run_dir=tmp_path / "run")  # several intervals long
        assert len(await collect(world, instance=second.name)) == 1002


# ------------------------------------------------------------------------------ the manifest


async def test_a_run_is_labelled_without_anything_being_started(tmp_path: Path) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        await world.record_run(id="of-the-world", index=3)
        assert world.instances == ()
        await world.start(run_dir=tmp_path / "run")
        await world.record_run(id="of-the-run", status="running")
        await world.record_run(id="elsewhere", run_dir=tmp_path / "third")
    assert manifest_of(directory)["run"] == {"id": "of-the-world", "index": 3}
    assert manifest_of(tmp_path / "run")["run"] == {"id": "of-the-run", "status": "running"}
    assert manifest_of(tmp_path / "third")["run"] == {"id": "elsewhere"}


# ----------------------------------------------------------------------------- out of order

CALLS: dict[str, Callable[[AsyncWorld], Any]] = {
    "start": lambda world: world.start(),
    "stop": lambda world: world.stop(),
    "connect": lambda world: world.connect("Rocky"),
    "leave": lambda world: world.leave({"headers": {}}),
    "save": lambda world: world.save(),
    "record_run": lambda world: world.record_run(id="r"),
    "logs": lambda world: world.logs(),
    "events": lambda world: world.events(),
}


async def make(call: Callable[[AsyncWorld], Any], world: AsyncWorld) -> None:
    result = call(world)
    if hasattr(result, "__await__"):
        await result


@pytest.mark.parametrize("name", CALLS)
async def test_a_world_that_is_not_open_says_how_to_open_it(tmp_path: Path, name: str) -> None:
    world = AsyncWorld(dir=make_world(tmp_path))
    for _ in range(2):
        with pytest.raises(UsageError, match="this world is not open") as caught:
            await make(CALLS[name], world)
        assert "async with AsyncWorld(dir=" in str(caught.value)
        async with world:  # and not after it was left either
            pass
    assert not (tmp_path / "counter" / ".clawblox").exists()


@pytest.mark.parametrize("name", ["connect", "leave", "save", "logs"])
async def test_a_world_without_an_instance_says_so(tmp_path: Path, name: str) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(UsageError, match="there are: none"):
            await make(CALLS[name], world)


@pytest.mark.parametrize("name", ["connect", "leave", "save", "logs", "stop"])
async def test_an_instance_that_is_not_named_among_several_is_asked_for(
    tmp_path: Path, name: str
) -> None:
    async with running(tmp_path) as (world, _):
        await world.start(run_dir=tmp_path / "run", name="second")
        with pytest.raises(UsageError, match="no instance was named; there are: w000, second"):
            await make(CALLS[name], world)


async def test_an_instance_that_does_not_exist_is_told_with_those_that_do(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        with pytest.raises(UsageError, match="no instance 'third'; there are: w000"):
            await world.save(instance="third")
        assert (await world.stop(instance="third")).rung == "not_running"
        assert world.instances == ("w000",)


async def test_a_world_is_not_opened_twice_at_a_time(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        with pytest.raises(UsageError, match="open already"):
            await world.__aenter__()
        assert is_alive(started.pid)
        assert (await world.connect("Rocky"))["session"]


async def test_a_world_can_be_opened_again_after_it_was_left(tmp_path: Path) -> None:
    world = AsyncWorld(dir=make_world(tmp_path))
    for _ in range(2):
        async with world:
            assert world.instances == ()
            started = await world.start(run_dir=tmp_path / "run")
            assert world.url == started.url
        assert not is_alive(started.pid)


async def test_an_error_in_the_block_comes_out_as_it_is_and_stops_the_world(
    tmp_path: Path,
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with running(tmp_path) as (_, started):
            raise ZeroDivisionError
    assert not is_alive(started.pid)
