"""What one instance holds: its name, port, files and processes, taken and given back.

Each resource is noted the moment it is taken, so that :meth:`Instance.end` and
:meth:`Instance.release` can be called at any point of a start and give back exactly what
there is. When to do what, and what a failure means, is the supervisor's part.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal  # noqa: TID251 - numbers and names only, nothing is sent
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from clawblox import protocol
from clawblox.clock import format_utc, utc_now
from clawblox.errors import UsageError
from clawblox.files import make_private_dir, publish_bytes
from clawblox.guard import guard
from clawblox.launch import Launch, child_environment, render_command_file, world_environment
from clawblox.logs import LogReader, last_lines, open_log
from clawblox.manifest import manifest_path
from clawblox.model import StartedWorld, WorldExit
from clawblox.ports import Lease, connect_host, take_free_port, wait_for_port
from clawblox.process import (
    CannotExecute,
    Grace,
    Process,
    TreeEnd,
    adopt,
    end_tree,
    signal_name,
    spawn,
)
from clawblox.proctree import Mark, boot_id, environment
from clawblox.protocol import WorldEnvironment
from clawblox.readiness import Probe
from clawblox.records import Claim, InstanceRecord, RecordState, claim_name, write_record
from clawblox.snapshots import SnapshotSource
from clawblox.threads import run_blocking
from clawblox.tmux import close_window, open_window

__all__ = ["Instance"]

_WINDOW_PREFIX = "world"


class Instance:
    """The resources of one instance.

    Args:
        launch: What was asked for.
        record: The record of a running instance, to attach to it instead of starting one.
        names: The instances of the world object that it belongs to, by name, this one too
            once it has a name; a name is unique there and not only in a run directory.

    Attributes:
        launch: The same.
        record: The same.
        name: Its name, once claimed.
        port: Its port, once leased.
        command_file: Script that reruns the launch.
        log_file: Its output.
        log_files: The same and those of its sidecars, once they are started.
        exit: How the world's process ended, once it has.
    """

    def __init__(
        self,
        launch: Launch,
        record: InstanceRecord | None = None,
        *,
        names: dict[str, Instance],
    ) -> None:
        self.launch = launch
        self.record = record
        self.name = launch.name or ""
        self.port = 0
        self.command_file: Path | None = launch.command_file
        self.log_file: Path | None = launch.log_file
        self.log_files: list[Path] = []
        self.exit: WorldExit | None = None
        self._names = names
        self._cookie = secrets.token_hex(16)
        self._environment: WorldEnvironment | None = None
        self._claim: Claim | None = None
        self._lease: Lease | None = None
        self._leader: Process | None = None
        self._sidecars: dict[str, Process] = {}
        self._status_files: list[Path] = []
        self._may_have_survivors = False
        self._log_start = 0
        self._started_at = format_utc(utc_now())
        self._orchestrator_pid = os.getpid()

    # -- what is known of it ------------------------------------------------------------

    @property
    def url(self) -> str:
        """Its local address, base path included, without a trailing slash."""
        host = connect_host(self.launch.host)
        literal = f"[{host}]" if ":" in host else host
        return f"http://{literal}:{self.port}{self.launch.base_path}"

    @property
    def mark(self) -> Mark:
        """What marks its processes."""
        leaders = tuple((found.pid, found.start_time) for found in self._processes())
        return Mark(f"{protocol.INSTANCE_ENV}={self._cookie}".encode(), leaders)

    def _processes(self) -> list[Process]:
        return [found for found in (self._leader, *self._sidecars.values()) if found is not None]

    @property
    def sidecars(self) -> dict[str, Process]:
        """Its sidecars by name."""
        return self._sidecars

    @property
    def is_recorded(self) -> bool:
        """Whether it has a record on disk."""
        return self._claim is not None and self.port > 0

    @property
    def is_over(self) -> bool:
        """Whether the world's process has ended."""
        return self._leader is None or self._leader.has_exited

    def error_fields(self) -> dict[str, Any]:
        """Return what an error about this instance says of it."""
        return {
            "instance": self.name or None,
            "world_dir": self.launch.config.dir,
            "command_file": self.command_file,
            "log_file": self.log_file,
            "url": self.url if self.port else None,
            "port": self.port or self.launch.port,
            "exit": self.exit,
            "log_lines": self._last_lines(),
        }

    def _last_lines(self) -> tuple[str, ...]:
        if self.log_file is None:
            return ()
        return last_lines(self.log_file, start=self._log_start, secrets=self._secrets())

    def _secrets(self) -> tuple[str, ...]:
        return tuple(self._environment.secrets().values()) if self._environment else ()

    def masked(self, text: str) -> str:
        """Return ``text`` with its tokens masked."""
        for secret in self._secrets():
            text = text.replace(secret, protocol.MASK)
        return text

    def started_world(self, ready_s: float) -> StartedWorld:
        """Return the public facts of it; everything must have been taken."""
        assert self._environment is not None
        assert self._leader is not None
        assert self.command_file is not None
        assert self.log_file is not None
        config = self.launch.config
        return StartedWorld(
            name=self.name,
            url=self.url,
            host=self.launch.host,
            port=self.port,
            pid=self._leader.pid,
            command=list(config.start_command),
            start_command=list(config.start_command),
            delegated=config.is_delegated,
            run_command=config.run_command and list(config.run_command),
            env={**self.launch.env, **self._environment.masked()},
            run_dir=self.launch.run_dir,
            command_file=self.command_file,
            log_file=self.log_file,
            record_dir=self.launch.record_dir,
            resume_path=self.launch.resume_path,
            ready_s=ready_s,
        )

    def snapshot_source(self) -> SnapshotSource:
        """Return where snapshots of it come from."""
        assert self._environment is not None
        return SnapshotSource(
            instance=self.name,
            host=self.launch.host,
            port=self.port,
            base_path=self.launch.base_path,
            operator_token=self._environment.operator_token,
        )

    def probe(self) -> Probe:
        """Return how to see that it is ready."""
        assert self.log_file is not None
        ready = self.launch.config.ready
        return Probe(
            host=self.launch.host,
            port=self.port,
            path=self.launch.base_path + ready.path if ready.log is None else None,
            log_pattern=re.compile(ready.log, re.MULTILINE) if ready.log is not None else None,
            log_file=self.log_file,
            log_start=self._log_start,
            interval=ready.interval,
        )

    def log_reader(self, *, follow: bool, tail: int | None) -> LogReader:
        """Return the lines of its log, from its own first one on."""
        assert self.log_file is not None
        return LogReader(
            self.name,
            self.log_file,
            follow=follow,
            tail=tail,
            start=self._log_start,
            is_over=lambda: self.is_over,
        )

    # -- taking -------------------------------------------------------------------------

    async def take_name(self) -> None:
        """Claim its name in the run directory.

        Raises:
            UsageError: Another instance of this world object has the name.
            RunLockedError: Another orchestrator holds it.
            OSError: The run directory cannot be written.
        """
        await run_blocking(self._take_name)
        files = self.launch.files_dir
        self.command_file = self.command_file or files / "runtime" / f"{self.name}.sh"
        self.log_file = self.log_file or files / "logs" / f"{self.name}.log"

    def _take_name(self) -> None:
        name = self.launch.name
        while self._claim is None:
            taken = tuple(self._names)
            if name in taken:
                raise UsageError(
                    f"this world has an instance {name!r} already", hint="stop it first"
                )
            self._note_claim(claim_name(self.launch.run_dir, name, taken=taken))

    def _note_claim(self, claim: Claim) -> None:
        # In one step: starts in other run directories may be about to take the same name.
        if self._names.setdefault(claim.name, self) is self:
            self._claim, self.name = claim, claim.name
        else:
            claim.release()

    async def take_port(self) -> None:
        """Lease its port, waiting for a given one.

        Raises:
            PortBusy: The given port is in use.
            NoFreePort: No port is free.
            OSError: The host is not an address of this machine.
        """
        launch = self.launch
        if launch.port is None:
            self._lease = await run_blocking(take_free_port, launch.host)
        else:
            self._lease = await wait_for_port(launch.host, launch.port, launch.port_wait)
        self.port = self._lease.port

    async def attach(self) -> None:
        """Take over the running instance of the record, its name included.

        Raises:
            RunLockedError: Another orchestrator holds it.
            ProcessLookupError: It has ended meanwhile.
        """
        await run_blocking(self._attach)

    def _attach(self) -> None:
        record = self.record
        assert record is not None
        self._note_claim(claim_name(self.launch.run_dir, record.name, may_be_alive=True))
        self._leader = adopt(record.pid)
        self.port = record.port
        self.command_file, self.log_file = Path(record.command_file), Path(record.log_file)
        self.log_files = [self.log_file]
        self._cookie, self._log_start = record.cookie, record.log_start
        self._started_at = record.started_at
        world = world_environment(self.launch, self.port, manifest_path(self.launch.run_dir))
        # The token is on no disk; the world's own environment is where it is.
        known = _variables_of(record.pid)
        self._environment = attrs.evolve(
            world,
            operator_token=known.get(protocol.OPERATOR_TOKEN_ENV, world.operator_token),
            spectator_token=known.get(protocol.SPECTATOR_TOKEN_ENV, world.spectator_token),
        )

    async def write_files(self) -> None:
        """Write the command file and make the directories.

        Raises:
            OSError: One of them cannot be written.
        """
        await run_blocking(self._write_files)

    def _write_files(self) -> None:
        assert self.command_file is not None
        assert self.log_file is not None
        for path in (self.command_file, self.log_file):
            make_private_dir(path.parent)
        if self.launch.record_dir is not None:
            make_private_dir(self.launch.record_dir)
        manifest = manifest_path(self.launch.run_dir)
        self._environment = world_environment(self.launch, self.port, manifest)
        script = render_command_file(self.launch, self._environment)
        publish_bytes(self.command_file, script.encode(), mode=0o700)

    async def start_processes(self) -> None:
        """Start the world and its sidecars; the guard knows them before they exist.

        Raises:
            CannotExecute: One of the commands.
            OSError: A log cannot be written.
            TmuxError: The tmux window cannot be opened.
        """
        assert self._environment is not None
        assert self.log_file is not None
        config = self.launch.config
        await run_blocking(guard.watch, self.mark)
        self._may_have_survivors = True
        env = child_environment(self.launch, self._environment, self._cookie)
        self.log_files = [self.log_file]
        self._leader = await self._start_one(config.start_command, env, self.log_file, None)
        await run_blocking(self._note_leader)
        for sidecar in config.sidecars:
            log_file = self.log_file.with_name(f"{self.log_file.stem}-{sidecar.name}.log")
            self.log_files.append(log_file)
            self._sidecars[sidecar.name] = await self._start_one(
                sidecar.command, env, log_file, sidecar.name
            )
            await run_blocking(guard.watch, self.mark)

    def _note_leader(self) -> None:
        guard.watch(self.mark)
        self.write_record("starting")

    async def _start_one(
        self, command: Sequence[str], env: dict[str, str], log_file: Path, sidecar: str | None
    ) -> Process:
        log, log_start = await run_blocking(open_log, log_file)
        if sidecar is None:
            self._log_start = log_start
        try:
            if self.launch.tmux_session is None:
                cwd = self.launch.config.dir
                return await spawn(command, cwd=cwd, env=env, output=log)
            return await run_blocking(self._start_in_tmux, command, env, log_file, sidecar)
        finally:
            os.close(log)

    def _start_in_tmux(
        self, command: Sequence[str], env: dict[str, str], log_file: Path, sidecar: str | None
    ) -> Process:
        session = self.launch.tmux_session
        assert session is not None
        cwd = self.launch.config.dir
        _require_executable(command[0], cwd, env)
        status_file = log_file.with_name(f".{log_file.stem}.status")
        self._status_files.append(status_file)
        status_file.unlink(missing_ok=True)
        pid = open_window(
            session,
            sidecar or _WINDOW_PREFIX,
            command,
            cwd=cwd,
            env=env,
            log_file=log_file,
            status_file=status_file,
            is_numbered=sidecar is None,
        )
        process = adopt(pid)
        status_file.touch(mode=0o600)
        return process

    # -- watching and giving back -------------------------------------------------------

    async def wait_exit(self) -> WorldExit | None:
        """Wait until the world's process has ended; None when there never was one.

        Cancellation: changes nothing.
        """
        if self._leader is None:
            return None
        found = await self._leader.wait()
        if self._status_files and found == WorldExit():
            found = await run_blocking(_read_status, self._status_files[0])
        self.exit = found
        return found

    async def end(self, grace: Grace) -> TreeEnd:
        """End every process of it; call it shielded.

        Args:
            grace: Time between TERM and KILL.

        Raises:
            OSError: Not all of them can be looked at, for want of descriptors. Those that it
                started are killed; the guard keeps its watch over the others.
        """
        try:
            end = await end_tree(self.mark, self._leader, grace)
        except OSError:
            for process in self._processes():
                process.kill()
            raise
        self._may_have_survivors = bool(end.survivors)
        return end

    def forget_processes(self) -> None:
        """Begin anew after :meth:`end`, on another port, with the name that is claimed."""
        self._release_processes()
        self.release_port()
        self.exit = None

    def let_go(self) -> None:
        """Take it out of the guard's care: it shall outlive this orchestrator."""
        guard.forget(self.mark)

    def release(self) -> None:
        """Give back what is held beside the processes; a second call does nothing."""
        if not self._may_have_survivors:
            self.let_go()
        self._release_processes()
        self.release_port()
        for status_file in self._status_files:
            status_file.unlink(missing_ok=True)
        if self._claim is not None:
            self._claim.release()
            self._claim = None
            self._names.pop(self.name, None)

    def _release_processes(self) -> None:
        for process in self._processes():
            if self.launch.tmux_session is not None and process.has_exited:
                close_window(process.pid)
            process.release()
        self._leader = None
        self._sidecars = {}

    def release_port(self) -> None:
        """Give the port back."""
        if self._lease is not None:
            self._lease.release()
        self._lease = None

    # -- its record ---------------------------------------------------------------------

    def write_record(self, state: RecordState) -> None:
        """Write its record. Blocks.

        Raises:
            OSError: The old record is unchanged.
        """
        launch, leader = self.launch, self._leader
        is_over = state in ("exited", "failed")
        record = InstanceRecord(
            name=self.name,
            state=state,
            world=launch.config.name,
            world_dir=str(launch.config.dir),
            host=launch.host,
            port=self.port,
            base_path=launch.base_path,
            url=self.url,
            pid=leader.pid if leader else 0,
            start_time=leader.start_time if leader else 0,
            boot_id=boot_id(),
            cookie=self._cookie,
            command_file=str(self.command_file),
            log_file=str(self.log_file),
            log_start=self._log_start,
            started_at=self._started_at,
            ended_at=format_utc(utc_now()) if is_over else None,
            resume_path=str(launch.resume_path) if launch.resume_path else None,
            is_detached=launch.detach,
            orchestrator_pid=self._orchestrator_pid,
            exit=self.exit,
        )
        write_record(launch.run_dir, record)


def _variables_of(pid: int) -> dict[str, str]:
    entries = (entry.decode(errors="replace").partition("=") for entry in environment(pid))
    return {name: value for name, _, value in entries}


def _require_executable(program: str, cwd: Path, env: dict[str, str]) -> None:
    # tmux would open the window and close it at once, with the reason on no screen.
    found = shutil.which(str(cwd / program) if "/" in program else program, path=env.get("PATH"))
    if found is None:
        raise CannotExecute(f"cannot execute {program!r}: no such executable file")


def _read_status(path: Path) -> WorldExit:
    """Return the exit that the window's shell left; unknown when it was killed itself."""
    try:
        status = int(path.read_text())
    except (OSError, ValueError):
        return WorldExit()
    if status > 128 and status - 128 in signal.valid_signals():
        return WorldExit(signal=signal_name(status - 128))
    return WorldExit(status=status)
