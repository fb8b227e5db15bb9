"""Cost of the proxy between an agent and its world: added request time, and processor time.

    python -m benchmarks.agent_proxy [--rounds 5] [--json FILE] [--quick]

The floor is the same request sent directly to the world. Each request has its own connection, like
with curl. The client runs in its own process and alternates between the two addresses; the proxy
runs in the otherwise idle process of the benchmark.
"""

from __future__ import annotations

import argparse
import random
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.from_thread

from benchmarks.agents_io import start_detached
from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, median, print_rows, write_json
from benchmarks.worlds import HOST, Readiness, write_world
from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.access.grant import Grant, Policy
from clawblox.agents.layout import AgentDir
from clawblox.system.sock_diag import peer_uid

VERBS: Final = {
    "observe": b"GET /observe HTTP/1.1\r\n%s\r\n",
    "input": b"POST /input HTTP/1.1\r\n%s"
    b"Content-Type: application/json\r\nContent-Length: 44\r\n\r\n"
    b'{"type": "Steer", "data": {"strength": 1.0}}',
}
BACKENDS: Final = ("asyncio", "trio")
GOAL_ADDED_MS: Final = 0.5
GOAL_PEER_MS: Final = 0.05
REQUESTS: Final = 1000


def take_latencies(world: int, proxy: int, requests: int) -> dict[str, float]:
    """Return the median of each verb in ms, with and without the proxy."""
    taken: dict[str, list[float]] = {}
    for number in range(-2, requests):
        for verb in VERBS:
            for way, port in random.sample([("direct", world), ("proxy", proxy)], 2):
                elapsed = _ask(port, VERBS[verb])
                if number >= 0:
                    taken.setdefault(f"{verb} {way}", []).append(1e3 * elapsed)
    return {case: median(samples) for case, samples in taken.items()}


def _ask(port: int, request: bytes) -> float:
    """Send a request on a new connection; return the seconds until its answer is complete."""
    headers = b"Host: %s:%d\r\nX-Session: s-1\r\nConnection: close\r\n" % (HOST.encode(), port)
    begun = time.perf_counter()
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(request % headers)
        answer = b""
        while not answer.endswith(b"}") and (data := connection.recv(65536)):
            answer += data
    elapsed = time.perf_counter() - begun
    assert b"200" in answer[:15], answer
    return elapsed


@contextmanager
def served(access: AgentAccess, backend: str) -> Iterator[None]:
    """Serve an agent's access in a thread."""
    with anyio.from_thread.start_blocking_portal(backend) as portal:
        scope = portal.call(anyio.CancelScope)

        async def serve() -> None:
            with scope:
                await access.serve()

        serving = portal.start_task_soon(serve)
        try:
            yield
        finally:
            portal.call(scope.cancel)
            serving.result()


def take(url: str, scratch: Path, backend: str, requests: int) -> dict[str, float]:
    """Return latencies in ms, and processor time of the proxy per request in µs."""
    grant = Grant(
        world="agents",
        headers={"X-Session": "s-1"},
        policy=Policy.from_api({"observe": "/observe", "input": "/input"}),
        upstream=lambda: url,
    )
    access = AgentAccess("Rocky", AgentDir(scratch / "agent"), is_sandboxed=False)
    port = urlsplit(access.grant(grant)).port
    try:
        with served(access, backend):
            begun = time.process_time()
            taken = call_in_fresh_process(take_latencies, urlsplit(url).port, port, requests)
            used = time.process_time() - begun
    finally:
        access.close()
    return {**taken, "cpu": 1e6 * used / (len(VERBS) * (requests + 2))}


def take_peer_check(calls: int) -> float:
    """Return the time in ms for finding the owner of a connection."""
    with (
        socket.create_server((HOST, 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0] as connection,
    ):
        begun = time.perf_counter()
        for _ in range(calls):
            peer_uid(connection)
        return 1e3 * (time.perf_counter() - begun) / calls


def bench_proxy(
    scratch: Path, *, rounds: int, requests: int = REQUESTS
) -> dict[str, dict[str, float]]:
    """Return the medians of each event loop, by case."""
    readiness = Readiness(scratch)
    samples: dict[str, list[dict[str, float]]] = {backend: [] for backend in BACKENDS}
    try:
        world_dir = write_world(scratch / "world", "agents")
        url = anyio.run(start_detached, world_dir, scratch / "run", readiness.env)
        for _ in range(rounds):
            for backend in random.sample(BACKENDS, len(BACKENDS)):
                samples[backend].append(take(url, scratch, backend, requests))
    finally:
        readiness.close()
    return {
        backend: {case: median(sample[case] for sample in taken) for case in taken[0]}
        for backend, taken in samples.items()
    }


def make_rows(backends: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """Return the rows of each event loop."""
    rows = []
    for backend, taken in backends.items():
        for verb in VERBS:
            direct, proxied = taken[f"{verb} direct"], taken[f"{verb} proxy"]
            rows += [
                Row(f"{verb} through the proxy: {backend}", proxied, "ms", floor=direct),
                Row(f"added to {verb}: {backend}", proxied - direct, "ms", goal=GOAL_ADDED_MS),
            ]
        rows.append(Row(f"CPU of the proxy for a request: {backend}", taken["cpu"], "µs"))
    return rows


def main() -> None:
    """Parse the arguments, measure and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    rounds, requests = (1, 64) if options.quick else (options.rounds, REQUESTS)
    name = "the proxy between an agent and its world"
    with tempfile.TemporaryDirectory() as scratch:
        backends = bench_proxy(Path(scratch), rounds=rounds, requests=requests)
    peer_ms = min(take_peer_check(requests) for _ in range(rounds))
    rows = [*make_rows(backends), Row("whose a connection is", peer_ms, "ms", goal=GOAL_PEER_MS)]
    print_rows(name, rows)
    if options.json is not None:
        write_json(options.json, name, rows, backends=backends)


if __name__ == "__main__":
    main()
