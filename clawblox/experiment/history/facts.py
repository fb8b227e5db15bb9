"""The members of each type of line, checked when a journal is read or written.

A journal may come from a stranger or from a damaged disk. Its names become parts of paths, so they
must have the form of names of this package or of the public generation scripts. Unknown members
are allowed, because newer versions add some. Decoders are built at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from clawblox.experiment.history.checkpoints import Branch, CheckpointRef
from clawblox.experiment.history.lines import (
    MAX_SECONDS,
    CheckpointKind,
    FailureCause,
    FileName,
    LineType,
    Name,
    Number,
    PauseReason,
    Phase,
    Seconds,
)
from clawblox.foreign_values import MAX_NUMBER

_T = TypeVar("_T")

# An `\A` and a `\Z`, because msgspec searches for a pattern anywhere.
FilePath: TypeAlias = Annotated[
    str, Meta(pattern=r"\A(?:(?!\.{0,2}(?:/|\Z))[^/\x00]{1,255}(?:/(?=[^/])|\Z))+\Z")
]
"""Relative path of a file, without ``..``."""
Workspace: TypeAlias = Annotated[
    str, Meta(pattern=r"\Aruns/(?!\.+/)[A-Za-z0-9._-]+/agents/(?!\.+/)[A-Za-z0-9._-]+/workspace\Z")
]
"""Path of a workspace, relative to the directory of the chain."""
ForeignPath: TypeAlias = Annotated[str, Meta(pattern=r"\A[^\x00]{0,8192}\Z")]
"""Path in a table of the public scripts; shown, never opened."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Bound: TypeAlias = Annotated[float, Meta(ge=0.0, le=604_800.0)]
"""Seconds that a chain may have to wait; a week at most, even in a stranger's journal."""
WorldTime: TypeAlias = Annotated[float, Meta(ge=-MAX_SECONDS, le=MAX_SECONDS)]
Score: TypeAlias = Annotated[float, Meta(ge=-1e300, le=1e300)]
Dollars: TypeAlias = Annotated[float, Meta(ge=0.0, le=float(MAX_NUMBER))]
Time: TypeAlias = Annotated[
    str, Meta(pattern=r"\A\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[0-9.,:+Zz-]{0,24}\Z")
]
"""UTC time; tables of the public scripts use more forms."""


# -- parts of data --------------------------------------------------------------------------------


class UsageFacts(Struct):
    """Usage of an agent; see :class:`clawblox.agents.values.Usage`."""

    input_tokens: Count = 0
    cached_tokens: Count = 0
    cache_write_tokens: Count = 0
    output_tokens: Count = 0
    reasoning_tokens: Count = 0
    cost_usd: Dollars | None = None
    turns: Count = 0
    missing_costs: Count = 0


class AgentFacts(Struct):
    """An agent as it was started or validated."""

    name: Name
    version: str | None = None
    model: str | None = None


class InputFacts(Struct):
    """Digests of inputs; see :class:`clawblox.experiment.inputs.InputDigests`."""

    world: dict[str, str]
    prompts: dict[str, str]
    templates: dict[str, str]


class HookFacts(Struct):
    """A hook of a run of the experiment."""

    name: str
    digest: str | None


class RowFacts(Struct):
    """A row of a table of the public scripts."""

    generation: str
    agent_index: str
    agent_name: Name
    run_id: Name
    tmux_session: str
    template_in: ForeignPath
    workspace_out: ForeignPath
    start_utc: Time
    end_utc: Time
    duration_seconds: str


# -- data by type ---------------------------------------------------------------------------------


class NoFacts(Struct):
    """A line whose members are not read."""


class Begun(Struct):
    """The start of an experiment."""

    plan: Literal["plan.toml"]
    inputs: InputFacts | UnsetType = UNSET


class Amended(Struct):
    """The plan has a new revision."""

    revision: Number
    plan: str
    inputs: InputFacts | UnsetType = UNSET
    changes: list[Any] = []
    mends: bool = False

    def __post_init__(self) -> None:
        expected = f"plan-{self.revision}.toml"
        if self.plan != expected:
            raise ValueError(f"plan: must be {expected}")


class ExperimentRunBegun(Struct):
    """A process starts to run the experiment."""

    pid: Count = 0
    host: str = ""
    boot_id: str = ""
    lease_s: Seconds = 0.0
    hooks: dict[str, HookFacts] = {}


class WaitFacts(Struct):
    """Chains that wait, and the reason."""

    chains: list[Name]
    reason: PauseReason
    text: str = ""


class ExperimentRunEnded(Struct):
    """A process has stopped running the experiment."""

    elapsed_s: Seconds = 0.0
    reason: str = ""
    waits: list[WaitFacts] = []


class Limited(Struct):
    """An account is limited."""

    account: str
    reason: Literal["limit", "auth"]
    until: Time | None = None


class Cleared(Struct):
    """An account works again."""

    account: str


class HostFacts(Struct):
    """The host of an attempt on a node; see :class:`clawblox.experiment.schedule.ports.Room`."""

    node: Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]{1,255}\Z")]
    lease_s: Bound
    bound_s: Bound
    machine: dict[str, str] = {}


class Opened(Struct):
    """The start of an attempt."""

    origin: CheckpointRef | None = None
    inherited: Name | None = None
    phase: Phase = "work"
    reason: str = ""
    elapsed_s: Seconds = 0.0
    idle_s: Seconds = 0.0
    revision: Count = 0
    host: HostFacts | None = None
    differs: str = ""

    def __post_init__(self) -> None:
        if self.phase != "work" and self.origin is None:
            raise ValueError(f"origin: must be a checkpoint in the phase {self.phase}")


class Prepared(Struct):
    """The directory of an attempt is complete."""

    digests: dict[str, Any] = {}


class Working(Struct):
    """The world and the agents were started."""

    agents: list[AgentFacts] = []


class CheckpointMade(Struct):
    """A checkpoint was made."""

    file: FileName
    sha256: str
    kind: CheckpointKind
    elapsed_s: Seconds
    idle_s: Seconds = 0.0
    world_time: WorldTime | None = None
    usage: list[UsageFacts] = []
    mid_turn: list[str] = []
    reason: str = ""
    size_bytes: Count = 0
    save_s: Seconds | None = None


class CheckpointFailed(Struct):
    """Making a checkpoint failed."""

    kind: CheckpointKind
    error: str
    secret: bool = False


class CheckpointRemoved(Struct):
    """A checkpoint was removed."""

    file: FileName


class Closing(Struct):
    """The active phase of a generation is over."""

    reason: str
    elapsed_s: Seconds | UnsetType = UNSET
    idle_s: Seconds | UnsetType = UNSET
    world_time: WorldTime | None = None


class Saved(Struct):
    """The time of the agents for saving is over."""

    world_time: WorldTime | None = None


class Scored(Struct):
    """The scores of a generation, or the reason for their absence."""

    scores: dict[str, Score] = {}
    error: str = ""
    function: HookFacts | None = None


class ScriptErrorFacts(Struct):
    """The latest errors that a world reported."""

    count: Count
    last: str = ""


class Ended(Struct):
    """The end of an attempt."""

    usage: list[UsageFacts] = []
    elapsed_s: Seconds = 0.0
    idle_s: Seconds = 0.0
    script_errors: ScriptErrorFacts | None = None


class Committed(Ended, kw_only=True):
    """A generation is complete."""

    workspaces: list[Workspace]
    agents: list[AgentFacts]
    used: list[UsageFacts] = []
    files: Name | UnsetType = UNSET
    ended_by: str = ""
    world_time: WorldTime | None = None
    started_at: Time | UnsetType = UNSET
    ended_at: Time | UnsetType = UNSET

    def __post_init__(self) -> None:
        _require_pairs(self.workspaces, self.agents, "agents")
        if self.agents and UNSET in (self.started_at, self.ended_at):
            raise ValueError("started_at, ended_at: must be times")


class PausedFacts(Ended):
    """An attempt is paused."""

    reason: PauseReason | UnsetType = UNSET
    text: str = ""
    until: Time | None = None
    account: str | None = None


class Failed(Ended, kw_only=True):
    """An attempt has failed."""

    cause: FailureCause
    text: str = ""
    moved_to: Name | None = None


class Imported(Struct):
    """A generation completed by the public scripts."""

    run_id: Name
    workspaces: list[ForeignPath]
    rows: list[RowFacts]

    def __post_init__(self) -> None:
        _require_pairs(self.workspaces, self.rows, "rows")


class HookCalled(Struct):
    """A hook of the plan is about to be called for an event."""

    hook: Literal["on_pause", "on_failure", "on_done"]
    reason: str
    running: bool
    keys: list[str]


class HookFailed(Struct):
    """A hook has failed."""

    hook: str
    error: str


def _require_pairs(workspaces: list[str], others: list[Any], name: str) -> None:
    if len(workspaces) != len(others):
        raise ValueError(f"workspaces: must be {len(others)}, as many as {name}")


# -- lines ----------------------------------------------------------------------------------------


class _ExperimentLine(Struct, Generic[_T]):
    """A line about the experiment or one of its parts."""

    at: Time
    data: _T
    chain: Name | None = None
    generation: Number | None = None
    attempt: Name | None = None


class _ChainLine(Struct, Generic[_T]):
    """A line about a chain."""

    at: Time
    chain: Name
    data: _T


class _GenerationLine(_ChainLine[_T]):
    """A line about a generation."""

    generation: Number


class _AttemptLine(_GenerationLine[_T]):
    """A line about an attempt."""

    attempt: Name


_DECODERS: Final[Mapping[LineType, msgspec.json.Decoder[Any]]] = {
    "experiment.begun": msgspec.json.Decoder(_ExperimentLine[Begun]),
    "session.begun": msgspec.json.Decoder(_ExperimentLine[ExperimentRunBegun]),
    "session.ended": msgspec.json.Decoder(_ExperimentLine[ExperimentRunEnded]),
    "plan.amended": msgspec.json.Decoder(_ExperimentLine[Amended]),
    "account.limited": msgspec.json.Decoder(_ExperimentLine[Limited]),
    "account.cleared": msgspec.json.Decoder(_ExperimentLine[Cleared]),
    "chain.forked": msgspec.json.Decoder(_ChainLine[Branch]),
    "chain.retried": msgspec.json.Decoder(_ChainLine[NoFacts]),
    "opened": msgspec.json.Decoder(_AttemptLine[Opened]),
    "prepared": msgspec.json.Decoder(_AttemptLine[Prepared]),
    "working": msgspec.json.Decoder(_AttemptLine[Working]),
    "checkpoint": msgspec.json.Decoder(_AttemptLine[CheckpointMade]),
    "checkpoint.failed": msgspec.json.Decoder(_AttemptLine[CheckpointFailed]),
    "checkpoint.removed": msgspec.json.Decoder(_AttemptLine[CheckpointRemoved]),
    "closing": msgspec.json.Decoder(_AttemptLine[Closing]),
    "saved": msgspec.json.Decoder(_AttemptLine[Saved]),
    "scored": msgspec.json.Decoder(_AttemptLine[Scored]),
    "committed": msgspec.json.Decoder(_AttemptLine[Committed]),
    "paused": msgspec.json.Decoder(_AttemptLine[PausedFacts]),
    "failed": msgspec.json.Decoder(_AttemptLine[Failed]),
    "interrupted": msgspec.json.Decoder(_AttemptLine[Ended]),
    "imported": msgspec.json.Decoder(_GenerationLine[Imported]),
    "rescored": msgspec.json.Decoder(_GenerationLine[Scored]),
    "hook.called": msgspec.json.Decoder(_ExperimentLine[HookCalled]),
    "hook.failed": msgspec.json.Decoder(_ExperimentLine[HookFailed]),
}


def check_members(text: bytes, type_: LineType) -> None:
    """Check the members of a line.

    Args:
        text: The line.
        type_: Its type.

    Raises:
        ValueError: A member is missing or invalid; the message names it.
    """
    try:
        _DECODERS[type_].decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
