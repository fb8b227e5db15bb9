"""The files of an attempt at a generation: an ordinary run directory, and a record of its agents.

The record names the agents in order, with the usage of each before the attempt.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import attrs
import msgspec

from clawblox.agents.usage import read_usage
from clawblox.agents.values import Usage
from clawblox.errors import AgentError, ManifestError, UsageError
from clawblox.experiment.history.facts import FilePath
from clawblox.experiment.history.lines import Name
from clawblox.experiment.layout import agent_index
from clawblox.experiment.schedule.ports import AttemptError
from clawblox.protocol import ScriptErrors, parse_errors
from clawblox.rundir.manifest import Update, manifest_path, read_manifest
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import RunStatus, run_update
from clawblox.rundir.paths import ANSWER_FILE, SESSION_FILE, state_dir
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.record_file import RecordError, RecordFormat, publish_record
from clawblox.system.regular_files import read_file

RECORD_NAME: Final = "attempt.json"
_MAX_SESSION_BYTES: Final = 64 << 10
_LOCK_WAIT_S: Final = 10.0


@attrs.frozen(kw_only=True)
class RecordedAgent:
    """An agent of an attempt.

    Attributes:
        name: Its full name; its directory is ``agents/<name>``, see ``attempt``.
        before: Its usage before the attempt.
        forked_from: Full name of the agent in the archive that a branch continues; None outside
            branches.
        left_out: Entries missing from its workspace because they are too large or cannot be copied,
            with reasons; at most ten of its source and ten of the world.
    """

    name: Name
    before: Usage = attrs.field(factory=Usage)
    forked_from: Name | None = None
    left_out: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class AttemptRecord:
    """The facts prepared for an attempt.

    Attributes:
        agents: Its agents, in their order.
        snapshot: The snapshot from which the world continues, relative to the run directory; None
            for a fresh world.
        sha256: Digest of that snapshot.
        agents_of: The attempt that has the directories of the agents, if only the world continues;
            None for the attempt itself.
        schema_version: Version of the file.
    """

    agents: tuple[RecordedAgent, ...]
    snapshot: FilePath | None = None
    sha256: str | None = None
    agents_of: Name | None = None
    schema_version: Literal[1] = 1


_FORMAT: Final = RecordFormat(
    kind="the record of an attempt",
    decoder=msgspec.json.Decoder(AttemptRecord),
    hint="move the run directory away",
)


def read_record(run_dir: Path) -> AttemptRecord | None:
    """Return the record of an attempt; None if its directory is missing or incomplete. Blocks.

    Raises:
        UsageError: It is not valid.
    """
    path = state_dir(run_dir) / RECORD_NAME
    try:
        return _FORMAT.read(path)
    except RecordError as error:
        raise UsageError(f"{path} cannot be used: {error}", hint=error.hint) from error


def require_record(run_dir: Path) -> AttemptRecord:
    """Return the record of an attempt. Blocks.

    Raises:
        AttemptError: Its directory is missing or incomplete.
        UsageError: The record is not valid.
    """
    record = read_record(run_dir)
    if record is None:
        raise AttemptError("start", f"{run_dir} is not complete")
    return record


def has_record(run_dir: Path) -> bool:
    """Return whether a directory belongs to an attempt, even if its record is invalid. Blocks."""
    return os.path.lexists(state_dir(run_dir) / RECORD_NAME)


def write_record(run_dir: Path, record: AttemptRecord) -> None:
    """Record the agents of an attempt, which marks its directory as complete. Blocks.

    Raises:
        OSError: The file cannot be written.
    """
    publish_record(make_private_dir(state_dir(run_dir)) / RECORD_NAME, record)


def read_script_errors(run_dir: Path) -> ScriptErrors | None:
    """Return the errors in an attempt's manifest; None if there are none or no manifest. Blocks."""
    try:
        errors = read_manifest(run_dir).run.get("script_errors")
    except ManifestError:
        return None
    known = errors if isinstance(errors, Mapping) else {}
    return parse_errors(known.get("count"), known.get("last"))


def label_run(run_dir: Path, status: RunStatus, ended_at: datetime | None = None) -> None:
    """Record in the manifest of an attempt, if there is one, how it ended. Blocks.

    Args:
        run_dir: The run directory.
        status: How it ended.
        ended_at: Time of its end; None keeps the recorded time.

    Raises:
        ManifestError: The manifest cannot be written.
    """
    if manifest_path(run_dir).exists():
        update_manifest(run_dir, run_update(status=status, ended_at=ended_at))


def update_manifest(run_dir: Path, update: Update) -> None:
    """Update the manifest of an attempt that is not running. Blocks.

    Raises:
        ManifestError: The manifest cannot be written.
    """
    ManifestFile(manifest_path(run_dir), lock_wait=_LOCK_WAIT_S).apply([update])


def agent_names(run_dir: Path) -> list[str]:
    """Return the full names of the agents in a run directory, in order. Blocks.

    Raises:
        OSError: The directory cannot be read.
    """
    with os.scandir(run_dir / "agents") as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(names, key=agent_index)


def last_usage(directory: Path) -> Usage:
    """Return the recorded usage of an agent; zero if it cannot be read. Blocks."""
    try:
        return read_usage(directory)
    except AgentError:
        return Usage()


def read_attempt_usage(run_dir: Path) -> list[Usage]:
    """Return the usage of each agent in an attempt, from its files; empty without a record. Blocks.

    Raises:
        UsageError: The record is invalid.
    """
    record = read_record(run_dir)
    agents = () if record is None else record.agents
    return [last_usage(run_dir / "agents" / agent.name).minus(agent.before) for agent in agents]


def copy_session(source: Path, target: Path) -> None:
    """Let an agent rejoin a world as the player of another agent. Blocks.

    Args:
        source: Directory of that agent.
        target: Directory of the new agent.

    Raises:
        OSError: A file cannot be copied.
    """
    for name in (SESSION_FILE, ANSWER_FILE):
        with contextlib.suppress(FileNotFoundError):
            content = read_file(source, name, max_bytes=_MAX_SESSION_BYTES)
            publish_bytes(target / name, content)


def require_agents(names: Sequence[str], count: int) -> None:
    """Check that an archive has the agents of the plan.

    Raises:
        UsageError: It has other agents.
    """
    if [agent_index(name) for name in names] != list(range(count)):
        raise UsageError(
            f"the archive has {len(names)} agents, but the plan has {count}",
            hint="resume with the plan that was used to make the archive",
        )
