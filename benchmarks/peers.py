"""clawblox compared to other tools that its user might choose, each running the same worlds.

Every tool runs in its own processes (``python -m benchmarks.tools``). Two things are measured: the
start and stop of N worlds, and the number of surviving worlds after the tool is killed with
SIGKILL. Processor time and memory include all processes of the tool, but not the worlds.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from benchmarks.floors import start_floor
from benchmarks.measure import median
from benchmarks.tools import TOOLS
from benchmarks.worlds import (
    Readiness,
    WorldSpec,
    end_carriers,
    kill,
    make_specs,
    poll_until,
)
from clawblox.system.process_tree import all_processes

__all__ = ["ToolRow", "bench_peers", "print_tools", "use_tool"]

_STEP_TIMEOUT_S = 120.0
_SHORT = "t"
"""Short directory name, since socket paths have at most 107 characters, of which Ray needs 64."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ToolFailed(Exception):  # noqa: N818 - says the condition
    """A tool failed; the message gives the reason."""


_FAILURES = (ToolFailed, OSError, subprocess.TimeoutExpired)
"""Failures of one tool; the others are still measured."""


@attrs.frozen
class Use:
    """The measurements of one use of a tool.

    Attributes:
        init_s: Time for the preparations before the first world.
        known_s: From the call until the tool's user knew that all worlds serve.
        ready_s: From the call until all worlds reported that they listen.
        stop_s: Time for stopping all worlds.
        cpu_s: Processor time of the tool for the start.
        rss_bytes: Memory of the tool while the worlds run.
    """

    init_s: float
    known_s: float
    ready_s: float
    stop_s: float
    cpu_s: float
    rss_bytes: float


@attrs.frozen
class ToolRow:
    """A row of the comparison, with medians, or None for missing measurements.

    Attributes:
        tool: Name of the tool.
        use: The measurements of its use.
        survivors: Number of worlds that survived the kill of the tool.
        note: Remarks, or the reason for missing figures.
    """

    tool: str
    note: str
    use: Use | None = None
    survivors: int | None = None


class ToolProcess:
    """The process that uses a tool, step by step; a context manager that cleans up.

    Args:
        name: The tool.
        specs: The worlds to run.
        directory: Its working directory; removed at the end.
    """

    def __init__(self, name: str, specs: Sequence[WorldSpec], directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._env = {"BENCH_TOOL": str(directory)}
        self._seen: dict[int, int] = {}
        with (directory / "errors").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.tools", name, str(directory)],
                env={**os.environ, **self._env, "TMPDIR": str(directory)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.tell(json.dumps([spec.to_json() for spec in specs]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._look()
        self._process.kill()
        self._process.wait()
        self._end_rest()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        shutil.rmtree(self._directory)

    @property
    def pids(self) -> set[int]:
        """The process and its descendants at the time of its last answer."""
        return set(self._seen)

    def tell(self, line: str) -> None:
        """Send a line to the process: first the specs, then a word for every step."""
        self._stdin.write(line.encode() + b"\n")
        self._stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the tool's answer to the last step.

        Raises:
            ToolFailed: The tool is not installed, failed, or took too long.
        """
        if not select.select([self._stdout], [], [], _STEP_TIMEOUT_S)[0]:
            raise ToolFailed(f"no answer within {_STEP_TIMEOUT_S:g} s")
        line = self._stdout.readline()
        if not line:
            self._process.wait()
            errors = (self._directory / "errors").read_text(errors="replace").split("\n")
            raise ToolFailed(f"failed: {next(filter(None, reversed(errors)), 'no word')[:150]}")
        self._look()
        facts: dict[str, Any] = json.loads(line)
        if "missing" in facts:
            raise ToolFailed(f"not installed: {facts['missing']}")
        return facts

    def wait(self) -> None:
        """Wait until the process has ended."""
        self._process.wait(_STEP_TIMEOUT_S)

    def _look(self) -> None:
        self._seen |= descendants(self._process.pid)

    def _end_rest(self) -> None:
        # Some have overwritten their environment with a title, others have a new parent.
        def kill_seen() -> bool:
            live = {(pid, process.start_time) for pid, process in all_processes().items()}
            found = live & self._seen.items()
            for pid, _ in found:
                kill(pid)
            return not found

        poll_until(kill_seen, timeout=10.0)
        end_carriers(self._env)


def use_tool(name: str, specs: Sequence[WorldSpec], readiness: Readiness, scratch: Path) -> Use:
    """Let a tool start and stop the worlds.

    Raises:
        ToolFailed: It could not.
    """
    with ToolProcess(name, specs, scratch / _SHORT) as tool:
        init = tool.answer()["init_s"]
        cpu_before = {pid: cpu_s(pid) for pid in tool.pids}
        tool.tell("start")
        started = tool.answer()
        stamps = readiness.wait(len(specs))
        pids = descendants(started["root"]).keys() - set(readiness.carriers())
        cpu = sum(cpu_s(pid) - cpu_before.get(pid, 0.0) for pid in pids)
        rss = sum(map(rss_bytes, pids))
        tool.tell("stop")
        stop = tool.answer()["stop_s"]
        tool.wait()
        return Use(
            init_s=init,
            known_s=started["known"] - started["begun"],
            ready_s=max(stamps) - started["begun"],
            stop_s=stop,
            cpu_s=cpu,
            rss_bytes=rss,
        )


def count_survivors(
    name: str, specs: Sequence[WorldSpec], readiness: Readiness, scratch: Path, patience_s: float
) -> int:
    """Kill a tool with running worlds; return the number of worlds alive ``patience_s`` later.

    Raises:
        ToolFailed: The tool could not start the worlds.
    """
    with ToolProcess(name, specs, scratch / _SHORT) as tool:
        tool.answer()
        tool.tell("start")
        kill(tool.answer()["root"])
        with contextlib.suppress(TimeoutError):
            poll_until(lambda: not readiness.carriers(), timeout=patience_s)
        return len(readiness.carriers())


def descendants(root: int) -> dict[int, int]:
    """Return the start times of a process and its descendants, by process id."""
    processes = all_processes()
    found = fresh = {root} & processes.keys()
    while fresh:
        fresh = {pid for pid, process in processes.items() if process.ppid in fresh}
        found = found | fresh
    return {pid: processes[pid].start_time for pid in found}


def cpu_s(pid: int) -> float:
    """Return the processor time of a process, in seconds; see proc(5)."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return 0.0


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def bench_peers(
    scratch: Path, readiness: Readiness, *, count: int, rounds: int, patience_s: float
) -> list[ToolRow]:
    """Measure every tool, and the floor in the same rounds.

    Args:
        scratch: Directory for all files.
        readiness: Receives the readiness of the worlds.
        count: Number of light worlds.
        rounds: Number of samples per tool.
        patience_s: Time after which worlds count as surviving the kill of their tool.
    """
    uses: dict[str, list[Use]] = {name: [] for name in ("floor", *TOOLS)}
    reasons: dict[str, str] = {}
    shuffle = random.Random(count).shuffle
    for _ in range(rounds):
        order = list(uses)
        shuffle(order)
        for name in order:
            if name not in reasons:
                try:
                    uses[name].append(_use_once(name, count, readiness, scratch))
                except _FAILURES as failure:
                    reasons[name] = str(failure)
                finally:
                    readiness.end_carriers()
    rows = [_row(name, uses[name], reasons.get(name)) for name in uses]
    return [_with_survivors(row, count, readiness, scratch, patience_s) for row in rows]


def _use_once(name: str, count: int, readiness: Readiness, scratch: Path) -> Use:
    specs = make_specs("light", count, readiness)
    if name != "floor":
        return use_tool(name, specs, readiness, scratch)
    ready, stop = start_floor(specs, readiness)
    return Use(0.0, ready, ready, stop, 0.0, 0)


def _row(name: str, uses: Sequence[Use], reason: str | None) -> ToolRow:
    if reason is not None:
        return ToolRow(name, reason)
    note = TOOLS[name].note if name in TOOLS else "posix_spawn, and the worlds' own report"
    fields = [field.name for field in attrs.fields(Use)]
    medians = {field: median(getattr(use, field) for use in uses) for field in fields}
    return ToolRow(name, note, Use(**medians))


def _with_survivors(
    row: ToolRow, count: int, readiness: Readiness, scratch: Path, patience_s: float
) -> ToolRow:
    if row.use is None or row.tool not in TOOLS:
        return row
    try:
        specs = make_specs("light", count, readiness)
        survivors = count_survivors(row.tool, specs, readiness, scratch, patience_s)
    except _FAILURES as failure:
        return attrs.evolve(row, note=str(failure))
    finally:
        readiness.end_carriers()
    return attrs.evolve(row, survivors=survivors)


def print_tools(rows: Iterable[ToolRow], count: int) -> None:
    """Print the comparison: seconds, megabytes, and the number of surviving worlds."""
    print(f"\nside by side, {count} light worlds; seconds, CPU and RSS without the worlds")
    heads = ("init", "known", "ready", "stop", "CPU")
    print(f"{'tool':<16}" + "".join(f"{head:>8}" for head in heads) + f"{'RSS MB':>8}{'left':>6}")
    for row in rows:
        print(f"{row.tool:<16}{_cells(row)}  {row.note}", flush=True)


def _cells(row: ToolRow) -> str:
    if row.use is None:
        return f"{'n/a':>8}{'':46}"
    *times, rss = attrs.astuple(row.use)
    left = "" if row.survivors is None else row.survivors
    return "".join(f"{seconds:>8.3f}" for seconds in times) + f"{rss / 1e6:>8.0f}{left:>6}"
