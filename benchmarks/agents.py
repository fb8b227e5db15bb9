"""Cost of agents for their orchestrator: starts, idle time and output.

    python -m benchmarks.agents [--rounds 5] [--json FILE] [--quick]

The agents' program is a stand-in with the output of Claude Code (``stand_in_agent``), to measure
only the processor time and memory of the orchestrator, with a fresh process per case. The floor of
a start is the spawn of the same program with ``subprocess``.
"""

from __future__ import annotations

import argparse
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import anyio

from benchmarks import stand_in_agent
from benchmarks.agent_proxy import REQUESTS, bench_proxy, make_rows
from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, median, report, resident_bytes
from clawblox import AsyncAgent

GOAL_LINE_US: Final = {1: 50.0, 16: 20.0, 64: 15.0}
"""Processor time per line, by number of agents: 5 % of a core for one, a core for 64."""

COUNTS: Final = tuple(GOAL_LINE_US)
LINES_PER_S: Final = 1000
IDLE_AGENTS: Final = 16
KEY: Final = {"ANTHROPIC_API_KEY": "not-a-key"}
_SETTLE_S = 1.0


def bench_starts(scratch: Path, rounds: int) -> list[Row]:
    """Compare the start of an agent with the spawn of its program, up to the first answer."""
    program = write_program(scratch)
    taken = [
        call_in_fresh_process(take_starts, str(program), str(scratch / f"starts-{number}"))
        for number in range(rounds)
    ]
    value, floor = (1000 * median(each[name] for each in taken) for name in ("agent", "spawn"))
    return [Row("start of an agent, against its program's spawn", value, "ms", floor=floor)]


async def take_starts(program: str, scratch: str) -> dict[str, float]:
    """Start an agent, and spawn its program, up to the answer to a message."""
    async with make_agent(program, f"{scratch}-first") as warm:
        await warm.start(initial_prompt="Begin", env=KEY)
    begun = time.monotonic()
    async with make_agent(program, scratch) as agent:
        await agent.start(initial_prompt="Begin", env=KEY)
        taken = time.monotonic() - begun
    return {"agent": taken, "spawn": await anyio.to_thread.run_sync(_spawn, program, scratch)}


def _spawn(program: str, scratch: str) -> float:
    begun = time.monotonic()
    with subprocess.Popen(
        [program, "--session-id", "s"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"CLAUDE_CONFIG_DIR": f"{scratch}-spawn", "PATH": "/usr/bin:/bin"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"type": "user"}\n')
        process.stdin.flush()
        process.stdout.readline()
        taken = time.monotonic() - begun
        process.communicate()
        return taken


def bench_idle(scratch: Path, seconds: float) -> list[Row]:
    """Measure agents whose program waits for a message."""
    program = write_program(scratch)
    taken = call_in_fresh_process(
        take_load, str(program), str(scratch / "idle"), IDLE_AGENTS, 0, seconds
    )
    share = 100 * taken["cpu_share"] / IDLE_AGENTS
    each = taken["rss_bytes"] / IDLE_AGENTS / 1024
    return [
        Row(f"{IDLE_AGENTS} idle agents: share of a core each", share, "%", goal=1.0),
        Row(f"{IDLE_AGENTS} idle agents: RSS each", each, "KiB"),
    ]


def bench_output(scratch: Path, counts: tuple[int, ...], seconds: float) -> list[Row]:
    """Measure agents with endlessly writing programs."""
    program = write_program(scratch)
    rows: list[Row] = []
    for count in counts:
        run_dir = str(scratch / f"output-{count}")
        taken = call_in_fresh_process(
            take_load, str(program), run_dir, count, LINES_PER_S, seconds, timeout=600.0
        )
        what = f"{count} x {LINES_PER_S} lines/s"
        cost = 1e6 * taken["cpu_share"] / (taken["lines_per_s"] or 1)
        note = f"{taken['lines_per_s']:,.0f} lines/s"
        goal = GOAL_LINE_US[count]
        rows.append(Row(f"{what}: CPU for a line", cost, "µs", goal=goal, note=note))
        rows.append(Row(f"{what}: share of a core", 100 * taken["cpu_share"], "%"))
        rows.append(Row(f"{what}: RSS in all", taken["rss_bytes"] / 2**20, "MiB"))
    return rows


async def take_load(
    program: str, run_dir: str, count: int, rate: int, seconds: float
) -> dict[str, float]:
    """Run agents that write ``rate`` lines per second, for some seconds."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(make_agent(program, f"{run_dir}/first"))
        await first.start(initial_prompt="Begin", env=KEY)
        await first.stop()
        rss = resident_bytes()
        agents = [
            await stack.enter_async_context(make_agent(program, f"{run_dir}/{number}"))
            for number in range(count)
        ]
        for agent in agents:
            await agent.start(initial_prompt=f"lines={rate}" if rate else "Begin", env=KEY)
        await anyio.sleep(_SETTLE_S)
        logs = [Path(agent.dir, "logs", "agent.log") for agent in agents]
        written = sum(log.stat().st_size for log in logs)
        cpu, begun = time.process_time(), time.monotonic()
        await anyio.sleep(seconds)
        lasted = time.monotonic() - begun
        grown = sum(log.stat().st_size for log in logs) - written
        line = len(stand_in_agent._assistant("0" * 36, "x" * 160))
        return {
            "cpu_share": (time.process_time() - cpu) / lasted,
            "rss_bytes": resident_bytes() - rss,
            "lines_per_s": grown / line / lasted,
        }


def make_agent(program: str, directory: str) -> AsyncAgent:
    """Return an agent whose program is the stand-in, idle after each turn."""
    return AsyncAgent(
        agent="claude",
        name=Path(directory).name,
        dir=directory,
        binary=program,
        auto_continue=False,
    )


def write_program(scratch: Path) -> Path:
    """Write the executable of the stand-in, which starts fast."""
    path = scratch / "claude"
    source = Path(stand_in_agent.__file__).read_text()
    path.write_text(f"#!{sys.executable} -IS\n{source}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="starts that are measured")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="show that it works")
    options = parser.parse_args()
    rounds, seconds = (1, 1.0) if options.quick else (options.rounds, 20.0)
    counts, requests = (COUNTS[:1], 64) if options.quick else (COUNTS, REQUESTS)
    with tempfile.TemporaryDirectory(prefix="clawblox-agents-") as directory:
        scratch = Path(directory)
        rows = [
            *bench_starts(scratch, rounds),
            *bench_idle(scratch, seconds),
            *bench_output(scratch, counts, seconds),
            *make_rows(bench_proxy(scratch, rounds=rounds, requests=requests)),
        ]
    report("supervised agents", rows, options.json)


if __name__ == "__main__":
    main()
