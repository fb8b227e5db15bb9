"""What is remembered of contents, and of windows of contents, in which nothing was found.

In memory, for the life of the process, bounded. Nothing is on disk, because what is scanned
belongs to an agent that could write there. Keys are digests under a random key of this process.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from typing import Final, Generic, TypeVar

import attrs

__all__ = [
    "PROCESS_KEY",
    "Verdict",
    "Verdicts",
    "content_verdicts",
    "verdict_key",
    "verdicts",
]

_T = TypeVar("_T")

PROCESS_KEY: Final = secrets.token_bytes(32)


@attrs.frozen
class Verdict:
    """What a clean window holds.

    Attributes:
        newlines: How many lines end in it.
        containers: How many containers were decoded in it.
        long_run: Where base64 begins that does not end in it; None when there is none.
        beginnings: Where something compressed begins in it.
    """

    newlines: int
    containers: int
    long_run: int | None
    beginnings: tuple[int, ...] = ()


class Verdicts(Generic[_T]):
    """The most recent verdicts by their keys; safe to use from several threads.

    Args:
        capacity: The number of verdicts to remember.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._verdicts: dict[bytes, _T] = {}
        self._lock = threading.Lock()

    def recall(self, key: bytes) -> _T | None:
        """Return the verdict with a key; None when there is none."""
        with self._lock:
            verdict = self._verdicts.pop(key, None)
            if verdict is not None:
                self._verdicts[key] = verdict  # it is the most recent one now
            return verdict

    def remember(self, key: bytes, verdict: _T) -> None:
        """Keep a verdict, and forget the oldest one when there are too many."""
        with self._lock:
            self._verdicts[key] = verdict
            if len(self._verdicts) > self._capacity:
                del self._verdicts[next(iter(self._verdicts))]


def verdict_key(window: bytes, *circumstances: bytes | int) -> bytes:
    """Return the key of a window, or of the digest of a whole content.

    Args:
        window: What was searched.
        *circumstances: Everything else that decides about the verdict.
    """
    state = hashlib.blake2b(repr(circumstances).encode(), key=PROCESS_KEY, digest_size=24)
    state.update(window)
    return state.digest()


verdicts: Final = Verdicts[Verdict](capacity=1 << 17)
"""Those on windows: at 128 KiB a window, enough for 16 GiB in about 30 MB."""

content_verdicts: Final = Verdicts[int](capacity=1 << 16)
"""Those on whole contents, by the keys of their digests: how many containers were decoded."""
