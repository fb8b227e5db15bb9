"""Writes the record, manifest and log index of an instance, and restores lost records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import msgspec

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ManifestError
from clawblox.instance.instance import Instance
from clawblox.instance.launch import Launch
from clawblox.instance.lifecycle import InstanceEnd
from clawblox.results import EventKind, Labels, describe_end
from clawblox.rundir.manifest import Update
from clawblox.rundir.manifest_updates import RestartedBy, restart_update, run_update
from clawblox.rundir.paths import file_stamp, records_journal
from clawblox.rundir.records import restore_records
from clawblox.system.clock import format_utc, utc_now
from clawblox.telemetry.log_index import LogIndex
from clawblox.telemetry.log_times import LEFT
from clawblox.telemetry.own_log import OwnLog
from clawblox.telemetry.throttle import Throttle

_LOOK_INTERVAL_S: Final = 1.0
_WRITE_ERRORS: Final = (OSError, ManifestError)

_log = OwnLog(__name__)


class Emit(Protocol):
    """Sends an event of an instance."""

    def __call__(self, kind: EventKind, instance: str, labels: Labels, **detail: Any) -> None:
        """Report ``kind`` of ``instance``."""


class Tell(Protocol):
    """Sends the events of a given instance."""

    def __call__(self, kind: EventKind, **detail: Any) -> None:
        """Send an event of ``kind``."""


class Write(Protocol):
    """Writes an update to a manifest."""

    def __call__(self, update: Update, *, durable: bool = True) -> None:
        """Write ``update``; if ``durable``, it survives a power failure. Blocks.

        Raises:
            ManifestError: The manifest cannot be written.
        """


class InstanceBookkeeping(msgspec.Struct, frozen=True, eq=False):
    """Records the history of an instance. Every method blocks; failures are logged.

    A failed write, even due to a defect in this package, does not end the instance or prevent
    other writes.

    Args:
        instance: The instance.
        write: Writes an update to its manifest.
    """

    _instance: Instance
    _write: Write

    def note_reported(self) -> None:
        """Write the world's reports to the record: its halt, rate and script errors."""
        with self._contained("report of the world not recorded"):
            self._instance.write_record("ready")

    def note_exit(self, is_unresponsive: bool) -> None:  # noqa: FBT001, RUF100
        """Write to the log index that the instance has ended.

        Args:
            is_unresponsive: Whether it was ended because it did not respond.
        """
        reason = describe_end(self._instance.exit, None)
        if self._instance.halt is not None:
            reason = f"it had halted: {self._instance.halt}"
        elif is_unresponsive:
            reason = "it did not respond"
        self._note_end("exited", f"exited: {reason}")

    def note_restart(self, launch: Launch, by: RestartedBy) -> None:
        """Write to the log index that the instance is about to be restarted.

        Args:
            launch: The plan of the restart.
            by: The cause of the restart.
        """
        event = "stopped" if by == "request" else "exited"
        self._note_end(event, f"{event}: {describe_end(self._instance.exit, None)}")
        self._in_log(lambda index: index.note("restarted", f"restarted {launch.source}"))

    def register_restart(self, exit_before: str, launch: Launch, by: RestartedBy) -> None:
        """Write to the manifest that the instance was restarted.

        Args:
            exit_before: Description of its previous exit.
            launch: The plan of the restart.
            by: The cause of the restart.
        """
        with self._contained("restart not registered"):
            update = restart_update(
                number=self._instance.restarts,
                at=format_utc(utc_now()),
                exit=exit_before,
                resume_from=launch.resume_path,
                parent_sha256=launch.parent_sha256,
                run_id=self._instance.run_id,
                by=by,
                seed=launch.options.reseed,
            )
            self._write(update)

    def leave_running(self) -> None:
        """Release a detached instance without ending it."""
        self._in_log(lambda index: index.note(LEFT, ""))
        self._instance.release()

    def record_end(self, end: InstanceEnd, *, was_stopped: bool) -> None:
        """Record the end and release all resources.

        Args:
            end: The end of the instance.
            was_stopped: Whether any process had to be stopped.
        """
        instance, event = self._instance, "stopped" if was_stopped else "exited"
        what = event if end.was_ready or was_stopped else "start failed"
        try:
            self._note_end(event, f"{what}: {describe_end(self._instance.exit, None)}")
            with self._contained("instance record not written"):
                # Without a record, another instance may already have the name.
                if instance.is_recorded or instance.is_planned:
                    instance.write_record(end.state, end)
            with self._contained("manifest not written"):
                # The caller labels the run of a single instance.
                is_labelled_here = instance.launch.index is not None or instance.past is not None
                update = run_update(
                    status=end.run_status if is_labelled_here else None,
                    ended_at=utc_now() if is_labelled_here else None,
                    script_errors=instance.script_errors,
                )
                if instance.is_recorded and update.run:
                    self._write(update, durable=False)
        finally:
            self._instance.release()

    def _note_end(self, event: str, text: str) -> None:
        self._in_log(lambda index: index.note_end(event, text))

    def _in_log(self, note: Callable[[LogIndex], None]) -> None:
        if self._instance.log_index is not None:
            with self._contained("event not logged"):
                note(self._instance.log_index)

    def _contained(self, what: str) -> AbstractContextManager[None]:
        return _log.contain(what, expected=_WRITE_ERRORS, instance=self._instance.name)


async def watch_records(find: Callable[[], Iterable[Instance]]) -> None:
    """Check for lost records once a second, and restore them, until cancelled.

    Args:
        find: Returns the instances with records to keep.

    Cancellation: finishes a running check.
    """
    keeper = _RecordKeeper()
    while True:
        await anyio.sleep(_LOOK_INTERVAL_S)
        with _log.contain("records not checked"):
            if instances := list(find()):
                await run_blocking(keeper.restore_lost, instances)


class _RecordKeeper:
    """Restores lost records from journals that have changed since the last check."""

    def __init__(self) -> None:
        self._stamps: dict[Path, tuple[int, ...]] = {}
        self._failures = Throttle()

    def restore_lost(self, instances: Iterable[Instance]) -> None:
        """Restore the lost records of instances. Blocks."""
        groups: dict[Path, list[Instance]] = {}
        for instance in dict.fromkeys(instances):  # lock each only once
            groups.setdefault(instance.launch.run_dir, []).append(instance)
        for run_dir, members in groups.items():
            stamp = file_stamp(records_journal(run_dir))
            # Do not recreate a run directory that was moved or removed.
            if (stamp is None or stamp != self._stamps.get(run_dir)) and run_dir.is_dir():
                self._restore(run_dir, members, stamp)

    def _restore(
        self, run_dir: Path, instances: Iterable[Instance], stamp: tuple[int, ...] | None
    ) -> None:
        try:
            lost = _restore_all(run_dir, instances)
        except OSError as error:
            if times := self._failures.count():
                where, why = str(run_dir), str(error)
                _log.warning("lost records not restored", run_dir=where, error=why, times=times)
            return
        if lost:
            _log.warning("lost records restored", run_dir=str(run_dir), instances=lost)
        elif stamp is not None:  # taken before the check, so a later loss counts as a change
            self._stamps[run_dir] = stamp


def _restore_all(run_dir: Path, instances: Iterable[Instance]) -> list[str]:
    """Restore lost records in a single write, so readers never see only some."""
    with ExitStack() as holding:
        held = [holding.enter_context(instance.held_record()) for instance in instances]
        kept = [record_and_claim for record_and_claim in held if record_and_claim is not None]
        lost = restore_records(run_dir, [record for record, _ in kept])
        for _, claim in kept if lost else ():
            claim.renew()  # its lock file may be missing too
    return lost
