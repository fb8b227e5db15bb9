"""Acquires and releases the resources of an instance: a name, then a port, then processes.

The stages are values, see ``running``: Named after its name is claimed, Running when processes may
exist. Each resource is recorded when it is acquired, so :meth:`Instance.end` and
:meth:`Instance.release` can be called at any point of a start and release exactly the acquired
resources. The supervisor decides when to act, and how to handle failures.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from clawblox import protocol
from clawblox.errors import UsageError
from clawblox.instance.environment import (
    child_environment,
    fill_command,
    render_command_file,
    world_command,
    world_environment,
)
from clawblox.instance.health import require_own_listener
from clawblox.instance.launch import Launch, new_run_id
from clawblox.instance.lifecycle import InstanceEnd
from clawblox.instance.running import Named, Running, WorldProcesses
from clawblox.protocol import ScriptErrors, TickRate, WorldEnvironment
from clawblox.results import ProcessExit
from clawblox.rundir.claims import Claim, claim_name
from clawblox.rundir.records import InstanceRecord, RecordState, replace_record, write_records
from clawblox.rundir.saves import prepare_rows
from clawblox.supervision.tree import Grace, ProcessTree, TreeEnd
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.ports import (
    PortLease,
    connect_host,
    join_address,
    open_listener,
    take_free_port,
    wait_for_port,
)
from clawblox.system.process import Process, adopt
from clawblox.system.process_tree import boot_id, read_variables
from clawblox.telemetry.log_index import LogIndex, begin_index
from clawblox.telemetry.logs import last_lines


class Instance:
    """The resources of an instance.

    Args:
        launch: The plan of its start.
        record: The record of a running instance to attach to; None to start a new instance.
        names: The instances of its world object by name, shared by all instances; this instance is
            added when it gets its name. Names are unique across run directories.
        control: Name of its orchestrator's control socket; '' for none.
        register: Called before its processes are started; registers it in the manifest, and returns
            further environment variables for its world. Blocks.
        run_id: Id of its run; '' to create one from its name and the time.

    Attributes:
        launch: The plan of its latest start.
        record: The record that it was attached by; None if it was started.
        past: Its history under earlier orchestrators; None if its run started here.
        name: Its name, once claimed.
        port: Its port, once leased; 0 before.
        restarts: Number of its restarts.
        run_id: Id of its run, once it has a name.
        started_at: UTC time of the start of its run.
        exit: Exit of the world's process; None while it is running.
        halt: Reason of the world's halt, or None.
        rate: The tick rate that the world last reported, or None.
        script_errors: The script errors that the world last reported, or None.
        keeps_port: Whether it must get a specific port, the current or the requested port.
        is_planned: Whether its record lists its start as planned.
        log_index: The index of its log; None before its first process is started.
    """

    def __init__(
        self,
        launch: Launch,
        record: InstanceRecord | None = None,
        *,
        names: dict[str, Instance],
        control: str = "",
        register: Callable[[], Mapping[str, str]] = dict,
        run_id: str = "",
    ) -> None:
        self.launch = launch
        self.record = record
        self.name = launch.options.name or ""
        self.past = past = launch.past
        self.port = 0
        self.restarts = past.number if past else 0
        self.run_id = past.run_id if past else run_id
        self.exit: ProcessExit | None = None
        self.halt: str | None = None
        self.rate: TickRate | None = None
        self.script_errors: ScriptErrors | None = None
        self.keeps_port = launch.options.port is not None
        self.is_planned = False
        self.log_index: LogIndex | None = None
        self._names = names
        self._control = control
        self._register = register
        self._named: Named | None = None
        self._is_claimed = False
        self._lease: PortLease | None = None
        self._running: Running | None = None
        self._cookie = secrets.token_hex(16) if record is None else record.cookie
        self._begun_at = utc_now()
        self.started_at = past.started_at if past else format_utc(self._begun_at)
        self._wanted_port = past.port if past else 0
        self._orchestrator_pid = os.getpid()
        self._written: InstanceRecord | None = None
        self._record_lock = threading.Lock()

    # -- its facts ----------------------------------------------------------------------

    @property
    def running(self) -> Running:
        """The stage in which it has processes.

        Raises:
            UsageError: The instance is not running.
        """
        if self._running is None:
            raise UsageError(f"instance {self.name!r} is not running")
        return self._running

    @property
    def url(self) -> str:
        """Its local address, including the base path, without a trailing slash."""
        address = join_address(connect_host(self.launch.options.host), self.port)
        return f"http://{address}{self.launch.options.base_path}"

    @property
    def sidecars(self) -> dict[str, Process]:
        """Its sidecars by name."""
        return self._running.processes.sidecars if self._running else {}

    @property
    def sidecar_logs(self) -> list[Path]:
        """The logs of its sidecars; empty before they are started."""
        return self._running.processes.log_files[1:] if self._running else []

    @property
    def is_recorded(self) -> bool:
        """True if it has a record on disk."""
        return self._is_claimed and self.port > 0

    @property
    def is_over(self) -> bool:
        """True if the world's process has ended."""
        return self._running is None or self._running.is_over

    def error_fields(self) -> dict[str, Any]:
        """Return the fields of an error about this instance. Blocks."""
        named, running = self._named, self._running
        log_lines: tuple[str, ...] = ()
        if running is not None:
            start, tokens = running.processes.log_start, self._secrets()
            log_lines = last_lines(running.named.log_file, start=start, secrets=tokens)
        return {
            "instance": self.name or None,
            "world_dir": self.launch.config.dir,
            "command_file": named.command_file if named else self.launch.options.command_file,
            "log_file": named.log_file if named else self.launch.options.log_file,
            "url": self.url if self.port else None,
            "port": self.port or self.launch.options.port,
            "exit": self.exit,
            "log_lines": log_lines,
        }

    def _secrets(self) -> tuple[str, ...]:
        return tuple(self._running.environment.secrets().values()) if self._running else ()

    def masked(self, text: str) -> str:
        """Return ``text`` with its tokens masked."""
        for secret in self._secrets():
            text = text.replace(secret, protocol.MASK)
        return text

    # -- acquiring ----------------------------------------------------------------------

    def take_name(self) -> Named:
        """Claim its name in the run directory. Blocks.

        Raises:
            UsageError: Another instance of this world object has the name.
            RunLockedError: Another orchestrator has claimed it.
            OSError: The run directory cannot be written.
        """
        name = self.launch.options.name
        while self._named is None:
            taken = tuple(self._names)
            if name in taken:
                raise UsageError(
                    f"this world already has an instance {name!r}", hint="stop it first"
                )
            self._note_claim(claim_name(self.launch.run_dir, name, taken=taken))
        self.run_id = self.run_id or new_run_id(self.name, self._begun_at)
        return self._named

    def _note_claim(self, claim: Claim) -> None:
        # Atomic, because starts in other run directories may take the same name.
        if self._names.setdefault(claim.name, self) is not self:
            claim.release()
            return
        self.name, self._is_claimed = claim.name, True
        self._named = Named(claim, *self.launch.name_files(claim.name))

    async def wait_for_port(self) -> None:
        """Lease the requested port, waiting up to ``port_wait`` seconds.

        Raises:
            PortBusy: The port is still in use.
            OSError: The host is not an address of this machine.

        Cancellation: the port is not leased.
        """
        options = self.launch.options
        if options.port is not None:
            self._lease = await wait_for_port(options.host, options.port, options.port_wait)
            self.port = self._lease.port

    def bring_up(self) -> int:
        """Acquire its name and port, write its files, start its processes. Blocks.

        Returns:
            The pidfd of the world's process; -1 if it has already ended.

        Raises:
            UsageError: Another instance of this world object has the name.
            RunLockedError: Another orchestrator has claimed it.
            NoFreePort: No port is free.
            PortBusy: Another process took the leased port that the world inherits.
            CannotExecute: A command cannot be executed.
            OSError: A file cannot be written, or the rows of the snapshot have changed.
            ManifestError: The instance cannot be registered.
            TmuxError: A tmux window cannot be opened.
        """
        launch, config = self.launch, self.launch.config
        named = self.take_name()
        if self._lease is None:
            self._lease = take_free_port(launch.options.host, first=self._wanted_port)
            self.port, self._wanted_port = self._lease.port, 0
        environment = world_environment(launch, self.name, self.port)
        prepare_rows(environment.datastore_path, launch.resume_path)
        make_private_dir(named.command_file.parent)
        make_private_dir(named.log_file.parent)
        if launch.record_dir is not None:
            make_private_dir(launch.record_dir)
        script = render_command_file(launch, environment).encode()
        publish_bytes(named.command_file, script, mode=0o700, durable=False)
        further = self._register()
        self._running = running = self._begin_running(named, environment)
        if self.log_index is None:
            self.log_index = begin_index(named.log_file, launch.how_back)
        processes, tree = running.processes, running.processes.tree
        tree.watch()  # before they exist
        if not self.is_planned:
            # If this process and the guard are killed now, a resume finds the world through its
            # record.
            self.write_record("starting")
        env = child_environment(launch, environment, self._cookie, self._lease.token)
        hands_over = launch.hands_listener_over
        inherited = open_listener(launch.options.host, self.port) if hands_over else nullcontext()
        with inherited as listener:
            processes.start(
                world_command(launch), {**env, **further}, named.log_file, listener=listener
            )
        tree.watch()
        self.write_record("starting")
        for sidecar in config.sidecars:
            log_file = named.log_file.with_name(f"{named.log_file.stem}-{sidecar.name}.log")
            processes.start(fill_command(sidecar.command), env, log_file, sidecar=sidecar.name)
            tree.watch()
        return processes.world.pidfd if processes.world is not None else -1

    def _begin_running(self, named: Named, environment: WorldEnvironment) -> Running:
        return Running(
            launch=self.launch,
            named=named,
            port=self.port,
            environment=environment,
            processes=WorldProcesses(
                ProcessTree(self._cookie), self.launch.config.dir, self.launch.options.tmux_session
            ),
        )

    def settle(self) -> None:
        """Check that the instance itself answers, and record its readiness. Blocks.

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
        """Attach to the running instance of a record, and claim its name. Blocks.

        Raises:
            RunLockedError: Another orchestrator has claimed it.
            ProcessLookupError: The instance has ended.
            OSError: The run directory cannot be written.
        """
        self._note_claim(claim_name(self.launch.run_dir, record.name, may_be_alive=True))
        world = adopt(record.pid)
        self.port = self._wanted_port = record.port
        # The tokens are not on disk, only in the environment of the world.
        variables = read_variables(record.pid)
        environment = world_environment(self.launch, self.name, self.port, variables)
        running = self._begin_running(self.take_name(), environment)
        running.processes.adopt_world(world, Path(record.log_file), record.log_start)
        self.log_index = LogIndex(Path(record.log_file))
        self._running = running
        self.started_at, self.restarts = record.started_at, record.restarts
        self.run_id = record.run_id
        self.write_record("ready")  # so other processes send requests to this process from now on

    # -- watching and releasing ---------------------------------------------------------

    async def wait_exit(self) -> ProcessExit | None:
        """Wait until the world's process has ended; return None if there never was one.

        Cancellation: has no effect.
        """
        if self._running is not None:
            self.exit = await self._running.processes.wait_exit() or self.exit
        return self.exit

    async def end(self, grace: Grace) -> TreeEnd:
        """End all of its processes; see :meth:`ProcessTree.end`.

        Args:
            grace: Time between TERM and KILL.

        Cancellation: leaves the end incomplete; call it shielded.
        """
        if self._running is None:
            return TreeEnd("already_exited")
        end = await self._running.processes.tree.end(grace)
        if end.failure is None:
            await self.wait_exit()
        return end

    def kill(self) -> None:
        """Kill the processes started by clawblox, without descriptors; the guard ends the rest."""
        if self._running is not None:
            self._running.processes.tree.kill()

    def begin_anew(self) -> None:
        """Prepare for another :meth:`bring_up` with the same name, after :meth:`end`. Blocks."""
        self.detach()
        if self._running is not None:
            self._running.processes.release()
        self._running = None
        self.halt = self.rate = self.script_errors = None
        if not self.keeps_port:
            self._release_port()

    def detach(self) -> None:
        """Remove it from the guard, because it has ended or outlives this orchestrator."""
        if self._running is not None:
            self._running.processes.tree.forget()

    def release(self) -> None:
        """Release all resources except the processes. Idempotent. Blocks."""
        with ExitStack() as releases:  # release each, even if others fail
            releases.callback(self._release_name)
            releases.callback(self._release_port)
            if self._running is not None:
                releases.callback(self._running.processes.release)
                if not self._running.processes.tree.may_have_survivors:
                    self.detach()

    def _release_name(self) -> None:
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

    def write_record(self, state: RecordState, end: InstanceEnd | None = None) -> None:
        """Write its record; ``end`` is None while it is running. Blocks.

        Raises:
            OSError: The record cannot be written; the old record is unchanged.
        """
        with self._record_lock:
            self._write(self.make_record(state, end))

    def make_record(self, state: RecordState, end: InstanceEnd | None = None) -> InstanceRecord:
        """Return its record for :meth:`write_record`."""
        launch, begun, running = self.launch, self.launch.begun, self._running
        world = running.processes.world if running else None
        command_file, log_file = launch.name_files(self.name)
        return InstanceRecord(
            name=self.name,
            state=state,
            world=launch.config.name,
            world_dir=str(launch.config.dir),
            instance_dir=str(launch.instance_dir),
            index=launch.index,
            host=launch.options.host,
            port=self.port or self._wanted_port,
            base_path=launch.options.base_path,
            url=self.url if self.port else "",
            pid=world.pid if world else 0,
            start_time=world.start_time if world else 0,
            boot_id=boot_id(),
            cookie=self._cookie,
            command_file=str(command_file),
            log_file=str(log_file),
            log_start=running.processes.log_start if running else 0,
            rate=self.rate,
            script_errors=self.script_errors,
            started_at=self.started_at,
            ended_at=None if state in ("planned", "starting", "ready") else format_utc(utc_now()),
            resume_path=str(launch.resume_path) if launch.resume_path else None,
            is_detached=launch.options.detach,
            orchestrator_pid=self._orchestrator_pid,
            control=self._control,
            restarts=self.restarts,
            exit=self.exit,
            halt=self.halt,
            run_id=self.run_id,
            options=begun.recorded_options,
            first_resume_path=str(begun.resume_path) if begun.resume_path else None,
            first_sha256=begun.parent_sha256,
            stopped_on_purpose=end is not None and end.is_on_purpose,
            has_finished=end is not None and end.has_finished,
            datastore_path=str(rows) if (rows := launch.own_rows(self.name)) else None,
        )

    def rename_run(self, run_id: str) -> None:
        """Change the run id, also in its record. Blocks.

        A record that now belongs to another start is not changed.

        Raises:
            OSError: The record cannot be written.
        """
        with self._record_lock:
            self.run_id = run_id
            if self._written is not None:
                self._write(msgspec.structs.replace(self._written, run_id=run_id))

    @contextmanager
    def held_record(self) -> Iterator[tuple[InstanceRecord, Claim] | None]:
        """Lock its record; yield it with its claim, or None without a record. Blocks."""
        with self._record_lock:
            if self._is_claimed and self._named is not None and self._written is not None:
                yield self._written, self._named.claim
            else:
                yield None

    def _write(self, record: InstanceRecord) -> None:
        """Write a record; the caller must hold the lock."""
        self._written = record
        (write_records if self._is_claimed else replace_record)(self.launch.run_dir, record)
