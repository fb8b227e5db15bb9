"""A node whose network is cut: driver and node each end on their own, and agree that they have.

Each node is a network namespace, connected to the driver by a cable and a TCP connection.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from clawblox.system.guard import GUARD_NAME
from clawblox.system.process_tree import command_line
from tests.experiment.cluster.lost_nodes import check_chain, lines
from tests.experiment.real import trials
from tests.experiment.real.trials import Trial
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.needs("curl", "ip"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

LEASE_S = 30.0
SHORT_CUT_S = 12.0
"""TCP retransmits after 0.2, 0.6, 1.4, 3, 6.2 and 12.6 seconds."""
LONG_CUT_S = 60.0

NAMESPACES = """
import socket, threading
from pathlib import Path
from types import SimpleNamespace
from tests.experiment.cluster import local_engine
from tests.experiment.cluster.local_engine import LocalHost
from clawblox.system.outer_user import call

start, end = LocalHost.start, LocalHost.end

def start_on_node(self, node):
    with socket.create_server((f"198.18.{int(node[-1])}.1", 0)) as server:
        thread = threading.Thread(target=start_in_namespace, args=(self, node, server))
        thread.start()
        thread.join()

def start_in_namespace(self, node, server):
    with open(f"/run/netns/{node}") as namespace:
        call("setns", "setns", namespace.fileno(), 0x40000000)

    def connect():
        theirs = socket.create_connection(server.getsockname())
        return server.accept()[0], theirs

    local_engine.socket = SimpleNamespace(socketpair=connect)
    start(self, node)

def end_if_connected(self):
    if not self.node or Path(f"/sys/class/net/to-{self.node}/operstate").read_text() == "up\\n":
        end(self)

LocalHost.start, LocalHost.end = start_on_node, end_if_connected
"""
"""Runs each host in the namespace of its node, and ends it only while the cable is connected."""


@attrs.frozen
class Node:
    """A network namespace and the cable to it.

    Attributes:
        name: Name of the namespace.
    """

    name: str

    @classmethod
    @contextlib.contextmanager
    def made(cls, number: int) -> Iterator[Node]:
        """Create a node for the duration of the block."""
        node = cls(f"cbx{os.getpid()}-{number}")
        network = f"198.18.{number}"
        inside = ("-n", node.name)
        ip("netns", "add", node.name)
        try:
            ip("link", "add", node.cable, "type", "veth", "peer", "eth0", "netns", node.name)
            ip("address", "add", f"{network}.1/24", "dev", node.cable)
            ip(*inside, "address", "add", f"{network}.2/24", "dev", "eth0")
            for where in ((*inside, "link", "set", "lo"), (*inside, "link", "set", "eth0")):
                ip(*where, "up")
            node.mend()
            yield node
        finally:
            ip("netns", "delete", node.name)

    @property
    def cable(self) -> str:
        return f"to-{self.name}"

    def cut(self) -> None:
        ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        ip("link", "set", self.cable, "up")

    def pids(self) -> list[int]:
        """Return the pids in the namespace."""
        return [*map(int, ip("netns", "pids", self.name).split())]

    def processes(self) -> list[str]:
        """Return the processes of its hosts, without their guards."""
        found = map(command_line, self.pids())
        return [text for text in found if text and f" {GUARD_NAME} " not in text]


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def test_node_survives_a_short_cut_and_a_longer_cut_ends_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "PROGRAM", NAMESPACES + trials.PROGRAM)
    with Node.made(1) as first, Node.made(2) as second:
        nodes = {first.name: 1, second.name: 1}
        trial = Trial.make(
            tmp_path, agents=["Eko"], generations=1, nodes=nodes, cluster={"lease": LEASE_S}
        )
        program = trial.start()
        wait_until(lambda: lines(trial, "checkpoint"))
        is_first = trial.attempts("r1", 1)[0].opened.data["host"]["node"] == first.name
        near, far = (first, second) if is_first else (second, first)
        near.cut()
        time.sleep(SHORT_CUT_S)
        saved = len(lines(trial, "checkpoint"))
        near.mend()
        wait_until(lambda: len(lines(trial, "checkpoint")) > saved + 1)
        assert near.processes()
        cut_at = time.time()
        near.cut()
        wait_until(lambda: not near.processes() or lines(trial, "failed"))
        assert near.processes() == []
        ended_s = time.time() - cut_at
        wait_until(lambda: lines(trial, "failed"))
        lost_s = time.time() - cut_at
        wait_until(lambda: len(lines(trial, "working")) == 2)
        continued_s = time.time() - cut_at
        time.sleep(max(0.0, LONG_CUT_S - continued_s))
        assert near.pids() == []
        saved = len(lines(trial, "checkpoint"))
        near.mend()
        wait_until(lambda: len(lines(trial, "checkpoint")) > saved + 1)
        trial.close(1)
        program.communicate()
        trial.wait_for_silence()
    print(
        f"after the cut, the node ended the attempt in {ended_s:.1f} s, the driver in {lost_s:.1f};"
        f" another node continued it in {continued_s:.1f} s"
    )
    assert [line.data["cause"] for line in lines(trial, "failed")] == ["node"]
    check_chain(trial, "r1", nodes, ["failed"])
    attempts = trial.attempts("r1", 1)
    assert [attempt.node for attempt in attempts] == [near.name, far.name]
