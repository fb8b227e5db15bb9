"""A garden in which agents plant visible trees, and whose snapshots may keep inputs.

``Plant`` and ``Sow`` add a tree; ``Water`` and ``Rake`` do not. ``KEPT`` is the number of latest
inputs in snapshots; None means all.
"""

from __future__ import annotations

from collections import deque

from clawblox.server import Clock, Simulation, serve

CLOCK = Clock.LOCKSTEP
KEPT: int | None = 0


class Garden(Simulation):
    format = "garden-v1"
    api_doc = "# Garden\nWatch it grow.\n"
    clock = CLOCK
    tick_rate = 200

    def __init__(self) -> None:
        self.ticks = 0
        self.trees: list[dict[str, int]] = []
        self.kept = deque[str](maxlen=KEPT)

    @property
    def time(self) -> float:
        return self.ticks / self.tick_rate

    def content_hash(self) -> str:
        return "garden"

    def act(self, agent_id, action, data):
        self.kept.append(f"{agent_id} sent {action} in tick {self.ticks}")
        if action in ("Plant", "Sow"):
            self.trees.append({"planted_in_tick": self.ticks, "height": 1})

    def step(self):
        self.ticks += 1

    def observe(self, agent_id):
        return {"trees": self.trees}

    def snapshot(self):
        return {"ticks": self.ticks, "trees": self.trees, "kept": list(self.kept)}

    def restore(self, state):
        self.ticks, self.trees = state["ticks"], state["trees"]
        self.kept.extend(state["kept"])


if __name__ == "__main__":
    serve(Garden())
