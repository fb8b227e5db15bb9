"""The task that owns an instance, from its lease to the end of its last process.

A failure before the instance is ready is raised to the caller of ``start``. A later exit changes
the state, emits an event, and leads to a restart if the restart policy requires it. In all cases
the task finally runs the stop ladder, shielded: the processes, port, claim and temporary files of
the instance do not outlive it, unless the instance is detached. A defect of this package in the
task ends only this instance: it is reported, all steps of the end are carried out, and waiting
callers get the error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import anyio

from clawblox.concurrency.threads import current_batcher, run_blocking
from clawblox.config.options import DEFAULT_GRACE_S, RestartOptions
from clawblox.errors import SnapshotRefusedError, UsageError, WorldStopError
from clawblox.instance.bookkeeping import Emit, InstanceBookkeeping, Write
from clawblox.instance.calls import Calls
from clawblox.instance.failures import start_failure, start_stopped, stop_error
from clawblox.instance.launch import Launch
from clawblox.instance.lifecycle import (
    FAILED_START_GRACE_S,
    MOVES,
    InstanceEnd,
    LifecycleState,
    restart_delay,
)
from clawblox.instance.local import LocalInstance
from clawblox.instance.restart_source import NO_GOOD_SAVE, RestartRequest, RestartSource
from clawblox.instance.watch import InstanceWatch
from clawblox.results import EventKind, ProcessExit, StartedWorld, StopResult, describe_end
from clawblox.rundir.manifest_updates import RestartedBy
from clawblox.supervision.lifecycle import Lifecycle, RestartBudget
from clawblox.supervision.tree import Grace, SharedStop, TreeEnd
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)


class Supervisor:
    """Owns an instance. :meth:`run` is the task; the other methods send requests to the task.

    Args:
        instance: The instance, before it acquires resources.
        emit: Emits an event.
        write: Writes an update to the manifest of the instance. Blocks.
        on_settled: Called when it is ready, or after the cleanup of a failed start.
        on_back: Called before it counts as ready; the function that it returns is called after.
        on_over: Called when the instance has ended or is about to end, even before a restart;
            possibly several times.

    Attributes:
        instance: The instance.
        lifecycle: Its state.
        started: Its public description; None before it is ready.
        calls: The running calls to it.
        ends_on_purpose: Whether it was stopped on request, which excludes it from a resume.
        failure: The failure of its start; None if the start succeeded or was stopped.
        has_died: Whether it has ended after it was ready without a request, and is not restarted.
        source: The saves that a restart can restore.
        restart_lock: Held by the running restart on request.
    """

    def __init__(
        self,
        instance: LocalInstance,
        emit: Emit,
        write: Write,
        *,
        on_settled: Callable[[], None],
        on_back: Callable[[], Awaitable[Callable[[], None]]],
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self.instance = instance
        self.lifecycle = Lifecycle(MOVES, LifecycleState.LEASING)
        self.started: StartedWorld | None = None
        self.calls = Calls(instance, self.lifecycle, on_over)
        self.ends_on_purpose = False
        self.has_died = False
        self._emit = emit
        self._books = InstanceBookkeeping(instance, write)
        self._watch = InstanceWatch(
            instance, self.calls.pacer, self._books, self._tell, self._end_halted
        )
        self._on_settled = on_settled
        self._on_back = on_back
        self.source = RestartSource(instance.launch.begun, instance.launch.saves)
        options = instance.launch.options
        self._budget = RestartBudget(options.max_restarts, options.restart_window)
        self._stop = SharedStop()
        self._settled = anyio.Event()
        self._is_announced = False
        self.failure: Exception | None = None
        self._defect: Exception | None = None
        self._stop_failure: Exception | None = None
        self._request: RestartRequest | None = None
        self._interruptible = anyio.CancelScope()
        self.restart_lock = anyio.Lock()
        self._has_finished = False
        self._result = StopResult(instance.name, "not_running")
        self._begun_at = anyio.current_time()

    # -- requests ----------------------------------------------------------------------

    async def wait_started(self) -> StartedWorld:
        """Wait until the instance is ready.

        Raises:
            ClawbloxError: The start failed; all processes of the instance have ended.

        Cancellation: the start continues; call :meth:`stop` to end it.
        """
        await self._settled.wait()
        if self.started is None:
            await self._stop.is_over.wait()
            raise self.failure or start_stopped()
        return self.started

    async def stop(self, grace_seconds: float, *, on_purpose: bool) -> StopResult:
        """End the instance and wait for its end; concurrent stops share the ladder and the result.

        Args:
            grace_seconds: Seconds between TERM and KILL. A later stop may shorten them.
            on_purpose: Whether a resume excludes the instance; the first stop decides.

        Raises:
            WorldStopError: A process survived even SIGKILL.

        Cancellation: the instance is still stopped.
        """
        self.ends_on_purpose |= on_purpose and self._stop.grace is None
        if self._request is not None:
            self._request.grace.shorten(grace_seconds)
        await self._stop.request(grace_seconds)
        if self._stop_failure is not None:
            raise self._stop_failure
        return self._result

    async def wait_ended(self) -> ProcessExit:
        """Wait until the instance has ended without a restart; return its exit.

        Cancellation: has no effect.
        """
        await self._stop.is_over.wait()
        return self.instance.exit or ProcessExit()

    async def restart(self, options: RestartOptions) -> StartedWorld:
        """Restart the instance and return when it is ready again; restarts run one at a time.

        Raises:
            ConfigError: As for :meth:`RestartSource.choose`.
            UsageError: The instance has ended, or is being stopped.
            WorldStartError: The instance did not become ready again, or was stopped meanwhile. Its
                restart policy then applies.
            WorldStopError: A process survived even SIGKILL.

        Cancellation: a restart that has started continues.
        """
        async with self.restart_lock:
            launch, reason = await self.source.choose(options)
            if self.lifecycle.state not in (LifecycleState.READY, LifecycleState.RESTARTING):
                raise UsageError(f"instance {self.instance.name!r} has ended or is being stopped")
            self._request = request = RestartRequest(launch, Grace(options.grace_seconds), reason)
            self._begin_restarting()  # now, to prevent new calls before the task reacts
            self._interruptible.cancel()
            await request.is_over.wait()
        if request.failure is not None:
            raise request.failure
        assert self.started is not None, "it was ready before"
        return self.started

    def kill_now(self) -> None:
        """End the grace period of a running stop."""
        self._stop.kill_now()

    def end_at_limit(self, reason: str) -> None:
        """Kill the instance because it exceeds a limit; ``reason`` is recorded as its halt."""
        self._watch.announce_halt(reason)
        self.calls.fail()
        self.instance.kill()

    # -- the task -----------------------------------------------------------------------

    async def run(self) -> None:
        """Start, watch and end the instance. Failures go to the callers of the other methods.

        Cancellation: runs the stop ladder, shielded, then propagates.
        """
        try:
            with self._stop.scope:
                with self._contained("instance ended because of a defect"):
                    is_up = await self._bring_up()
                    while is_up:
                        is_up = await self._watch_and_restart()
                self.has_died = self.started is not None
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    with self._contained("instance not cleaned up"):
                        await self._tear_down()
                    if self._defect is not None:
                        with self._contained("instance not released"):
                            self.instance.kill()
                            await run_blocking(self.instance.release)
            finally:
                self._release_waiters()

    def _contained(self, what: str) -> AbstractContextManager[None]:
        """Contain a defect in the block, and report it, to let sibling instances continue."""
        return _log.contain(what, on_defect=self._note_defect, instance=self.instance.name)

    def _note_defect(self, error: Exception) -> None:
        self._defect = self._defect or error
        if self.started is None:
            self.failure = self.failure or error

    async def _bring_up(self) -> bool:
        """Start the instance; return whether it is ready."""
        try:
            if (record := self.instance.record) is None:
                past, path = self.instance.launch.past, self.instance.launch.resume_path
                if past is not None and past.number:
                    kind: EventKind = "resuming" if past.by == "resume" else "restarting"
                    self._tell(
                        kind, exit=past.exit, resume_path=path, reason=past.reason, by=past.by
                    )
                await self.instance.start_up(self.lifecycle.move, self._tell)
            else:
                await run_blocking(self.instance.attach, record)
                self.lifecycle.move(LifecycleState.SPAWNING)
                self.lifecycle.move(LifecycleState.PROBING)
            tell_back = await self._on_back()
            self._serve(self._elapsed())
            self._settle()
            tell_back()
        except Exception as error:  # noqa: BLE001 - every failure belongs to the caller of start
            if self.started is not None:  # it is serving, but its start cannot be completed
                self.started, self._defect = None, error
            self.failure = error
            self.failure = await self._describe(error)
            self._tell("start_failed", error=self.failure)
            return False
        return True

    async def _describe(self, error: Exception) -> Exception:
        phase = self.lifecycle.state.value
        return await run_blocking(start_failure, error, self.instance, phase, self._elapsed())

    def _settle(self) -> None:
        self._settled.set()
        self._on_settled()
        self._is_announced = True

    def _serve(self, ready_s: float) -> None:
        self.started = self.instance.started_world(ready_s)
        self.lifecycle.move(LifecycleState.READY)
        self.calls.note_change()
        self._tell("ready", url=self.started.url, ready_s=ready_s)

    async def _watch_and_restart(self) -> bool:
        """Watch the instance until it ends or must be restarted; return whether it is back."""
        is_up = True
        with anyio.CancelScope() as self._interruptible:
            if self._request is None:
                await self._watch_life()
                is_up = await self._come_back()
        if self._request is None:
            return is_up
        return await self._restart_as_asked(self._request)

    async def _watch_life(self) -> None:
        """Watch the instance until the world's process has ended."""
        await self._watch.run()
        was_ended = self._watch.is_unresponsive or self.instance.halt is not None
        self._has_finished = not was_ended and self.instance.exit == ProcessExit(status=0)
        self._tell(
            "exited",
            exit=self.instance.exit,
            restart=self.instance.launch.options.restart,
            unresponsive=self._watch.is_unresponsive,
            halt=self.instance.halt,
        )

    async def _end_halted(self) -> None:
        """End an instance that is hanging or has halted."""
        if self.instance.halt is not None:
            self.calls.fail()  # a halted world must not be saved
        await self._clear_away()

    # -- coming back ------------------------------------------------------------------------

    async def _come_back(self) -> bool:
        """Restart the ended instance if its policy requires it; return whether it serves again."""
        if self.instance.launch.options.restart == "never":
            return False
        asks_for_save = self.instance.launch.options.restart == "checkpoint"
        self._begin_restarting()
        await self._note_exit()
        while True:
            before = self._budget.take(anyio.current_time())
            if before is None:
                return self._give_up("it died too often")
            launch = await self.source.next_launch(from_save=asks_for_save)
            if launch is None:
                return self._give_up("there is no good snapshot")
            await anyio.sleep(restart_delay(before))
            if not await self._clear_away():
                return self._give_up("its processes do not end")
            reason = NO_GOOD_SAVE if asks_for_save and launch is self.source.first else None
            if await self._restart(launch, "policy", reason) is None:
                return True

    async def _note_exit(self) -> None:
        await current_batcher().run(self._books.note_exit, self._watch.is_unresponsive)

    def _begin_restarting(self) -> None:
        if self.lifecycle.state is LifecycleState.READY:
            self.lifecycle.move(LifecycleState.RESTARTING)
        self.calls.fail()

    def _give_up(self, reason: str) -> bool:
        self._tell("gave_up", reason=reason, restarts=self.instance.restarts)
        return False

    async def _restart_as_asked(self, request: RestartRequest) -> bool:
        """Restart the instance on request; return whether it serves again."""
        with anyio.CancelScope(shield=True):
            await self._end_tree(request.grace)
        request.failure = self._stop_failure
        if request.failure is None:
            request.failure = await self._restart(request.launch, "request", request.reason)
        self._request = None
        request.is_over.set()
        if request.failure is None:
            return True
        if self.instance.launch.options.restart == "never":
            return self._give_up("its restart failed")
        return await self._come_back()

    async def _restart(
        self, launch: Launch, by: RestartedBy, reason: str | None
    ) -> Exception | None:
        """Restart the instance after all its processes have ended; return the failure, or None."""
        begun_at, self._has_finished = anyio.current_time(), False
        exit_before = self.instance.exit
        end = describe_end(exit_before, self.instance.halt)
        try:
            await run_blocking(self._prepare_restart, launch, by)
            path = launch.resume_path
            self._tell("restarting", exit=exit_before, resume_path=path, reason=reason, by=by)
            # Ignore the states of the start, since it is RESTARTING until it serves.
            await self.instance.start_up(lambda _state: None, self._tell)
            await run_blocking(self._books.register_restart, end, launch, by)
            tell_back = await self._on_back()
            self._serve(anyio.current_time() - begun_at)
            tell_back()
        except Exception as error:  # noqa: BLE001 - another restart follows, or none
            self._begin_restarting()  # it may be serving, but its restart cannot be completed
            failure = await self._describe(error)
            _log.warning("restart failed", instance=self.instance.name, error=str(failure))
            self._tell("start_failed", error=failure)
            if isinstance(error, SnapshotRefusedError):
                self.source.refuse(launch)
            return failure
        return None

    def _prepare_restart(self, launch: Launch, by: RestartedBy) -> None:
        """Release the previous processes, and write the restart to the log index. Blocks."""
        self._books.note_restart(launch, by)
        self.instance.prepare_restart(launch)

    async def _clear_away(self) -> bool:
        """End the remaining processes of the instance; return whether all have ended."""
        with anyio.CancelScope(shield=True):
            await self._end_tree(Grace(FAILED_START_GRACE_S))
        return self._stop_failure is None

    async def _end_tree(self, grace: Grace) -> TreeEnd:
        """End all processes; store a failure for the callers that stop the instance."""
        self._stop_failure = None
        end = await self.instance.end(grace)
        if end.failure is not None:
            self._stop_failure = WorldStopError(end.failure, instance=self.instance.name)
            _log.error("stop failed", instance=self.instance.name, reason=end.failure)
            self._stop_failure = await run_blocking(stop_error, self.instance, end.failure)
        return end

    # -- the end ------------------------------------------------------------------------

    async def _tear_down(self) -> None:
        """End the remaining processes, record the end, and release all resources."""
        is_left_running = False
        if self.lifecycle.state is LifecycleState.READY and self._stop.grace is not None:
            with self._contained("last report not recorded"):
                await self._watch.note_last_report(self._stop.grace)
        self.has_died |= self.started is not None and self.instance.halt is not None
        with self._contained("end of an instance not started"):
            is_serving = self.lifecycle.state is LifecycleState.READY and not self.instance.is_over
            is_detached = self.instance.launch.options.detach
            is_left_running = is_detached and is_serving and self._stop.grace is None
            self.calls.fail()
            if self.started is not None:
                self.lifecycle.move(LifecycleState.STOPPING)
        if self.has_died:
            with self._contained("exit not recorded"):
                await self._note_exit()
        if is_left_running:
            with self._contained("instance not left running"):
                await current_batcher().run(self._books.leave_running)
        else:
            with self._contained("instance not ended"):
                await self._end()
        if self._was_stopped():
            self._tell("stopped", rung=self._result.rung, exit=self.instance.exit)
        self.lifecycle.move(
            LifecycleState.FAILED if self.started is None else LifecycleState.EXITED
        )

    async def _end(self) -> None:
        """End the processes, record the end, and release all resources."""
        begun_at, name = anyio.current_time(), self.instance.name
        self._result = StopResult(name, "killed", self.instance.exit)
        with self._contained("processes not ended"):
            seconds = FAILED_START_GRACE_S if self.started is None else DEFAULT_GRACE_S
            tree = await self._end_tree(self._stop.begin(seconds))
            elapsed_s = anyio.current_time() - begun_at
            self._result = StopResult(name, tree.rung, self.instance.exit, tree.killed, elapsed_s)
        if self._defect is not None:
            with self._contained("processes not killed"):
                self.instance.kill()
        with self._contained("end not recorded"):
            end = InstanceEnd(
                was_begun=self.instance.is_recorded or self.failure is not None,
                was_ready=self.started is not None,
                has_died=self.has_died,
                has_finished=self.has_died and self._has_finished,
                is_on_purpose=self.ends_on_purpose and not self.has_died,
            )
            record_end = partial(self._books.record_end, end, was_stopped=self._was_stopped())
            await current_batcher().run(record_end)

    def _release_waiters(self) -> None:
        """Wake every waiting caller, even after a defect."""
        # A defect may have left any other state.
        self.lifecycle.state = (
            LifecycleState.FAILED if self.started is None else LifecycleState.EXITED
        )
        self._stop.is_over.set()
        if self._request is not None:
            self._request.failure = self._defect or start_stopped()
            self._request.is_over.set()
        self._settled.set()
        if self._defect is not None:
            with self._contained("defect not reported"):
                self._give_up(f"a defect of clawblox, not of the world: {self._defect!r}")
        if not self._is_announced:
            with self._contained("end not announced"):
                self._settle()

    def _was_stopped(self) -> bool:
        """Return whether any process had to be stopped."""
        if self.failure is not None or self._result.rung == "not_running":
            return False
        return not self.has_died or self._result.rung != "already_exited"

    def _tell(self, kind: EventKind, **detail: Any) -> None:
        with _log.contain("event not sent", kind=kind, instance=self.instance.name):
            self._emit(kind, self.instance.name, self.instance.launch.options.labels, **detail)

    def _elapsed(self) -> float:
        return anyio.current_time() - self._begun_at
