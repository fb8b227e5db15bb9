"""The calls to one instance: they fail at once when the instance ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import WorldCallError, WorldError, WorldExitedError
from clawblox.instance.failures import exited_error
from clawblox.instance.instance import Instance

__all__ = ["Calls"]

_EXIT_NOTICE_S = 0.25
"""How long to wait for the exit of a world after a call to it broke, in seconds."""


class Calls:
    """The calls to one instance.

    Args:
        instance: The instance.
        is_ready: Returns whether it can be called now.
    """

    def __init__(self, instance: Instance, is_ready: Callable[[], bool]) -> None:
        self._instance = instance
        self._is_ready = is_ready
        self._scopes: set[anyio.CancelScope] = set()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Run the body of the block as a call to the instance.

        A WorldError of the body is completed with the facts of the instance.

        Raises:
            WorldExitedError: The instance has ended, or ended before the body was done.

        Cancellation: cancels the body; has no other effect.
        """
        begun_at = anyio.current_time()
        if not self._is_ready():
            raise await self._exited_error(begun_at)
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
        """Fail every call that is under way, because the instance has ended or is about to."""
        for scope in self._scopes:
            scope.cancel()

    async def _prefer_exit(self, error: WorldError, begun_at: float) -> None:
        """Raise the exit instead of ``error`` if the call broke because the world died."""
        if getattr(error, "status", None) is None:
            with anyio.move_on_after(_EXIT_NOTICE_S) as notice:
                await self._instance.wait_exit()
            if not notice.cancelled_caught:
                raise await self._exited_error(begun_at) from error
        if isinstance(error, WorldCallError):
            error.body_start = self._instance.masked(error.body_start)
        fields = await run_blocking(self._instance.error_fields)
        error.locate(elapsed_s=anyio.current_time() - begun_at, **fields)

    async def _exited_error(self, begun_at: float) -> WorldExitedError:
        elapsed = anyio.current_time() - begun_at
        return await run_blocking(exited_error, self._instance, elapsed)
