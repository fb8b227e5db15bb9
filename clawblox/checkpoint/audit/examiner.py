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
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from clawblox.checkpoint.archive.layout import Entry
from clawblox.checkpoint.archive.reader import Member, stream_member
from clawblox.checkpoint.secrets import Scanner
from clawblox.errors import CheckpointError
from clawblox.system.helper import HelperProcess, detach_from_parent, import_paths

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
        open_bytes: Size of each member that it was given and has not answered for, by place.
    """

    def __init__(self, known: Mapping[str, str]) -> None:
        self.open_bytes: dict[int, int] = {}
        self._rest = b""
        self._helper = HelperProcess(
            EXAMINER_NAME,
            "clawblox.checkpoint.audit.examiner:main",
            paths=import_paths("clawblox", "attrs", "re2", "zstandard"),
        )
        try:
            self._send(dict(known))
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The process."""
        return self._helper.pid

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there are answers."""
        return self._helper.channel.fileno()

    def open(self, archive: int) -> None:
        """Hand over the archive.

        Args:
            archive: The archive, open for reading.

        Raises:
            ExaminerLost: The process ended.
        """
        with _noticing_loss():
            socket.send_fds(self._helper.channel, [b"\n"], [archive])

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
            data = self._helper.channel.recv(_RECEIVE_BYTES)
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
        self._helper.end()

    def _send(self, message: object) -> None:
        with _noticing_loss():
            self._helper.channel.sendall(json.dumps(message).encode() + b"\n")


@contextlib.contextmanager
def _noticing_loss() -> Iterator[None]:
    try:
        yield
    except OSError as error:  # it ended, or nothing can be sent to it
        raise ExaminerLost from error


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
