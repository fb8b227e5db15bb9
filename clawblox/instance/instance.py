"""What one instance holds: a name, then a port, then processes; each taken and given back.

The stages are values, see ``stages``: Named when its name is claimed, Running once there may be
processes. Each resource is noted the moment it is taken, so that :meth:`Instance.end` and
:meth:`Instance.release` can be called at any point of a start and give back exactly what there is.
When to do what, and what a failure means, is the supervisor's part.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from clawblox import protocol
from clawblox.errors import UsageError
from clawblox.instance.environment import (
    child_environment,
    fill_command,
    render_command_file,
    world_environment,
)
from clawblox.instance.health import Steps, require_own_listener, steps_until_ready
from clawblox.instance.launch import Launch
from clawblox.instance.processes import WorldProcesses
from clawblox.instance.stages import Named, Running
from clawblox.protocol import WorldEnvironment
from clawblox.results import WorldExit
from clawblox.rundir.claims import Claim, claim_name
from clawblox.rundir.manifest import manifest_path
from clawblox.rundir.records import InstanceRecord, RecordState, replace_record, write_record
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.guard import guard
from clawblox.system.ports import Lease, connect_host, open_listener, take_free_port, wait_for_port
from clawblox.system.process import Grace, Process, TreeEnd, adopt, end_tree
from clawblox.system.process_tree import boot_id, read_variables
from clawblox.telemetry.logs import last_lines

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
        self.restarts = 0
        self.run_id = run_id
        self.exit: WorldExit | None = None
        self.halt: str | None = None
        self._names = names
        self._control = control
        self._register = register
        self._named: Named | None = None
        self._is_claimed = False
        self._lease: Lease | None = None
        self._running: Running | None = None
        self._may_have_survivors = False
        self._begun_at = utc_now()
        self._started_at = format_utc(self._begun_at)
        self._orchestrator_pid = os.getpid()
        self._written: InstanceRecord | None = None
        self._record_lock = threading.Lock()

    # -- what is known of it ------------------------------------------------------------

    @property
    def running(self) -> Running:
        """The stage in which it has processes.

        Raises:
            UsageError: It has none.
        """
        if self._running is None:
            raise UsageError(f"instance {self.name!r} does not run")
        return self._running

    @property
    def url(self) -> str:
        """Its local address, base path included, without a trailing slash."""
        host = connect_host(self.launch.options.host)
        literal = f"[{host}]" if ":" in host else host
        return f"http://{literal}:{self.port}{self.launch.options.base_path}"

    @property
    def sidecars(self) -> dict[str, Process]:
        """Its sidecars by name."""
        return self._running.processes.sidecars if self._running else {}

    @property
    def log_files(self) -> list[Path]:
        """Its output and those of its sidecars, once they are started."""
        return self._running.processes.log_files if self._running else []

    @property
    def has_port(self) -> bool:
        """Whether a port is leased for it."""
        return self._lease is not None

    @property
    def is_recorded(self) -> bool:
        """Whether it has a record on disk."""
        return self._is_claimed and self.port > 0

    @property
    def is_over(self) -> bool:
        """Whether the world's process has ended."""
        return self._running is None or self._running.is_over

    def error_fields(self) -> dict[str, Any]:
        """Return what an error about this instance says of it. Blocks."""
        named = self._named
        return {
            "instance": self.name or None,
            "world_dir": self.launch.config.dir,
            "command_file": named.command_file if named else self.launch.options.command_file,
            "log_file": named.log_file if named else self.launch.options.log_file,
            "url": self.url if self.port else None,
            "port": self.port or self.launch.options.port,
            "exit": self.exit,
            "log_lines": self._last_lines(),
        }

    def _last_lines(self) -> tuple[str, ...]:
        running = self._running
        if running is None:
            return ()
        start = running.processes.log_start
        return last_lines(running.named.log_file, start=start, secrets=self._secrets())

    def _secrets(self) -> tuple[str, ...]:
        return tuple(self._running.environment.secrets().values()) if self._running else ()

    def masked(self, text: str) -> str:
        """Return ``text`` with its tokens masked."""
        for secret in self._secrets():
            text = text.replace(secret, protocol.MASK)
        return text

    # -- taking -------------------------------------------------------------------------

    def take_name(self) -> Named:
        """Claim its name in the run directory. Blocks.

        Raises:
            UsageError: Another instance of this world object has the name.
            RunLockedError: Another orchestrator holds it.
            OSError: The run directory cannot be written.
        """
        name = self.launch.options.name
        while self._named is None:
            taken = tuple(self._names)
            if name in taken:
                raise UsageError(
                    f"this world has an instance {name!r} already", hint="stop it first"
                )
            self._note_claim(claim_name(self.launch.run_dir, name, taken=taken))
        self.run_id = self.run_id or new_run_id(self.name, self._begun_at)
        return self._named

    def _note_claim(self, claim: Claim) -> None:
        # In one step: starts in other run directories may be about to take the same name.
        if self._names.setdefault(claim.name, self) is not self:
            claim.release()
            return
        self.name, self._is_claimed = claim.name, True
        options, files = self.launch.options, self.launch.files_dir
        self._named = Named(
            claim,
            options.command_file or files / "runtime" / f"{claim.name}.sh",
            options.log_file or files / "logs" / f"{claim.name}.log",
        )

    async def wait_for_port(self) -> None:
        """Lease the port that the caller gave, when it is free.

        Raises:
            PortBusy: It is in use.
            OSError: The host is not an address of this machine.

        Cancellation: nothing is leased.
        """
        options = self.launch.options
        if options.port is not None:
            self._lease = await wait_for_port(options.host, options.port, options.port_wait)
            self.port = self._lease.port

    def bring_up(self) -> int:
        """Take what is not taken yet, write its files, start its processes. Blocks.

        Returns:
            The pidfd of the world's process; -1 when that has ended already.

        Raises:
            UsageError: Another instance of this world object has the name.
            RunLockedError: Another orchestrator holds it.
            NoFreePort: No port is free.
            PortBusy: A stranger took the leased port that the world inherits.
            CannotExecute: One of the commands.
            OSError: A file cannot be written.
            ManifestError: It cannot be registered.
            TmuxError: A tmux window cannot be opened.
        """
        launch, config = self.launch, self.launch.config
        named = self.take_name()
        if self._lease is None:
            self._lease = take_free_port(launch.options.host)
            self.port = self._lease.port
        environment = world_environment(launch, self.port, manifest_path(launch.instance_dir))
        make_private_dir(named.command_file.parent)
        make_private_dir(named.log_file.parent)
        if launch.record_dir is not None:
            make_private_dir(launch.record_dir)
        script = render_command_file(launch, environment).encode()
        publish_bytes(named.command_file, script, mode=0o700, durable=False)
        self._register()
        self._running = running = self._begin_running(named, environment)
        guard.watch(running.mark)  # before they exist
        self._may_have_survivors = True
        processes = running.processes
        env = child_environment(launch, environment, running.cookie)
        listener = None
        if launch.hands_listener_over:
            listener = open_listener(launch.options.host, self.port)
        try:
            processes.start_world(fill_command(config.start_command), env, named.log_file, listener)
        finally:
            if listener is not None:
                listener.close()
        guard.watch(running.mark)
        self.write_record("starting")
        for sidecar in config.sidecars:
            processes.start_sidecar(sidecar.name, fill_command(sidecar.command), env)
            guard.watch(running.mark)
        return processes.world.pidfd if processes.world is not None else -1

    def _begin_running(
        self, named: Named, environment: WorldEnvironment, cookie: str = ""
    ) -> Running:
        return Running(
            launch=self.launch,
            name=self.name,
            named=named,
            port=self.port,
            url=self.url,
            cookie=cookie or secrets.token_hex(16),
            environment=environment,
            processes=WorldProcesses(self.launch.config.dir, self.launch.tmux_session),
        )

    def watch_until_ready(self, expected_s: float) -> Steps:
        """Return the steps that find when it is ready; see :func:`health.steps_until_ready`."""
        return steps_until_ready(self.running.probe, expected_s)

    def settle(self) -> None:
        """See that it is the instance itself that answers, and note that it is ready. Blocks.

        Raises:
            StrangerAnswers: Another process serves its port.
            OSError: The record cannot be written.
        """
        require_own_listener(self.running.probe, self.running.mark)
        self.exit = None
        self.write_record("ready")
        if self.launch.options.detach:
            self.detach()

    def attach(self, record: InstanceRecord) -> None:
        """Take over the running instance of a record, its name included. Blocks.

        Raises:
            RunLockedError: Another orchestrator holds it.
            ProcessLookupError: It has ended meanwhile.
        """
        self._note_claim(claim_name(self.launch.run_dir, record.name, may_be_alive=True))
        world = adopt(record.pid)
        self.port = record.port
        environment = world_environment(
            self.launch, self.port, manifest_path(self.launch.instance_dir)
        )
        # The token is on no disk; the world's own environment is where it is.
        known = read_variables(record.pid)
        environment = attrs.evolve(
            environment,
            operator_token=known.get(protocol.OPERATOR_TOKEN_ENV, environment.operator_token),
            spectator_token=known.get(protocol.SPECTATOR_TOKEN_ENV, environment.spectator_token),
        )
        running = self._begin_running(self.take_name(), environment, record.cookie)
        running.processes.adopt_world(world, Path(record.log_file), record.log_start)
        self._running = running
        self._started_at, self.restarts = record.started_at, record.restarts
        self._written, self.run_id = record, record.run_id

    # -- watching and giving back -------------------------------------------------------

    async def wait_exit(self) -> WorldExit | None:
        """Wait until the world's process has ended; None when there never was one.

        Cancellation: changes nothing.
        """
        if self._running is not None:
            self.exit = await self._running.processes.wait_exit() or self.exit
        return self.exit

    async def end(self, grace: Grace) -> TreeEnd:
        """End every process of it; call it shielded.

        Args:
            grace: Time between TERM and KILL.

        Raises:
            OSError: Not all of them can be looked at, for want of descriptors. Those that it
                started are killed; the guard keeps its watch over the others.
        """
        running = self._running
        if running is None:
            return TreeEnd("already_exited")
        try:
            end = await end_tree(running.mark, running.processes.world, grace)
        except OSError:
            running.processes.kill()
            raise
        self._may_have_survivors = bool(end.survivors)
        return end

    def begin_anew(self, *, keep_port: bool) -> None:
        """Be as before :meth:`bring_up`, after :meth:`end`, with the name that is claimed. Blocks.

        Args:
            keep_port: Whether the port stays leased, for those who know its address.
        """
        self.detach()
        if self._running is not None:
            self._running.processes.release()
        self._running = None
        self.halt = None
        if not keep_port:
            self._release_port()

    def detach(self) -> None:
        """Take it out of the guard's care: it outlives this orchestrator, or has ended."""
        if self._running is not None:
            guard.forget(self._running.mark)

    def release(self) -> None:
        """Give back what is held beside the processes; a second call does nothing. Blocks."""
        if not self._may_have_survivors:
            self.detach()
        if self._running is not None:
            self._running.processes.release()
        self._release_port()
        with self._record_lock:
            if self._named is not None and self._is_claimed:
                self._named.claim.release()
                self._is_claimed = False
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
        launch, running, named = self.launch, self._running, self._named
        world = running.processes.world if running else None
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
            pid=world.pid if world else 0,
            start_time=world.start_time if world else 0,
            boot_id=boot_id(),
            cookie=running.cookie if running else "",
            command_file=str(named.command_file) if named else "",
            log_file=str(named.log_file) if named else "",
            log_start=running.processes.log_start if running else 0,
            started_at=self._started_at,
            ended_at=format_utc(utc_now()) if state in ("exited", "failed") else None,
            resume_path=str(launch.resume_path) if launch.resume_path else None,
            is_detached=launch.options.detach,
            orchestrator_pid=self._orchestrator_pid,
            control=self._control,
            restarts=self.restarts,
            exit=self.exit,
            halt=self.halt,
            run_id=self.run_id,
            options=launch.recorded_options,
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
        if record.run_id != self.run_id:
            record = attrs.evolve(record, run_id=self.run_id)
        self._written = record
        publish = write_record if self._is_claimed else replace_record
        publish(self.launch.run_dir, self._written)


def new_run_id(name: str, begun_at: datetime) -> str:
    """Return the id of a run that an instance of that name begins."""
    return f"{name}-{begun_at:%Y%m%dT%H%M%S%fZ}"
