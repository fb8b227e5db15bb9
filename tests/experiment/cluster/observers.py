"""Observes running worlds: they send datagrams, and the kernel records when each was sent.

In an observed world, two processes send a datagram every few milliseconds: a child, and a daemon
in its own session that may ignore SIGTERM.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import attrs

from tests.support.waiting import wait_until

_TIMESTAMP = 35
"""SO_TIMESTAMPNS of socket(7), which Python does not name."""

INTERVAL_S = 0.005
"""Seconds between two datagrams of a process."""

CONTROL = "control"
"""The chain of processes that belong to no world."""

_BEACON = f"""
import contextlib, os, signal, socket, sys, time

def send(chain, life):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    number = 0
    while True:
        number += 1
        text = f"{{chain}}|{{life}}|{{os.getpid()}}|{{number}}"
        with contextlib.suppress(OSError):
            client.sendto(text.encode(), ("127.0.0.1", port))
        time.sleep({INTERVAL_S})

port, ignores_term, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
if not command:
    send("{CONTROL}", "")
life = os.path.realpath(os.path.join(os.environ["WORLD_RECORD_DIR"], ".."))
chain = os.path.basename(os.path.realpath(os.path.join(life, "../..")))
if os.fork() == 0:
    send(chain, life)
helper = os.fork()
if helper == 0:
    os.setsid()
    if os.fork() == 0:
        if ignores_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        send(chain, life)
    os._exit(0)
os.waitpid(helper, 0)
os.execv(command[0], command)
"""
_PYTHON = (sys.executable, "-I", "-S", "-c")


class Act(NamedTuple):
    """A datagram.

    Attributes:
        at: When it was sent: seconds since the epoch.
        pid: The process that sent it.
        number: Number of the datagram among those of its process.
    """

    at: float
    pid: int
    number: int


@attrs.define
class Observer:
    """Receives all datagrams.

    Args:
        socket: Where they arrive.
        ignores_term: Whether the daemons of worlds ignore SIGTERM.

    Attributes:
        lags: Measured delays in seconds between the SIGKILL of a process and its last action.
    """

    lags: list[float] = attrs.field(factory=list, init=False)
    _socket: socket.socket
    _ignores_term: bool
    _received: list[tuple[float, bytes]] = attrs.field(factory=list, init=False)
    _sorted: int = attrs.field(default=0, init=False)
    _acts: dict[tuple[str, str], list[Act]] = attrs.field(factory=dict, init=False)

    @property
    def command(self) -> list[str]:
        """Prefix for a command that makes its processes observable."""
        port = self._socket.getsockname()[1]
        return [*_PYTHON, _BEACON, str(port), str(int(self._ignores_term))]

    def receive(self) -> None:
        """Receive datagrams until an empty datagram arrives."""
        while True:
            text, [(_, _, stamp)], *_ = self._socket.recvmsg(1024, 256)
            if not text:
                return
            seconds, nanoseconds = struct.unpack("@ll", stamp)
            self._received.append((seconds + nanoseconds / 1e9, text))

    def _sort(self) -> dict[tuple[str, str], list[Act]]:
        for at, text in self._received[self._sorted :]:
            self._sorted += 1
            chain, life, pid, number = text.decode().split("|")
            self._acts.setdefault((chain, life), []).append(Act(at, int(pid), int(number)))
        return self._acts

    def lives(self, chain: str) -> dict[str, list[Act]]:
        """Return the actions of each life of a chain, in the order of the first actions.

        A life is named by the run directory of the attempt on its node.
        """
        return {life: acts for (whose, life), acts in self._sort().items() if whose == chain}

    def measure_lag(self) -> None:
        """Kill an acting process, and record how long after the kill it was seen to act."""
        with subprocess.Popen(self.command) as control:

            def acts() -> list[Act]:
                known = self.lives(CONTROL).get("", [])
                return [act for act in known if act.pid == control.pid]

            wait_until(acts)
            killed_at = time.time()
            control.kill()
        self.lags.append(max(0.0, acts()[-1].at - killed_at))

    def count_missed(self) -> int:
        """Return the number of datagrams that were lost in transit."""
        latest: Counter[int] = Counter()
        seen: Counter[int] = Counter()
        for act in itertools.chain(*self._sort().values()):
            latest[act.pid] = max(latest[act.pid], act.number)
            seen[act.pid] += 1
        return (latest - seen).total()

    def watch_world(self, directory: Path) -> None:
        """Make the world in a directory observable."""
        file = directory / "world.toml"
        before = "command = ["
        watched = json.dumps(self.command)[:-1]
        file.write_text(file.read_text().replace(before, f"{before[:-1]}{watched}, ", 1))


@contextlib.contextmanager
def observer(*, ignores_term: bool = True) -> Iterator[Observer]:
    """Observe until the end of the block.

    Args:
        ignores_term: Whether the daemons of worlds ignore SIGTERM; then the end of a world that
            is not lost takes ten seconds.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        server.setsockopt(socket.SOL_SOCKET, _TIMESTAMP, 1)
        server.bind(("127.0.0.1", 0))
        made = Observer(server, ignores_term)
        thread = threading.Thread(target=made.receive)
        thread.start()
        try:
            yield made
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.sendto(b"", server.getsockname())
            thread.join()
