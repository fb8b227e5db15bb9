"""Remembers which contents, and which windows of contents, are clean.

In memory only, bounded, for the life of the process: an agent could write to a cache on disk. Keys
are digests under a random key of this process.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

import attrs

from clawblox.checkpoint.recent import RecentValues

PROCESS_KEY: Final = secrets.token_bytes(32)


@attrs.frozen
class Verdict:
    """The result of searching a clean window.

    Attributes:
        newlines: Number of newlines.
        containers: Number of containers decoded in it.
        long_run: Start of a base64 run that continues after the window; None if there is no such
            run.
        beginnings: Positions at which containers begin.
    """

    newlines: int
    containers: int
    long_run: int | None
    beginnings: tuple[int, ...] = ()


def verdict_key(content: bytes, *circumstances: bytes | int) -> bytes:
    """Return the key of a window, or of the digest of a whole content.

    Args:
        content: The content that was searched.
        *circumstances: Everything else that the verdict depends on.
    """
    state = hashlib.blake2b(repr(circumstances).encode(), key=PROCESS_KEY, digest_size=24)
    state.update(content)
    return state.digest()


verdicts: Final = RecentValues[Verdict](capacity=1 << 17)
"""The verdicts on windows: with windows of 128 KiB, 16 GiB of content in about 30 MB."""

content_verdicts: Final = RecentValues[int](capacity=1 << 16)
"""The verdicts on whole contents: how many containers were decoded in each."""
