"""What a check of the machine is, and running many of them within a time limit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import attrs

CheckState: TypeAlias = Literal["ok", "warning", "missing"]
"""``warning`` is there, but too little or in doubt."""

_THREADS = 8
"""Checks that are under way at once; more would need many descriptors, which may be scarce."""


@attrs.frozen
class CheckResult:
    """What a check found.

    Attributes:
        state: Whether the thing is there.
        found: What there is, or why it is missing, in a few words.
        remedy: What to do about it, where that depends on what was found.
    """

    state: CheckState
    found: str
    remedy: str | None = None


@attrs.frozen
class Check:
    """One thing that clawblox needs or can use.

    Attributes:
        group: Heading that it stands under.
        name: The thing, in a few words.
        look: Looks for it, and may block. An OSError means that it is missing.
        without: What it costs to be without it, one sentence.
        remedy: What to do about it, one sentence.
        is_required: Whether nothing works without it.
    """

    group: str
    name: str
    look: Callable[[], CheckResult]
    without: str
    remedy: str
    is_required: bool = False

    def run(self) -> CheckResult:
        """Look, and return what was found whatever happens. Blocks."""
        try:
            return self.look()
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            return missing(f"{place}{error.strerror or error}")
        except Exception as error:  # noqa: BLE001 - the other checks are still worth their results
            return self.doubt(f"cannot be checked: {type(error).__name__}: {error}")

    def doubt(self, why: str) -> CheckResult:
        """Return the result of a check that could not be made."""
        return missing(why) if self.is_required else warning(why)


def ok(found: str) -> CheckResult:
    """Return the result of a check that found what it looked for."""
    return CheckResult("ok", found)


def warning(found: str, *, remedy: str | None = None) -> CheckResult:
    """Return the result of a check that found too little, or cannot tell."""
    return CheckResult("warning", found, remedy)


def missing(found: str, *, remedy: str | None = None) -> CheckResult:
    """Return the result of a check that did not find what it looked for."""
    return CheckResult("missing", found, remedy)


def run_checks(checks: Sequence[Check], timeout: float) -> list[tuple[Check, CheckResult]]:
    """Run checks side by side and return them with their results, in their order. Blocks.

    A check that hangs, on a dead network file system for example, is left behind in a daemon
    thread.

    Args:
        checks: The checks.
        timeout: Seconds for all of them. A check that has no result by then is a warning; it is
            missing if it is required.
    """
    results: queue.SimpleQueue[tuple[int, CheckResult]] = queue.SimpleQueue()
    waiting: queue.SimpleQueue[tuple[int, Check]] = queue.SimpleQueue()
    for entry in enumerate(checks):
        waiting.put(entry)
    for _ in range(min(_THREADS, len(checks))):
        threading.Thread(target=_work, args=(waiting, results), daemon=True).start()
    found = dict(_take(results, len(checks), time.monotonic() + timeout))
    return [
        (check, found.get(index) or check.doubt(f"no answer within {timeout:g} s"))
        for index, check in enumerate(checks)
    ]


def _work(waiting: queue.SimpleQueue[Any], results: queue.SimpleQueue[Any]) -> None:
    while True:
        try:
            index, check = waiting.get_nowait()
        except queue.Empty:
            return
        results.put((index, check.run()))


def _take(
    results: queue.SimpleQueue[tuple[int, CheckResult]], count: int, deadline: float
) -> Iterable[tuple[int, CheckResult]]:
    for _ in range(count):
        try:
            yield results.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return
