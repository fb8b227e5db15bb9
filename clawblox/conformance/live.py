"""A running instance for checks: raw requests, agents, and scripts of both."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

import anyio
import attrs

from clawblox import protocol
from clawblox.conformance.disguise import draw_sentence
from clawblox.conformance.exchange import Exchange, number_names
from clawblox.conformance.masking import SESSION, SecretMask
from clawblox.conformance.pace import SimulationPace
from clawblox.conformance.registry import CouldNotRun, NotMet
from clawblox.errors import ConfigError, WorldCallError
from clawblox.protocol import OPERATOR_HEADER, OPERATOR_TOKEN_ENV, SESSION_HEADER, parse_join_answer
from clawblox.results import StartedWorld, StopResult
from clawblox.system.connection import AnswerTooLargeError, Connections
from clawblox.system.request import MAX_ANSWER_BYTES

CALL_TIMEOUT_S: Final = 10.0
"""Maximum wait for an answer, in seconds."""
MOST_TIMEOUTS: Final = 3
"""Number of unanswered requests after which an instance gets no more requests."""
MAX_SNAPSHOT_BYTES: Final = 256 << 20
JSON_BODY: Final = {"Content-Type": "application/json"}


@attrs.frozen
class AgentInput:
    """An input that agents may send.

    Attributes:
        type: Its ``type``.
        data: Its ``data``; None for no data.
    """

    type: str
    data: Any = None

    @property
    def body(self) -> dict[str, Any]:
        """The body of the request."""
        return {"type": self.type} if self.data is None else {"type": self.type, "data": self.data}


@attrs.define(eq=False)
class LiveWorld:
    """A running instance, with its own persistent connections.

    Attributes:
        url: Its address.
        started: The facts of its start; None if others started it.
        names: Names of the agents that may join.
        stopped: The result of its stop; None while it is running.
        players: Agents that have joined and stay, for checks that need agents.
        timeouts: Number of requests without an answer within :data:`CALL_TIMEOUT_S`.
        largest_bytes: Size of its largest answer to agents.
        too_large: A request whose answer exceeded the limit; None if there was none.
        pace: Its pace, from its observations.
    """

    url: str
    started: StartedWorld | None = None
    names: Sequence[str] = ()
    _mask: SecretMask = attrs.field(factory=SecretMask, repr=False)
    stopped: StopResult | None = attrs.field(init=False, default=None)
    players: list[Player] = attrs.field(init=False, factory=list)
    timeouts: int = attrs.field(init=False, default=0)
    largest_bytes: int = attrs.field(init=False, default=0)
    too_large: Exchange | None = attrs.field(init=False, default=None)
    pace: SimulationPace = attrs.field(
        init=False, factory=lambda: SimulationPace(anyio.current_time())
    )
    _connections: Connections = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._connections = Connections(self.url)

    @property
    def name(self) -> str:
        """Name of the instance; empty if others started it."""
        return "" if self.started is None else self.started.name

    @property
    def operator_token(self) -> str:
        """The operator token of the instance.

        Raises:
            CouldNotRun: The token is unknown.
        """
        if self.started is None:
            raise CouldNotRun("the operator token of a world at an address is unknown")
        return self.started.env[OPERATOR_TOKEN_ENV]

    @property
    def is_given_up(self) -> bool:
        """True if the instance hangs: too many requests were unanswered, so no more are sent."""
        return self.timeouts >= MOST_TIMEOUTS

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    async def call(
        self,
        method: str,
        route: str,
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        host: str | None = None,
    ) -> Exchange:
        """Send a request; a missing or unusable answer is evidence, not an error.

        Args:
            method: The method, in capitals.
            route: Route below the address.
            query: Encoded query.
            headers: Headers in addition to those of every request.
            body: Body; None for no body.
            host: Value of the ``Host`` header; None means the address.

        Raises:
            CouldNotRun: The answer exceeds the size limit.

        Cancellation: the connection is closed; the world may have received the request.
        """
        headers = headers or {}
        url = f"{self.url}{route}{'?' if query else ''}{query}"
        if self.is_given_up:
            failure = f"not sent, because {MOST_TIMEOUTS} requests before had no answer in time"
            return Exchange(method, url, headers, body, host, None, failure)
        answer, failure = None, ""
        limit = MAX_SNAPSHOT_BYTES if route == protocol.SNAPSHOT_ROUTE else MAX_ANSWER_BYTES
        begun = anyio.current_time()
        try:
            request = self._connections.prepare(
                method, route, query=query, headers=headers, host=host
            )
            answer = await self._connections.send(
                request, body, timeout=CALL_TIMEOUT_S, max_body_bytes=limit
            )
        except AnswerTooLargeError as error:
            if route != protocol.SNAPSHOT_ROUTE:
                self.too_large = Exchange(method, url, headers, body, host, None, error.headline)
            raise CouldNotRun(error.headline) from None
        except WorldCallError as error:
            failure = str(error)
            self.timeouts += anyio.current_time() - begun >= CALL_TIMEOUT_S
        except ConfigError as error:  # the world issued a session or an id that cannot be sent
            failure = f"the request cannot be sent: {error}"
        if answer is not None and route != protocol.SNAPSHOT_ROUTE:
            self.largest_bytes = max(self.largest_bytes, len(answer.body))
        return Exchange(method, url, headers, body, host, answer, failure)

    async def post(
        self, route: str, value: object, *, headers: Mapping[str, str] | None = None
    ) -> Exchange:
        """Send a JSON value."""
        body = json.dumps(value).encode()
        return await self.call("POST", route, headers={**JSON_BODY, **(headers or {})}, body=body)

    async def try_join(self, name: str, *, session: str | None = None) -> Exchange:
        """Ask to join, with a known session if given."""
        headers = {} if session is None else {SESSION_HEADER: session}
        query = urlencode({"name": name})
        exchange = await self.call("POST", protocol.JOIN_ROUTE, query=query, headers=headers)
        issued = exchange.fields.get("session")
        if isinstance(issued, str):
            self._mask.add(SESSION, issued)
        return exchange

    async def visit(self, name: str, *, session: str | None = None) -> Exchange:
        """Ask to join like :meth:`try_join`; an agent that gets a session leaves again."""
        exchange = await self.try_join(name, session=session)
        issued = exchange.fields.get("session")
        if isinstance(issued, str):
            await Player(self, name, issued, "").leave()
        return exchange

    async def join(self, name: str) -> Player:
        """Let an agent join.

        Raises:
            Failed: The world refuses, or its answer has no session.
        """
        exchange = await self.try_join(name)
        if not exchange.is_accepted:
            raise NotMet(f"an agent could not join: {exchange.outcome}", exchange=exchange)
        try:
            answer = parse_join_answer(exchange.content)
        except ValueError as error:
            evidence = f"an agent could not join ({error}): {exchange.outcome}"
            raise NotMet(evidence, exchange=exchange) from None
        return Player(self, name, answer.session, answer.agent_id)

    async def snapshot(self, rows: Path | None = None) -> Exchange:
        """Ask for a snapshot, as the operator.

        Args:
            rows: Path to which the world copies the rows of its data stores; None copies no rows.

        Raises:
            CouldNotRun: The operator token is unknown.
        """
        headers = {OPERATOR_HEADER: self.operator_token}
        if rows is not None:
            headers[protocol.DATASTORE_HEADER] = quote(os.fsencode(rows))
        return await self.call("GET", protocol.SNAPSHOT_ROUTE, headers=headers)


@attrs.frozen
class Player:
    """An agent that has joined an instance.

    Attributes:
        live: The instance.
        name: Its name.
        session: Its session.
        agent_id: Its id; empty if the world gave none.
    """

    live: LiveWorld
    name: str
    session: str = attrs.field(repr=False)
    agent_id: str

    @property
    def _headers(self) -> dict[str, str]:
        return {SESSION_HEADER: self.session}

    def moved(self, live: LiveWorld) -> Player:
        """Return the same agent in another run of its world."""
        return attrs.evolve(self, live=live)

    async def observe(self) -> Exchange:
        """Ask for an observation."""
        exchange = await self.live.call("GET", protocol.OBSERVE_ROUTE, headers=self._headers)
        if times := exchange.times:
            self.live.pace.note(times[0], anyio.current_time())
        return exchange

    async def act(self, action: AgentInput) -> Exchange:
        """Send an input."""
        return await self.live.post(protocol.INPUT_ROUTE, action.body, headers=self._headers)

    async def say(self, text: str) -> Exchange:
        """Send a chat message."""
        return await self.live.post(protocol.CHAT_ROUTE, {"content": text}, headers=self._headers)

    async def hear(self) -> Exchange:
        """Ask for the latest chat messages."""
        return await self.live.call("GET", protocol.CHAT_MESSAGES_ROUTE, headers=self._headers)

    async def rejoin(self) -> Exchange:
        """Ask to join with the session."""
        return await self.live.try_join(self.name, session=self.session)

    async def leave(self) -> Exchange:
        """Leave the world."""
        return await self.live.call("POST", protocol.LEAVE_ROUTE, headers=self._headers)


StepKind: TypeAlias = Literal["observe", "act", "say", "hear"]


@attrs.frozen
class Step:
    """A step of a script.

    Attributes:
        kind: Kind of the step.
        player: Number of the acting agent.
        action: The input that the agent sends.
        text: The message that the agent sends.
    """

    kind: StepKind
    player: int
    action: AgentInput | None = None
    text: str = ""

    def __str__(self) -> str:
        what = f" {self.action.type}" if self.action else f" {self.text!r}" if self.text else ""
        return f"agent {self.player + 1}: {self.kind}{what}"


def require_accepted(exchange: Exchange, what: str) -> None:
    """Require that the world answered with 2xx.

    Args:
        exchange: The request.
        what: The request in words, as the start of a sentence.

    Raises:
        Failed: The world answered otherwise.
    """
    if not exchange.is_accepted:
        raise NotMet(f"{what} was not accepted: {exchange.outcome}", exchange=exchange)


def require_control(exchange: Exchange, what: str) -> None:
    """Require 2xx for the valid request, without which refusals of other requests prove nothing.

    Args:
        exchange: The request.
        what: The request in words, as the start of a sentence.

    Raises:
        CouldNotRun: The request was not accepted.
    """
    if not exchange.is_accepted:
        raise CouldNotRun(f"{what} was not accepted either: {exchange.outcome}")


def require_refused(exchange: Exchange, what: str) -> None:
    """Require that the world answered with 4xx.

    Args:
        exchange: The request.
        what: The request in words, as the start of a sentence.

    Raises:
        Failed: The world answered otherwise.
    """
    if exchange.is_accepted:
        raise NotMet(f"{what} was accepted with {exchange.status}", exchange=exchange)
    if not 400 <= exchange.status < 500:
        raise NotMet(f"{what} was not refused with 4xx: {exchange.outcome}", exchange=exchange)


def is_missing(exchange: Exchange) -> bool:
    """Return whether the world does not have the route."""
    return exchange.status in (404, 405, 501)


def make_script(
    random: Random, actions: Sequence[AgentInput], *, rounds: int, players: int
) -> tuple[Step, ...]:
    """Return a script in which agents first look, and then act in turn, look, talk and listen.

    The first look matters, because values that a world derives from its state may be out of date
    between a restore and the first input.

    Args:
        random: Source of the choices.
        actions: Inputs to choose from; may be empty.
        rounds: Number of inputs.
        players: Number of agents.
    """
    steps = [Step("observe", player) for player in range(players)]
    for number in range(rounds):
        actor = number % players
        if actions:
            steps.append(Step("act", actor, random.choice(actions)))
        steps += [Step("observe", player) for player in range(players)]
        if number % 4 == 1:
            steps.append(Step("say", actor, text=draw_sentence(random)))
        if number % 4 == 2:
            steps.append(Step("hear", (actor + 1) % players))
    return (*steps, *(Step("hear", player) for player in range(players)))


@attrs.frozen
class Trace:
    """The answers to a script.

    Attributes:
        steps: The steps.
        exchanges: The request and answer of each step.
    """

    steps: tuple[Step, ...] = ()
    exchanges: tuple[Exchange, ...] = ()

    def __iter__(self) -> Iterator[tuple[Step, Exchange]]:
        return zip(self.steps, self.exchanges, strict=True)

    @property
    def accepted(self) -> int:
        """Number of inputs that the world accepted."""
        return sum(step.kind == "act" and exchange.is_accepted for step, exchange in self)

    @property
    def said(self) -> Exchange | None:
        """The answer to the first chat message; None without a message."""
        return next((exchange for step, exchange in self if step.kind == "say"), None)

    def since(self, step: int) -> Trace:
        """Return the trace, starting at a step."""
        return Trace(self.steps[step:], self.exchanges[step:])

    def numbered(self, names: Sequence[str]) -> Trace:
        """Return the trace with some names replaced with their numbers."""
        numbered = tuple(number_names(exchange, names) for exchange in self.exchanges)
        return attrs.evolve(self, exchanges=numbered)


async def run_script(players: Sequence[Player], script: Sequence[Step]) -> Trace:
    """Run a script and return the answers.

    Args:
        players: The agents that have joined.
        script: The steps.

    Cancellation: the rest of the script is not run.
    """
    return Trace(tuple(script), tuple([await _take(step, players) for step in script]))


async def _take(step: Step, players: Sequence[Player]) -> Exchange:
    player = players[step.player]
    if step.action is not None:
        return await player.act(step.action)
    if step.kind == "say":
        return await player.say(step.text)
    return await (player.observe() if step.kind == "observe" else player.hear())


@attrs.frozen
class FirstObservation:
    """The first observations of agents right after a restore.

    Attributes:
        players: The agents.
        observed: Their observations, without a new join.
        heard: The chat messages that the agents get.
    """

    players: tuple[Player, ...]
    observed: tuple[Exchange, ...]
    heard: tuple[Exchange, ...]


async def observe_all(players: Sequence[Player]) -> FirstObservation:
    """Let agents of an earlier run look around.

    Raises:
        Failed: A session is refused.
    """
    observed = [await player.observe() for player in players]
    for player, exchange in zip(players, observed, strict=True):
        if not exchange.is_accepted:
            evidence = f"the session of {player.name} was refused: {exchange.outcome}"
            raise NotMet(evidence, exchange=exchange)
    heard = [await player.hear() for player in players]
    return FirstObservation(tuple(players), tuple(observed), tuple(heard))


@attrs.frozen
class LateJoiner:
    """The first agent that joined after a save.

    Attributes:
        player: The agent.
        said: The answer to its first chat message; None without a message.
    """

    player: Player
    said: Exchange | None


async def join_late(live: LiveWorld, players: Sequence[Player]) -> LateJoiner | None:
    """Let one more agent join and talk; return None if the world refuses the agent."""
    try:
        joined = await live.join(live.names[len(players)])
    except NotMet:  # the world may be full
        return None
    return LateJoiner(joined, await joined.say("hello"))
