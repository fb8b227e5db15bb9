"""Finds bodies of requests in shell lines, as documentation shows them. Pure.

Only quotes are interpreted; commands are not run and variables are not replaced. Every pattern
takes linear time.
"""

from __future__ import annotations

import re
from typing import Final

_BODY_OPTION: Final = re.compile(
    r"(?<!\S)(?:-[a-zA-Z]{0,8}d|--data(?:-raw|-binary|-ascii)?|--json)(?:=|\s+(?:\\\n\s*)?)?"
)
_PIECE: Final = re.compile(
    r"\$'((?:[^'\\]++|\\.)*+)'"  # with C escapes
    r"|'([^']*)'"  # unchanged
    r'|"((?:[^"\\]++|\\.)*+)"?'
    r"|\\(.)"
    r"|([^\s'\"\\]++)",
    re.DOTALL,
)
_ESCAPE_OF_C: Final = re.compile(r"\\(.)", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t"}
_ESCAPE: Final = re.compile(r'\\(["\\$`\n])')


def take_curl_bodies(code: str) -> tuple[list[str], str]:
    """Return the values of ``-d``, ``--data``, ``--json`` and the like, and the code without them.

    Args:
        code: Some code; code without the word ``curl`` has no such values.
    """
    bodies: list[str] = []
    rest: list[str] = []
    end = 0
    while "curl" in code and (option := _BODY_OPTION.search(code, end)):
        rest.append(code[end : option.end()])
        word, end = _read_word(code, option.end())
        if word and not word.startswith("@"):
            bodies.append(word)
    return bodies, "".join([*rest, code[end:]])


def _read_word(code: str, start: int) -> tuple[str, int]:
    """Return the shell word that starts at a position, without quotes, and its end."""
    pieces: list[str] = []
    while piece := _PIECE.match(code, start):
        start = piece.end()
        in_c, literal, quoted, escaped, plain = piece.groups()
        if in_c is not None:
            pieces.append(_ESCAPE_OF_C.sub(_unescape_of_c, in_c))
        elif quoted is not None:
            pieces.append(_ESCAPE.sub(_unescape, quoted))
        else:
            pieces.append(literal or escaped or plain or "")
    return "".join(pieces), start


def _unescape_of_c(match: re.Match[str]) -> str:
    return _CONTROLS.get(match[1], match[1])


def _unescape(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]
