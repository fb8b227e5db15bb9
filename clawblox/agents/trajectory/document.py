"""The document of a trajectory: its steps, the agent's program, and facts of world and run.

Format: ATIF 1.7, as described by Harbor's RFC 0001.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from clawblox.agents.drivers import DRIVERS, find_driver
from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentStatus, read_status
from clawblox.agents.trajectory.history import read_history
from clawblox.agents.trajectory.steps import Steps, describe_usage
from clawblox.agents.values import DriverReport
from clawblox.errors import AgentError, ManifestError, UsageError
from clawblox.foreign_values import clean_value
from clawblox.rundir.manifest import Manifest, read_manifest
from clawblox.rundir.manifest_entries import objects_in
from clawblox.rundir.paths import SESSION_FILE
from clawblox.system.clock import parse_utc
from clawblox.system.files import publish_bytes
from clawblox.system.regular_files import read_regular
from clawblox.telemetry.tail import MAX_LINE_BYTES

SCHEMA_VERSION: Final = "ATIF-v1.7"

FILE_NAME: Final = "trajectory.json"
"""Name of the file in an agent's directory."""

_LEVELS_TO_RUN: Final = 4
"""Maximum number of levels from an agent's directory up to the manifest of its run."""
_NOTES: Final = (
    "A step without a time of its own has that of its arrival, or of the latest event before it.",
    "A step that was copied here has a time of its own or none.",
    "Metrics of a step count everything used since the last step with metrics.",
)


def export_trajectory(directory: Path, *, continued_in: str | None = None) -> dict[str, Any]:
    """Return the trajectory of an agent, over all its processes in its directory. Blocks.

    The agent may be running; the result is then the trajectory so far.

    Args:
        directory: The agent's directory.
        continued_in: The trajectory of a run that continues this one, for
            ``continued_trajectory_ref``: its path or address.

    Raises:
        UsageError: No agent has run there.
        AgentError: A file of the agent is unreadable.
        ClawbloxError: A later version of clawblox wrote a file of the agent.
        OSError: A file cannot be read.
    """
    agent_dir = AgentDir(directory.absolute())
    name, conversation_id = find_conversation(agent_dir)
    status = _read_own_status(agent_dir)
    driver = find_driver(name)
    steps = Steps(driver.cost_scope)
    prompt = _read_text(agent_dir.system_prompt_file)
    if prompt:
        steps.add_system_prompt(prompt)
    steps.take(read_history(agent_dir, driver, conversation_id))
    described = steps.describe()
    agent_name = agent_dir.path.name if status is None else status.name
    program = {"name": name, "version": steps.count.version or "unknown"}
    notes = [*_NOTES]
    if steps.oversized:
        notes.append(f"Lines that were too long to be kept: {steps.oversized}.")
    return {
        "schema_version": SCHEMA_VERSION,
        **({} if conversation_id is None else {"session_id": conversation_id}),
        "trajectory_id": "/".join(filter(None, (agent_name, conversation_id))),
        "agent": {**program, **({} if steps.model is None else {"model_name": steps.model})},
        "steps": described,
        "notes": " ".join(notes),
        "final_metrics": {
            **describe_usage(steps.count.usage, "total_"),
            "total_steps": len(described),
        },
        **({} if continued_in is None else {"continued_trajectory_ref": continued_in}),
        "extra": {"agent": agent_name, **_describe_run(agent_dir, status, described)},
    }


def read_activity(directory: Path) -> Iterator[DriverReport]:
    """Yield the reports of an agent from the files in its directory, the oldest first. Blocks.

    Args:
        directory: The agent's directory.

    Raises:
        ClawbloxError: As for :func:`export_trajectory`.
        OSError: A file cannot be read.
    """
    agent_dir = AgentDir(directory.absolute())
    name, conversation_id = find_conversation(agent_dir)
    for moment in read_history(agent_dir, find_driver(name), conversation_id):
        yield moment.report


def write_trajectory(directory: Path, path: Path, *, continued_in: str | None = None) -> int:
    """Write the trajectory of an agent atomically to a file; return the number of steps. Blocks.

    Args:
        directory: The agent's directory.
        path: The file; it is replaced.
        continued_in: See :func:`export_trajectory`.

    Raises:
        UsageError: No agent has run there.
        AgentError: A file of the agent is unreadable.
        ClawbloxError: A later version of clawblox wrote a file of the agent.
        OSError: A file cannot be read, or the trajectory cannot be written.
    """
    document = export_trajectory(directory, continued_in=continued_in)
    publish_bytes(path, encode_trajectory(document))
    return len(document["steps"])


def encode_trajectory(document: Mapping[str, Any]) -> bytes:
    """Return a trajectory as JSON."""
    # Texts are at most as long as a line.
    cleaned = clean_value(document, max_chars=MAX_LINE_BYTES, max_members=sys.maxsize)
    return json.dumps(cleaned, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def has_conversation(directory: Path) -> bool:
    """Return whether a directory belongs to an agent with a recorded conversation. Blocks."""
    return any(AgentDir(directory).id_file(name).exists() for name in DRIVERS)


def find_conversation(directory: AgentDir) -> tuple[str, str | None]:
    """Return the driver of an agent and the id of its latest conversation."""
    status = _read_own_status(directory)
    names = [name for name in DRIVERS if directory.id_file(name).exists()]
    if status is not None and status.driver in DRIVERS:
        names.insert(0, status.driver)
    if not names:
        raise UsageError(
            f"no agent has run in {directory.path}",
            hint="give the directory of an agent, with a <driver>_session_id.txt in it",
        )
    return names[0], _read_text(directory.id_file(names[0])) or None


def _read_own_status(directory: AgentDir) -> AgentStatus | None:
    with suppress(AgentError):  # the history does not need the status
        return read_status(directory.path)
    return None


def _read_text(path: Path) -> str:
    with suppress(FileNotFoundError):
        return read_regular(path, max_bytes=16 << 20).decode(errors="replace").strip()
    return ""


# -- world and run ------------------------------------------------------------------------------


def _describe_run(
    directory: AgentDir, status: AgentStatus | None, steps: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    manifest = _find_manifest(directory.path)
    entry, run = _find_entry(manifest, directory.path), manifest.run
    world = {
        "session": _read_text(directory.path / SESSION_FILE) or None,
        "agent_id": entry.get("world_agent_id"),
    }
    facts = {
        "sandbox": None if status is None else status.sandbox,
        "world": {name: value for name, value in world.items() if value is not None},
        "run": {name: run[name] for name in ("id", "resume_from", "resume_archive") if name in run},
        "checkpoints": _describe_checkpoints(manifest, steps),
    }
    return {name: value for name, value in facts.items() if value}


def _find_manifest(directory: Path) -> Manifest:
    for place in directory.parents[:_LEVELS_TO_RUN]:
        with suppress(ManifestError):
            return read_manifest(place)
    return Manifest(directory)


def _find_entry(manifest: Manifest, directory: Path) -> Mapping[str, Any]:
    entries = objects_in(manifest.agents)
    own = (one for one in entries if manifest.resolve(str(one.get("dir"))) == directory)
    return next(own, {})


def _describe_checkpoints(
    manifest: Manifest, steps: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the checkpoints of the run, each with the last step before it."""
    described = []
    for entry in objects_in(manifest.checkpoints):
        fields = {name: value for name, value in entry.items() if name != "time"}
        if entry.get("time") is not None:
            fields["world_time"] = entry["time"]
        last = _last_step_before(steps, entry.get("created_at"))
        described.append({**fields, **({} if last is None else {"after_step": last})})
    return described


def _last_step_before(steps: Sequence[Mapping[str, Any]], at: object) -> int | None:
    """Return the number of the last step up to a time; None if unknown."""
    saved_at = parse_utc(at) if isinstance(at, str) else None
    times = ((parse_utc(step.get("timestamp")), step["step_id"]) for step in steps)
    before = [number for time, number in times if time and saved_at and time <= saved_at]
    return before[-1] if before else None
