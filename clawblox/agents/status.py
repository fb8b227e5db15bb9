"""The status of an agent for other processes, from ``runtime/status.json`` in its directory.

The orchestrator writes the file when something changes, and it holds no secret. A reader finds out
by itself whether that orchestrator still lives: if not, the agent was interrupted, whatever the
file says.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs
import msgspec

from clawblox.agents.layout import AgentDir
from clawblox.agents.values import AgentState, SandboxLevel, Usage
from clawblox.errors import AgentError, ManifestError, UsageError
from clawblox.foreign_values import encode_line
from clawblox.rundir.manifest import manifest_path, read_manifest
from clawblox.rundir.records import read_records
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import publish_bytes
from clawblox.system.process_tree import boot_id, is_same_process, read_process, read_start_time
from clawblox.system.regular_files import read_regular
from clawblox.telemetry.metrics import AgentMetrics
from clawblox.telemetry.own_log import OwnLog

StatusState: TypeAlias = Literal[AgentState, "interrupted"]
"""How an agent is; ``interrupted`` was left behind by an orchestrator that is gone."""

_log = OwnLog(__name__)

_UNDER_WAY: Final = ("starting", "working", "idle")
_AGENTS_DIR: Final = "agents"
_MAX_BYTES: Final = 1 << 20


@attrs.frozen(kw_only=True)
class AgentRecord:
    """An agent as its orchestrator knows it: the content of ``status.json``.

    Attributes:
        name: Its full name.
        driver: The driver of its program.
        state: Its state.
        session_id: Its conversation; None before that is confirmed.
        turn: Number of the turn under way, from 1, else of the latest that has ended.
        usage: Its usage.
        reason: Why it is idle or has ended, in a few words; empty while it works.
        pid: Process of its program; None if none runs.
        window: Name of its tmux window; None without tmux.
        sandbox: Level of its sandbox.
        time: UTC time of the latest event; records that differ in it alone are equal.
        orchestrator_pid: The process that runs it.
        orchestrator_start: Start of that process, in clock ticks since boot; the writer fills it
            in, as it does with the next one.
        boot_id: The boot in which these mean anything.
    """

    name: str
    driver: str
    state: AgentState
    session_id: str | None = None
    turn: int = 0
    usage: Usage = attrs.field(factory=Usage)
    reason: str = ""
    pid: int | None = None
    window: str | None = None
    sandbox: SandboxLevel = "none"
    time: str = attrs.field(factory=lambda: format_utc(utc_now()), eq=False)
    orchestrator_pid: int = attrs.field(factory=os.getpid)
    orchestrator_start: int = 0
    boot_id: str = ""

    @property
    def has_owner(self) -> bool:
        """Whether its orchestrator lives. Blocks."""
        return (
            self.boot_id == boot_id()
            and is_same_process(self.orchestrator_pid, self.orchestrator_start)
            and read_process(self.orchestrator_pid) is not None
        )


class StatusWriter:
    """Writes the status file of an agent when something has changed.

    Args:
        directory: The agent's directory.
    """

    def __init__(self, directory: AgentDir) -> None:
        self._path = directory.status_file
        self._written: AgentRecord | None = None

    def write(self, record: AgentRecord) -> None:
        """Write a record in one step, unless only its time is another than the last one's. Blocks.

        It does not wait for the disk: after a loss of power, no agent runs.

        Raises:
            OSError: The old file still holds.
        """
        if record == self._written:
            return
        started_at = record.orchestrator_start or read_start_time(record.orchestrator_pid)
        full = attrs.evolve(
            record, orchestrator_start=started_at, boot_id=record.boot_id or boot_id()
        )
        # Whatever a path or an error holds, the file can be written, and read again.
        content = msgspec.json.format(encode_line(msgspec.to_builtins(full)), indent=2) + b"\n"
        publish_bytes(self._path, content, durable=False)
        self._written = record


@attrs.frozen(kw_only=True)
class AgentStatus:
    """An agent as it is now, for people and programs.

    Attributes:
        name: Its full name.
        state: How it is.
        driver: The driver of its program.
        dir: Its directory.
        session_id: Its conversation; None before that was confirmed.
        turn: Number of the turn under way, from 1, else of the latest that has ended.
        usage: Its usage.
        reason: Why it is idle or has ended, in a few words; empty while it works.
        pid: Process of its program; None if none runs.
        window: Name of its tmux window; None without tmux.
        sandbox: Level of its sandbox.
        time: UTC time of the latest event.
        orchestrator_pid: The process that runs it, or ran it.
    """

    name: str
    state: StatusState
    driver: str
    dir: Path
    session_id: str | None
    turn: int
    usage: Usage
    reason: str
    pid: int | None
    window: str | None
    sandbox: SandboxLevel
    time: str
    orchestrator_pid: int

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen to it unless somebody starts it again."""
        return self.state not in _UNDER_WAY


def judge_status(directory: Path, record: AgentRecord) -> AgentStatus:
    """Return what a record means now. Blocks: it looks whether the orchestrator lives.

    Args:
        directory: The agent's directory.
        record: Its record in the file.
    """
    was_left = record.state in _UNDER_WAY and not record.has_owner
    return make_status(directory, record, was_left=was_left)


def make_status(directory: Path, record: AgentRecord, *, was_left: bool = False) -> AgentStatus:
    """Return what a record means.

    Args:
        directory: The agent's directory.
        record: Its record from the orchestrator.
        was_left: Whether that orchestrator is gone.
    """
    return AgentStatus(
        name=record.name,
        state="interrupted" if was_left else record.state,
        driver=record.driver,
        dir=directory,
        session_id=record.session_id,
        turn=record.usage.turns if was_left else record.turn,  # a turn that was cut off
        usage=record.usage,
        reason="its orchestrator was killed" if was_left else record.reason,
        pid=None if was_left else record.pid,
        window=None if was_left else record.window,
        sandbox=record.sandbox,
        time=record.time,
        orchestrator_pid=record.orchestrator_pid,
    )


def read_status(directory: Path) -> AgentStatus | None:
    """Return how the agent of a directory is; None if none ever ran there. Blocks.

    Raises:
        AgentError: The status file cannot be read, or is not one of ours.
    """
    path = AgentDir(directory).status_file
    try:
        record = msgspec.json.decode(read_regular(path, max_bytes=_MAX_BYTES), type=AgentRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(directory, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
        raise _unreadable(directory, f"is not the status of an agent: {error}") from error
    return judge_status(directory, record)


def _unreadable(directory: Path, problem: str) -> AgentError:
    path = AgentDir(directory).status_file
    return AgentError(
        f"{path} {problem}",
        agent_dir=directory,
        hint="remove it; the agent's next start writes it again",
    )


# -- the agents of a run ------------------------------------------------------------------------


def read_agents(run_dir: Path) -> list[AgentStatus]:
    """Return the agents of a run directory by name, running or not. Blocks.

    They are those in its ``agents``, and those that a manifest of the run names. One whose status
    cannot be read is left out.
    """
    found = []
    for directory in _agent_dirs(run_dir):
        try:
            status = read_status(directory)
        except AgentError as error:
            _tell_once(error.message)
            continue
        if status is not None:
            found.append(status)
    return sorted(found, key=lambda status: (status.name, status.dir))


@functools.lru_cache(maxsize=256)
def _tell_once(error: str) -> None:
    # A table of a run looks every second.
    _log.warning("agent not shown", error=error)


def _agent_dirs(run_dir: Path) -> set[Path]:
    found = set(_directories_in(run_dir / _AGENTS_DIR))
    for directory in {run_dir, *(Path(record.instance_dir) for record in read_records(run_dir))}:
        found.update(_named_dirs(directory))
    return found


def _directories_in(place: Path) -> Iterator[Path]:
    try:
        with os.scandir(place) as entries:
            yield from (place / entry.name for entry in entries if entry.is_dir())
    except OSError:
        return


def _named_dirs(instance_dir: Path) -> Sequence[Path]:
    try:
        found = manifest_path(instance_dir).stat()
    except OSError:
        return ()
    return _read_named_dirs(instance_dir, (found.st_ino, found.st_mtime_ns, found.st_size))


@functools.lru_cache(maxsize=1024)
def _read_named_dirs(instance_dir: Path, _version: tuple[int, ...]) -> Sequence[Path]:
    # A table of a run looks every second.
    try:
        manifest = read_manifest(instance_dir)
    except ManifestError:
        return ()
    names = (entry.get("dir") for entry in manifest.agents if isinstance(entry, dict))
    return tuple(manifest.resolve(name) for name in names if isinstance(name, str) and name)


def find_agent(path: Path) -> AgentStatus:
    """Return the agent that a path means: its directory, or a run directory with one agent. Blocks.

    Raises:
        UsageError: There is no agent, or there are several; names them.
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


def describe_metrics(status: AgentStatus) -> AgentMetrics:
    """Return the metrics of an agent."""
    usage = status.usage
    return AgentMetrics(
        name=status.name,
        driver=status.driver,
        state=status.state,
        tokens={
            "input": usage.input_tokens,
            "cached": usage.cached_tokens,
            "cache_write": usage.cache_write_tokens,
            "output": usage.output_tokens,
        },
        cost_usd=usage.cost_usd,
        turns=usage.turns,
    )
