"""Reading all of an archive: it is what it says it is, and no secret is in it.

Owns the one pass that does both, over exactly the bytes that are in the file. What this process
has searched before is verified and not searched again. Where much is left, processes of our own
do it (``examiner``), and what they do not answer for is examined here.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from clawblox.checkpoint.archive.reader import Member, packed_sha256, read_member
from clawblox.checkpoint.audit.examiner import EXAMINER_NAME, Examiner, ExaminerLost
from clawblox.checkpoint.progress import Progress
from clawblox.checkpoint.secrets import Scanner
from clawblox.results import Finding
from clawblox.system.helper import count_helpers

_EXAMINERS: Final = 2
_MUCH_BYTES: Final = 48 << 20
"""From this size on, examiners are faster: one boots in a quarter of a second."""

_BATCH_BYTES: Final = 2 << 20
_BATCH_MEMBERS: Final = 64
_POLL_MS: Final = 100
"""How long, in milliseconds, nothing may come before the progress hook is called all the same."""


class Examination:
    """Examines archives; a context manager, which ends the processes that help.

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
        """Announce a member that will be examined; examiners may boot in the meantime.

        Args:
            sha256: Digest of its content; None if not known.
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
        members: Sequence[Member],
        copied: Mapping[str, bytes] | None = None,
    ) -> list[Finding]:
        """Read members to their ends, which verifies them, and search them for secrets. Blocks.

        Args:
            fd: The archive, open for reading; it need not be complete.
            path: What to call it in messages.
            members: The members.
            copied: Digest of the packed content of members that were verified in another archive,
                by name. Those are sound when their bytes here are the same.

        Raises:
            CheckpointFormatError: A member is not what the archive says.
            CheckpointError: The archive cannot be read.
        """
        clean = self._recall(members)
        unknown = {place: each for place, each in enumerate(members) if place not in clean}
        answered = self._ask(fd, unknown)
        found: list[Finding] = []
        for place, member in enumerate(members):
            name, size = member.entry.name, member.entry.size
            if place in answered:
                found += self._scanner.accept(name, size, answered[place])
            elif place in clean:
                self._verify(fd, path, member, (copied or {}).get(name))
                found += self._scanner.accept(name, size, clean[place])
            else:
                content = self._progress.counted(read_member(fd, path, member))
                found += self._scanner.scan(name, content, sha256=member.sha256)
        return found

    def _recall(self, members: Iterable[Member]) -> dict[int, int]:
        """Return the number of containers in members that are known to be clean, by place."""
        recalled = (
            (place, None if member.sha256 is None else self._scanner.recall(member.sha256))
            for place, member in enumerate(members)
        )
        return {place: containers for place, containers in recalled if containers is not None}

    def _verify(self, fd: int, path: Path, member: Member, packed: bytes | None) -> None:
        if packed is not None and packed == packed_sha256(fd, path, member):
            self._progress.advance(member.entry.size)
            return
        for _ in self._progress.counted(read_member(fd, path, member)):
            pass  # its digest is checked when its last piece was read

    # -- examiners -----------------------------------------------------------------------

    def _begin(self) -> None:
        with contextlib.suppress(OSError, ExaminerLost):  # without them it takes longer
            # Saves that run at once share the cores; a single core is left to the search here.
            while len(self._examiners) < _EXAMINERS <= _cores() > count_helpers(EXAMINER_NAME):
                self._examiners.append(Examiner(self._scanner.known))

    def _end(self) -> None:
        while self._examiners:
            self._examiners.pop().end()

    def _ask(self, archive: int, members: Mapping[int, Member]) -> dict[int, int]:
        """Return the number of containers in members that examiners found clean, by place."""
        batches = deque(_batches(members))
        clean: dict[int, int] = {}
        for examiner in tuple(self._examiners):
            with self._dropped_when_lost(examiner):
                examiner.open(archive)
                self._assign(examiner, batches)
                self._assign(examiner, batches)
        while busy := {known.fileno(): known for known in self._examiners if known.open_bytes}:
            for fd in _readable(busy):
                with self._dropped_when_lost(busy[fd]):
                    self._take(busy[fd], batches, members, clean)
            self._progress.advance(0)
        self._end()
        return clean

    def _take(
        self,
        examiner: Examiner,
        batches: deque[dict[int, Member]],
        members: Mapping[int, Member],
        clean: dict[int, int],
    ) -> None:
        searched, answers = examiner.receive()
        self._progress.advance(searched)
        for answer in answers:
            if answer.containers is not None:
                clean[answer.place] = answer.containers
                sha256 = members[answer.place].sha256
                if sha256 is not None:
                    self._scanner.remember(sha256, answer.containers)
        # A batch is waiting there all the time, so that it never waits for the next one.
        if len(examiner.open_bytes) <= _BATCH_MEMBERS and (
            sum(examiner.open_bytes.values()) <= _BATCH_BYTES
        ):
            self._assign(examiner, batches)

    def _assign(self, examiner: Examiner, batches: deque[dict[int, Member]]) -> None:
        if batches:
            examiner.assign(batches.popleft())

    @contextlib.contextmanager
    def _dropped_when_lost(self, examiner: Examiner) -> Iterator[None]:
        try:
            yield
        except ExaminerLost:
            self._examiners.remove(examiner)
            examiner.end()


def _batches(members: Mapping[int, Member]) -> Iterator[dict[int, Member]]:
    batch: dict[int, Member] = {}
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
    """Return which descriptors can be read; wait a little until one can."""
    poll = select.poll()
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(_POLL_MS)]


def _cores() -> int:
    return len(os.sched_getaffinity(0))
