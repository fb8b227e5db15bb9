"""The stages of an instance, as values: with a name, and with processes.

The processes are the world's own process and its sidecars, each in its own session. They are
started here, directly or in tmux windows, and released; their tree ends them. ``instance`` manages
the other resources of an instance. Methods that start or end processes block.
"""

from __future__ import annotations

import re
import signal  # noqa: TID251 - numbers and names only, nothing is sent
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import attrs
import msgspec

from clawblox.concurrency.threads import run_blocking
from clawblox.foreign_values import whole_number
from clawblox.instance.health import ReadinessProbe, Steps, steps_until_ready
from clawblox.instance.launch import Launch
from clawblox.instance.listening import Obstacle, find_elsewhere, find_kept_socket
from clawblox.protocol import WorldEnvironment
from clawblox.results import ProcessExit
from clawblox.rundir.claims import Claim
from clawblox.supervision.tree import ProcessTree
from clawblox.system.process import Process, adopt, require_executable, signal_name, spawn
from clawblox.system.process_tree import Mark, Proc
from clawblox.system.regular_files import closing_fd
from clawblox.system.tmux import close_window, open_window
from clawblox.telemetry.logs import last_lines, open_log

_MAX_STATUS = 255
"""Highest exit status that a shell reports."""


class WorldProcesses(msgspec.Struct):
    """The processes that clawblox starts for an instance, known as soon as they exist.

    Attributes:
        tree: The whole process tree.
        cwd: Their working directory.
        tmux_session: tmux session to run them in; None to run them directly.
        world: The world's own process; None before it is started.
        sidecars: The sidecars by name.
        log_files: Their logs, the world's first.
        log_start: Offset of the world's first byte in its log.
    """

    tree: ProcessTree
    cwd: Path
    tmux_session: str | None
    world: Process | None = None
    sidecars: dict[str, Process] = msgspec.field(default_factory=dict)
    log_files: list[Path] = msgspec.field(default_factory=list)
    log_start: int = 0
    _status_files: list[Path] = msgspec.field(default_factory=list)

    def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        log_file: Path,
        *,
        sidecar: str | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        """Start the world's own process, or a sidecar after it.

        Args:
            command: Its argv.
            env: Its complete environment.
            log_file: File for its output.
            sidecar: Name of the sidecar; None to start the world.
            listener: Listening socket that it inherits, or None.

        Raises:
            CannotExecute: The command cannot be executed.
            OSError: The log cannot be written.
            TmuxError: The tmux window cannot be opened.
        """
        log, log_start = open_log(log_file)
        self.log_files.append(log_file)
        if sidecar is None:
            self.log_files, self.log_start = [log_file], log_start
        with closing_fd(log):
            if self.tmux_session is None:
                fd = None if listener is None else listener.fileno()
                process = spawn(command, cwd=self.cwd, env=env, output=log, listener=fd)
            else:
                process = self._start_in_tmux(command, env, log_file, sidecar)
            self.tree.add(process)  # first, so processes that are waited for are also ended
            if sidecar is None:
                self.world = process
            else:
                self.sidecars[sidecar] = process

    def _start_in_tmux(
        self, command: Sequence[str], env: Mapping[str, str], log_file: Path, sidecar: str | None
    ) -> Process:
        assert self.tmux_session is not None
        # tmux would open the window and close it immediately, hiding the reason.
        require_executable(command[0], self.cwd, env)
        status_file = log_file.with_name(f".{log_file.stem}.status")
        self._status_files.append(status_file)
        status_file.unlink(missing_ok=True)
        pid = open_window(
            self.tmux_session,
            sidecar or "world",
            command,
            cwd=self.cwd,
            env=env,
            log_file=log_file,
            status_file=status_file,
            is_numbered=sidecar is None,
        )
        process = adopt(pid)
        status_file.touch(mode=0o600)
        return process

    def adopt_world(self, world: Process, log_file: Path, log_start: int) -> None:
        """Adopt a world's process that another orchestrator started, with its log."""
        self.tree.add(world)
        self.world, self.log_files, self.log_start = world, [log_file], log_start

    async def wait_exit(self) -> ProcessExit | None:
        """Wait until the world's process has ended; return None if there is no process.

        Cancellation: has no effect.
        """
        if self.world is None:
            return None
        exit_ = await self.world.wait()
        if exit_ == ProcessExit() and self._status_files:  # its tmux window waited for it
            exit_ = await run_blocking(_read_status, self._status_files[0])
        return exit_

    def release(self) -> None:
        """Reap the processes and close their windows. Idempotent."""
        with ExitStack() as releases:  # release each, even if others fail
            for status_file in self._status_files:
                releases.callback(status_file.unlink, missing_ok=True)
            releases.callback(self.tree.release)
            for process in self.tree.processes if self.tmux_session is not None else ():
                if process.has_exited:
                    releases.callback(close_window, process.pid)
        self.world, self.sidecars, self._status_files = None, {}, []


def _read_status(path: Path) -> ProcessExit:
    """Return the exit written by the window's shell; unknown if the shell was killed."""
    try:
        status = whole_number(int(path.read_text()), high=_MAX_STATUS)
    except (OSError, ValueError):
        return ProcessExit()
    if status is None:  # not written by our shell
        return ProcessExit()
    if status > 128 and status - 128 in signal.valid_signals():
        return ProcessExit(signal=signal_name(status - 128))
    return ProcessExit(status=status)


class Named(msgspec.Struct, frozen=True):
    """The stage in which an instance has its name.

    Attributes:
        claim: The claim of the name.
        command_file: Script that reruns the launch.
        log_file: File for the world's output.
    """

    claim: Claim
    command_file: Path
    log_file: Path


@attrs.frozen(eq=False)
class Running:
    """The stage in which an instance may have processes.

    Attributes:
        launch: The plan of its start.
        named: Its claim and its files.
        port: Its port.
        environment: The contract variables of its processes.
        processes: The world's own process and its sidecars.
    """

    launch: Launch
    named: Named
    port: int
    environment: WorldEnvironment
    processes: WorldProcesses

    @property
    def mark(self) -> Mark:
        """The mark of its processes."""
        return self.processes.tree.mark

    @property
    def is_over(self) -> bool:
        """True if the world's process has ended."""
        return self.processes.world is None or self.processes.world.has_exited

    def find_obstacle(self, processes: Iterable[Proc]) -> Obstacle | None:
        """Return a detectable reason why the world is not ready, or None. Blocks.

        Args:
            processes: Live processes, including the world's.

        Raises:
            OSError: The processes cannot be examined, for lack of file descriptors.
        """
        world, processes = self.processes.world, tuple(processes)
        if world is None:
            return None
        place = self.launch.options.host, self.port, world.pid, processes
        kept = None
        if self.launch.hands_listener_over:
            log_lines = last_lines(self.named.log_file, start=self.processes.log_start)
            kept = find_kept_socket(*place, log_lines)
        return kept or find_elsewhere(*place)

    def look_until_ready(self, expected_s: float) -> Steps:
        """Return the steps that probe the world until it is ready or late.

        Args:
            expected_s: The same as for :func:`clawblox.instance.health.steps_until_ready`.
        """
        return steps_until_ready(self.probe, expected_s, self.launch.options.health_timeout)

    @cached_property
    def probe(self) -> ReadinessProbe:
        """The probe for its readiness."""
        ready = self.launch.config.ready
        return ReadinessProbe(
            host=self.launch.options.host,
            port=self.port,
            path=self.launch.options.base_path + ready.path if ready.log is None else None,
            log_pattern=re.compile(ready.log, re.MULTILINE) if ready.log is not None else None,
            log_file=self.named.log_file,
            log_start=self.processes.log_start,
            interval=ready.interval,
            is_inherited=self.launch.hands_listener_over,
        )
