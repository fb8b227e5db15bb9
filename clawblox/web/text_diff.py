"""The lines in which two texts differ, within bounds; the texts may be a stranger's. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import Match, SequenceMatcher
from itertools import islice
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.web.files import decode

_MAX_COMPARED_LINES: Final = 5000
_COMPARED_S: Final = 0.5
_MAX_DIFF_LINES: Final = 1000
_MAX_LINE: Final = 2000
_CONTEXT: Final = 3

_Group: TypeAlias = list[tuple[str, int, int, int, int]]
"""Operations of difflib that are close to each other."""


@attrs.frozen
class DiffLine:
    """A line of a difference.

    Attributes:
        sign: ``-`` for a line of the first text only, ``+`` of the second only, a space for a line
            of both, and ``@`` before lines that do not follow the line above.
        text: The line; at most 2,000 bytes of it.
        before: Its number in the first text, from 1; None if it is not there.
        after: Its number in the second text; None if it is not there.
    """

    sign: Literal["-", "+", " ", "@"]
    text: str = ""
    before: int | None = None
    after: int | None = None


@attrs.frozen(kw_only=True)
class TextDiff:
    """The lines in which two texts differ.

    Attributes:
        lines: The lines, with three lines around each difference.
        is_cut: Whether there are more.
        reason: Why lines were not compared; empty if they were.
    """

    lines: tuple[DiffLine, ...] = ()
    is_cut: bool = False
    reason: str = ""


class _TooLong(Exception):  # noqa: N818 - names the condition
    """The comparison takes too long."""


class _Matcher(SequenceMatcher[bytes]):
    """Compares lines until a moment; hostile texts take quadratic time."""

    def __init__(self, before: list[bytes], after: list[bytes]) -> None:
        self._end_at = monotonic() + _COMPARED_S
        super().__init__(None, before, after)

    def find_longest_match(self, *limits: Any) -> Match:
        if monotonic() > self._end_at:
            raise _TooLong
        return super().find_longest_match(*limits)


def diff_texts(before: bytes, after: bytes) -> TextDiff:
    """Return the lines in which two texts differ, as in a unified diff.

    A newline at the end of a text counts as an empty last line.

    Args:
        before: The first text.
        after: The second text.
    """
    ours, theirs = before.split(b"\n"), after.split(b"\n")
    head = _count_equal(ours, theirs)
    tail = _count_equal(ours[head:][::-1], theirs[head:][::-1])
    skipped = max(head - _CONTEXT, 0)
    ends = (len(lines) - max(tail - _CONTEXT, 0) for lines in (ours, theirs))
    first, second = (x[skipped:end] for x, end in zip((ours, theirs), ends, strict=True))
    if max(len(first), len(second)) > _MAX_COMPARED_LINES:
        return TextDiff(reason=f"More than {_MAX_COMPARED_LINES} lines would have to be compared.")
    try:
        groups = list(_Matcher(first, second).get_grouped_opcodes(_CONTEXT))
    except _TooLong:
        return TextDiff(reason="The comparison of the lines takes too long.")
    lines = list(islice(_make_lines(ours, theirs, groups, skipped), _MAX_DIFF_LINES + 1))
    return TextDiff(lines=tuple(lines[:_MAX_DIFF_LINES]), is_cut=len(lines) > _MAX_DIFF_LINES)


def _count_equal(ours: list[bytes], theirs: list[bytes]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((at for at, pair in pairs if pair[0] != pair[1]), min(len(ours), len(theirs)))


def _make_lines(
    ours: list[bytes], theirs: list[bytes], groups: Iterable[_Group], skipped: int
) -> Iterator[DiffLine]:
    for group in groups:
        yield DiffLine("@", before=skipped + group[0][1] + 1, after=skipped + group[0][3] + 1)
        for tag, *limits in group:
            first, last, start, end = (skipped + limit for limit in limits)
            if tag == "equal":
                for at in range(last - first):
                    text = _show(ours[first + at])
                    yield DiffLine(" ", text, first + at + 1, start + at + 1)
                continue
            for at in range(first, last):
                yield DiffLine("-", _show(ours[at]), before=at + 1)
            for at in range(start, end):
                yield DiffLine("+", _show(theirs[at]), after=at + 1)


def _show(line: bytes) -> str:
    return decode(line[:_MAX_LINE])
