"""Checks with a result, run side by side within a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeAlias

import attrs

CheckStatus: TypeAlias = Literal["ok", "warning", "missing"]
"""``warning``: the dependency is insufficient, or the check is inconclusive."""

_THREADS = 8
"""Number of concurrent checks; more would need more descriptors, which may be scarce."""


@attrs.frozen
class MachineCheckResult:
    """The result of a check.

    Attributes:
        status: Status of the dependency.
        text: A short description, or the reason why the dependency is missing.
        remedy: Remedy for this result; None means the remedy of the check.
    """

    status: CheckStatus
    text: str
    remedy: str | None = None


@attrs.frozen
class MachineCheck:
    """A check for a dependency of the machine.

    Attributes:
        group: Heading under which the dependency is listed.
        id: Name of the dependency in its group.
        look: Checks the dependency, and may block. An OSError means that it is missing.
        without: The consequence of its absence, as a sentence.
        remedy: The remedy, as a sentence.
        is_required: Whether clawblox cannot work without the dependency.
    """

    group: str
    id: str
    look: Callable[[], MachineCheckResult]
    without: str
    remedy: str
    is_required: bool = False

    def run(self) -> MachineCheckResult:
        """Return the result, even if the check itself fails. Blocks."""
        try:
            return self.look()
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            return missing(f"{place}{error.strerror or error}")
        except Exception as error:  # noqa: BLE001 - the other checks are still worth their results
            return self.doubt(f"cannot be checked: {type(error).__name__}: {error}")

    def doubt(self, why: str) -> MachineCheckResult:
        """Return the result of a check that could not be completed."""
        return missing(why) if self.is_required else warning(why)


def ok(text: str) -> MachineCheckResult:
    """Return the result for a dependency that is present."""
    return MachineCheckResult("ok", text)


def warning(text: str, *, remedy: str | None = None) -> MachineCheckResult:
    """Return the result for an insufficient dependency or an inconclusive check."""
    return MachineCheckResult("warning", text, remedy)


def missing(text: str, *, remedy: str | None = None) -> MachineCheckResult:
    """Return the result for a dependency that is missing."""
    return MachineCheckResult("missing", text, remedy)


def run_checks(
    checks: Sequence[MachineCheck], timeout: float
) -> list[tuple[MachineCheck, MachineCheckResult]]:
    """Run checks concurrently and return them with their results, in order. Blocks.

    A check that hangs, for example on a dead network file system, is left behind in a daemon
    thread.

    Args:
        checks: The checks.
        timeout: Seconds for all checks together. A check without a result by then is a warning, or
            missing if it is required.
    """
    waiting: SimpleQueue[tuple[int, MachineCheck]] = SimpleQueue()
    results: SimpleQueue[tuple[int, MachineCheckResult]] = SimpleQueue()
    for entry in enumerate(checks):
        waiting.put(entry)
    for _ in range(min(_THREADS, len(checks))):
        threading.Thread(target=_work, args=(waiting, results), daemon=True).start()
    deadline = time.monotonic() + timeout
    done: dict[int, MachineCheckResult] = {}
    try:
        while len(done) < len(checks):
            index, result = results.get(timeout=max(0.0, deadline - time.monotonic()))
            done[index] = result
    except Empty:
        pass
    return [
        (check, done.get(index) or check.doubt(f"no answer within {timeout:g} s"))
        for index, check in enumerate(checks)
    ]


def _work(waiting: SimpleQueue[Any], results: SimpleQueue[Any]) -> None:
    while True:
        try:
            index, check = waiting.get_nowait()
        except Empty:
            return
        results.put((index, check.run()))
