"""Drives the program that injects defects at one point after another, each within a timeout."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.support.injection import Point
from tests.support.processes import kill_processes, processes_in
from tests.support.waiting import HANG_S

EXEMPT = {
    "instance.supervisor:Supervisor.run": "the outermost frame of the task, which has the handlers",
    "instance.supervisor:Supervisor._release_waiters": "the last handler",
    "instance.supervisor:Supervisor._contained": "the handler of a defect",
    "agents.running.owner:Owner._contained": "the handler of a defect",
    "telemetry.own_log:OwnLog.contain": "the handler of a defect",
    "telemetry.own_log:OwnLog.defect": "the handler of a defect",
    "telemetry.own_log:_Containment.__enter__": "the handler of a defect",
    "telemetry.own_log:_Containment.__exit__": "the handler of a defect",
    "concurrency.tasks:_run": "the outermost frame of each call in a task, which has the handler",
    "concurrency.tasks:_abandon": "the outermost frame of an undoing, which has the handler",
    "concurrency.tasks:Tasks._run_task": "the outermost frame of each task, which has the handler",
    "concurrency.tasks:Tasks.__aexit__": "a block that is entered and not left breaks anyio itself",
    "agents.running.owner:Owner.run": "the outermost frame of the task, which has the handlers",
    "agents.running.owner:Owner._release_waiters": "the last handler",
}
"""Functions that are exempt from injection, with the reason."""

EXEMPT_MODULES = {
    "system.scratch": "the last handler",
    "system.trees": "a directory that it does not remove stays",
}
"""Modules that are exempt from injection, with the reason."""


@attrs.define
class Program:
    """The program, in its own directory."""

    kind: str
    directory: Path
    process: subprocess.Popen[str]

    def hear(self) -> Any:
        """Return the program's next message; None at the end of its output."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(HANG_S):
                return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def inject(self, point: Point) -> tuple[bool, str]:
        """Return whether a point was reached, and the resulting fault; empty without a fault."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(attrs.asdict(point)) + "\n")
        self.process.stdin.flush()
        answer = self.hear()
        if answer is None:
            return True, "it hangs, or has ended"
        return answer["is_injected"], answer["fault"]


@contextmanager
def running(kind: str, directory: Path) -> Iterator[tuple[Program, Mapping[str, Any]]]:
    """Run the program; yield it and its calls without a defect, by phase and function name."""
    directory.mkdir()
    command = [sys.executable, "-m", "tests.support.injection", kind, str(directory)]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    program = Program(kind, directory, process)
    try:
        found = program.hear()
        assert found is not None, "the reference run does not end"
        assert not found["fault"], found["fault"]
        yield program, found["entered"]
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        kill_processes(lambda: processes_in(directory))


def points(entered: Mapping[str, Mapping[str, int]]) -> Iterator[Point]:
    """Yield two points of each function: its first call, and a later one, in its last phase."""
    for name, calls in entered.items():
        phases = list(calls)
        yield Point(name, phases[0])
        if len(phases) > 1:
            yield Point(name, phases[-1])
        elif calls[phases[0]] > 1:
            yield Point(name, phases[0], 2)


def inject_at(kind: str, directory: Path, wanted: Sequence[Point]) -> tuple[int, list[str]]:
    """Inject at each given point; return the number of reached points, and the faults.

    Args:
        kind: ``instance`` or ``agent``.
        directory: Working directory of the programs, which is created.
        wanted: The points.
    """
    directory.mkdir()
    return _inject(kind, directory, lambda _: wanted)


def inject_all(kind: str, directory: Path, *, share: tuple[int, int]) -> tuple[int, list[str]]:
    """Inject at every point that is not exempt; see :func:`inject_at`.

    Args:
        kind: ``instance`` or ``agent``.
        directory: Working directory of the programs, which is created.
        share: Index of the share of the points, and the number of shares.
    """
    directory.mkdir()
    number, count = share

    def choose(entered: Mapping[str, Mapping[str, int]]) -> Sequence[Point]:
        meant = (one for one in points(entered) if one.name not in EXEMPT)
        return [one for one in meant if one.name.partition(":")[0] not in EXEMPT_MODULES][
            number::count
        ]

    return _inject(kind, directory, choose)


def _inject(
    kind: str,
    directory: Path,
    choose: Callable[[Mapping[str, Mapping[str, int]]], Sequence[Point]],
) -> tuple[int, list[str]]:
    left: list[Point] | None = None
    reached, faults, serial = 0, [], 0
    while left is None or left:
        with running(kind, directory / str(serial)) as (program, entered):
            serial += 1
            left = list(choose(entered)) if left is None else left
            while left:
                point = left.pop(0)
                is_injected, fault = program.inject(point)
                reached += is_injected
                if fault:
                    faults.append(f"{point}: {fault}")
                    break  # its remnants must not affect the next one
    return reached, faults
