"""The control socket of an orchestrator: passes requests of other processes to handlers.

This module owns the socket file, the connections and their limits. The protocol is defined in
``control_client``; handlers define the requests and their effects. A socket file that was removed
or replaced is created again.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from clawblox.concurrency.deadlines import running_deadline
from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import Lookout, run_blocking
from clawblox.errors import ClawbloxError, UsageError
from clawblox.rundir.control_client import (
    MAX_REQUEST_BYTES,
    Lines,
    Peer,
    control_dir,
    encode_message,
    locked_dir,
    open_socket,
    read_peer,
    remove_dead_sockets,
    short_path,
)
from clawblox.system.files import make_private_dir
from clawblox.system.regular_files import PRIVATE_DIR, PRIVATE_FILE
from clawblox.system.sockets import Place, close_in_forked_child, serve_connections
from clawblox.telemetry.own_log import OwnLog
from clawblox.telemetry.throttle import Throttle

_REQUEST_TIMEOUT_S = 5.0
_READER_PATIENCE_S = 30.0
_CLOSE_GRACE_S = 1.0
_LOCK_PATIENCE_S = 5.0
_LOOK_INTERVAL_S = 1.0
_BACKLOG = 1024
_MAX_UNASKED = 64
"""Maximum number of connections that have not sent a request; further connections wait."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_log = OwnLog(__name__)

_decoder = msgspec.json.Decoder(dict[str, Any])


@per_loop
def _current_lookout() -> Lookout:
    """Return the lookout that finds lost sockets of all servers."""
    return Lookout(_LOOK_INTERVAL_S)


class SendEvent(Protocol):
    """Sends an event to the client of a request."""

    async def __call__(self, event: str, /, **fields: Any) -> None:
        """Send an event line, waiting for a slow client.

        Args:
            event: Name of the event.
            **fields: Plain values of the event; ``ok`` is not allowed.

        Raises:
            TypeError: A value is not plain.

        Cancellation: the client receives the whole event or no part.
        """


Handler: TypeAlias = Callable[[Mapping[str, Any], SendEvent], Awaitable[Mapping[str, Any]]]
"""Performs a request: takes its members, and returns those of the answer.

The handler is cancelled if the client disconnects or does not read for 30 s, and when the server
ends; the handler defines the effect of a cancellation. Every exception is sent to the client.
"""


class Operation(msgspec.Struct, frozen=True):
    """An operation that clients can request.

    Attributes:
        handle: Performs the operation.
        takes: Names of the members that a request may have.
        needs: Names of the members that a request must have.
    """

    handle: Handler
    takes: Collection[str] = ()
    needs: Collection[str] = ()

    def check_members(self, op: str, asked: Mapping[str, Any]) -> None:
        """Refuse a request with an unknown member, which may have been meant to limit the request.

        Args:
            op: The name of the operation.
            asked: The members of the request.

        Raises:
            UsageError: A member is unknown or missing; the error names it.
        """
        for key in asked:
            if key not in self.needs and key not in self.takes:
                takes = ", ".join([*self.needs, *self.takes]) or "nothing"
                raise UsageError(f"{op} takes no {key!r}; it takes: {takes}")
        for key in self.needs:
            if key not in asked:
                raise UsageError(f"{op} needs {key!r}")


class ControlServer:
    """Serves one control socket of a run directory.

    :meth:`open` it, start :meth:`run` as a task, and :meth:`aclose` it. Only processes of the same
    user, or of root, are answered.

    Args:
        run_dir: The run directory, or the directory of an agent.
        name: Name of the socket, unique among the orchestrators of the directory.
        operations: The operations that clients can request, by ``op``.

    Attributes:
        path: The socket file.
    """

    def __init__(self, run_dir: Path, name: str, operations: Mapping[str, Operation]) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a control socket")
        self.path = control_dir(run_dir) / f"{name}.sock"
        self._operations = dict(operations)
        self._run_dir = run_dir
        self._listeners: list[_Listener] = []
        self._accepting: anyio.CancelScope | None = None
        self._unasked = anyio.Semaphore(_MAX_UNASKED)
        self._failures = Throttle()
        self._is_started = False
        self._is_over = anyio.Event()

    async def open(self) -> None:
        """Open the socket for clients, and remove dead sockets in its directory.

        Raises:
            OSError: The socket cannot be created, or another orchestrator serves one of this name.

        Cancellation: the socket is removed.
        """
        await self._listen()
        self._accepting = anyio.CancelScope()

    async def _listen(self) -> None:
        listener = _Listener(self.path)
        try:
            await run_blocking(listener.bind)
        except BaseException:
            await _close(listener)
            raise
        self._listeners.append(listener)

    async def run(self) -> None:
        """Serve until the server is closed. Start this once as a task, after :meth:`open`.

        Cancellation: cancels the handlers and removes the socket.
        """
        assert self._accepting is not None, "the server is not open"
        self._is_started = True
        try:
            async with anyio.create_task_group() as connections:
                with self._accepting as accepting:
                    if not accepting.cancel_called:
                        await self._keep_listening(connections)
                await self._close()
                connections.cancel_scope.deadline = anyio.current_time() + _CLOSE_GRACE_S
        finally:
            await self._close()
            self._is_over.set()

    async def _keep_listening(self, connections: anyio.abc.TaskGroup) -> None:
        """Accept connections, and create the socket file again whenever it is missing."""
        async with anyio.create_task_group() as accepting:
            accepting.start_soon(self._accept_all, self._listeners[-1], connections)
            while True:
                await _current_lookout().wait(self._is_lost)
                if await self._listen_again():
                    accepting.start_soon(self._accept_all, self._listeners[-1], connections)

    def _is_lost(self) -> bool:
        """Return whether the socket is missing although its run directory exists."""
        return not self._listeners[-1].has_file and self._run_dir.is_dir()

    async def _listen_again(self) -> bool:
        # In a moved directory, the socket still reaches the old server.
        for spent in self._listeners[:-1]:
            spent.accepting.cancel()
        del self._listeners[:-1]
        try:
            await self._listen()
        except OSError as error:
            if times := self._failures.count():
                why = str(error)
                _log.warning("control socket lost", path=str(self.path), error=why, times=times)
            return False
        _log.warning("control socket lost and made again", path=str(self.path))
        return True

    async def _close(self) -> None:
        for listener in self._listeners:
            await _close(listener)

    async def aclose(self) -> None:
        """Remove the socket, give the handlers a second to answer, and cancel the rest.

        A later call waits for the same end.

        Cancellation: the server still ends.
        """
        if self._accepting is None:
            return
        self._accepting.cancel()
        if self._is_started:
            await self._is_over.wait()
        else:
            await self._close()

    async def _accept_all(self, listener: _Listener, connections: anyio.abc.TaskGroup) -> None:
        with listener.accepting:
            await serve_connections(
                listener.socket,
                self._serve,
                tasks=connections,
                places=self._unasked,
                on_failure=self._note_failure,
            )
        await _close(listener)

    def _note_failure(self, error: OSError) -> None:
        if times := self._failures.count():
            _log.warning("control connection not accepted", error=str(error), times=times)

    async def _serve(self, connection: socket.socket, place: Place) -> None:
        peer = read_peer(connection)
        if peer.uid not in (0, os.geteuid()):
            _log.warning("control connection refused", pid=peer.pid, uid=peer.uid)
            return
        try:
            await self._converse(Lines(connection), peer, place)
        except OSError as error:
            _log.debug("control client gone", pid=peer.pid, error=str(error))
        except Exception as error:  # noqa: BLE001 - one connection must not end the server
            _log.defect("control connection failed", error, pid=peer.pid)

    async def _converse(self, lines: Lines, peer: Peer, place: Place) -> None:
        try:
            with place:
                asked = await self._read_request(lines)
        except UsageError as error:
            _log.warning("control request refused", pid=peer.pid, reason=error.headline)
            answer: bytes | None = _failure(error)
        else:
            # Some clients only check that the server is alive, and others have given up.
            if asked is None or lines.is_peer_gone:
                return
            answer = await self._handle(asked, lines)
        if answer is not None:
            with anyio.fail_after(_READER_PATIENCE_S):
                await lines.write(answer)

    async def _read_request(self, lines: Lines) -> dict[str, Any] | None:
        """Return a request for a known operation; None if the client sent no request."""
        line = b""
        async with running_deadline(_REQUEST_TIMEOUT_S) as waiting:
            line = await lines.read(MAX_REQUEST_BYTES)
        if waiting.cancelled_caught:
            raise UsageError(f"no request came within {_REQUEST_TIMEOUT_S:g} s")
        if not line:
            return None
        asked = _parse_request(line)
        op = asked.get("op")
        if not isinstance(op, str) or op not in self._operations:
            known = ", ".join(self._operations) or "none"
            raise UsageError(f"unknown op {str(op)[:100]!r}; there are: {known}")
        return asked

    async def _handle(self, asked: dict[str, Any], lines: Lines) -> bytes | None:
        """Return the answer of the handler; None if the client is gone."""
        op = asked.pop("op")
        answer = None

        async def send_event(event: str, /, **fields: Any) -> None:
            assert "ok" not in fields, "that member is the mark of the last line"
            line = encode_message({**fields, "event": event})
            try:
                with anyio.fail_after(_READER_PATIENCE_S):
                    await lines.write(line)
            except OSError:  # such as a TimeoutError: the client has stopped reading
                call.cancel_scope.cancel()
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as call:
            call.start_soon(_cancel_at_end, lines, call.cancel_scope)
            answer = await self._answer(op, asked, send_event)
            call.cancel_scope.cancel()
        return answer

    async def _answer(self, op: str, asked: Mapping[str, Any], send_event: SendEvent) -> bytes:
        operation = self._operations[op]
        try:
            operation.check_members(op, asked)
            return encode_message({**await operation.handle(asked, send_event), "ok": True})
        except ClawbloxError as error:
            return _failure(error)
        except Exception as error:  # noqa: BLE001 - it belongs to the client, and into the log
            _log.defect("control handler failed", error)
            return _failure(ClawbloxError(str(error)), type(error))


async def _cancel_at_end(lines: Lines, call: anyio.CancelScope) -> None:
    while await lines.read_some():
        pass
    call.cancel()


def _failure(error: ClawbloxError, kind: type[Exception] | None = None) -> bytes:
    fields = {
        "type": (kind or type(error)).__name__,
        "subject": error.subject,
        "message": error.message,
        "details": [*error.details()],
        "hint": error.hint,
    }
    return encode_message({"ok": False, "error": fields})


def _parse_request(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_REQUEST_BYTES:
        raise UsageError(f"a request has at most {MAX_REQUEST_BYTES} bytes")
    if not line.endswith(b"\n"):
        raise UsageError("the request ended before its line did")
    try:
        return _decoder.decode(line)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
        raise UsageError(f"a request is a JSON object on one line: {error}") from error


class _Listener:
    """The listening socket and its file.

    Attributes:
        socket: The socket.
        accepting: Cancelled when another listener replaces this one.
    """

    def __init__(self, path: Path) -> None:
        self.socket = open_socket()
        self.accepting = anyio.CancelScope()
        self._path = path
        self._file: os.stat_result | None = None
        # A cancelled caller does not wait for the binding thread; closing does.
        self._lock = threading.Lock()

    def bind(self) -> None:
        """Create a private socket file, and listen. Blocks."""
        directory = make_private_dir(self._path.parent)
        with self._lock, short_path(self._path) as address:
            directory.chmod(PRIVATE_DIR)
            with locked_dir(directory, patience_s=_LOCK_PATIENCE_S):
                remove_dead_sockets(directory)
                self.socket.bind(address)
                self._file = self._path.lstat()
                self._path.chmod(PRIVATE_FILE)
                self.socket.listen(_BACKLOG)
        close_in_forked_child(self.socket)

    @property
    def has_file(self) -> bool:
        """True if the file of the socket still exists. Blocks."""
        try:
            return self._file is not None and os.path.samestat(self._path.lstat(), self._file)
        except OSError:
            return False

    def close(self) -> None:
        """Remove the file if it is still this socket's, and close. Idempotent. Blocks."""
        with self._lock, self.socket:
            # While the socket listens, other orchestrators cannot take its name.
            if self.has_file:
                self._path.unlink(missing_ok=True)
            self._file = None


async def _close(listener: _Listener) -> None:
    with anyio.CancelScope(shield=True):
        with _log.contain("control socket not removed", expected=(OSError,)):
            await run_blocking(listener.close)


Operations: TypeAlias = Mapping[str, Operation]
"""The operations that other processes can request, by ``op``."""

_serial = itertools.count()


class ControlSockets:
    """Opens one control socket for each run directory.

    Args:
        tasks: Task group that serves the sockets.
        make_operations: Returns the operations on the instances of a run directory.
    """

    def __init__(self, tasks: Tasks, make_operations: Callable[[Path], Operations]) -> None:
        self._tasks = tasks
        self._make_operations = make_operations
        self._name = f"{os.getpid()}-{next(_serial)}"
        self._servers: dict[Path, ControlServer | None] = {}
        self._lock = anyio.Lock()

    async def open(self, run_dir: Path) -> str:
        """Open the socket of a run directory unless it is already open.

        Returns:
            Name of the socket; '' after a failure, which is only logged.

        Cancellation: a socket that is being opened is closed.
        """
        async with self._lock:
            if run_dir not in self._servers:
                self._servers[run_dir] = await self._serve(run_dir)
        return "" if self._servers[run_dir] is None else self._name

    async def _serve(self, run_dir: Path) -> ControlServer | None:
        server = ControlServer(run_dir, self._name, self._make_operations(run_dir))
        try:
            await server.open()
        except OSError as error:
            _log.warning("no control socket", run_dir=str(run_dir), error=str(error))
            return None
        self._tasks.start_soon(server.run)
        return server

    async def aclose(self) -> None:
        """Close the sockets. Call this shielded from cancellation."""
        for server in filter(None, self._servers.values()):
            await server.aclose()
