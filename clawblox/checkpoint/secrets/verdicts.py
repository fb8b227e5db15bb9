"""What is remembered of windows in which nothing was found.

In memory, for the life of the process, bounded. Nothing is on disk, because what is scanned
belongs to an agent that could write there. Keys are digests under a random key of this process.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from typing import Final

import attrs

__all__ = ["PROCESS_KEY", "Verdict", "Verdicts", "key_of", "verdicts"]

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


class Verdicts:
    """The verdicts on the most recent clean windows; safe to use from several threads.

    Args:
        capacity: How many are remembered.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._verdicts: dict[bytes, Verdict] = {}
        self._lock = threading.Lock()

    def recall(self, key: bytes) -> Verdict | None:
        """Return the verdict on a window, None when there is none."""
        with self._lock:
            verdict = self._verdicts.pop(key, None)
            if verdict is not None:
                self._verdicts[key] = verdict  # it is the most recent one now
            return verdict

    def remember(self, key: bytes, verdict: Verdict) -> None:
        """Keep a verdict, and forget the oldest one when there are too many."""
        with self._lock:
            self._verdicts[key] = verdict
            if len(self._verdicts) > self._capacity:
                del self._verdicts[next(iter(self._verdicts))]


def key_of(window: bytes, *circumstances: bytes | int) -> bytes:
    """Return the key of a window under the circumstances that decide about the verdict."""
    state = hashlib.blake2b(repr(circumstances).encode(), key=PROCESS_KEY, digest_size=24)
    state.update(window)
    return state.digest()


verdicts: Final = Verdicts(capacity=1 << 17)
"""Those of this process: at 128 KiB a window, enough for 16 GiB in about 30 MB."""
