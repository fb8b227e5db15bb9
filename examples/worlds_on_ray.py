"""Worlds on every node of a Ray cluster: policies act on the same node, saves return as bytes.

ray start --head  # and on the other machines: ray start --address HOST:PORT
python examples/worlds_on_ray.py

In the second round, the best world of the first round continues on every node with other moves.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from clawblox import AsyncWorld

WORLD = Path(__file__).parent / "marbles"  # the same path on each node
WORLDS, ROUNDS, MOVES = 4, 2, 100


@ray.remote(num_cpus=1)
class NodeWorlds:
    """Worlds on one node, open between two calls. One task opens and closes them."""

    async def open(self) -> None:
        """Open the worlds."""
        self._opened, self._closing = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._hold())
        opened = asyncio.create_task(self._opened.wait())
        await asyncio.wait({opened, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            opened.cancel()
            await self._task  # raises the reason

    async def _hold(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            self._directory = Path(directory)
            async with AsyncWorld(WORLD, run_dir=self._directory / "run") as self._world:
                self._opened.set()
                await self._closing.wait()

    async def play(self, name: str, saved: bytes | None) -> list[tuple[int, bytes]]:
        """Play in new worlds, which continue a save if given; return points and saves."""
        resume = None if saved is None else self._directory / f"{name}.json"
        if resume is not None and saved is not None:
            resume.write_bytes(saved)
        batch = await self._world.start_many(WORLDS, resume=resume)
        batch.raise_if_failed()
        return await asyncio.gather(*(self._play(name, world) for world in batch.done))

    async def _play(self, name: str, world: str) -> tuple[int, bytes]:
        agent = await self._world.join(name, instance=world)
        rng = random.Random(f"{name} {world}")  # noqa: S311 - it shall be the same each time
        for _ in range(MOVES):
            seen = await agent.act("Steer", {"direction": [rng.uniform(-1, 1) for _ in range(2)]})
        players = [seen["player"], *seen["other_players"]]
        save = await self._world.save(instance=world)
        await self._world.stop(instance=world)
        return sum(p["score"] for p in players), save.path.read_bytes()

    async def close(self) -> None:
        """Stop the worlds."""
        self._closing.set()
        await self._task


def main() -> None:
    """Run the example."""
    ray.init(address="auto", log_to_driver=False)
    ids = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in ids]
    nodes = [NodeWorlds.options(scheduling_strategy=place).remote() for place in places]
    ray.get([node.open.remote() for node in nodes])
    saved = None
    for number in range(1, ROUNDS + 1):
        games = [node.play.remote(f"Round {number} of {i}", saved) for i, node in enumerate(nodes)]
        results = [result for played in ray.get(games) for result in played]
        points, saved = max(results, key=lambda result: result[0])
        print(f"round {number}: {len(results)} worlds, {points} points, {len(saved)} bytes")
    ray.get([node.close.remote() for node in nodes])


if __name__ == "__main__":
    main()
