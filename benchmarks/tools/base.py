"""The interface of all tools, and readiness checks for tools without their own.

Only the standard library is used, to measure the memory of the tools alone.
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
    """The interface of a tool.

    Attributes:
        note: Description of its use.
    """

    note: str

    def __init__(self, specs: Sequence[WorldSpec], directory: Path) -> None: ...

    @property
    def root(self) -> int:
        """Process id of the tool's root process, after the start of the worlds."""

    def open(self) -> None:
        """Prepare for the first start."""

    def start(self) -> None:
        """Start all worlds, and return when the user knows that all of them serve."""

    def stop(self) -> None:
        """Stop all worlds, and return when the tool reports their end."""

    def close(self) -> None:
        """Undo :meth:`open`."""


def launch(spec: WorldSpec) -> subprocess.Popen[bytes]:
    """Start a world like a plain script."""
    env = {**os.environ, **spec.env}
    silent = subprocess.DEVNULL
    return subprocess.Popen(spec.command, env=env, stdin=silent, stdout=silent, stderr=silent)


def wait_until_serving(specs: Sequence[WorldSpec]) -> None:
    """Poll one world after the other until it answers."""
    deadline = time.monotonic() + DEADLINE_S
    for spec in specs:
        while not is_serving(spec):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{spec.name} does not serve")
            time.sleep(_POLL_S)


def is_serving(spec: WorldSpec) -> bool:
    """Return whether a world answers a request."""
    try:
        with urllib.request.urlopen(spec.url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class InProcess:
    """A tool that runs in its user's process."""

    note = ""

    def __init__(self, specs: Sequence[WorldSpec], directory: Path) -> None:
        self.specs = specs
        self.directory = directory

    @property
    def root(self) -> int:
        """This process."""
        return os.getpid()

    def open(self) -> None:
        """Do nothing, since no preparations are needed."""

    def close(self) -> None:
        """Do nothing, since no resources remain."""
