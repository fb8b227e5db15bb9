"""How a run ended, and what to type next: the last lines of ``run``, ``up`` and ``ps --watch``.

Pure: statuses go in, lines come out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from clawblox.agents.status import AgentStatus
from clawblox.rundir.status import InstanceStatus
from clawblox.views.formatting import count_words, format_age, format_exit, suggest
from clawblox.views.rows import make_row, summarise_agents


def summarise(
    run_dir: Path,
    statuses: Sequence[InstanceStatus],
    *,
    agents: Sequence[AgentStatus] = (),
    stopped: Collection[str] = (),
    may_resume: bool = False,
    can_resume: bool = True,
    names_logs: bool = True,
) -> list[str]:
    """Return how the instances and agents of a run ended, the saves, and what to type next.

    Args:
        run_dir: The run directory.
        statuses: The instances.
        agents: The agents.
        stopped: Names of those that were stopped rather than ended by themselves.
        may_resume: Whether they were stopped by the end of their orchestrator, so that they can be
            resumed.
        can_resume: Whether a resume would bring any of them back.
        names_logs: Whether the log of an instance that ended badly is suggested.
    """
    bad = [status for status in statuses if status.has_died and status.name not in stopped]
    is_resumable = can_resume and (bool(bad) or (may_resume and bool(stopped)))
    lines = [*_ends(statuses, stopped), *summarise_agents(agents), *_saves(statuses)]
    if is_resumable:
        lines.append(f"resume:  {suggest('resume', run_dir)}")
    if bad and names_logs:
        lines.append(f"logs:    {suggest('logs', run_dir, bad[0].name)}")
    return lines


def _ends(statuses: Sequence[InstanceStatus], stopped: Collection[str]) -> Iterator[str]:
    ordered = sorted(statuses, key=lambda status: (status.name in stopped, _rank(status)))
    ends = Counter(_describe_end(status, stopped) for status in ordered)
    if ends:
        counts = ", ".join(f"{count} {words}" for words, count in ends.items())
        yield f"{count_words(len(statuses), 'instance')}: {counts}."


def _rank(status: InstanceStatus) -> tuple[int, str, str]:
    return make_row(status, status.state).rank


def _describe_end(status: InstanceStatus, stopped: Collection[str]) -> str:
    if status.name in stopped:
        return "stopped"
    if status.state != "exited":
        return status.state
    return f"exited {format_exit(status.exit)}".rstrip()


def _saves(statuses: Sequence[InstanceStatus]) -> Iterator[str]:
    saved = [status for status in statuses if status.saved_at is not None]
    if saved:
        times = [status.sim_time for status in saved if status.sim_time is not None]
        stamps = sorted(str(status.saved_at) for status in saved)
        ages = _range(format_age(stamps[-1]), format_age(stamps[0]))
        sim = _range(f"{min(times):.1f}", f"{max(times):.1f}") if times else ""
        sim_time = f", sim time {sim}" if sim else ""
        yield f"Last saves: {len(saved)} of {len(statuses)}, {ages} old{sim_time}."


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"
