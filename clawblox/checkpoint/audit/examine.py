"""Verifies an entire archive and searches it for secrets, in a single pass over the file.

Content that this process has already searched is verified but not searched again.

A search for secrets holds the interpreter lock nearly all the time, so threads do not make it
faster. Large searches are done by helper processes, the examiners. An examiner gets the open
archive over a Unix socket, followed by batches of members. It verifies and searches each member,
and answers with the members that are sound and clean and their numbers of containers; the caller
examines all other members. An examiner ends when its socket closes, so it never outlives its
orchestrator. Each message is a JSON value. Known secrets are passed only through the socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import attrs

from clawblox.checkpoint.archive.layout import ArchiveEntry
from clawblox.checkpoint.archive.reader import (
    ArchiveMember,
    packed_sha256,
    read_member,
    stream_member,
)
from clawblox.checkpoint.progress import Progress
from clawblox.checkpoint.secrets import Scanner
from clawblox.errors import CheckpointError
from clawblox.results import Finding
from clawblox.system.helper import (
    MESSAGE_BYTES,
    HelperLost,
    HelperProcess,
    count_helpers,
    import_paths,
    serve_parent,
)

EXAMINER_NAME: Final = "clawblox-examiner"
"""Identifies an examiner in a process list: a word of its command line."""

_REPORT_BYTES: Final = 1 << 20
"""Bytes between two progress reports; large, so that sending never blocks."""


class ExaminerAnswer(NamedTuple):
    """An examiner's answer about a member, or a progress report.

    Attributes:
        place: Index of the member; None for a progress report.
        containers: Number of containers in the member; None if the member is not sound and clean.
        size: Number of bytes searched since the last report.
    """

    place: int | None
    containers: int | None
    size: int


class Examiner(HelperProcess):
    """Client of an examiner process; the constructor does not wait for the process to boot.

    Args:
        known: Secrets that are known by value.

    Raises:
        OSError: The process cannot be spawned.
        HelperLost: The process ended immediately.

    Attributes:
        open_bytes: Size of each assigned member without an answer, by index.
    """

    def __init__(self, known: Mapping[str, str]) -> None:
        self.open_bytes: dict[int, int] = {}
        super().__init__(
            EXAMINER_NAME,
            "clawblox.checkpoint.audit.examine:main",
            paths=import_paths("clawblox", "attrs", "msgspec", "re2", "zstandard"),
        )
        try:
            for secret in (*known.items(), None):
                self.send(_encode(secret))
        except BaseException:
            self.end()
            raise

    def open(self, archive: int) -> None:
        """Hand over the archive.

        Args:
            archive: The archive, open for reading.

        Raises:
            HelperLost: The process ended.
        """
        self.send(b"\n", archive)

    def assign(self, members: Mapping[int, ArchiveMember]) -> None:
        """Assign members to examine, by index.

        Raises:
            HelperLost: The process ended.
        """
        self.open_bytes.update({place: member.entry.size for place, member in members.items()})
        batch = [
            # Messages stay small without the names.
            (place, attrs.astuple(attrs.evolve(member.entry, name="", member="")), *member[1:])
            for place, member in members.items()
        ]
        self.send(_encode(batch))

    def receive_answer(self) -> ExaminerAnswer:
        """Return the next answer. Blocks until it arrives.

        Raises:
            HelperLost: The process ended.
        """
        answer = ExaminerAnswer(*json.loads(self.receive()))
        if answer.place is not None:
            del self.open_bytes[answer.place]
        return answer


def _encode(message: object) -> bytes:
    return json.dumps(message).encode()


def _receive(channel: socket.socket) -> Any:  # noqa: ANN401 - any JSON value
    data = channel.recv(MESSAGE_BYTES)
    if not data:
        raise EOFError
    return json.loads(data)


def main(client: str) -> None:
    """Run the examiner program: examine until the channel or the client's process ends."""
    with (
        serve_parent(client) as channel,
        contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError),
    ):
        known = dict(iter(lambda: _receive(channel), None))
        scanner = Scanner(known, remembers_windows=False)
        scanner.scan("", (b"\0",))  # compile the rules while members are being packed
        _, archives, _, _ = socket.recv_fds(channel, 1, 1)
        while archives:
            for place, entry, start, sha256 in _receive(channel):
                member = ArchiveMember(ArchiveEntry(*entry), start, sha256)
                _examine(channel, archives[0], scanner, place, member)


def _examine(
    channel: socket.socket, archive: int, scanner: Scanner, place: int, member: ArchiveMember
) -> None:
    unreported = 0

    def chunks() -> Iterator[bytes]:
        nonlocal unreported
        for chunk in stream_member(archive, member):
            yield chunk
            unreported += len(chunk)
            if unreported >= _REPORT_BYTES:
                channel.send(_encode(ExaminerAnswer(None, None, unreported)))
                unreported = 0

    before = scanner.containers
    try:
        is_clean = not scanner.scan("", chunks())
    except ConnectionError:
        raise
    except (CheckpointError, OSError, MemoryError):
        is_clean = False
    containers = scanner.containers - before if is_clean else None
    channel.send(_encode(ExaminerAnswer(place, containers, unreported)))


_EXAMINERS: Final = 2
_MUCH_BYTES: Final = 48 << 20
"""Minimum size for examiners, which take a quarter of a second to boot."""

_BATCH_BYTES: Final = 2 << 20
_BATCH_MEMBERS: Final = 64
_POLL_MS: Final = 100
"""Maximum milliseconds between calls of the progress hook while examiners are silent."""


class Examination:
    """Examines archives; a context manager that ends the examiners.

    Args:
        scanner: Searches for secrets.
        progress: Counts the bytes that are read.
    """

    def __init__(self, scanner: Scanner, progress: Progress) -> None:
        self._scanner = scanner
        self._progress = progress
        self._expected_bytes = 0
        self._has_begun = False
        self._examiners: list[Examiner] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def expect(self, sha256: str | None, size: int) -> None:
        """Announce a member that will be examined, so that examiners can boot early.

        Args:
            sha256: Digest of its content; None if unknown.
            size: Size of its content, in bytes.
        """
        if sha256 is None or self._scanner.recall(sha256) is None:
            self._expected_bytes += size
        if self._expected_bytes >= _MUCH_BYTES and not self._has_begun:
            self._has_begun = True
            self._begin()

    def run(
        self,
        fd: int,
        path: Path,
        members: Sequence[ArchiveMember],
        copied: Mapping[str, bytes] | None = None,
    ) -> list[Finding]:
        """Verify members and search them for secrets. Blocks.

        Args:
            fd: The archive, open for reading; it need not be complete.
            path: Its path, for messages.
            members: The members.
            copied: Digest of the packed content of members that were verified in another archive,
                by name. Such a member is sound if its packed content in this archive has the same
                digest.

        Raises:
            CheckpointFormatError: A member is damaged.
            CheckpointError: The archive cannot be read.
        """
        clean = self._recall(members)
        unknown = {place: member for place, member in enumerate(members) if place not in clean}
        answered = self._ask(fd, unknown)
        findings: list[Finding] = []
        for place, member in enumerate(members):
            name, size = member.entry.name, member.entry.size
            if place in answered:
                findings += self._scanner.accept(name, size, answered[place])
            elif place in clean:
                self._verify(fd, path, member, (copied or {}).get(name))
                findings += self._scanner.accept(name, size, clean[place])
            else:
                content = self._progress.counted(read_member(fd, path, member))
                findings += self._scanner.scan(name, content, sha256=member.sha256)
        return findings

    def _recall(self, members: Iterable[ArchiveMember]) -> dict[int, int]:
        """Return the number of containers in members known to be clean, by index."""
        recalled = (
            (place, None if member.sha256 is None else self._scanner.recall(member.sha256))
            for place, member in enumerate(members)
        )
        return {place: containers for place, containers in recalled if containers is not None}

    def _verify(self, fd: int, path: Path, member: ArchiveMember, packed: bytes | None) -> None:
        if packed is not None and packed == packed_sha256(fd, path, member):
            self._progress.advance(member.entry.size)
            return
        for _ in self._progress.counted(read_member(fd, path, member)):
            pass  # the reader checks the digest after the last piece

    # -- examiners -----------------------------------------------------------------------

    def _begin(self) -> None:
        with contextlib.suppress(OSError, HelperLost):  # without them, the search takes longer
            # Concurrent saves share the cores; with a single core, this process does the search.
            while len(self._examiners) < _EXAMINERS <= _cores() > count_helpers(EXAMINER_NAME):
                self._examiners.append(Examiner(self._scanner.known))

    def _end(self) -> None:
        while self._examiners:
            self._examiners.pop().end()

    def _ask(self, archive: int, members: Mapping[int, ArchiveMember]) -> dict[int, int]:
        """Return the number of containers in members that examiners found clean, by index."""
        batches = deque(_batches(members))
        clean: dict[int, int] = {}
        for examiner in tuple(self._examiners):
            with self._dropped_when_lost(examiner):
                examiner.open(archive)
                self._assign(examiner, batches)
                self._assign(examiner, batches)
        while busy := {
            helper.channel.fileno(): helper for helper in self._examiners if helper.open_bytes
        }:
            for fd in _readable(busy):
                with self._dropped_when_lost(busy[fd]):
                    self._take(busy[fd], batches, members, clean)
            self._progress.advance(0)
        self._end()
        return clean

    def _take(
        self,
        examiner: Examiner,
        batches: deque[dict[int, ArchiveMember]],
        members: Mapping[int, ArchiveMember],
        clean: dict[int, int],
    ) -> None:
        answer = examiner.receive_answer()
        self._progress.advance(answer.size)
        if answer.place is not None and answer.containers is not None:
            clean[answer.place] = answer.containers
            sha256 = members[answer.place].sha256
            if sha256 is not None:
                self._scanner.remember(sha256, answer.containers)
        # Keep a batch queued so that the examiner never waits.
        if len(examiner.open_bytes) <= _BATCH_MEMBERS and (
            sum(examiner.open_bytes.values()) <= _BATCH_BYTES
        ):
            self._assign(examiner, batches)

    def _assign(self, examiner: Examiner, batches: deque[dict[int, ArchiveMember]]) -> None:
        if batches:
            examiner.assign(batches.popleft())

    @contextlib.contextmanager
    def _dropped_when_lost(self, examiner: Examiner) -> Iterator[None]:
        try:
            yield
        except HelperLost:
            self._examiners.remove(examiner)
            examiner.end()


def _batches(members: Mapping[int, ArchiveMember]) -> Iterator[dict[int, ArchiveMember]]:
    batch: dict[int, ArchiveMember] = {}
    size = 0
    for place, member in members.items():
        batch[place] = member
        size += member.entry.size
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_MEMBERS:
            yield batch
            batch, size = {}, 0
    if batch:
        yield batch


def _readable(descriptors: Iterable[int]) -> list[int]:
    """Wait briefly for a readable descriptor; return all readable descriptors."""
    poll = select.poll()
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(_POLL_MS)]


def _cores() -> int:
    return len(os.sched_getaffinity(0))
