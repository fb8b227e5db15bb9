"""The examiner: a small process that examines members of an archive; its program and its client.

A search for secrets holds the interpreter nearly all the time, so threads do not make it faster.
An examiner gets the open archive over a Unix socket, then members, in batches. It reads each as a
reader would, which verifies it, and searches it. It answers which ones are sound and clean, and
how many containers it found in them; about all others it says nothing more: the
caller examines those itself. It ends when its socket does, so it never outlives its orchestrator.

Both sides write lines of JSON. Known secrets go through the socket and nowhere else.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal  # noqa: TID251 - ends an examiner that is not needed any more
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from clawblox.checkpoint.archive.layout import Entry
from clawblox.checkpoint.archive.reader import Member, stream_member
from clawblox.checkpoint.secrets import Scanner
from clawblox.errors import CheckpointError
from clawblox.system.helper import detach_from_parent, spawn_helper

EXAMINER_NAME: Final = "clawblox-examiner"
"""Stands in an examiner's command line, for those who read a process list."""

_RECEIVE_BYTES: Final = 64 << 10
_TOLD_BYTES: Final = 1 << 20
"""How often an examiner says how far it is: few messages, so that none of them ever blocks it."""


class ExaminerLost(Exception):  # noqa: N818 - says the condition; the caller examines by itself
    """An examiner ended before it had answered."""


class Answer(NamedTuple):
    """What an examiner says of a member.

    Attributes:
        place: Which member it is.
        containers: How many containers are in it; None if it is not both sound and clean.
        size: Bytes that were searched since the examiner last said how many.
    """

    place: int
    containers: int | None
    size: int


class Examiner:
    """Client of one examiner process, which boots while its client goes on.

    Args:
        known: Secrets that are known by value.

    Raises:
        OSError: The process cannot be spawned.
        ExaminerLost: It ended at once.

    Attributes:
        pid: The process.
        open_bytes: Size of each member that it was given and has not answered for, by place.
    """

    def __init__(self, known: Mapping[str, str]) -> None:
        self.open_bytes: dict[int, int] = {}
        self._rest = b""
        self._channel, far_end = socket.socketpair()
        _channels[id(self._channel)] = self._channel
        with far_end:
            try:
                self.pid = spawn_helper(
                    EXAMINER_NAME,
                    "clawblox.checkpoint.audit.examiner:main",
                    channel=far_end.fileno(),
                    paths=_import_paths(),
                )
            except OSError:
                self._close()
                raise
        try:
            self._send(dict(known))
        except BaseException:
            self.end()
            raise

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there are answers."""
        return self._channel.fileno()

    def open(self, archive: int) -> None:
        """Hand over the archive.

        Args:
            archive: The archive, open for reading.

        Raises:
            ExaminerLost: The process ended.
        """
        with _noticing_loss():
            socket.send_fds(self._channel, [b"\n"], [archive])

    def assign(self, members: Mapping[int, Member]) -> None:
        """Give it members to examine, by their places.

        Raises:
            ExaminerLost: The process ended.
        """
        self.open_bytes.update({place: member.entry.size for place, member in members.items()})
        self._send([_request(place, member) for place, member in members.items()])

    def receive(self) -> tuple[int, list[Answer]]:
        """Return how many more bytes were searched, and answers. Blocks until something comes.

        Raises:
            ExaminerLost: The process ended.
        """
        with _noticing_loss():
            data = self._channel.recv(_RECEIVE_BYTES)
        if not data:
            raise ExaminerLost
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        answers = [Answer(*message) for message in messages if isinstance(message, list)]
        for answer in answers:
            del self.open_bytes[answer.place]
        counts = (message for message in messages if isinstance(message, int))
        return sum(counts) + sum(answer.size for answer in answers), answers

    def end(self) -> None:
        """End the process and reap it. Blocks for an instant."""
        self._close()
        # It may have been reaped by something that waits for every child of this process.
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG) is None:
                os.kill(self.pid, signal.SIGKILL)
                os.waitid(os.P_PID, self.pid, os.WEXITED)

    def _close(self) -> None:
        _channels.pop(id(self._channel), None)
        self._channel.close()

    def _send(self, message: object) -> None:
        with _noticing_loss():
            self._channel.sendall(json.dumps(message).encode() + b"\n")


def count_examiners() -> int:
    """Return how many examiners this process has now."""
    return len(_channels)


_channels: Final[dict[int, socket.socket]] = {}


def _close_inherited() -> None:
    # A forked child that keeps a channel open would keep an examiner alive after our end.
    for channel in _channels.values():
        channel.close()
    _channels.clear()


os.register_at_fork(after_in_child=_close_inherited)


@contextlib.contextmanager
def _noticing_loss() -> Iterator[None]:
    try:
        yield
    except OSError as error:  # it ended, or nothing can be sent to it
        raise ExaminerLost from error


def _import_paths() -> list[str]:
    """Return the directories of all packages that the program imports."""
    packages = ("clawblox", "attrs", "re2", "zstandard")
    specs = filter(None, map(importlib.util.find_spec, packages))
    return list(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in specs if spec.origin))


def _request(place: int, member: Member) -> list[object]:
    nameless = attrs.evolve(member.entry, name="")  # messages stay small
    return [place, attrs.astuple(nameless), member.start, member.sha256]


# The program


def main() -> None:
    """Run the examiner program: examine until the channel ends."""
    detach_from_parent()
    with (
        socket.socket(fileno=0) as channel,
        contextlib.suppress(BrokenPipeError, ConnectionResetError, StopIteration),
    ):
        files: list[int] = []
        lines = _lines(channel, files)
        scanner = Scanner(json.loads(next(lines)), remembers_windows=False)
        scanner.scan("", (b"\0",))  # what is made when it is first used is made now
        for line in lines:
            for place, entry, start, sha256 in json.loads(line):
                member = Member(Entry(*entry), start, sha256)
                _examine(channel, files[0], scanner, place, member)


def _lines(channel: socket.socket, files: list[int]) -> Iterator[bytes]:
    """Yield the lines that come; descriptors that come with them go to ``files``."""
    parts: list[bytes] = []
    while True:
        data, received, _, _ = socket.recv_fds(channel, _RECEIVE_BYTES, 1)
        if not data:
            return
        files.extend(received)
        *lines, rest = data.split(b"\n")
        for line in lines:
            if whole := b"".join([*parts, line]):
                yield whole
            parts = []
        parts.append(rest)


def _examine(
    channel: socket.socket, archive: int, scanner: Scanner, place: int, member: Member
) -> None:
    untold = 0

    def chunks() -> Iterator[bytes]:
        nonlocal untold
        for chunk in stream_member(archive, member):
            yield chunk
            untold += len(chunk)
            if untold >= _TOLD_BYTES:
                _answer(channel, untold)
                untold = 0

    before = scanner.containers
    try:
        is_clean = not scanner.scan("", chunks())
    except ConnectionError:
        raise
    except (CheckpointError, OSError, MemoryError):
        is_clean = False
    _answer(channel, Answer(place, scanner.containers - before if is_clean else None, untold))


def _answer(channel: socket.socket, message: int | Answer) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")
