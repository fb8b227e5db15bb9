"""Displays of an experiment: a live table on a terminal, else a line for each event."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from clawblox.cli.running import displays, live_table
from clawblox.cli.running.experiment_scenes import ExperimentLook, ExperimentScene
from clawblox.cli.running.live_table import make_display, watch
from clawblox.cli.terminal.output import Output
from clawblox.experiment.tables.status import make_status
from tests.experiment.journals import Journal, make_plan, used
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "_INTERVAL_S", 0.0)
    monkeypatch.setattr(live_table, "_SHORT_REST_S", 0.0)
    monkeypatch.setattr(live_table, "_LONG_REST_S", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")


class Story:
    """An experiment that advances at each look: it commits, fails, and stops running."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.journal.write("session.begun", {"pid": 7})
        self.attempt = self.journal.open("r1", 1).work()
        self.looks = 0

    async def read(self) -> ExperimentLook:
        if self.looks == 1:
            self.attempt.commit([used(41_000, 0.92)])
        if self.looks == 2:
            attempt = self.journal.open("r2", 1).work()
            attempt.end("failed", cause="setup", text="no program")
        self.looks += 1
        status = make_status(
            Path("/e"),
            self.journal.plans(make_plan()),
            now=self.journal.now,
            pid=7 if self.looks < 3 else None,
        )
        return ExperimentLook(status, list(self.journal.lines))


class Reader:
    """Both ends of a pipe or a terminal."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        self._stream = open(write_fd, "w")  # noqa: SIM115 - closed by close
        self.output = Output(self._stream)

    def text(self) -> str:
        """Return the output without colours and movements of the cursor."""
        written = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._read_fd, 65536):
                written += chunk
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", written.decode()).replace("\r\n", "\n")

    def close(self) -> None:
        self.output.close()
        self._stream.close()
        os.close(self._read_fd)


@pytest.fixture
def pipe() -> Iterator[Reader]:
    reader = Reader(*os.pipe())
    yield reader
    reader.close()


@pytest.fixture
def terminal() -> Iterator[Reader]:
    reader = Reader(*os.openpty())
    yield reader
    reader.close()


async def watch_story(reader: Reader) -> None:
    scene = ExperimentScene(Story().read)
    await watch(reader.output, scene, lambda: not scene.is_running)


async def test_without_a_terminal_each_event_after_the_first_look_is_a_line(pipe: Reader) -> None:
    with anyio.fail_after(HANG_S):
        await watch_story(pipe)
    committed, _, failed = [line.split(" ", 1)[1] for line in pipe.text().splitlines()]
    assert committed == "r1 generation 1 committed: duration, 41k output tokens, $0.92"
    assert failed == "r2 generation 1 failed (setup): no program"


async def test_only_events_after_a_given_line_are_shown(pipe: Reader) -> None:
    display = make_display(pipe.output, ExperimentScene(Story().read, since=1))
    await display.finish(["that is all"])
    working, *rest = pipe.text().splitlines()
    assert "r1 generation 1 works: Eko" in working
    assert rest == ["that is all"]


async def test_a_terminal_shows_the_table_and_the_events(terminal: Reader) -> None:
    with anyio.fail_after(HANG_S):
        await watch_story(terminal)
    text = terminal.text()
    assert "1 of 6 committed · 1 failed · 2 blocked · 2 waiting" in text
    assert "generation 1 failed (setup): no program" in text
    assert "Ctrl-C closes this table and stops nothing." in text


async def test_the_summary_is_below_the_table(terminal: Reader) -> None:
    display = make_display(terminal.output, ExperimentScene(Story().read), "Ctrl-C saves")
    assert display.is_table
    await display.finish(["0 of 6 committed."])
    *table, last = terminal.text().rstrip().splitlines()
    assert last == "0 of 6 committed."
    assert any(line.startswith("r1 ") for line in table)
    assert "Ctrl-C saves" not in table
