"""The signals that end a command."""

from __future__ import annotations

import os
import signal

import anyio
import pytest

from clawblox.cli.running import runner
from clawblox.cli.running.runner import CommandSignals
from tests.support.waiting import HANG_S


class Command:
    """A command that records the effects of its signals."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refused: int | None = None) -> None:
        monkeypatch.setattr(runner, "_end_at_last", lambda number: self.asked.append("last resort"))
        self.asked: list[str] = []
        self.signals = CommandSignals()
        self._refused = refused
        self._news = anyio.Event()

    async def stop(self, number: signal.Signals) -> bool:
        self._note(f"stop by {number.name}")
        return number != self._refused

    async def kill(self) -> None:
        self._note("kill")

    def _note(self, text: str) -> None:
        self.asked.append(text)
        self._news.set()

    async def get(self, number: signal.Signals) -> None:
        """Send a signal, and wait until it has been handled."""
        self._news = anyio.Event()
        os.kill(os.getpid(), number)
        with anyio.fail_after(HANG_S):
            await self._news.wait()
            await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_the_first_signal_stops_and_further_signals_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = Command(monkeypatch)
    async with command.signals.obeyed(command.stop, command.kill):
        assert command.signals.exit_status is None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            await command.get(number)
    assert command.asked == ["stop by SIGTERM", *["last resort", "kill"] * 2]
    assert command.signals.exit_status == 143


@pytest.mark.anyio
async def test_refused_signal_does_not_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(monkeypatch, refused=signal.SIGINT)
    async with command.signals.obeyed(command.stop, command.kill):
        await command.get(signal.SIGINT)
        await command.get(signal.SIGINT)
        assert command.signals.exit_status is None
        await command.get(signal.SIGTERM)
    assert command.asked == ["stop by SIGINT", "stop by SIGINT", "stop by SIGTERM"]
    assert command.signals.exit_status == 143


@pytest.mark.anyio
async def test_a_signal_kills_a_command_that_is_stopping_for_another_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = Command(monkeypatch)
    async with command.signals.obeyed(command.stop, command.kill):
        command.signals.is_stopping = True
        await command.get(signal.SIGINT)
    assert command.asked == ["last resort", "kill"]
    assert command.signals.exit_status == 130
