"""Operations of drivers with hosts that do not run attempts, for :mod:`benchmarks.cluster`.

Each function runs in a fresh process, with its own engine: Ray, with the cluster named by
``RAY_ADDRESS``, or the local engine, whose hosts are processes behind a socket.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.measure import peak_resident_bytes, reset_peak, watch
from clawblox.experiment.cluster.calls import HostCaller
from clawblox.experiment.cluster.chunks import receive_file
from clawblox.experiment.cluster.engine import Engine
from clawblox.experiment.cluster.host import AttemptHost
from clawblox.experiment.cluster.lease import Renewer
from clawblox.experiment.cluster.messages import Reply
from clawblox.experiment.cluster.remote_attempt import call_host
from clawblox.experiment.plan.cluster import Cluster
from clawblox.system.files import digest_file
from tests.experiment.cluster import local_engine

__all__ = ["EchoHost", "call_often", "pull", "pull_floor", "serve", "start_floor", "start_hosts"]

LEASE_S: Final = 30.0
_SMALL: Final = Cluster(cpus=0.01, lease=LEASE_S)
_BOOT: Final = "from benchmarks.cluster_hosts import serve; serve()"
_WARM_UP_S: Final = 0.5
_BLOCK_BYTES: Final = 1 << 20
_SEND: Final = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
source = open(sys.argv[2], "rb")
connection.recv(1)
buffer = memoryview(bytearray(1 << 20))
for _ in range(int(sys.argv[3])):
    source.seek(0)
    while count := source.readinto(buffer):
        connection.sendall(buffer[:count])
"""
_IMPORTS: Final = {
    "ray": "import ray; from clawblox.experiment.cluster import host",
    "local": "from clawblox.experiment.cluster import host",
}


class EchoHost(AttemptHost):
    """A host that also echoes calls, and creates files for reading."""

    async def _reply(self, name: str, arguments: tuple[Any, ...]) -> Reply:
        if name not in ("echo", "make_files"):
            return await super()._reply(name, arguments)
        return Reply(value=getattr(self, f"_{name}")(*arguments))

    def _echo(self, data: bytes) -> bytes:
        return data

    def _make_files(self, count: int, size: int) -> tuple[str, list[str]]:
        """Return the digest and the names of the files, which have the same bytes."""
        paths = [self._files.place / f"file{number}" for number in range(count)]
        for path in paths:
            write_file(path, size)
            self._files.give(path)
        return digest_file(paths[0]), [path.name for path in paths]


def write_file(path: Path, size: int) -> None:
    """Write a file of incompressible bytes, the same each time."""
    block = bytes((number * number * 31 + (number >> 8) * 17) & 255 for number in range(1 << 16))
    block *= _BLOCK_BYTES // len(block)
    with path.open("wb") as file:
        for offset in range(0, size, _BLOCK_BYTES):
            file.write(block[: min(_BLOCK_BYTES, size - offset)])


def serve() -> None:
    """Run a host of the local engine."""
    local_engine.Host = EchoHost  # type: ignore[attr-defined,misc]
    local_engine.main()


@contextmanager
def connect(kind: str) -> Iterator[Engine]:
    """Connect to Ray or to this machine; at the end, end all hosts."""
    if kind == "ray":
        from clawblox.experiment.cluster.ray_engine import RayEngine

        engine: Engine = RayEngine("auto", partial(EchoHost, LEASE_S))
    else:
        local_engine._BOOT = _BOOT  # type: ignore[misc]
        engine = local_engine.LocalEngine({"here": 64})
    try:
        yield engine
    finally:
        engine.close()


@asynccontextmanager
async def host(engine: Engine) -> AsyncIterator[HostCaller]:
    """Run a host that has answered once."""
    handle = engine.start_host(_SMALL)
    renewer = Renewer(handle, LEASE_S)
    renewer.start()
    try:
        caller = HostCaller(handle, renewer)
        await call_host(caller, "describe")
        yield caller
    finally:
        renewer.stop()
        handle.end()


# -- calls ---------------------------------------------------------------------------------------


async def call_often(kind: str, size: int, callers: int, seconds: float) -> dict[str, float]:
    """Let callers call one host in closed loops, with the same bytes in both directions.

    Returns:
        Calls per second, their median and 99th percentile in ms, and the processor time of this
        process per call in ms.
    """
    data, taken = os.urandom(size), [0.0]
    with connect(kind) as engine:
        async with host(engine) as caller:

            async def loop(until: float) -> None:
                while time.monotonic() < until:
                    begun_at = time.perf_counter()
                    await call_host(caller, "echo", data)
                    taken.append(time.perf_counter() - begun_at)

            async def loop_all(length_s: float) -> None:
                taken.clear()
                async with anyio.create_task_group() as tasks:
                    for _ in range(callers):
                        tasks.start_soon(loop, time.monotonic() + length_s)

            await loop_all(_WARM_UP_S)
            begun_at, cpu = time.monotonic(), time.process_time()
            await loop_all(seconds)
            elapsed_s, cpu = time.monotonic() - begun_at, time.process_time() - cpu
    percentiles = statistics.quantiles(taken, n=100)
    return {
        "calls_per_s": len(taken) / elapsed_s,
        "p50_ms": 1e3 * percentiles[49],
        "p99_ms": 1e3 * percentiles[98],
        "cpu_ms": 1e3 * cpu / len(taken),
    }


# -- starts --------------------------------------------------------------------------------------


async def start_hosts(kind: str, count: int) -> dict[str, float]:
    """Start hosts concurrently.

    Returns:
        Seconds to connect, and seconds until all of them have answered.
    """
    begun_at = time.monotonic()
    with connect(kind) as engine:
        connected_at = time.monotonic()

        async def start() -> None:
            async with host(engine):
                has_answered.append(time.monotonic())
                await are_up.wait()

        has_answered: list[float] = []
        are_up = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(start)
            while len(has_answered) < count:
                await anyio.sleep(0.005)
            are_up.set()
    return {"connect_s": connected_at - begun_at, "start_s": max(has_answered) - connected_at}


def start_floor(kind: str, count: int) -> dict[str, float]:
    """Start the same number of interpreters concurrently, with the imports of a host.

    Returns:
        Seconds until all of them have ended.
    """
    begun_at = time.monotonic()
    processes = [subprocess.Popen([sys.executable, "-c", _IMPORTS[kind]]) for _ in range(count)]
    for process in processes:
        process.wait()
    return {"start_s": time.monotonic() - begun_at}


# -- files ---------------------------------------------------------------------------------------


async def pull(kind: str, hosts: int, count: int, size: int, directory: str) -> dict[str, float]:
    """Transfer files from hosts to this process, one file after the other per host.

    Args:
        kind: The engine.
        hosts: Number of hosts that send files concurrently.
        count: Number of files per host.
        size: Size of each file in bytes.
        directory: Directory for the received files.

    Returns:
        Seconds for all files, and the growth of this process's memory in bytes: its peak, and the
        peak of its private memory.
    """
    targets = _make_targets(hosts, directory)
    with connect(kind) as engine:
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(host(engine)) for _ in range(hosts)]
            for caller, target in zip(callers, targets, strict=True):
                first = await call_host(caller, "make_files", 1, 1 << 20)
                await _pull_files(caller, target, 1 << 20, *first)  # one-time cost of the first
            given = [await call_host(caller, "make_files", count, size) for caller in callers]
            reset_peak()
            before = peak_resident_bytes()
            async with watch() as seen:
                begun_at = time.monotonic()
                async with anyio.create_task_group() as tasks:
                    for caller, target, files in zip(callers, targets, given, strict=True):
                        tasks.start_soon(_pull_files, caller, target, size, *files)
                elapsed_s = time.monotonic() - begun_at
            peak = peak_resident_bytes() - before
    return {"s": elapsed_s, "peak_bytes": peak, "private_bytes": seen.private_bytes}


async def _pull_files(
    caller: HostCaller, target: Path, size: int, sha256: str, names: Sequence[str]
) -> None:
    for name in names:
        read = partial(call_host, caller, "read", name)
        await receive_file(size, sha256, read, target / name)


def pull_floor(hosts: int, count: int, size: int, directory: str) -> float:
    """Transfer the same files over a bare TCP connection per host; return the seconds.

    Each connection has a process that reads the files, and a thread that writes and syncs them,
    without digests.
    """
    targets = _make_targets(hosts, directory)
    senders = []
    for target in targets:
        source = target / "source"
        write_file(source, size)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            words = [sys.executable, "-c", _SEND, str(listener.getsockname()[1])]
            process = subprocess.Popen([*words, str(source), str(count)])
            senders.append((process, listener.accept()[0]))
    with ThreadPoolExecutor(hosts) as pool:
        begun_at = time.monotonic()
        for (_, ours), target in zip(senders, targets, strict=True):
            pool.submit(_write_files, ours, target, count, size)
        pool.shutdown()
        elapsed_s = time.monotonic() - begun_at
    for process, ours in senders:
        process.wait()
        ours.close()
    return elapsed_s


def _write_files(source: socket.socket, target: Path, count: int, size: int) -> None:
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    source.sendall(b".")
    for number in range(count):
        with (target / f"file{number}").open("wb", buffering=0) as file:
            left = size
            while left:
                received = source.recv_into(buffer[: min(left, _BLOCK_BYTES)])
                file.write(buffer[:received])
                left -= received
            os.fsync(file.fileno())


def _make_targets(hosts: int, directory: str) -> list[Path]:
    targets = [Path(directory) / f"host{number}" for number in range(hosts)]
    for target in targets:
        target.mkdir()
    return targets
