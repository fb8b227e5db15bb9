"""Ends instances that use more memory than ``[limits] memory`` of their ``world.toml`` allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.instance.supervisor import Supervisor
from clawblox.system.process_tree import Mark, Search, find_trees, measure_usage
from clawblox.telemetry.own_log import OwnLog

_INTERVAL_S: Final = 1.0
_MB: Final = 1_000_000

_log = OwnLog(__name__)


async def watch_memory(find: Callable[[], Iterable[Supervisor]]) -> None:
    """Measure the memory of instances once a second, from their starts, until it is cancelled.

    Args:
        find: Returns the instances.

    Cancellation: waits for a measurement that is under way.
    """
    while True:
        await anyio.sleep(_INTERVAL_S)
        with _log.contain("memory not measured", expected=(OSError,)):
            limited = {known: known.instance.running.mark for known in find() if _is_limited(known)}
            for known, used in (await _measure(limited)).items():
                _judge(known, limited[known], used)


def _is_limited(known: Supervisor) -> bool:
    instance = known.instance
    has_limit = instance.launch.config.memory_limit_bytes is not None
    return has_limit and not instance.is_over and instance.halt is None


async def _measure(marks: Mapping[Supervisor, Mark]) -> Mapping[Supervisor, int]:
    """Return the resident memory of instances in bytes; all share the passes over ``/proc``."""
    if not marks:
        return {}
    used = await run_blocking(_measure_trees, list(marks.values()))
    return dict(zip(marks, used, strict=True))


def _measure_trees(marks: Sequence[Mark]) -> list[int]:
    trees = find_trees([Search((mark,)) for mark in marks])
    return [measure_usage(process.pid for process in tree)[0] for tree in trees]


def _judge(known: Supervisor, measured: Mark, used_bytes: int) -> None:
    """End an instance that uses too much, unless it was restarted since it was measured."""
    limit_bytes = known.instance.launch.config.memory_limit_bytes
    is_same = not known.instance.is_over and known.instance.running.mark == measured
    if limit_bytes is not None and used_bytes > limit_bytes and is_same:
        known.end_at_limit(
            f"its processes used {used_bytes / _MB:.0f} MB of memory, "
            f"and [limits] memory of its world.toml is {limit_bytes / _MB:.0f} MB"
        )
