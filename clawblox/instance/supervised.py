"""What the supervisor asks of an instance, wherever its processes are.

``local`` has the instance whose processes run on this machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from clawblox.instance.ends import End
from clawblox.instance.health import ProbePacer
from clawblox.instance.launch import Launch, Past
from clawblox.instance.lifecycle import State
from clawblox.protocol import HealthReport, ScriptErrors, TickRate
from clawblox.results import EventKind, ProcessExit, StartedWorld
from clawblox.rundir.records import InstanceRecord, RecordState
from clawblox.snapshot.capture import SnapshotSource
from clawblox.supervision.tree import Grace, TreeEnd
from clawblox.telemetry.log_index import LogIndex

FAILED_START_GRACE_S: Final = 1.0
"""Seconds between TERM and KILL for an instance whose start failed or was given up."""


class Tell(Protocol):
    """Sends the events of one instance."""

    def __call__(self, kind: EventKind, **detail: Any) -> None:
        """Send an event of ``kind``."""


class SupervisedInstance(Protocol):
    """One instance, as its supervisor drives it: bring up, watch, end, capture, record.

    Attributes:
        name: Its name, once claimed.
        port: Its port, once leased; 0 before.
        halt: Why the world has halted; None if it has not.
        rate: How fast the world runs, as it last reported; None if it did not.
        script_errors: The errors of its scripts, as it last reported; None if there were none.
    """

    name: str
    port: int
    halt: str | None
    rate: TickRate | None
    script_errors: ScriptErrors | None

    # -- facts --------------------------------------------------------------------------

    @property
    def launch(self) -> Launch:
        """The plan of its latest start."""

    @property
    def record(self) -> InstanceRecord | None:
        """The record of the running instance to attach to; None if it is to be started."""

    @property
    def past(self) -> Past | None:
        """Its history under earlier orchestrators; None if its run began here."""

    @property
    def run_id(self) -> str:
        """Id of its run, once it has a name."""

    @property
    def restarts(self) -> int:
        """Number of its restarts."""

    @property
    def exit(self) -> ProcessExit | None:
        """How the world's process ended; None while it runs."""

    @property
    def is_over(self) -> bool:
        """Whether the world's process has ended."""

    @property
    def is_planned(self) -> bool:
        """Whether its record lists its start as planned."""

    @property
    def is_recorded(self) -> bool:
        """Whether it has a record on disk."""

    @property
    def log_index(self) -> LogIndex | None:
        """The index of its log; None before its first process is started."""

    def error_fields(self) -> dict[str, Any]:
        """Return the fields of an error about it; see :meth:`WorldError.locate`. Blocks."""

    def masked(self, text: str) -> str:
        """Return ``text`` with its tokens masked."""

    # -- bring up -----------------------------------------------------------------------

    async def start_up(self, move: Callable[[State], None], tell: Tell) -> None:
        """Start it and return when it is ready; it keeps the resources that it already has.

        Args:
            move: Called with each new state.
            tell: Sends its events.

        Raises:
            WorldStartError: The world ended or halted, was not ready in time, or another process
                answers on its port.
            Exception: Whatever else failed; :func:`failures.start_failure` makes it public.

        Cancellation: leaves it as it is; :meth:`end` and :meth:`release` undo the start.
        """

    def attach(self, record: InstanceRecord) -> None:
        """Attach to the running instance of ``record``. Blocks.

        Raises:
            RunLockedError: Another orchestrator has claimed it.
            ProcessLookupError: It has ended.
            OSError: The run directory cannot be written.
        """

    def prepare_restart(self, launch: Launch) -> None:
        """Prepare for another :meth:`start_up`, after :meth:`end`: same name, same port. Blocks.

        Args:
            launch: The plan of that start.
        """

    def started_world(self, ready_s: float) -> StartedWorld:
        """Return its public facts; ``ready_s`` is the time from the start to readiness.

        Raises:
            UsageError: It does not run.
        """

    # -- watch --------------------------------------------------------------------------

    async def wait_exit(self) -> ProcessExit | None:
        """Wait until the world's process has ended; return None if there never was one.

        Cancellation: has no effect.
        """

    async def watch_sidecars(self, on_exit: Callable[[str, ProcessExit], None]) -> None:
        """Report the exits of the sidecars until it is cancelled.

        Args:
            on_exit: Called with the name and exit of each that ends.

        Cancellation: the sidecars continue.
        """

    async def wait_unresponsive(
        self, pacer: ProbePacer, on_report: Callable[[HealthReport], Awaitable[None]]
    ) -> tuple[str, str | None]:
        """Probe its liveness until it halts or stops responding; needs ``launch.liveness``.

        Args:
            pacer: Decides when a probe is due.
            on_report: Called with the report of each good answer.

        Returns:
            The result of the last probe, and why it halted; None if it only does not respond.

        Cancellation: leaves no connection open.
        """

    async def wait_listener_gone(self) -> str:
        """Wait until nothing of it listens on its port any more; return that, in words.

        Cancellation: has no effect.
        """

    async def ask_report(self, seconds: float) -> HealthReport | None:
        """Ask once for its report; None if it is not well, or does not answer in ``seconds``.

        A world that has halted reports that.

        Cancellation: leaves no connection open.
        """

    # -- end ----------------------------------------------------------------------------

    async def end(self, grace: Grace) -> TreeEnd:
        """End all of its processes; see :meth:`ProcessTree.end`.

        Cancellation: stops climbing; call it shielded.
        """

    def kill(self) -> None:
        """Kill its processes without waiting for them."""

    def release(self) -> None:
        """Release everything besides the processes. Idempotent. Blocks."""

    # -- capture and record -------------------------------------------------------------

    def snapshot_source(self) -> SnapshotSource:
        """Return where to fetch snapshots of it.

        Raises:
            UsageError: It does not run.
        """

    def write_record(self, state: RecordState, end: End | None = None) -> None:
        """Write its record; ``end`` is None while it lives. Blocks.

        Raises:
            OSError: It cannot be written; the old record is unchanged.
        """
