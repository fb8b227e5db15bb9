"""The messages between the driver and a host: values that can be pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from clawblox.agents.values import AgentEvent, Usage
from clawblox.experiment.cluster.mirror import FileGrowth
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.schedule.ports import AgentActivity, Signal
from clawblox.results import Event, WorldEvent

_EVENTS: Mapping[str, type[Event]] = {
    kind.__name__: kind for kind in (Event, WorldEvent, AgentEvent)
}


@attrs.frozen(kw_only=True)
class AttemptOpening:
    """An attempt for a host to open; its files were sent before.

    Attributes:
        order: The attempt.
        world: Name of the sent files of the world; None if the world is an address.
        prompts: Contents of the system prompts of the agents; None for an agent without one.
        env: Values of the variables of agents; None for those of the node.
        grace_s: Seconds between TERM and KILL when worlds and agents are stopped.
    """

    order: AttemptOrder
    world: str | None
    prompts: Sequence[bytes | None]
    env: Mapping[str, str] | None = attrs.field(repr=False)
    grace_s: float


@attrs.frozen(kw_only=True)
class AttemptAgents:
    """Activity and usage of the agents of an attempt.

    Attributes:
        number: Its number; a state with a higher number is a later one.
        activity: See :meth:`clawblox.experiment.schedule.ports.Attempt.activity`.
        usage: See :meth:`clawblox.experiment.schedule.ports.Attempt.usage`.
    """

    number: int
    activity: tuple[AgentActivity, ...]
    usage: tuple[Usage, ...]


@attrs.frozen(kw_only=True)
class Reply:
    """The answer to a call.

    Attributes:
        value: What the method returned.
        error: What it raised; None if it returned.
        state: The state after it; None without an open attempt.
    """

    value: Any = None
    error: Exception | None = None
    state: AttemptAgents | None = None


@attrs.frozen(kw_only=True)
class News:
    """Events since the previous news.

    Attributes:
        growths: Files of the run directory that have grown.
        signals: The signals of the attempt.
        events: The events of its world and agents, as :func:`pack_event` makes them.
        log: Lines of this package's own log: level, event and fields.
    """

    growths: Sequence[FileGrowth]
    signals: Sequence[Signal]
    events: Sequence[tuple[str, Mapping[str, Any]]]
    log: Sequence[tuple[str, str, Mapping[str, str]]]


@attrs.frozen(kw_only=True)
class Changes:
    """The files of a part of a run directory that have changed since the part was last sent.

    Attributes:
        token: The state of the files, for the next call.
        size: Size of the bundle in bytes.
        sha256: Its digest.
        gone: Names that no longer exist.
    """

    token: int
    size: int
    sha256: str
    gone: Sequence[str]


def pack_event(event: Event) -> tuple[str, Mapping[str, Any]]:
    """Return a picklable form of an event, whose data are read-only views."""
    members = attrs.asdict(event, recurse=False)
    plain = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in members.items()
    }
    return type(event).__name__, plain


def unpack_event(packed: tuple[str, Mapping[str, Any]]) -> Event:
    """Return the event of a packed form."""
    kind, members = packed
    return _EVENTS[kind](**members)
