"""The sandbox: bubblewrap, in a network namespace with listening sockets in the orchestrator.

Each process gets its own namespaces. A helper starts and then becomes bubblewrap, so guard, cookie
and pidfd work as for any other process. A helper started by root first becomes another user if this
machine allows it. bubblewrap does not use ``--die-with-parent``, because its parent would be the
spawning thread. Its first process inside ends with the program; the kernel then kills all other
processes in the pid namespace.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from clawblox.agents.drivers.driver import AgentSetup
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.agents.running.hooks import Enclosed, Enclosure
from clawblox.agents.sandbox.endpoints import WORLD_ENDPOINT, Endpoint, find_endpoints
from clawblox.agents.sandbox.entry import ControlGroup, SandboxEntry, SandboxLimits, find_limits
from clawblox.agents.sandbox.inside import (
    SANDBOX_DEPS,
    SANDBOX_HOME,
    SANDBOX_RUNTIME,
    SANDBOX_STATE,
    SYSTEM_DIRS,
    Inside,
    find_proc_covers,
    visible_path,
)
from clawblox.agents.sandbox.native import native_settings, probe_command, require_native
from clawblox.agents.sandbox.program_files import ProgramFiles, find_program_files
from clawblox.agents.sandbox.relay import Relays
from clawblox.agents.sandbox.system_calls import build_filter
from clawblox.agents.values import SandboxLevel
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentSetupError
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.network_namespace import Confinement, NamespaceRefused
from clawblox.system.outer_user import OUTER_DIR, choose_uid, find_obstacle
from clawblox.system.process import ProgramOutcome, run_briefly

_PROBE_TIMEOUT_S: Final = 30.0

_LIBRARY_PATH: Final = "LD_LIBRARY_PATH"
_WITHOUT: Final = "Or start the agent with sandbox=False: it can then read what you can read."
_INSTALL_HINT: Final = f"Install it: apt install bubblewrap. {_WITHOUT}"
_STRICT_HINT: Final = (
    "Start it as a user who is not root, or where root has all capabilities and the agent's "
    "directory is on a file system with id-mapped mounts: ext4, XFS, Btrfs, tmpfs."
)
_LIMITS: Final = {
    **dict.fromkeys(("max_cgroup_namespaces", "max_time_namespaces", "max_fanotify_groups"), 0),
    **dict.fromkeys(("max_ipc_namespaces", "max_uts_namespaces"), 1),
    **dict.fromkeys(("max_mnt_namespaces", "max_pid_namespaces"), 1),
    "max_net_namespaces": 0,
    "max_user_namespaces": 2,
}
"""Limits that leave bubblewrap the namespaces it needs; see namespaces(7). The network namespace is
created before they apply. bubblewrap mounts in the first user namespace; the inner user namespace
belongs to the program."""

_NESTED_LIMITS: Final = {
    name: most
    for name, most in _LIMITS.items()
    if name.partition("_")[2].partition("_")[0] not in ("ipc", "mnt", "net", "pid", "user")
}
"""Limits with room for the sandboxes of Claude Code and Codex inside this sandbox."""

_NAMESPACES_HINT: Final = (
    "Allow user namespaces: sysctl user.max_user_namespaces=10000; on Ubuntu also "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container, its seccomp profile. "
    f"{_WITHOUT}"
)


@attrs.define(eq=False, kw_only=True, slots=False)
class Bubblewrap(Enclosure):
    """The sandbox of one agent; see :class:`clawblox.agents.running.hooks.Enclosure`.

    Args:
        api_hosts: Hosts that its program may reach in addition to its world, by name.
        host: Returns the host name under which the agent knows its world; None without a world.
        settings: Returns the table ``[sandbox]`` of its world.
        has_native: Whether Claude Code's own sandbox is also on, within this sandbox.
        may_nest: Whether the program creates a sandbox of its own.
        is_strict: Whether to refuse a machine on which the sandbox would be weaker.

    Attributes:
        relays: Relay the program's connections to its model while the agent is started.
    """

    _api_hosts: Sequence[str]
    _host: Callable[[], str | None]
    _settings: Callable[[], Mapping[str, Any]]
    _has_native: bool = False
    _may_nest: bool = False
    _is_strict: bool = False

    def __attrs_post_init__(self) -> None:
        self._may_nest = self._may_nest or self._has_native
        self._system_calls = build_filter(os.uname().machine, may_nest=self._may_nest)
        self._user: int | None = None
        self._weakness: str | None = None
        self._limits: SandboxLimits | None = None
        self._group: ControlGroup | None = None
        self._bubblewrap = ""
        self._program: tuple[AgentDir, Path] | None = None
        self._entry: SandboxEntry | None = None
        self.relays = Relays()

    @property
    def level(self) -> SandboxLevel:
        """See ``Enclosure.level``."""
        if os.geteuid() == 0 and self._weakness is not None:
            return "bwrap-root+native" if self._may_nest else "bwrap-root"
        return "bwrap+native" if self._may_nest else "bwrap"

    @property
    def facts(self) -> Mapping[str, Any]:
        """See ``Enclosure.facts``."""
        return {
            "level": self.level,
            "outer_uid": os.geteuid() if self._user is None else self._user,
            "weakness": self._weakness,
            "filters_system_calls": self._system_calls is not None,
            **({} if self._limits is None else self._limits.facts),
        }

    @property
    def native_settings(self) -> Mapping[str, Any] | None:
        """See ``Enclosure.native_settings``."""
        if not self._has_native:
            return None
        host = self._host()
        # A name with a loopback address is refused unless the address is also allowed.
        hosts = [] if host is None else [host, WORLD_ENDPOINT.address]
        return native_settings(hosts, self._settings(), is_nested=True)

    def show(self, setup: AgentSetup) -> AgentSetup:
        """See ``Enclosure.show``."""
        return attrs.evolve(
            setup,
            binary=str(_inside_workspace(setup.directory, Path(setup.binary)) or setup.binary),
            workspace=SANDBOX_WORKSPACE,
            home=SANDBOX_HOME,
            state=SANDBOX_STATE,
            runtime=SANDBOX_RUNTIME,
        )

    def open(self, directory: AgentDir, binary: Path) -> None:
        """See ``Enclosure.open``."""
        bubblewrap = shutil.which("bwrap")
        if bubblewrap is None:
            message = "its sandbox needs bubblewrap, and bwrap is not on PATH"
            raise AgentSetupError(message, hint=_INSTALL_HINT)
        self._bubblewrap = os.path.realpath(bubblewrap)
        self._program = directory, binary
        seen = _inside_workspace(directory, binary) or binary
        self._leave_root(directory, ["test", "-x", str(seen)])
        self._limits = find_limits(os.geteuid() if self._user is None else self._user)
        if self._has_native:
            require_native(self._try(probe_command(is_nested=True)))

    def enclose(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> Enclosed:
        """See ``Enclosure.enclose``."""
        del cwd  # ``cwd`` is always the workspace
        self._close()
        self._remove_group()
        try:
            endpoints = find_endpoints(self._api_hosts, env)
        except ValueError as error:
            raise AgentSetupError(f"its sandbox cannot let it reach its model: {error}") from error
        inside = self._look_inside(endpoints, env)
        assert self._limits is not None
        self._group = self._limits.make_group()
        entry = self._entry = self._enter(inside, endpoints)
        shown = attrs.evolve(inside, is_bound=False).arguments()
        by_hand = [*shown, "--unshare-net", "--die-with-parent", "--", *argv]
        return Enclosed(
            argv=entry.command(self._find_bubblewrap(inside), argv),
            env={**env, "PATH": visible_path(env.get("PATH", ""), inside)},
            pass_fds=entry.pass_fds,
            by_hand=(self._bubblewrap, *by_hand),
        )

    async def after_spawn(self) -> socket.socket:
        """See ``Enclosure.after_spawn``."""
        entry = self._entry
        assert entry is not None
        entry.hand_over()
        entry.channel.setblocking(False)
        await anyio.wait_readable(entry.channel)
        world, *others = entry.receive()
        self.relays.replace(list(zip(others, entry.endpoints[1:], strict=True)))
        return world

    async def release(self) -> None:
        """See ``Enclosure.release``."""
        self._close()
        if self._group is not None:
            await run_blocking(self._remove_group)

    def _close(self) -> None:
        if self._entry is not None:
            self._entry.close()
            self._entry = None
        self.relays.replace([])

    def _remove_group(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.remove()

    # -- the view of the program --------------------------------------------------------------

    def _look_inside(self, endpoints: Sequence[Endpoint], env: Mapping[str, str]) -> Inside:
        """Return the view of a process with these endpoints and this environment."""
        assert self._program is not None
        directory, binary = self._program
        files = self._find_files(directory, binary, env)
        links = dict(files.links)
        shown = *SYSTEM_DIRS, *files.paths, directory.workspace
        if not any(map(binary.is_relative_to, shown)):
            links[binary] = str(files.executable)
        deps, variables = self._deps(env)
        return Inside(
            directory=directory,
            etc=make_private_dir(directory.runtime / "etc"),
            program=files.paths,
            links=tuple(sorted(links.items())),
            commands=files.commands,
            runtime=_readable(directory),
            deps=deps,
            hosts=self._names(endpoints),
            variables=variables,
            covers=find_proc_covers(),
            is_bound=self._user is not None,
        )

    def _find_files(
        self, directory: AgentDir, binary: Path, env: Mapping[str, str]
    ) -> ProgramFiles:
        if _inside_workspace(directory, binary) is not None:
            # The agent can write to it, so it must not determine the visible files.
            return ProgramFiles(binary, (), (), ())
        try:
            return find_program_files(str(binary), env.get("PATH", os.defpath))
        except OSError as error:
            raise AgentSetupError(f"its program cannot be shown in a sandbox: {error}") from error

    def _deps(self, env: Mapping[str, str]) -> tuple[Path | None, tuple[tuple[str, str], ...]]:
        """Return the world's dependencies, and their variables."""
        settings = self._settings()
        root = settings.get("deps_root")
        if root is None:
            return None, ()
        path = Path(root)
        if not path.is_absolute() or not path.is_dir():
            raise AgentSetupError(
                f"[sandbox] deps_root of its world must be a directory, not {root}"
            )
        if not settings.get("add_deps_lib_to_library_path"):
            return path, ()
        # Set only inside, because the variable would also affect bubblewrap itself outside.
        libraries = [str(SANDBOX_DEPS / "lib"), *filter(None, [env.get(_LIBRARY_PATH)])]
        return path, ((_LIBRARY_PATH, ":".join(libraries)),)

    def _names(self, endpoints: Sequence[Endpoint]) -> tuple[tuple[str, str], ...]:
        """Return the host names of the program's world and of its model's hosts."""
        names = {(end.address, end.host) for end in endpoints if end.has_name}
        if (world := self._host()) is not None:
            names.add((WORLD_ENDPOINT.address, world))
        return tuple(sorted(names))

    def _enter(self, inside: Inside, endpoints: Sequence[Endpoint], *more: str) -> SandboxEntry:
        """Write the files of a sandbox, and open the resources of a process in it."""
        for name, text in inside.etc_files().items():
            publish_bytes(inside.etc / name, text.encode(), durable=False)
        return SandboxEntry.open(
            [*inside.arguments(), *more],
            (WORLD_ENDPOINT, *endpoints),
            self._confine(inside),
            self._system_calls,
        )

    def _confine(self, inside: Inside) -> Confinement:
        """Return the restrictions that the helper applies to the program."""
        limits = self._limits
        return Confinement(
            user=self._user,
            own=[str(path) for path in inside.own_files],
            shown=[*map(str, inside.shown_files), self._bubblewrap],
            namespaces=_NESTED_LIMITS if self._may_nest else _LIMITS,
            processes=limits.processes if limits is not None and limits.counts_by_user else None,
            groups=() if self._group is None else [str(self._group.path / "cgroup.procs")],
        )

    def _find_bubblewrap(self, inside: Inside) -> str:
        """Return the path at which the helper finds bubblewrap."""
        if not inside.is_bound:
            return self._bubblewrap
        return f"{OUTER_DIR}/{len(inside.own_files) + len(inside.shown_files)}"

    # -- probes -------------------------------------------------------------------------------

    def _leave_root(self, directory: AgentDir, command: Sequence[str]) -> None:
        """Test the sandbox; if this process is root, first as another user, then as root.

        Raises:
            AgentSetupError: The sandbox cannot be created or tested, or is weaker than required.
        """
        self._user, self._weakness = None, None
        if os.geteuid() == 0:
            user = choose_uid(str(directory.path))
            self._weakness = find_obstacle(user)
            if self._weakness is None:
                self._user = user
                refusal = self._find_refusal(command)
                if refusal is not None:
                    self._user = None
                    self._weakness = f"as another user, {refusal.message}"
        weakness = self._weakness
        if self._system_calls is None:
            weakness = f"the system calls of {os.uname().machine} are not known"
        if self._is_strict and weakness is not None:
            message = f'sandbox: must be True here, not "strict", because {weakness}'
            raise AgentSetupError(message, hint=_STRICT_HINT)
        if self._user is None and (refusal := self._find_refusal(command)):
            raise refusal

    def _find_refusal(self, command: Sequence[str]) -> AgentSetupError | None:
        """Return the error that prevents the sandbox; None if it can be created.

        Raises:
            AgentSetupError: The sandbox cannot be tested, for example for lack of time or
                descriptors.
        """
        try:
            outcome = self._try(command)
        except NamespaceRefused as error:
            message = f"it cannot be isolated on this machine: {error}"
            return AgentSetupError(message, hint=_NAMESPACES_HINT)
        if not outcome.status:
            return None
        words = outcome.first_line.removeprefix("bwrap: ") or f"{command[-1]} is not visible inside"
        return AgentSetupError(f"its sandbox cannot be created: {words}")

    def _try(self, command: Sequence[str]) -> ProgramOutcome:
        """Run a command in the sandbox, as the program will run.

        Raises:
            NamespaceRefused: The namespaces cannot be created.
            AgentSetupError: The command does not end, or cannot be started.
        """
        inside = self._look_inside([], os.environ)
        # Safe here: the parent is this thread, which waits for the command.
        entry = self._enter(inside, [], "--die-with-parent")
        try:
            outcome = run_briefly(
                entry.command(self._find_bubblewrap(inside), command),
                env={"PATH": visible_path("", inside)},
                timeout=_PROBE_TIMEOUT_S,
                pass_fds=entry.pass_fds,
            )
            entry.hand_over()
            for listener in entry.receive():
                listener.close()
        except NamespaceRefused:
            raise
        except OSError as error:
            raise AgentSetupError(f"its sandbox cannot be tested: {error}") from error
        finally:
            entry.close()
        return outcome


def _inside_workspace(directory: AgentDir, binary: Path) -> Path | None:
    """Return the inner path of a program in the agent's workspace; None for other programs."""
    if not binary.is_relative_to(directory.workspace):
        return None
    return SANDBOX_WORKSPACE / binary.relative_to(directory.workspace)


def _readable(directory: AgentDir) -> tuple[str, ...]:
    """Return the files of the runtime directory that the program may read."""
    hidden = {directory.command_file, directory.status_file}
    files = [path for path in directory.runtime.iterdir() if path.is_file() and path not in hidden]
    return tuple(sorted(path.name for path in files if not path.name.startswith(".")))
