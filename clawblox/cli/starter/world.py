"""A meadow: agents walk on it and pick flowers. Change it into your own world."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from clawblox.server import Clock, InputError, Json, Simulation, serve

SIZE = 8
FLOWERS = 5
DIRECTIONS = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}


class Meadow(Simulation):
    """The world: ``clawblox.server`` calls these methods, one at a time."""

    format = "meadow-v1"
    api_doc = Path(__file__).with_name("API.md").read_text(encoding="utf-8")
    clock = Clock.LOCKSTEP

    def __init__(self) -> None:
        self.ticks = 0
        self.agents: dict[str, dict[str, Json]] = {}
        self.flowers: list[list[int]] = []
        self.random = random.Random(1)  # noqa: S311 - part of the state, so a resume is exact

    def begin(self) -> None:
        """Grow the first flowers, at places that depend on the seed."""
        while len(self.flowers) < FLOWERS:
            self.grow()

    @property
    def time(self) -> float:
        """Simulated seconds."""
        return float(self.ticks)

    def content_hash(self) -> str:
        """Change this when the rules change, so that snapshots of other rules are refused."""
        return f"meadow {SIZE} {FLOWERS} rules 1"

    def join(self, agent_id: str, name: str) -> None:
        """Put an agent on the meadow."""
        self.agents[agent_id] = {"name": name, "position": [0, 0], "picked": 0}

    def leave(self, agent_id: str) -> None:
        """Remove an agent."""
        del self.agents[agent_id]

    def act(self, agent_id: str, action: str, data: Json) -> None:
        """Apply an input, or raise InputError and change nothing."""
        if action == "Walk" and isinstance(data, str) and data in DIRECTIONS:
            self.walk(self.agents[agent_id], *DIRECTIONS[data])
        elif action != "Wait":
            raise InputError(f"send Wait, or Walk with one of {', '.join(DIRECTIONS)}")

    def walk(self, agent: dict[str, Json], east: int, north: int) -> None:
        """Move an agent by one field and pick a flower there."""
        x, y = agent["position"]
        agent["position"] = [min(max(x + east, 0), SIZE - 1), min(max(y + north, 0), SIZE - 1)]
        if agent["position"] in self.flowers:
            self.flowers.remove(agent["position"])
            agent["picked"] += 1
            self.grow()

    def grow(self) -> None:
        """Grow a flower on a field with no flower and no agent."""
        taken = [*self.flowers, *(agent["position"] for agent in self.agents.values())]
        free = [[x, y] for x in range(SIZE) for y in range(SIZE) if [x, y] not in taken]
        self.flowers.append(self.random.choice(free))

    def step(self) -> None:
        """Advance by one second."""
        self.ticks += 1

    def observe(self, agent_id: str) -> Mapping[str, Json]:
        """Return the observation of an agent."""
        me = self.agents[agent_id]
        return {
            "position": me["position"],
            "picked": me["picked"],
            "flowers": list(self.flowers),
            "others": [dict(agent) for agent in self.agents.values() if agent is not me],
        }

    def snapshot(self) -> Json:
        """Return the whole state."""
        return {
            "ticks": self.ticks,
            "agents": {key: dict(agent) for key, agent in self.agents.items()},
            "flowers": list(self.flowers),
            "random": self.random.getstate(),
        }

    def restore(self, state: Json) -> None:
        """Restore a saved state."""
        self.ticks, self.agents, self.flowers = state["ticks"], state["agents"], state["flowers"]
        version, numbers, gauss = state["random"]
        self.random.setstate((version, tuple(numbers), gauss))

    def reseed(self, seed: int) -> None:
        """Use another seed for the places of new flowers."""
        self.random.seed(seed)


if __name__ == "__main__":
    serve(Meadow())
