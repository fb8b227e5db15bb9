"""The request for a run in fresh places, and its result, as sent between two processes."""

from __future__ import annotations

import math
import re
from typing import Final, Literal, TypeAlias

import attrs
import msgspec

from clawblox.conformance.comparison import Seen
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.live import LiveWorld, Player, Step, Trace
from clawblox.conformance.masking import find_secrets
from clawblox.world.private_copies import TrialOptions

MAX_RESULT_BYTES: Final = 1 << 30
_URL: Final = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}/[!-~]*")
Fault: TypeAlias = Literal["", "start", "life"]


@attrs.frozen
class AgentIdentity:
    """An agent, without the instance that the agent has joined.

    Attributes:
        name: Its name.
        session: Its session; empty before the join.
        agent_id: Its id.
    """

    name: str
    session: str = attrs.field(default="", repr=False)
    agent_id: str = ""

    def playing(self, live: LiveWorld) -> Player:
        """Return the agent in an instance."""
        return Player(live, self.name, self.session, self.agent_id)


@attrs.frozen(kw_only=True)
class LifeRequest:
    """A request for a run of a world.

    Attributes:
        world: Directory of the world.
        run_dir: Directory of the run.
        name: Name of the instance.
        env: Further variables of the world.
        options: Options for the start of the world.
        is_realtime: Whether the world runs by itself.
        agents: Its agents; without sessions they join first.
        save: Snapshot to restore; empty starts a fresh world and saves it after ``warm``.
        warm: Steps before the save of a fresh world.
        script: Steps after the save, for a world that stands still.
        observed_until: Minimum simulated time until which a running world is observed.
        saved_until: Simulated time until which its snapshots are compared.
        is_alone: Whether all other visible processes belong to the world.
        listeners: Inodes of the Unix listeners before the first run of the world.
    """

    world: str = ""
    run_dir: str = ""
    name: str
    env: dict[str, str]
    options: TrialOptions
    is_realtime: bool
    agents: tuple[AgentIdentity, ...]
    save: str = ""
    warm: tuple[Step, ...] = ()
    script: tuple[Step, ...] = ()
    observed_until: float = -math.inf
    saved_until: float = -math.inf
    is_alone: bool = False
    listeners: tuple[int, ...]


@attrs.define(kw_only=True)
class Result(Seen):
    """Result of a run, with the observed documents.

    Attributes:
        fault: Whether the world did not start, or failed later.
        reason: The fault in words.
        evidence: The request that showed a fault; None if there was none.
        secrets: The secrets of the instance, by their variables.
        agents: Its agents.
        save: The save of a fresh world.
        rows: The rows of its data stores in that save; empty if there are none.
        files: Files that the world left in temporary directories.
        listeners: Unix sockets on which the world listened.
        foreign: Files and listeners of unknown origin.
    """

    fault: Fault = ""
    reason: str = ""
    evidence: Exchange | None = None
    secrets: dict[str, str] = attrs.field(factory=dict, repr=False)
    agents: tuple[AgentIdentity, ...] = ()
    save: bytes = b""
    rows: bytes = b""
    files: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def decode_result(data: bytes, order: LifeRequest) -> Result:
    """Decode a result from bytes, which the world could have changed.

    Args:
        data: The bytes.
        order: The request that the result answers.

    Raises:
        ValueError: The bytes are not a result, or do not answer this request.
    """
    try:
        result = msgspec.msgpack.decode(data, type=Result)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _require_whole(result, order)
    result.secrets = find_secrets(result.secrets)
    result.trace = Trace(order.script, result.trace.exchanges)
    return result


def _require_whole(result: Result, order: LifeRequest) -> None:
    """Require the parts that every result of a request has, and evidence that is a valid request.

    Raises:
        ValueError: A part is missing or of another form.
    """
    sent = result.evidence
    if sent is not None and not (sent.method in ("GET", "POST") and _URL.fullmatch(sent.url)):
        raise ValueError("its evidence is not a request to a world")
    if result.fault or order.is_realtime:
        return
    if result.final is None or len(result.trace.exchanges) != len(order.script):
        raise ValueError("its script did not come to an end")
