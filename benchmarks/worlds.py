"""The worlds that the benchmarks start, and their readiness reports.

Every world has ``BENCH_READY=<fifo>`` in its environment, and writes the monotonic time at which it
listens to that fifo, so the worlds report readiness instead of the measured tool. Processes with
this entry can be found and ended, regardless of the tool that started them. Only the standard
library is used, because this module is loaded into processes whose memory is compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = [
    "HOST",
    "PROGRAMS",
    "READY_ENV",
    "Readiness",
    "WorldSpec",
    "carriers",
    "end_carriers",
    "free_ports",
    "kill",
    "make_specs",
    "poll_until",
    "write_world",
]

HOST = "127.0.0.1"
READY_ENV = "BENCH_READY"

_STOP_S = "0.05"
"""Delay before a light world obeys TERM, in seconds."""

_PORTS = range(10_000, 20_000)
"""Ports that clawblox does not lease, below those of outgoing connections."""

_HERE = Path(__file__).parent
PROGRAMS = {
    "light": [sys.executable, "-I", "-S", str(_HERE / "light_world.py")],
    "heavy": [sys.executable, "-I", str(_HERE / "heavy_world.py")],
    "agents": [sys.executable, "-I", "-S", str(_HERE / "agents_world.py")],
}
"""The commands of the worlds, by kind."""


@dataclass(frozen=True)
class WorldSpec:
    """A world for a tool to run.

    Attributes:
        name: Its name.
        command: Program and arguments.
        port: Its port.
        env: Its environment variables.
    """

    name: str
    command: list[str]
    port: int
    env: dict[str, str]

    @property
    def url(self) -> str:
        """The route that answers 200 when the world serves."""
        return f"http://{HOST}:{self.port}/api.md"

    @classmethod
    def make(cls, kind: str, index: int, port: int, readiness: Readiness) -> WorldSpec:
        """Return the spec of the world with index ``index``."""
        env = {"WORLD_HOST": HOST, "WORLD_PORT": str(port), **readiness.env}
        return cls(f"w{index:03d}", PROGRAMS[kind], port, env)

    def to_json(self) -> str:
        """Return the spec as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> WorldSpec:
        """Return the spec from the result of :meth:`to_json`."""
        return cls(**json.loads(line))


def free_ports(count: int) -> list[int]:
    """Return currently free ports."""
    ports: list[int] = []
    first = os.getpid() * 331 % len(_PORTS)  # to avoid collisions of two benchmarks
    for port in (*_PORTS[first:], *_PORTS[:first]):
        if len(ports) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                ports.append(port)
    return ports


def make_specs(kind: str, count: int, readiness: Readiness) -> list[WorldSpec]:
    """Return specs of worlds of one kind, each with its own port."""
    return [
        WorldSpec.make(kind, index, port, readiness) for index, port in enumerate(free_ports(count))
    ]


def write_world(directory: Path, kind: str, *, run: str = "", more: str = "") -> Path:
    """Write a world directory and return it.

    Args:
        directory: The directory.
        kind: Key of its program in :data:`PROGRAMS`.
        run: Further lines of its ``[run]`` table.
        more: Further tables.
    """
    directory.mkdir()
    command = json.dumps(PROGRAMS[kind])
    text = f'name = "{kind}"\n[run]\ncommand = {command}\n{run}\n{more}\n'
    (directory / "world.toml").write_text(text)
    return directory


class Readiness:
    """The fifo to which every world writes when it listens.

    Args:
        directory: Directory for the fifo.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "ready"
        self.env = {READY_ENV: str(self.path), "BENCH_STOP_S": _STOP_S}
        os.mkfifo(self.path)
        # Open for writing too, so that it never ends.
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self._unread = b""

    def wait(self, count: int, timeout: float = 120.0) -> list[float]:
        """Wait until ``count`` worlds have reported that they listen; return the times.

        Raises:
            TimeoutError: The worlds did not report within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while self._unread.count(b"\n") < count:
            left = deadline - time.monotonic()
            if not select.select([self._fd], [], [], max(0.0, left))[0]:
                raise TimeoutError(f"not all of {count} worlds listened in {timeout:g} s")
            self._unread += os.read(self._fd, 1 << 16)
        *lines, self._unread = self._unread.split(b"\n", count)
        return [float(line) for line in lines]

    def carriers(self) -> list[int]:
        """Return the process ids of running worlds."""
        return carriers(self.env)

    def end_carriers(self) -> None:
        """Kill the running worlds, and drop their reports.

        Raises:
            TimeoutError: One survived even that.
        """
        end_carriers(self.env)
        while select.select([self._fd], [], [], 0)[0]:
            os.read(self._fd, 1 << 16)
        self._unread = b""

    def close(self) -> None:
        """End the worlds and remove the fifo."""
        try:
            self.end_carriers()
        finally:
            os.close(self._fd)
            self.path.unlink()


def carriers(env: Mapping[str, str]) -> list[int]:
    """Return the processes with these entries in their environment."""
    entries = {f"{name}={value}".encode() for name, value in env.items()}
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if entries <= _environment(pid)]


def end_carriers(env: Mapping[str, str]) -> None:
    """Kill the processes with these entries in their environment.

    Raises:
        TimeoutError: One survived even that.
    """

    def kill_all() -> bool:
        found = carriers(env)
        for pid in found:
            kill(pid)
        return not found

    poll_until(kill_all, timeout=10.0)


def kill(pid: int) -> None:
    """Kill a process unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def poll_until(condition: Callable[[], bool], timeout: float) -> float:
    """Check a condition every 10 ms until it holds; return the duration in seconds.

    Raises:
        TimeoutError: The condition did not hold within ``timeout`` seconds.
    """
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > timeout:
            raise TimeoutError(f"not within {timeout:g} s: {condition}")
        time.sleep(0.01)
    return time.monotonic() - begun


def _environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:  # it has ended, or belongs to another user
        return set()
