"""The environment of a running agent: its sandbox, access to worlds, window and status.

The owner of an agent uses these in the order of :class:`Hooks`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.drivers.driver import AgentSetup
from clawblox.agents.layout import AgentDir
from clawblox.agents.status import StatusWriter
from clawblox.agents.values import SandboxLevel
from clawblox.agents.window import AgentWindow


@attrs.frozen(kw_only=True)
class Enclosed:
    """The command that runs a program enclosed.

    Attributes:
        argv: Program and arguments.
        env: The whole environment.
        pass_fds: Descriptors that the program inherits.
        by_hand: Program and arguments for a start by hand, without those descriptors; None if they
            are the same.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(repr=False)
    pass_fds: tuple[int, ...] = ()
    by_hand: tuple[str, ...] | None = None


class Enclosure:
    """Encloses the programs of an agent; this base class adds no sandbox.

    Without a sandbox, programs run on this machine as the current user.
    """

    @property
    def level(self) -> SandboxLevel:
        """Level of the sandbox."""
        return "none"

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts of the open sandbox for events: its level and its weakness, if any."""
        return {"level": self.level}

    @property
    def native_settings(self) -> Mapping[str, Any] | None:
        """Settings for the program's own sandbox; None leaves it off."""
        return None

    def show(self, setup: AgentSetup) -> AgentSetup:
        """Return a setup with the paths and the user that the program sees; touch no file."""
        return attrs.evolve(setup, is_root=os.geteuid() == 0)

    def open(self, directory: AgentDir, binary: Path) -> None:
        """Check that programs can be enclosed here, and prepare the sandbox. Blocks.

        Called at each start of the agent, when its directories exist.

        Raises:
            AgentSetupError: Programs cannot be enclosed here.
            OSError: A file or directory cannot be created.
        """

    def enclose(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> Enclosed:
        """Return the command that runs a program enclosed. Blocks.

        Called before each process. :meth:`after_spawn` closes the resources opened for the process,
        or :meth:`release` if it was not spawned.

        Args:
            argv: Program and arguments, with paths as the program sees them.
            env: The whole environment.
            cwd: Working directory, as the program sees it.

        Raises:
            OSError: The program cannot be enclosed.
        """
        del cwd
        return Enclosed(argv=argv, env=env)

    async def after_spawn(self) -> socket.socket | None:
        """Return the socket on which a running enclosed process expects its world.

        The caller owns the socket. The wait may be cancelled at any time, for example when the
        process dies.

        Raises:
            OSError: The socket did not arrive.
        """
        return None

    async def release(self) -> None:
        """Close all resources of the latest process after its end.

        Cancellation: called shielded.
        """


Service = Callable[[], Awaitable[None]]
"""A coroutine function that runs until cancelled, while the agent is started, and never raises."""


@attrs.frozen(kw_only=True)
class Hooks:
    """The environment of one agent.

    Attributes:
        enclosure: Its sandbox.
        access: Its access to worlds.
        window: Its window; None without a window.
        status: Publishes its status to other processes.
        services: Run while the agent is started.
    """

    enclosure: Enclosure
    access: AgentAccess
    window: AgentWindow | None
    status: StatusWriter
    services: tuple[Service, ...] = ()
