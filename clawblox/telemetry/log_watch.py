"""Inspects the logs of running instances, and cuts logs that are too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.telemetry.log_index import LogIndex
from clawblox.telemetry.logs import trim_log
from clawblox.telemetry.own_log import OwnLog

_LOOK_INTERVAL_S: Final = 1.0

_log = OwnLog(__name__)

WatchedLog: TypeAlias = tuple[LogIndex, Iterable[Path]]
"""The index of a watched log, and the other logs of its instance."""


async def watch_logs(find: Callable[[], Iterable[WatchedLog]], max_bytes: int | None) -> None:
    """Inspect logs once a second and cut logs that are too long, until cancelled.

    Args:
        find: Returns the logs.
        max_bytes: Size at which a log is cut to its newer half; None never cuts.

    Cancellation: waits for the current inspection.
    """
    while True:
        await anyio.sleep(_LOOK_INTERVAL_S)
        with _log.contain("logs not looked at"):
            if found := list(find()):
                await run_blocking(_look_at, found, max_bytes)


def _look_at(found: Iterable[WatchedLog], max_bytes: int | None) -> None:
    for index, others in found:
        with _log.contain("log not looked at", path=str(index.log)):
            index.note_length(max_bytes)
        if max_bytes is not None:
            for path in others:
                with _log.contain("log not cut", expected=(OSError,), path=str(path)):
                    trim_log(path, max_bytes)
