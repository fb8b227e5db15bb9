"""What a world's author writes: one class, called by the kit and by nobody else.

Every call comes from one thread, and never while another one runs, so a simulation needs no
lock. Everything around it (agents' sessions, time, HTTP, files) belongs to the kit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

__all__ = ["Clock", "InputError", "Json", "Simulation"]

Json: TypeAlias = Any
"""Any JSON-able value: None, bool, finite number, string, list, dict with string keys."""


class Clock(StrEnum):
    """What makes simulation time pass."""

    REALTIME = "realtime"
    """A tick every ``1 / tick_rate`` seconds of real time, whoever acts or does not."""
    LOCKSTEP = "lockstep"
    """``ticks_per_input`` ticks for every input that is accepted, and none otherwise.

    The same inputs in the same order give the same world, however long agents think.
    """


class InputError(ValueError):
    """An agent's input cannot be done; raised by :meth:`Simulation.act`.

    The agent gets the message with status 400. The simulation must be as it was before.
    """


class Simulation(ABC):
    """A world's rules and state.

    It must be deterministic: the same state and the same calls give the same next state, in
    this process and in another one. So it takes time from its own ticks, never from the
    host, and chance from a generator whose state is part of :meth:`snapshot`.

    Attributes:
        clock: What makes time pass, unless ``--clock`` says otherwise.
        tick_rate: Ticks per second of real time, under :attr:`Clock.REALTIME`.
        ticks_per_input: Ticks that one input advances, under :attr:`Clock.LOCKSTEP`.
        max_agents: How many agents may be joined at one time.
    """

    clock: Clock = Clock.REALTIME
    tick_rate: float = 60.0
    ticks_per_input: int = 1
    max_agents: int = 8

    @property
    @abstractmethod
    def format(self) -> str:
        """Name of the snapshot's format, for example ``marbles-v1``; a class attribute will do."""

    @property
    @abstractmethod
    def api_doc(self) -> str:
        """The Markdown that agents read, served as ``/api.md``; a class attribute will do."""

    @property
    @abstractmethod
    def time(self) -> float:
        """Simulation time, in seconds."""

    @abstractmethod
    def content_hash(self) -> str:
        """Identify the world's content: whatever a state is meaningless without.

        A snapshot is only restored where this is the same: hash the scene and the rules,
        not the state.
        """

    def join(self, agent_id: str, name: str) -> None:
        """Take a new agent in, between two ticks. Not called for agents that are restored.

        Args:
            agent_id: The agent's id, unique in this world.
            name: The name to show.
        """
        return

    def leave(self, agent_id: str) -> None:
        """Let an agent go, between two ticks."""
        return

    @abstractmethod
    def act(self, agent_id: str, action: str, data: Json) -> None:
        """Take one input of an agent; its effect unfolds in the ticks that follow.

        Args:
            agent_id: An agent that has joined.
            action: The input's ``type``.
            data: The input's ``data``: any JSON value with finite numbers, or None.

        Raises:
            InputError: The input cannot be done, and nothing was changed.
        """

    @abstractmethod
    def step(self) -> None:
        """Advance the world by one tick."""

    @abstractmethod
    def observe(self, agent_id: str) -> Mapping[str, Json]:
        """Return what an agent sees now, as JSON-able values.

        The kit puts ``tick``, ``time`` and ``game_status`` in front; a key of the same name
        takes their place.
        """

    @abstractmethod
    def snapshot(self) -> Json:
        """Return the complete state, as JSON-able values that no later call changes.

        The document is written out while the world goes on: return copies of lists and
        dicts, not the simulation's own. Python's floats survive JSON to the bit.
        """

    @abstractmethod
    def restore(self, state: Json) -> None:
        """Become the world that :meth:`snapshot` saw. Called at most once, before anything.

        Args:
            state: What :meth:`snapshot` returned, after its way through JSON: tuples have
                become lists.

        Raises:
            ValueError: This is not a state of this world.
        """

    def reseed(self, seed: int) -> None:
        """Draw chance from ``seed`` from now on; the state is otherwise as it was.

        Called at most once, after :meth:`restore` where there is one, and only where somebody
        asked for it: several worlds that are resumed from one snapshot then part ways, each by
        its seed. What was drawn before stays. Optional; declare it in ``world.toml`` with
        ``[run] reseed = true``.

        Args:
            seed: From 0 to 2**64 - 1.

        Raises:
            NotImplementedError: The world has no chance in it, or cannot change it.
        """
        raise NotImplementedError
