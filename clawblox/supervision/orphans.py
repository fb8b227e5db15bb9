"""Orphans: processes whose orchestrator and guard were killed, known by their cookie.

A cookie on disk identifies the processes of a run. They are orphans if none of their ancestors is
an orchestrator with a guard. A pid on disk is not used, because another program may have reused it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.protocol import INSTANCE_ENV
from clawblox.supervision.tree import Grace, end_tree
from clawblox.system.guard import find_guarded
from clawblox.system.process_tree import (
    Mark,
    Proc,
    Search,
    all_processes,
    ancestors,
    await_spawns,
    find_trees,
    read_variables,
)

_GRACE_S: Final = 2.0
"""Seconds between TERM and KILL, as in a guard."""


def living_cookies() -> set[str]:
    """Return the cookies of all live processes, including recently spawned ones. Blocks.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    await_spawns()
    cookies = (read_variables(pid).get(INSTANCE_ENV) for pid in all_processes())
    return set(filter(None, cookies))


async def end_orphans(cookies: Collection[str]) -> dict[str, str]:
    """End the orphans with the given cookies: send TERM, wait two seconds, send KILL until all end.

    Processes of this orchestrator are left alone.

    Args:
        cookies: Values of ``CLAWBLOX_INSTANCE`` of the orphans.

    Returns:
        Reasons why processes are left, by cookie: another orchestrator runs them, or they survived
        SIGKILL.

    Raises:
        OSError: The processes cannot be inspected, for lack of descriptors.

    Cancellation: some orphans may have ended.
    """
    left: dict[str, str] = {}
    orphans, owned = await run_blocking(_find, sorted(set(cookies) - {""}))

    async def end(cookie: str) -> None:
        ended = await end_tree(_mark(cookie), None, Grace(_GRACE_S))
        if ended.survivors:
            left[cookie] = f"processes do not end: {', '.join(ended.survivors)}"

    async with anyio.create_task_group() as ends:
        for cookie in orphans:
            ends.start_soon(end, cookie)
    return {**left, **owned}


def _mark(cookie: str) -> Mark:
    return Mark(f"{INSTANCE_ENV}={cookie}".encode())


def _find(cookies: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the cookies of orphans, and the reasons for cookies of other orchestrators."""
    if not cookies:
        return [], {}
    await_spawns()
    trees = find_trees([Search((_mark(cookie),)) for cookie in cookies])
    members = {cookie: tree for cookie, tree in zip(cookies, trees, strict=True) if tree}
    if not members:
        return [], {}
    processes = all_processes()
    guarded = find_guarded() - {1}  # an orchestrator in a container may adopt orphans
    owners = {cookie: _find_owner(tree, processes, guarded) for cookie, tree in members.items()}
    ours = os.getpid()
    orphans = [cookie for cookie, owner in owners.items() if owner is None]
    others = {cookie: owner for cookie, owner in owners.items() if owner not in (None, ours)}
    return orphans, {cookie: f"pid {owner} runs its processes" for cookie, owner in others.items()}


def _find_owner(
    tree: Iterable[Proc], processes: Mapping[int, Proc], guarded: Collection[int]
) -> int | None:
    """Return the nearest orchestrator among the ancestors of some processes, or None.

    There may be several, because an orchestrator can spawn another orchestrator.
    """
    lines = (ancestors(proc.pid, processes) for proc in tree)
    return next((pid for line in lines for pid in line if pid in guarded), None)
