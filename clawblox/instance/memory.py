"""Ends instances that use more memory than ``[limits] memory`` of their ``world.toml`` allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.instance.instance import Instance
from clawblox.system.process_tree import Mark, Search, find_trees, measure_usage
from clawblox.telemetry.own_log import OwnLog

_INTERVAL_S: Final = 1.0
_MB: Final = 1_000_000

_log = OwnLog(__name__)


LimitedInstances: TypeAlias = Mapping[Instance, Callable[[str], None]]
"""Instances, each with the function that ends it for a reason."""


async def watch_memory(find: Callable[[], LimitedInstances]) -> None:
    """Measure the memory of instances once a second, from their starts, until it is cancelled.

    Args:
        find: Returns the instances.

    Cancellation: waits for a measurement that is under way.
    """
    while True:
        await anyio.sleep(_INTERVAL_S)
        with _log.contain("memory not measured", expected=(OSError,)):
            ends = find()
            marks = {instance: instance.running.mark for instance in ends if _is_limited(instance)}
            used = await run_blocking(_measure_trees, [*marks.values()]) if marks else []
            for (instance, mark), used_bytes in zip(marks.items(), used, strict=True):
                if (reason := _find_excess(instance, mark, used_bytes)) is not None:
                    ends[instance](reason)


def _is_limited(instance: Instance) -> bool:
    has_limit = instance.launch.config.memory_limit_bytes is not None
    return has_limit and not instance.is_over and instance.halt is None


def _measure_trees(marks: Sequence[Mark]) -> list[int]:
    """Return the resident memory of instances in bytes; all share the passes over ``/proc``."""
    trees = find_trees([Search((mark,)) for mark in marks])
    return [measure_usage(process.pid for process in tree)[0] for tree in trees]


def _find_excess(instance: Instance, measured: Mark, used_bytes: int) -> str | None:
    """Return why to end an instance; None if it is within its limit, or was restarted since."""
    limit_bytes = instance.launch.config.memory_limit_bytes
    is_same = not instance.is_over and instance.running.mark == measured
    if limit_bytes is None or used_bytes <= limit_bytes or not is_same:
        return None
    return (
        f"its processes used {used_bytes / _MB:.0f} MB of memory, "
        f"and [limits] memory of its world.toml is {limit_bytes / _MB:.0f} MB"
    )
