"""Files in pieces: only below the run directory, complete or absent, and resumable."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.errors import UsageError
from clawblox.rundir.blobs import MAX_BLOB_BYTES, describe_blob, read_piece, write_piece
from clawblox.rundir.control_client import request
from tests.rundir.control.conftest import serving

pytestmark = pytest.mark.anyio

CONTENT = os.urandom(3 << 20) + b"the end"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def _existing(run_dir: Path) -> None:
    run_dir.mkdir(parents=True)


def served(run_dir: Path) -> Any:
    """Serve the files of a run directory."""

    def handler(move: Any) -> Any:
        async def handle(asked: Any, _: Any) -> Any:
            return await run_blocking(move, run_dir, asked)

        return handle

    return serving(
        run_dir,
        describe_blob=handler(describe_blob),
        read_blob=handler(read_piece),
        write_blob=handler(write_piece),
    )


def piece(
    sent: bytes, *, offset: int = 0, content: bytes = CONTENT, **changes: Any
) -> dict[str, Any]:
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
        "offset": offset,
        "data": base64.b64encode(sent).decode(),
        **changes,
    }


async def send(socket_path: Path) -> Path:
    """Send the content like a client, from the offset that the orchestrator returns."""
    offset, path = 0, None
    while path is None:
        sent = piece(CONTENT[offset : offset + (44 << 10)], offset=offset)
        answer = await request(socket_path, "write_blob", sent)
        offset, path = answer["received_bytes"], answer["path"]
    return Path(path)


@pytest.mark.parametrize("content", [CONTENT, b""], ids=["long", "empty"])
async def test_a_file_is_fetched_in_pieces_with_its_digest(run_dir: Path, content: bytes) -> None:
    (run_dir / "snapshot.json").write_bytes(content)
    asked = {"path": "snapshot.json"}
    async with served(run_dir) as server:
        blob = await request(server.path, "describe_blob", asked)
        received = b""
        while len(received) < blob["size_bytes"]:
            more = await request(server.path, "read_blob", {**asked, "offset": len(received)})
            received += base64.b64decode(more["data"])
    assert received == content
    assert blob["sha256"] == hashlib.sha256(content).hexdigest()


async def test_a_file_is_sent_whole_and_named_by_its_digest(run_dir: Path) -> None:
    async with served(run_dir) as server:
        copy = await send(server.path)
        assert copy == run_dir / ".clawblox" / "blobs" / SHA256
        assert copy.read_bytes() == CONTENT
        assert copy.stat().st_mode & 0o777 == 0o600
        assert await send(server.path) == copy


async def test_an_interrupted_transfer_can_be_continued(run_dir: Path) -> None:
    half = len(CONTENT) // 2
    for sent, offset in ((CONTENT[:half], 0), (b"again", 3), (b"too early", half + 1)):
        answer = await run_blocking(write_piece, run_dir, piece(sent, offset=offset))
        assert answer == {"received_bytes": half, "path": None}
    async with served(run_dir) as server:
        assert (await send(server.path)).read_bytes() == CONTENT


@pytest.mark.thorough
async def test_two_clients_may_send_the_same_file(run_dir: Path) -> None:
    async with served(run_dir) as server, anyio.create_task_group() as clients:
        for _ in range(2):
            clients.start_soon(send, server.path)
    assert [path.name for path in (run_dir / ".clawblox" / "blobs").iterdir()] == [SHA256]


def test_a_file_with_a_wrong_digest_is_removed(run_dir: Path) -> None:
    for sent in (b"abd", b"abcd"):
        with pytest.raises(UsageError, match="must be the digest of the 3 bytes sent"):
            write_piece(run_dir, piece(sent, content=b"abc"))
        assert list((run_dir / ".clawblox" / "blobs").iterdir()) == []


def test_only_regular_files_below_the_run_directory_are_read(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (run_dir / "link").symlink_to(tmp_path / "secret")
    (run_dir / "directory").symlink_to(tmp_path)
    os.mkfifo(run_dir / "pipe")
    absolute = str(tmp_path / "secret")
    wrong = (absolute, "../secret", "link", "directory/secret", "pipe", ".", "", "a\0b", None, 5)
    for path in wrong:
        for operation in (describe_blob, read_piece):
            with pytest.raises(UsageError, match=r"^path: must be"):
                operation(run_dir, {"path": path, "offset": 0})


def test_a_too_large_file_is_refused_unread(run_dir: Path) -> None:
    (run_dir / "big").touch()
    os.truncate(run_dir / "big", 8 << 40)
    with pytest.raises(UsageError, match=rf"^path: must be a file of at most {MAX_BLOB_BYTES}"):
        describe_blob(run_dir, {"path": "big"})


async def test_a_cancelled_request_ends_the_reading_of_a_large_file(run_dir: Path) -> None:
    (run_dir / "large").touch()
    os.truncate(run_dir / "large", 32 << 30)
    has_begun = threading.Event()

    def describe(check: Callable[[], None]) -> None:
        def note_and_check() -> None:
            has_begun.set()
            check()

        with pytest.raises(InterruptedError):
            describe_blob(run_dir, {"path": "large"}, note_and_check)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_checked, describe)
        await run_blocking(has_begun.wait)
        tasks.cancel_scope.cancel()


def test_the_error_names_an_invalid_member(run_dir: Path) -> None:
    wrong: list[tuple[str, Any]] = [
        ("sha256", "../../x"),
        ("sha256", "A" * 64),
        ("size_bytes", -1),
        ("size_bytes", True),
        ("size_bytes", MAX_BLOB_BYTES + 1),
        ("offset", "0"),
        ("offset", 1.0),
        ("data", "not base64"),
        ("data", 5),
    ]
    for name, value in wrong:
        with pytest.raises(UsageError, match=rf"^{name}: must be"):
            write_piece(run_dir, {**piece(b""), name: value})
    assert not (run_dir / ".clawblox" / "blobs").exists()
