"""The status of an agent for other processes, from ``runtime/status.json`` in its directory.

The orchestrator writes the file, without secrets, when the status changes. A reader checks whether
that orchestrator is alive; if not, the agent was interrupted, regardless of the recorded state.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs
import msgspec

from clawblox.agents.layout import AGENTS_DIR, AgentDir, read_agent_file
from clawblox.agents.values import AgentState, SandboxLevel, Usage
from clawblox.errors import AgentError, UsageError
from clawblox.foreign_values import encode_line
from clawblox.rundir.listed import read_listed
from clawblox.rundir.manifest import (
    manifest_path,
    try_read_manifest,
)
from clawblox.rundir.paths import file_stamp, resolve_run_dir
from clawblox.rundir.records import path_mover
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import publish_bytes
from clawblox.system.process_tree import boot_id, is_same_process, read_process, read_start_time
from clawblox.system.record_file import RecordFormat
from clawblox.telemetry.metrics import AgentMetrics
from clawblox.telemetry.own_log import OwnLog

StatusState: TypeAlias = Literal[AgentState, "interrupted"]
"""State of an agent; ``interrupted`` means that its orchestrator ended without stopping it."""

_log = OwnLog(__name__)

_UNDER_WAY: Final = ("starting", "working", "idle")


@attrs.frozen(kw_only=True)
class AgentDescription:
    """The facts about an agent that its record and its status share.

    Attributes:
        name: Its full name.
        driver: The driver of its program.
        session_id: Its conversation; None before the conversation is confirmed.
        turn: Number of the current turn, from 1, or of the latest finished turn.
        usage: Its usage, as budgets count it.
        inherited: The part of the usage that came with the archive from which the agent was loaded.
        reason: Why it is idle or has ended, in a few words; empty while it works.
        pid: Process of its program; None if no process runs.
        window: Name of its tmux window; None without tmux.
        sandbox: Level of its sandbox.
        time: UTC time of the latest event; ignored in comparisons.
        orchestrator_pid: Process that runs or ran the agent.
    """

    name: str
    driver: str
    session_id: str | None = None
    turn: int = 0
    usage: Usage = attrs.field(factory=Usage)
    inherited: Usage = attrs.field(factory=Usage)
    reason: str = ""
    pid: int | None = None
    window: str | None = None
    sandbox: SandboxLevel = "none"
    time: str = attrs.field(factory=lambda: format_utc(utc_now()), eq=False)
    orchestrator_pid: int = attrs.field(factory=os.getpid)

    @property
    def own_usage(self) -> Usage:
        """Usage in this directory, without inherited usage."""
        return self.usage.minus(self.inherited)


@attrs.frozen(kw_only=True)
class AgentRecord(AgentDescription):
    """An agent's state according to its orchestrator: the content of ``status.json``.

    Attributes:
        state: Its state.
        cookie: Value of ``CLAWBLOX_INSTANCE`` in its processes; empty in a record of an older
            version.
        dir: Its directory when the record was written.
        orchestrator_start: Start of that process, in clock ticks since boot; set by the writer.
        boot_id: The boot to which pid and start belong; set by the writer.
        schema_version: Version of the file.
    """

    state: AgentState
    cookie: str = ""
    dir: str = ""
    orchestrator_start: int = 0
    boot_id: str = ""
    schema_version: Literal[1] = 1

    @property
    def has_owner(self) -> bool:
        """True if its orchestrator is alive. Blocks."""
        return (
            self.boot_id == boot_id()
            and is_same_process(self.orchestrator_pid, self.orchestrator_start)
            and read_process(self.orchestrator_pid) is not None
        )


class StatusWriter:
    """Writes the status file of an agent whenever the status has changed.

    Args:
        directory: The agent's directory.
    """

    def __init__(self, directory: AgentDir) -> None:
        self._path = directory.status_file
        self._written: AgentRecord | None = None

    def write(self, record: AgentRecord) -> None:
        """Replace the file atomically if more than the time has changed. Blocks.

        The file is not flushed to disk, because no agent survives a power loss.

        Raises:
            OSError: The file was not replaced.
        """
        if record == self._written:
            return
        started_at = record.orchestrator_start or read_start_time(record.orchestrator_pid)
        full = attrs.evolve(
            record, orchestrator_start=started_at, boot_id=record.boot_id or boot_id()
        )
        # The record survives encoding and decoding even if a path or an error is not valid UTF-8.
        content = msgspec.json.format(encode_line(msgspec.to_builtins(full)), indent=2) + b"\n"
        publish_bytes(self._path, content, durable=False)
        self._written = record


@attrs.frozen(kw_only=True)
class AgentStatus(AgentDescription):
    """The current status of an agent, for people and programs.

    Attributes:
        state: Its state.
        dir: Its directory.
    """

    state: StatusState
    dir: Path

    @property
    def is_over(self) -> bool:
        """True if the agent does not run and will not continue by itself."""
        return self.state not in _UNDER_WAY


def make_status(directory: Path, record: AgentRecord, *, was_left: bool = False) -> AgentStatus:
    """Return the status that a record describes.

    Args:
        directory: The agent's directory.
        record: Its record from the orchestrator.
        was_left: Whether that orchestrator has ended.
    """
    facts = {field.name: getattr(record, field.name) for field in attrs.fields(AgentDescription)}
    status = AgentStatus(dir=directory, state=record.state, **facts)
    if not was_left:
        return status
    return attrs.evolve(
        status,
        state="interrupted",
        turn=record.usage.turns,  # an interrupted turn is not counted
        reason="its orchestrator was killed",
        pid=None,
        window=None,
    )


_FORMAT: Final = RecordFormat(
    kind="the status of an agent",
    decoder=msgspec.json.Decoder(AgentRecord),
    hint="remove it; the agent's next start writes it again",
)


def read_status(directory: Path) -> AgentStatus | None:
    """Return the status of the agent in a directory; None if no agent ever ran there. Blocks.

    Raises:
        AgentError: The status file cannot be read, is invalid, or was written by a later version.
    """
    record = read_record(directory)
    if record is None:
        return None
    was_left = record.state in _UNDER_WAY and not record.has_owner
    return make_status(directory, record, was_left=was_left)


def read_record(directory: Path) -> AgentRecord | None:
    """Return the latest record of the agent in a directory, from its orchestrator. Blocks.

    Returns:
        The record; None if no agent ever ran there.

    Raises:
        AgentError: As for :func:`read_status`.
    """
    return read_agent_file(AgentDir(directory).status_file, _FORMAT)


# -- the agents of a run ------------------------------------------------------------------------


def read_agents(run_dir: Path) -> list[AgentStatus]:
    """Return the agents of a run directory by name, running or not. Blocks.

    These are the agents in its ``agents`` directory and the agents named in a manifest of the run.
    An agent whose status cannot be read is left out.
    """
    agents = []
    run_dir = resolve_run_dir(run_dir)
    agent_dirs, move = set(agents_in(run_dir)), path_mover(run_dir)
    for directory in {run_dir, *(Path(record.instance_dir) for record in read_listed(run_dir))}:
        agent_dirs.update(map(move, _named_dirs(directory)))
    for directory in agent_dirs:
        try:
            status = read_status(directory)
        except AgentError as error:
            _warn_once(error.message)
            continue
        if status is not None:
            agents.append(status)
    return sorted(agents, key=lambda status: (status.name, status.dir))


@functools.lru_cache(maxsize=256)
def _warn_once(error: str) -> None:
    # A table of a run calls this every second.
    _log.warning("agent not shown", error=error)


def agents_in(run_dir: Path) -> list[Path]:
    """Return the directories in the ``agents`` directory of a run directory. Blocks."""
    try:
        with os.scandir(run_dir / AGENTS_DIR) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _named_dirs(instance_dir: Path) -> Sequence[Path]:
    version = file_stamp(manifest_path(instance_dir))
    return () if version is None else _read_named_dirs(instance_dir, version)


@functools.lru_cache(maxsize=1024)
def _read_named_dirs(instance_dir: Path, _version: tuple[int, ...]) -> Sequence[Path]:
    # A table of a run calls this every second.
    manifest = try_read_manifest(instance_dir)
    names = (entry.get("dir") for entry in manifest.agents if isinstance(entry, dict))
    return tuple(manifest.resolve(name) for name in names if isinstance(name, str) and name)


def find_agent(path: Path) -> AgentStatus:
    """Return the agent at a path: an agent's directory, or a run directory with one agent. Blocks.

    Raises:
        UsageError: There is no agent, or there are several; the error names them.
        AgentError: The status file cannot be read.
    """
    path = path.absolute()
    own = read_status(path)
    if own is not None:
        return own
    agents = read_agents(path)
    if len(agents) == 1:
        return agents[0]
    if not agents:
        raise UsageError(
            f"no agent has run in {path}",
            hint="give an agent's directory, or a run directory with one agent",
        )
    names = ", ".join(str(agent.dir) for agent in agents)
    raise UsageError(f"{path} has {len(agents)} agents", hint=f"give one of: {names}")


def find_agent_around(path: Path) -> Path | None:
    """Return the directory of the agent whose program can write to a path, or None. Blocks.

    Args:
        path: A resolved path: the workspace, home or state of an agent, or a path below it.
    """
    for place in (path, *path.parents):
        agent = AgentDir(place.parent)
        marks = (mark for mark in (agent.runtime, agent.state) if mark != place)
        if place in (agent.workspace, agent.home, agent.state) and any(map(Path.is_dir, marks)):
            return agent.path
    return None


def describe_metrics(status: AgentStatus) -> AgentMetrics:
    """Return the metrics of an agent."""
    usage = status.own_usage
    return AgentMetrics(
        name=status.name,
        driver=status.driver,
        state=status.state,
        tokens={} if usage.is_unreported else usage.tokens_by_kind,
        cost_usd=usage.cost_usd,
        turns=usage.turns,
        inherited_tokens=status.inherited.tokens_by_kind if status.inherited.tokens else {},
    )


# -- processes of agents whose orchestrator was killed together with the guard -------------------


def left_agents(run_dir: Path) -> list[str]:
    """Return the cookies of a run directory's agents that have no orchestrator. Blocks.

    Args:
        run_dir: The run directory; agents outside it that its manifest names are left out.
    """
    places = [place for place in agents_in(run_dir) if not place.is_symlink()]
    return [cookie for place in places if (cookie := find_left_cookie(place)) is not None]


def find_left_cookie(directory: Path) -> str | None:
    """Return the cookie of an agent without an orchestrator; None if it has one or is a copy.

    Blocks.
    """
    with contextlib.suppress(AgentError):  # the next start raises this error
        record = read_record(directory)
        if record is not None and record.cookie and not record.has_owner:
            return None if _is_copied(directory, Path(record.dir), record.cookie) else record.cookie
    return None


def _is_copied(directory: Path, place: Path, cookie: str) -> bool:
    """Return whether the original directory of an agent still exists."""
    with contextlib.suppress(AgentError):
        original = read_record(place)
        if original is not None and original.cookie == cookie:
            return not place.samefile(directory)
    return False
