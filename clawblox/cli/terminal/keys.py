"""Bytes that a terminal sends as keys. Pure."""

from __future__ import annotations

import codecs
import re
from typing import Final

_ESCAPE: Final = "\x1b"
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)(?P<final>[@-~])")
"""A control sequence of ECMA-48, or the shorter one of the application mode."""
_BEGINNING: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_MAX_SEQUENCE: Final = 32
_ARROWS: Final = {"A": "up", "B": "down"}
_NAMES: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace"}


class KeyDecoder:
    """Turns bytes into keys.

    A key is a printable character, or ``up``, ``down``, ``enter``, ``backspace`` or ``escape``.
    Other keys, and bytes that are no UTF-8, are left out.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """True if the last bytes may begin a sequence, or are the Escape key."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that are complete with further bytes."""
        text, keys = self._rest + self._decoder.decode(data), list[str]()
        while text:
            if (sequence := _SEQUENCE.match(text)) is not None:
                keys += filter(None, [_ARROWS.get(sequence["final"])])
                text = text[sequence.end() :]
            elif _BEGINNING.fullmatch(text):
                text = text if len(text) < _MAX_SEQUENCE else text[:2]
                break
            elif text[0] != _ESCAPE:
                key = _NAMES.get(text[0], text[0])
                keys += [key] if key.isprintable() else []
                text = text[1:]
            else:  # the Escape key, and another key at once
                keys.append("escape")
                text = text[1:]
        self._rest = text
        return keys

    def flush(self) -> list[str]:
        """Return the keys that were waiting, as nothing has followed them."""
        rest, self._rest = self._rest, ""
        return ["escape"] if rest == _ESCAPE else []
