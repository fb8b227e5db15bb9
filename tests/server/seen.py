"""A recorder that keeps what a hosted world reports, in order."""

from __future__ import annotations

from collections.abc import Mapping


class Seen:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict]] = []
        self.observations: list[tuple[str, bytes]] = []
        self.ticks = 0

    def event(self, event: str, fields: Mapping[str, object]) -> None:
        self.events.append((event, dict(fields)))

    def observed(self, agent_id: str, observation: bytes) -> None:
        self.observations.append((agent_id, observation))

    def ticked(self) -> None:
        self.ticks += 1
