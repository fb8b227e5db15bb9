"""Base64 in a text: where it stands and what it says. Pure."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from typing import Final

from clawblox.checkpoint.secrets.shapes import ALNUM, character_mask, runs_of

__all__ = ["Base64Stream", "base64_runs", "continue_run", "decode_base64", "skip_run"]

_MIN_RUN: Final = 40
_CHARACTERS: Final = ALNUM + b"+/-_"
_CHARACTERS_FROM: Final = re.compile(rb"[A-Za-z0-9+/_-]*")
_MASK: Final = character_mask(_CHARACTERS)
_LINE: Final = re.compile(
    rb"(?:(?:\\+r)?\\+n|\r?\n)[ \t]{0,16}(?=[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2,3}=)[A-Za-z0-9+/]+"
    rb"|[A-Za-z0-9+/_-]+"
)
_ESCAPED_NEWLINE: Final = re.compile(rb"\\+[rn]")
_BLANKS: Final = b" \t\r\n"
_MIN_WRAPPED: Final = 60
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")


def base64_runs(text: bytes, begin: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of everything that can be base64, a wrapped text as one.

    Args:
        text: What is searched.
        begin: Where the search begins.
    """
    done = begin
    for start, end in runs_of(_MASK, _MIN_RUN, text, begin):
        if start < done:
            continue
        # The letter of an escaped newline or tab would shift everything by one.
        is_escaped = start > 0 and text[start - 1] == ord("\\") and text[start] in b"nrtbf"
        start += is_escaped
        if text[start:end].translate(None, _HEX_DIGITS):
            done = _end_of_run(text, start, end)
            yield start, done


def _end_of_run(text: bytes, start: int, end: int) -> int:
    """Return where a run ends that has no gap up to ``end``: later lines are part of it.

    Args:
        text: Where it stands.
        start: Where its first line begins.
        end: Up to where it is known.
    """
    if (end - start) % 4 or end - start < _MIN_WRAPPED:
        return end
    return continue_run(text, end)


def continue_run(text: bytes, at: int) -> int:
    """Return where a run ends that goes on at ``at``, all its lines together."""
    while line := _LINE.match(text, at):
        at = line.end()
    return at


def skip_run(text: bytes, at: int) -> int:
    """Return where the run ends that began before ``at``; ``at`` where there is none."""
    if at and text[at - 1] in _CHARACTERS:
        rest = _CHARACTERS_FROM.match(text, at)
        return rest.end() if rest else at
    return at


def decode_base64(run: bytes) -> bytes:
    """Return what a run says, in either alphabet, padded or not."""
    characters = _joined(run).translate(_TO_STANDARD)
    whole = len(characters) // 4 * 4
    rest = characters[whole:]
    padded = characters[:whole] + (rest + b"=" * (4 - len(rest)) if len(rest) > 1 else b"")
    return binascii.a2b_base64(padded)


def _joined(lines: bytes) -> bytes:
    if b"\\" in lines:
        lines = _ESCAPED_NEWLINE.sub(b"", lines)
    return lines.translate(None, _BLANKS)


class Base64Stream:
    """Decodes a run that comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def decode(self, piece: bytes) -> bytes:
        """Return what has become decodable with the next piece of the run."""
        characters = self._rest + _joined(piece)
        whole = len(characters) // 4 * 4
        self._rest = characters[whole:]
        return decode_base64(characters[:whole])

    def finish(self) -> bytes:
        """Return what the last, incomplete group of characters says."""
        return decode_base64(self._rest)
