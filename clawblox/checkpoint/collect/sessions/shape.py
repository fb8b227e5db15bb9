"""What every session format has in common: what is recorded beside a conversation, and the rules.

A format is an allowlist of names below the session tier, and a place in the state directory of
an agent's program for each; what the allowlist does not name does not exist, neither on the way
into an archive nor out of it. Session ids are read from files that the agent can write, and from
archives of strangers, and become parts of paths; so they have to look exactly like ids.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

import attrs

from clawblox.checkpoint import names
from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.collect.sessions import transcripts
from clawblox.checkpoint.collect.sessions.transcripts import Record
from clawblox.checkpoint.model import Source, Transform
from clawblox.errors import CheckpointError, CheckpointFormatError

__all__ = [
    "STATE_DIR",
    "UUID",
    "Found",
    "Placement",
    "Session",
    "SessionFormat",
    "list_session_files",
]

UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

STATE_DIR: Final = "session"
"""The directory in an agent's that its program is told to keep its state in."""

_HOMES: Final = ("home", "sandbox-home")
"""Directories in an agent's that are its ``HOME``, where a program keeps its state untold."""

WITHOUT_SESSION: Final = "workspace_only=True saves the workspaces without the conversations"

_RECORDS: Final = ("world_session.txt", "runtime/system_prompt.md", "logs/agent.log")
_MAX_ID_FILE: Final = 1024


@attrs.frozen(kw_only=True)
class Placement:
    """Where a file of a session tier belongs.

    Attributes:
        path: Its name below the agent directory.
        transform: Rewrites its content for its new place; None leaves it as it is.
    """

    path: str
    transform: Transform | None = None


@attrs.frozen(kw_only=True)
class Session:
    """One recorded conversation, as it is to be archived.

    Attributes:
        id: What its program resumes it by.
        state_dir: The state directory that it is in, relative to the agent directory.
        sources: Its files; their names are relative to the session tier.
        excluded: Names of its files that its format does not allow.
        mid_turn: Whether it was in the middle of a turn.
    """

    id: str
    state_dir: str
    sources: tuple[Source, ...]
    excluded: tuple[str, ...]
    mid_turn: bool


@attrs.frozen(kw_only=True)
class Found:
    """Where a conversation is; paths are relative to the agent directory.

    Attributes:
        state_dir: The state directory of the agent's program.
        transcript: What is said in it.
        files: All its files, by their names relative to the session tier.
        excluded: Such names of what is beside them, and is not allowed.
    """

    state_dir: str
    transcript: str
    files: Mapping[str, str]
    excluded: tuple[str, ...] = ()


class SessionFormat(ABC):
    """How the conversation of one kind of agent travels."""

    name: ClassVar[str]
    """The word for it in the metadata, with its version."""

    backend: ClassVar[str]
    """The driver whose conversations these are."""

    own_dir: ClassVar[str]
    """The directory in ``HOME`` that its program keeps its state in unless it is told."""

    id_pattern: ClassVar[re.Pattern[str]]
    """What its session ids look like; they become parts of paths."""

    allowed: ClassVar[re.Pattern[str]]
    """The names, relative to the session tier, that files of its program may have."""

    @property
    def id_file(self) -> str:
        """Name of the file in an agent directory that records the session id."""
        return f"{self.backend}_session_id.txt"

    @property
    def state_dirs(self) -> tuple[str, ...]:
        """Where in an agent directory the state of its program may be, the likeliest first."""
        return (STATE_DIR, *(f"{home}/{self.own_dir}" for home in _HOMES))

    def collect(self, agent_dir: Path) -> Session:
        """Find everything that belongs to the recorded conversation of an agent.

        Args:
            agent_dir: The agent directory.

        Raises:
            CheckpointError: No usable id is recorded, or there is no conversation of that id.
        """
        session_id = self.recorded_id(agent_dir)
        found = self.find(agent_dir, session_id)
        return Session(
            id=session_id,
            state_dir=found.state_dir,
            sources=(
                *(self.source(agent_dir, name, path) for name, path in found.files.items()),
                *_records_of(agent_dir, self._records()),
            ),
            excluded=found.excluded,
            mid_turn=self._is_mid_turn(agent_dir, found.transcript),
        )

    def is_mid_turn(self, agent_dir: Path) -> bool:
        """Say whether the recorded conversation is in the middle of a turn.

        Raises:
            CheckpointError: As :meth:`collect` does.
        """
        found = self.find(agent_dir, self.recorded_id(agent_dir))
        return self._is_mid_turn(agent_dir, found.transcript)

    def find(self, agent_dir: Path, session_id: str) -> Found:
        """Return where the conversation's files are.

        Raises:
            CheckpointError: There is no conversation of that id.
        """
        for state_dir in self.state_dirs:
            found = self.find_in(agent_dir, state_dir, session_id)
            if found is not None:
                return found
        raise CheckpointError(
            f"session tier requested, no transcript for {session_id}",
            path=agent_dir / STATE_DIR,
            hint=WITHOUT_SESSION,
        )

    def place(
        self, name: str, *, session_id: str, workspace: Path, state_dir: str = STATE_DIR
    ) -> Placement | None:
        """Say where a file of a session tier belongs in an agent directory.

        Args:
            name: Its name relative to the session tier.
            session_id: The recorded id of the conversation.
            workspace: The workspace that the agent will work in, absolute; it need not exist.
            state_dir: Where the program keeps its state, one of :attr:`state_dirs`.

        Returns:
            Where, or None when no such file is part of this format.

        Raises:
            CheckpointFormatError: ``session_id`` is no id of this kind of agent, or
                ``state_dir`` no directory for its state.
        """
        if not self.id_pattern.fullmatch(session_id):
            raise CheckpointFormatError(f"{session_id!a:.60} is no session id of {self.backend}")
        if state_dir not in self.state_dirs:
            raise CheckpointFormatError(f"{state_dir!a:.60} is no place for {self.backend}'s state")
        if name in (records := self._records()):
            is_id = records[name] == self.id_file
            return Placement(path=records[name], transform=_only(session_id) if is_id else None)
        if not (self.allowed.fullmatch(name) and names.is_name(f"agents/any/session/{name}")):
            return None
        return Placement(
            path=f"{state_dir}/{self.where(name, session_id, workspace)}",
            transform=self.restoring(name, session_id, workspace, state_dir),
        )

    def recorded_id(self, agent_dir: Path) -> str:
        """Return the session id that an agent directory records.

        Raises:
            CheckpointError: None is recorded, or what is recorded is no id.
        """
        try:
            recorded = tree.read_head(agent_dir, self.id_file, _MAX_ID_FILE)
        except OSError as error:
            raise CheckpointError(
                f"no session of {self.backend} is recorded: {error.strerror}",
                path=agent_dir / self.id_file,
                hint=WITHOUT_SESSION,
            ) from None
        session_id = recorded.decode(errors="replace").strip()
        if not self.id_pattern.fullmatch(session_id):
            raise CheckpointError(
                f"the recorded session id {session_id!a:.60} is none of {self.backend}",
                path=agent_dir / self.id_file,
            )
        return session_id

    def source(self, agent_dir: Path, name: str, path: str) -> Source:
        """Return a file of the conversation as it is to be archived."""
        return Source(
            name=name,
            path=agent_dir / path,
            open=tree.opener(agent_dir, path),
            whole_lines=path.endswith(".jsonl"),
            transform=self.saving(name),
        )

    def saving(self, name: str) -> Transform | None:
        """Return what makes a file independent of where it is; None when it is already."""
        return None

    def restoring(
        self, name: str, session_id: str, workspace: Path, state_dir: str
    ) -> Transform | None:
        """Return what fits a file to its new place; None when it fits any."""
        return None

    @abstractmethod
    def find_in(self, agent_dir: Path, state_dir: str, session_id: str) -> Found | None:
        """Return where the conversation's files are in a state directory; None when nowhere.

        Raises:
            CheckpointError: It cannot be told.
        """

    @abstractmethod
    def where(self, name: str, session_id: str, workspace: Path) -> str:
        """Return where an allowed file belongs in the state directory."""

    @abstractmethod
    def ends_turn(self, record: Record) -> bool | None:
        """Say whether a record ends a turn, or is within one; None when it does not tell."""

    def _is_mid_turn(self, agent_dir: Path, transcript: str) -> bool:
        with transcripts.newest_records(agent_dir, transcript) as records:
            verdicts = map(self.ends_turn, records)
            return next((not verdict for verdict in verdicts if verdict is not None), False)

    def _records(self) -> dict[str, str]:
        return {f"record/{path}": path for path in (self.id_file, *_RECORDS)}


def list_session_files(agent_dir: Path, state_dir: str, searched: Iterable[str]) -> frozenset[str]:
    """Return the regular files below some directories of a state directory, relative to it.

    Raises:
        CheckpointError: A directory cannot be read.
    """
    return frozenset(
        f"{top}/{path}"
        for top in searched
        for path in tree.list_files(agent_dir, f"{state_dir}/{top}")
    )


def _only(session_id: str) -> Transform:
    """Return a transform that lets a file pass that holds just that id."""

    def check(content: bytes) -> bytes:
        if content.strip() != session_id.encode():
            raise CheckpointFormatError("the recorded session id is another than the metadata's")
        return content

    return transcripts.rewriting_document(check)


def _records_of(agent_dir: Path, places: Mapping[str, str]) -> list[Source]:
    return [
        Source(
            name=name,
            path=agent_dir / path,
            open=tree.opener(agent_dir, path),
            whole_lines=path.endswith(".log"),
        )
        for name, path in places.items()
        if tree.is_file(agent_dir, path)
    ]
