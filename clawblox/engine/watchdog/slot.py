"""The memory that a world and its watchdog share: the call, its place, the request to stop.

Standard library only.
"""

from __future__ import annotations

import mmap
import os

_SIZE = mmap.PAGESIZE
_CALL, _ASKED, _CAUSE, _LENGTH = range(4)
_TEXT = 64
_MOST_TEXT = 512


def open_slot_file() -> int:
    """Return the descriptor of an empty slot; the caller closes it.

    Raises:
        OSError: The process has no descriptor left.
    """
    descriptor = os.memfd_create("clawblox-watchdog")
    os.ftruncate(descriptor, _SIZE)
    return descriptor


class Slot:
    """The slot, mapped into this process.

    Args:
        descriptor: Its file; may be closed afterwards.
    """

    def __init__(self, descriptor: int) -> None:
        self._bytes = mmap.mmap(descriptor, _SIZE)
        self._words = memoryview(self._bytes)[:_TEXT].cast("Q")

    @property
    def call(self) -> int:
        """Number of the present call of the world: odd during a call, even between calls."""
        return self._words[_CALL]

    @call.setter
    def call(self, number: int) -> None:
        self._words[_CALL] = number

    @property
    def asked(self) -> tuple[int, int]:
        """The call that is asked to stop, and the number of the cause."""
        return self._words[_ASKED], self._words[_CAUSE]

    @asked.setter
    def asked(self, asked: tuple[int, int]) -> None:
        self._words[_ASKED], self._words[_CAUSE] = asked

    @property
    def place(self) -> str:
        """The last known place in a script, ``name:line``; empty if none is known."""
        length = min(self._words[_LENGTH], _MOST_TEXT)
        text = self._bytes[_TEXT : _TEXT + length].decode(errors="replace")
        return "".join(letter if letter.isprintable() else "?" for letter in text)

    @place.setter
    def place(self, place: str) -> None:
        data = place.encode(errors="replace")[:_MOST_TEXT]
        self._bytes[_TEXT : _TEXT + len(data)] = data
        self._words[_LENGTH] = len(data)

    def close(self) -> None:
        """Unmap it."""
        self._words.release()
        self._bytes.close()
