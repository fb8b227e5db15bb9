"""Cost of experiments on a cluster: calls, files, hosts, leases, and the cost without a cluster.

    python -m benchmarks.cluster [--only PART] [--json FILE] [--quick]

* **calls**: callers call one host in closed loops, through Ray and through the local engine, whose
  hosts are processes behind a socket.
* **files**: files of four hosts come to the driver in chunks, through Ray and through the local
  engine, with the same digests; the floor is a bare socket for each host, with as many synced files
  and no digests.
* **starts**: a host, and eight at once, until they answer; the floor starts as many interpreters
  that import what a host does.
* **attempts**: a driver of two and of eight attempts that wait for messages: its processor time,
  extrapolated to 64, and the memory of hosts and guards.
* **pause**: host, world, agents and guard are stopped for longer than their lease, and continued;
  the driver stays stopped. The guard itself stays for half a second, to look for latecomers.
* **before**: imports and the first start of a world without a cluster, against the last commit
  without clusters, from copies beside each other.

Where Ray is not installed, its rows say so. All nodes are this machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from benchmarks import cluster_hosts
from benchmarks.cluster_before import measure_before
from benchmarks.cluster_hosts import LEASE_S
from benchmarks.experiments import ENV, begin, count, cpu_seconds, make_plan, wait_for
from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, median, print_rows, take_rounds, write_json
from clawblox.experiment import AsyncExperiment
from clawblox.experiment.cluster import connect
from clawblox.experiment.cluster.scratch import SCRATCH_ENV
from clawblox.extras import find_missing
from clawblox.system.guard import GUARD_NAME
from tests.experiment.cluster.local_engine import LocalEngine
from tests.support.processes import (
    all_processes,
    command_line,
    descendants,
    is_alive,
    live_processes,
    processes_in,
)

_TITLE: Final = "experiments on a cluster"
_KB: Final = 1024
_MB: Final = 1 << 20
_MANY: Final = 64
_HOSTS: Final = 4
_PAUSED_LEASE_S: Final = 10.0
_DEADLINE_S: Final = 60.0
_NAMES: Final = {"ray": "Ray", "local": "socket"}
_NO_RAY: Final = "Ray is not installed"


@attrs.frozen
class Scale:
    """The extent of the measurements."""

    rounds: int = 3
    seconds: float = 3.0
    idle_s: float = 20.0
    callers: Sequence[int] = (1, 8, 64)
    transfers: Sequence[tuple[int, int]] = ((64, _MB), (4, 300 * _MB))
    at_once: Sequence[int] = (1, 8)
    attempts: Sequence[int] = (2, 8)
    import_rounds: int = 31


QUICK: Final = Scale(1, 0.5, 1.0, (1, 8), ((4, _MB),), (1,), (1, 2), 3)


@attrs.frozen
class Bench:
    """The environment of the measurements.

    Attributes:
        scale: The extent of the measurements.
        kinds: The available engines.
        address: Address of the Ray cluster; empty without Ray.
        directory: A directory in the command line of every driver and every raylet.
        env: Variables for the drivers.
    """

    scale: Scale
    kinds: Sequence[str]
    address: str
    directory: Path
    env: dict[str, str]

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function in a fresh process, which may connect to the cluster."""
        return call_in_fresh_process(function, *arguments, env=self.env)

    def without_ray(self, what: str) -> list[Row]:
        """Return a row that states why there are no figures for Ray, if Ray is missing."""
        return [] if "ray" in self.kinds else [Row(what, None, "", note=_NO_RAY)]


# -- calls ---------------------------------------------------------------------------------------


def bench_calls(bench: Bench, _scratch: Path) -> list[Row]:
    """Measure calls with 1 kB in each direction."""
    rows: list[Row] = []
    for callers in bench.scale.callers:
        what = f"calls of 1 kB, {callers} {'caller' if callers == 1 else 'callers'}"
        seconds = bench.scale.seconds
        call = partial(bench.call, cluster_hosts.call_often)
        takers = {kind: partial(call, kind, _KB, callers, seconds) for kind in bench.kinds}
        samples = take_rounds(bench.scale.rounds, takers)
        taken = {
            kind: {name: median(values) for name, values in found.items()}
            for kind, found in samples.items()
        }
        rows += _call_rows(what, taken, goal_ms=2.0 if callers == 1 else None)
    return [*rows, *bench.without_ray("calls of 1 kB through Ray")]


def _call_rows(what: str, taken: dict[str, dict[str, float]], goal_ms: float | None) -> list[Row]:
    local, ray = taken["local"], taken.get("ray")
    rows = [
        Row(f"{what}: {_NAMES[kind]}", found["calls_per_s"], "calls/s")
        for kind, found in taken.items()
    ]
    if ray is None:
        return [*rows, Row(f"{what}: median, socket", local["p50_ms"], "ms")]
    rows.append(Row(f"{what}: median", ray["p50_ms"], "ms", goal=goal_ms))
    for name, field in (("median", "p50_ms"), ("p99", "p99_ms"), ("driver's CPU", "cpu_ms")):
        rows.append(Row(f"{what}: {name}, against a socket", ray[field], "ms", local[field]))
    return rows


# -- files ---------------------------------------------------------------------------------------


def bench_files(bench: Bench, scratch: Path) -> list[Row]:
    """Measure the transfer of files to the driver."""
    rows: list[Row] = []
    for files, size in bench.scale.transfers:

        def take(kind: str, files: int = files, size: int = size) -> dict[str, float]:
            with tempfile.TemporaryDirectory(dir=scratch) as place:
                shape = (_HOSTS, files // _HOSTS, size, place)
                if kind == "floor":
                    return {"s": bench.call(cluster_hosts.pull_floor, *shape)}
                pulled: dict[str, float] = bench.call(cluster_hosts.pull, kind, *shape)
                return pulled

        takers = {kind: partial(take, kind) for kind in ("floor", *bench.kinds)}
        taken = take_rounds(bench.scale.rounds, takers)
        floor, local = (median(taken[kind]["s"]) for kind in ("floor", "local"))
        for kind in bench.kinds:
            what = f"{files} x {size // _MB} MB through {_NAMES[kind]}"
            seconds = median(taken[kind]["s"])
            peak, own = (max(taken[kind][name]) / 1e6 for name in ("peak_bytes", "private_bytes"))
            largest = 32.0 if kind == "ray" else None
            rows += [
                Row(f"{what}, against bare sockets", seconds, "s", floor),
                Row(f"{what}: peak growth of the driver's own memory", own, "MB", goal=largest),
                Row(f"{what}: peak growth, shared memory included", peak, "MB"),
            ]
            if kind == "ray":
                rows.append(Row(f"{what}, against a socket", seconds, "s", local, 2.0))
    return [*rows, *bench.without_ray("files through Ray")]


# -- starts --------------------------------------------------------------------------------------


def bench_starts(bench: Bench, _scratch: Path) -> list[Row]:
    """Measure starts of hosts."""
    rows: list[Row] = []
    for kind in bench.kinds:
        for at_once in bench.scale.at_once:
            takers = {
                "hosts": partial(bench.call, cluster_hosts.start_hosts, kind, at_once),
                "floor": partial(bench.call, cluster_hosts.start_floor, kind, at_once),
            }
            taken = take_rounds(bench.scale.rounds, takers)
            seconds, floor = (median(taken[name]["start_s"]) for name in ("hosts", "floor"))
            what = f"{at_once} {'host' if at_once == 1 else 'hosts at once'}, {_NAMES[kind]}: start"
            goal = 3.0 if (kind, at_once) == ("ray", 1) else None
            rows += [
                Row(what, seconds, "s", goal=goal),
                Row(f"{what}, against the imports of a host", seconds, "s", floor),
            ]
        if kind == "ray":
            rows.append(Row("connecting to Ray", median(taken["hosts"]["connect_s"]), "s"))
    return [*rows, *bench.without_ray("start of a host, Ray")]


# -- attempts ------------------------------------------------------------------------------------


async def drive(directory: str, kind: str) -> None:
    """Run an experiment on the nodes of an engine, as the target of the measured process."""
    if kind == "local":
        connect.connect = lambda cluster: LocalEngine({"here": _MANY})
    async with AsyncExperiment.open(directory, env=ENV) as experiment:
        await experiment.run()


@contextmanager
def attempts(
    bench: Bench, kind: str, chains: int, lease_s: float
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a driver whose agents wait for messages; at the end, kill it and its processes."""
    with tempfile.TemporaryDirectory(dir=bench.directory) as place:
        table = {"address": bench.address or "auto", "cpus": 0.01, "lease": lease_s}
        plan = make_plan(Path(place), chains).but(checkpoint={"every": None}, cluster=table)
        directory = Path(place) / "experiment"
        anyio.run(begin, plan, directory)
        words = [sys.executable, "-m", "benchmarks.cluster", "--drive", str(directory), kind]
        with subprocess.Popen(words, env=bench.env, stdout=subprocess.DEVNULL) as driver:
            try:
                wait_for(driver, lambda: count(directory, "working") >= chains)
                yield driver
            finally:
                driver.kill()
                seconds_until_gone(find_hosts(bench.directory))


def find_hosts(directory: Path) -> dict[int, int]:
    """Return the guards of hosts, by the pids of the hosts.

    Args:
        directory: A directory named by the parents of the hosts, which are drivers or raylets.
    """
    lines = {pid: command_line(pid).split(" ") for pid in live_processes()}
    guards = {int(words[-2]): pid for pid, words in lines.items() if words[-3:-2] == [GUARD_NAME]}
    parents, processes = processes_in(directory), all_processes()
    return {
        pid: guard
        for pid, guard in guards.items()
        if pid in processes and processes[pid].parent in parents
    }


def seconds_until_gone(pids: Collection[int]) -> float:
    """Wait until some processes have ended, and return the seconds."""
    begun_at = time.monotonic()
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() - begun_at > _DEADLINE_S:
            raise TimeoutError
        time.sleep(0.002)
    return time.monotonic() - begun_at


def bench_attempts(bench: Bench, _scratch: Path) -> list[Row]:
    """Measure drivers with idle attempts, and the memory of their hosts."""
    rows: list[Row] = []
    for kind in bench.kinds:
        few, many = bench.scale.attempts
        shares: dict[int, float] = {}
        sizes: list[float] = []
        for chains in (few, many):
            with attempts(bench, kind, chains, LEASE_S) as driver:
                time.sleep(2.0)
                cpu, begun_at = cpu_seconds(driver.pid), time.monotonic()
                time.sleep(bench.scale.idle_s)
                share = (cpu_seconds(driver.pid) - cpu) / (time.monotonic() - begun_at)
                shares[chains] = 100 * share
                hosts = find_hosts(bench.directory)
                sizes = [median(map(proportional_mb, pids)) for pids in (hosts, hosts.values())]
                sizes.append(proportional_mb(driver.pid))
        each = (shares[many] - shares[few]) / (many - few)
        goals = (70.0, 8.0) if kind == "ray" else (None, None)
        name = _NAMES[kind]
        rows += [
            Row(f"memory (PSS) of a host with an attempt, {name}", sizes[0], "MB", goal=goals[0]),
            Row(f"memory (PSS) of its guard, {name}", sizes[1], "MB"),
            Row(f"memory (PSS) of the driver of {many}, {name}", sizes[2], "MB"),
            Row(f"driver of {few} idle attempts, {name}: CPU", shares[few], "%"),
            Row(f"driver of {many} idle attempts, {name}: CPU", shares[many], "%"),
            Row(
                f"driver of {_MANY} idle attempts, {name}, extrapolated: CPU",
                shares[many] + each * (_MANY - many),
                "%",
                goal=goals[1],
                note=f"from {few} and {many}",
            ),
        ]
    return [*rows, *bench.without_ray("memory of a host with an attempt, Ray")]


def proportional_mb(pid: int) -> float:
    """Return the proportional set size of a process, in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("Pss:"))
    return int(size) * 1024 / 1e6


# -- a paused node -------------------------------------------------------------------------------


def bench_pause(bench: Bench, _scratch: Path) -> list[Row]:
    """Measure when processes stopped for longer than their lease end after continuing."""
    rows: list[Row] = []
    for kind in bench.kinds:
        taken = []
        for _ in range(bench.scale.rounds):
            with attempts(bench, kind, 1, _PAUSED_LEASE_S) as driver:
                ((host, guard),) = find_hosts(bench.directory).items()
                node = [*filter(is_alive, (host, *descendants(host)))]
                for pid in (driver.pid, *node, guard):  # the driver would end the host with force
                    os.kill(pid, signal.SIGSTOP)
                try:
                    time.sleep(_PAUSED_LEASE_S + 1.0)
                    assert all(map(is_alive, node))
                finally:
                    for pid in (*node, guard):
                        os.kill(pid, signal.SIGCONT)
                taken.append(seconds_until_gone(node))
        what = f"paused node, {_NAMES[kind]}: from SIGCONT until nothing is left"
        rows.append(
            Row(
                what,
                max(taken),
                "s",
                goal=0.3,
                note=f"worst of {len(taken)}, {len(node)} processes",
            )
        )
    return [*rows, *bench.without_ray("paused, Ray")]


# -- all of it -----------------------------------------------------------------------------------

_BENCHES: Final[dict[str, Callable[[Bench, Path], list[Row]]]] = {
    "calls": bench_calls,
    "files": bench_files,
    "starts": bench_starts,
    "attempts": bench_attempts,
    "pause": bench_pause,
    "before": lambda bench, scratch: measure_before(scratch, bench.scale.import_rounds),
}


@contextmanager
def prepare(scale: Scale) -> Iterator[Bench]:
    """Run a Ray cluster if Ray is installed, and yield the environment of the parts."""
    if find_missing("ray"):
        with tempfile.TemporaryDirectory(prefix="clawblox-cluster-") as place:
            yield Bench(scale, ("local",), "", Path(place), {**os.environ, **_scratch(place)})
        return
    from tests.experiment.cluster.ray_clusters import TOKEN, ray_cluster

    with ray_cluster({"num_cpus": 2}, env=TOKEN) as cluster:
        own = {**cluster.env, **TOKEN, "RAY_ADDRESS": cluster.address}
        env = {**os.environ, **own, **_scratch(cluster.directory)}
        yield Bench(scale, ("local", "ray"), cluster.address, cluster.directory, env)


def _scratch(directory: str | Path) -> dict[str, str]:
    place = Path(directory) / "hosts"
    place.mkdir()
    return {"TMPDIR": str(directory), SCRATCH_ENV: str(place)}


def main() -> None:
    """Measure, print the targets, and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=list(_BENCHES))
    parser.add_argument("--rounds", type=int, default=Scale().rounds)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="show that it works")
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive is not None:
        anyio.run(drive, *options.drive)
        return
    rows: list[Row] = []
    scale = QUICK if options.quick else Scale(options.rounds)
    with prepare(scale) as bench:
        for name, measure in _BENCHES.items():
            if options.only in (None, name):
                with tempfile.TemporaryDirectory(prefix="clawblox-cluster-") as scratch:
                    before = os.getloadavg()[0]
                    rows += measure(bench, Path(scratch))
                    after, note = os.getloadavg()[0], f"{before:.1f} before"
                    rows.append(Row(f"load of the machine after: {name}", after, "", note=note))
                if options.json:  # even if a later part fails
                    write_json(options.json, _TITLE, rows)
    print_rows(_TITLE, rows)
    print_checks(rows)


def print_checks(rows: Sequence[Row]) -> None:
    """Print whether each target is met."""
    for row in rows:
        if row.goal is not None:
            print(f"{'met' if row.is_reached else 'missed':<6}  {row.what}")


if __name__ == "__main__":
    main()
