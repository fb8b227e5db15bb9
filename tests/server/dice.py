"""A world with hidden state: what it draws shows only later, and a fingerprint knows at once."""

from __future__ import annotations

import zlib
from random import Random

from clawblox.server import Clock, Halted, InputError, Simulation, serve

SHOWN_EVERY = 30
"""Ticks after which agents see the draws in between."""


class Dice(Simulation):
    format = "dice-v1"
    api_doc = "# Dice\nSend Bet, Kick or Break.\n"
    clock = Clock.LOCKSTEP
    ticks_per_input = 6
    content = "dice"
    extra_draw_at: int | None = None
    has_fingerprint = True

    def __init__(self) -> None:
        self.ticks = 0
        self.random = Random(1)
        self.hidden = self.shown = 0
        self.bets: dict[str, int] = {}
        self.kicked: list[str] = []
        self.broken = ""

    @property
    def time(self) -> float:
        return self.ticks / 60

    def content_hash(self) -> str:
        return self.content

    def begin(self) -> None:
        self.hidden = self.random.randrange(100)

    def reseed(self, seed: int) -> None:
        self.random = Random(seed)

    def join(self, agent_id, name):
        if name == "Jonah":
            raise RuntimeError("no room")
        self.bets[agent_id] = 0

    def leave(self, agent_id):
        del self.bets[agent_id]

    def act(self, agent_id, action, data):
        if action == "Bet":
            if not isinstance(data, int):
                raise InputError("Bet needs a whole number")
            self.bets[agent_id] += data
        elif action == "Kick":
            self.kicked.append(data)
        elif action == "Break":
            self.broken = data
        else:
            raise ZeroDivisionError(action)

    def step(self):
        self.fail("step")
        self.ticks += 1
        self.draw()
        if self.ticks == self.extra_draw_at:
            self.draw()
        if self.ticks % SHOWN_EVERY == 0:
            self.shown = self.hidden

    def draw(self):
        self.hidden += self.random.randrange(100)

    def removed(self):
        kicked, self.kicked = self.kicked, []
        for agent_id in kicked:
            del self.bets[agent_id]
        return kicked

    def audience(self, agent_id):
        self.fail("audience")

    def chatted(self, agent_id, content):
        self.fail("chat")

    def observe(self, agent_id):
        self.fail("observe")
        return {"shown": self.shown, "bets": list(self.bets.values())}

    def spectate(self):
        return {"shown": self.shown}

    def fingerprint(self):
        return zlib.crc32(repr(self.random.getstate()).encode()) if self.has_fingerprint else None

    def snapshot(self):
        version, numbers, gauss = self.random.getstate()
        return {
            "ticks": self.ticks,
            "random": [version, list(numbers), gauss],
            "hidden": self.hidden,
            "shown": self.shown,
            "bets": dict(self.bets),
        }

    def restore(self, state):
        version, numbers, gauss = state["random"]
        self.random.setstate((version, tuple(numbers), gauss))
        self.ticks, self.hidden, self.shown = state["ticks"], state["hidden"], state["shown"]
        self.bets = state["bets"]

    def fail(self, call):
        if self.broken == call:
            raise Halted(f"broken in {call}")


if __name__ == "__main__":
    serve(Dice())
