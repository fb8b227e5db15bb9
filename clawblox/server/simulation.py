"""The class that the author of a world writes.

Only the kit calls it, from one thread and one call at a time, so a simulation needs no locks.
Sessions, clocks, HTTP and files belong to the kit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from clawblox.protocol import ScriptErrors

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


Json: TypeAlias = Any
"""A JSON value: None, bool, finite number, string, list, or dict with string keys."""


class Clock(StrEnum):
    """The cause that advances simulation time."""

    REALTIME = "realtime"
    """A tick every ``1 / tick_rate`` seconds of real time, with or without input."""
    LOCKSTEP = "lockstep"
    """``ticks_per_input`` ticks for every accepted input, otherwise none.

    The same inputs in the same order give the same world, however long agents think.
    """


class InputError(ValueError):
    """An agent's input is refused; raised by :meth:`Simulation.act`.

    The agent gets the message with status 400. The simulation must be unchanged.
    """


class Halted(Exception):  # noqa: N818 - names the condition
    """The world has stopped for good; the message is the reason, and agents get it.

    A simulation may raise it to stop with a reason in its own words; any other exception stops
    the world too, with the name of its class in front of its message and a traceback in the log.
    """


class WorldState(Protocol):
    """The view of a world that its own routes get."""

    @property
    def tick(self) -> int:
        """Ticks since the start of the world."""

    @property
    def version(self) -> int:
        """Number of the state; it changes with whatever enters the simulation."""

    @property
    def failure(self) -> str | None:
        """Why the world has stopped; None while it runs."""


class Simulation(ABC):
    """The rules and the state of a world.

    A simulation must be deterministic: the same state and the same calls give the same next state,
    in this process and in any other. Take time from your own ticks, never from the host, and random
    numbers from a generator whose state is part of :meth:`snapshot`.

    Attributes:
        clock: What makes time pass, unless ``--clock`` overrides it.
        tick_rate: Ticks per second of real time, with :attr:`Clock.REALTIME`.
        ticks_per_input: Ticks that one accepted input advances, with :attr:`Clock.LOCKSTEP`.
        max_agents: Maximum number of agents in the world at a time.
        has_observation_header: Whether the kit adds ``tick``, ``time`` and ``game_status`` to what
            :meth:`observe` returns.
        has_shared_rows: Whether it keeps rows in a database that :meth:`rows_copier` cannot copy.
        datastore: The ``--datastore`` that it was started with, so that a replay of its recording
            starts with the same; None for worlds without that flag.
        revision: For an engine, whose worlds are data: the number of its behaviour, from 1 on. A
            higher one may continue the same state in another way, which a verified replay then
            says. None for worlds whose :meth:`content_hash` covers all that they do.
    """

    clock: Clock = Clock.REALTIME
    tick_rate: float = 60.0
    ticks_per_input: int = 1
    max_agents: int = 8
    has_observation_header: bool = True
    has_shared_rows: bool = False
    datastore: str | None = None
    revision: int | None = None

    @property
    @abstractmethod
    def format(self) -> str:
        """Name of the snapshot's format, for example ``marbles-v1``; usually a class attribute."""

    @property
    @abstractmethod
    def api_doc(self) -> str | None:
        """The Markdown that agents read, served as ``/api.md``; usually a class attribute.

        None for no document: the route then answers 404.
        """

    @property
    @abstractmethod
    def time(self) -> float:
        """Simulation time, in seconds."""

    @property
    def script_errors(self) -> ScriptErrors | None:
        """The errors of its scripts after which the world went on; None for none. Optional.

        The operator sees them in the health answer, agents never. The number should be part of
        :meth:`snapshot`.
        """
        return None

    @abstractmethod
    def content_hash(self) -> str:
        """Return a hash of the scene and the rules, but not of the state.

        A snapshot is restored only into a world with the same hash.
        """

    def begin(self) -> None:
        """Create the initial state of a fresh world. Optional.

        Called once, before every other method except :meth:`reseed`, and never for a world that
        restores a snapshot. Whatever depends on chance belongs here: in ``__init__`` it would be
        the same with every seed.
        """
        return

    def join(self, agent_id: str, name: str) -> None:
        """Add an agent, between two ticks. Not called for agents that a snapshot restores.

        Args:
            agent_id: The agent's id, unique in this world.
            name: Name to show to other agents.
        """
        return

    def leave(self, agent_id: str) -> None:
        """Remove an agent, between two ticks."""
        return

    @abstractmethod
    def act(self, agent_id: str, action: str, data: Json) -> None:
        """Apply one input of an agent; the following ticks show its effect.

        Args:
            agent_id: Id of an agent that has joined.
            action: The input's ``type``.
            data: The input's ``data``: any JSON value; None if it has none.

        Raises:
            InputError: The input is refused; the simulation is unchanged.
        """

    @abstractmethod
    def step(self) -> None:
        """Advance the world by a tick."""

    @abstractmethod
    def observe(self, agent_id: str) -> Mapping[str, Json]:
        """Return an agent's present observation as JSON values; this must not change the state.

        Several requests between two changes of the state get the same observation, computed once.
        The kit adds ``tick``, ``time`` and ``game_status``, unless ``has_observation_header`` is
        false; keys returned here override them.
        """

    def removed(self) -> Sequence[str]:
        """Return the agents that the last step removed from the world, for example by a kick.

        Called once after every step. The kit ends their sessions; it does not call :meth:`leave`
        for them.
        """
        return ()

    def audience(self, agent_id: str) -> Sequence[str] | None:
        """Return the agents that hear a message of this agent now; it always hears itself.

        Returns:
            Their ids; None for everyone, including agents that have no session or join later.
        """
        return None

    def chatted(self, agent_id: str, content: str) -> None:
        """Note a chat message, between two ticks, once it is posted.

        Args:
            agent_id: Its author.
            content: Its text.
        """
        return

    def spectate(self) -> Json | None:
        """Return the view of a spectator as JSON values; this must not change the state. Optional.

        Called only while the world is recorded, about ten times per second of simulation time. A
        replay shows it.

        Returns:
            The view; None for none.
        """
        return None

    def fingerprint(self) -> int | None:
        """Return a number that changes with state that may not be visible yet. Optional.

        Called after every tick while the world is recorded, so it must be cheap; for example, the
        state of the random generator. It must not change the state, and must be the same in a
        restored world. A verified replay finds a difference at the tick where it happens, not where
        it first shows.

        Returns:
            The number, from 0 to 2**64 - 1; None for none.
        """
        return None

    def routes(self, world: WorldState) -> Sequence[BaseRoute]:
        """Return additional routes; the kit looks them up after its own.

        The kit puts the base path in front of them and refuses requests and WebSockets from foreign
        web pages. Handlers run on the thread of the simulation, between two ticks. They must not
        change its state: recordings would lack such a change.

        Args:
            world: The world that the routes belong to.
        """
        return ()

    def serving(self, url: str) -> None:
        """Called once, when the world can be reached.

        Args:
            url: Its address, base path included.
        """
        return

    @abstractmethod
    def snapshot(self) -> Json:
        """Return the complete state, as JSON values that later calls do not change.

        The kit encodes the state while the world continues, so return copies of lists and dicts.
        Python floats survive JSON exactly.
        """

    def rows_copier(self) -> Callable[[Path], None] | None:
        """Return a function that copies the present rows of the world's own database.

        Called right after :meth:`snapshot`, between the same two ticks, where an orchestrator asks
        for a copy. The copy must not have rows that are written later.

        Returns:
            A function that another thread calls once, with the path of the file to make, while the
            world keeps running. None if there are no rows.
        """
        return None

    @abstractmethod
    def restore(self, state: Json) -> None:
        """Restore a state. Called at most once, before every other method.

        Args:
            state: What :meth:`snapshot` returned, encoded and decoded as JSON: tuples have
                become lists.

        Raises:
            ValueError: This is not a state of this world.
        """

    def reseed(self, seed: int) -> None:
        """Restart the random generator from ``seed``; leave the rest of the state unchanged.

        Called at most once, after :meth:`restore` if there is a snapshot, else before
        :meth:`begin`, and only when ``WORLD_RESEED`` or ``--reseed`` is given. Worlds that are
        resumed from the same snapshot with different seeds then diverge. Optional; declare it in
        ``world.toml`` with ``[run] reseed = true``: every fresh instance then gets a seed.

        Args:
            seed: From 0 to 2**64 - 1.

        Raises:
            NotImplementedError: The world does not support reseeding.
        """
        raise NotImplementedError
