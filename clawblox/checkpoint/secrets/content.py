"""Searches content: a file, or the content of a container.

The bytes are read once, in windows that overlap so that no edge hides a secret. Each window is
searched, and containers in it are decoded as inner content.

Clean contents and windows are remembered only in memory, in a bounded cache: an agent could write
to a cache on disk. Keys are digests with a random key of this process.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from typing import Final

import attrs

from clawblox.checkpoint.recent import RecentValues
from clawblox.checkpoint.secrets.containers.beginnings import beginnings, opener_at
from clawblox.checkpoint.secrets.containers.decoder import (
    Decoder,
    OuterContent,
    Sink,
    UnsearchableContainer,
)
from clawblox.checkpoint.secrets.findings import FileFindings, make_finding
from clawblox.checkpoint.secrets.matching import (
    MAX_DEPTH,
    UNFINISHED,
    Base64Runs,
    find_matches,
    read_base64,
)
from clawblox.checkpoint.secrets.patterns.base64_runs import (
    continue_run,
    decode_base64,
    join_lines,
    skip_run,
)
from clawblox.checkpoint.secrets.patterns.shapes import SecretMatch
from clawblox.results import Finding

STRIDE: Final = 128 << 10
"""Number of new bytes in a window, which reports the secrets that start in them."""

OVERLAP: Final = 12 << 10
"""Number of bytes after the new bytes: the length of the longest secret, including in UTF-16."""

LEAD: Final = 64
"""Number of bytes before the new bytes, for context that must precede a secret."""

MAX_DECODED_BYTES: Final = 8 << 30
"""Maximum number of bytes decoded from the containers of a file."""

UNSCANNABLE: Final = "unscannable"
"""Rule of the findings for containers that cannot be searched."""
PROCESS_KEY: Final = secrets.token_bytes(32)


@attrs.frozen
class WindowVerdict:
    """The result of searching a clean window.

    Attributes:
        newlines: Number of newlines.
        containers: Number of containers decoded in it.
        long_run: Start of a base64 run that continues after the window; None if there is no such
            run.
        beginnings: Positions at which containers start.
    """

    newlines: int
    containers: int
    long_run: int | None
    beginnings: tuple[int, ...] = ()


def verdict_key(content: bytes, *circumstances: bytes | int) -> bytes:
    """Return the key of a window, or of the digest of whole content.

    Args:
        content: The searched content.
        *circumstances: All other values that affect the verdict.
    """
    state = hashlib.blake2b(repr(circumstances).encode(), key=PROCESS_KEY, digest_size=24)
    state.update(content)
    return state.digest()


verdicts: Final = RecentValues[WindowVerdict](capacity=1 << 17)
"""Verdicts on windows of 128 KiB: 16 GiB of content in about 30 MB."""

content_verdicts: Final = RecentValues[int](capacity=1 << 16)
"""Verdicts on whole contents: the number of containers decoded in each."""


class ScannedContent:
    """A file, or the content of a container, which arrives in pieces of any size.

    Args:
        path: Its path in findings.
        findings: Collects the findings.
        depth: Number of containers around it.
    """

    def __init__(self, path: str, findings: FileFindings, depth: int = 0) -> None:
        self._path = path
        self._findings = findings
        self._depth = depth
        self._parts = Parts(self)
        self._is_opened = False
        self._refused: str | None = None
        self._data = bytearray()
        self._lead = 0
        self._base = 0
        self._line = 1
        self._is_binary = False
        self._run: _LongRun | None = None

    @property
    def decoded_bytes(self) -> int:
        """Number of bytes decoded from the whole file so far."""
        return self._findings.decoded_bytes

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._depth:
            self._findings.decoded_bytes += len(data)
        for at in range(0, len(data), STRIDE):
            self._data += data[at : at + STRIDE]
            while len(self._data) >= self._lead + STRIDE + OVERLAP:
                self._search(self._lead + STRIDE, is_last=False)

    def close(self) -> None:
        """Search the rest, and report the parts that could not be searched."""
        self._search(len(self._data), is_last=True)
        self._parts.close()
        if self._refused:
            self._findings.add(
                Finding(
                    path=self._path,
                    rule=UNSCANNABLE,
                    fingerprint=self._parts.fingerprint,
                    preview=self._refused,
                )
            )

    def spawn(self, name: str) -> ScannedContent:
        """Return inner content that a decoder fills.

        Raises:
            Refusal: Too many containers are nested.
        """
        if self._depth >= MAX_DEPTH:
            raise UnsearchableContainer(f"more than {MAX_DEPTH} containers are nested")
        if not self._is_opened:
            self._is_opened = True
            self._findings.containers += 1
        return self._child(name)

    def refuse(self, reason: str) -> None:
        """Record that a part cannot be searched; the first reason is reported."""
        self._refused = self._refused or reason

    def _child(self, name: str) -> ScannedContent:
        return ScannedContent(f"{self._path}!{name}", self._findings, self._depth + 1)

    def _search(self, end: int, *, is_last: bool) -> None:
        text = bytes(self._data[: end + OVERLAP])
        self._is_binary = self._is_binary or b"\0" in text
        offset = self._base + self._lead
        runs_from = self._continue_long_run(text, is_last)
        window = _Window(text, self._lead, runs_from, end, not offset, is_last)
        verdict = self._judge(window)
        self._parts.take(text, self._lead, end, offset, verdict.beginnings)
        if verdict.long_run is not None:
            self._run = _LongRun(self._child("base64"), self._base + verdict.long_run)
            self._continue_long_run(text, is_last)
        self._line += verdict.newlines
        kept_from = max(0, end - LEAD)
        self._base += kept_from
        self._lead = end - kept_from
        del self._data[:kept_from]

    def _judge(self, window: _Window) -> WindowVerdict:
        circumstances = self._findings.circumstances
        if circumstances is None:
            return self._search_window(window)
        key = window.key(circumstances, self._depth)
        verdict = verdicts.recall(key)
        if verdict is not None:
            self._findings.containers += verdict.containers
            return verdict
        findings_before = len(self._findings)
        verdict = self._search_window(window)
        if len(self._findings) == findings_before:
            verdicts.remember(key, verdict)
        return verdict

    def _search_window(self, window: _Window) -> WindowVerdict:
        containers = self._findings.containers
        long_run = self._inspect(window)
        newlines = window.text.count(b"\n", window.begin, window.end)
        starts = beginnings(
            window.text,
            window.begin,
            window.end,
            is_start=window.is_start,
            is_deepest=self._depth >= MAX_DEPTH,
        )
        return WindowVerdict(newlines, self._findings.containers - containers, long_run, starts)

    def _inspect(self, window: _Window) -> int | None:
        known = self._findings.known
        runs = Base64Runs([], [], None)
        if self._depth < MAX_DEPTH:
            runs = read_base64(window.text, window.runs_from, window.end, window.is_last, known)
        for match in (*find_matches(window.text, known), *runs.matches):
            if window.begin <= match.start < window.end:
                self._findings.add(self._finding(match, window))
        for decoded in runs.containers:
            content = self._child("base64")
            content.feed(decoded)
            content.close()
        return runs.long_run

    def _finding(self, match: SecretMatch, window: _Window) -> Finding:
        lines_before = window.text.count(b"\n", window.begin, match.start)
        line = None if self._is_binary else self._line + lines_before
        return make_finding(match, self._path, line, self._base + match.start)

    def _continue_long_run(self, text: bytes, is_last: bool) -> int:
        """Decode the long run that continues here; return the start of the next search."""
        if not self._run:
            return skip_run(text, self._lead)
        start = self._run.at - self._base
        end = continue_run(text, start)
        self._run.feed(text[start:end])
        if is_last or end <= len(text) - UNFINISHED:
            self._run.close()
            self._run = None
        return end


@attrs.frozen
class _Window:
    text: bytes = attrs.field(repr=False)
    begin: int
    runs_from: int
    end: int
    is_start: bool
    is_last: bool

    def key(self, circumstances: bytes, depth: int) -> bytes:
        numbers = (self.begin, self.runs_from, self.end, self.is_start, self.is_last, depth)
        return verdict_key(self.text, circumstances, *numbers)


class _LongRun:
    """A base64 run that continues after its window.

    Args:
        content: Receives the decoded bytes.
        at: Position in the outer content at which the run continues.
    """

    def __init__(self, content: Sink, at: int) -> None:
        self.at = at
        self._content = content
        self._undecoded = b""

    def feed(self, piece: bytes) -> None:
        self.at += len(piece)
        characters = self._undecoded + join_lines(piece)
        whole = len(characters) // 4 * 4
        self._undecoded = characters[whole:]
        self._content.feed(decode_base64(characters[:whole]))

    def close(self) -> None:
        self._content.feed(decode_base64(self._undecoded))
        self._content.close()


class Parts:
    """Decodes the containers inside other content, and reports those that cannot be searched.

    Args:
        outer: The content.
    """

    def __init__(self, outer: OuterContent) -> None:
        self._outer = outer
        self._part: Decoder | None = None
        self._digest: hashlib._Hash | None = None

    @property
    def fingerprint(self) -> str:
        """Return a digest of the content from the start of its first part."""
        return self._digest.hexdigest()[:16] if self._digest else ""

    def take(self, text: bytes, begin: int, end: int, offset: int, starts: Iterable[int]) -> None:
        """Take the next window.

        Args:
            text: The window and the bytes around it.
            begin: Start of the new bytes in ``text``.
            end: End of the new bytes.
            offset: Position of ``begin`` in the content.
            starts: Positions in ``text`` at which parts start, in order.
        """
        if self._digest:
            self._digest.update(text[begin:end])
        at = self._feed(self._part, text, begin, end) if self._part else begin
        for start in starts:
            if not self._part and start >= at:
                if not self._digest:
                    self._digest = hashlib.sha256(text[start:end])
                at = self._open(text, start, end, offset + start - begin)

    def close(self) -> None:
        """Close the open part."""
        if self._part:
            self._part.close()

    def _open(self, text: bytes, start: int, end: int, offset: int) -> int:
        """Open a part; return the end of its decoded bytes."""
        opener = opener_at(text, start, is_start=not offset)
        try:
            part = opener(self._outer, f" at {offset}" if offset else "") if opener else None
        except UnsearchableContainer as refusal:
            self._outer.refuse(str(refusal))
            return start
        return self._feed(part, text, start, end) if part else start

    def _feed(self, part: Decoder, text: bytes, start: int, end: int) -> int:
        self._part = part
        try:
            if self._outer.decoded_bytes > MAX_DECODED_BYTES:
                raise UnsearchableContainer("decodes to too many bytes")
            rest = part.feed(text[start:end])
        except UnsearchableContainer as refusal:
            self._outer.refuse(str(refusal))
            rest = b""
        if rest is None:
            return end
        part.close()
        self._part = None
        return max(start, end - len(rest))
