"""Remembers which windows are clean.

In memory only, bounded, for the life of the process: an agent could write to a cache on disk. Keys
are digests under a random key of this process.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from typing import Final

import attrs

__all__ = ["PROCESS_KEY", "Verdict", "Verdicts", "verdicts", "window_key"]

PROCESS_KEY: Final = secrets.token_bytes(32)


@attrs.frozen
class Verdict:
    """What a clean window contains.

    Attributes:
        newlines: Number of newlines.
        containers: Number of containers decoded in it.
        long_run: Start of a base64 run that continues after the window; None without one.
        beginnings: Positions at which containers begin.
    """

    newlines: int
    containers: int
    long_run: int | None
    beginnings: tuple[int, ...] = ()


class Verdicts:
    """The verdicts on the most recent clean windows; thread-safe.

    Args:
        capacity: Maximum number of verdicts.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._verdicts: dict[bytes, Verdict] = {}
        self._lock = threading.Lock()

    def recall(self, key: bytes) -> Verdict | None:
        """Return the verdict on a window; None if none is remembered."""
        with self._lock:
            verdict = self._verdicts.pop(key, None)
            if verdict is not None:
                self._verdicts[key] = verdict  # now the most recent one
            return verdict

    def remember(self, key: bytes, verdict: Verdict) -> None:
        """Keep a verdict; drop the oldest one if there are too many."""
        with self._lock:
            self._verdicts[key] = verdict
            if len(self._verdicts) > self._capacity:
                del self._verdicts[next(iter(self._verdicts))]


def window_key(window: bytes, *circumstances: bytes | int) -> bytes:
    """Return the key of a window and of the circumstances that its verdict depends on."""
    state = hashlib.blake2b(repr(circumstances).encode(), key=PROCESS_KEY, digest_size=24)
    state.update(window)
    return state.digest()


verdicts: Final = Verdicts(capacity=1 << 17)
"""The verdicts of this process: with windows of 128 KiB, 16 GiB of content in about 30 MB."""
