"""Files in pieces: from below the run directory only, whole or absent, and continued."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ControlError, UsageError
from clawblox.rundir import blobs
from clawblox.rundir.blobs import describe_blob, fetch_blob, read_piece, send_blob, write_piece
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


async def test_a_file_is_fetched_whole_with_its_digest(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "snapshot.json").write_bytes(CONTENT)
    (run_dir / "empty").touch()
    async with served(run_dir) as server:
        copy = tmp_path / "copy"
        assert await fetch_blob(server.path, "snapshot.json", copy) == SHA256
        assert copy.read_bytes() == CONTENT
        await fetch_blob(server.path, "empty", copy)
        assert copy.read_bytes() == b""


async def test_a_file_that_changes_during_the_transfer_is_not_published(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_dir / "log").write_bytes(CONTENT)
    request = blobs.request

    async def change_and_ask(socket_path: Path, op: str, asked: Any) -> Any:
        if op == "read_blob":
            await run_blocking((run_dir / "log").write_bytes, CONTENT[::-1])
        return await request(socket_path, op, asked)

    monkeypatch.setattr(blobs, "request", change_and_ask)
    async with served(run_dir) as server:
        with pytest.raises(ControlError, match="log changed during the transfer"):
            await fetch_blob(server.path, "log", tmp_path / "copy")
    assert not [path for path in tmp_path.iterdir() if "copy" in path.name]


async def test_a_file_is_sent_whole_and_named_by_its_digest(run_dir: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    async with served(run_dir) as server:
        copy = await send_blob(server.path, source)
        assert copy == run_dir / ".clawblox" / "blobs" / SHA256
        assert copy.read_bytes() == CONTENT
        assert copy.stat().st_mode & 0o777 == 0o600
        assert await send_blob(server.path, source) == copy


async def test_a_transfer_that_broke_off_continues(run_dir: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    half = len(CONTENT) // 2
    for sent, offset in ((CONTENT[:half], 0), (b"again", 3), (b"too early", half + 1)):
        answer = await run_blocking(write_piece, run_dir, piece(sent, offset=offset))
        assert answer == {"received_bytes": half, "path": None}
    async with served(run_dir) as server:
        assert (await send_blob(server.path, source)).read_bytes() == CONTENT


async def test_two_clients_may_send_the_same_file(run_dir: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    async with served(run_dir) as server, anyio.create_task_group() as clients:
        for _ in range(2):
            clients.start_soon(send_blob, server.path, source)
    assert [path.name for path in (run_dir / ".clawblox" / "blobs").iterdir()] == [SHA256]


def test_a_wrong_digest_leaves_nothing(run_dir: Path) -> None:
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


def test_a_wrong_member_is_named(run_dir: Path) -> None:
    wrong: list[tuple[str, Any]] = [
        ("sha256", "../../x"),
        ("sha256", "A" * 64),
        ("size_bytes", -1),
        ("size_bytes", True),
        ("size_bytes", blobs.MAX_BLOB_BYTES + 1),
        ("offset", "0"),
        ("offset", 1.0),
        ("data", "not base64"),
        ("data", 5),
    ]
    for name, value in wrong:
        with pytest.raises(UsageError, match=rf"^{name}: must be"):
            write_piece(run_dir, {**piece(b""), name: value})
    assert not (run_dir / ".clawblox" / "blobs").exists()
