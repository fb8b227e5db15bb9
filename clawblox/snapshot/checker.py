"""The checker, a small process that checks large documents: its program and its client.

A check holds the interpreter lock until it is done, and the pages of the mapped file count as
memory of the process. So a large document is checked in another process. A checker gets the open
file over a Unix socket, answers with a single message, and ends when the socket is closed, so it
never outlives its orchestrator. While saves are in progress, idle checkers are kept for the next
document.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable

import msgspec

from clawblox.snapshot.header import Header, InvalidDocument, read_header
from clawblox.system.helper import HelperLost, HelperProcess, import_paths, serve_parent

CHECKER_NAME = "clawblox-checker"
"""Word in the command line that identifies a checker in a process list."""

SMALL_BYTES = 4 << 20
"""Maximum size of a document that is checked in this process, in 2.5 ms; a boot takes 40 ms."""

_READY = b"ready"
_CHECK = b"check"


class CheckerLost(Exception):  # noqa: N818 - internal; the caller raises the public error
    """A checker ended before it answered.

    Args:
        had_booted: Whether it had booted before it ended.
    """

    def __init__(self, *, had_booted: bool) -> None:
        super().__init__(
            "the process that checked the document was killed, and so was its successor"
        )
        self.had_booted = had_booted


class _Answer(msgspec.Struct):
    header: Header
    complaint: str | None = None


_decoder = msgspec.json.Decoder(_Answer)


class Checker(HelperProcess):
    """Client of a checker process; the constructor does not wait until it has booted.

    Raises:
        OSError: The checker cannot be spawned.
    """

    def __init__(self) -> None:
        paths = import_paths("clawblox", "msgspec")
        super().__init__(CHECKER_NAME, "clawblox.snapshot.checker:main", paths=paths)

    def read_header(self, fd: int) -> Header:
        """Check a document in the process, as in ``header.read_header``. Blocks.

        Raises:
            InvalidDocument: The document is not JSON, or nested too deeply.
            CheckerLost: The checker ended, or was interrupted.
        """
        try:
            if not self.has_answered:
                self.receive()  # it has booted
            self.send(_CHECK, fd)
            answer = _decoder.decode(self.receive())
        except HelperLost as lost:
            raise CheckerLost(had_booted=lost.had_answered) from lost
        if answer.complaint is not None:
            raise InvalidDocument(answer.complaint)
        return answer.header


class Checkers:
    """The idle checkers of this process. Thread-safe."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the processes, which belong to the parent after a fork."""
        self._lock = threading.Lock()
        self._holders = 0
        self._idle: list[Checker] = []

    def hold(self) -> None:
        """Keep idle checkers from now on."""
        with self._lock:
            self._holders += 1

    def release(self) -> list[Checker]:
        """Undo a call of :meth:`hold`; return the checkers that the caller must end."""
        with self._lock:
            self._holders -= 1
            if self._holders:
                return []
            spent, self._idle = self._idle, []
            return spent

    def take(self) -> Checker:
        """Return an idle or a new checker.

        Raises:
            OSError: No process can be spawned.
        """
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Checker()

    def give_back(self, checker: Checker) -> None:
        """Keep a checker for the next document, or end it if no save is in progress."""
        with self._lock:
            if self._holders:
                self._idle.append(checker)
                return
        checker.end()


checkers = Checkers()
"""Shared by all event loops of this process."""

os.register_at_fork(after_in_child=checkers.reset)


class DocumentCheck:
    """Checks a document of any size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checker: Checker | None = None
        self._is_prepared = False
        self._is_interrupted = False

    def prepare(self, size_bytes: int) -> None:
        """Boot a checker while the document is still arriving, if the document may need it.

        Args:
            size_bytes: Minimum size of the document.
        """
        if size_bytes > SMALL_BYTES and not self._is_prepared:
            self._is_prepared = True
            self._use(checkers.take)

    def read_header(self, fd: int) -> Header:
        """Check the document; see :func:`clawblox.snapshot.header.read_header`. Blocks.

        If no checker can be spawned, the document is checked in this process.

        Raises:
            InvalidDocument: The document is not JSON, or nested too deeply.
            OSError: The file cannot be mapped.
            CheckerLost: The check was interrupted, or a second checker was killed like the first.
        """
        self.prepare(os.fstat(fd).st_size)
        try:
            return self._read(fd)
        except CheckerLost as lost:
            if self._is_interrupted:
                raise
            if lost.had_booted:
                self._use(Checker)
        return self._read(fd)

    def _read(self, fd: int) -> Header:
        if self._checker is None:
            return read_header(fd)
        try:
            return self._checker.read_header(fd)
        except CheckerLost:
            if (lost := self._detach()) is not None:
                lost.end()
            raise

    def interrupt(self) -> None:
        """Make :meth:`read_header` in another thread fail soon."""
        with self._lock:
            self._is_interrupted = True
            if self._checker is not None:
                self._checker.interrupt()

    def close(self) -> None:
        """Give back the checker, if any."""
        checker = self._detach()
        if checker is None:
            return
        if self._is_interrupted:
            checker.end()
        else:
            checkers.give_back(checker)

    def _use(self, get: Callable[[], Checker]) -> None:
        with contextlib.suppress(OSError):
            checker = get()
            with self._lock:
                self._checker = checker
                if self._is_interrupted:
                    checker.interrupt()

    def _detach(self) -> Checker | None:
        with self._lock:
            checker, self._checker = self._checker, None
            return checker


def main(client: str) -> None:
    """Run the checker program: answer until the channel or the client's process ends."""
    with serve_parent(client) as channel:
        channel.send(_READY)
        while True:
            message, files, _, _ = socket.recv_fds(channel, len(_CHECK), 1)
            if not message:
                return
            channel.send(msgspec.json.encode(_answer(files[0])))


def _answer(fd: int) -> _Answer:
    try:
        return _Answer(read_header(fd))
    except InvalidDocument as error:
        return _Answer(Header(), str(error))
    finally:
        os.close(fd)
