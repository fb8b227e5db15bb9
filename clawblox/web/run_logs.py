"""The logs of instances, as pages may show them: which file, and when its lines arrived.

A place in a log is a byte counted from its first line ever, so an address stays right after the log
was cut.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence

import attrs

from clawblox.rundir.find_runs import shown_log
from clawblox.rundir.status import OVER, InstanceStatus
from clawblox.telemetry.log_times import Entry, LogTimes
from clawblox.web.files import opened_below, read_before
from clawblox.web.site import RunSummary, Site

_LAST_BYTES = 8192


@attrs.frozen
class OpenLog:
    """A log that is open.

    Attributes:
        fd: Its descriptor.
        times: Its index, which has been read.
        notes: The events of its instance to show, with the length of the log at each.
        moved: Number of bytes that cuts have removed.
    """

    fd: int
    times: LogTimes
    notes: Sequence[Entry]
    moved: int


@contextlib.contextmanager
def opened_log(site: Site, run: RunSummary, status: InstanceStatus) -> Iterator[OpenLog]:
    """Open the log of an instance while the block runs. Blocks.

    Raises:
        OSError: It may not be shown, or cannot be read.
    """
    log = shown_log(run.directory, status.log_file)
    if log is None:
        raise OSError(errno.EACCES, "is outside of the run directory", str(status.log_file))
    with opened_below(site.root, log) as fd:
        times = LogTimes(log, is_watched=not status.is_detached)
        with contextlib.suppress(OSError):  # the lines can be read without their times
            times.read_on()
        moved = 0 if times.cut is None else times.cut.moved
        yield OpenLog(fd, times, times.notes_after(None), moved)


def read_last_line(site: Site, run: RunSummary, status: InstanceStatus) -> str:
    """Return the last line of a log that has text, shortened; empty if it cannot be read."""
    with contextlib.suppress(OSError), opened_log(site, run, status) as log:
        window = read_before(log.fd, 1 << 62, _LAST_BYTES)
        texts = [text.strip() for _, text in window.lines()]
        return next((text for text in reversed(texts) if text), "")
    return ""


def is_growing(status: InstanceStatus) -> bool:
    """Return whether lines can still be added to the log of an instance."""
    return status.state not in OVER
