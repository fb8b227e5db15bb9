"""Restarting instances of a run directory from another process, through their orchestrators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from clawblox.concurrency.batch import Outcome
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, ControlError
from clawblox.rundir.control_client import control_dir, find_sockets, request
from clawblox.rundir.records import InstanceRecord
from clawblox.rundir.requests import Restarted, read_outcome
from clawblox.rundir.status import select_records

__all__ = ["OnRestarted", "restart_instances"]

OnRestarted: TypeAlias = Callable[[Outcome[Restarted]], None]
"""Takes what the restart of an instance came to."""


async def restart_instances(
    run_dir: Path,
    names: Sequence[str],
    *,
    save: bool,
    fresh: bool,
    grace_seconds: float,
    on_restarted: OnRestarted,
) -> None:
    """Have the orchestrators of instances restart them, all at once.

    Args:
        run_dir: The run directory.
        names: The instances; none of them means all.
        save: Whether to save those first that are ready.
        fresh: Whether they begin as the first time; nothing is saved then.
        grace_seconds: Seconds between TERM and KILL.
        on_restarted: Called with each outcome as it lands.

    Raises:
        UsageError: One of ``names`` is not there.
        ClawbloxError: All are meant, and no orchestrator runs there.

    Cancellation: restarts that have begun go on.
    """
    records = await run_blocking(select_records, run_dir, names)
    owned, free = await run_blocking(_group_by_socket, run_dir, records)
    asked = {"save": save, "fresh": fresh, "grace_seconds": grace_seconds}
    if not names and not owned:
        raise _no_orchestrator(f"no orchestrator runs in {run_dir}", run_dir)
    for name in free if names else ():
        error = _no_orchestrator("its orchestrator does not run any more", run_dir, name)
        on_restarted(Outcome(name, error=error))
    async with anyio.create_task_group() as requests:
        for path, group in owned.items():
            requests.start_soon(_ask, path, group if names else None, asked, on_restarted)


def _no_orchestrator(message: str, run_dir: Path, *names: str) -> ClawbloxError:
    words = " ".join(("clawblox resume", str(run_dir), *names))
    return ClawbloxError(f"{message}, so nothing can be restarted", hint=f"to go on: {words}")


async def _ask(
    path: Path, names: Sequence[str] | None, asked: Mapping[str, Any], on_restarted: OnRestarted
) -> None:
    waiting = set(names or ())

    def take(event: Mapping[str, Any]) -> None:
        waiting.discard(event["instance"])
        on_restarted(read_outcome(event, Restarted))

    try:
        await request(path, "restart", {**asked, "instances": names}, take)
    except ControlError as error:
        if names is None:
            raise
        for name in sorted(waiting):
            on_restarted(Outcome(name, error=error))


def _group_by_socket(
    run_dir: Path, records: Iterable[InstanceRecord]
) -> tuple[dict[Path, list[str]], list[str]]:
    """Return the names of the instances of each control socket that is served, and all others.

    An orchestrator can restart those of its instances that have died, too. Blocks.
    """
    served = set(find_sockets(run_dir))
    owned: dict[Path, list[str]] = {}
    free: list[str] = []
    for record in records:
        path = control_dir(run_dir) / f"{record.control}.sock"
        (owned.setdefault(path, []) if path in served else free).append(record.name)
    return owned, free
