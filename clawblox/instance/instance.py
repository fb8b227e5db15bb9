"""What one instance holds: its name, port, files and processes, taken and given back.

Each resource is noted the moment it is taken, so that :meth:`Instance.end` and
:meth:`Instance.release` can be called at any point of a start and give back exactly what
there is. When to do what, and what a failure means, is the supervisor's part.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from clawblox import protocol
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import LivenessRule
from clawblox.errors import UsageError
from clawblox.instance.environment import (
    child_environment,
    fill_command,
    render_command_file,
    world_environment,
)
from clawblox.instance.health import Probe
from clawblox.instance.launch import Launch
from clawblox.instance.processes import Leaders
from clawblox.protocol import WorldEnvironment
from clawblox.results import StartedWorld, WorldExit
from clawblox.rundir.claims import Claim, claim_name
from clawblox.rundir.manifest import manifest_path
from clawblox.rundir.records import InstanceRecord, RecordState, replace_record, write_record
from clawblox.snapshot.capture import SnapshotSource
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.guard import guard
from clawblox.system.ports import Lease, connect_host, open_listener, take_free_port, wait_for_port
from clawblox.system.process import Grace, Process, TreeEnd, adopt, end_tree
from clawblox.system.process_tree import Mark, boot_id, read_variables
from clawblox.telemetry.logs import LogReader, last_lines

__all__ = ["Instance", "new_run_id"]


class Instance:
    """The resources of one instance.

    Args:
        launch: What was asked for.
        record: The record of a running instance, to attach to it instead of starting one.
        names: The instances of the world object that it belongs to, by name, this one too
            once it has a name; a name is unique there and not only in a run directory.
        control: Name of the control socket that its orchestrator serves.
        register: Called before its first process is started: puts it into the manifest. Blocks.
        run_id: Id of the run that its start begins; empty makes one of its name and the time.

    Attributes:
        launch: The same.
        record: The same.
        name: Its name, once claimed.
        port: Its port, once leased.
        command_file: Script that reruns the launch.
        log_file: Its output.
        restarts: How often it was brought back.
        run_id: Id of its run, once it has a name.
        exit: How the world's process ended, once it has.
        halt: Why the world has halted, once it said that it has.
    """

    def __init__(
        self,
        launch: Launch,
        record: InstanceRecord | None = None,
        *,
        names: dict[str, Instance],
        control: str = "",
        register: Callable[[], None] = lambda: None,
        run_id: str = "",
    ) -> None:
        self.launch = launch
        self.record = record
        self.name = launch.options.name or ""
        self.port = 0
        self.command_file: Path | None = launch.options.command_file
        self.log_file: Path | None = launch.options.log_file
        self.restarts = 0
        self.run_id = run_id
        self.exit: WorldExit | None = None
        self.halt: str | None = None
        self._names = names
        self._control = control
        self._register = register
        self._cookie = secrets.token_hex(16)
        self._environment: WorldEnvironment | None = None
        self._claim: Claim | None = None
        self._lease: Lease | None = None
        self._leaders = self._new_leaders()
        self._may_have_survivors = False
        self._begun_at = utc_now()
        self._started_at = format_utc(self._begun_at)
        self._orchestrator_pid = os.getpid()
        self._written: InstanceRecord | None = None
        self._record_lock = threading.Lock()

    def _new_leaders(self) -> Leaders:
        return Leaders(self.launch.config.dir, self.launch.tmux_session)

    # -- what is known of it ------------------------------------------------------------

    @property
    def url(self) -> str:
        """Its local address, base path included, without a trailing slash."""
        host = connect_host(self.launch.options.host)
        literal = f"[{host}]" if ":" in host else host
        return f"http://{literal}:{self.port}{self.launch.options.base_path}"

    @property
    def mark(self) -> Mark:
        """What marks its processes."""
        leaders = tuple((found.pid, found.start_time) for found in self._leaders.processes)
        return Mark(f"{protocol.INSTANCE_ENV}={self._cookie}".encode(), leaders)

    @property
    def sidecars(self) -> dict[str, Process]:
        """Its sidecars by name."""
        return self._leaders.sidecars

    @property
    def log_files(self) -> list[Path]:
        """Its output and those of its sidecars, once they are started."""
        return self._leaders.log_files

    @property
    def has_port(self) -> bool:
        """Whether a port is leased for it."""
        return self._lease is not None

    @property
    def is_recorded(self) -> bool:
        """Whether it has a record on disk."""
        return self._claim is not None and self.port > 0

    @property
    def is_over(self) -> bool:
        """Whether the world's process has ended."""
        return self._leaders.world is None or self._leaders.world.has_exited

    def error_fields(self) -> dict[str, Any]:
        """Return what an error about this instance says of it."""
        return {
            "instance": self.name or None,
            "world_dir": self.launch.config.dir,
            "command_file": self.command_file,
            "log_file": self.log_file,
            "url": self.url if self.port else None,
            "port": self.port or self.launch.options.port,
            "exit": self.exit,
            "log_lines": self._last_lines(),
        }

    def _last_lines(self) -> tuple[str, ...]:
        if self.log_file is None:
            return ()
        return last_lines(self.log_file, start=self._leaders.log_start, secrets=self._secrets())

    def _secrets(self) -> tuple[str, ...]:
        return tuple(self._environment.secrets().values()) if self._environment else ()

    def masked(self, text: str) -> str:
        """Return ``text`` with its tokens masked."""
        for secret in self._secrets():
            text = text.replace(secret, protocol.MASK)
        return text

    def note_ready(self) -> None:
        """Put its record right once it serves. Blocks.

        Raises:
            OSError: The record cannot be written.
        """
        self.exit = None
        self.write_record("ready")
        if self.launch.options.detach:
            self.let_go()

    def started_world(self, ready_s: float) -> StartedWorld:
        """Return the public facts of it; everything must have been taken."""
        assert self._environment is not None
        assert self._leaders.world is not None
        assert self.command_file is not None
        assert self.log_file is not None
        config = self.launch.config
        return StartedWorld(
            name=self.name,
            url=self.url,
            host=self.launch.options.host,
            port=self.port,
            pid=self._leaders.world.pid,
            command=fill_command(config.start_command),
            start_command=list(config.start_command),
            delegated=config.is_delegated,
            run_command=config.run_command and list(config.run_command),
            env={**self.launch.options.env, **self._environment.masked()},
            run_dir=self.launch.run_dir,
            instance_dir=self.launch.instance_dir,
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
            host=self.launch.options.host,
            port=self.port,
            base_path=self.launch.options.base_path,
            operator_token=self._environment.operator_token,
        )

    def probe(self) -> Probe:
        """Return how to see that it is ready."""
        assert self.log_file is not None
        ready = self.launch.config.ready
        return Probe(
            host=self.launch.options.host,
            port=self.port,
            path=self.launch.options.base_path + ready.path if ready.log is None else None,
            log_pattern=re.compile(ready.log, re.MULTILINE) if ready.log is not None else None,
            log_file=self.log_file,
            log_start=self._leaders.log_start,
            interval=ready.interval,
            is_inherited=self.has_listener,
        )

    def liveness_probe(self, rule: LivenessRule) -> Probe:
        """Return how to see that it still answers."""
        path = self.launch.options.base_path + rule.path
        return attrs.evolve(self.probe(), path=path, log_pattern=None)

    def log_reader(self, *, follow: bool, tail: int | None) -> LogReader:
        """Return the lines of its log, from its own first one on."""
        assert self.log_file is not None
        return LogReader(
            self.name,
            self.log_file,
            follow=follow,
            tail=tail,
            start=self._leaders.log_start,
            is_over=lambda: self.is_over,
        )

    # -- taking -------------------------------------------------------------------------

    def take_name(self) -> None:
        """Claim its name in the run directory. Blocks.

        Raises:
            UsageError: Another instance of this world object has the name.
            RunLockedError: Another orchestrator holds it.
            OSError: The run directory cannot be written.
        """
        name = self.launch.options.name
        while self._claim is None:
            taken = tuple(self._names)
            if name in taken:
                raise UsageError(
                    f"this world has an instance {name!r} already", hint="stop it first"
                )
            self._note_claim(claim_name(self.launch.run_dir, name, taken=taken))
        self.run_id = self.run_id or new_run_id(self.name, self._begun_at)
        files = self.launch.files_dir
        self.command_file = self.command_file or files / "runtime" / f"{self.name}.sh"
        self.log_file = self.log_file or files / "logs" / f"{self.name}.log"

    def _note_claim(self, claim: Claim) -> None:
        # In one step: starts in other run directories may be about to take the same name.
        if self._names.setdefault(claim.name, self) is self:
            self._claim, self.name = claim, claim.name
        else:
            claim.release()

    async def wait_for_port(self) -> None:
        """Lease the port that the caller gave, when it is free.

        Raises:
            PortBusy: It is in use.
            OSError: The host is not an address of this machine.

        Cancellation: nothing is leased.
        """
        launch = self.launch
        assert launch.options.port is not None
        self._lease = await wait_for_port(
            launch.options.host, launch.options.port, launch.options.port_wait
        )
        self.port = self._lease.port

    def bring_up(self) -> None:
        """Take what is not taken yet, write its files, start its processes. Blocks.

        All in one go, for a hop into another thread costs as much as any of it.

        Raises:
            UsageError, RunLockedError: As :meth:`take_name` does.
            NoFreePort: No port is free.
            PortBusy: A stranger took the leased port that the world shall inherit.
            CannotExecute: One of the commands.
            OSError: A file cannot be written.
            ManifestError: It cannot be registered.
            TmuxError: A tmux window cannot be opened.
        """
        self.take_name()
        if self._lease is None:
            self._lease = take_free_port(self.launch.options.host)
            self.port = self._lease.port
        self._write_files()
        self._register()
        self._start_processes()

    def _write_files(self) -> None:
        assert self.command_file is not None
        assert self.log_file is not None
        for path in (self.command_file, self.log_file):
            make_private_dir(path.parent)
        if self.launch.record_dir is not None:
            make_private_dir(self.launch.record_dir)
        manifest = manifest_path(self.launch.instance_dir)
        self._environment = world_environment(self.launch, self.port, manifest)
        script = render_command_file(self.launch, self._environment)
        publish_bytes(self.command_file, script.encode(), mode=0o700, durable=False)

    def _start_processes(self) -> None:
        assert self._environment is not None
        assert self.log_file is not None
        config = self.launch.config
        # The guard knows them before they exist.
        guard.watch(self.mark)
        self._may_have_survivors = True
        env = child_environment(self.launch, self._environment, self._cookie)
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(self._open_listener()) if self.has_listener else None
            command = fill_command(config.start_command)
            self._leaders.start_world(command, env, self.log_file, listener)
        guard.watch(self.mark)
        self.write_record("starting")
        for sidecar in config.sidecars:
            self._leaders.start_sidecar(sidecar.name, fill_command(sidecar.command), env)
            guard.watch(self.mark)

    @property
    def has_listener(self) -> bool:
        """Whether the world inherits its listening socket; tmux's server cannot hand it down."""
        return self.launch.config.inherits_listener and self.launch.tmux_session is None

    def _open_listener(self) -> socket.socket:
        return open_listener(self.launch.options.host, self.port)

    def attach(self) -> None:
        """Take over the running instance of the record, its name included. Blocks.

        Raises:
            RunLockedError: Another orchestrator holds it.
            ProcessLookupError: It has ended meanwhile.
        """
        record = self.record
        assert record is not None
        self._note_claim(claim_name(self.launch.run_dir, record.name, may_be_alive=True))
        self._leaders.world = adopt(record.pid)
        self.port = record.port
        self.command_file, self.log_file = Path(record.command_file), Path(record.log_file)
        self._leaders.log_files = [self.log_file]
        self._cookie, self._leaders.log_start = record.cookie, record.log_start
        self._started_at, self.restarts = record.started_at, record.restarts
        self._written, self.run_id = record, record.run_id
        world = world_environment(self.launch, self.port, manifest_path(self.launch.instance_dir))
        # The token is on no disk; the world's own environment is where it is.
        known = read_variables(record.pid)
        self._environment = attrs.evolve(
            world,
            operator_token=known.get(protocol.OPERATOR_TOKEN_ENV, world.operator_token),
            spectator_token=known.get(protocol.SPECTATOR_TOKEN_ENV, world.spectator_token),
        )

    # -- watching and giving back -------------------------------------------------------

    async def wait_exit(self) -> WorldExit | None:
        """Wait until the world's process has ended; None when there never was one.

        Cancellation: changes nothing.
        """
        leader = self._leaders.world
        if leader is None:
            return None
        self.exit = await leader.wait()
        if self.exit == WorldExit() and self.launch.tmux_session is not None:
            self.exit = await run_blocking(self._leaders.read_exit)
        return self.exit

    async def end(self, grace: Grace) -> TreeEnd:
        """End every process of it; call it shielded.

        Args:
            grace: Time between TERM and KILL.

        Raises:
            OSError: Not all of them can be looked at, for want of descriptors. Those that it
                started are killed; the guard keeps its watch over the others.
        """
        try:
            end = await end_tree(self.mark, self._leaders.world, grace)
        except OSError:
            self._leaders.kill()
            raise
        self._may_have_survivors = bool(end.survivors)
        return end

    def begin_anew(self, *, keep_port: bool) -> None:
        """Be as before :meth:`bring_up`, after :meth:`end`, with the name that is claimed. Blocks.

        Args:
            keep_port: Whether the port stays leased, for those who know its address.
        """
        guard.forget(self.mark)
        self._leaders.release()
        self._leaders = self._new_leaders()
        self._cookie = secrets.token_hex(16)
        self.halt = None
        if not keep_port:
            self._release_port()

    def let_go(self) -> None:
        """Take it out of the guard's care: it shall outlive this orchestrator."""
        guard.forget(self.mark)

    def release(self) -> None:
        """Give back what is held beside the processes; a second call does nothing. Blocks."""
        if not self._may_have_survivors:
            self.let_go()
        self._leaders.release()
        self._release_port()
        with self._record_lock:
            if self._claim is not None:
                self._claim.release()
                self._claim = None
                self._names.pop(self.name, None)

    def _release_port(self) -> None:
        if self._lease is not None:
            self._lease.release()
        self._lease = None

    # -- its record ---------------------------------------------------------------------

    def write_record(self, state: RecordState) -> None:
        """Write its record. Blocks.

        Raises:
            OSError: The old record is unchanged.
        """
        launch, leader = self.launch, self._leaders.world
        is_over = state in ("exited", "failed")
        record = InstanceRecord(
            name=self.name,
            state=state,
            world=launch.config.name,
            world_dir=str(launch.config.dir),
            instance_dir=str(launch.instance_dir),
            index=launch.index,
            host=launch.options.host,
            port=self.port,
            base_path=launch.options.base_path,
            url=self.url,
            pid=leader.pid if leader else 0,
            start_time=leader.start_time if leader else 0,
            boot_id=boot_id(),
            cookie=self._cookie,
            command_file=str(self.command_file),
            log_file=str(self.log_file),
            log_start=self._leaders.log_start,
            started_at=self._started_at,
            ended_at=format_utc(utc_now()) if is_over else None,
            resume_path=str(launch.resume_path) if launch.resume_path else None,
            is_detached=launch.options.detach,
            orchestrator_pid=self._orchestrator_pid,
            control=self._control,
            restarts=self.restarts,
            exit=self.exit,
            halt=self.halt,
            run_id=self.run_id,
        )
        with self._record_lock:
            self._write(record)

    def rename_run(self, run_id: str) -> None:
        """Give its run another id, in its record too. Blocks.

        A record that is another start's by now stays as it is.

        Raises:
            OSError: The record cannot be written.
        """
        with self._record_lock:
            self.run_id = run_id
            if self._written is not None:
                self._write(self._written)

    def _write(self, record: InstanceRecord) -> None:
        """Write a record with the id that the run has now; the caller holds the lock."""
        self._written = attrs.evolve(record, run_id=self.run_id)
        publish = write_record if self._claim is not None else replace_record
        publish(self.launch.run_dir, self._written)


def new_run_id(name: str, begun_at: datetime) -> str:
    """Return the id of a run that an instance of that name begins."""
    return f"{name}-{begun_at:%Y%m%dT%H%M%S%fZ}"
