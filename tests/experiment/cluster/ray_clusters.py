"""Ray clusters on this machine for tests: raylets on the loopback interface, without a dashboard.

A keeper process starts them, and ends them when the test closes its pipe or ends. It is not a
descendant of the tests, as their check for leftover processes would find Ray's workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import attrs

from tests.support.processes import kill_processes, processes_in
from tests.support.waiting import HANG_S, wait_until

ROOT = Path(__file__).parent.parent.parent.parent
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 32}
_ENV = {
    "PYTHONPATH": str(ROOT),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # otherwise Ray replaces 127.0.0.1 by another address
}


@attrs.frozen
class RayCluster:
    """A cluster that runs until its keeper ends."""

    directory: Path
    commands: IO[str]
    answers: IO[str]
    address: str = ""
    head: int = 0

    @property
    def env(self) -> dict[str, str]:
        """Environment variables for its keeper and its drivers."""
        own = {name: str(self.directory) for name in ("HOME", "RAY_TMPDIR", "TMPDIR")}
        return {**_ENV, **own, "PATH": os.environ["PATH"]}

    def add_node(self, **arguments: Any) -> dict[str, Any]:
        """Start a raylet; return the cluster's address and the pids of the head and the raylet."""
        self.commands.write(json.dumps(arguments) + "\n")
        self.commands.flush()
        answer: dict[str, Any] = json.loads(self.answers.readline())
        return answer

    def drive(
        self, *words: str | Path, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program that may connect to the cluster."""
        return subprocess.run(
            [sys.executable, *words],
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            **{"cwd": self.directory, **options},
        )


@contextlib.contextmanager
def ray_cluster(
    *nodes: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> Iterator[RayCluster]:
    """Run a cluster, and end all its processes on exit.

    Args:
        *nodes: Arguments of ``add_node`` for each node; the first is the head.
        env: Additional environment variables of its processes.
    """
    directory = Path(
        tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    )  # since socket paths must be short
    (directory / "ray").mkdir()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import keep; keep()"],
            env={**RayCluster(directory, sys.stdout, sys.stdin).env, **(env or {})},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as keeper:
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            cluster = RayCluster(directory, keeper.stdin, keeper.stdout)
            added = [cluster.add_node(**arguments) for arguments in nodes]
            head = {name: added[0][name] for name in ("address", "head")}
            yield attrs.evolve(cluster, **head)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not processes_in(directory), 20.0, "the cluster ends")
    finally:
        kill_processes(lambda: processes_in(directory))
        shutil.rmtree(directory, ignore_errors=True)


def keep() -> None:
    """Start the nodes requested on stdin, and end them all when stdin is closed."""
    if os.fork():
        os._exit(0)
    os.setsid()
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray also prints
    cluster = Cluster()
    try:
        for line in sys.stdin:
            node = cluster.add_node(
                node_ip_address="127.0.0.1", include_dashboard=False, **json.loads(line)
            )
            raylet = node.all_processes["raylet"][0].process.pid
            (head,) = cluster.head_node.all_processes["gcs_server"]
            pids = {"raylet": raylet, "head": head.process.pid}
            print(json.dumps({"address": cluster.address, **pids}), file=answers)
    finally:
        cluster.shutdown()
