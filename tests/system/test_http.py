"""Calls to an instance: one client for all of them, made when the first is."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest

from clawblox.errors import WorldCallError
from clawblox.system.http import Answer, InstanceClient
from tests.support import free_port

pytestmark = pytest.mark.anyio


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.path.encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/base"
        finally:
            server.shutdown()
            thread.join()


async def test_first_calls_at_the_same_time_share_one_client() -> None:
    client, opened = InstanceClient("http://127.0.0.1:1"), []

    async def open_client() -> None:
        opened.append(await client._open())

    async with anyio.create_task_group() as calls:
        for _ in range(3):
            calls.start_soon(open_client)
    await open_client()
    await client.aclose()
    assert len(set(map(id, opened))) == 1
    assert opened[0].is_closed


async def test_a_call_sends_its_parameters_and_returns_status_and_body() -> None:
    with serving() as url:
        client = InstanceClient(url)
        try:
            answer = await client.post("/join", params={"name": "Rocky"}, timeout=20)
        finally:
            await client.aclose()
    assert answer == Answer(201, b"/base/join?name=Rocky")


async def test_a_client_that_was_never_used_can_be_closed() -> None:
    await InstanceClient("http://127.0.0.1:1").aclose()


async def test_a_refused_connection_is_an_error_of_ours() -> None:
    client = InstanceClient(f"http://127.0.0.1:{free_port()}")
    try:
        with pytest.raises(WorldCallError, match="POST /join failed: "):
            await client.post("/join", timeout=20)
    finally:
        await client.aclose()


EXHAUSTED = """
import resource
from pathlib import Path

import anyio

from clawblox.errors import SnapshotError, WorldCallError
from clawblox.snapshot.transfer import SnapshotSource, Transfer
from clawblox.system.http import InstanceClient


async def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        await InstanceClient("http://127.0.0.1:1").post("/join", timeout=20)
    except WorldCallError as error:
        print(error)
    try:
        Transfer(SnapshotSource("w000", "127.0.0.1", 1, "", "s3cret"), Path("/tmp"), 20, 9).run()
    except SnapshotError as error:
        print(error.message)


anyio.run(main)
"""


def test_without_a_free_descriptor_calls_and_snapshots_fail_by_an_error_of_ours() -> None:
    words = [sys.executable, "-c", EXHAUSTED]
    result = subprocess.run(words, check=True, timeout=60, capture_output=True, text=True)
    first, second = result.stdout.splitlines()
    assert first == "POST /join failed: Too many open files"
    assert second.startswith("Too many open files")
