"""Processes of agents whose orchestrator was killed together with its guard."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from clawblox.agents.status import agents_in, read_record
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentError, AgentStartError
from clawblox.supervision.orphans import end_orphans


def left_agents(run_dir: Path) -> list[str]:
    """Return the cookies of the agents in a run directory that no orchestrator runs. Blocks.

    Args:
        run_dir: The run directory; agents elsewhere, which its manifest may name, are left out.
    """
    places = [place for place in agents_in(run_dir) if not place.is_symlink()]
    return [cookie for place in places if (cookie := _left_cookie(place)) is not None]


def _left_cookie(directory: Path) -> str | None:
    """Return the cookie of an agent that no orchestrator runs; None if one does, or for a copy."""
    with suppress(AgentError):  # whoever starts it gets the error
        record = read_record(directory)
        if record is not None and record.cookie and not record.has_owner:
            return None if _is_copied(directory, Path(record.dir), record.cookie) else record.cookie
    return None


def _is_copied(directory: Path, place: Path, cookie: str) -> bool:
    """Return whether the directory in which an agent ran is still where it was."""
    with suppress(AgentError):
        original = read_record(place)
        if original is not None and original.cookie == cookie:
            return not place.samefile(directory)
    return False


async def end_left_agent(directory: Path) -> None:
    """End the processes of an agent that its former orchestrator left behind.

    Args:
        directory: The directory of the agent.

    Raises:
        AgentStartError: Some cannot be ended.
        OSError: The processes cannot be looked at, for lack of descriptors.

    Cancellation: some of them may have ended.
    """
    cookie = await run_blocking(_left_cookie, directory)
    if cookie is None:
        return
    for reason in (await end_orphans([cookie])).values():
        raise AgentStartError(f"of its run before, {reason}", agent_dir=directory)
