"""The protocol and client with which other processes find an orchestrator and send it requests.

For each run directory in which an orchestrator has instances, its ``control_server`` listens at
``<run dir>/.clawblox/control/<name>.sock``. The orchestrator of an agent listens in the agent's
directory in the same way. A connection carries one request: a JSON object on a line,
``{"op": "save", …}``. The answer is any number of event lines, ``{"event": "saved", …}``, and then
one line with ``ok``: ``{"ok": true, …}`` or
``{"ok": false, "error": {"type", "subject", "message", "details", "hint"}}``. A client withdraws
its request by closing the connection or its half.

AF_UNIX addresses have at most 107 bytes and paths of run directories are long, so sockets are
addressed by ``/proc/self/fd/<their directory>/<name>.sock``. Formats: unix(7).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ControlError, OrchestratorSuspendedError
from clawblox.rundir.paths import STATE_DIR_NAME
from clawblox.system.locks import lock_file, retry, unlock_file
from clawblox.system.process_tree import is_suspended
from clawblox.system.record_file import encode_record
from clawblox.system.regular_files import closing_fd

MAX_REQUEST_BYTES = 64 << 10
_MAX_ANSWER_BYTES = 16 << 20
_CHUNK_BYTES = 64 << 10
_BACKLOG_POLL_S = 0.02
_LOOK_INTERVAL_S = 1.0
_CREDENTIALS = struct.Struct("=iII")

_decoder = msgspec.json.Decoder(dict[str, Any])


# -- the client ---------------------------------------------------------------------------------


def find_sockets(run_dir: Path) -> list[Path]:
    """Return the control sockets of a run directory that are served, by name. Blocks.

    Sockets of dead orchestrators are removed if possible.

    Args:
        run_dir: The run directory, or an agent's directory; there are no sockets without
            runs in it.
    """
    directory = control_dir(run_dir)
    served, dead = _sort_out(directory)
    if dead:
        with contextlib.suppress(OSError), locked_dir(directory, patience_s=0):
            remove_dead_sockets(directory)
    return served


async def request(
    socket_path: Path,
    op: str,
    arguments: Mapping[str, Any],
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Send a request to an orchestrator and return the answer.

    The call waits until the operation is done, without a time limit.

    Args:
        socket_path: A socket that :func:`find_sockets` returned.
        op: The operation.
        arguments: Arguments of the operation, as plain values.
        on_event: Called with each event as it arrives; None ignores events.

    Returns:
        The members of the answer.

    Raises:
        ControlError: The socket is not served, or the orchestrator answered with an error or ended
            before it answered; OrchestratorSuspendedError if it is suspended and cannot answer.

    Cancellation: the orchestrator cancels the request and the operation.
    """
    with open_socket() as connection:
        owner = await _connect(connection, socket_path)
        lines = Lines(connection)
        # The server may reply before it has read everything.
        with contextlib.suppress(ConnectionError):
            await lines.write(encode_message({**arguments, "op": op}))
        while "ok" not in (message := await _read_message(lines, socket_path, owner)):
            if on_event is not None:
                on_event(message)
    if message.pop("ok"):
        return message
    error = message.get("error") or {}
    raise ControlError(
        error.get("message") or "the orchestrator refused",
        subject=error.get("subject"),
        path=socket_path,
        error_type=error.get("type"),
        error_details=error.get("details") or (),
        hint=error.get("hint"),
    )


async def _connect(connection: socket.socket, path: Path) -> Peer:
    try:
        while True:
            if await run_blocking(_try_connect, connection, path):
                break
            await anyio.sleep(_BACKLOG_POLL_S)
    except OSError as error:
        raise ControlError(
            f"no orchestrator can be reached: {error.strerror}",
            path=path,
            hint="clawblox ps shows what runs in a run directory",
        ) from error
    owner = read_peer(connection)
    # Root may connect to any owner; other users must not trust a stranger's answers.
    if os.geteuid() not in (0, owner.uid) and owner.uid != 0:
        raise ControlError(f"the control socket is served by another user, {owner.uid}", path=path)
    return owner


async def _read_message(lines: Lines, path: Path, owner: Peer) -> dict[str, Any]:
    line = None
    while line is None:
        with anyio.move_on_after(_LOOK_INTERVAL_S):
            line = await lines.read(_MAX_ANSWER_BYTES)
        if line is None and await run_blocking(is_suspended, owner.pid):
            raise suspended_error("the orchestrator", owner.pid, path)
    if not line.endswith(b"\n"):
        fault = "answered too much" if len(line) > _MAX_ANSWER_BYTES else "went away"
        raise ControlError(f"the orchestrator {fault} before it had answered", path=path)
    try:
        return _decoder.decode(line)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
        raise ControlError(
            f"the orchestrator's answer is not readable: {error}", path=path
        ) from error


def suspended_error(subject: str, pid: int, path: Path) -> OrchestratorSuspendedError:
    """Return the error for an orchestrator that is suspended, for example by Ctrl-Z."""
    return OrchestratorSuspendedError(
        f"{subject}, pid {pid}, is suspended and cannot answer",
        path=path,
        hint=f"to continue it: kill -CONT {pid}, or fg in the shell that started it",
    )


# -- shared by client and server ----------------------------------------------------------------


class Peer(NamedTuple):
    """The process at the other end of a connection, at the time it connected or listened."""

    pid: int
    uid: int
    gid: int


class Lines:
    """Lines over a connected, non-blocking socket.

    Args:
        connection: The socket, which its owner closes.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = anyio.Lock()
        self._received = bytearray()
        self._unsent = bytearray()

    @property
    def is_peer_gone(self) -> bool:
        """True if the peer has closed its half, and all its data was read."""
        if self._received:
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    async def read(self, limit: int) -> bytes:
        """Return the next line with its newline.

        Args:
            limit: Maximum length of the line, in bytes.

        Returns:
            The line; without a newline if the stream ended or the limit was exceeded.

        Cancellation: the received bytes are kept for the next read.
        """
        looked_at = 0
        while (end := self._received.find(b"\n", looked_at)) < 0 and len(self._received) <= limit:
            looked_at = len(self._received)
            chunk = await self.read_some()
            if not chunk:
                break
            self._received += chunk
        size = end + 1 or len(self._received)
        line = bytes(self._received[:size])
        del self._received[:size]
        return line

    async def read_some(self) -> bytes:
        """Return the next bytes; empty at the end of the stream or if the peer is gone."""
        await anyio.wait_readable(self._socket)
        try:
            return self._socket.recv(_CHUNK_BYTES)
        except ConnectionError:
            return b""

    async def write(self, line: bytes) -> None:
        """Write a whole line; waits for a slow reader.

        Raises:
            OSError: The peer is gone.

        Cancellation: the line is not sent, or the rest is sent before the next line.
        """
        async with self._lock:
            await self._flush()  # first, so that cancelled lines do not accumulate
            self._unsent += line
            await self._flush()

    async def _flush(self) -> None:
        while self._unsent:
            await anyio.wait_writable(self._socket)
            sent = self._socket.send(self._unsent, socket.MSG_NOSIGNAL)
            del self._unsent[:sent]


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Encode a message as a line, replacing text that JSON cannot represent.

    Args:
        message: Plain values, paths, attrs classes and dates.

    Raises:
        TypeError: The message contains another type.
    """
    return encode_record(message, _encode_path)


def _encode_path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a plain value")


def read_peer(connection: socket.socket) -> Peer:
    """Return the process at the other end of a connection, as the kernel reports it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(credentials))


def control_dir(run_dir: Path) -> Path:
    """Return the directory of a run's control sockets."""
    return run_dir / STATE_DIR_NAME / "control"


def open_socket() -> socket.socket:
    """Return a new non-blocking socket of the protocol's type."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Provide a path to the same file that is short enough for a socket address. Blocks.

    Raises:
        OSError: The directory cannot be opened, or is a link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing_fd(os.open(path.parent, flags)) as fd:
        yield f"/proc/self/fd/{fd}/{path.name}"


@contextlib.contextmanager
def locked_dir(directory: Path, *, patience_s: float) -> Iterator[None]:
    """Keep other processes from adding or removing sockets. Blocks.

    A socket that is bound but not listening yet looks dead, and the name of a dead socket may be
    reused. So every process that binds or removes a socket takes this lock, for microseconds.

    Args:
        directory: The directory of the sockets.
        patience_s: Seconds to wait for the lock.

    Raises:
        OSError: The lock could not be acquired in time.
    """
    path = directory / "lock"
    fd = retry(partial(lock_file, path), patience_s)
    if fd is None:
        raise TimeoutError(f"another process holds {path}")
    try:
        yield
    finally:
        unlock_file(path, fd)


def remove_dead_sockets(directory: Path) -> None:
    """Remove the sockets that are not served; the caller holds the lock. Blocks.

    Entries that cannot be removed, such as a directory, stay.
    """
    _, dead = _sort_out(directory)
    for path in dead:
        with contextlib.suppress(OSError):
            path.unlink()


def _sort_out(directory: Path) -> tuple[list[Path], list[Path]]:
    """Return the served and the dead sockets, leaving out unreachable ones."""
    served, dead = [], []
    for path in sorted(directory.glob("[!.]*.sock")):
        with open_socket() as probe, contextlib.suppress(OSError):
            try:
                _try_connect(probe, path)
                served.append(path)
            except ConnectionRefusedError:
                dead.append(path)
    return served, dead


def _try_connect(connection: socket.socket, path: Path) -> bool:
    """Connect and return True, or return False if the queue of the listener is full."""
    with short_path(path) as address:
        try:
            connection.connect(address)
        except BlockingIOError:
            return False
    return True
