"""One start of an instance, from its turn to the answer that proves it ready.

Nothing is given back here when it fails: that is the last act of whoever owns the instance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import WorldExitedBeforeReady, WorldIdentityError
from clawblox.instance.failures import exited_before_ready, identity_error, ready_timeout
from clawblox.instance.health import Probe, StrangerAnswers, require_own_listener, wait_until_ready
from clawblox.instance.instance import Instance
from clawblox.instance.lifecycle import State
from clawblox.instance.ramp import current_ramp
from clawblox.results import EventKind
from clawblox.system.ports import describe_owner
from clawblox.system.process import Grace, start_limiter
from clawblox.telemetry.own_log import OwnLog

__all__ = ["FAILED_START_GRACE_S", "Report", "start_up"]

FAILED_START_GRACE_S = 1.0
"""Seconds between TERM and KILL for an instance whose start failed or was given up."""

_PORT_ATTEMPTS = 3
_LAST_LOOK_S = 0.25

_log = OwnLog(__name__)


class Report(Protocol):
    """Takes what happens to one instance."""

    def __call__(self, kind: EventKind, **detail: Any) -> None:  # noqa: ANN401
        """Report ``kind``."""


async def start_up(instance: Instance, move: Callable[[State], None], report: Report) -> None:
    """Bring an instance up and return when it is ready.

    Args:
        instance: The instance; what it has taken already, it keeps.
        move: Told where the start stands.
        report: Told what happens.

    Raises:
        WorldStartError: It ended, a stranger answers in its place, or its time is over.
        Exception: Whatever :meth:`Instance.bring_up` raises.

    Cancellation: at any point; whoever owns the instance ends it.
    """
    if instance.launch.port is not None and not instance.has_port:
        await run_blocking(instance.take_name)
        await instance.wait_for_port()
    async with current_ramp().turn(report):
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            await _bring_up(instance, move)
            report("started", port=instance.port)
            try:
                await _become_ready(instance)
                break
            except (WorldExitedBeforeReady, WorldIdentityError):
                if not attempts_left or not await _has_lost_port(instance):
                    raise
            await _begin_again(instance)
            move(State.LEASING)


async def _bring_up(instance: Instance, move: Callable[[State], None]) -> None:
    try:
        await run_blocking(instance.bring_up, limiter=start_limiter())
    finally:
        if instance.has_port:
            move(State.SPAWNING)
    move(State.PROBING)


async def _has_lost_port(instance: Instance) -> bool:
    """Say whether somebody took a leased port between our test and the world's bind."""
    may_move = instance.launch.port is None and not instance.restarts
    return may_move and bool(await run_blocking(describe_owner, instance.port))


async def _begin_again(instance: Instance) -> None:
    _log.info("port lost, starting again", instance=instance.name)
    with anyio.CancelScope(shield=True):
        await instance.end(Grace(FAILED_START_GRACE_S))
        await run_blocking(partial(instance.begin_anew, keep_port=False))


@attrs.define
class _Race:
    """What came first of ready, a stranger, a failure and the exit; nothing means the deadline."""

    is_ready: bool = False
    has_exited: bool = False
    stranger: StrangerAnswers | None = None
    failure: OSError | None = None

    @property
    def is_decided(self) -> bool:
        """Whether anything came before the deadline."""
        return self.is_ready or self.has_exited or bool(self.stranger or self.failure)


async def _become_ready(instance: Instance) -> None:
    """Wait for the first of ready, exit and deadline.

    Raises:
        WorldStartError: It was not ready that came first.
        OSError: It cannot be looked at, for want of descriptors.
    """
    probe = instance.probe()
    expected_s = current_ramp().fastest_s
    race = await _run_race(instance, probe, instance.launch.health_timeout, expected_s)
    if not race.is_decided:
        # One more look: a deadline that passed while this process slept says nothing.
        race = await _run_race(instance, probe, _LAST_LOOK_S, 0.0)
    if race.has_exited:
        raise exited_before_ready(instance)
    if race.stranger is not None:
        raise identity_error(instance, race.stranger)
    if race.failure is not None:
        raise race.failure
    if not race.is_ready:
        raise await run_blocking(ready_timeout, instance, probe)


async def _run_race(instance: Instance, probe: Probe, seconds: float, expected_s: float) -> _Race:
    race = _Race()

    async def run_to_exit(finish: anyio.CancelScope) -> None:
        await instance.wait_exit()
        race.has_exited = True
        finish.cancel()

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as runners:
            runners.start_soon(run_to_exit, runners.cancel_scope)
            try:
                await wait_until_ready(probe, expected_s)
                await run_blocking(_settle, instance, probe)
                race.is_ready = True
            except StrangerAnswers as stranger:
                race.stranger = stranger
            except OSError as error:
                race.failure = error
            runners.cancel_scope.cancel()
    return race


def _settle(instance: Instance, probe: Probe) -> None:
    require_own_listener(probe, instance.mark)
    instance.note_ready()
