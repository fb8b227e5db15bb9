"""The interface of drivers, and the values exchanged between a driver and ``running``."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from clawblox.agents.drivers.output import (
    ErrorPatterns,
    Record,
    find_error_kind,
    parse_record,
    report_error,
)
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import Program
from clawblox.agents.values import DriverReport, Usage, UsageScope
from clawblox.concurrency.threads import Interruption
from clawblox.errors.agent import ErrorKind


def _default_path(name: str) -> Any:  # noqa: ANN401 - the default of a field
    return attrs.Factory(lambda setup: getattr(setup.directory, name), takes_self=True)


@attrs.frozen(kw_only=True)
class AgentSetup:
    """An agent's setup for its driver.

    All paths except ``directory`` are as the program sees them. Without a sandbox, they are the
    paths of that directory.

    Attributes:
        directory: The agent's directory on this machine.
        binary: Path of the executable.
        workspace: Its working directory.
        home: Its ``HOME``.
        state: Its state directory.
        runtime: Files that clawblox writes for it.
        system_prompt: The system prompt.
        model: Model to use; None leaves the choice to the program.
        permission_mode: The program's own name for a permission mode; None allows everything,
            because there is no person to ask.
        is_bare: Whether to leave out hooks and files that the program would read on its own.
        is_root: Whether the program sees itself as root.
        native_sandbox: Settings of the program's own sandbox; None leaves it off.
        command: The command for the ``command`` and ``acp`` drivers, as passed by the caller.
    """

    directory: AgentDir
    binary: str
    workspace: Path = attrs.field(default=_default_path("workspace"))
    home: Path = attrs.field(default=_default_path("home"))
    state: Path = attrs.field(default=_default_path("state"))
    runtime: Path = attrs.field(default=_default_path("runtime"))
    system_prompt: str = ""
    model: str | None = None
    permission_mode: str | None = None
    is_bare: bool = False
    is_root: bool = False
    native_sandbox: Mapping[str, Any] | None = None
    command: Mapping[str, Any] | Sequence[str] | None = None


@attrs.frozen
class Begin:
    """Begins a new conversation.

    Attributes:
        conversation_id: Its id, for programs that take one.
    """

    conversation_id: str


@attrs.frozen
class Continue:
    """Continues an earlier conversation.

    Attributes:
        conversation_id: Its id.
    """

    conversation_id: str


@attrs.frozen
class Fork:
    """Branches a conversation: the new conversation contains the history of the earlier one.

    Attributes:
        parent_id: Id of the earlier conversation, in a copy that belongs to this agent.
        conversation_id: Id of the new conversation, unless the program chooses it.
        origin: Directory of the agent whose conversation was copied; it is not touched.
    """

    parent_id: str
    conversation_id: str
    origin: Path


@attrs.frozen(kw_only=True)
class Turn:
    """The turn for which a process is started.

    Attributes:
        prompt: The first message to the program.
        start: Begins, continues or branches a conversation.
        is_onlooker: Whether the driver only reads output, starting at any line, and writes nothing.
        joined_version: Version of the program when an onlooker has missed its first lines; None
            when reading starts at the first line.
    """

    prompt: str
    start: Begin | Continue | Fork
    is_onlooker: bool = False
    joined_version: str | None = None

    @property
    def continued_id(self) -> str | None:
        """Id of the continued conversation; None for a new conversation."""
        return self.start.conversation_id if isinstance(self.start, Continue) else None


@attrs.frozen(kw_only=True)
class Invocation:
    """The command and input that start a process.

    Attributes:
        argv: Program and arguments, without secrets, because other users can read them.
        env: Variables for this program, in addition to those that every agent gets.
        has_stdin: Whether it reads messages from standard input, which then stays open.
        input: The whole standard input of a program that reads no messages there.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(factory=dict)
    has_stdin: bool = False
    input: bytes = b""


@attrs.frozen(kw_only=True)
class Requirement:
    """A requirement that the setup check found missing.

    Attributes:
        problem: The problem.
        hint: How to solve it.
        kind: Kind of the failure to expect without it; None if the failure has no kind.
        is_certain: Whether the program cannot work without it. Otherwise the program is started
            anyway, and an error after a failure mentions the problem.
    """

    problem: str
    hint: str
    kind: ErrorKind | None = None
    is_certain: bool = True


@attrs.define
class RecordedFile:
    """Read position in a file in which a program records its usage.

    Attributes:
        inode: Inode of the file; a file with another inode is read from its start.
        position: Offset of the next line.
        is_within: Whether that offset is inside a line that is too long to be read.
        usage: Usage recorded by the lines so far.
    """

    inode: int = 0
    position: int = 0
    is_within: bool = False
    usage: Usage = attrs.field(factory=Usage)


@attrs.define(eq=False)
class RecordedUsage:
    """Read positions in the files of a conversation; the caller keeps it between calls.

    Attributes:
        conversation_id: The conversation; empty before the first call.
        files: Read position in each file, by name.
        refused: Paths of files that are too large to be read.
        interruption: Ends a call soon; the next call continues from there.
    """

    conversation_id: str = ""
    files: dict[str, RecordedFile] = attrs.field(factory=dict)
    refused: set[str] = attrs.field(factory=set)
    interruption: Interruption = attrs.field(factory=Interruption)

    def begin(self, conversation_id: str) -> None:
        """Prepare for a call about a conversation; drop the state of any other conversation."""
        if conversation_id != self.conversation_id:
            self.conversation_id = conversation_id
            self.files.clear()
            self.refused.clear()


class Conversation(ABC):
    """The conversation with one process of a program: bytes in, bytes and reports out.

    The caller writes the result of :meth:`outgoing` to the program's standard input, after
    :meth:`say` and after each line read. Processes for a single turn need neither method.
    """

    def say(self, text: str) -> bool:
        """Send the program its next user message.

        Returns:
            Whether this process takes another message; if not, the message starts the next process.
        """
        del text
        return False

    @abstractmethod
    def read(self, line: bytes) -> Sequence[DriverReport]:
        """Return the reports in a line of output, given without its newline.

        An unknown line gives no reports; it is never an error.
        """

    @property
    def has_unread_message(self) -> bool:
        """True if the program has reported receipt of a message but has not started on it."""
        return False

    def outgoing(self) -> bytes:
        """Return the bytes to write to the program now, once; the opening message comes first."""
        return b""


class Driver(ABC):
    """Interface to one agent program. The defaults suit an unknown program.

    Attributes:
        program: The facts of the program.
        records_usage: Whether the program records its usage in files that :meth:`read_usage`
            reads.
        can_branch: Whether conversations can be branched.
        reports_cost: Whether the program reports the cost of its work.
        keeps_system_prompt: Whether a conversation always keeps its first system prompt.
        errors: Patterns of the program's messages.
    """

    program: Program
    errors: ErrorPatterns = ()
    records_usage = False
    can_branch = False
    reports_cost = False
    keeps_system_prompt = True

    @abstractmethod
    def name_binary(self, binary: str | None, command: object) -> str:
        """Return the path or name of the program for a caller's ``binary=`` and ``command=``.

        Raises:
            ConfigError: ``command`` is invalid, missing, or not accepted by this driver.
        """

    @property
    def archives_conversation(self) -> bool:
        """True if archives contain the conversation; otherwise they contain only the workspace."""
        return self.program.is_archived

    def can_continue(self, command: object) -> bool:
        """Return whether another process can continue a conversation in the agent's directory.

        Args:
            command: The caller's ``command=``.

        Raises:
            ConfigError: ``command`` is invalid.
        """
        del command
        return True

    def version_argv(self, binary: str) -> tuple[str, ...]:
        """Return the command that prints the program's version; empty without such a command."""
        return (binary, "--version")

    def check(self, setup: AgentSetup, env: Mapping[str, str], version: str) -> list[Requirement]:
        """Return the missing requirements of the program; no process is started.

        Args:
            setup: The agent, whose directory need not exist.
            env: The whole environment that the program will get.
            version: The output of the version command.
        """
        del setup, env, version
        return []

    @abstractmethod
    def prepare(self, setup: AgentSetup, env: Mapping[str, str]) -> None:
        """Write the files of the private home, which answer all questions of the program. Blocks.

        Files written there by the program are kept; clawblox replaces only its own.

        Args:
            setup: The agent.
            env: The whole environment that the program will get.

        Raises:
            OSError: A file cannot be written.
        """

    def adopt(self, setup: AgentSetup, conversation_id: str, interruption: Interruption) -> None:
        """Move a restored conversation to where the program will look for it. Blocks.

        Args:
            setup: The agent.
            conversation_id: The conversation.
            interruption: Ends the call soon, with an error; another call continues from there.

        Raises:
            OSError: A file cannot be moved or rewritten, or is too large.
        """
        del setup, conversation_id, interruption

    def branch(self, setup: AgentSetup, branch: Fork, interruption: Interruption) -> None:
        """Turn the copied conversation into the new one; the program may do the rest. Blocks.

        Called after :meth:`adopt`, and again after an interruption. If no transcript of the new
        conversation exists afterwards, the program is started with the :class:`Fork`.

        Args:
            setup: The agent.
            branch: The two conversations.
            interruption: Ends the call soon, with an error.

        Raises:
            AgentResumeError: This conversation cannot be branched.
            OSError: A file cannot be rewritten, or is too large.
        """
        del setup, branch, interruption

    def transcripts(self, directory: AgentDir) -> Mapping[str, Path] | None:
        """Return the main transcript of each conversation in the state directory, by id. Blocks.

        None if the program keeps no transcripts or their place is unknown: then only the program's
        own output can prove a resume.
        """
        del directory
        return None

    def progress(self, directory: AgentDir) -> Mapping[str, int] | None:
        """Return the extent of each conversation, by id: its bytes or its messages. Blocks.

        None if the program keeps no transcripts or their place is unknown.

        Raises:
            OSError: A file cannot be read.
        """
        paths = self.transcripts(directory)
        if paths is None:
            return None
        sizes = {}
        for conversation_id, path in paths.items():
            with contextlib.suppress(OSError):
                sizes[conversation_id] = path.lstat().st_size
        return sizes

    def cost_scope(self, version: str) -> UsageScope | None:
        """Return the scope of the costs that a version of the program reports.

        Args:
            version: The version; '' if unknown.

        Returns:
            The scope; None if it is the same as for the tokens.
        """
        del version
        return None

    def read_usage(
        self, directory: AgentDir, conversation_id: str, recorded: RecordedUsage
    ) -> DriverReport | None:
        """Return a ``usage`` report from the files of a conversation. Blocks.

        Called when a turn or a process has ended.

        Args:
            directory: The agent's directory.
            conversation_id: The conversation.
            recorded: Read positions in the files.

        Returns:
            The report; None if the output contains the usage, or the files are unchanged.

        Raises:
            OSError: A file cannot be read.
        """
        del directory, conversation_id, recorded
        return None

    def find_reset(self, directory: AgentDir, conversation_id: str) -> datetime | None:
        """Return the end of the usage limit that stopped a turn, according to files. Blocks.

        Args:
            directory: The agent's directory.
            conversation_id: The conversation.

        Returns:
            The UTC time; None if the program's output contains it, or it is unknown.

        Raises:
            OSError: A file cannot be read.
        """
        del directory, conversation_id
        return None

    @abstractmethod
    def invocation(self, setup: AgentSetup, turn: Turn) -> Invocation:
        """Return the command and input for a process for this turn.

        Raises:
            AgentResumeError: The program cannot continue conversations.
        """

    @abstractmethod
    def converse(self, setup: AgentSetup, turn: Turn) -> Conversation:
        """Return the conversation with a process started for this turn."""

    def read_along(
        self,
        directory: AgentDir,
        conversation_id: str | None = None,
        *,
        joined_version: str | None = None,
    ) -> Conversation:
        """Return a conversation that reads the output of a process without talking to it.

        A request-response protocol is parsed as long as :meth:`Conversation.say` is called for each
        further message; the bytes that it would write to the program are discarded.

        Args:
            directory: The agent's directory.
            conversation_id: The conversation that the process continues; None for a new
                conversation.
            joined_version: Version of the program ('' if unknown) if reading starts after the first
                line of a process in that conversation; None if it starts at the first line.
        """
        name = self.program.driver
        command = {"start": [name, "{prompt}"]}
        setup = AgentSetup(directory=directory, binary=name, command=command)
        start = Begin("") if conversation_id is None else Continue(conversation_id)
        turn = Turn(prompt="", start=start, is_onlooker=True, joined_version=joined_version)
        return self.converse(setup, turn)

    def explain(self, log_lines: Sequence[str]) -> DriverReport | None:
        """Return an ``error`` report if the last lines of a failed process explain the failure."""
        for line in reversed(log_lines):
            record = parse_record(line)
            report = self.explain_text(line) if record is None else self.explain_record(record)
            if report is not None:
                return report
        return None

    def explain_text(self, line: str) -> DriverReport | None:
        """Return an ``error`` report if a line of text explains a failure."""
        kind = find_error_kind(self.errors, line)
        return None if kind is None else report_error(line.strip(), kind)

    def explain_record(self, record: Record) -> DriverReport | None:
        """Return an ``error`` report if a line of JSON explains a failure."""
        del record
        return None
