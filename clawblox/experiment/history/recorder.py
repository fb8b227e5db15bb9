"""Writes the lines of a journal one at a time, and keeps the state up to date."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio.lowlevel
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.lines import EXPERIMENT, About, JournalLine, LineType
from clawblox.experiment.history.state import ExperimentState


@attrs.define(eq=False)
class JournalRecorder:
    """Writes lines; see :class:`~clawblox.experiment.history.journal.Journal`.

    Args:
        journal: The journal, open for writing.
        state: The state, which is updated by every written line.
        on_line: Called with each written line.
        call: Calls a function that blocks.
        derive: Updates the files of the chains from the lines.
    """

    _journal: Journal
    state: ExperimentState
    _on_line: Callable[[JournalLine], object]
    _call: Callable[[Callable[[], JournalLine]], Awaitable[JournalLine]] = run_blocking
    derive: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint
    _writing: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def write(
        self,
        type: LineType,  # noqa: A002 - the name of the member
        data: Mapping[str, Any] | None = None,
        about: About = EXPERIMENT,
        condition: Callable[[ExperimentState], bool] = lambda _state: True,
    ) -> JournalLine | None:
        """Write a line; it is durable when this returns.

        Args:
            type: Its type.
            data: Further facts, JSON values by name, or None.
            about: The part of the experiment concerned.
            condition: Checked immediately before, when no other line can intervene; if it is false,
                nothing is written.

        Returns:
            The line; None if the condition was false.

        Raises:
            OSError: The line could not be written.

        Cancellation: the line is still written.
        """
        append = partial(self._journal.append, type, data, about)
        with anyio.CancelScope(shield=True):
            async with self._writing:
                if not condition(self.state):
                    return None
                line = await self._call(append)
                self.state.apply(line)
        self._on_line(line)
        return line
