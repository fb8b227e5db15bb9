"""A world on the kit with a snapshot of realistic size, 128 kB."""

from __future__ import annotations

from clawblox.server import InputError, Json, Simulation, serve

_PAD = "0123456789abcdef" * 8192


class Counter(Simulation):
    """A simulation in which agents add numbers."""

    format = "soak-counter-v1"
    api_doc = "# Counter\nSend `Add` with a whole number.\n"
    tick_rate = 10.0

    def __init__(self) -> None:
        self.ticks = 0
        self.sums: dict[str, int] = {}

    @property
    def time(self) -> float:
        """Simulation time, in seconds."""
        return self.ticks / self.tick_rate

    def content_hash(self) -> str:
        """Return the identifier of this version for snapshots."""
        return "soak counter, rules 1"

    def join(self, agent_id: str, name: str) -> None:
        """Let an agent join with the sum 0."""
        self.sums[agent_id] = 0

    def leave(self, agent_id: str) -> None:
        """Remove an agent."""
        del self.sums[agent_id]

    def act(self, agent_id: str, action: str, data: Json) -> None:
        """Add a number."""
        if action != "Add" or not isinstance(data, int):
            raise InputError("send Add with a whole number")
        self.sums[agent_id] += data

    def step(self) -> None:
        """Count a tick."""
        self.ticks += 1

    def observe(self, agent_id: str) -> dict[str, Json]:
        """Return the sum of an agent."""
        return {"sum": self.sums[agent_id]}

    def snapshot(self) -> Json:
        """Return the state."""
        return {"ticks": self.ticks, "sums": dict(self.sums), "pad": _PAD}

    def restore(self, state: Json) -> None:
        """Restore a state."""
        assert isinstance(state, dict)
        self.ticks, self.sums = state["ticks"], state["sums"]  # type: ignore[assignment]


if __name__ == "__main__":
    serve(Counter())
