"""Calls to an instance that fail immediately when the instance ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import WorldCallError, WorldError, WorldExitedError
from clawblox.instance.failures import exited_error
from clawblox.instance.health import ProbePacer
from clawblox.instance.instance import Instance
from clawblox.instance.lifecycle import LifecycleState
from clawblox.supervision.lifecycle import Lifecycle

_SERVICE_UNAVAILABLE = 503
_HALT_NOTICE_S = 5.0
"""Maximum wait for the result of a probe after an answer 503, in seconds."""
_EXIT_NOTICE_S = 0.25
"""Maximum wait for the exit of a world after a failed call, in seconds."""


@attrs.define(eq=False)
class Calls:
    """The calls to an instance.

    Args:
        instance: The instance.
        lifecycle: Its state.
        on_over: Called when the instance has ended or is about to end, even before a restart;
            possibly several times.

    Attributes:
        pacer: Paces its liveness probes; an answer 503 to a call hurries the next probe.
    """

    _instance: Instance
    _lifecycle: Lifecycle[LifecycleState]
    _on_over: Callable[[], None] = lambda: None
    _scopes: set[anyio.CancelScope] = attrs.field(init=False, factory=set)
    _changed: anyio.Event = attrs.field(init=False, factory=anyio.Event)
    pacer: ProbePacer = attrs.field(init=False, factory=ProbePacer)

    @property
    def life(self) -> int | None:
        """Number of restarts so far if the instance is serving, else None.

        A world that has just ended may still count as serving.
        """
        is_serving = self._lifecycle.state is LifecycleState.READY and self._instance.halt is None
        return self._instance.restarts if is_serving else None

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Run the body of the block as a call to the instance.

        The fields of a WorldError from the body are completed with those of the instance.

        Raises:
            WorldExitedError: The instance has ended, before or during the body.

        Cancellation: cancels the body, without other effects.
        """
        begun_at = anyio.current_time()
        if self.life is None:
            is_coming_back = self._lifecycle.state is LifecycleState.RESTARTING
            raise await self._exited_error(begun_at, is_coming_back=is_coming_back)
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        try:
            with scope:
                yield
        except WorldError as error:
            await self._prefer_exit(error, begun_at)
            raise
        finally:
            self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise await self._exited_error(begun_at)

    def fail(self) -> None:
        """Fail every running call, because the instance has ended or is about to end."""
        for scope in self._scopes:
            scope.cancel()
        self.note_change()
        self._on_over()

    def note_change(self) -> None:
        """Wake the tasks that wait for the instance, because its state has changed."""
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_serving(self, *, after: int | None, until: float) -> bool:
        """Wait until the instance serves again, after a restart.

        Args:
            after: The value of `life` before the restart; None if the instance did not serve
                before.
            until: Deadline on the loop's clock.

        Returns:
            Whether it is serving; False immediately if it will not be restarted.

        Cancellation: has no effect.
        """
        with anyio.move_on_after(until - anyio.current_time()):
            while self.life is None or self.life == after:
                if self._lifecycle.state not in (LifecycleState.READY, LifecycleState.RESTARTING):
                    return False
                await self._changed.wait()
            return True
        return False

    async def _prefer_exit(self, error: WorldError, begun_at: float) -> None:
        """Raise the exit instead of ``error`` if the world ended during the call, or has halted."""
        status = getattr(error, "status", None)
        if status == _SERVICE_UNAVAILABLE:
            with anyio.move_on_after(_HALT_NOTICE_S):
                await self.pacer.probe_now()
            if self._instance.halt is not None:
                raise await self._exited_error(begun_at) from error
        if status is None:
            with anyio.move_on_after(_EXIT_NOTICE_S) as notice:
                await self._instance.wait_exit()
            if not notice.cancelled_caught:
                raise await self._exited_error(begun_at) from error
        if isinstance(error, WorldCallError):
            error.body_start = self._instance.masked(error.body_start)
        fields = await run_blocking(self._instance.error_fields)
        error.locate(elapsed_s=anyio.current_time() - begun_at, **fields)

    async def _exited_error(
        self, begun_at: float, *, is_coming_back: bool = False
    ) -> WorldExitedError:
        elapsed = anyio.current_time() - begun_at
        error = partial(exited_error, self._instance, elapsed, is_coming_back=is_coming_back)
        return await run_blocking(error)
