"""Other users cannot reach the socket and are not trusted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from clawblox.errors import ControlError
from clawblox.rundir import control_client as control
from clawblox.rundir.control_client import request
from tests.rundir.control.conftest import events_of, serving

pytestmark = pytest.mark.anyio

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")

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
async def test_root_is_answered_but_another_users_socket_is_not_trusted(
    tmp_path: Path, monkeypatch
) -> None:
    """Root serves; the user nobody trusts root and itself, but not a third user."""
    async with serving(tmp_path) as server:
        monkeypatch.setattr(control.os, "geteuid", lambda: NOBODY)
        assert await request(server.path, "echo", {}) == {"asked": {}}
        monkeypatch.setattr(control, "read_peer", lambda _: control.Peer(1, 1000, 1000))
        with pytest.raises(ControlError, match="served by another user, 1000"):
            await request(server.path, "echo", {})
