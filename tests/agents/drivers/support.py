"""An agent's directory and setup for tests of drivers, and lines that real programs wrote."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawblox.agents.drivers.driver import AgentSetup, Begin, Continue, Conversation, Turn
from clawblox.agents.layout import AgentDir
from clawblox.agents.values import DriverReport
from tests.support.waiting import HANG_S

RECORDED = Path(__file__).parent / "recorded"
NEW_ID = "11111111-2222-4333-8444-555555555555"
OTHER_ID = "99999999-2222-4333-8444-555555555555"

FIRST = Turn(prompt="Begin", start=Begin(NEW_ID))
RESUMED = Turn(prompt="Go on", start=Continue(NEW_ID))


PLACES = [
    pytest.param({}, id="here"),
    pytest.param({"workspace": Path("/workspace"), "state": Path("/session")}, id="in a sandbox"),
]
"""Paths of directories as a program sees them."""


def build_setup(directory: AgentDir, **more) -> AgentSetup:
    facts = {"directory": directory, "binary": "/bin/program", "system_prompt": "Be kind."}
    return AgentSetup(**{**facts, **more})


def recorded_lines(name: str) -> list[bytes]:
    return (RECORDED / name).read_bytes().splitlines()


def read_all(conversation: Conversation, lines: list[bytes]) -> list[DriverReport]:
    return [report for line in lines for report in conversation.read(line)]


def types(reports: list[DriverReport]) -> list[str]:
    return [report.type for report in reports]


def data_by_type(reports: list[DriverReport], kind: str) -> Iterator[dict]:
    return (dict(report.data) for report in reports if report.type == kind)


def within_limit(call: Callable[[], object], *pipes: Path) -> None:
    """Make a call in a thread, because pipes may block it; ignore its exceptions."""

    def run() -> None:
        with contextlib.suppress(OSError):
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANG_S)
    is_hanging = thread.is_alive()
    while thread.is_alive() and pipes:
        for pipe in pipes:
            os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
            thread.join(0.1)
    assert not is_hanging
