"""Worlds as separate processes: memory, CPU, round trips, and the tick rate of many worlds."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.engine_ticks import SCENE
from benchmarks.worlds import HOST, free_ports

__all__ = [
    "ENGINE",
    "SCENE_PROGRAM",
    "Served",
    "measure_crowd",
    "measure_idle",
    "measure_trips",
    "serve_on_first_core",
]

_ROOT: Final = Path(__file__).parent.parent
_READY_S: Final = 30.0
ENGINE: Final = [sys.executable, "-m", "clawblox.engine", "--datastore", "none"]
SCENE_PROGRAM: Final = [*ENGINE, SCENE.name]
_PROGRAMS: Final = {
    "engine": [*ENGINE, "workshop"],
    "mujoco": [sys.executable, "mujoco_carts/world.py", "--clock", "realtime"],
    "asyncio": [sys.executable, "-m", "benchmarks.engine_floor"],
}
_INPUTS: Final[dict[str, Any]] = {
    "engine": {"type": "MoveTo", "data": {"position": [5, 0, 5]}},
    "mujoco": {"type": "Push", "data": {"force": 1.0}},
    "asyncio": {"type": "MoveTo", "data": {"position": [5, 0, 5]}},
}


class Served:
    """A serving world, and a connection to it.

    Attributes:
        pid: Its process id.
        port: Its port.
    """

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port
        self._connection = http.client.HTTPConnection(HOST, port, timeout=_READY_S)
        self._headers = {"Content-Type": "application/json"}

    def wait(self) -> None:
        """Wait until the world answers, and join."""
        give_up = time.monotonic() + _READY_S
        while True:
            try:
                session = self.join("Bench")
                break
            except OSError:
                self.close()
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.05)
        self._headers["X-Session"] = session

    def join(self, name: str) -> str:
        """Join another agent and return its session."""
        without_session = {"Content-Type": self._headers["Content-Type"]}
        joined = self._send("POST", f"/join?name={name}", None, without_session)
        return str(joined["session"])

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the answer.

        Raises:
            RuntimeError: The world refuses the request.
        """
        return self._send(method, path, body, self._headers)

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, path, sent, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != http.client.OK:
            raise RuntimeError(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def cpu_s(self) -> float:
        """Return the CPU time used by the world."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        """Return the resident memory of the world."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def _serve(command: list[str], directory: Path, port: int | None = None) -> Iterator[Served]:
    port = free_ports(1)[0] if port is None else port
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=directory,
        env=environment,
        stdout=subprocess.DEVNULL,
    ) as process:
        served = Served(process.pid, port)
        try:
            yield served
        finally:
            served.close()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_READY_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def _copied_examples() -> Iterator[Path]:
    """Yield a writable directory with copies of the examples."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "examples"
        shutil.copytree(_ROOT / "examples", copy)
        shutil.copytree(SCENE, copy / SCENE.name)
        yield copy


@contextmanager
def serve_on_first_core(commands: Sequence[list[str]]) -> Iterator[list[Served]]:
    """Serve worlds on the first core, with an agent each, and this process on the others.

    The programs run in the directory with the examples and the scene.
    """
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        examples = stack.enter_context(_copied_examples())
        stack.callback(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, cores[:1])
        ports = free_ports(len(commands))
        worlds = [
            stack.enter_context(_serve(command, examples, port))
            for command, port in zip(commands, ports, strict=True)
        ]
        os.sched_setaffinity(0, cores[1:] or cores)
        for world in worlds:
            world.wait()
        yield worlds


def measure_idle(kind: str, seconds: float) -> dict[str, float]:
    """Return the share of a core and the memory of a world after an agent has joined and left."""
    with _copied_examples() as examples, _serve(_PROGRAMS[kind], examples) as world:
        world.wait()
        if kind != "asyncio":
            world.ask("POST", "/leave")
        time.sleep(0.5)
        before, begun = world.cpu_s(), time.monotonic()
        time.sleep(seconds)
        share = (world.cpu_s() - before) / (time.monotonic() - begun)
        return {"percent": 100 * share, "mib": world.rss_mib()}


def measure_trips(kind: str, times: int) -> dict[str, float]:
    """Return the time of an observation and an input over a persistent connection, in ms."""
    with _copied_examples() as examples, _serve(_PROGRAMS[kind], examples) as world:
        world.wait()
        return {
            "observe": _median_trip(times, lambda: world.ask("GET", "/observe")),
            "input": _median_trip(times, lambda: world.ask("POST", "/input", _INPUTS[kind])),
        }


def _median_trip(times: int, ask: Any) -> float:
    taken = []
    for _ in range(times):
        begun = time.monotonic()
        ask()
        taken.append(time.monotonic() - begun)
    return statistics.median(taken) * 1e3


def measure_crowd(count: int, seconds: float) -> dict[str, float]:
    """Run worlds of the scene on one core, each with a continuously walking player.

    Returns:
        The number of due ticks, the number of ticks of the slowest world, and the CPU used, as a
        share of the core.
    """
    with serve_on_first_core([SCENE_PROGRAM] * count) as worlds:
        _walk_all(worlds, -30)
        time.sleep(1.0)
        used = sum(world.cpu_s() for world in worlds)
        begun = [(time.monotonic(), world.ask("GET", "/observe")["tick"]) for world in worlds]
        side = 30
        while time.monotonic() < begun[0][0] + seconds:
            _walk_all(worlds, side)
            side = -side
            time.sleep(2.0)
        share = (sum(world.cpu_s() for world in worlds) - used) / (time.monotonic() - begun[0][0])
        missed = []
        for world, (at, tick) in zip(worlds, begun, strict=True):
            reached = world.ask("GET", "/observe")["tick"] - tick
            missed.append(1 - reached / ((time.monotonic() - at) * 60))
        return {"missed": 100 * max(missed), "percent": 100 * share}


def _walk_all(worlds: list[Served], to: int) -> None:
    for world in worlds:
        world.ask("POST", "/input", {"type": "MoveTo", "data": {"position": [to, 0, -10]}})
