"""Cost of an experiment: its orchestrator, its return after SIGKILL, its journal and its forks.

    python -m benchmarks.experiments [--worlds 16] [--json FILE] [--quick]

* A process runs chains at the same time, each with a world and two agents that wait for messages;
  checkpoints are made meanwhile. Its processor time, and the messages and signals that checkpoints
  send to agents.
* The process is killed. The time until all agents work again is compared with the time of the
  first starts, by the same process in the same run.
* A journal of 100,000 lines is opened; the floor parses the same lines as JSON and does no more.
* Eight branches of a checkpoint with 100 MB of workspace are prepared; the floor copies the
  workspace as often, by ``cp -a``.
* 64 chains of 100 generations are run over fakes: lines a second, and memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio

from benchmarks.agents import write_program
from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, median, peak_resident_bytes, report, reset_peak
from benchmarks.worlds import write_world
from clawblox.experiment import AgentSpec, AsyncExperiment, Plan
from clawblox.experiment.history.checkpoints import Branch, Checkpoint
from clawblox.experiment.history.journal import JOURNAL_NAME, Journal, read_lines
from clawblox.experiment.history.lines import JournalLine, encode
from clawblox.experiment.history.machine import next_step
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.live.live_backend import LiveBackend

AGENTS: Final = 2
ENV: Final = {"ANTHROPIC_API_KEY": "not-a-key-of-anyone"}
LINES: Final = 100_000
BRANCHES: Final = 8
WORKSPACE_BYTES: Final = 100_000_000
_FILES: Final = 1_000
_CHECKPOINTS_S: Final = 5.0
_POLL_S: Final = 0.01
_DEADLINE_S: Final = 300.0
_SEED: Final = 20261127


def make_plan(scratch: Path, chains: int, template: Path | None = None) -> Plan:
    """Return a plan whose agents wait for messages after their first turn."""
    agents = [
        AgentSpec(
            "claude",
            binary=write_program(scratch),
            template=template,
            auto_continue=False,
            env=list(ENV),
        )
        for _ in range(AGENTS)
    ]
    return Plan(
        write_world(scratch / "world", "agents", run="reload = false"),
        agents,
        name="bench",
        repeats=chains,
        duration="1h",
        save=None,
        checkpoint={"every": _CHECKPOINTS_S, "idle_wait": 0.0},
        stop={"agents_ended": "never"},
        limits={"worlds": chains, "min_free": None},
    )


async def run_experiment(directory: str) -> None:
    """Run an experiment, as the target of the measured and killed process."""
    async with AsyncExperiment.open(directory, env=ENV) as experiment:
        await experiment.run()


# -- a process with many worlds ------------------------------------------------------------------


def bench_processes(scratch: Path, chains: int, seconds: float) -> list[Row]:
    """Measure the process that runs an experiment, kill it, and measure its return."""
    plan = make_plan(scratch, chains)
    directory = scratch / "experiment"
    anyio.run(begin, plan, directory)
    with orchestrate(directory) as process:
        started_s = wait_for(process, lambda: count(directory, "working") >= chains)
        wait_for(process, lambda: len(saved(directory)) >= chains)
        before, begun_at = len(saved(directory, distinct=False)), time.monotonic()
        cpu = cpu_seconds(process.pid)
        time.sleep(seconds)
        share = (cpu_seconds(process.pid) - cpu) / (time.monotonic() - begun_at)
        made = len(saved(directory, distinct=False)) - before
        messages = count_messages(directory) - chains * AGENTS
        signals = count_signals(directory)
    with orchestrate(directory) as process:
        returned_s = wait_for(process, lambda: count(directory, "working") >= 2 * chains)
    what = f"{chains} worlds with {AGENTS} agents each"
    return [
        Row(f"{what}: processor time with checkpoints", 100 * share, "%", note=f"{made} made"),
        Row(f"{what}: messages from checkpoints", messages, "", goal=0.0),
        Row(f"{what}: signals from checkpoints", signals, "", goal=0.0),
        Row(f"{what}: working after SIGKILL, against starts", returned_s, "s", started_s, 1.25),
    ]


def bench_idle(scratch: Path, chains: int, seconds: float) -> list[Row]:
    """Measure the idle process."""
    plan = make_plan(scratch, chains).but(checkpoint={"every": None})
    directory = scratch / "experiment"
    anyio.run(begin, plan, directory)
    with orchestrate(directory) as process:
        wait_for(process, lambda: count(directory, "working") >= chains)
        time.sleep(2.0)
        cpu, begun_at = cpu_seconds(process.pid), time.monotonic()
        time.sleep(seconds)
        share = (cpu_seconds(process.pid) - cpu) / (time.monotonic() - begun_at)
    what = f"{chains} worlds with {AGENTS} agents each: processor time while idle"
    return [Row(what, 100 * share, "%", goal=1.0)]


async def begin(plan: Plan, directory: Path) -> None:
    """Create an experiment in its directory, without running it."""
    async with AsyncExperiment(plan, dir=directory, env=ENV):
        pass


@contextmanager
def orchestrate(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run an experiment in a process, killed at the end."""
    words = [sys.executable, "-m", "benchmarks.experiments", "--orchestrate", str(directory)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def wait_for(process: subprocess.Popen[bytes], is_reached: Callable[[], bool]) -> float:
    """Return the seconds until a process has reached a condition."""
    begun_at = time.monotonic()
    while not is_reached():
        if process.poll() is not None:
            raise ChildProcessError
        if time.monotonic() - begun_at > _DEADLINE_S:
            raise TimeoutError
        time.sleep(_POLL_S)
    return time.monotonic() - begun_at


def count(directory: Path, kind: str) -> int:
    """Return the number of lines of a type in another process's journal."""
    return (directory / JOURNAL_NAME).read_bytes().count(b'"type": "%s"' % kind.encode())


def saved(directory: Path, *, distinct: bool = True) -> list[str]:
    """Return the chains of the checkpoints in a journal, optionally with repetitions."""
    chains = [str(line.chain) for line in read_lines(directory) if line.type == "checkpoint"]
    return sorted(set(chains)) if distinct else chains


def count_messages(directory: Path) -> int:
    """Return the number of messages that agents have received, from their transcripts."""
    return count_lines(directory, "projects/*/*.jsonl")


def count_signals(directory: Path) -> int:
    """Return the number of signals recorded by the programs of agents."""
    return count_lines(directory, "signals")


def count_lines(directory: Path, pattern: str) -> int:
    """Return the number of lines in some files of the private homes of all agents."""
    files = directory.glob(f"chains/*/runs/*/agents/*/**/{pattern}")
    return sum(path.read_bytes().count(b"\n") for path in files)


def cpu_seconds(pid: int) -> float:
    """Return the processor time used by a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- the journal ---------------------------------------------------------------------------------


def bench_journal(scratch: Path, lines: int, rounds: int) -> list[Row]:
    """Compare the opening of a long journal with parsing its lines."""
    write_journal(scratch, lines)
    taken = [call_in_fresh_process(open_journal, str(scratch)) for _ in range(rounds)]
    opened, parsed = (median(sample[name] for sample in taken) for name in ("open", "parse"))
    return [
        Row(f"opening a journal of {lines:,} lines", opened, "s", goal=1.0),
        Row(f"opening a journal of {lines:,} lines, against json.loads", opened, "s", parsed),
    ]


def write_journal(directory: Path, lines: int) -> None:
    """Write a journal with the length of that of a long experiment."""
    usage = [{"input_tokens": 10, "output_tokens": 500, "cost_usd": 0.1, "turns": 3}] * AGENTS
    texts = [
        JournalLine(
            seq=1, at=_at(1), type="experiment.begun", data={"plan": "plan.toml", "format": 1}
        )
    ]
    while len(texts) < lines:
        number = len(texts)
        chain, generation = f"r{number // 11 % 64}", 1 + number // 704
        place = {"chain": chain, "generation": generation, "attempt": f"bench-{chain}-{generation}"}
        for kind in ("opened", "prepared", "working", *["checkpoint"] * 6, "closing", "committed"):
            data = {
                "reason": "duration",
                "elapsed_s": 3600.0,
                "file": f"gen{generation:03}-t{len(texts):06}.ckpt",
                "sha256": "ab" * 32,
                "kind": "periodic",
                "usage": usage,
                "workspaces": [],
                "agents": [],
            }
            texts.append(JournalLine(seq=len(texts) + 1, at=_at(1), type=kind, data=data, **place))  # type: ignore[arg-type]
    (directory / JOURNAL_NAME).write_bytes(b"".join(map(encode, texts[:lines])))


def _at(seconds: int) -> str:
    return f"2026-06-22T18:59:{seconds:02}.000Z"


def open_journal(directory: str) -> dict[str, float]:
    """Open a journal and compute its state and next steps; parse its lines."""
    text = (Path(directory) / JOURNAL_NAME).read_bytes()
    agents = [AgentSpec("claude")] * AGENTS
    plan = Plan("world", agents, name="bench", repeats=64, generations=10_000)
    begun_at = time.process_time()
    with Journal(Path(directory)) as journal:
        plans = Plans([plan], ExperimentState(journal.lines))
        for chain in plans.chains.values():
            next_step(plans, chain)
    opened_at = time.process_time()
    for line in text.splitlines():
        json.loads(line)
    return {"open": opened_at - begun_at, "parse": time.process_time() - opened_at}


# -- forks ---------------------------------------------------------------------------------------


def bench_forks(scratch: Path, size: int) -> list[Row]:
    """Compare the preparation of branches with plain copies of their workspace."""
    template = scratch / "template"
    make_workspace(template, size)
    plan = make_plan(scratch, 1, template)
    plan = plan.but(agents=plan.agents[:1], duration=3.0, checkpoint={"every": None})
    directory = scratch / "experiment"
    taken = anyio.run(fork_often, plan, directory)
    begun_at = time.monotonic()
    for number in range(BRANCHES):
        subprocess.run(["cp", "-a", template, scratch / f"copy{number}"], check=True)
    copied = time.monotonic() - begun_at
    what = f"{BRANCHES} branches with {size / 1e6:g} MB of workspace, against cp -a"
    return [Row(what, taken, "s", copied)]


def make_workspace(template: Path, size: int) -> None:
    """Write incompressible files."""
    rng = random.Random(_SEED)
    for number in range(_FILES):
        path = template / f"part{number % 20:02}" / f"file{number:04}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(size // _FILES))


async def fork_often(plan: Plan, directory: Path) -> float:
    """Run a generation, prepare branches from its end, and return the preparation time."""
    async with AsyncExperiment(plan, dir=directory, env=ENV) as experiment:
        await experiment.run()
        source = experiment.find_checkpoint("r1/g001", "end")
    backend = LiveBackend(directory, "chains", ENV)
    begun_at = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for number in range(1, BRANCHES + 1):
            tasks.start_soon(backend.prepare, order_branch(plan, source, number))
    return time.monotonic() - begun_at


def order_branch(plan: Plan, source: Checkpoint, number: int) -> AttemptOrder:
    """Return the order for a branch of a checkpoint."""
    return AttemptOrder(
        chain=plan.chains()[0],
        generation=1,
        run_id=f"bench-r1-f1-{number}",
        origin=source.ref,
        branch=Branch(source=source.ref, group=1, number=number),
    )


# -- many chains over fakes ----------------------------------------------------------------------


def bench_fakes(chains: int, generations: int) -> list[Row]:
    """Measure the scheduler with fake worlds and agents."""
    taken = call_in_fresh_process(run_fakes, chains, generations, timeout=600.0)
    what = f"{chains} chains of {generations} generations over fakes"
    note = f"{taken['lines']:,.0f} lines"
    return [
        Row(f"{what}: processor time for a line", 1e6 * taken["cpu_s"] / taken["lines"], "µs"),
        Row(f"{what}: peak growth of memory", taken["bytes"] / 1e6, "MB", note=note),
    ]


def run_fakes(chains: int, generations: int) -> dict[str, float]:
    """Run an experiment with fakes, on a simulated clock."""
    from clawblox.experiment.schedule.callbacks import Callbacks
    from tests.experiment.fakes import make_plan as make_fake_plan
    from tests.experiment.histories import History, SessionScript

    limits = {"worlds": chains, "min_free": None}
    plan = make_fake_plan(generations=generations, repeats=chains, limits=limits)
    history = History(plan, Callbacks())
    before = peak_resident_bytes()
    reset_peak()
    begun_at = time.process_time()
    outcome = anyio.run(history.play, SessionScript())
    cpu_s = time.process_time() - begun_at
    kinds = Counter(line.type for line in history.journal.lines)
    assert outcome is not None
    assert kinds["committed"] == chains * generations
    grown = peak_resident_bytes() - before
    return {"cpu_s": cpu_s, "lines": len(history.journal.lines), "bytes": grown}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--only", choices=["processes", "idle", "journal", "forks", "fakes"])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="show that it works")
    parser.add_argument("--orchestrate", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.orchestrate is not None:
        anyio.run(run_experiment, options.orchestrate)
        return
    quick = options.quick
    worlds, seconds = (1, 1.0) if quick else (options.worlds, 20.0)
    benches: dict[str, Callable[[Path], list[Row]]] = {
        "processes": lambda scratch: bench_processes(scratch, worlds, seconds),
        "idle": lambda scratch: bench_idle(scratch, worlds, seconds),
        "journal": lambda scratch: bench_journal(
            scratch, 1000 if quick else LINES, 1 if quick else 3
        ),
        "forks": lambda scratch: bench_forks(scratch, WORKSPACE_BYTES // (100 if quick else 1)),
        "fakes": lambda _scratch: bench_fakes(*((2, 2) if quick else (64, 100))),
    }
    rows: list[Row] = []
    for name, bench in benches.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="clawblox-experiments-") as directory:
                rows += bench(Path(directory))
    report("experiments", rows, options.json)


if __name__ == "__main__":
    main()
