"""The transfer of a snapshot over a stalling connection, and the ends of the wait."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import SavedSnapshot, SnapshotError
from clawblox.snapshot.capture import SnapshotSource, Transfer, capture
from clawblox.snapshot.checker import SMALL_BYTES
from tests.snapshot.test_checker import running_checkers
from tests.support.processes import read_process
from tests.support.sampling import sampled
from tests.support.waiting import HANG_S, wait_until, wait_until_async

pytestmark = pytest.mark.anyio


HOST = "127.0.0.1"


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Answer one request with ``answer``, which may hang until its peer disconnects."""

    def serve() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            connection.recv(65536)
            answer(connection)

    with socket.create_server((HOST, 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            server.join()


def hang(connection: socket.socket) -> None:
    """Wait until the peer disconnects."""
    while connection.recv(65536):
        pass


async def save(port: int, directory: Path, *, timeout: float = HANG_S * 10) -> SavedSnapshot:
    source = SnapshotSource("w000", HOST, port, "", "token")
    return await capture(source, directory, timeout=timeout, max_bytes=1 << 30)


HEADS = {
    "sized": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
    "sized, the last": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n",
    "until it closes": b"HTTP/1.1 200 OK\r\n\r\n",
    "old": b"HTTP/1.0 200 OK\r\n\r\n",
    "none": b"",
}


@pytest.mark.parametrize("way", sampled(HEADS, 3))
@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "late"])
async def test_an_abandoned_wait_for_a_silent_world_ends(
    tmp_path: Path, way: str, is_cancelled: bool
) -> None:
    has_begun = threading.Event()

    def stall(connection: socket.socket) -> None:
        connection.sendall(HEADS[way] + (b'{"a' if HEADS[way] else b""))
        has_begun.set()
        hang(connection)

    with serving(stall) as port, anyio.fail_after(HANG_S):
        if is_cancelled:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(save, port, tmp_path)
                await wait_until_async(has_begun.is_set)
                tasks.cancel_scope.cancel()
        else:
            with pytest.raises(SnapshotError, match=r"took longer than 0\.2 s"):
                await save(port, tmp_path, timeout=0.2)
    assert os.listdir(tmp_path) == []


@pytest.mark.thorough
@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "late"])
async def test_an_abandoned_wait_for_a_world_that_never_accepts_ends(
    tmp_path: Path, is_cancelled: bool
) -> None:
    with socket.create_server((HOST, 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        port = listener.getsockname()[1]
        with contextlib.suppress(TimeoutError):
            while True:  # until the backlog is full
                stack.enter_context(socket.create_connection((HOST, port), timeout=0.2))
        with anyio.fail_after(HANG_S):
            if is_cancelled:
                with anyio.move_on_after(0.1):
                    await save(port, tmp_path)
            else:
                with pytest.raises(SnapshotError, match="took longer than") as caught:
                    await save(port, tmp_path, timeout=0.2)
                assert caught.value.phase == "connect"
    assert os.listdir(tmp_path) == []


@pytest.mark.thorough
@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "late"])
async def test_an_abandoned_wait_for_a_hanging_checker_ends(
    tmp_path: Path, is_cancelled: bool
) -> None:
    body = b'{"padding": "' + b"x" * SMALL_BYTES + b'"}'
    has_begun = threading.Event()

    def answer(connection: socket.socket) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(body))
        (checker,) = wait_until(running_checkers)
        os.kill(checker, signal.SIGSTOP)
        connection.sendall(body)
        has_begun.set()
        hang(connection)

    with serving(answer) as port, anyio.fail_after(HANG_S):
        if is_cancelled:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(save, port, tmp_path)
                await wait_until_async(has_begun.is_set)
                tasks.cancel_scope.cancel()
        else:
            with pytest.raises(SnapshotError, match="took longer than") as caught:
                await save(port, tmp_path, timeout=1.0)
            assert (caught.value.phase, caught.value.bytes) == ("verify", len(body))
    assert os.listdir(tmp_path) == []
    assert running_checkers() == set()


@pytest.mark.thorough
async def test_a_transfer_waits_for_a_world_that_answers_in_pieces(tmp_path: Path) -> None:
    body = json.dumps({"format": "pieces-v1", "time": 1}).encode()

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for piece in (body[:5], body[5:9], body[9:]):
            connection.sendall(piece)
            time.sleep(0.15)  # more than a tick of the wire

    with serving(answer) as port, anyio.fail_after(HANG_S):
        saved = await save(port, tmp_path)
    assert (saved.format, saved.path.read_bytes()) == ("pieces-v1", body)


@pytest.mark.parametrize("body", [b'{"format": "a"', b"[1, 2", b'"text'])
async def test_a_document_without_a_length_is_complete_only_if_it_is_json(
    tmp_path: Path, body: bytes
) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + body)

    with (
        serving(answer) as port,
        anyio.fail_after(HANG_S),
        pytest.raises(SnapshotError, match="may be incomplete") as caught,
    ):
        await save(port, tmp_path)
    assert (caught.value.phase, caught.value.bytes) == ("body", len(body))
    assert os.listdir(tmp_path) == []


NAN = b'{"time": NaN}'
LAST = b"Connection: close\r\n"
SIZED = b"Content-Length: %d\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
JSON = b"Content-Type: application/json\r\n"


def answer_with(head: bytes, body: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body)

    return answer


async def refused(port: int, directory: Path) -> SnapshotError:
    with anyio.fail_after(HANG_S), pytest.raises(SnapshotError) as caught:
        await save(port, directory)
    assert os.listdir(directory) == []
    return caught.value


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (JSON + SIZED % len(NAN), NAN),
        (JSON + LAST + SIZED % len(NAN), NAN),
        (JSON + CHUNKED, b"5\r\n" + NAN[:5] + b"\r\n8\r\n" + NAN[5:] + b"\r\n0\r\n\r\n"),
    ],
    ids=["sized", "sized, the last", "chunked"],
)
async def test_a_delimited_body_that_is_not_strict_json_is_accepted(
    tmp_path: Path, head: bytes, body: bytes
) -> None:
    with serving(answer_with(head, body)) as port, anyio.fail_after(HANG_S):
        saved = await save(port, tmp_path)
    assert (saved.format, saved.time, saved.path.suffix) == ("world-snapshot", None, ".snapshot")
    assert saved.path.read_bytes() == NAN


@pytest.mark.parametrize(
    "body", [NAN, b"{\0\xff", b"\xef\xbb\xbf{}", b"[" * 100_000 + b"]" * 100_000]
)
async def test_a_body_without_a_length_must_be_strict_json(tmp_path: Path, body: bytes) -> None:
    with serving(answer_with(JSON, body)) as port:
        error = await refused(port, tmp_path)
    assert "may be incomplete" in error.message


@pytest.mark.parametrize("head", [JSON, JSON + LAST], ids=["kept", "the last"])
@pytest.mark.parametrize("size", sampled([0, 100_000], 2))
async def test_a_document_that_is_longer_than_its_length_is_refused(
    tmp_path: Path, head: bytes, size: int
) -> None:
    text = '{"name": "Zoë", "padding": "' + "x" * size + '"}'
    with serving(answer_with(head + SIZED % len(text), text.encode())) as port:
        error = await refused(port, tmp_path)
    assert error.phase == "verify"
    assert f"longer than its Content-Length, {len(text)} bytes" in error.message


@pytest.mark.parametrize(
    "page",
    [
        b"<!doctype html><p>",
        b" \r\n\xef\xbb\xbf\t<!DOCTYPE\nHTML PUBLIC",
        b"\xef\xbb\xbf\n<HTML lang=en>",
        b" " * 1000 + b"<html>",
    ],
)
@pytest.mark.parametrize("kind", [b"text/html", b"application/json", b"application/octet-stream"])
async def test_a_web_page_of_any_content_type_is_refused(
    tmp_path: Path, page: bytes, kind: bytes
) -> None:
    head = b"Content-Type: %s\r\n" % kind + SIZED % len(page)
    with serving(answer_with(head, page)) as port:
        error = await refused(port, tmp_path)
    assert "web page" in error.message


@pytest.mark.parametrize("body", [b"<htm", b"<!doctype svg>", b"<p>text", b"x<html>"])
async def test_a_snapshot_with_the_type_of_a_web_page_is_accepted(
    tmp_path: Path, body: bytes
) -> None:
    head = b"Content-Type: text/html\r\n" + SIZED % len(body)
    with serving(answer_with(head, body)) as port, anyio.fail_after(HANG_S):
        assert (await save(port, tmp_path)).path.read_bytes() == body


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"br"])
async def test_a_transfer_coding_that_cannot_be_read_is_refused(
    tmp_path: Path, coding: bytes
) -> None:
    head = b"Transfer-Encoding: %s\r\n" % coding + SIZED % 2
    with serving(answer_with(head, b"{}")) as port:
        error = await refused(port, tmp_path)
    assert f"Transfer-Encoding {coding.decode()!r}" in error.message


@pytest.mark.parametrize("last", [b"", LAST], ids=["kept", "the last"])
async def test_interim_answers_before_a_snapshot_are_skipped(tmp_path: Path, last: bytes) -> None:
    body = b'{"format": "hinted-v1"}'
    hint = b"HTTP/1.1 103 Early Hints\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n"

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" + 2 * (hint + last + b"\r\n"))
        connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
        answer_with(last + SIZED % len(body), body)(connection)

    with serving(answer) as port, anyio.fail_after(HANG_S):
        saved = await save(port, tmp_path)
    assert (saved.format, saved.path.read_bytes()) == ("hinted-v1", body)


async def test_a_status_without_a_following_answer_is_the_answer(tmp_path: Path) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        answer_with(SIZED % 2, b"{}")(connection)

    with serving(answer) as port:
        error = await refused(port, tmp_path)
    assert (error.phase, error.status) == ("headers", 101)


async def test_a_json_value_of_any_type_is_accepted(tmp_path: Path) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n12345")

    with serving(answer) as port, anyio.fail_after(HANG_S):
        saved = await save(port, tmp_path)
    assert (saved.path.suffix, saved.size_bytes) == (".snapshot", 5)


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["sized", "none"])
def test_a_silence_ends_the_transfer_even_without_an_event_loop(tmp_path: Path, way: str) -> None:
    def stall(connection: socket.socket) -> None:
        connection.sendall(HEADS[way])
        hang(connection)

    with serving(stall) as port:
        transfer = Transfer(SnapshotSource("w000", HOST, port, "", "token"), tmp_path, 0.2, 100)
        with pytest.raises(SnapshotError, match=r"silent for 0\.2 s"):
            transfer.run()
    assert os.listdir(tmp_path) == []


SAVE = """
import sys
from pathlib import Path
import anyio
from clawblox.snapshot.capture import SnapshotSource, capture

async def main():
    source = SnapshotSource("w000", "127.0.0.1", int(sys.argv[1]), "", "token")
    saved = await capture(source, Path(sys.argv[2]), timeout=1.0, max_bytes=1 << 30)
    print(saved.format)

anyio.run(main, backend=sys.argv[3])
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "answers_meanwhile", sampled([True, False], 2), ids=["meanwhile", "afterwards"]
)
def test_a_save_survives_a_suspension_longer_than_its_timeout(
    tmp_path: Path, anyio_backend_name: str, answers_meanwhile: bool
) -> None:
    body = b'{"format": "patient-v1"}'
    is_asked, may_answer = threading.Event(), threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n{" % len(body))
        is_asked.set()
        may_answer.wait(HANG_S)
        connection.sendall(body[1:])

    with serving(answer) as port:
        command = [sys.executable, "-c", SAVE, str(port), str(tmp_path), anyio_backend_name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            is_asked.wait(HANG_S)
            stop(child)
            if answers_meanwhile:
                may_answer.set()
            time.sleep(1.3)  # the whole time of the save and more
            os.kill(child.pid, signal.SIGCONT)
            if not answers_meanwhile:
                wait_until(lambda: state_of(child) != "T")
                may_answer.set()
            assert child.communicate()[0] == "patient-v1\n"


def stop(child: subprocess.Popen[Any]) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(child) == "T")


def state_of(child: subprocess.Popen[Any]) -> str | None:
    found = read_process(child.pid)
    return found.state if found else None
