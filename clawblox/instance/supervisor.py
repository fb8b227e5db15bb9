"""The one task that owns one instance, from its lease to the last of its processes.

A failure before the instance is ready goes to the caller of ``start``; a later death becomes
state and an event, and a new start where the restart policy says so. Whatever ends the task, its
last act is the stop ladder, shielded: no process, port, claim or temporary file of the instance
outlives it, unless it is detached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import current_batcher, run_blocking
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.config.world_toml import LivenessRule
from clawblox.errors import ManifestError, SnapshotRefusedError, WorldStartError
from clawblox.instance.calls import Calls
from clawblox.instance.failures import start_failure, stop_error
from clawblox.instance.health import wait_until_unresponsive
from clawblox.instance.instance import Instance
from clawblox.instance.launch import Launch
from clawblox.instance.launcher import Launcher
from clawblox.instance.lifecycle import Lifecycle, RestartBudget, State
from clawblox.instance.startup import FAILED_START_GRACE_S, start_up
from clawblox.results import EventKind, SavedSnapshot, StartedWorld, StopResult, WorldExit
from clawblox.rundir.manifest import Update
from clawblox.rundir.manifest_updates import RunStatus, restart_update, run_update
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import has_digest
from clawblox.system.process import Grace, Process, TreeEnd
from clawblox.telemetry.own_log import OwnLog

__all__ = ["Emit", "Supervisor", "start_stopped"]

_log = OwnLog(__name__)


class Emit(Protocol):
    """Takes what happened to an instance."""

    def __call__(self, kind: EventKind, instance: str, **detail: Any) -> None:  # noqa: ANN401
        """Report ``kind`` of ``instance``."""


class Write(Protocol):
    """Puts an update into a manifest."""

    def __call__(self, update: Update, *, durable: bool = True) -> None:
        """Put ``update`` into it; ``durable`` ones outlive a loss of power. Blocks."""


class Supervisor:
    """Owns one instance; :meth:`run` is the task, everything else asks it for something.

    Args:
        instance: The instance, with nothing taken yet.
        launcher: Starts it.
        emit: Where events go.
        write: Puts an update into the manifest of the instance. Blocks.
        on_settled: Called when it is ready, or when nothing is left of a start that failed.

    Attributes:
        instance: The same.
        lifecycle: Where it stands.
        started: The public facts, once it is ready.
        calls: Calls to it that are under way.
    """

    def __init__(
        self,
        instance: Instance,
        launcher: Launcher,
        emit: Emit,
        write: Write,
        on_settled: Callable[[Supervisor], None],
    ) -> None:
        self.instance = instance
        self.lifecycle = Lifecycle()
        self.started: StartedWorld | None = None
        self.calls = Calls(instance, self._is_serving)
        self._launcher = launcher
        self._emit = emit
        self._write = write
        self._on_settled = on_settled
        self._first_launch = instance.launch
        self._budget = RestartBudget(instance.launch.options)
        self._saves: list[SavedSnapshot] = []
        self._scope = anyio.CancelScope()
        self._settled = anyio.Event()
        self._finished = anyio.Event()
        self._failure: Exception | None = None
        self._stop_failure: Exception | None = None
        self._grace: Grace | None = None
        self._has_died = False
        self._is_unresponsive = False
        self._result = StopResult(instance.name, "not_running")
        self._begun_at = anyio.current_time()

    # -- what others ask ----------------------------------------------------------------

    @property
    def failure(self) -> Exception | None:
        """Why its start failed by itself, if it did."""
        return self._failure

    async def wait_started(self) -> StartedWorld:
        """Wait until the instance is ready.

        Raises:
            ClawbloxError: It will not be; nothing of it is left.

        Cancellation: the start goes on; whoever gives it up calls :meth:`stop`.
        """
        await self._settled.wait()
        if self.started is None:
            await self._finished.wait()
            raise self._failure or start_stopped()
        return self.started

    async def stop(self, grace_seconds: float) -> StopResult:
        """End the instance and wait for it; concurrent stops share one ladder and result.

        Args:
            grace_seconds: Seconds between TERM and KILL. A later stop may shorten them.

        Raises:
            WorldStopError: A process survived even SIGKILL.

        Cancellation: the ladder goes on without the caller.
        """
        if self._grace is None:
            self._grace = Grace(grace_seconds)
        else:
            self._grace.shorten(grace_seconds)
        self._scope.cancel()
        await self._finished.wait()
        if self._stop_failure is not None:
            raise self._stop_failure
        return self._result

    def note_saved(self, saved: SavedSnapshot) -> None:
        """Remember a snapshot that a restart may begin from."""
        self._saves.append(saved)

    def note_removed(self, spent: Collection[SavedSnapshot]) -> None:
        """Forget snapshots whose files are gone."""
        self._saves = [one for one in self._saves if one not in spent]

    def kill_now(self) -> None:
        """Shorten the grace of a running ladder to nothing."""
        if self._grace is not None:
            self._grace.shorten(0.0)

    # -- the task -----------------------------------------------------------------------

    async def run(self) -> None:
        """Bring the instance up, watch it, end it. Failures are kept for who asks.

        Cancellation: runs the stop ladder, shielded, then propagates.
        """
        try:
            with self._scope:
                is_up = await self._bring_up()
                while is_up:
                    await self._watch()
                    is_up = await self._come_back()
                self._has_died = self.started is not None
        finally:
            with anyio.CancelScope(shield=True):
                await self._tear_down()

    async def _bring_up(self) -> bool:
        """Go through a start; return whether it succeeded."""
        try:
            if self.instance.record is None:
                await start_up(self.instance, self._launcher, self.lifecycle.move, self._tell)
            else:
                await run_blocking(self.instance.attach, self.instance.record)
                self.lifecycle.move(State.SPAWNING)
                self.lifecycle.move(State.PROBING)
            self._serve(self._elapsed())
        except Exception as error:  # noqa: BLE001 - every failure belongs to the caller of start
            phase = self.lifecycle.state.value
            self._failure = await run_blocking(
                start_failure, error, self.instance, phase, self._elapsed()
            )
            self._tell("start_failed", error=self._failure)
            return False
        self._settle()
        return True

    def _settle(self) -> None:
        self._settled.set()
        self._on_settled(self)

    def _serve(self, ready_s: float) -> None:
        self.started = self.instance.running.started_world(ready_s)
        self.lifecycle.move(State.READY)
        self._tell("ready", url=self.started.url, ready_s=ready_s)

    async def _watch(self) -> None:
        """Return when the world's process has ended."""
        self._is_unresponsive = False
        watchers = [
            partial(self._watch_sidecar, name, sidecar)
            for name, sidecar in self.instance.sidecars.items()
        ]
        if (rule := self.instance.launch.config.liveness) is not None:
            watchers.append(partial(self._watch_liveness, rule))
        async with Tasks() as tasks:
            for watcher in watchers:
                tasks.start_soon(watcher)
            await self.instance.wait_exit()
        self._tell(
            "exited",
            exit=self.instance.exit,
            restart=self.instance.launch.options.restart,
            unresponsive=self._is_unresponsive,
            halt=self.instance.halt,
        )

    def _is_serving(self) -> bool:
        return self.lifecycle.state is State.READY and self.instance.halt is None

    async def _watch_sidecar(self, name: str, sidecar: Process) -> None:
        self._tell("sidecar_exited", sidecar=name, exit=await sidecar.wait())

    async def _watch_liveness(self, rule: LivenessRule) -> None:
        """End the instance when it hangs or has halted; what follows is as after any exit."""
        probe = self.instance.running.liveness_probe(rule)
        seen = await wait_until_unresponsive(probe, rule)
        if probe.halt is not None:
            self.instance.halt = self.instance.masked(probe.halt)
            self._tell("halted", reason=self.instance.halt)
            self.calls.fail()  # what it says of itself from now on is not to be saved
        else:
            self._is_unresponsive = True
            self._tell("unresponsive", seen=seen, failures=rule.failure_threshold)
        await self._clear_away()

    # -- coming back ------------------------------------------------------------------------

    async def _come_back(self) -> bool:
        """Bring the dead instance back, if its policy says so; return whether it serves again."""
        if self.instance.launch.options.restart == "never":
            return False
        self.lifecycle.move(State.RESTARTING)
        self.calls.fail()
        while True:
            delay = self._budget.take(anyio.current_time())
            if delay is None:
                return self._give_up("it died too often")
            launch = await self._next_launch()
            if launch is None:
                return self._give_up("there is no good snapshot")
            await anyio.sleep(delay)
            if not await self._clear_away():
                return self._give_up("its processes do not end")
            if await self._restart(launch):
                return True

    def _give_up(self, reason: str) -> bool:
        self._tell("gave_up", reason=reason, restarts=self.instance.restarts)
        return False

    async def _next_launch(self) -> Launch | None:
        """Return what to start now: from the last good save, else as it was the first time.

        Returns:
            None when the snapshot is gone that it began from: it never begins afresh instead.
        """
        first = self._first_launch
        while self._asks_for_save and self._saves:
            saved = self._saves[-1]
            if await run_blocking(has_digest, saved.path, saved.sha256):
                # What was saved was reseeded already.
                return attrs.evolve(first, resume_path=saved.path, reseed=None)
            self.note_removed([saved])  # another save may have landed meanwhile
        path = first.resume_path
        return first if path is None or await run_blocking(path.is_file) else None

    @property
    def _asks_for_save(self) -> bool:
        return self._first_launch.options.restart == "checkpoint"

    async def _restart(self, launch: Launch) -> bool:
        begun_at = anyio.current_time()
        exit_before, halt_before = self.instance.exit, self.instance.halt
        try:
            await run_blocking(partial(self.instance.begin_anew, keep_port=True))
            self.instance.launch = launch
            self.instance.restarts += 1
            lacks_save = self._asks_for_save and launch is self._first_launch
            self._tell(
                "restarting",
                exit=exit_before,
                resume_path=launch.resume_path,
                reason="there is no good save" if lacks_save else None,
            )
            await start_up(self.instance, self._launcher, _stay, self._tell)
            words = str(exit_before) if halt_before is None else f"halted: {halt_before}"
            await run_blocking(self._note_restart, words, launch)
            self._serve(anyio.current_time() - begun_at)
        except Exception as error:  # noqa: BLE001 - it is tried again, or given up
            await self._note_failed_restart(error, launch)
            return False
        return True

    async def _clear_away(self) -> bool:
        """End what is left of the instance's processes; return whether all of them ended."""
        with anyio.CancelScope(shield=True):
            await self._end_processes(Grace(FAILED_START_GRACE_S))
        return self._stop_failure is None

    def _note_restart(self, exit_before: str, launch: Launch) -> None:
        self._write_update(
            restart_update(
                number=self.instance.restarts,
                at=format_utc(utc_now()),
                exit=exit_before,
                resume_from=launch.resume_path,
                run_id=self.instance.run_id,
            )
        )

    async def _note_failed_restart(self, error: Exception, launch: Launch) -> None:
        failure = await run_blocking(
            start_failure, error, self.instance, self.lifecycle.state.value, self._elapsed()
        )
        _log.warning("restart failed", instance=self.instance.name, error=str(failure))
        self._tell("start_failed", error=failure)
        if isinstance(error, SnapshotRefusedError):
            self._saves = [one for one in self._saves if one.path != launch.resume_path]

    # -- the end ------------------------------------------------------------------------

    async def _tear_down(self) -> None:
        begun_at = anyio.current_time()
        is_left_running = self._is_left_running()
        if self.started is not None:
            self.lifecycle.move(State.STOPPING)
        self.calls.fail()
        try:
            if is_left_running:
                await current_batcher().run(self.instance.release)
            else:
                end = await self._end_processes(self._last_grace())
                self._result = self._stop_result(end, anyio.current_time() - begun_at)
                await current_batcher().run(self._put_away)
        finally:
            self._conclude()

    def _put_away(self) -> None:
        """Note the end on disk and give everything back. Blocks."""
        try:
            self._note_end()
        except OSError as error:
            _log.warning("instance record not written", error=str(error))
        finally:
            self.instance.release()

    def _conclude(self) -> None:
        if self._was_stopped():
            self._tell("stopped", rung=self._result.rung, exit=self.instance.exit)
        self.lifecycle.move(State.FAILED if self.started is None else State.EXITED)
        self._finished.set()
        if not self._settled.is_set():
            self._settle()

    def _was_stopped(self) -> bool:
        """Say whether it did not end by itself, or at least not all of it."""
        if self._failure is not None or self._result.rung == "not_running":
            return False
        return not self._has_died or self._result.rung != "already_exited"

    def _is_left_running(self) -> bool:
        """Say whether a detached instance is to be left alone."""
        is_serving = self.lifecycle.state is State.READY and not self.instance.is_over
        return self.instance.launch.options.detach and is_serving and self._grace is None

    def _last_grace(self) -> Grace:
        if self._grace is None:
            seconds = FAILED_START_GRACE_S if self.started is None else DEFAULT_GRACE_S
            self._grace = Grace(seconds)
        return self._grace

    async def _end_processes(self, grace: Grace) -> TreeEnd:
        """Climb the ladder; what went wrong is kept for whoever stops the instance."""
        self._stop_failure = None
        try:
            end = await self.instance.end(grace)
        except OSError as error:
            await self._fail_stop(f"its processes cannot be looked at: {error.strerror}")
            return TreeEnd("killed")
        if end.survivors:
            await self._fail_stop(f"not even SIGKILL ended {', '.join(end.survivors)}")
        else:
            await self.instance.wait_exit()
        return end

    async def _fail_stop(self, reason: str) -> None:
        _log.error("stop failed", instance=self.instance.name, reason=reason)
        self._stop_failure = await run_blocking(stop_error, self.instance, reason)

    def _stop_result(self, end: TreeEnd, elapsed_s: float) -> StopResult:
        return StopResult(
            instance=self.instance.name,
            rung=end.rung,
            exit=self.instance.exit,
            killed=end.killed,
            elapsed_s=elapsed_s,
        )

    def _note_end(self) -> None:
        if not self.instance.is_recorded:  # the name, and what it stands for, may be another's
            return
        self.instance.write_record("failed" if self.started is None else "exited")
        if self.instance.launch.index is not None:  # who runs one alone labels it
            self._label_end()

    def _label_end(self) -> None:
        was_ended = self._is_unresponsive or self.instance.halt is not None
        has_failed = was_ended or self.instance.exit != WorldExit(status=0)
        is_good = self.started is not None and not (self._has_died and has_failed)
        status: RunStatus = "complete" if is_good else "failed"
        self._write_update(run_update(status=status, ended_at=utc_now()), durable=False)

    def _write_update(self, update: Update, *, durable: bool = True) -> None:
        try:
            self._write(update, durable=durable)
        except ManifestError as error:
            _log.warning("manifest not written", instance=self.instance.name, error=str(error))

    def _tell(self, kind: EventKind, **detail: Any) -> None:  # noqa: ANN401
        self._emit(kind, self.instance.name, **detail)

    def _elapsed(self) -> float:
        return anyio.current_time() - self._begun_at


def _stay(state: State) -> None:
    """Take no step of a restart: an instance is RESTARTING until it serves."""


def start_stopped() -> WorldStartError:
    """Return the error of a start that somebody stopped."""
    return WorldStartError("the start was stopped")
