"""A simulation with its sessions, waiting inputs and chat; no clock, no HTTP, no I/O.

``clocks`` decides when a tick happens, ``app`` translates HTTP into these calls, and
``snapshot_document`` turns all of it into a snapshot and back.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import attrs

from clawblox.server.chat import Chat, ChatMessage
from clawblox.server.payload import encode_json
from clawblox.server.sessions import AgentSession, IdSource, Sessions
from clawblox.server.simulation import Halted, InputError, Json, Simulation

_log = logging.getLogger("clawblox.server")


class WorldFull(Exception):  # noqa: N818 - names the condition
    """No further agent may join."""


@attrs.define
class PendingInput:
    """An input that waits for the next tick.

    Attributes:
        agent_id: Id of the agent that sent it.
        action: Its ``type``.
        data: Its ``data``.
        refusal: Why the simulation refused it; None if it has not.
    """

    agent_id: str = attrs.field(validator=attrs.validators.instance_of(str))
    action: str = attrs.field(validator=attrs.validators.instance_of(str))
    data: Json
    refusal: str | None = None


class WorldRecorder(Protocol):
    """The reports of a hosted world to its recorder; they do not change the world."""

    def event(self, event: str, fields: Mapping[str, object]) -> None:
        """Called with each event, in the order in which they are applied.

        Args:
            event: ``join``, ``leave``, ``removed``, ``input``, ``chat`` or ``halted``.
            fields: Its fields, JSON values.
        """

    def observed(self, agent_id: str, observation: bytes) -> None:
        """Called with each observation of an agent that was computed and differs from its last.

        Args:
            agent_id: The agent's id.
            observation: The observation, encoded as JSON.
        """

    def ticked(self) -> None:
        """Called after each tick."""


class HostedWorld:
    """A simulation with its sessions, waiting inputs and chat.

    Args:
        simulation: The author's rules and state.
        nonce: Secret of this launch, mixed into the session ids that it issues; None for a new
            secret.

    Attributes:
        simulation: The author's rules and state.
        recorder: Gets events, observations and ticks; None, as at first, records nothing.
        tick: Ticks since the start of the world.
        version: Number of the state, raised by every tick, input, join, leave and chat message.
            Results computed from a version stay valid while it is unchanged.
        time: Simulation time after the last tick, in seconds.
        sessions: The agents in the world.
        ids: Issues the ids of the next session.
        chat: The chat history.
        pending: Inputs that wait for the next tick.
        failure: The error that halted the world; None while it runs.
        seed: The latest seed, set before or after a snapshot; None if none was ever set.
    """

    def __init__(self, simulation: Simulation, *, nonce: bytes | None = None) -> None:
        self.simulation = simulation
        self.recorder: WorldRecorder | None = None
        self.tick = 0
        self.version = 0
        self.time = simulation.time
        self.sessions = Sessions()
        self.ids = IdSource(nonce)
        self.chat = Chat()
        self.pending: list[PendingInput] = []
        self.failure: str | None = None
        self.seed: int | None = None
        self._observations: dict[str, bytes] = {}
        self._observed_version = self.version

    def begin(self) -> None:
        """Make a fresh world; errors of the simulation pass through."""
        self.simulation.begin()
        self.time = self.simulation.time

    def reseed(self, seed: int) -> None:
        """Restart the random generator from ``seed``; errors of the simulation pass through."""
        self.simulation.reseed(seed)
        self.seed = seed

    def join(self, name: str) -> AgentSession:
        """Add an agent and return its session.

        Raises:
            WorldFull: As many agents as the simulation allows have joined.
            Halted: The world has stopped.
        """
        if len(self.sessions) >= self.simulation.max_agents:
            raise WorldFull("Instance is full")
        session = AgentSession(*self.ids.issue(), name)
        self.admit(session)
        return session

    def admit(self, session: AgentSession) -> None:
        """Add an agent whose session exists already, however many there are.

        Raises:
            Halted: The world has stopped.
        """
        self.version += 1
        fields = {"agent_id": session.agent_id, "name": session.name}
        with self._applying("join", lambda: fields):
            self.simulation.join(session.agent_id, session.name)
        self.sessions.add(session)

    def leave(self, session: AgentSession) -> None:
        """Remove an agent and its waiting inputs.

        Raises:
            Halted: The world has stopped.
        """
        self.version += 1
        with self._applying("leave", lambda: {"agent_id": session.agent_id}):
            self.simulation.leave(session.agent_id)
        self.sessions.remove(session)
        self._drop_inputs(session)

    def observe(self, session: AgentSession, *, is_fresh: bool = False) -> bytes:
        """Return the observation of an agent, encoded as JSON.

        Args:
            session: The agent's session.
            is_fresh: Compute it even if this version of the state has been observed before.

        Raises:
            Halted: The world has stopped; also when the observation is not valid JSON.
        """
        self.check()
        if self._observed_version != self.version:
            self._observations.clear()
            self._observed_version = self.version
        observed = None if is_fresh else self._observations.get(session.agent_id)
        if observed is None:
            observed = self._observe(session.agent_id)
            is_same = observed == self._observations.get(session.agent_id)
            if self.recorder is not None and not is_same:
                self.recorder.observed(session.agent_id, observed)
            self._observations[session.agent_id] = observed
        return observed

    def _observe(self, agent_id: str) -> bytes:
        with self.running("observe", agent_id=agent_id):
            seen = self.simulation.observe(agent_id)
            if self.simulation.has_observation_header:
                seen = {"tick": self.tick, "time": self.time, "game_status": "active", **seen}
            return encode_json(seen)

    def queue(self, session: AgentSession, action: str, data: object) -> PendingInput:
        """Queue an input for the next tick.

        Raises:
            Halted: The world has stopped.
        """
        self.check()
        pending = PendingInput(session.agent_id, action, data)
        self.pending.append(pending)
        return pending

    def apply_inputs(self) -> None:
        """Pass every waiting input to the simulation, in the order of arrival.

        Raises:
            Halted: The world has stopped.
        """
        waiting, self.pending = self.pending, []
        for item in waiting:
            self.version += 1
            with self._applying("input", partial(attrs.asdict, item, recurse=False)):
                try:
                    self.simulation.act(item.agent_id, item.action, item.data)
                except InputError as error:
                    item.refusal = str(error)

    def step(self) -> None:
        """Advance by a tick.

        Raises:
            Halted: The world has stopped.
        """
        self.version += 1
        with self.running("step"):
            self.simulation.step()
            self.time = self.simulation.time
            if not math.isfinite(self.time):
                raise ValueError(f"the simulation's time is {self.time}")
            removed = list(self.simulation.removed())
        self.tick += 1
        for agent_id in removed:
            session = self.sessions.find_agent(agent_id)
            if session is not None:
                self.sessions.end(session)
                self._drop_inputs(session)
                self._event("removed", {"agent_id": agent_id})
        if self.recorder is not None:
            self.recorder.ticked()

    def say(self, session: AgentSession, content: str, media_url: str | None = None) -> ChatMessage:
        """Post a chat message.

        Raises:
            Halted: The simulation failed as it chose the audience or received the message.
        """
        self.version += 1
        audience = None
        if self.failure is None:
            with self.running("audience", agent_id=session.agent_id):
                heard_by = self.simulation.audience(session.agent_id)
                audience = None if heard_by is None else tuple(heard_by)
        message = self.chat.post(session, content, self.time, media_url, audience)
        self._event("chat", message.document())
        if self.failure is None:
            with self.running("chat"):
                self.simulation.chatted(session.agent_id, content)
        return message

    def check(self) -> None:
        """Raise if the world has stopped.

        Raises:
            Halted: The world has stopped.
        """
        if self.failure is not None:
            raise Halted(self.failure)

    @contextmanager
    def running(self, call: str = "route", **fields: object) -> Iterator[None]:
        """Run a block that calls the simulation; its first error halts the world.

        Args:
            call: What the block does, for the record of the halt.
            **fields: Further fields of that record, JSON values.

        Raises:
            Halted: The world had stopped before, or the block raised.
        """
        self.check()
        try:
            yield
        except Halted as error:
            _log.error("the world has stopped at tick %d: %s", self.tick, error)
            self._halt(str(error), call, fields)
            raise
        except Exception as error:  # the author's code may raise anything
            _log.exception("the simulation failed: the world has stopped at tick %d", self.tick)
            self._halt(f"{type(error).__name__}: {error}", call, fields)
            raise Halted(self.failure) from error

    @contextmanager
    def _applying(self, event: str, fields: Callable[[], dict[str, Any]]) -> Iterator[None]:
        """Run a block that applies an event; record it, and after it the halt that it may cause.

        Raises:
            Halted: The world had stopped before, or the block raised.
        """
        with self.running(event):
            try:
                yield
            finally:
                if self.recorder is not None:
                    self.recorder.event(event, fields())

    def _halt(self, reason: str, call: str, fields: Mapping[str, object]) -> None:
        self.failure = reason
        self.version += 1
        self._event("halted", {"error": reason, "call": call, **fields})

    def _drop_inputs(self, session: AgentSession) -> None:
        self.pending = [item for item in self.pending if item.agent_id != session.agent_id]

    def _event(self, event: str, fields: Mapping[str, object]) -> None:
        if self.recorder is not None:
            self.recorder.event(event, fields)
