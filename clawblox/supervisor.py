"""The one task that owns one instance, from its lease to the last of its processes.

A failure before the instance is ready goes to the caller of ``start``; a later death becomes
state and an event. Whatever ends the task, its last act is the stop ladder, shielded: no
process, port, claim or temporary file of the instance outlives it, unless it is detached.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import attrs
import structlog

from clawblox.errors import (
    WorldCallError,
    WorldError,
    WorldExitedBeforeReady,
    WorldExitedError,
    WorldIdentityError,
    WorldStartError,
)
from clawblox.failures import (
    exited_before_ready,
    exited_error,
    identity_error,
    ready_timeout,
    start_failure,
    stop_error,
)
from clawblox.instance import Instance
from clawblox.lifecycle import Lifecycle, State
from clawblox.model import EventKind, StartedWorld, StopResult
from clawblox.ports import owner_of
from clawblox.process import Grace, Process, TreeEnd
from clawblox.readiness import Probe, StrangerAnswers, wait_until_ready
from clawblox.threads import run_blocking

__all__ = ["DEFAULT_GRACE_S", "FAILED_START_GRACE_S", "Emit", "Supervisor"]

DEFAULT_GRACE_S = 10.0
"""Seconds between TERM and KILL when nobody says otherwise."""

FAILED_START_GRACE_S = 1.0
"""The same for an instance whose start failed or was given up."""

_EXIT_NOTICE_S = 0.25
_LAST_LOOK_S = 0.25
_PORT_ATTEMPTS = 3

_log = structlog.get_logger(__name__)


class Emit(Protocol):
    """Takes what happened to an instance."""

    def __call__(self, kind: EventKind, instance: str, **detail: Any) -> None:  # noqa: ANN401
        """Report ``kind`` of ``instance``."""


@attrs.define
class _Race:
    """What came first of ready, a stranger and the exit; nothing means the deadline."""

    is_ready: bool = False
    has_exited: bool = False
    stranger: StrangerAnswers | None = None

    @property
    def is_decided(self) -> bool:
        """Whether anything came before the deadline."""
        return self.is_ready or self.has_exited or self.stranger is not None


class Supervisor:
    """Owns one instance; :meth:`run` is the task, everything else asks it for something.

    Args:
        instance: The instance, with nothing taken yet.
        emit: Where events go.

    Attributes:
        instance: The same.
        lifecycle: Where it stands.
        started: The public facts, once it is ready.
    """

    def __init__(self, instance: Instance, emit: Emit) -> None:
        self.instance = instance
        self.lifecycle = Lifecycle()
        self.started: StartedWorld | None = None
        self._emit = emit
        self._scope = anyio.CancelScope()
        self._settled = anyio.Event()
        self._finished = anyio.Event()
        self._failure: Exception | None = None
        self._stop_failure: Exception | None = None
        self._calls: set[anyio.CancelScope] = set()
        self._grace: Grace | None = None
        self._result = StopResult(instance.name, "not_running")
        self._begun_at = anyio.current_time()

    # -- what others ask ----------------------------------------------------------------

    async def wait_started(self) -> StartedWorld:
        """Wait until the instance is ready.

        Raises:
            ClawbloxError: It will not be; nothing of it is left.

        Cancellation: the start goes on; whoever gives it up calls :meth:`stop`.
        """
        await self._settled.wait()
        if self.started is None:
            await self._finished.wait()
            raise self._failure or WorldStartError("the start was stopped")
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

    def hurry(self) -> None:
        """Shorten the grace of a running ladder to nothing."""
        if self._grace is not None:
            self._grace.shorten(0.0)

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Do something with the instance, and fail at once when it ends meanwhile.

        Raises:
            WorldExitedError: It has ended, or does so before the body is done.
        """
        if self.lifecycle.state is not State.READY:
            raise await self._exited_error()
        scope = anyio.CancelScope()
        self._calls.add(scope)
        try:
            with scope:
                yield
        except WorldError as error:
            await self._prefer_exit(error)
            raise
        finally:
            self._calls.discard(scope)
        if scope.cancelled_caught:
            raise await self._exited_error()

    async def _prefer_exit(self, error: WorldError) -> None:
        """Raise the exit instead of ``error`` when a dying world is what broke the call."""
        if getattr(error, "status", None) is None:
            with anyio.move_on_after(_EXIT_NOTICE_S) as notice:
                await self.instance.wait_exit()
            if not notice.cancelled_caught:
                raise await self._exited_error() from error
        if isinstance(error, WorldCallError):
            error.body_start = self.instance.masked(error.body_start)
        fields = await run_blocking(self.instance.error_fields)
        error.locate(elapsed_s=self._elapsed(), **fields)

    async def _exited_error(self) -> WorldExitedError:
        return await run_blocking(exited_error, self.instance, self._elapsed())

    # -- the task -----------------------------------------------------------------------

    async def run(self) -> None:
        """Bring the instance up, watch it, end it. Failures are kept for who asks.

        Cancellation: runs the stop ladder, shielded, then propagates.
        """
        try:
            with self._scope:
                if await self._bring_up():
                    await self._watch()
        finally:
            with anyio.CancelScope(shield=True):
                await self._tear_down()

    async def _bring_up(self) -> bool:
        """Go through a start; return whether it succeeded."""
        try:
            if self.instance.record is None:
                await self._start()
            else:
                await self._attach()
        except Exception as error:  # noqa: BLE001 - every failure belongs to the caller of start
            phase = self.lifecycle.state.value
            self._failure = await run_blocking(
                start_failure, error, self.instance, phase, self._elapsed()
            )
            return False
        self._settled.set()
        return True

    async def _start(self) -> None:
        await self.instance.take_name()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            await self.instance.take_port()
            self.lifecycle.move(State.SPAWNING)
            await self.instance.write_files()
            await self.instance.start_processes()
            self.lifecycle.move(State.PROBING)
            self._report("started", port=self.instance.port)
            try:
                await self._become_ready()
            except (WorldExitedBeforeReady, WorldIdentityError):
                if attempt == _PORT_ATTEMPTS or not await self._has_lost_port():
                    raise
                await self._begin_again()
            else:
                break
        await self._serve()

    async def _attach(self) -> None:
        await self.instance.attach()
        self.lifecycle.move(State.SPAWNING)
        self.lifecycle.move(State.PROBING)
        await self._serve()

    async def _serve(self) -> None:
        self.started = await run_blocking(self._announce, self._elapsed())
        self.lifecycle.move(State.READY)
        self._report("ready", url=self.started.url, ready_s=self.started.ready_s)

    async def _become_ready(self) -> None:
        """Wait for the first of ready, exit and deadline.

        Raises:
            WorldStartError: It was not ready that came first.
        """
        probe = self.instance.probe()
        race = await self._run_race(probe, self.instance.launch.health_timeout)
        if not race.is_decided:
            # One more look: a deadline that passed while this process slept says nothing.
            race = await self._run_race(probe, _LAST_LOOK_S)
        if race.has_exited:
            raise exited_before_ready(self.instance)
        if race.stranger is not None:
            raise identity_error(self.instance, race.stranger)
        if not race.is_ready:
            raise await run_blocking(ready_timeout, self.instance, probe)

    async def _run_race(self, probe: Probe, seconds: float) -> _Race:
        race = _Race()
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as runners:
                runners.start_soon(self._run_to_exit, race, runners.cancel_scope)
                await self._run_to_ready(race, probe)
                runners.cancel_scope.cancel()
        return race

    async def _run_to_exit(self, race: _Race, finish: anyio.CancelScope) -> None:
        await self.instance.wait_exit()
        race.has_exited = True
        finish.cancel()

    async def _run_to_ready(self, race: _Race, probe: Probe) -> None:
        try:
            await wait_until_ready(probe, self.instance.mark)
            race.is_ready = True
        except StrangerAnswers as stranger:
            race.stranger = stranger

    async def _has_lost_port(self) -> bool:
        """Say whether somebody took a leased port between our test and the world's bind."""
        is_leased = self.instance.launch.port is None
        return is_leased and bool(await run_blocking(owner_of, self.instance.port))

    async def _begin_again(self) -> None:
        _log.info("port lost, starting again", instance=self.instance.name)
        with anyio.CancelScope(shield=True):
            await self.instance.end(Grace(FAILED_START_GRACE_S))
            await run_blocking(self.instance.forget_processes)
        self.lifecycle = Lifecycle()

    def _announce(self, ready_s: float) -> StartedWorld:
        started = self.instance.started_world(ready_s)
        self.instance.write_record("ready")
        if self.instance.launch.detach:
            self.instance.let_go()
        return started

    async def _watch(self) -> None:
        """Return when the world's process has ended."""
        async with anyio.create_task_group() as watchers:
            for name, sidecar in self.instance.sidecars.items():
                watchers.start_soon(self._watch_sidecar, name, sidecar)
            await self.instance.wait_exit()
            watchers.cancel_scope.cancel()
        self._report("exited", exit=self.instance.exit)

    async def _watch_sidecar(self, name: str, sidecar: Process) -> None:
        self._report("sidecar_exited", sidecar=name, exit=await sidecar.wait())

    # -- the end ------------------------------------------------------------------------

    async def _tear_down(self) -> None:
        begun_at = anyio.current_time()
        if self.lifecycle.state is State.READY:
            self.lifecycle.move(State.STOPPING)
        for scope in self._calls:
            scope.cancel()
        try:
            if not self._is_left_running():
                end = await self._end_processes()
                self._result = self._stop_result(end, anyio.current_time() - begun_at)
                await run_blocking(self._write_last_record)
                if self.started is not None and end.rung != "already_exited":
                    self._report("stopped", rung=end.rung, exit=self.instance.exit)
        except OSError as error:
            _log.warning("instance record not written", error=str(error))
        finally:
            await self._conclude()

    async def _conclude(self) -> None:
        try:
            await run_blocking(self.instance.release)
        finally:
            self.lifecycle.move(State.FAILED if self.started is None else State.EXITED)
            self._settled.set()
            self._finished.set()

    def _is_left_running(self) -> bool:
        """Say whether a detached instance is to be left alone."""
        is_detached = self.instance.launch.detach and self.started is not None
        return is_detached and self._grace is None and not self.instance.is_over

    async def _end_processes(self) -> TreeEnd:
        if self._grace is None:
            seconds = FAILED_START_GRACE_S if self.started is None else DEFAULT_GRACE_S
            self._grace = Grace(seconds)
        try:
            end = await self.instance.end(self._grace)
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

    def _write_last_record(self) -> None:
        if self.instance.is_recorded:
            self.instance.write_record("failed" if self.started is None else "exited")

    def _report(self, kind: EventKind, **detail: Any) -> None:  # noqa: ANN401
        self._emit(kind, self.instance.name, **detail)

    def _elapsed(self) -> float:
        return anyio.current_time() - self._begun_at
