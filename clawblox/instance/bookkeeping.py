"""What is told of one instance: in its record, its manifest, the index of its log, and events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from clawblox.errors import ManifestError
from clawblox.instance.ends import End
from clawblox.instance.instance import Instance
from clawblox.instance.launch import Launch
from clawblox.results import EventKind, Labels, WorldExit
from clawblox.rundir.manifest import Update
from clawblox.rundir.manifest_updates import RestartedBy, restart_update, run_update
from clawblox.system.clock import format_utc, utc_now
from clawblox.telemetry.own_log import OwnLog

__all__ = ["Bookkeeping", "Emit", "Write", "rename_runs"]

_log = OwnLog(__name__)


class Emit(Protocol):
    """Takes what happened to an instance."""

    def __call__(
        self,
        kind: EventKind,
        instance: str,
        labels: Labels,
        **detail: Any,  # noqa: ANN401
    ) -> None:
        """Report ``kind`` of ``instance``."""


class Write(Protocol):
    """Writes an update to a manifest."""

    def __call__(self, update: Update, *, durable: bool = True) -> None:
        """Write ``update``; a ``durable`` one survives a power failure. Blocks.

        Raises:
            ManifestError: The manifest cannot be written.
        """


class Bookkeeping:
    """Writes what happens to one instance. Every method blocks; failures are logged.

    Args:
        instance: The instance.
        write: Writes an update to its manifest.
    """

    def __init__(self, instance: Instance, write: Write) -> None:
        self._instance = instance
        self._write = write

    def note_exit(self, *, is_unresponsive: bool) -> None:
        """Note in the index of the log that the instance died.

        Args:
            is_unresponsive: Whether it was ended because it did not respond.
        """
        reason = _brief(self._instance.exit)
        if self._instance.halt is not None:
            reason = f"it had halted: {self._instance.halt}"
        elif is_unresponsive:
            reason = "it did not respond"
        self._note_end("exited", f"exited: {reason}")

    def note_restart(self, launch: Launch, by: RestartedBy) -> None:
        """Note in the index of the log that the instance is about to be started again.

        Args:
            launch: How it is started.
            by: Who restarts it.
        """
        event = "stopped" if by == "request" else "exited"
        self._note_end(event, f"{event}: {_brief(self._instance.exit)}")
        if self._instance.log_index is not None:
            self._instance.log_index.note("restarted", f"restarted {launch.source}")

    def register_restart(self, exit_before: str, launch: Launch, by: RestartedBy) -> None:
        """Register in the manifest that the instance was brought back.

        Args:
            exit_before: How it had ended, in words.
            launch: How it was started.
            by: Who restarted it.
        """
        update = restart_update(
            number=self._instance.restarts,
            at=format_utc(utc_now()),
            exit=exit_before,
            resume_from=launch.resume_path,
            parent_sha256=launch.parent_sha256,
            run_id=self._instance.run_id,
            by=by,
        )
        self._write_update(update)

    def leave_running(self) -> None:
        """Release a detached instance, which goes on."""
        if self._instance.log_index is not None:
            self._instance.log_index.leave()
        self._instance.release()

    def put_away(self, end: End, *, was_stopped: bool) -> None:
        """Record the end and release everything.

        Args:
            end: How the instance ended.
            was_stopped: Whether any of it had to be stopped.
        """
        event = "stopped" if was_stopped else "exited"
        what = event if end.was_ready or was_stopped else "start failed"
        self._note_end(event, f"{what}: {_brief(self._instance.exit)}")
        try:
            self._record_end(end)
        except OSError as error:
            _log.warning("instance record not written", error=str(error))
        finally:
            self._instance.release()

    def _note_end(self, event: str, text: str) -> None:
        if self._instance.log_index is not None:
            self._instance.log_index.note_end(event, text)

    def _record_end(self, end: End) -> None:
        instance, launch = self._instance, self._instance.launch
        if instance.is_recorded or instance.is_planned:  # else another may have the name by now
            instance.write_record(end.state, end)
        # The run of a lone instance is labelled by the caller.
        if instance.is_recorded and (launch.index is not None or instance.past is not None):
            update = run_update(status=end.run_status, ended_at=utc_now())
            self._write_update(update, durable=False)

    def _write_update(self, update: Update, *, durable: bool = True) -> None:
        try:
            self._write(update, durable=durable)
        except ManifestError as error:
            _log.warning("manifest not written", instance=self._instance.name, error=str(error))


def rename_runs(instances: Iterable[Instance], run_id: str) -> None:
    """Give the run of instances another id; a record that cannot be written is reported. Blocks."""
    for instance in instances:
        try:
            instance.rename_run(run_id)
        except OSError as error:
            _log.warning("instance record not written", instance=instance.name, error=str(error))


def _brief(found: WorldExit | None) -> str:
    """Return how a process ended, without the possible reasons."""
    if found is None:
        return "exit unknown"
    return str(found) if found.signal is None else f"killed by {found.signal}"
