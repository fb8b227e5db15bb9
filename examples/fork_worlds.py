"""Sixteen random agents in eight worlds, then eight other futures of the best world.

After a crash, ``python examples/fork_worlds.py`` continues from the last saves, to the same points.
"""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import anyio

from clawblox import AsyncWorld

RUN_DIR = Path("runs/experiment")
WORLDS, FORK_AT, END_AT = 8, 75, 150  # the times are simulated seconds


async def play(
    world: AsyncWorld, name: str, until: int, points: dict[str, int], table: TextIO
) -> None:
    """Let two agents steer at random in a world, and note their points every five seconds."""
    home = RUN_DIR / "agents" / str(world.labels[name].get("of", name))  # forks know the sessions
    bots = [SimpleNamespace(name=colour, dir=home / colour) for colour in ("Red", "Blue")]
    agents = [await world.join(bot, instance=name) for bot in bots]
    await world.save(instance=name)  # from here on, a crash does not lose a session
    seen = await agents[0].observe()
    while True:
        points[name] = sum(player["score"] for player in [seen["player"], *seen["other_players"]])
        if seen["time"] % 5 == 0:
            print(name, home.name, seen["time"], points[name], sep=",", file=table)
        if seen["time"] >= until:
            return
        agent = agents[int(seen["time"] * 4) % 2]  # in turns, a quarter of a second each
        rng = random.Random(f"{name} {agent.name} {seen['time']}")  # noqa: S311
        seen = await agent.act("Steer", {"direction": [rng.uniform(-1, 1) for _ in range(2)]})


async def main() -> None:
    """Run or continue the experiment."""
    points: dict[str, int] = {}
    async with AsyncWorld(Path(__file__).parent / "marbles", run_dir=RUN_DIR) as world:
        resumed = await world.resume_all()
        if not resumed:
            (await world.start_many(WORLDS, reseed=1, labels={"part": "first"})).raise_if_failed()
        await world.autosave(every=0.5)
        with (RUN_DIR / "points.csv").open("a" if resumed else "w", buffering=1) as table:
            for part, until in (("first", FORK_AT), ("fork", END_AT)):
                if part == "fork" and len(world.labels) == WORLDS:
                    best = max(sorted(points), key=lambda name: points[name])
                    saved = await world.save(instance=best)
                    await world.fork(saved, WORLDS, reseed=1, labels={"part": part, "of": best})
                names = sorted(n for n, labels in world.labels.items() if labels["part"] == part)
                async with anyio.create_task_group() as games:
                    for name in names:
                        games.start_soon(play, world, name, until, points, table)
                print(f"{part}:", *(f"{name} {points[name]}" for name in names))


anyio.run(main)
