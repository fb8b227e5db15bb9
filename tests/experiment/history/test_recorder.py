"""The recorder of lines and of the resulting state."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.history.state import ExperimentState
from tests.experiment.memory_journal import MemoryJournal
from tests.support.simulated_clock import SimulatedClock

pytestmark = pytest.mark.anyio


async def test_line_is_written_and_reported_even_if_its_writer_is_cancelled() -> None:
    journal, state = MemoryJournal(SimulatedClock()), ExperimentState()
    reported: list[JournalLine] = []
    has_begun, may_end = anyio.Event(), anyio.Event()

    async def call(append: Callable[[], JournalLine]) -> JournalLine:
        has_begun.set()
        await may_end.wait()
        return append()

    recorder = JournalRecorder(journal, state, reported.append, call)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.write, "session.begun")
        await has_begun.wait()
        tasks.cancel_scope.cancel()
        may_end.set()
    assert journal.lines == reported
    assert [line.type for line in reported] == ["session.begun"]
    assert state.current_run == reported[0]
