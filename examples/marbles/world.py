"""Marbles: agents steer pushers on a table and score by knocking marbles into pockets.

An example of a world on ``clawblox.server``. The physics is in ``discs.py``. This file contains the
rules of the game: players, scores, observations, actions and snapshots.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from discs import Disc, Table

from clawblox.server import Clock, InputError, Json, Simulation, serve


@dataclass(frozen=True)
class Scene:
    """The numbers of the game, in metres, kilograms, seconds and newtons.

    A state is meaningless without these numbers, so every snapshot contains their hash. Increase
    ``rules`` with every change of behaviour that does not change a number.
    """

    rules: int = 1
    seed: int = 20260622
    width: float = 24.0
    height: float = 14.0
    bounce: float = 0.9
    ticks_per_second: int = 60
    steps_per_tick: int = 4
    marbles: int = 7
    marble_radius: float = 0.5
    marble_mass: float = 1.0
    pusher_radius: float = 0.7
    pusher_mass: float = 2.0
    pusher_thrust: float = 12.0
    rolling_friction: float = 0.5
    braking_friction: float = 8.0
    pocket_radius: float = 1.6
    pockets: tuple[tuple[float, float], ...] = ((0.0, 7.0), (24.0, 7.0))


@dataclass
class Player:
    """An agent in the game; its pusher is the disc with the same id."""

    id: str
    name: str
    score: int = 0


SCENE = Scene()


class Marbles(Simulation):
    """The game."""

    format = "marbles-v1"
    api_doc = Path(__file__).with_name("API.md").read_text(encoding="utf-8")
    clock = Clock.LOCKSTEP
    tick_rate = SCENE.ticks_per_second
    ticks_per_input = 15

    def __init__(self) -> None:
        self._ticks = 0
        self._random = Random(SCENE.seed)  # noqa: S311 - dice, not secrets
        self._players: dict[str, Player] = {}
        self._last_touch: dict[str, str] = {}
        self._table = Table(SCENE.width, SCENE.height, SCENE.bounce, self._remember_touch)

    def begin(self) -> None:
        """Put the marbles on the table, at places chosen by the seed."""
        for number in range(SCENE.marbles):
            self._place(Disc(f"marble-{number + 1}", SCENE.marble_radius, SCENE.marble_mass))

    @property
    def time(self) -> float:
        """Simulated seconds since the start of the game."""
        return self._ticks / SCENE.ticks_per_second

    def content_hash(self) -> str:
        """Hash the scene."""
        return hashlib.sha256(json.dumps(asdict(SCENE)).encode()).hexdigest()

    def join(self, agent_id: str, name: str) -> None:
        """Put a pusher on the table."""
        self._players[agent_id] = Player(agent_id, name)
        self._place(Disc(agent_id, SCENE.pusher_radius, SCENE.pusher_mass))

    def leave(self, agent_id: str) -> None:
        """Remove the pusher; marbles that it touched last do not score."""
        del self._players[agent_id]
        self._table.discs.remove(self._disc(agent_id))
        self._last_touch = {
            marble: pusher for marble, pusher in self._last_touch.items() if pusher != agent_id
        }

    def act(self, agent_id: str, action: str, data: Json) -> None:
        """Steer, brake or wait; steering and braking hold until the next change."""
        disc = self._disc(agent_id)
        if action == "Steer":
            x, y = _read_direction(data)
            disc.thrust_x, disc.thrust_y = x * SCENE.pusher_thrust, y * SCENE.pusher_thrust
            disc.friction = SCENE.rolling_friction
        elif action == "Brake":
            disc.thrust_x = disc.thrust_y = 0.0
            disc.friction = SCENE.braking_friction
        elif action != "Wait":
            raise InputError(f"unknown input type {action!r}: use Steer, Brake or Wait")

    def step(self) -> None:
        """Advance by one sixtieth of a second."""
        for _ in range(SCENE.steps_per_tick):
            self._table.step(1.0 / (SCENE.ticks_per_second * SCENE.steps_per_tick))
        for marble in self._marbles():
            if _is_pocketed(marble):
                self._score(marble)
        self._ticks += 1

    def observe(self, agent_id: str) -> Mapping[str, Json]:
        """Return the whole table."""
        return {
            "player": self._describe_player(agent_id),
            "other_players": [
                self._describe_player(other) for other in self._players if other != agent_id
            ],
            "world": {
                "size": [SCENE.width, SCENE.height],
                "pockets": [list(pocket) for pocket in SCENE.pockets],
                "pocket_radius": SCENE.pocket_radius,
                "entities": [self._describe_marble(marble) for marble in self._marbles()],
            },
        }

    def snapshot(self) -> dict[str, Json]:
        """Return discs in order, players, touches, random state and time."""
        version, words, gauss = self._random.getstate()
        return {
            "ticks": self._ticks,
            "discs": [asdict(disc) for disc in self._table.discs],
            "players": [asdict(player) for player in self._players.values()],
            "last_touch": dict(self._last_touch),
            "random": [version, list(words), gauss],
        }

    def restore(self, state: Json) -> None:
        """Restore a state that :meth:`snapshot` returned."""
        version, words, gauss = state["random"]
        self._ticks = state["ticks"]
        self._table.discs = [Disc(**disc) for disc in state["discs"]]
        self._players = {player["id"]: Player(**player) for player in state["players"]}
        self._last_touch = state["last_touch"]
        self._random.setstate((version, tuple(words), gauss))

    def reseed(self, seed: int) -> None:
        """Use another seed for the places of marbles and pushers from now on."""
        self._random = Random(seed)  # noqa: S311 - dice, not secrets

    def _disc(self, disc_id: str) -> Disc:
        return next(disc for disc in self._table.discs if disc.id == disc_id)

    def _marbles(self) -> list[Disc]:
        return [disc for disc in self._table.discs if disc.id not in self._players]

    def _place(self, disc: Disc) -> None:
        """Put a disc at rest in a free place, away from walls and pockets."""
        disc.vx = disc.vy = 0.0
        others = [other for other in self._table.discs if other is not disc]
        while True:
            disc.x = self._random.uniform(4.0, SCENE.width - 4.0)
            disc.y = self._random.uniform(2.0, SCENE.height - 2.0)
            if not any(disc.overlaps(other) for other in others):
                break
        self._table.discs = [*others, disc]

    def _remember_touch(self, first: Disc, second: Disc) -> None:
        for pusher, marble in ((first, second), (second, first)):
            if pusher.id in self._players and marble.id not in self._players:
                self._last_touch[marble.id] = pusher.id

    def _score(self, marble: Disc) -> None:
        scorer = self._last_touch.pop(marble.id, None)
        if scorer is not None:
            self._players[scorer].score += 1
        self._place(marble)

    def _describe_player(self, agent_id: str) -> dict[str, Json]:
        disc, player = self._disc(agent_id), self._players[agent_id]
        return {
            "id": player.id,
            "name": player.name,
            "score": player.score,
            **_describe_motion(disc),
            "steering": [
                disc.thrust_x / SCENE.pusher_thrust,
                disc.thrust_y / SCENE.pusher_thrust,
            ],
            "braking": disc.friction == SCENE.braking_friction,
        }

    def _describe_marble(self, marble: Disc) -> dict[str, Json]:
        toucher = self._last_touch.get(marble.id)
        return {
            "id": marble.id,
            "entity_type": "marble",
            **_describe_motion(marble),
            "last_touched_by": toucher,
        }


def _describe_motion(disc: Disc) -> dict[str, Json]:
    return {"position": [disc.x, disc.y], "velocity": [disc.vx, disc.vy], "radius": disc.radius}


def _is_pocketed(marble: Disc) -> bool:
    return any(
        (marble.x - x) ** 2 + (marble.y - y) ** 2 < SCENE.pocket_radius**2 for x, y in SCENE.pockets
    )


def _read_direction(data: Json) -> tuple[float, float]:
    """Read ``{"direction": [x, y]}``; a length above 1 means full thrust."""
    direction = data.get("direction") if isinstance(data, dict) else None
    if not (
        isinstance(direction, list)
        and len(direction) == 2
        and all(type(number) in (int, float) for number in direction)
    ):
        raise InputError("Steer needs data.direction: [x, y]")
    x, y = float(direction[0]), float(direction[1])
    longest = max(abs(x), abs(y), 1.0)
    x, y = x / longest, y / longest  # first, so that no square overflows
    length = max(math.sqrt(x * x + y * y), 1.0)
    return x / length, y / length


if __name__ == "__main__":
    serve(Marbles())
