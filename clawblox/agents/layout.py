"""Paths of the files in an agent's directory, and reading its records. Creates no file."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from clawblox.agents.programs import STATE_DIR, id_file_name
from clawblox.errors import AgentError
from clawblox.system.record_file import RecordError, RecordFormat

_T = TypeVar("_T")

AGENTS_DIR: Final = "agents"
"""Directory of a run directory that contains the agents' directories."""


class _AgentPlace(msgspec.Struct, frozen=True):
    """An attribute of :class:`AgentDir`: a path in it."""

    _name: str

    def __get__(self, directory: AgentDir, _: type[AgentDir]) -> Path:
        return directory.path / self._name


class AgentDir(msgspec.Struct, frozen=True):
    """The directory of one agent.

    Attributes:
        path: The directory, absolute.
    """

    path: Path

    workspace = _AgentPlace("workspace")
    """The agent's own files; the working directory of its program."""
    runtime = _AgentPlace("runtime")
    """Files that clawblox writes for the program."""
    home = _AgentPlace("home")
    """The program's ``HOME``."""
    state = _AgentPlace(STATE_DIR)
    """Directory in which the program keeps its conversations."""
    log_file = _AgentPlace("logs/agent.log")
    """The program's standard output, unchanged."""
    errors_file = _AgentPlace("logs/agent.stderr.log")
    """The program's standard error, unchanged."""
    events_file = _AgentPlace("events.jsonl")
    """Events of the agent's processes and turns, one JSON object per line."""
    usage_file = _AgentPlace("usage.json")
    """Usage of the agent so far."""
    command_file = _AgentPlace("runtime/start.sh")
    """Script that reruns the latest start by hand, without secrets."""
    system_prompt_file = _AgentPlace("runtime/system_prompt.md")
    """The system prompt."""
    access_file = _AgentPlace("world_access.json")
    """The address under which the agent knows its world; a resume needs the same address."""
    status_file = _AgentPlace("runtime/status.json")
    """Status of the agent for other processes."""

    def id_file(self, driver: str) -> Path:
        """Return the file that records the id of the agent's conversation."""
        return self.path / id_file_name(driver)


def read_agent_file(path: Path, record_format: RecordFormat[_T]) -> _T | None:
    """Return the record in a file of an agent; None if it is missing. Blocks.

    Raises:
        AgentError: The file cannot be read, is invalid, or was written by a later version of
            clawblox.
    """
    try:
        return record_format.read(path)
    except RecordError as error:
        message = f"{path} {error.problem}"
        raise AgentError(message, agent_dir=path.parent, hint=error.hint) from error
