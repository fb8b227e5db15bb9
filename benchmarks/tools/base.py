"""What every tool is asked for, and what the user of a tool without readiness does himself.

Standard library only, so that a tool's memory is its own.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.worlds import WorldSpec

__all__ = ["InProcess", "Tool", "launch", "wait_until_serving"]

DEADLINE_S = 60.0
_POLL_S = 0.2


class Tool(Protocol):
    """What every tool is asked for.

    Attributes:
        note: What is done with it.
    """

    note: str

    def __init__(self, specs: Sequence[WorldSpec], directory: Path) -> None: ...

    @property
    def root(self) -> int:
        """The process that the tool's user runs, once the worlds are started."""

    def open(self) -> None:
        """Get what is needed before the first start."""

    def start(self) -> None:
        """Start all worlds, and return when the user knows that all of them serve."""

    def stop(self) -> None:
        """Stop all worlds, and return when none is left as far as the tool can say."""

    def close(self) -> None:
        """End what :meth:`open` began."""


def launch(spec: WorldSpec) -> subprocess.Popen[bytes]:
    """Start a world as a plain script does."""
    env = {**os.environ, **spec.env}
    silent = subprocess.DEVNULL
    return subprocess.Popen(spec.command, env=env, stdin=silent, stdout=silent, stderr=silent)


def wait_until_serving(specs: Sequence[WorldSpec]) -> None:
    """Ask one world after the other until it answers."""
    deadline = time.monotonic() + DEADLINE_S
    for spec in specs:
        while not is_serving(spec):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{spec.name} does not serve")
            time.sleep(_POLL_S)


def is_serving(spec: WorldSpec) -> bool:
    """Ask a world once."""
    try:
        with urllib.request.urlopen(spec.url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class InProcess:
    """A tool that lives in its user's process."""

    note = ""

    def __init__(self, specs: Sequence[WorldSpec], directory: Path) -> None:
        self.specs = specs
        self.directory = directory

    @property
    def root(self) -> int:
        """This process."""
        return os.getpid()

    def open(self) -> None:
        """Need nothing more."""

    def close(self) -> None:
        """Leave nothing."""
