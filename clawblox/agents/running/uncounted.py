"""What a program has reported while no orchestrator read its output: the rest of its log.

An orchestrator may be killed, or stop reading a program that it ends. What was reported then must
be counted all the same, or it would not count against the budget.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from clawblox.agents.drivers.driver import Interruption
from clawblox.agents.drivers.reading import open_reading
from clawblox.agents.running.bookkeeping import Bookkeeping
from clawblox.agents.running.dialogue import understand
from clawblox.agents.running.order import Order
from clawblox.agents.running.output import read_lines
from clawblox.agents.running.session import find_session_id
from clawblox.agents.values import Report
from clawblox.concurrency.threads import run_blocking, run_interruptible
from clawblox.telemetry.log_segments import log_end
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

_MAX_BYTES: Final = 1 << 30
"""Most of a log that is read; what comes before, of a program that floods it, is not counted."""

_COUNTED: Final = ("session.confirmed", "usage", "turn.finished")


async def catch_up(order: Order, books: Bookkeeping) -> None:
    """Count what the program has reported or written down, and nobody has read.

    Args:
        order: What is started.
        books: Counts it.

    Cancellation: what was not read is read the next time.
    """
    session_id = books.session_id or await run_blocking(find_session_id, order)
    await count_rest(order, books, session_id)
    if session_id is not None:
        await books.count_recorded(session_id)


async def count_rest(order: Order, books: Bookkeeping, session_id: str | None) -> None:
    """Count what the log reports and nobody has read, before another process writes to it.

    Args:
        order: What is started.
        books: Counts it.
        session_id: The conversation of the process before; None if that is not known.

    Cancellation: what was not read is read the next time.
    """
    if await run_blocking(log_end, order.directory.log_file) <= books.log_offset:
        return
    interruption = Interruption()
    read = partial(_read_rest, order, books, session_id, interruption)
    try:
        reports, end = await run_interruptible(read, interruption.set)
    except OSError as error:
        _log.warning("usage not read", agent=order.name, error=str(error))
    else:
        books.count_rest(reports, end, session_id)


def _read_rest(
    order: Order, books: Bookkeeping, session_id: str | None, interruption: Interruption
) -> tuple[list[tuple[int, Report]], int]:
    """Return what the rest of the log reports, and the offset of the first line after it. Blocks.

    Raises:
        OSError: The log cannot be read.
    """
    log = order.directory.log_file
    start, end = books.log_offset, log_end(log)
    if end - start > _MAX_BYTES:
        _log.warning("usage not read: too much output", agent=order.name, offset=start)
        start = end - _MAX_BYTES
    version = books.find_version(session_id) or ""
    conversation = open_reading(order.driver, order.directory, session_id, joined_version=version)
    reports: list[tuple[int, Report]] = []
    for line in read_lines(log, start):
        if interruption.is_set:
            break
        found = understand(conversation, [line], order.name)
        reports += [told for told in found if told[1].type in _COUNTED]
        start = min(end, line.offset + line.size + 1)
    return reports, start
