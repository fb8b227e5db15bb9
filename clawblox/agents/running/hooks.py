"""What surrounds a running agent: its sandbox, its access to worlds, its window, its status.

The owner of an agent calls these, in the order of this page, and knows nothing of what is behind
them. Here are also those that do nothing. Methods that block say so, and run in a thread.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord
from clawblox.agents.values import SandboxLevel


@attrs.frozen(kw_only=True)
class View:
    """An agent's places as its program sees them.

    Attributes:
        binary: The program.
        workspace: Its working directory.
        home: Its ``HOME``.
        state: Its state directory.
        runtime: What clawblox writes for it.
        is_root: Whether it sees itself run as root.
    """

    binary: str
    workspace: Path
    home: Path
    state: Path
    runtime: Path
    is_root: bool


@attrs.frozen(kw_only=True)
class Enclosed:
    """What is started in place of a program, so that the program runs enclosed.

    Attributes:
        argv: Program and arguments.
        env: The whole environment.
        pass_fds: Descriptors that it inherits.
        by_hand: Program and arguments as a person can start it, without those descriptors.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(repr=False)
    pass_fds: tuple[int, ...] = ()
    by_hand: tuple[str, ...] = attrs.field()

    @by_hand.default
    def _same(self) -> tuple[str, ...]:
        return self.argv


class Enclosure(Protocol):
    """What stands between an agent's programs and this machine."""

    @property
    def level(self) -> SandboxLevel:
        """What it is."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is reported of it once it is open: its level, and what makes it weaker."""

    @property
    def native_settings(self) -> Mapping[str, Any] | None:
        """Settings for the program's own sandbox; None leaves that off."""

    def view(self, directory: AgentDir, binary: Path) -> View:
        """Return what the program sees. Reads and makes nothing."""

    def open(self, directory: AgentDir, binary: Path) -> None:
        """Check that programs can be enclosed here, and make what that needs. Blocks.

        Called at each start of the agent, when its directories exist.

        Raises:
            AgentSetupError: They cannot be enclosed here.
            OSError: Something cannot be made.
        """

    def enclose(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> Enclosed:
        """Return what is started in place of a program. Blocks.

        Called before each process. What it opens for that process is closed by
        :meth:`after_spawn`, or by :meth:`release` if there is no process.

        Args:
            argv: Program and arguments, by the paths that the program sees.
            env: The whole environment.
            cwd: Its working directory, as it sees it.

        Raises:
            OSError: It cannot be enclosed.
        """

    async def after_spawn(self) -> Mapping[str, socket.socket]:
        """Return the listening sockets of the enclosed process by name, once it runs.

        They belong to the caller. Waiting may be ended by cancellation at any time, for example
        when the process dies.

        Raises:
            OSError: They did not come.
        """

    async def release(self) -> None:
        """Close what is still open for the latest process. Called when that has ended.

        Cancellation: called shielded.
        """


class Access(Protocol):
    """What an agent reaches worlds through."""

    @property
    def base_url(self) -> str | None:
        """The address by which the agent knows its world; None before it has one."""

    def open(self) -> None:
        """Have its address open, at each start of the agent. Blocks.

        Raises:
            AgentResumeError: The address is taken.
        """

    def hand_over(self, listeners: Mapping[str, socket.socket]) -> None:
        """Serve on the sockets of a new process too, and close those of the last one.

        Called after each spawn with what :meth:`Enclosure.after_spawn` returned.
        """

    def rest(self) -> None:
        """Let another agent of this process have the address; called when the agent has ended."""


class Window(Protocol):
    """A window in which a person watches an agent. It stays while programs come and go."""

    @property
    def name(self) -> str | None:
        """Its name; None without a window."""

    @property
    def pane_id(self) -> str | None:
        """Id of its pane; None before it is open."""

    def open(self) -> None:
        """Open it, at each start of the agent, when the log exists. Blocks.

        Raises:
            TmuxError: It cannot be opened.
        """

    def close(self) -> None:
        """Close it, when the agent has ended; a second call does nothing. Blocks."""


class Status(Protocol):
    """Tells other processes how an agent is."""

    def write(self, record: AgentRecord) -> None:
        """Tell it. Blocks. Called when it has changed, at most once a look at the log.

        Raises:
            OSError: It cannot be told now.
        """


class NoEnclosure:
    """Programs run on this machine as the user does."""

    @property
    def level(self) -> SandboxLevel:
        """See :attr:`Enclosure.level`."""
        return "none"

    @property
    def facts(self) -> Mapping[str, Any]:
        """See :attr:`Enclosure.facts`."""
        return {"level": self.level}

    @property
    def native_settings(self) -> Mapping[str, Any] | None:
        """See :attr:`Enclosure.native_settings`."""
        return None

    def view(self, directory: AgentDir, binary: Path) -> View:
        """See :meth:`Enclosure.view`."""
        return View(
            binary=str(binary),
            workspace=directory.workspace,
            home=directory.home,
            state=directory.state,
            runtime=directory.runtime,
            is_root=os.geteuid() == 0,
        )

    def open(self, directory: AgentDir, binary: Path) -> None:
        """See :meth:`Enclosure.open`."""

    def enclose(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> Enclosed:
        """See :meth:`Enclosure.enclose`."""
        del cwd
        return Enclosed(argv=argv, env=env)

    async def after_spawn(self) -> Mapping[str, socket.socket]:
        """See :meth:`Enclosure.after_spawn`."""
        return {}

    async def release(self) -> None:
        """See :meth:`Enclosure.release`."""


class NoAccess:
    """An agent that no world was connected to."""

    base_url: str | None = None

    def open(self) -> None:
        """See :meth:`Access.open`."""

    def hand_over(self, listeners: Mapping[str, socket.socket]) -> None:
        """See :meth:`Access.hand_over`."""
        for listener in listeners.values():
            listener.close()

    def rest(self) -> None:
        """See :meth:`Access.rest`."""


class NoWindow:
    """No window."""

    name: str | None = None
    pane_id: str | None = None

    def open(self) -> None:
        """See :meth:`Window.open`."""

    def close(self) -> None:
        """See :meth:`Window.close`."""


class NoStatus:
    """Other processes are told nothing."""

    def write(self, record: AgentRecord) -> None:
        """See :meth:`Status.write`."""


Service = Callable[[], Awaitable[None]]
"""Something that runs until cancelled, as long as the agent is started; it raises nothing."""


@attrs.frozen(kw_only=True)
class Hooks:
    """All that surrounds one agent.

    Attributes:
        enclosure: Its sandbox.
        access: Its access to worlds.
        window: Its window.
        status: What tells other processes of it.
        services: What else is served while it is started.
    """

    enclosure: Enclosure = attrs.field(factory=NoEnclosure)
    access: Access = attrs.field(factory=NoAccess)
    window: Window = attrs.field(factory=NoWindow)
    status: Status = attrs.field(factory=NoStatus)
    services: tuple[Service, ...] = ()
