"""One session of an experiment: awaited for its outcome, or iterated for rows as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final, Literal, Self, TypeAlias

import anyio
import attrs

from clawblox.concurrency.tasks import outlast
from clawblox.experiment.tables.rows import Row

RunStatus: TypeAlias = Literal["done", "failed", "paused", "stopped"]
"""How a session ended: all generations are committed, a chain has failed, chains are paused by
something that passes, or a person has stopped it."""

EXIT_STATUS: Final = {"done": 0, "failed": 1, "paused": 75, "stopped": 130}
"""Exit status of a command for each; 75 is EX_TEMPFAIL of sysexits.h."""


@attrs.frozen(kw_only=True)
class RunOutcome:
    """The outcome of a session of an experiment.

    Attributes:
        status: How it ended.
        text: Why chains are paused or have failed, a line for each; empty if all are done.
        rows: The rows of the generations that it committed.
    """

    status: RunStatus
    text: str
    rows: Sequence[Row] = attrs.field(repr=False)

    @property
    def exit_status(self) -> int:
        """Exit status for a command: 0, 1, 75 or 130."""
        return EXIT_STATUS[self.status]

    def __str__(self) -> str:
        generations = f"{len(self.rows)} generation{'' if len(self.rows) == 1 else 's'} committed"
        failed = sum(bool(row.error) for row in self.rows)
        scores = f", {failed} score{'' if failed == 1 else 's'} failed" if failed else ""
        return "\n".join(filter(None, (f"{self.status}: {generations}{scores}", self.text)))


@attrs.define(eq=False)
class ExperimentRun:
    """A session that begins when this is awaited or iterated.

    ``await run`` returns the :class:`RunOutcome`. ``async for row in run`` yields the row of each
    generation as it is committed; the session continues when the loop is left early, until the
    block of the experiment is left.

    Args:
        begin: Starts the session, and calls its argument with each row, and with None at the end.
        wait: Returns the outcome of the session.
        pause: Asks the session to make checkpoints and to stop.
        is_over: Set at its end.

    Cancellation: of ``await run`` pauses the session, and waits for its checkpoints.
    """

    _begin: Callable[[Callable[[Row | None], object]], None]
    _wait: Callable[[], Awaitable[RunOutcome]]
    _pause: Callable[[], object]
    _is_over: anyio.Event
    _is_begun: bool = attrs.field(default=False, init=False)
    _rows: deque[Row] = attrs.field(factory=deque, init=False)
    _news: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __await__(self) -> Generator[Any, Any, RunOutcome]:
        """Run the session and return its outcome.

        Raises:
            UsageError: The experiment is closed, or a session of it runs.
            ClawbloxError: The session could not be run.
        """
        return self._gather().__await__()

    def __aiter__(self) -> Self:
        """Run the session and yield the row of each generation that is committed."""
        self._start()
        return self

    async def __anext__(self) -> Row:
        """Return the next row."""
        while not self._rows:
            if self._is_over.is_set():
                await self._wait()
                raise StopAsyncIteration
            await self._news.wait()
        row = self._rows.popleft()
        if not self._rows:
            self._news = anyio.Event()
        return row

    def _start(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._begin(self._put)

    def _put(self, row: Row | None) -> None:
        if row is not None:
            self._rows.append(row)
        self._news.set()

    async def _gather(self) -> RunOutcome:
        self._start()
        try:
            return await self._wait()
        except BaseException:
            self._pause()
            await outlast(self._is_over)
            raise
