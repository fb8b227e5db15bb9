"""Cost of an agent's calls for its client: processor time per observation and per input.

    python -m benchmarks.agents_io [--rounds 5] [--json FILE] [--quick]

Clients that differ only in their HTTP code call a world that answers immediately. Each sends the
same requests, in its own fresh process, on persistent connections, and decodes the same JSON. The
floor is ``http.client`` of the standard library with a thread per agent.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.abc

from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, median, print_rows, write_json
from benchmarks.worlds import Readiness, write_world
from clawblox import AsyncWorld, World

COUNTS: Final = (1, 16, 128)
VERBS: Final = ("observe", "input")
FLOOR: Final = "http.client, threads"
GOAL: Final = 1.2
REQUESTS: Final = 3072
LEAST_EACH: Final = 24

SESSION: Final = {"X-Session": "s-1"}
INPUT: Final = {"type": "Steer", "data": {"direction": [0.25, -0.75], "strength": 1.0}}
JSON_BODY: Final = {"Content-Type": "application/json", **SESSION}

Call = Callable[[], Awaitable[Any]]
Agent = tuple[Call, Call]
"""An agent's observation and its input."""


# -- the clients ----------------------------------------------------------------------------


@asynccontextmanager
async def clawblox_agents(url: str, run_dir: str, count: int) -> AsyncIterator[list[Agent]]:
    """Yield agents of this package, in the world that runs in ``run_dir``."""
    async with AsyncWorld.attach(run_dir) as world:
        joined = [await world.join(f"agent-{number}") for number in range(count)]
        yield [(agent.observe, lambda a=agent: a.act(**INPUT)) for agent in joined]


@asynccontextmanager
async def httpx_agents(url: str, run_dir: str, count: int) -> AsyncIterator[list[Agent]]:
    """Yield agents with a client each, since request cost grows with a client's connections."""
    import httpx

    def make(client: httpx.AsyncClient) -> Agent:
        async def observe() -> Any:
            return (await client.get("/observe")).json()

        async def act() -> Any:
            return (await client.post("/input", json=INPUT)).json()

        return observe, act

    async with AsyncExitStack() as stack:
        clients = [
            httpx.AsyncClient(base_url=url, headers=SESSION, verify=False, trust_env=False)
            for _ in range(count)
        ]
        yield [make(await stack.enter_async_context(client)) for client in clients]


@asynccontextmanager
async def httpcore_agents(url: str, run_dir: str, count: int) -> AsyncIterator[list[Agent]]:
    """Yield agents with a pool each."""
    import httpcore

    def make(pool: httpcore.AsyncConnectionPool) -> Agent:
        async def observe() -> Any:
            answer = await pool.request("GET", f"{url}/observe", headers=SESSION)
            return json.loads(answer.content)

        async def act() -> Any:
            body = json.dumps(INPUT).encode()
            answer = await pool.request("POST", f"{url}/input", headers=JSON_BODY, content=body)
            return json.loads(answer.content)

        return observe, act

    async with AsyncExitStack() as stack:
        pools = [httpcore.AsyncConnectionPool() for _ in range(count)]
        yield [make(await stack.enter_async_context(pool)) for pool in pools]


@asynccontextmanager
async def aiohttp_agents(url: str, run_dir: str, count: int) -> AsyncIterator[list[Agent]]:
    """Yield agents that share a session, as its documentation advises."""
    import aiohttp

    async def observe() -> Any:
        async with session.get(f"{url}/observe", headers=SESSION) as answer:
            return await answer.json()

    async def act() -> Any:
        async with session.post(f"{url}/input", headers=SESSION, json=INPUT) as answer:
            return await answer.json()

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield [(observe, act)] * count


@asynccontextmanager
async def h11_agents(url: str, run_dir: str, count: int) -> AsyncIterator[list[Agent]]:
    """Yield agents on anyio streams and h11, written as its documentation does."""
    import h11

    address = urlsplit(url)

    def make(stream: anyio.abc.SocketStream) -> Agent:
        connection = h11.Connection(h11.CLIENT)

        async def ask(method: str, route: str, body: bytes) -> Any:
            headers = [("Host", address.netloc), *SESSION.items()]
            if body:
                headers += [
                    ("Content-Type", "application/json"),
                    ("Content-Length", str(len(body))),
                ]
            data = connection.send(h11.Request(method=method, target=route, headers=headers))
            if body:
                data += connection.send(h11.Data(body))
            await stream.send(data + connection.send(h11.EndOfMessage()))
            answer = b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive())
                elif isinstance(event, h11.Data):
                    answer += event.data
                elif isinstance(event, h11.EndOfMessage):
                    connection.start_next_cycle()
                    return json.loads(answer)

        async def observe() -> Any:
            return await ask("GET", "/observe", b"")

        async def act() -> Any:
            return await ask("POST", "/input", json.dumps(INPUT).encode())

        return observe, act

    async with AsyncExitStack() as stack:
        streams = [
            await anyio.connect_tcp(str(address.hostname), int(address.port or 80))
            for _ in range(count)
        ]
        yield [make(await stack.enter_async_context(stream)) for stream in streams]


ASYNC_CLIENTS: Final = {
    "clawblox": (clawblox_agents, "asyncio"),
    "clawblox, trio": (clawblox_agents, "trio"),
    "aiohttp": (aiohttp_agents, "asyncio"),
    "anyio and h11": (h11_agents, "asyncio"),
    "httpcore": (httpcore_agents, "asyncio"),
    "httpx": (httpx_agents, "asyncio"),
}
CLIENTS: Final = (*ASYNC_CLIENTS, FLOOR, "clawblox, no await, threads")
WITH_GOAL: Final = ("clawblox", "clawblox, trio")


# -- one sample, in a fresh process -----------------------------------------------------------


def take(client: str, url: str, run_dir: str, requests: int) -> dict[str, float]:
    """Return processor time per request in µs, by number of agents and verb."""
    if client in ASYNC_CLIENTS:
        make, backend = ASYNC_CLIENTS[client]
        return anyio.run(_take_async, make, url, run_dir, requests, backend=backend)
    if client == FLOOR:
        return _take_threads(
            lambda count: [_http_client_agent(url) for _ in range(count)], requests
        )
    with World.attach(run_dir) as world:
        return _take_threads(
            lambda count: [_sync_agent(world, number) for number in range(count)], requests
        )


async def _take_async(make: Any, url: str, run_dir: str, requests: int) -> dict[str, float]:
    taken = {}
    for count in COUNTS:
        async with make(url, run_dir, count) as agents:
            for verb, calls in zip(VERBS, zip(*agents, strict=True), strict=True):
                each = max(requests // count, LEAST_EACH)
                await _run_tasks(calls, 2)
                begun = time.process_time()
                await _run_tasks(calls, each)
                used = time.process_time() - begun
                taken[f"{count} {verb}"] = 1e6 * used / (each * count)
    return taken


async def _run_tasks(calls: Iterable[Call], each: int) -> None:
    async def run(call: Call) -> None:
        for _ in range(each):
            assert (await call())["tick"] == 17

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(run, call)


SyncCall = Callable[[], Any]


def _take_threads(
    make: Callable[[int], Sequence[tuple[SyncCall, SyncCall]]], requests: int
) -> dict[str, float]:
    taken = {}
    for count in COUNTS:
        agents = make(count)
        for verb, calls in zip(VERBS, zip(*agents, strict=True), strict=True):
            each = max(requests // count, LEAST_EACH)
            _run_threads(calls, 2)
            begun = time.process_time()
            _run_threads(calls, each)
            taken[f"{count} {verb}"] = 1e6 * (time.process_time() - begun) / (each * count)
    return taken


def _run_threads(calls: Iterable[SyncCall], each: int) -> None:
    def run(call: SyncCall) -> None:
        for _ in range(each):
            assert call()["tick"] == 17

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _http_client_agent(url: str) -> tuple[SyncCall, SyncCall]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def observe() -> Any:
        connection.request("GET", "/observe", headers=SESSION)
        return json.loads(connection.getresponse().read())

    def act() -> Any:
        connection.request("POST", "/input", json.dumps(INPUT).encode(), JSON_BODY)
        return json.loads(connection.getresponse().read())

    return observe, act


def _sync_agent(world: World, number: int) -> tuple[SyncCall, SyncCall]:
    agent = world.join(f"agent-{number}")
    return agent.observe, lambda: agent.act(**INPUT)


# -- the benchmark ----------------------------------------------------------------------------


def bench_agents(scratch: Path, *, rounds: int, requests: int) -> dict[str, dict[str, float]]:
    """Return the medians of each client, by number of agents and verb."""
    readiness = Readiness(scratch)
    samples: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS}
    run_dir = scratch / "run"
    try:
        world_dir = write_world(scratch / "world", "agents")
        url = anyio.run(start_detached, world_dir, run_dir, readiness.env)
        for _ in range(rounds):
            for client in random.sample(CLIENTS, len(CLIENTS)):
                taken = call_in_fresh_process(take, client, url, str(run_dir), requests)
                samples[client].append(taken)
    finally:
        readiness.close()
    return {
        client: {case: median(sample[case] for sample in taken) for case in taken[0]}
        for client, taken in samples.items()
    }


async def start_detached(world_dir: Path, run_dir: Path, env: Mapping[str, str]) -> str:
    """Start a world that outlives this call; return its address."""
    async with AsyncWorld(dir=world_dir) as world:
        return (await world.start(run_dir=run_dir, env=env, detach=True)).url


def make_rows(clients: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """Return a row for each client and case."""
    return [
        Row(
            f"{count} {'agent' if count == 1 else 'agents'}, {verb}: {client}",
            taken[f"{count} {verb}"],
            "µs",
            floor=clients[FLOOR][f"{count} {verb}"],
            goal=GOAL if client in WITH_GOAL else None,
        )
        for count in COUNTS
        for verb in VERBS
        for client, taken in clients.items()
    ]


def main() -> None:
    """Parse the arguments, measure and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    rounds, requests = (1, 128) if options.quick else (options.rounds, REQUESTS)
    name = "processor time of an agent's calls"
    with tempfile.TemporaryDirectory() as scratch:
        clients = bench_agents(Path(scratch), rounds=rounds, requests=requests)
    rows = make_rows(clients)
    print_rows(name, rows)
    if options.json is not None:
        write_json(options.json, name, rows, clients=clients, cases=[*clients[FLOOR]])


if __name__ == "__main__":
    main()
