"""One running world, without time and without HTTP: simulation, sessions, inputs, chat.

Nothing here waits and nothing here does I/O. ``clocks`` decides when a tick happens, ``app``
translates HTTP into these calls, ``document`` turns the whole into a snapshot and back.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import attrs

from clawblox.server.chat import Chat, ChatMessage
from clawblox.server.payload import encode_json
from clawblox.server.sessions import IdSource, Session, Sessions
from clawblox.server.simulation import InputError, Json, Simulation

__all__ = ["Halted", "Instance", "InstanceFull", "PendingInput"]

_log = logging.getLogger("clawblox.server")


class Halted(Exception):  # noqa: N818 - says the condition
    """The simulation raised an error; the world has stopped for good."""


class InstanceFull(Exception):  # noqa: N818 - says the condition
    """No further agent may join."""


@attrs.define
class PendingInput:
    """An input that waits for the next tick.

    Attributes:
        agent_id: Who sent it.
        action: Its ``type``.
        data: Its ``data``.
        refusal: Why the simulation refused it, once it has.
    """

    agent_id: str = attrs.field(validator=attrs.validators.instance_of(str))
    action: str = attrs.field(validator=attrs.validators.instance_of(str))
    data: Json
    refusal: str | None = None


class Instance:
    """A simulation and everybody in it.

    Args:
        simulation: The world.
        record: Called with every event, as JSON-able values.

    Attributes:
        simulation: The world.
        tick: Ticks since the world began.
        time: Simulation time after the last of them, in seconds.
        sessions: Who is in it.
        ids: Where the next session's ids come from.
        chat: What was said.
        pending: Inputs that wait for the next tick.
        failure: The error that halted the world, or None.
    """

    def __init__(
        self,
        simulation: Simulation,
        record: Callable[[Mapping[str, object]], None] | None = None,
    ) -> None:
        self.simulation = simulation
        self.record = record
        self.tick = 0
        self.time = simulation.time
        self.sessions = Sessions()
        self.ids = IdSource()
        self.chat = Chat()
        self.pending: list[PendingInput] = []
        self.failure: str | None = None

    def join(self, name: str) -> Session:
        """Take a new agent in.

        Raises:
            InstanceFull: There are as many agents as the simulation allows.
            Halted: The world has stopped.
        """
        if len(self.sessions) >= self.simulation.max_agents:
            raise InstanceFull
        session = Session(*self.ids.issue(), name)
        with self.running():
            self.simulation.join(session.agent_id, name)
        self.sessions.add(session)
        self._event("join", agent_id=session.agent_id, name=name)
        return session

    def leave(self, session: Session) -> None:
        """Let an agent go, with the inputs it still had waiting.

        Raises:
            Halted: The world has stopped.
        """
        with self.running():
            self.simulation.leave(session.agent_id)
        self.sessions.remove(session)
        self.pending = [each for each in self.pending if each.agent_id != session.agent_id]
        self._event("leave", agent_id=session.agent_id)

    def observe(self, session: Session) -> bytes:
        """Return what an agent sees now, encoded as JSON.

        Raises:
            Halted: The world has stopped, be it that what is seen is not JSON.
        """
        with self.running():
            seen = self.simulation.observe(session.agent_id)
            header = {"tick": self.tick, "time": self.time, "game_status": "active"}
            return encode_json({**header, **seen})

    def queue(self, session: Session, action: str, data: object) -> PendingInput:
        """Keep an input for the next tick.

        Raises:
            Halted: The world has stopped.
        """
        self.check()
        pending = PendingInput(session.agent_id, action, data)
        self.pending.append(pending)
        return pending

    def apply_inputs(self) -> None:
        """Hand every waiting input to the simulation, in the order of arrival.

        Raises:
            Halted: The world has stopped.
        """
        waiting, self.pending = self.pending, []
        for each in waiting:
            with self.running():
                try:
                    self.simulation.act(each.agent_id, each.action, each.data)
                except InputError as error:
                    each.refusal = str(error)
            self._event("input", **attrs.asdict(each))

    def step(self) -> None:
        """Advance by one tick.

        Raises:
            Halted: The world has stopped.
        """
        with self.running():
            self.simulation.step()
            self.time = self.simulation.time
            if not math.isfinite(self.time):
                raise ValueError(f"the simulation's time is {self.time}")
        self.tick += 1

    def say(self, session: Session, content: str) -> ChatMessage:
        """Post a chat message."""
        message = self.chat.post(session, content, self.time)
        self._event("chat", **attrs.asdict(message))
        return message

    def check(self) -> None:
        """Do nothing while the world runs.

        Raises:
            Halted: The world has stopped.
        """
        if self.failure is not None:
            raise Halted(self.failure)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Guard every call of the simulation: its first error halts the world.

        Raises:
            Halted: The world has stopped, before or just now.
        """
        self.check()
        try:
            yield
        except Exception as error:  # whatever an author's code raises
            self.failure = f"{type(error).__name__}: {error}"
            _log.exception("the simulation failed; the world has stopped at tick %d", self.tick)
            self._event("halted", error=self.failure)
            raise Halted(self.failure) from error

    def _event(self, event: str, **fields: object) -> None:
        if self.record is not None:
            self.record({"tick": self.tick, "time": self.time, "event": event, **fields})
