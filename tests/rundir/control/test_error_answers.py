"""Errors of handlers and requests as answers, and unusable answers."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from clawblox.errors import ControlError, SnapshotError
from clawblox.rundir import control_client as control
from clawblox.rundir import control_server
from clawblox.rundir.control_client import control_dir, request
from clawblox.rundir.control_server import SendEvent
from tests.rundir.control.conftest import RawClient, events_of, find, serving

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------- errors as answers


async def test_a_clawblox_error_arrives_with_all_its_fields(run_dir: Path) -> None:
    async def save(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
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
    async def fail(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        raise ZeroDivisionError("three by nothing \udcff")

    async with serving(run_dir, fail=fail) as server:
        with pytest.raises(ControlError, match="three by nothing") as caught:
            await request(server.path, "fail", {})
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert caught.value.error_type == "ZeroDivisionError"
    assert events_of(logs, "error") == ["control handler failed"]


async def test_an_error_that_cannot_be_sent_ends_only_its_connection(run_dir: Path, logs) -> None:
    class BrokenError(ControlError):
        def details(self) -> list[str]:
            raise ZeroDivisionError

    async def fail(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        raise BrokenError("cannot say")

    async with serving(run_dir, fail=fail) as server:
        with pytest.raises(ControlError, match="went away"):
            await request(server.path, "fail", {})
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert events_of(logs, "error") == ["control connection failed"]


@pytest.mark.parametrize("where", ["answer", "event"])
async def test_an_answer_that_is_not_plain_counts_as_an_error_of_the_handler(
    run_dir: Path, logs, where
) -> None:
    async def odd(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        if where == "event":
            await send_event("odd", value=object())
        return {"value": object()}

    async with serving(run_dir, odd=odd) as server:
        with pytest.raises(ControlError, match="object is not a plain value"):
            await request(server.path, "odd", {})


async def ask_raw(path: Path, data: bytes) -> list[dict[str, Any]]:
    """Send bytes; return the lines of the answer."""
    async with RawClient(path) as client:
        with contextlib.suppress(BrokenPipeError):
            await client.send(data)
        return [json.loads(line) for line in (await client.answer()).splitlines()]


MALFORMED = {
    "no JSON": (b"save everything\n", "JSON"),
    "no object": (b'["op", "echo"]\n', "JSON object"),
    "nothing": (b"\n", "JSON"),
    "not UTF-8": (b'{"op": "\xff"}\n', "utf-8"),
    "too deep": (b'{"op": "echo", "x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}\n", "recursion"),
    "no op": (b'{"instance": "w000"}\n', "unknown op 'None'"),
    "an op that is not a text": (b'{"op": ["echo"]}\n', "unknown op"),
    "an unknown op": (b'{"op": "erase"}\n', "unknown op 'erase'; there are: echo, count"),
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
        assert reason.casefold() in answer["error"]["message"].casefold()
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert events_of(logs, "warning") == ["control request refused"]


async def test_a_client_with_a_too_long_request_still_gets_an_answer(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        with pytest.raises(ControlError, match="at most 65536 bytes"):
            await request(server.path, "echo", {"text": "x" * (1 << 20)})


async def test_a_request_of_maximum_length_is_accepted(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        line = b'{"op": "echo"}'.ljust(65535) + b"\n"
        assert await ask_raw(server.path, line) == [{"ok": True, "asked": {}}]


async def test_a_truncated_request_is_answered(run_dir: Path, logs) -> None:
    async with serving(run_dir) as server, RawClient(server.path) as client:
        await client.send(b'{"op": "echo"}')
        client.socket.shutdown(socket.SHUT_WR)
        answer = json.loads(await client.answer())
    assert answer["error"]["message"] == "the request ended before its line did"
    assert events_of(logs, "warning") == ["control request refused"]


async def test_a_request_that_times_out_is_answered(run_dir: Path, logs, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_REQUEST_TIMEOUT_S", 0.05)
    async with serving(run_dir) as server:
        [answer] = await ask_raw(server.path, b'{"op": "ec')
    assert answer["error"]["message"] == "no request came within 0.05 s"
    assert events_of(logs, "warning") == ["control request refused"]


async def test_a_client_without_a_request_is_not_logged(run_dir: Path, logs) -> None:
    async with serving(run_dir) as server:
        async with RawClient(server.path):
            pass
        assert await find(run_dir) == [server.path]
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert logs == []


# ------------------------------------------------------------------------ unusable answers


@contextlib.contextmanager
def stranger(run_dir: Path, answer: bytes | None) -> Iterator[Path]:
    """Answer one connection with given bytes; None closes it without a read."""
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
async def test_an_unreadable_answer_is_an_error(
    run_dir: Path, answer: bytes | None, message: str
) -> None:
    with stranger(run_dir, answer) as path, pytest.raises(ControlError, match=message):
        await request(path, "echo", {})


async def test_an_endless_answer_is_not_read_forever(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control, "_MAX_ANSWER_BYTES", 10_000)
    with (
        stranger(run_dir, b"x" * 10_001) as path,
        pytest.raises(ControlError, match="answered too much"),
    ):
        await request(path, "echo", {})


async def test_a_message_with_values_unsupported_by_json_is_sent() -> None:
    line = control.encode_message(
        {"text": "the \ud800 value", "path": Path("/x"), "number": 10**30}
    )
    assert json.loads(line) == {"text": "the \ufffd value", "path": "/x", "number": 1e30}
