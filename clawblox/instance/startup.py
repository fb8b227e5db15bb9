"""One start of an instance, from its port to the answer that proves it ready.

The launcher does everything that blocks. A failed start releases nothing here: the owner of the
instance does that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import WorldExitedBeforeReadyError, WorldIdentityError, WorldStartError
from clawblox.instance.failures import (
    exited_before_ready,
    halted_before_ready,
    identity_error,
    ready_timeout,
)
from clawblox.instance.health import HaltedAtStart, StrangerAnswers
from clawblox.instance.instance import Instance
from clawblox.instance.launcher import Ending, Launcher
from clawblox.instance.lifecycle import State
from clawblox.instance.ramp import Pace
from clawblox.results import EventKind
from clawblox.supervision.tree import Grace, current_finder
from clawblox.system.ports import describe_owner
from clawblox.telemetry.own_log import OwnLog

FAILED_START_GRACE_S = 1.0
"""Seconds between TERM and KILL for an instance whose start failed or was given up."""

_PORT_ATTEMPTS = 3

_log = OwnLog(__name__)


class Tell(Protocol):
    """Takes the events of one instance."""

    def __call__(self, kind: EventKind, **detail: Any) -> None:  # noqa: ANN401
        """Take an event of ``kind``."""


async def start_up(
    instance: Instance, launcher: Launcher, move: Callable[[State], None], tell: Tell
) -> None:
    """Bring an instance up and return when it is ready.

    Args:
        instance: The instance; it keeps the resources that it already has.
        launcher: Does everything that blocks.
        move: Called with each new state.
        tell: Called with each event.

    Raises:
        WorldStartError: The world ended or halted, was not ready in time, or another process
            answers on its port.
        PortBusy: The port that was asked for is still in use.
        Exception: Whatever :meth:`Instance.bring_up` raises.

    Cancellation: leaves the instance as it is; its owner ends and releases it.
    """
    is_spawned = False

    def on_spawned() -> None:
        nonlocal is_spawned
        is_spawned = True
        move(State.SPAWNING)
        move(State.PROBING)
        tell("started", port=instance.port)

    def on_pace(pace: Pace) -> None:
        kind: EventKind = "ramp_slowed" if pace.is_slow else "ramp_recovered"
        tell(kind, limit=pace.limit, pressure=pace.pressure)

    if instance.launch.options.port is not None and not instance.has_port:
        await run_blocking(instance.take_name)
        await instance.wait_for_port()
    for attempts_left in reversed(range(_PORT_ATTEMPTS)):
        try:
            ending = await launcher.run(instance, on_spawned=on_spawned, on_pace=on_pace)
            failure = await _find_failure(instance, ending)
        except HaltedAtStart as halted:
            raise halted_before_ready(instance, halted.reason) from halted
        except StrangerAnswers as stranger:
            failure = identity_error(instance, stranger)
            failure.__cause__ = stranger
        except Exception:
            if instance.has_port and not is_spawned:
                move(State.SPAWNING)  # that is what failed
            raise
        if failure is None:
            return
        if not attempts_left or not await _has_lost_port(instance, failure):
            raise failure
        _log.info("port lost, starting again", instance=instance.name)
        with anyio.CancelScope(shield=True):
            await instance.end(Grace(FAILED_START_GRACE_S))
            await run_blocking(partial(instance.begin_anew, keep_port=False))
        is_spawned = False
        move(State.LEASING)


async def _find_failure(instance: Instance, ending: Ending) -> WorldStartError | None:
    """Return why a start failed; None when the instance is ready."""
    if ending is Ending.EXITED:
        await instance.wait_exit()
        return exited_before_ready(instance)
    if ending is Ending.LATE:
        processes = await current_finder().find(instance.running.mark)
        return await run_blocking(ready_timeout, instance, processes)
    return None


async def _has_lost_port(instance: Instance, failure: WorldStartError) -> bool:
    """Return whether a stranger took a leased port between our test and the world's bind."""
    if instance.keeps_port:
        return False
    if not isinstance(failure, WorldExitedBeforeReadyError | WorldIdentityError):
        return False
    return bool(await run_blocking(describe_owner, instance.port))
