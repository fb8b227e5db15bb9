"""Draws ``lineage.svg``: the lineage of a real run, as ``clawblox lineage --svg`` draws it.

    python -m docs.pictures.lineage

Agents play marbles in four worlds. One world is killed and restarted; the best one is forked, and
later the best of its forks.
"""

from __future__ import annotations

import math
import os
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import anyio
import httpx

from clawblox import AsyncWorld, StartedWorld
from clawblox.rundir.lineage import Lineage, read_lineage
from clawblox.telemetry.events import EventStream
from clawblox.views.lineage_svg import draw_lineage
from clawblox.views.lineage_text import render_lineage

__all__ = ["PICTURE", "play"]

PICTURE: Final = Path(__file__).with_name("lineage.svg")
_MARBLES: Final = Path(__file__).parents[2] / "examples" / "marbles"
_TITLE: Final = "runs/marbles"


class _Players:
    """One agent in each world, which heads for the nearest marble."""

    def __init__(self, world: AsyncWorld) -> None:
        self._world = world
        self._headers: dict[str, dict[str, str]] = {}
        self.scores: dict[str, int] = {}

    async def join(self, *names: str, by: dict[str, str] | None = None) -> None:
        """Join worlds; an agent of a forked world goes on with the session of its parent."""
        for name in names:
            if by is not None:
                self._headers[name] = by
            else:
                self._headers[name] = (await self._world.connect("Rocky", instance=name))["headers"]

    def headers(self, name: str) -> dict[str, str]:
        """Return the session of the agent in a world."""
        return self._headers[name]

    async def play(self, worlds: Iterable[StartedWorld], steps: int) -> None:
        """Play on in worlds, each input a quarter of a simulated second."""
        async with anyio.create_task_group() as tasks:
            for started in worlds:
                tasks.start_soon(self._play_one, started, steps)

    async def _play_one(self, started: StartedWorld, steps: int) -> None:
        name = started.name
        async with httpx.AsyncClient(base_url=started.url, headers=self._headers[name]) as client:
            seen = (await client.get("/observe")).json()
            for _ in range(steps):
                answer = await client.post("/input", json={"type": "Steer", "data": _aim(seen)})
                seen = answer.raise_for_status().json()
            self.scores[name] = seen["player"]["score"]


def _aim(seen: dict[str, Any]) -> dict[str, list[float]]:
    x, y = seen["player"]["position"]
    marbles = [marble["position"] for marble in seen["world"]["entities"]]
    near_x, near_y = min(marbles, key=lambda place: math.dist(place, (x, y)))
    return {"direction": [near_x - x, near_y - y]}


async def play(run_dir: Path) -> Lineage:
    """Run the worlds and return their lineage, read while some of them still run."""
    async with AsyncWorld(dir=_MARBLES) as world, world.events() as events:
        players = _Players(world)
        first = (await world.start_many(4, run_dir=run_dir, restart="checkpoint")).done
        await players.join(*first)
        for number, name in enumerate(first):
            await players.play([first[name]], 10 + 6 * number)
        await world.save_all()
        await players.play(first.values(), 24)
        saves = (await world.save_all()).done

        await players.play([first["w001"]], 12)
        os.kill(first["w001"].pid, signal.SIGKILL)
        await _until(events, "ready", after="restarting")
        await players.play(first.values(), 20)
        saves.update((await world.save_all()).done)
        await world.stop(instance="w000")
        await world.stop(instance="w002")

        second = (await world.fork(saves["w002"], 2, reseed=1)).done
        await players.join(*second, by=players.headers("w002"))
        await players.play([second["w004"]], 20)
        await players.play([second["w005"]], 36)
        await players.play([first["w001"], first["w003"]], 30)
        saves.update((await world.save_all()).done)
        os.kill(second["w004"].pid, signal.SIGKILL)
        await _until(events, "exited")

        third = (await world.fork(saves["w005"], 2, reseed=10)).done
        await players.join(*third, by=players.headers("w002"))
        await players.play([second["w005"], first["w001"]], 32)
        await players.play([third["w006"]], 28)
        await players.play([third["w007"]], 40)
        names = ("w001", "w005", "w006", "w007")
        saves.update((await world.save_all(instances=names)).done)
        await players.play([third["w007"]], 24)
        await world.save(instance="w007")
        await world.fork(saves["w003"])
        return await anyio.to_thread.run_sync(read_lineage, run_dir)


async def _until(events: EventStream, kind: str, *, after: str | None = None) -> None:
    async for event in events:
        if event.kind == after:
            after = None
        elif event.kind == kind and after is None:
            return


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        lineage = anyio.run(play, Path(directory) / "marbles")
    PICTURE.write_text(draw_lineage(lineage, title=_TITLE).document())
    print(render_lineage(lineage, columns=80, title=_TITLE))
