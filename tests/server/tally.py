"""The smallest world on the kit: agents add to sums, and can make it fail on demand."""

from __future__ import annotations

from clawblox.server import Clock, InputError, Simulation, serve


class Tally(Simulation):
    format = "tally-v1"
    api_doc = "# Tally\nSend Add.\n"
    clock = Clock.LOCKSTEP
    tick_rate = 200.0
    ticks_per_input = 3
    max_agents = 3

    def __init__(self, content: str = "tally") -> None:
        self.content = content
        self.ticks = 0
        self.sums: dict[str, int] = {}
        self.extra: object = None
        self.fails_at: int | None = None

    @property
    def time(self) -> float:
        return self.ticks * 0.1

    def content_hash(self) -> str:
        return self.content

    def join(self, agent_id, name):
        if name == "Jonah":
            raise RuntimeError("no room on the ship")
        self.sums[agent_id] = 0

    def leave(self, agent_id):
        del self.sums[agent_id]

    def act(self, agent_id, action, data):
        if action == "Add":
            if not isinstance(data, int):
                raise InputError("Add needs a whole number")
            self.sums[agent_id] += data
        elif action == "Keep":
            self.extra = data
        elif action == "FailAtNextStep":
            self.fails_at = self.ticks
        elif action == "ShowNan":
            self.extra = float("nan")
        else:
            raise ZeroDivisionError(action)

    def step(self):
        if self.fails_at is not None:
            raise OverflowError("the sums are too high")
        self.ticks += 1

    def observe(self, agent_id):
        return {"sum": self.sums[agent_id], "extra": self.extra}

    def snapshot(self):
        return {"ticks": self.ticks, "sums": dict(self.sums), "extra": self.extra}

    def restore(self, state):
        if state["ticks"] < 0:
            raise ValueError("ticks cannot be negative")
        self.ticks, self.sums, self.extra = state["ticks"], state["sums"], state["extra"]


if __name__ == "__main__":
    serve(Tally())
