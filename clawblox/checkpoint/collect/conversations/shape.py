"""The base class of all conversation formats.

A format is an allowlist of names in the session tier, each with a path in the program's state
directory. Save and load leave out all other names. Conversation ids come from files that agents can
write and from archives of strangers, and become parts of paths. Each must therefore match the exact
pattern of its program.
"""

from __future__ import annotations

import functools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

import attrs

from clawblox.agents.programs import STATE_DIR, Program
from clawblox.checkpoint import names
from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.collect.conversations import transcripts
from clawblox.checkpoint.collect.conversations.transcripts import Record
from clawblox.checkpoint.model import AgentState, Source, Transform
from clawblox.errors import CheckpointError, CheckpointFormatError
from clawblox.rundir.paths import ANSWER_FILE, SESSION_FILE
from clawblox.system import regular_files
from clawblox.system.files import memory_file
from clawblox.telemetry.log_segments import SEGMENT_SUFFIX, list_segments

_HOMES: Final = ("home", "sandbox-home")
"""Directories used as ``HOME``; a program without a given state directory keeps its state there."""

WITHOUT_CONVERSATIONS: Final = "workspace_only=True saves the workspaces without the conversations"

_USAGE: Final = "usage.json"
_LOG: Final = "logs/agent.log"
_COMPANIONS: Final = (
    *(SESSION_FILE, ANSWER_FILE, "world_access.json", _USAGE),
    *("runtime/system_prompt.md", _LOG),
)
"""Files of the agent directory that are archived with a conversation, as ``record/…``.

They are restored unchanged, because their readers do not trust them, except that a load marks the
usage as inherited.
"""

_SEGMENT: Final = re.compile(f"record/({re.escape(_LOG)}{SEGMENT_SUFFIX})")
_MAX_ID_FILE: Final = 1024


@attrs.frozen(kw_only=True)
class Placement:
    """The place of a file from a session tier.

    Attributes:
        path: Its path, relative to the agent directory.
        transform: Rewrites its content for the new place; None leaves it unchanged.
        keeps_mode: Whether to keep the archived mode; files of a conversation are never executable.
    """

    path: str
    transform: Transform | None = None
    keeps_mode: bool = False


@attrs.frozen(kw_only=True)
class ConversationFiles:
    """The files of a conversation; paths are relative to the agent directory.

    Attributes:
        state_dir: The state directory of the agent's program.
        transcript: The main transcript.
        files: All files, by name relative to the session tier.
    """

    state_dir: str
    transcript: str
    files: Mapping[str, str]


@attrs.frozen(kw_only=True)
class UnrecordedConversation:
    """A conversation known only from the names of its files.

    Attributes:
        id: Its id.
        names: Name of each file in the layout of this package, by its name in the archive.
    """

    id: str
    names: Mapping[str, str]


class ConversationFormat(ABC):
    """Archives and restores the conversations of one agent program."""

    name: ClassVar[str]
    """Name in the metadata, including the version."""

    program: ClassVar[Program]
    """Program that writes the conversations."""

    resume_words: ClassVar[tuple[str, ...]]
    """Command that resumes a conversation, up to the id."""

    system_prompt_option: ClassVar[str | None] = None
    """Command-line option for the system prompt; None if the conversation contains the prompt."""

    allowed: ClassVar[re.Pattern[str]]
    """Allowed names of files, relative to the session tier."""

    @property
    def backend(self) -> str:
        """Driver of the program."""
        return self.program.driver

    @property
    def state_dirs(self) -> tuple[str, ...]:
        """Possible state directories below an agent directory, the likeliest first."""
        return (STATE_DIR, *(f"{home}/{self.program.home_dir}" for home in _HOMES))

    def collect(self, agent_dir: Path) -> tuple[AgentState, list[Source]]:
        """Collect all files of an agent's conversation.

        Args:
            agent_dir: The agent directory.

        Returns:
            The agent's metadata, and the files, with names relative to the session tier.

        Raises:
            CheckpointError: The conversation is unknown, as in :meth:`conversation_id`, does not
                exist, or has an unreadable file.
        """
        # Read the usage first: later turns are then in the log.
        usage = _read_usage(agent_dir)
        conversation_id = self.conversation_id(agent_dir)
        located = self.find(agent_dir, conversation_id)
        companions = self._companions() | _segments(agent_dir)
        state = AgentState(
            backend=self.backend,
            session_format=self.name,
            session_id=conversation_id,
            state_dir=located.state_dir,
            mid_turn=self._is_mid_turn(agent_dir, located.transcript),
        )
        sources = [self.source(agent_dir, name, path) for name, path in located.files.items()]
        sources += [
            _with_content(self.source(agent_dir, name, path), usage)
            for name, path in companions.items()
            if tree.is_file(agent_dir, path)
        ]
        return state, sources

    def is_mid_turn(self, agent_dir: Path) -> bool:
        """Return whether an agent's conversation is in the middle of a turn.

        Raises:
            CheckpointError: As in :meth:`collect`.
        """
        located = self.find(agent_dir, self.conversation_id(agent_dir))
        return self._is_mid_turn(agent_dir, located.transcript)

    def find(self, agent_dir: Path, conversation_id: str) -> ConversationFiles:
        """Return the files of a conversation.

        Raises:
            CheckpointError: No conversation has this id, or a directory cannot be read.
        """
        for state_dir in self.state_dirs:
            located = self.find_in(agent_dir, state_dir, conversation_id)
            if located is not None:
                return located
        raise CheckpointError(
            f"a session tier is required, but there is no transcript for {conversation_id}",
            path=agent_dir / STATE_DIR,
            hint=WITHOUT_CONVERSATIONS,
        )

    def place(
        self, name: str, *, conversation_id: str, workspace: Path, state_dir: str = STATE_DIR
    ) -> Placement | None:
        """Return the place in an agent directory of a file from a session tier.

        Args:
            name: Its name relative to the session tier.
            conversation_id: The recorded id of the conversation.
            workspace: The workspace of the restored agent, absolute; it need not exist.
            state_dir: The program's state directory, one of :attr:`state_dirs`.

        Returns:
            The placement; None if the format does not allow the name.

        Raises:
            CheckpointFormatError: ``conversation_id`` is not an id of this program, or
                ``state_dir`` is not one of its state directories.
        """
        if not self.program.id_pattern.fullmatch(conversation_id):
            raise CheckpointFormatError(
                f"{conversation_id!a:.60} is not a conversation id of {self.backend}"
            )
        if state_dir not in self.state_dirs:
            raise CheckpointFormatError(
                f"{state_dir!a:.60} is not a state directory of {self.backend}"
            )
        if name in (companions := self._companions()):
            return Placement(
                path=companions[name], transform=self._record_transform(name, conversation_id)
            )
        if segment := _SEGMENT.fullmatch(name):
            return Placement(path=segment[1])
        if not self.allows(name):
            return None
        transform = self.load_transform(name, conversation_id, workspace, state_dir)
        return Placement(
            path=f"{state_dir}/{self.path_in_state(name, conversation_id, workspace)}",
            transform=transcripts.chain(transcripts.whole_records, transform)
            if self.has_records(name)
            else transform,
        )

    def allows(self, name: str) -> bool:
        """Return whether the session tier may contain a file with this name."""
        is_allowed = self.allowed.fullmatch(name) is not None
        return is_allowed and names.is_name(f"agents/any/session/{name}")

    def has_records(self, name: str) -> bool:
        """Return whether a file of the session tier has one record per line and may grow."""
        return name.endswith(".jsonl") or name == f"record/{_LOG}"

    def has_own_layout(self, paths: Iterable[str]) -> bool:
        """Return whether the files of a session tier have this package's names.

        Args:
            paths: The names of all files, relative to the session tier.
        """
        return any(map(self.allows, paths))

    def find_unrecorded(self, paths: Iterable[str]) -> UnrecordedConversation | str:
        """Return the only conversation of a tier whose files are named as in the state directory.

        Archives of other writers have this layout and may lack the id of the conversation.

        Args:
            paths: The names of all files, relative to the session tier.

        Returns:
            The conversation, or a message for the user with the reason why it cannot be determined.
        """
        del paths
        return "the archive records no id of the conversation"

    def conversation_id(self, agent_dir: Path) -> str:
        """Return the recorded id of an agent's conversation, or the id of its only conversation.

        Raises:
            CheckpointError: No id is recorded and the number of conversations is not 1, the
                recorded id is not an id of this program, or a directory cannot be read.
        """
        if not os.path.lexists(agent_dir / self.program.id_file):
            ids = self.list_ids(agent_dir)
            if len(ids) > 1:
                raise CheckpointError(
                    f"no conversation of {self.backend} is recorded, and there are {len(ids)} "
                    "conversations",
                    path=agent_dir / self.program.id_file,
                    hint=f"write the id of one of them to this file; {WITHOUT_CONVERSATIONS}",
                )
            for conversation_id in ids:
                return conversation_id
        return self.recorded_id(agent_dir)

    def list_ids(self, agent_dir: Path) -> frozenset[str]:
        """Return the ids of all conversations in an agent directory.

        Raises:
            CheckpointError: A directory cannot be read.
        """
        ids = (self.find_ids(agent_dir, state_dir) for state_dir in self.state_dirs)
        return frozenset().union(*ids)

    def recorded_id(self, agent_dir: Path) -> str:
        """Return the conversation id recorded in an agent directory.

        Raises:
            CheckpointError: No id is recorded, or the recorded id is not an id of this program.
        """
        try:
            recorded = tree.read_head(agent_dir, self.program.id_file, _MAX_ID_FILE)
        except OSError as error:
            raise CheckpointError(
                f"no conversation of {self.backend} is recorded: {error.strerror}",
                path=agent_dir / self.program.id_file,
                hint=WITHOUT_CONVERSATIONS,
            ) from None
        conversation_id = recorded.decode(errors="replace").strip()
        if not self.program.id_pattern.fullmatch(conversation_id):
            raise CheckpointError(
                f"must be a conversation id of {self.backend}, not {conversation_id!a:.60}",
                path=agent_dir / self.program.id_file,
            )
        return conversation_id

    def source(self, agent_dir: Path, name: str, path: str) -> Source:
        """Return a file of the conversation or of its record as a source for an archive.

        Raises:
            CheckpointError: The file cannot be prepared, for example decompressed.
        """
        return Source(
            name=name,
            path=agent_dir / path,
            open=tree.file_opener(agent_dir, path),
            whole_lines=self.has_records(name),
            transform=self.save_transform(name),
        )

    def save_transform(self, name: str) -> Transform | None:
        """Return the transform that makes a file independent of its place; None if unchanged."""
        return None

    def load_transform(
        self, name: str, conversation_id: str, workspace: Path, state_dir: str
    ) -> Transform | None:
        """Return the transform that adapts a file to its new place; None if unchanged."""
        return None

    @abstractmethod
    def find_in(
        self, agent_dir: Path, state_dir: str, conversation_id: str
    ) -> ConversationFiles | None:
        """Return the files of a conversation in a state directory; None if there are none.

        Raises:
            CheckpointError: A directory or file cannot be read, or the files are ambiguous.
        """

    @abstractmethod
    def find_ids(self, agent_dir: Path, state_dir: str) -> Iterable[str]:
        """Return the ids of the conversations in a state directory, without sub-agents.

        Raises:
            CheckpointError: A directory or file cannot be read.
        """

    @abstractmethod
    def path_in_state(self, name: str, conversation_id: str, workspace: Path) -> str:
        """Return the path of an allowed file below the state directory."""

    @abstractmethod
    def ends_turn(self, record: Record) -> bool | None:
        """Return True for a record that ends a turn, False during a turn, None for any other."""

    def _is_mid_turn(self, agent_dir: Path, transcript: str) -> bool:
        with transcripts.newest_records(agent_dir, transcript) as records:
            verdicts = map(self.ends_turn, records)
            return next((not verdict for verdict in verdicts if verdict is not None), False)

    def _record_transform(self, name: str, conversation_id: str) -> Transform | None:
        """Return the transform of a file that is not part of the conversation itself."""
        if name == f"record/{self.program.id_file}":
            return _require_id(conversation_id)
        return transcripts.whole_records if self.has_records(name) else None

    def _companions(self) -> dict[str, str]:
        return {f"record/{path}": path for path in (self.program.id_file, *_COMPANIONS)}


def list_conversation_files(
    agent_dir: Path, state_dir: str, searched: Iterable[str], unreadable: list[str] | None = None
) -> frozenset[str]:
    """Return the regular files below the ``searched`` directories, relative to the state directory.

    Args:
        agent_dir: The agent directory.
        state_dir: The state directory.
        searched: Directories in it.
        unreadable: As for ``tree.list_files``.

    Raises:
        CheckpointError: A directory cannot be read.
    """
    return frozenset(
        f"{top}/{path}"
        for top in searched
        for path in tree.list_files(agent_dir, f"{state_dir}/{top}", unreadable)
    )


def _require_id(conversation_id: str) -> Transform:
    """Return a transform that accepts only this id as content."""

    def check(content: bytes) -> bytes:
        if content.strip() != conversation_id.encode():
            raise CheckpointFormatError(
                "the recorded conversation id differs from the one in the metadata"
            )
        return content

    return transcripts.document_transform(check)


def _segments(agent_dir: Path) -> dict[str, str]:
    """Return the older segments of the agent's log, by their names in the session tier."""
    segments = list_segments(agent_dir / _LOG)
    paths = (str(segment.path.relative_to(agent_dir)) for segment in segments)
    return {f"record/{path}": path for path in paths if path != _LOG}


def _read_usage(agent_dir: Path) -> bytes | None:
    """Return the recorded usage; None if it cannot be read."""
    try:
        return regular_files.read_file(agent_dir, _USAGE, max_bytes=16 << 20)
    except OSError:
        return None


def _with_content(source: Source, usage: bytes | None) -> Source:
    """Return a source; the usage file gets the content that was already read."""
    if usage is None or source.name != f"record/{_USAGE}":
        return source
    return attrs.evolve(source, open=functools.partial(memory_file, _USAGE, usage))
