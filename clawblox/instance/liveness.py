"""Liveness: whether a world that was ready still answers.

The words are the kubelet's: every ``period`` seconds a look that may take ``timeout`` seconds, and
``failure_threshold`` failures in a row mean that the world hangs. A world that says itself that it
has halted is believed at once. It has nothing to do with readiness, and only a world whose
``world.toml`` asks for it is looked at.
"""

from __future__ import annotations

import anyio
import structlog

from clawblox.concurrency.deadlines import patience
from clawblox.config.world_toml import LivenessRule
from clawblox.instance.readiness import Probe

__all__ = ["wait_until_unresponsive"]

_log = structlog.get_logger(__name__)


async def wait_until_unresponsive(probe: Probe, rule: LivenessRule) -> str:
    """Look at a world until it has halted or failed to answer too often; return what was seen last.

    Time in which this process did not run counts as nobody's failure.

    Args:
        probe: How to look; its ``halt`` tells afterwards why the world has halted, if it has.
        rule: How often, how long, and how many failures.

    Cancellation: leaves no connection open.
    """
    failures = 0
    while failures < rule.failure_threshold and probe.halt is None:
        await anyio.sleep(rule.period)
        try:
            failures = 0 if await _answers(probe, rule.timeout) else failures + 1
        except OSError as error:  # want of descriptors here says nothing of the world
            _log.warning("liveness not looked at", error=str(error))
    return probe.seen


async def _answers(probe: Probe, timeout: float) -> bool:
    is_good = False
    async with patience(timeout) as scope:
        is_good = await probe.look()
    if scope.cancelled_caught:
        probe.seen = f"{probe.seen} within {timeout:g} s"
    return is_good
