"""A private tmux server for a test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.waiting import HANG_S

SESSION = "trial"

Tmux = Callable[..., list[str]]
"""Runs a command of tmux; returns the lines of its output."""


@contextlib.contextmanager
def tmux_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tmux]:
    """Provide a private tmux server whose files are in ``home``."""
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMUX_TMPDIR", str(home))
    monkeypatch.delenv("TMUX", raising=False)

    def run(*arguments: str) -> list[str]:
        done = subprocess.run(["tmux", *arguments], capture_output=True, text=True, timeout=HANG_S)
        return done.stdout.splitlines()

    yield run
    run("kill-server")


def windows(tmux: Tmux, session: str = SESSION) -> list[str]:
    return tmux("list-windows", "-t", f"={session}", "-F", "#{window_name}")


def pane(tmux: Tmux, window: str) -> str:
    return "\n".join(tmux("capture-pane", "-p", "-J", "-t", f"={SESSION}:={window}"))
