"""Cost of clawblox for one world: start, calls and saves, compared to their floors in one run.

    python -m benchmarks.one_world [--rounds 15] [--json FILE] [--quick]

Floors: ``posix_spawn`` of the same world and a blocking read of its readiness pipe; the same
request over a raw blocking socket; the same body read from a blocking socket, written and
fsynced, without digest, check or manifest. Rounds of floor and clawblox alternate, and medians
are compared, so a slowdown of the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import anyio

from benchmarks.measure import Row, median, report, watch
from benchmarks.worlds import HOST, PROGRAMS, free_ports
from clawblox import AsyncWorld, World

WORLD = PROGRAMS["light"]
CALLS = 200
SIZES = ((1, 1), (50, 3), (300, 5))


def write_world(directory: Path) -> Path:
    """Write the world directory and return it."""
    directory.mkdir()
    command = json.dumps(WORLD)
    (directory / "world.toml").write_text(f'name = "light"\n[run]\ncommand = {command}\n')
    return directory


def write_snapshot(path: Path, megabytes: int, *, keys_first: bool) -> None:
    """Write a JSON snapshot of about this size, with ``format`` and ``time`` first or last."""
    head = '"format": "bench-v1", "time": 1.5'
    row = json.dumps([0.123456789, -1.5, 42, "body-17"]) + ","
    rows = row * (megabytes * 1_000_000 // len(row))
    body = f'"rows": [{rows}0]'
    path.write_text("{" + (f"{head}, {body}" if keys_first else f"{body}, {head}") + "}")


# ------------------------------------------------------------------------------------ floors


def floor_start() -> float:
    """Spawn the world and wait for its report that it listens; return seconds."""
    (port,) = free_ports(1)
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    env = {"WORLD_HOST": HOST, "WORLD_PORT": str(port), "BENCH_READY": str(write_end)}
    begun = time.monotonic()
    pid = os.posix_spawn(WORLD[0], WORLD, env, setsid=True)
    os.close(write_end)
    os.read(read_end, 64)
    elapsed = time.monotonic() - begun
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(read_end)
    return elapsed


def floor_call(connection: socket.socket) -> float:
    """Send a join over an open blocking socket and read the answer; return seconds."""
    begun = time.monotonic()
    connection.sendall(b"POST /join?name=Rocky HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    connection.recv(65536)
    return time.monotonic() - begun


def floor_save(port: int, directory: Path) -> float:
    """Read a snapshot from a blocking socket into an fsynced file; return seconds."""
    buffer = bytearray(1 << 20)
    begun = time.monotonic()
    target = os.open(directory / "floor", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(b"GET /snapshot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while count := connection.recv_into(buffer):
            os.write(target, memoryview(buffer)[:count])
    os.fsync(target)
    os.close(target)
    elapsed = time.monotonic() - begun
    (directory / "floor").unlink()
    return elapsed


# -------------------------------------------------------------------------------- benchmarks


async def bench_start(world_dir: Path, scratch: Path, rounds: int) -> list[Row]:
    """Measure starts and stops."""
    floors, walls, latencies, cpus, stops = [], [], [], [], []
    ready_file = scratch / "ready"
    async with AsyncWorld(dir=world_dir) as world:
        for _ in range(rounds):
            floors.append(floor_start())
            cpu_before = time.process_time()
            begun = time.monotonic()
            await world.start(run_dir=scratch / "run", env={"BENCH_READY": str(ready_file)})
            returned = time.monotonic()
            cpus.append(time.process_time() - cpu_before)
            walls.append(returned - begun)
            latencies.append(returned - float(ready_file.read_text()))
            stops.append((await world.stop()).elapsed_s)
    return [
        Row("start: wall", 1e3 * median(walls), "ms", 1e3 * median(floors)),
        Row("start: return after the world is truly ready", 1e3 * median(latencies), "ms", goal=25),
        Row("start: orchestrator CPU", 1e3 * median(cpus), "ms"),
        Row("stop: wall", 1e3 * median(stops), "ms"),
    ]


async def bench_calls(world_dir: Path, scratch: Path) -> list[Row]:
    """Measure an async call to the world."""
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=scratch / "run")
        with socket.create_connection((HOST, started.port)) as connection:
            floors = [floor_call(connection) for _ in range(CALLS)]
        samples = []
        for _ in range(CALLS):
            begun = time.monotonic()
            await world.connect("Rocky")
            samples.append(time.monotonic() - begun)
    return [
        Row("connect: POST /join + manifest", 1e3 * median(samples), "ms", 1e3 * median(floors))
    ]


def bench_facade(world_dir: Path) -> list[Row]:
    """Measure the overhead of the sync facade for an empty call."""
    samples = []
    with World(dir=world_dir) as world:
        for _ in range(CALLS):
            begun = time.monotonic()
            world.stop()
            samples.append(time.monotonic() - begun)
    return [Row("World: a call that does nothing", 1e6 * median(samples), "µs", goal=500)]


async def bench_save(world_dir: Path, scratch: Path, megabytes: int, rounds: int) -> list[Row]:
    """Measure saves of one size with the keys first and last."""
    rows = []
    for keys_first in (True, False):
        source = scratch / "source.json"
        write_snapshot(source, megabytes, keys_first=keys_first)
        floors, walls, growths, lags = [], [], [], []
        async with AsyncWorld(dir=world_dir) as world:
            started = await world.start(
                run_dir=scratch / "run", env={"BENCH_SNAPSHOT": str(source)}
            )
            for _ in range(rounds):
                floors.append(floor_save(started.port, scratch))
                async with watch() as seen:
                    begun = time.monotonic()
                    saved = await world.save()
                    walls.append(time.monotonic() - begun)
                growths.append(seen.private_bytes)
                lags.append(seen.lag_s)
                assert saved["format"] == "bench-v1"
                saved["path"].unlink()
        order = "first" if keys_first else "last"
        name = f"save {megabytes} MB, keys {order}"
        rows += [
            Row(f"{name}: wall", 1e3 * median(walls), "ms", 1e3 * median(floors), goal=3.5),
            Row(f"{name}: private memory growth", median(growths) / 1e6, "MB", goal=32),
            Row(f"{name}: loop lag", 1e3 * median(lags), "ms"),
        ]
    return rows


async def run(rounds: int, sizes: Sequence[tuple[int, int]]) -> list[Row]:
    """Run everything.

    Args:
        rounds: Number of rounds for starts, and for saves of the first size.
        sizes: Snapshot sizes in megabytes, with the divisor for the number of rounds.
    """
    with tempfile.TemporaryDirectory(prefix="clawblox-bench-") as name:
        scratch = Path(name)
        world_dir = write_world(scratch / "light")
        rows = await bench_start(world_dir, scratch, rounds)
        rows += await bench_calls(world_dir, scratch)
        rows += await anyio.to_thread.run_sync(bench_facade, world_dir)
        for megabytes, share in sizes:
            rows += await bench_save(world_dir, scratch, megabytes, max(3, rounds // share))
    return rows


def main() -> None:
    """Parse the arguments, measure, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="starts, and saves of 1 MB")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    sizes = ((1, 1),) if options.quick else SIZES
    rows = anyio.run(run, 3 if options.quick else options.rounds, sizes)
    report("one world", rows, options.json)


if __name__ == "__main__":
    main()
