"""The control socket: real sockets, other processes as clients and as orchestrators."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
import structlog

from clawblox import control, control_server
from clawblox.control import control_dir, find_sockets, request
from clawblox.control_server import ControlServer, Handler, Report
from clawblox.errors import ControlError, SnapshotError
from clawblox.files import lock_file, unlock_file
from clawblox.model import WorldExit
from tests.support import is_alive, kill_processes, open_fds, wait_until, wait_until_async

pytestmark = pytest.mark.anyio

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


@pytest.fixture(params=["asyncio", "trio"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


# ------------------------------------------------------------------------------ the stage


async def echo(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Answer what was asked."""
    return {"asked": dict(arguments)}


async def count(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Report the numbers below ``to``."""
    for number in range(arguments["to"]):
        await report("counted", number=number)
    return {"count": arguments["to"]}


@attrs.define
class Endless:
    """A handler that never ends by itself, and notes how it ended."""

    reports: bool = False
    is_running: anyio.Event = attrs.field(factory=anyio.Event)
    is_cancelled: anyio.Event = attrs.field(factory=anyio.Event)

    async def __call__(self, arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        if self.reports:
            await report("running")
        self.is_running.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            self.is_cancelled.set()
            raise
        raise AssertionError("unreachable")


@contextlib.asynccontextmanager
async def serving(
    run_dir: Path, name: str = "1-1", **handlers: Handler
) -> AsyncIterator[ControlServer]:
    """Serve, and close at the end."""
    server = ControlServer(run_dir, name, {"echo": echo, "count": count, **handlers})
    await server.open()
    async with anyio.create_task_group() as group:
        group.start_soon(server.run)
        try:
            yield server
        finally:
            with anyio.CancelScope(shield=True):
                await server.aclose()


class RawClient:
    """A client that knows no library of ours; every call waits in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)

    async def __aenter__(self) -> RawClient:
        directory = os.open(self._path.parent, os.O_PATH)
        try:
            self.socket.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.socket.close()

    async def send(self, data: bytes) -> None:
        await anyio.to_thread.run_sync(self.socket.sendall, data)

    async def answer(self) -> bytes:
        """Return everything until the end of the stream."""
        return await anyio.to_thread.run_sync(self._read_all)

    def _read_all(self) -> bytes:
        data = b""
        with contextlib.suppress(ConnectionResetError):  # it closed before it read everything
            while chunk := self.socket.recv(1 << 16):
                data += chunk
        return data


async def ask_raw(path: Path, data: bytes) -> list[dict[str, Any]]:
    """Send bytes; return the lines of the answer."""
    async with RawClient(path) as client:
        with contextlib.suppress(BrokenPipeError):
            await client.send(data)
        return [json.loads(line) for line in (await client.answer()).splitlines()]


async def find(run_dir: Path) -> list[Path]:
    return await anyio.to_thread.run_sync(find_sockets, run_dir)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory so deep that no socket address could name it."""
    deep = tmp_path.joinpath(*["run-directory-of-an-experiment"] * 5)
    assert len(str(deep)) > 140
    return deep


@pytest.fixture
def logs() -> Iterator[list[dict[str, Any]]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def events_of(logs: list[dict[str, Any]], level: str) -> list[str]:
    return [entry["event"] for entry in logs if entry["log_level"] == level]


# -------------------------------------------------------------------- asking and answering


async def test_a_request_gets_its_answer(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        answer = await request(server.path, "echo", {"instance": "w000", "keep": 3})
    assert answer == {"asked": {"instance": "w000", "keep": 3}}


async def test_events_come_in_order_before_the_answer(run_dir: Path) -> None:
    events: list[dict[str, Any]] = []
    async with serving(run_dir) as server:
        answer = await request(server.path, "count", {"to": 3}, events.append)
        assert await request(server.path, "count", {"to": 3}) == {"count": 3}
    assert events == [{"number": number, "event": "counted"} for number in range(3)]
    assert answer == {"count": 3}


async def test_an_event_is_sent_before_the_handler_ends(run_dir: Path) -> None:
    is_seen = anyio.Event()

    async def patient(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        await report("begun")
        await is_seen.wait()
        return {}

    async with serving(run_dir, patient=patient) as server:
        answer = await request(server.path, "patient", {}, lambda event: is_seen.set())
    assert answer == {}


async def test_the_protocol_is_one_json_object_a_line(run_dir: Path) -> None:
    async with serving(run_dir) as server, RawClient(server.path) as client:
        await client.send(b'{"op": "count",')
        await client.send(b' "to": 2}\nwhat comes after the line is not looked at\n')
        answer = await client.answer()
    assert [json.loads(line) for line in answer.decode().splitlines()] == [
        {"event": "counted", "number": 0},
        {"event": "counted", "number": 1},
        {"ok": True, "count": 2},
    ]
    assert answer.endswith(b"\n")


async def test_values_of_the_domain_travel_as_plain_ones(run_dir: Path) -> None:
    async def status(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        return {"path": Path("/a/b"), "exit": WorldExit(signal="SIGKILL")}

    async with serving(run_dir, status=status) as server:
        answer = await request(server.path, "status", {})
    assert answer == {"path": "/a/b", "exit": {"status": None, "signal": "SIGKILL"}}


async def test_a_large_answer_comes_whole(run_dir: Path) -> None:
    async def large(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        return {"text": "x" * (4 << 20)}

    async with serving(run_dir, large=large) as server:
        assert len((await request(server.path, "large", {}))["text"]) == 4 << 20


async def test_many_clients_are_served_at_once(run_dir: Path) -> None:
    waiting = 0
    everybody_came = anyio.Event()

    async def meet(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        nonlocal waiting
        waiting += 1
        if waiting == 60:
            everybody_came.set()
        await everybody_came.wait()
        return {}

    async with serving(run_dir, meet=meet) as server, anyio.create_task_group() as clients:
        for _ in range(60):
            clients.start_soon(request, server.path, "meet", {})
    assert waiting == 60


async def test_a_client_in_another_process_is_served(run_dir: Path) -> None:
    code = (
        "import anyio, json, sys\n"
        "from pathlib import Path\n"
        "from clawblox.control import find_sockets, request\n"
        "[path] = find_sockets(Path(sys.argv[1]))\n"
        "events = []\n"
        "answer = anyio.run(request, path, 'count', {'to': 2}, events.append)\n"
        "print(json.dumps([path.name, [e['number'] for e in events], answer]))\n"
    )
    async with serving(run_dir, "4711-1"):
        result = await anyio.run_process([sys.executable, "-c", code, str(run_dir)])
    assert json.loads(result.stdout) == ["4711-1.sock", [0, 1], {"count": 2}]


async def test_the_client_alone_needs_no_logging_library() -> None:
    code = "import clawblox.control, sys; assert 'structlog' not in sys.modules"
    await anyio.run_process([sys.executable, "-c", code])


# ------------------------------------------------------------------------- errors as answers


async def test_an_error_of_ours_arrives_with_all_it_says(run_dir: Path) -> None:
    async def save(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        raise SnapshotError("no answer", phase="headers", bytes=7, hint="look at the log")

    async with serving(run_dir, save=save) as server:
        with pytest.raises(ControlError) as caught:
            await request(server.path, "save", {})
    error = caught.value
    assert (error.message, error.hint) == ("no answer", "look at the log")
    assert (error.error_type, error.path) == ("SnapshotError", server.path)
    assert "bytes received: 7" in error.error_details
    assert "phase: headers" in str(error)


async def test_an_unexpected_error_is_logged_and_answered(run_dir: Path, logs) -> None:
    async def fail(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        raise ZeroDivisionError("three by nothing \udcff")

    async with serving(run_dir, fail=fail) as server:
        with pytest.raises(ControlError, match="three by nothing") as caught:
            await request(server.path, "fail", {})
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert caught.value.error_type == "ZeroDivisionError"
    assert events_of(logs, "error") == ["control handler failed"]


async def test_an_error_that_cannot_even_be_told_ends_one_connection_alone(
    run_dir: Path, logs
) -> None:
    class BrokenError(ControlError):
        def details(self) -> list[str]:
            raise ZeroDivisionError

    async def fail(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        raise BrokenError("cannot say")

    async with serving(run_dir, fail=fail) as server:
        with pytest.raises(ControlError, match="went away"):
            await request(server.path, "fail", {})
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert events_of(logs, "error") == ["control connection failed"]


@pytest.mark.parametrize("where", ["answer", "event"])
async def test_what_is_not_plain_is_an_error_of_the_handler(run_dir: Path, logs, where) -> None:
    async def odd(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        if where == "event":
            await report("odd", value=object())
        return {"value": object()}

    async with serving(run_dir, odd=odd) as server:
        with pytest.raises(ControlError, match="object is not a plain value"):
            await request(server.path, "odd", {})


MALFORMED = {
    "no JSON": (b"save everything\n", "JSON"),
    "no object": (b'["op", "echo"]\n', "JSON object"),
    "nothing": (b"\n", "JSON"),
    "not UTF-8": (b'{"op": "\xff"}\n', "utf-8"),
    "too deep": (b'{"op": "echo", "x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}\n", "recursion"),
    "no op": (b'{"instance": "w000"}\n', "unknown op 'None'"),
    "an op that is no text": (b'{"op": ["echo"]}\n', "unknown op"),
    "an op that nobody knows": (b'{"op": "erase"}\n', "unknown op 'erase'; there are: echo, count"),
    "too long": (b'{"op": "echo", "x": "' + b"x" * (1 << 20), "at most 65536 bytes"),
    "too long by one": (b'{"op": "echo"}'.ljust(65536) + b"\n", "at most 65536 bytes"),
}


@pytest.mark.parametrize(("data", "reason"), MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_request_is_answered_and_logged(
    run_dir: Path, logs, data: bytes, reason: str
) -> None:
    async with serving(run_dir) as server:
        [answer] = await ask_raw(server.path, data)
        assert answer["ok"] is False
        assert answer["error"]["type"] == "UsageError"
        assert reason in answer["error"]["message"]
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert events_of(logs, "warning") == ["control request refused"]


async def test_a_client_that_asks_too_much_gets_the_answer_all_the_same(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        with pytest.raises(ControlError, match="at most 65536 bytes"):
            await request(server.path, "echo", {"text": "x" * (1 << 20)})


async def test_the_longest_request_is_taken(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        line = b'{"op": "echo"}'.ljust(65535) + b"\n"
        assert await ask_raw(server.path, line) == [{"ok": True, "asked": {}}]


async def test_a_request_that_is_cut_off_is_answered(run_dir: Path, logs) -> None:
    async with serving(run_dir) as server, RawClient(server.path) as client:
        await client.send(b'{"op": "echo"}')
        client.socket.shutdown(socket.SHUT_WR)
        answer = json.loads(await client.answer())
    assert answer["error"]["message"] == "the request ended before its line did"
    assert events_of(logs, "warning") == ["control request refused"]


async def test_a_request_that_does_not_come_in_time_is_answered(
    run_dir: Path, logs, monkeypatch
) -> None:
    monkeypatch.setattr(control_server, "_REQUEST_TIMEOUT_S", 0.05)
    async with serving(run_dir) as server:
        [answer] = await ask_raw(server.path, b'{"op": "ec')
    assert answer["error"]["message"] == "no request came within 0.05 s"
    assert events_of(logs, "warning") == ["control request refused"]


async def test_a_client_that_asks_nothing_is_nothing_to_log(run_dir: Path, logs) -> None:
    async with serving(run_dir) as server:
        async with RawClient(server.path):
            pass
        assert await find(run_dir) == [server.path]
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert logs == []


# --------------------------------------------------------------------- clients that go away


@pytest.mark.parametrize("how", ["close", "shutdown", "close unread"])
async def test_a_client_that_goes_away_cancels_its_handler(run_dir: Path, logs, how: str) -> None:
    endless = Endless(reports=how == "close unread")
    async with serving(run_dir, endless=endless) as server:
        async with RawClient(server.path) as client:
            await client.send(b'{"op": "endless"}\n')
            await endless.is_running.wait()
            assert not endless.is_cancelled.is_set()
            if how == "shutdown":
                client.socket.shutdown(socket.SHUT_WR)
                assert await client.answer() == b""
        with anyio.fail_after(10):
            await endless.is_cancelled.wait()
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert events_of(logs, "error") == []


async def test_a_cancelled_request_cancels_its_handler_and_no_other(run_dir: Path) -> None:
    one, other = Endless(), Endless()
    async with (
        serving(run_dir, one=one, other=other) as server,
        anyio.create_task_group() as clients,
    ):
        clients.start_soon(request, server.path, "other", {})
        await other.is_running.wait()
        async with anyio.create_task_group() as caller:
            caller.start_soon(request, server.path, "one", {})
            await one.is_running.wait()
            caller.cancel_scope.cancel()
        with anyio.fail_after(10):
            await one.is_cancelled.wait()
        assert not other.is_cancelled.is_set()
        clients.cancel_scope.cancel()


async def test_a_report_to_a_client_that_is_gone_cancels_the_handler(
    run_dir: Path, monkeypatch
) -> None:
    """Also where nothing but the report can notice it."""

    async def never(*_: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(control_server, "_cancel_at_end", never)
    is_gone, is_cancelled = anyio.Event(), anyio.Event()

    async def late(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        try:
            await is_gone.wait()
            await report("too late")
        except BaseException:
            is_cancelled.set()
            raise
        return {}

    async with serving(run_dir, late=late) as server:
        async with RawClient(server.path) as client:
            await client.send(b'{"op": "late"}\n')
        is_gone.set()
        with anyio.fail_after(10):
            await is_cancelled.wait()


@attrs.define
class Talker:
    """A handler that reports more than any buffer holds."""

    reports: int = 0
    is_cancelled: bool = False

    async def __call__(self, arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        try:
            for number in range(100):
                await report("chunk", number=number, text="x" * 100_000)
                self.reports += 1
        except BaseException:
            self.is_cancelled = True
            raise
        return {}


async def test_a_slow_reader_holds_up_its_own_handler_alone(run_dir: Path) -> None:
    talker = Talker()
    async with serving(run_dir, talk=talker) as server, RawClient(server.path) as slow:
        await slow.send(b'{"op": "talk"}\n')
        await wait_until_async(lambda: talker.reports)
        for _ in range(10):  # the others are served, and meanwhile the buffer fills
            assert await request(server.path, "count", {"to": 1}) == {"count": 1}
        held_at = talker.reports
        assert held_at < 50
        lines = (await slow.answer()).splitlines()
    assert [json.loads(line).get("number") for line in lines] == [*range(100), None]
    assert json.loads(lines[-1]) == {"ok": True}


async def test_a_reader_that_never_reads_is_given_up(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_READER_PATIENCE_S", 0.05)
    talker = Talker()
    async with serving(run_dir, talk=talker) as server, RawClient(server.path) as slow:
        await slow.send(b'{"op": "talk"}\n')
        await wait_until_async(lambda: talker.is_cancelled)
        lines = (await slow.answer()).splitlines()
        assert len(lines) < 100
        assert b'"ok"' not in lines[-1]


async def test_the_answer_too_waits_only_so_long_for_its_reader(
    run_dir: Path, logs, monkeypatch
) -> None:
    monkeypatch.setattr(control_server, "_READER_PATIENCE_S", 0.05)

    async def large(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        return {"text": "x" * (4 << 20)}

    async with serving(run_dir, large=large) as server, RawClient(server.path) as slow:
        await slow.send(b'{"op": "large"}\n')
        await wait_until_async(lambda: "control client gone" in events_of(logs, "debug"))
        assert len(await slow.answer()) < 4 << 20


async def test_reports_of_many_tasks_do_not_mix(run_dir: Path) -> None:
    async def fan_out(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        async with anyio.create_task_group() as group:
            for number in range(30):
                text = str(number % 10) * 40_000
                group.start_soon(partial(report, "done", number=number, text=text))
        return {}

    events: list[dict[str, Any]] = []
    async with serving(run_dir, fan_out=fan_out) as server:
        await request(server.path, "fan_out", {}, events.append)
    assert sorted(event["number"] for event in events) == list(range(30))
    assert all(event["text"] == str(event["number"] % 10) * 40_000 for event in events)


async def test_reports_that_are_cancelled_half_way_leave_whole_lines_and_do_not_pile_up(
    run_dir: Path,
) -> None:
    is_cut = anyio.Event()

    async def hasty(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        for _ in range(3):
            with anyio.move_on_after(0.05) as scope:  # nobody reads yet: it is not done by then
                await report("large", text="x" * (1 << 20))
            assert scope.cancelled_caught
        is_cut.set()
        await report("small")
        return {}

    async with serving(run_dir, hasty=hasty) as server, RawClient(server.path) as client:
        await client.send(b'{"op": "hasty"}\n')
        await is_cut.wait()
        lines = [json.loads(line) for line in (await client.answer()).splitlines()]
    assert [line.get("event") for line in lines] == ["large", "small", None]
    assert len(lines[0]["text"]) == 1 << 20


# ---------------------------------------------------------------------- the file, and its end


@pytest.mark.parametrize("umask", [0, 0o077])
async def test_socket_and_directory_are_private(run_dir: Path, umask: int) -> None:
    previous = os.umask(umask)
    try:
        async with serving(run_dir) as server:
            assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
            assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o700
    finally:
        os.umask(previous)


async def test_a_directory_that_was_open_to_others_is_made_private(run_dir: Path) -> None:
    control_dir(run_dir).mkdir(parents=True)
    control_dir(run_dir).chmod(0o777)
    async with serving(run_dir):
        assert stat.S_IMODE(control_dir(run_dir).stat().st_mode) == 0o700


async def test_a_link_in_place_of_the_directory_is_refused(run_dir: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    control_dir(run_dir).parent.mkdir(parents=True)
    control_dir(run_dir).symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"directory|symbolic links"):
        await ControlServer(run_dir, "1-1", {}).open()
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
    assert list(elsewhere.iterdir()) == []


async def test_nothing_is_left_after_the_end(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        assert server.path == control_dir(run_dir) / "1-1.sock"
        assert list(control_dir(run_dir).iterdir()) == [server.path]
    assert list(control_dir(run_dir).iterdir()) == []
    with pytest.raises(ControlError, match="no orchestrator can be asked: No such file"):
        await request(server.path, "echo", {})


async def test_several_orchestrators_share_a_run_directory(run_dir: Path) -> None:
    async with serving(run_dir, "20-1") as one, serving(run_dir, "100-1") as other:
        assert await find(run_dir) == [other.path, one.path]
    assert await find(run_dir) == []


async def test_a_name_that_is_served_is_not_taken(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        with pytest.raises(OSError, match="in use") as caught:
            await ControlServer(run_dir, "1-1", {}).open()
        assert caught.value.errno == errno.EADDRINUSE
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert list(control_dir(run_dir).iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 65, "a\n"])
def test_a_name_that_is_no_file_name_is_refused(run_dir: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no name for a control socket"):
        ControlServer(run_dir, name, {})


async def test_the_longest_name_can_be_bound_and_found(run_dir: Path) -> None:
    async with serving(run_dir, "x" * 64) as server:
        assert await find(run_dir) == [server.path]


async def test_closing_removes_no_file_of_anybody_else(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        server.path.unlink()
        server.path.write_text("another's")
    assert server.path.read_text() == "another's"


async def test_a_run_directory_that_vanished_does_not_hinder_the_end(run_dir: Path, logs) -> None:
    async with serving(run_dir) as server:
        server.path.unlink()
        server.path.parent.rmdir()
    assert logs == []


async def test_a_server_that_never_ran_is_closed_too(run_dir: Path) -> None:
    server = ControlServer(run_dir, "1-1", {})
    await server.aclose()
    await server.open()
    await server.aclose()
    await server.aclose()
    assert list(control_dir(run_dir).iterdir()) == []


async def test_closing_before_the_task_begins_ends_it_at_once(run_dir: Path) -> None:
    server = ControlServer(run_dir, "1-1", {})
    await server.open()
    await server.aclose()
    with anyio.fail_after(10):
        await server.run()


async def test_a_cancelled_server_cancels_its_handlers_and_removes_its_socket(
    run_dir: Path,
) -> None:
    endless = Endless()
    server = ControlServer(run_dir, "1-1", {"endless": endless})
    await server.open()
    async with anyio.create_task_group() as group:
        group.start_soon(server.run)
        async with RawClient(server.path) as client:
            await client.send(b'{"op": "endless"}\n')
            await endless.is_running.wait()
            group.cancel_scope.cancel()
    assert endless.is_cancelled.is_set()
    assert not server.path.exists()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_open_that_a_plain_cancellation_interrupts_leaves_no_socket(
    run_dir: Path, monkeypatch
) -> None:
    """Unlike a cancel scope, ``Task.cancel`` does not wait for the thread that binds."""
    is_binding, may_bind = threading.Event(), threading.Event()

    def pause(directory: Path) -> None:
        is_binding.set()
        assert may_bind.wait(10)

    monkeypatch.setattr(control_server, "remove_dead_sockets", pause)
    server = ControlServer(run_dir, "1-1", {})
    opening = asyncio.create_task(server.open())
    await wait_until_async(is_binding.is_set)
    opening.cancel()
    asyncio.get_running_loop().call_later(0.05, may_bind.set)
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not server.path.exists()


async def test_a_handler_that_is_about_to_end_can_answer_when_the_server_closes(
    run_dir: Path,
) -> None:
    is_running, is_closing = anyio.Event(), anyio.Event()

    async def stop(arguments: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        is_running.set()
        await is_closing.wait()
        return {"stopped": 3}

    answers: list[dict[str, Any]] = []

    async def ask(path: Path) -> None:
        answers.append(await request(path, "stop", {}))

    async with serving(run_dir, stop=stop) as server, anyio.create_task_group() as group:
        group.start_soon(ask, server.path)
        await is_running.wait()
        group.start_soon(server.aclose)
        await wait_until_async(lambda: not server.path.exists())
        is_closing.set()
    assert answers == [{"stopped": 3}]


async def test_a_handler_that_does_not_end_is_cancelled_when_the_server_closes(
    run_dir: Path, monkeypatch
) -> None:
    monkeypatch.setattr(control_server, "_CLOSE_GRACE_S", 0.05)
    endless = Endless()
    failures: list[ControlError] = []

    async def ask(path: Path) -> None:
        try:
            await request(path, "endless", {})
        except ControlError as error:
            failures.append(error)

    async with serving(run_dir, endless=endless) as server, anyio.create_task_group() as group:
        group.start_soon(ask, server.path)
        await endless.is_running.wait()
        await server.aclose()
        assert endless.is_cancelled.is_set()
    assert [error.message for error in failures] == [
        "the orchestrator went away before it had answered"
    ]


# ------------------------------------------------------------------- orchestrators that died


ORCHESTRATOR = """
import anyio, os, sys
from pathlib import Path
from clawblox.control_server import ControlServer

async def wait(arguments, report):
    await report("waiting", pid=os.getpid())
    await anyio.sleep_forever()

async def main():
    server = ControlServer(Path(sys.argv[1]), sys.argv[2], {"wait": wait})
    await server.open()
    {extra}
    print("open", flush=True)
    await server.run()

anyio.run(main)
"""


@contextlib.contextmanager
def orchestrator(
    run_dir: Path, name: str, extra: str = "pass"
) -> Iterator[subprocess.Popen[bytes]]:
    """Run an orchestrator in another process; it is killed at the end, if not before."""
    words = [sys.executable, "-c", ORCHESTRATOR.replace("{extra}", extra), str(run_dir), name]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            yield process
        finally:
            process.kill()


def leave_dead_socket(run_dir: Path, name: str) -> Path:
    """Leave the socket of an orchestrator that was killed."""
    with orchestrator(run_dir, name):
        pass
    path = control_dir(run_dir) / f"{name}.sock"
    assert path.is_socket()
    return path


async def test_a_dead_socket_is_removed_by_whoever_looks_for_one(run_dir: Path) -> None:
    dead = leave_dead_socket(run_dir, "7-1")
    async with serving(run_dir, "8-1") as server:
        pass
    assert not dead.exists()
    dead = leave_dead_socket(run_dir, "7-1")
    assert await find(run_dir) == []
    assert list(control_dir(run_dir).iterdir()) == []
    assert not server.path.exists()


async def test_the_name_of_a_dead_orchestrator_can_be_taken(run_dir: Path) -> None:
    leave_dead_socket(run_dir, "7-1")
    async with serving(run_dir, "7-1") as server:
        assert await find(run_dir) == [server.path]
        assert await request(server.path, "echo", {}) == {"asked": {}}


async def test_asking_a_dead_socket_says_so(run_dir: Path) -> None:
    dead = leave_dead_socket(run_dir, "7-1")
    with pytest.raises(ControlError, match="Connection refused") as caught:
        await request(dead, "echo", {})
    assert caught.value.path == dead


async def test_a_socket_that_does_not_listen_yet_is_not_taken_for_a_dead_one(
    run_dir: Path,
) -> None:
    directory = control_dir(run_dir)
    directory.mkdir(parents=True)
    lock = await anyio.to_thread.run_sync(lock_file, directory / "lock")  # as whoever binds does
    assert lock is not None
    newborn = socket.socket(socket.AF_UNIX)
    with newborn, control.short_path(directory / "9-1.sock") as address:
        newborn.bind(address)
        assert await find(run_dir) == []
        assert (directory / "9-1.sock").exists()
        newborn.listen()
        await anyio.to_thread.run_sync(unlock_file, directory / "lock", lock)
        assert await find(run_dir) == [directory / "9-1.sock"]


async def test_a_lock_that_is_never_given_back_fails_the_opening(
    run_dir: Path, monkeypatch
) -> None:
    monkeypatch.setattr(control_server, "_LOCK_PATIENCE_S", 0.05)
    directory = control_dir(run_dir)
    directory.mkdir(parents=True)
    lock = await anyio.to_thread.run_sync(lock_file, directory / "lock")
    assert lock is not None
    with pytest.raises(TimeoutError, match="another process holds"):
        await ControlServer(run_dir, "1-1", {}).open()
    await anyio.to_thread.run_sync(unlock_file, directory / "lock", lock)
    assert list(directory.iterdir()) == []


async def test_a_run_directory_without_orchestrators_has_no_sockets(tmp_path: Path) -> None:
    assert await find(tmp_path / "nowhere") == []
    control_dir(tmp_path).mkdir(parents=True)
    (control_dir(tmp_path) / "plain.sock").write_text("no socket")
    assert await find(tmp_path) == []


async def test_an_orchestrator_that_dies_meanwhile_is_an_error(run_dir: Path) -> None:
    with orchestrator(run_dir, "7-1"):
        [path] = await find(run_dir)
        with pytest.raises(ControlError, match="went away before it had answered"):
            await request(path, "wait", {}, lambda event: os.kill(event["pid"], signal.SIGKILL))


def test_a_child_that_was_forked_keeps_no_dead_orchestrator_alive(run_dir: Path) -> None:
    fork = "child = os.fork()\n    if not child: import time; time.sleep(3600)\n    print(child)"
    words = ORCHESTRATOR.replace('print("open", flush=True)', "sys.stdout.flush()")
    script = words.replace("{extra}", fork)
    command = [sys.executable, "-W", "ignore", "-c", script, str(run_dir), "7-1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert find_sockets(run_dir) == [control_dir(run_dir) / "7-1.sock"]
            process.kill()
            process.wait()
            wait_until(lambda: not find_sockets(run_dir))
            assert is_alive(child)
        finally:
            process.kill()
            kill_processes(lambda: [child] if is_alive(child) else [])


# ------------------------------------------------------------------------- strange answers


@contextlib.contextmanager
def stranger(run_dir: Path, answer: bytes | None) -> Iterator[Path]:
    """Answer one connection with given bytes; None closes it without having read anything."""
    path = control_dir(run_dir) / "5-1.sock"
    path.parent.mkdir(parents=True)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            if answer is None:
                select.select([connection], [], [], 10)
            else:
                connection.recv(1 << 16)
                connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener, control.short_path(path) as address:
        listener.bind(address)
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join()


STRANGE = {
    "nothing": (b"", "went away"),
    "a reset": (None, "went away"),
    "half a line": (b'{"ok": tr', "went away"),
    "no JSON": (b"hello\n", "not readable"),
    "no object": (b"[]\n", "not readable"),
    "an error without words": (b'{"ok": false}\n', "refused"),
}


@pytest.mark.parametrize(("answer", "message"), STRANGE.values(), ids=STRANGE)
async def test_a_strange_answer_is_an_error(
    run_dir: Path, answer: bytes | None, message: str
) -> None:
    with stranger(run_dir, answer) as path, pytest.raises(ControlError, match=message):
        await request(path, "echo", {})


async def test_an_answer_without_end_is_not_read_for_ever(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control, "_MAX_ANSWER_BYTES", 10_000)
    with (
        stranger(run_dir, b"x" * 10_001) as path,
        pytest.raises(ControlError, match="answered too much"),
    ):
        await request(path, "echo", {})


# ------------------------------------------------------------------------------ other users


AS_NOBODY = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setuid({uid})
connection = socket.socket(socket.AF_UNIX)
try:
    connection.connect("1-1.sock")
except PermissionError:
    print("cannot connect")
else:
    try:
        connection.sendall(b'{{"op": "echo"}}\\n')
        print(connection.recv(1000))
    except (BrokenPipeError, ConnectionResetError):
        print(b"")
"""


async def ask_as(uid: int, directory: Path) -> str:
    words = [sys.executable, "-I", "-S", "-c", AS_NOBODY.format(uid=uid), str(directory)]
    return (await anyio.run_process(words)).stdout.decode().strip()


@as_root
async def test_another_user_cannot_reach_the_socket(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        assert await ask_as(NOBODY, server.path.parent) == "cannot connect"
        server.path.parent.chmod(0o755)
        assert await ask_as(NOBODY, server.path.parent) == "cannot connect"


@as_root
async def test_another_user_who_reaches_the_socket_is_refused(run_dir: Path, logs) -> None:
    async with serving(run_dir) as server:
        server.path.parent.chmod(0o755)
        server.path.chmod(0o666)
        assert await ask_as(NOBODY, server.path.parent) == "b''"
        assert events_of(logs, "warning") == ["control connection refused"]
        assert logs[0]["uid"] == NOBODY
        assert "ok" in await ask_as(0, server.path.parent)


@as_root
async def test_root_may_ask_and_another_users_socket_is_not_believed(
    tmp_path: Path, monkeypatch
) -> None:
    """Root serves; nobody, whose peers are root and nobody, believes it, but not a third user."""
    async with serving(tmp_path) as server:
        monkeypatch.setattr(control.os, "geteuid", lambda: NOBODY)
        assert await request(server.path, "echo", {}) == {"asked": {}}
        monkeypatch.setattr(control, "peer_of", lambda _: control.Peer(1, 1000, 1000))
        with pytest.raises(ControlError, match="served by another user, 1000"):
            await request(server.path, "echo", {})


# --------------------------------------------------------------------------- scarce resources


async def test_it_waits_while_no_descriptor_is_left(run_dir: Path, logs, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_ACCEPT_PAUSE_S", 0.01)
    async with serving(run_dir) as server:
        path = "control/1-1.sock"
        monkeypatch.chdir(server.path.parent.parent)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            with no_descriptor_left():
                client.connect(path)
                client.sendall(b'{"op": "echo"}\n')
                while "control connection not accepted" not in events_of(logs, "warning"):
                    await anyio.sleep(0.005)
            answer = await anyio.to_thread.run_sync(client.recv, 1000)
    assert json.loads(answer) == {"ok": True, "asked": {}}


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing more for a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = next(fd for fd in range(soft) if fd not in open_fds())
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_client_waits_for_its_turn_when_too_many_wait(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_BACKLOG", 0)
    server = ControlServer(run_dir, "1-1", {"echo": echo})
    await server.open()
    answers: list[dict[str, Any]] = []

    async def ask() -> None:
        answers.append(await request(server.path, "echo", {}))

    attempts = count_calls(monkeypatch, "_try_connect")
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
        await wait_until_async(lambda: attempts() > 3)
        assert await find(run_dir) == [server.path]
        group.start_soon(server.run)
        await wait_until_async(lambda: len(answers) == 3)
        await server.aclose()


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    real, calls = getattr(control, name), []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(control, name, counted)
    return lambda: len(calls)


def test_a_thousand_requests_leave_nothing_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as server:
            before = open_fds().keys()
            for _ in range(1000):
                await request(server.path, "echo", {})
            await wait_until_async(lambda: open_fds().keys() == before)

    anyio.run(main)
    wait_until(lambda: list(control_dir(tmp_path).iterdir()) == [])
