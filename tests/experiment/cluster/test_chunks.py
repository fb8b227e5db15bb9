"""A file arrives with its digest or not at all, wherever its transfer is interrupted."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.cluster import chunks
from clawblox.experiment.cluster.chunks import (
    IncomingFile,
    TransferError,
    read_chunk,
    receive_file,
    send_file,
)
from clawblox.system.files import MAX_DIGEST_BYTES
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio

CONTENT = b"a content of 23 bytes.\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OFFSETS = range(0, len(CONTENT), 4)

Read = Callable[[int, int], Awaitable[bytes]]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run the tests on both event loops."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "place"
    directory.mkdir()
    return directory


async def read(offset: int, size: int) -> bytes:
    await anyio.lowlevel.checkpoint()
    return CONTENT[offset : offset + size]


def read_but_at(cut: int, instead: Read) -> Read:
    async def read_most(offset: int, size: int) -> bytes:
        return await (instead if offset == cut else read)(offset, size)

    return read_most


async def test_file_arrives_complete(place: Path) -> None:
    await receive_file(len(CONTENT), SHA256, read, place / "file")
    assert (place / "file").read_bytes() == CONTENT
    assert [*place.iterdir()] == [place / "file"]


async def test_an_empty_file_arrives(place: Path) -> None:
    await receive_file(0, hashlib.sha256().hexdigest(), read, place / "file")
    assert (place / "file").read_bytes() == b""


async def test_two_chunks_of_a_file_are_in_flight(place: Path) -> None:
    waiting = most = 0
    both = anyio.Event()

    async def read_both(offset: int, size: int) -> bytes:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        if waiting == 2:
            both.set()
        await both.wait()
        data = await read(offset, size)
        waiting -= 1
        return data

    with anyio.fail_after(60):
        await receive_file(len(CONTENT), SHA256, read_both, place / "file")
    assert most == 2


async def test_a_link_in_the_place_of_the_file_is_replaced(place: Path) -> None:
    (place / "other").write_text("mine")
    (place / "file").symlink_to("other")
    await receive_file(len(CONTENT), SHA256, read, place / "file")
    assert (place / "other").read_text() == "mine"
    assert (place / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("cut", OFFSETS)
@pytest.mark.parametrize("length", [-1, 1])
async def test_chunk_of_wrong_length_leaves_no_file(place: Path, cut: int, length: int) -> None:
    async def wrong(offset: int, size: int) -> bytes:
        return (await read(offset, size) + b"x")[: size + length]

    with pytest.raises(TransferError, match=f"file does not expect a chunk of . bytes at {cut}"):
        await receive_file(len(CONTENT), SHA256, read_but_at(cut, wrong), place / "file")
    assert [*place.iterdir()] == []


@pytest.mark.parametrize("cut", OFFSETS)
async def test_wrong_byte_leaves_no_file(place: Path, cut: int) -> None:
    async def wrong(offset: int, size: int) -> bytes:
        return b"X" + (await read(offset, size))[1:]

    with pytest.raises(TransferError, match=f"does not match its digest {SHA256}"):
        await receive_file(len(CONTENT), SHA256, read_but_at(cut, wrong), place / "file")
    assert [*place.iterdir()] == []


@pytest.mark.parametrize("cut", OFFSETS)
async def test_failed_read_leaves_no_file_and_raises_its_error(place: Path, cut: int) -> None:
    async def fail(_offset: int, _size: int) -> bytes:
        raise ConnectionError("the node is lost")

    (place / "file").write_text("old")
    with pytest.raises(ConnectionError, match="the node is lost"):
        await receive_file(len(CONTENT), SHA256, read_but_at(cut, fail), place / "file")
    assert [*place.iterdir()] == [place / "file"]
    assert (place / "file").read_text() == "old"


@pytest.mark.parametrize("cut", OFFSETS)
async def test_cancelled_transfer_leaves_no_file(place: Path, cut: int) -> None:
    async def stop(_offset: int, _size: int) -> bytes:
        scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.CancelScope() as scope:
        await receive_file(len(CONTENT), SHA256, read_but_at(cut, stop), place / "file")
    assert scope.cancelled_caught
    assert [*place.iterdir()] == []


async def test_chunks_in_flight_are_limited_across_files(place: Path) -> None:
    travelling: set[tuple[int, int]] = set()
    most, may_arrive = 0, anyio.Event()

    async def receive(number: int) -> None:
        async def read_slowly(offset: int, size: int) -> bytes:
            nonlocal most
            travelling.add((number, offset))
            most = max(most, len(travelling))
            await may_arrive.wait()
            travelling.remove((number, offset))
            return await read(offset, size)

        await receive_file(len(CONTENT), SHA256, read_slowly, place / str(number))

    async with anyio.create_task_group() as group:
        for number in range(chunks.CHUNKS_AT_ONCE):
            group.start_soon(receive, number)
        await wait_until_async(lambda: len([*place.iterdir()]) == chunks.CHUNKS_AT_ONCE)
        await wait_until_async(lambda: most >= chunks.CHUNKS_AT_ONCE)
        await wait_all_tasks_blocked()
        may_arrive.set()
    assert most == chunks.CHUNKS_AT_ONCE
    assert {path.read_bytes() for path in place.iterdir()} == {CONTENT}


async def test_aborted_transfers_make_room_for_others(place: Path) -> None:
    async def hang(_offset: int, _size: int) -> bytes:
        nonlocal asked
        asked += 1
        await anyio.sleep_forever()
        raise AssertionError

    asked = 0
    async with anyio.create_task_group() as group:
        for number in range(2 * chunks.CHUNKS_AT_ONCE):
            group.start_soon(receive_file, len(CONTENT), SHA256, hang, place / str(number))
        await wait_until_async(lambda: asked == chunks.CHUNKS_AT_ONCE)
        group.cancel_scope.cancel()
    with anyio.fail_after(HANG_S):
        await receive_file(len(CONTENT), SHA256, read, place / "file")
    assert [*place.iterdir()] == [place / "file"]


async def test_failed_chunk_ends_the_other_chunk(place: Path) -> None:
    async def fail_or_hang(offset: int, _size: int) -> bytes:
        if offset == 0:
            await hanging.wait()
            raise ConnectionError("the node is lost")
        hanging.set()
        await anyio.sleep_forever()
        raise AssertionError

    hanging = anyio.Event()
    with anyio.fail_after(60), pytest.raises(ConnectionError):
        await receive_file(len(CONTENT), SHA256, fail_or_hang, place / "file")
    assert [*place.iterdir()] == []


async def test_asyncio_cancellation_leaves_no_file(place: Path, anyio_backend: str) -> None:
    if anyio_backend != "asyncio":
        return
    for steps in range(12):
        task = asyncio.ensure_future(receive_file(len(CONTENT), SHA256, read, place / "file"))
        for _ in range(steps):
            await asyncio.sleep(0)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()
        assert [*place.iterdir()] == []


@pytest.mark.parametrize("size", [-1, MAX_DIGEST_BYTES + 1])
async def test_an_announced_size_is_limited(
    place: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 8 << 20)
    with pytest.raises(TransferError, match="must have 0 to"):
        await receive_file(size, SHA256, read, place / "file")
    assert [*place.iterdir()] == []


def test_each_chunk_must_arrive_exactly_once_in_any_order(place: Path) -> None:
    incoming = IncomingFile(place / "file", len(CONTENT), SHA256)
    try:
        for offset in reversed(OFFSETS):
            with pytest.raises(TransferError, match="is missing its chunk at 0"):
                incoming.publish()
            incoming.write(offset, CONTENT[offset : offset + 4])
            for again in (offset, offset + 1, -4, len(CONTENT) + 1):
                with pytest.raises(TransferError, match="does not expect a chunk"):
                    incoming.write(again, CONTENT[offset : offset + 4])
        incoming.publish()
    finally:
        incoming.close()
    assert (place / "file").read_bytes() == CONTENT


async def test_a_sent_file_is_received(place: Path) -> None:
    (place / "sent").write_bytes(CONTENT)
    incoming = IncomingFile(place / "file", len(CONTENT), SHA256)
    offsets = []

    async def send(offset: int, data: bytes) -> None:
        offsets.append(offset)
        await run_blocking(incoming.write, offset, data)

    try:
        await send_file(place / "sent", send)
        await run_blocking(incoming.publish)
    finally:
        incoming.close()
    assert sorted(offsets) == [*OFFSETS]
    assert (place / "file").read_bytes() == CONTENT


async def test_a_file_that_becomes_shorter_is_not_sent(place: Path) -> None:
    (place / "sent").write_bytes(CONTENT)

    async def send(_offset: int, _data: bytes) -> None:
        await run_blocking((place / "sent").write_bytes, b"")

    with pytest.raises(TransferError, match="sent has become shorter than"):
        await send_file(place / "sent", send)


def test_a_chunk_through_a_link_is_not_read(place: Path) -> None:
    (place / "secret").write_bytes(CONTENT)
    (place / "link").symlink_to("secret")
    with pytest.raises(OSError, match="is a symbolic link"):
        read_chunk(place / "link", 0, 4)


def test_chunk_is_pickled_out_of_band_if_possible(place: Path) -> None:
    content = CONTENT * 100
    (place / "sent").write_bytes(content)
    chunk = read_chunk(place / "sent", 0, len(content))
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(chunk, 5, buffer_callback=buffers.append)
    assert len(pickled) < 100
    assert [*map(bytes, buffers)] == [content]
    arrived = pickle.loads(pickled, buffers=[memoryview(content)])
    sha256 = hashlib.sha256(content).hexdigest()
    with closing(IncomingFile(place / "file", len(content), sha256)) as incoming:
        for offset in range(0, len(content), 4):
            incoming.write(offset, arrived[offset : offset + 4])
        incoming.publish()
    assert (place / "file").read_bytes() == content


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_chunk_survives_each_pickle_protocol(place: Path, protocol: int) -> None:
    (place / "sent").write_bytes(CONTENT)
    chunk = read_chunk(place / "sent", 0, len(CONTENT))
    assert pickle.loads(pickle.dumps(chunk, protocol)) == CONTENT


def test_transfer_error_survives_pickling() -> None:
    assert str(pickle.loads(pickle.dumps(TransferError("a text")))) == "a text"
