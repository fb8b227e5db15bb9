"""Finds base64 in a text and decodes it. Pure."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from typing import Final

from clawblox.checkpoint.secrets.patterns.shapes import ALNUM, character_mask, find_runs

_MIN_RUN: Final = 40
_MIN_LINE: Final = 20
_MIN_UNEVEN: Final = 32
"""Minimum length of a line before a shorter line, which may be the last."""

_CHARACTERS: Final = ALNUM + b"+/-_"
_CHARACTERS_FROM: Final = re.compile(rb"[A-Za-z0-9+/_-]*")
_MASK: Final = character_mask(_CHARACTERS)

# Lines may be quoted (in a list or sum of strings, a comment, a mail), and the whole may be
# escaped. They are separated by a line end, or by a comma or a plus between quotes.
_LINE_END: Final = rb"(?:(?:\\+r)?\\+n|\r?\n)"
_QUOTE: Final = rb"\\*[\"']"
_SEPARATOR: Final = (
    rb"(?:\\+n)?(?:"
    rb"(?:" + _QUOTE + rb"[ \t]{0,8}(?:[+.;](?=[ \t\r\n\\]))?)?,?[ \t]{0,8}\\?" + _LINE_END
    + rb"[ \t]{0,64}(?:[>#*] ?|- )?(?:" + _QUOTE + rb")?"
    rb"|" + _QUOTE + rb"[ \t]?[,+]?[ \t]?" + _QUOTE + rb")"
)  # fmt: skip
_LINE: Final = re.compile(
    _SEPARATOR + rb"(?=[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2,3}=)([A-Za-z0-9+/]+)|[A-Za-z0-9+/_-]+"
)
_LAST_CHARACTERS: Final = re.compile(_SEPARATOR + rb"[A-Za-z0-9+/]{1,3}(?![A-Za-z0-9+/=_-])")
_SEPARATORS: Final = re.compile(_SEPARATOR)
_MAY_FOLLOW: Final = frozenset((b"\r", b"\n", b"\\", b'"', b"'", b" ", b"\t", b","))
_ESCAPE_LETTERS: Final = frozenset((b"n", b"r", b"t", b"b", b"f"))
_FAR: Final = 160
"""Maximum length of a separator."""
_BLANKS: Final = b" \t\r\n"
_MIN_WRAPPED: Final = 60
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")


def base64_runs(text: bytes, begin: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of all possible base64; a wrapped text is a single run.

    Args:
        text: The text to search.
        begin: Start of the search.
    """
    done = joined = begin
    for start, end, following in _lines(text, begin):
        if start < done or not text[start:end].translate(None, _HEX_DIGITS):
            continue
        size = end - start
        is_wrapped = following <= size or (size % 4 == 0 and size >= _MIN_WRAPPED)
        is_followed = text[end : end + 1] in _MAY_FOLLOW
        last = continue_run(text, end) if is_followed and is_wrapped and start >= joined else end
        is_alone = last == end or size % 4 > 0  # each line of an odd size may be a separate text
        if is_alone and size >= _MIN_RUN:
            yield start, end
        if last > end and last - start >= _MIN_RUN:
            yield start, last
            joined = last
            done = end if is_alone else last


def _lines(text: bytes, begin: int) -> Iterator[tuple[int, int, int]]:
    """Yield start and end of each possible line of base64, and the size of the next line.

    A short line counts only if another line follows it.
    """
    line = line_end = 0
    for start, end in (*find_runs(_MASK, _MIN_LINE, text, begin), (len(text), len(text))):
        # The letter of an escaped newline or tab would shift the decoding by a character.
        if text[start - 1 : start] == b"\\" and text[start : start + 1] in _ESCAPE_LETTERS:
            start += 1
        size = line_end - line
        following = end - start if start - line_end < _FAR else 0
        if size >= _MIN_RUN or (
            (size == following > 0 or (0 < following < size >= _MIN_UNEVEN and not size % 4))
            and text[line_end : line_end + 1] in _MAY_FOLLOW
        ):
            yield line, line_end, following
        line, line_end = start, end


def continue_run(text: bytes, at: int) -> int:
    """Return the end of a run that continues at ``at``, over all its lines."""
    while line := _LINE.match(text, at):
        at = line.end()
    # These complete a line of an odd size. If they are a word, the preceding run is decoded in the
    # same way.
    last = _LAST_CHARACTERS.match(text, at)
    return last.end() if last else at


def skip_run(text: bytes, at: int) -> int:
    """Return the end of a run that starts before ``at``; without such a run, return ``at``."""
    if at and text[at - 1] in _CHARACTERS:
        rest = _CHARACTERS_FROM.match(text, at)
        return rest.end() if rest else at
    return at


def decode_base64(run: bytes) -> bytes:
    """Decode a run in either alphabet, with or without padding."""
    characters = join_lines(run).translate(_TO_STANDARD)
    whole = len(characters) // 4 * 4
    rest = characters[whole:]
    padded = characters[:whole] + (rest + b"=" * (4 - len(rest)) if len(rest) > 1 else b"")
    return binascii.a2b_base64(padded)


def join_lines(lines: bytes) -> bytes:
    """Return the characters of a run, without the separators of its lines."""
    if lines.translate(None, _CHARACTERS + _BLANKS):
        lines = _SEPARATORS.sub(b"", lines)
    return lines.translate(None, _BLANKS)
