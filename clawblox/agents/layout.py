"""Paths and versions of the files in an agent's directory; nothing is created here."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import attrs
import msgspec

from clawblox.agents.programs import STATE_DIR, id_file_name
from clawblox.errors import AgentError
from clawblox.rundir.paths import UPDATE_HINT
from clawblox.system.regular_files import read_file

_T = TypeVar("_T")

FILE_VERSION: Final = 1
"""The ``schema_version`` of ``usage.json`` and ``status.json``."""


AGENTS_DIR: Final = "agents"
"""The directory in a run directory with the directories of its agents."""


@attrs.frozen
class _Place:
    """An attribute of :class:`AgentDir`: a path in it."""

    _name: str

    def __get__(self, directory: AgentDir, _: type[AgentDir]) -> Path:
        return directory.path / self._name


@attrs.frozen
class AgentDir:
    """The directory of one agent.

    Attributes:
        path: The directory, absolute.
    """

    path: Path

    workspace = _Place("workspace")
    """The agent's own files; the working directory of its program."""
    runtime = _Place("runtime")
    """Files that clawblox writes for the program."""
    home = _Place("home")
    """The program's ``HOME``."""
    state = _Place(STATE_DIR)
    """Where the program keeps its conversations."""
    log_file = _Place("logs/agent.log")
    """The program's standard output, unchanged."""
    errors_file = _Place("logs/agent.stderr.log")
    """The program's standard error, unchanged."""
    events_file = _Place("events.jsonl")
    """Events of the agent's processes and turns, one JSON object a line."""
    usage_file = _Place("usage.json")
    """Usage of the agent so far."""
    command_file = _Place("runtime/start.sh")
    """Script that reruns the latest start by hand, without secrets."""
    system_prompt_file = _Place("runtime/system_prompt.md")
    """The system prompt."""
    access_file = _Place("world_access.json")
    """The address by which the agent knows its world; a resume needs the same address."""
    status_file = _Place("runtime/status.json")
    """Status of the agent for other processes."""

    def id_file(self, driver: str) -> Path:
        """Return the file that records the id of the agent's conversation."""
        return self.path / id_file_name(driver)


@attrs.frozen
class _Versioned:
    schema_version: int = FILE_VERSION


_versioned: Final = msgspec.json.Decoder(_Versioned)


def read_versioned(
    path: Path, decoder: msgspec.json.Decoder[_T], kind: str, hint: str, *, max_bytes: int
) -> _T | None:
    """Return what clawblox has written to a file of an agent; None if it is missing. Blocks.

    Args:
        path: The file.
        decoder: Decodes its JSON document.
        kind: What the file has to be, for errors.
        hint: How to go on without the file.
        max_bytes: Maximum size in bytes.

    Raises:
        AgentError: It cannot be read, is something else, or is of a later version of clawblox.
    """
    try:
        content = read_file(path.parent, path.name, max_bytes=max_bytes)
        version = _versioned.decode(content).schema_version
        if version > FILE_VERSION:
            problem = f"has schema_version {version}, and this clawblox reads up to {FILE_VERSION}"
            raise AgentError(f"{path} {problem}", agent_dir=path.parent, hint=UPDATE_HINT)
        return decoder.decode(content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise AgentError(message, agent_dir=path.parent, hint=hint) from error
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
        message = f"{path} is not {kind}: {error}"
        raise AgentError(message, agent_dir=path.parent, hint=hint) from error
