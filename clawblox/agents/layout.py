"""Paths and versions of the files in an agent's directory; nothing is read or created here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
import msgspec

from clawblox.agents.programs import STATE_DIR, id_file_name
from clawblox.errors import AgentError
from clawblox.rundir.paths import UPDATE_HINT

FILE_VERSION: Final = 1
"""The ``schema_version`` of ``usage.json`` and ``status.json``."""


AGENTS_DIR: Final = "agents"
"""The directory in a run directory with the directories of its agents."""


@attrs.frozen
class AgentDir:
    """The directory of one agent.

    Attributes:
        path: The directory, absolute.
    """

    path: Path

    @property
    def workspace(self) -> Path:
        """The agent's own files; the working directory of its program."""
        return self.path / "workspace"

    @property
    def runtime(self) -> Path:
        """Files that clawblox writes for the program."""
        return self.path / "runtime"

    @property
    def home(self) -> Path:
        """The program's ``HOME``."""
        return self.path / "home"

    @property
    def state(self) -> Path:
        """Where the program keeps its conversations."""
        return self.path / STATE_DIR

    @property
    def log_file(self) -> Path:
        """The program's standard output, unchanged."""
        return self.path / "logs" / "agent.log"

    @property
    def errors_file(self) -> Path:
        """The program's standard error, unchanged."""
        return self.path / "logs" / "agent.stderr.log"

    @property
    def events_file(self) -> Path:
        """Events of the agent's processes and turns, one JSON object a line."""
        return self.path / "events.jsonl"

    @property
    def usage_file(self) -> Path:
        """Usage of the agent so far."""
        return self.path / "usage.json"

    @property
    def command_file(self) -> Path:
        """Script that reruns the latest start by hand, without secrets."""
        return self.runtime / "start.sh"

    @property
    def system_prompt_file(self) -> Path:
        """The system prompt."""
        return self.runtime / "system_prompt.md"

    @property
    def access_file(self) -> Path:
        """The address by which the agent knows its world; a resume needs the same address."""
        return self.path / "world_access.json"

    @property
    def status_file(self) -> Path:
        """Status of the agent for other processes."""
        return self.runtime / "status.json"

    def id_file(self, driver: str) -> Path:
        """Return the file that records the id of the agent's conversation."""
        return self.path / id_file_name(driver)


@attrs.frozen
class _Versioned:
    schema_version: int = FILE_VERSION


_versioned: Final = msgspec.json.Decoder(_Versioned)


def refuse_later(content: bytes, path: Path) -> None:
    """Refuse a file that a later version of clawblox has written.

    Args:
        content: Its JSON document.
        path: Its path, in the directory of an agent.

    Raises:
        AgentError: Its ``schema_version`` is not known here.
        msgspec.DecodeError: It is not a JSON object, or its version is not a number.
    """
    version = _versioned.decode(content).schema_version
    if version > FILE_VERSION:
        raise AgentError(
            f"{path} has schema_version {version}, and this clawblox reads up to {FILE_VERSION}",
            agent_dir=path.parent,
            hint=UPDATE_HINT,
        )
