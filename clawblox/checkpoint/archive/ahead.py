"""Packing small sources in threads, in their order, as far ahead as memory allows."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias

from clawblox.checkpoint.archive.earlier import EarlierArchives
from clawblox.checkpoint.archive.packing import Packed, is_small, pack_small
from clawblox.checkpoint.model import Source

SizedSource: TypeAlias = tuple[Source, int]
"""A source, and the size that its file is believed to have, in bytes."""

_Outcome: TypeAlias = Callable[[], Packed | None]

_THREADS: Final = 2
_FEW_BYTES: Final = 4 << 20
"""Up to this size in all, threads gain nothing."""

_AHEAD_BYTES: Final = 4 << 20
_AHEAD_SOURCES: Final = 256
"""The most that is packed, or being packed, and not yet taken."""


def pack_ahead(
    sources: Sequence[SizedSource], earlier: EarlierArchives
) -> Generator[tuple[Source, _Outcome], None, None]:
    """Yield each source with a function that returns it packed, and None if it is not small.

    The function waits for a thread, or packs in the caller's thread where there is little to pack
    or no thread can be started; it raises what :func:`pack_small` does. A caller
    that stops early closes the iterator, which waits for the threads.
    """
    if sum(size for _, size in sources) <= _FEW_BYTES:
        yield from ((source, _here(source, size, earlier)) for source, size in sources)
        return
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="clawblox-pack")
    try:
        yield from _in_threads(pool, sources, earlier)
    finally:
        pool.shutdown(cancel_futures=True)


def _in_threads(
    pool: ThreadPoolExecutor, sources: Sequence[SizedSource], earlier: EarlierArchives
) -> Generator[tuple[Source, _Outcome], None, None]:
    begun: deque[tuple[Source, int, _Outcome]] = deque()
    ahead = 0
    for source, size in sources:
        outcome = _here(source, size, earlier)
        if is_small(source, size):
            ahead += size
            # Where no thread can be started, it is packed when it is taken.
            with contextlib.suppress(RuntimeError):
                outcome = pool.submit(outcome).result
        begun.append((source, size, outcome))
        while ahead > _AHEAD_BYTES or len(begun) > _AHEAD_SOURCES:
            first, first_size, first_outcome = begun.popleft()
            yield first, first_outcome
            ahead -= first_size if is_small(first, first_size) else 0
    yield from ((source, outcome) for source, _, outcome in begun)


def _here(source: Source, size: int, earlier: EarlierArchives) -> _Outcome:
    return partial(pack_small, source, earlier) if is_small(source, size) else _not_small


def _not_small() -> None:
    return None
