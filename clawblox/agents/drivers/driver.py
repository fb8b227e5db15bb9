"""The interface of drivers, and the values that pass between a driver and ``running``."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import Program
from clawblox.agents.values import Report, Usage


@attrs.frozen(kw_only=True)
class AgentSetup:
    """An agent as its driver must know it.

    Paths are as the program sees them; in our sandbox they differ from the paths of this machine.

    Attributes:
        binary: The program, as it is executed.
        workspace: Its working directory.
        home: Its ``HOME``.
        state: Its state directory.
        runtime: Files that clawblox writes for it.
        system_prompt: The system prompt.
        model: Model to use; None leaves the choice to the program.
        permission_mode: Permission mode, in the program's own words; None allows everything, since
            there is no person to ask.
        is_bare: Whether to leave out hooks and what the program reads by itself.
        is_root: Whether the program sees itself run as root.
        native_sandbox: Settings of the program's own sandbox; None leaves that off.
        command: The command of the ``command`` and ``acp`` drivers, as the caller gave it.
    """

    binary: str
    workspace: Path
    home: Path
    state: Path
    runtime: Path
    system_prompt: str
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
        session_id: Its id, where the program takes one.
    """

    session_id: str


@attrs.frozen
class Continue:
    """Continues an earlier conversation.

    Attributes:
        session_id: Its id.
    """

    session_id: str


@attrs.frozen(kw_only=True)
class Turn:
    """The turn that a process is started for.

    Attributes:
        prompt: The first message to the program.
        start: Whether it begins or continues a conversation, and which.
        is_onlooker: Whether the output is only read, from any line on, and nothing is written.
        joined_version: Version of the program whose first lines an onlooker has not read; None if
            it begins with the first line.
    """

    prompt: str
    start: Begin | Continue
    is_onlooker: bool = False
    joined_version: str | None = None

    @property
    def continued_id(self) -> str | None:
        """The conversation that is continued; None for a new one."""
        return self.start.session_id if isinstance(self.start, Continue) else None


@attrs.frozen(kw_only=True)
class Invocation:
    """How a process is started.

    Attributes:
        argv: Program and arguments. They hold no secret; other users can read them.
        env: Variables for this program, on top of those that every agent gets.
        has_stdin: Whether it reads standard input, which stays open; if not, that is ``input``.
        input: All that a program without messages on standard input finds there.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(factory=dict)
    has_stdin: bool = False
    input: bytes = b""


@attrs.frozen(kw_only=True)
class Requirement:
    """Something that the setup check found missing.

    Attributes:
        problem: The problem.
        hint: How to solve it.
        is_certain: Whether the program cannot work without it. If not, it is started all the same,
            and the error of a failure mentions the problem.
    """

    problem: str
    hint: str
    is_certain: bool = True


class Interruption:
    """Asks blocking work that may take long to end soon.

    Attributes:
        is_set: Whether it is asked to.
    """

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """Ask it to end soon."""
        self.is_set = True


@attrs.define
class RecordedFile:
    """How far a file was read in which a program records what it uses.

    Attributes:
        inode: The file; another one is read from its beginning.
        position: Offset of the next line.
        is_within: Whether that lies within a line that is too long to be read.
        usage: Usage recorded by the lines so far.
    """

    inode: int = 0
    position: int = 0
    is_within: bool = False
    usage: Usage = attrs.field(factory=Usage)


class RecordedUsage:
    """How far the files of a conversation were read; the caller keeps it from call to call.

    Attributes:
        session_id: The conversation; empty before the first call.
        files: How far each file was read, by its name.
        refused: Names of files that are too large to be read.
        interruption: Ends a call soon; the next call continues from there.
    """

    def __init__(self) -> None:
        self.session_id = ""
        self.files: dict[str, RecordedFile] = {}
        self.refused: set[str] = set()
        self.interruption = Interruption()

    def begin(self, session_id: str) -> None:
        """Begin a call for a conversation; the state of another one is dropped."""
        if session_id != self.session_id:
            self.session_id = session_id
            self.files.clear()
            self.refused.clear()


class Conversation(ABC):
    """One process of a program, from the side that talks to it: bytes in, bytes and reports out.

    The caller writes what :meth:`outgoing` returns to the program's standard input, after
    :meth:`say` and after each line that was read. A process for a single turn needs neither.
    """

    def say(self, text: str) -> bool:
        """Give the program its next user message.

        Returns:
            Whether it takes one in this process; if not, the next process gets it as its turn.
        """
        del text
        return False

    @abstractmethod
    def read(self, line: bytes) -> Sequence[Report]:
        """Return the reports that a line of output, without its newline, gives.

        A line that is not understood gives no reports; it is never an error.
        """

    def outgoing(self) -> bytes:
        """Return the bytes to write to the program now, once; first of all the opening."""
        return b""


class Driver(ABC):
    """How one agent program is driven. The defaults suit a program of which nothing is known.

    Attributes:
        program: The facts of the program.
        records_usage: Whether the program records its usage in files, where :meth:`read_usage`
            reads it.
    """

    program: Program
    records_usage = False

    @abstractmethod
    def name_binary(self, binary: str | None, command: object) -> str:
        """Return the program that a caller's ``binary=`` and ``command=`` name: a path or a name.

        Raises:
            ConfigError: ``command`` is wrong, missing, or given to a driver that takes none.
        """

    def version_argv(self, binary: str) -> tuple[str, ...]:
        """Return the command that prints the program's version; empty if it has no such command."""
        return (binary, "--version")

    def check(
        self, directory: AgentDir, setup: AgentSetup, env: Mapping[str, str], version: str
    ) -> list[Requirement]:
        """Return the missing requirements of the program; no process is started.

        Args:
            directory: The agent's directory on this machine, which need not exist.
            setup: The agent.
            env: The whole environment that the program will get.
            version: The output of the version command.
        """
        del directory, setup, env, version
        return []

    @abstractmethod
    def prepare(self, directory: AgentDir, setup: AgentSetup, env: Mapping[str, str]) -> None:
        """Write the files of the private home: every question answered beforehand. Blocks.

        Files that the program has written there stay; clawblox replaces its own.

        Args:
            directory: The agent's directory on this machine.
            setup: The agent.
            env: The whole environment that the program will get.

        Raises:
            OSError: A file cannot be written.
        """

    def adopt(
        self,
        directory: AgentDir,
        setup: AgentSetup,
        session_id: str,
        interruption: Interruption,
    ) -> None:
        """Move a restored conversation to where the program will look for it. Blocks.

        Args:
            directory: The agent's directory on this machine.
            setup: The agent.
            session_id: The conversation.
            interruption: Ends the call soon, with an error; another call continues from there.

        Raises:
            OSError: A file cannot be moved or rewritten, or is too large.
        """
        del directory, setup, session_id, interruption

    def transcripts(self, directory: AgentDir) -> Mapping[str, Path] | None:
        """Return the main transcript of each conversation in the state directory, by id. Blocks.

        None where the program keeps none, or in an unknown place: then the program's own proof of
        a resume is all there is.
        """
        del directory
        return None

    def progress(self, directory: AgentDir) -> Mapping[str, int] | None:
        """Return how far each conversation has come, by id: a number that grows with it. Blocks.

        None where the program keeps no transcripts, or in an unknown place.

        Raises:
            OSError: A file cannot be read.
        """
        paths = self.transcripts(directory)
        return None if paths is None else measure_files(paths)

    def read_usage(
        self, directory: AgentDir, session_id: str, recorded: RecordedUsage
    ) -> Report | None:
        """Return a ``usage`` report from the files of a conversation. Blocks.

        The caller asks when a turn or a process has ended.

        Args:
            directory: The agent's directory.
            session_id: The conversation.
            recorded: How far the files were read.

        Returns:
            The report; None where the output has it, or the files have nothing new.

        Raises:
            OSError: A file cannot be read.
        """
        del directory, session_id, recorded
        return None

    @abstractmethod
    def invocation(self, setup: AgentSetup, turn: Turn) -> Invocation:
        """Return how a process for this turn is started.

        Raises:
            AgentResumeError: The program cannot continue conversations.
        """

    @abstractmethod
    def converse(self, setup: AgentSetup, turn: Turn) -> Conversation:
        """Return the conversation with a process that was started for this turn."""

    def explain(self, log_lines: Sequence[str]) -> Report | None:
        """Return an ``error`` report for the last lines of a failed process, if they explain it."""
        del log_lines
        return None


def measure_files(paths: Mapping[str, Path]) -> dict[str, int]:
    """Return the length of each file that exists, for drivers whose transcripts are files."""
    sizes = {}
    for session_id, path in paths.items():
        with contextlib.suppress(OSError):
            sizes[session_id] = path.lstat().st_size
    return sizes
