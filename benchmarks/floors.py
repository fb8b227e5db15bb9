"""The floors: the cost of the same work without an orchestrator.

Worlds are spawned, awaited and ended with plain system calls, and snapshots go from plain blocking
sockets to fsynced files, without digest, check or manifest.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.worlds import HOST, Readiness, WorldSpec, kill

__all__ = ["end", "save_floor", "spawn", "start_floor"]

_BUFFER_BYTES = 1 << 20
_REQUEST = b"GET /snapshot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
_SILENT = [
    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    (os.POSIX_SPAWN_DUP2, 1, 2),
]


def start_floor(specs: Sequence[WorldSpec], readiness: Readiness) -> tuple[float, float]:
    """Start worlds, wait until each reports that it is listening, and stop them.

    Returns:
        Seconds until all were ready, and seconds until all had stopped.
    """
    begun = time.monotonic()
    pids = spawn(specs)
    try:
        readiness.wait(len(pids))
        ready = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        while pids:
            os.waitpid(pids[-1], 0)
            pids.pop()
        return ready - begun, time.monotonic() - ready
    finally:
        end(pids)


def spawn(specs: Sequence[WorldSpec]) -> list[int]:
    """Start worlds with plain ``posix_spawn``; return their process ids."""
    pids: list[int] = []
    try:
        for spec in specs:
            program, env = spec.command[0], {**os.environ, **spec.env}
            pid = os.posix_spawn(program, spec.command, env, file_actions=_SILENT, setsid=True)
            pids.append(pid)
    except BaseException:
        end(pids)
        raise
    return pids


def end(pids: Sequence[int]) -> None:
    """Kill child processes and wait for their end."""
    for pid in pids:
        kill(pid)
        os.waitpid(pid, 0)


def save_floor(ports: Sequence[int], directory: str, threads: int) -> float:
    """Save a snapshot of every port into ``directory``; return the duration in seconds.

    Args:
        ports: Ports of the worlds.
        directory: Directory for the files, which are removed afterwards.
        threads: Number of concurrent transfers.
    """
    targets = [Path(directory) / f"floor-{port}" for port in ports]
    with ThreadPoolExecutor(threads) as pool:
        begun = time.monotonic()
        list(pool.map(_save, ports, targets))
        elapsed = time.monotonic() - begun
    for target in targets:
        target.unlink()
    return elapsed


def _save(port: int, path: Path) -> None:
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(_REQUEST)
        while count := connection.recv_into(buffer):
            os.write(target, buffer[:count])
    os.fsync(target)
    os.close(target)
