"""Readers of the logs of the instances of a run directory."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from clawblox.rundir.records import InstanceRecord, read_record
from clawblox.rundir.status import has_owner, is_over, select_records
from clawblox.telemetry.log_reader import LogReader

_LOOK_INTERVAL_S: Final = 0.5


def read_logs(
    run_dir: Path,
    names: Sequence[str] = (),
    *,
    follow: bool,
    tail: int | None,
    since: str | None = None,
    pattern: re.Pattern[str] | None = None,
) -> dict[str, LogReader]:
    """Return a reader for the log of each instance, by instance name. Blocks.

    Additional lines mark the ends and restarts of an instance.

    Args:
        run_dir: The run directory.
        names: The instances; empty means all.
        follow: Wait for more lines until the instance has ended.
        tail: Number of latest lines to start with; None starts at the first line.
        since: UTC time with milliseconds of the earliest line; None for all times.
        pattern: Pattern that a line must contain; None for all lines.

    Raises:
        UsageError: A named instance does not exist.
    """
    return {
        record.name: LogReader(
            instance=record.name,
            path=Path(record.log_file),
            follow=follow,
            tail=tail,
            start=record.log_start,
            since=since,
            pattern=pattern,
            has_notes=True,
            tail_counts_notes=True,
            was_restarted=record.restarts > 0,
            is_watched=not record.is_detached or has_owner(record),
            is_over=_Ending(run_dir, record),
        )
        for record in select_records(run_dir, names)
    }


class _Ending(msgspec.Struct):
    """A check for the end of an instance; a new start under its name also counts as the end.

    The record is read at most twice a second, because followers of many logs check more often.
    """

    run_dir: Path
    record: InstanceRecord
    _looked_at: float = -_LOOK_INTERVAL_S

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._looked_at + _LOOK_INTERVAL_S:
            return False
        self._looked_at = now
        latest = read_record(self.run_dir, self.record.name)
        if latest is None:
            return True
        was_brought_back = latest.restarts > self.record.restarts
        is_another = latest.cookie != self.record.cookie and not was_brought_back
        return is_another or is_over(latest)
