"""The instance that most checks use, and its agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import attrs

from clawblox.conformance.exchange import Exchange
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import CALL_TIMEOUT_S, MOST_TIMEOUTS, AgentInput, LiveWorld, Player
from clawblox.conformance.registry import CouldNotRun, NotMet
from clawblox.errors import WorldStartError
from clawblox.protocol import API_ALIAS_ROUTE, API_ROUTE, INPUT_ROUTE, OBSERVE_ROUTE

_PATIENCE_S: Final = 5.0
_PATIENCE: Final = 6
_MOST_SILENT: Final = 2
"""Number of hanging instances that are replaced; an instance at an address cannot be replaced."""
_MOST_ACTIONS: Final = 4


@attrs.frozen
class Sights:
    """Answers that agents got from an instance.

    Attributes:
        answers: The answers of every route that agents use, including refusals.
        docs: The documentation.
        twice: Pairs of answers to the same request.
    """

    answers: tuple[Exchange, ...]
    docs: tuple[Exchange, ...]
    twice: tuple[tuple[Exchange, Exchange], ...]

    @property
    def everything(self) -> Iterator[Exchange]:
        """All answers."""
        yield from (*self.docs, *self.answers)
        for pair in self.twice:
            yield from pair


class ProbeInstance:
    """The instance that most checks use, one check at a time.

    Args:
        instances: Starts it.
        url: Address of an instance that others have started; empty to start one.
    """

    def __init__(self, instances: Instances, url: str = "") -> None:
        self._instances = instances
        self._url = url
        self._live: LiveWorld | None = None
        self._failure: WorldStartError | None = None
        self._has_started = False
        self._silent = 0
        self._lock = anyio.Lock()

    def close(self) -> None:
        """Close its connections."""
        if self._live is not None:
            self._live.close()

    @property
    def patience(self) -> float:
        """Seconds after which the start of another instance is given up."""
        ready_s = self._live.started.ready_s if self._live and self._live.started else 0.0
        usual = self._instances.options.health_timeout
        return min(usual, max(_PATIENCE_S, _PATIENCE * ready_s))

    @asynccontextmanager
    async def use(self) -> AsyncIterator[LiveWorld]:
        """Give a block exclusive use of the instance, which keeps running afterwards.

        Raises:
            WorldStartError: The instance does not become ready.
        """
        async with self._lock:
            yield await self._open()

    async def _open(self) -> LiveWorld:
        if self._live is None or await self._is_lost(self._live):
            await self._end()
            if self._silent >= _MOST_SILENT:
                raise CouldNotRun(
                    f"the world left {MOST_TIMEOUTS} requests without an answer within"
                    f" {CALL_TIMEOUT_S:g} s each, so it is not asked again"
                )
            self._live = await (self._reach_address() if self._url else self._start())
        return self._live

    async def _start(self) -> LiveWorld:
        if self._failure is not None:
            raise self._failure
        instances = self._instances
        try:
            started = await instances.begin(instances.require_start())
        except WorldStartError as error:
            self._failure = error
            if not self._has_started:
                instances.start_failure = error
            raise
        self._has_started = True
        return await instances.reach(started.url, started)

    async def _reach_address(self) -> LiveWorld:
        """Return the instance at the address.

        Raises:
            WorldStartError: There is no answer from the address.
        """
        live = await self._instances.reach(self._url)
        exchange = await live.call("GET", API_ROUTE)
        if exchange.answer is None:
            live.close()
            raise WorldStartError(f"no world answers at {self._url}: {exchange.failure}")
        return live

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[list[Player]]:
        """Give a block exclusive use of the agents of the instance.

        There are two agents, or one if the world has no room for a second. They stay joined, so
        that checks do not fill the world; an agent that leaves must be removed from the list.

        Raises:
            CouldNotRun: An agent cannot join; ``contract.join`` reports it.
            WorldStartError: The instance does not become ready.
        """
        async with self.use() as live:
            try:
                await self.fill(live)
            except NotMet as failure:
                raise CouldNotRun(failure.evidence) from None
            yield live.players

    async def fill(self, live: LiveWorld) -> None:
        """Let agents join the instance until it has as many as the checks need.

        Raises:
            Failed: An agent cannot join.
        """
        instances = self._instances
        while len(live.players) < instances.count_players():
            taken = {player.name for player in live.players}
            name = next(name for name in instances.names if name not in taken)
            live.players.append(await live.join(name))

    async def look_around(self, actions: Sequence[AgentInput]) -> Sights:
        """Return the answers to agents that use every route, sometimes incorrectly."""
        async with self.playing() as players:
            live, player = players[0].live, players[0]
            answers = [await live.visit("Guest"), *[await each.observe() for each in players]]
            answers += [await player.act(action) for action in actions[:_MOST_ACTIONS]]
            answers += [await player.say("What time is it?"), await players[-1].hear()]
            answers += [
                await live.post(INPUT_ROUTE, {"type": "ClawbloxCheck"}),
                await live.call("POST", INPUT_ROUTE, body=b"{"),
                await live.call("POST", "/join"),
            ]
            docs = [await live.call("GET", route) for route in (API_ROUTE, API_ALIAS_ROUTE)]
            twice = []
            for route in (API_ROUTE, "/no-such-route", OBSERVE_ROUTE):
                first, second = [await live.call("GET", route) for _ in range(2)]
                twice.append((first, second))
        return Sights(tuple(answers), tuple(docs), tuple(twice))

    async def _is_lost(self, live: LiveWorld) -> bool:
        """Return whether an instance has ended, or hangs too often to be used."""
        if self._url:
            return live.is_given_up
        return (await live.call("GET", API_ROUTE)).answer is None

    async def end(self) -> None:
        """Stop the instance; a later check starts another if necessary."""
        async with self._lock:
            await self._end()

    async def _end(self) -> None:
        live, self._live = self._live, None
        if live is None:
            return
        live.close()
        if live.is_given_up:
            self._silent += _MOST_SILENT if self._url else 1
        if not self._url:
            await self._instances.stop(live)
