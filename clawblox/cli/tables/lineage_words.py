"""The words of a lineage: what its pictures, tables and tooltips say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clawblox.cli.tables.formatting import count_words, format_bytes, format_exit, format_labels
from clawblox.cli.tables.lineage_layout import Branch, Turn
from clawblox.printable import printable
from clawblox.rundir.lineage import InstanceLineage, Lineage
from clawblox.rundir.lives import Life, LineageSave

_MAX_SAVES = 8
"""How many saves the tooltip of a ring tells of."""


def describe_lineage(lineage: Lineage) -> str:
    """Return how many instances, saves and deaths there are."""
    saves = sum(len(instance.saves) for instance in lineage.instances)
    forks = sum(instance.depth > 0 for instance in lineage.instances)
    deaths = sum(len(instance.deaths) for instance in lineage.instances)
    counts = [count_words(len(lineage.instances), "instance"), count_words(saves, "save")]
    counts += [count_words(forks, "fork")] if forks else []
    counts += [count_words(deaths, "death")] if deaths else []
    return ", ".join(counts)


def describe_state(instance: InstanceLineage) -> str:
    """Return the state of an instance, its exit, its restarts and its labels."""
    end = format_exit(instance.exit) if instance.state != "halted" else ""
    words = " ".join(filter(None, (instance.state or "not known", end)))
    if instance.restarts:
        words += f", {count_words(instance.restarts, 'restart')}"
    return printable("; ".join(filter(None, (words, format_labels(instance.labels)))))


def describe_saves(saves: Sequence[LineageSave]) -> list[str]:
    """Return lines about saves that share a place: file, times, size."""
    lines = [line for save in saves[:_MAX_SAVES] for line in _describe_save(save)]
    more = len(saves) - _MAX_SAVES
    return [*lines, f"and {count_words(more, 'save')} more"] if more > 0 else lines


def _describe_save(save: LineageSave) -> Iterator[str]:
    yield save.path.name
    time = None if save.time is None else f"sim time {save.time:g}"
    removed = save.removed_at and f"removed {save.removed_at}"
    size = format_bytes(save.size_bytes)
    if facts := ", ".join(filter(None, (time, save.created_at, size, removed))):
        yield facts


def describe_branch(branch: Branch) -> list[str]:
    """Return a line for each life on a branch: how it ended, and when."""
    return [_describe_end(life) for life in branch.lives]


def _describe_end(life: Life) -> str:
    if life.ended_by == "another_run":
        return f"earlier run {life.run_id}".strip()
    what = life.exit or "ended in an unknown way"
    return f"{what}; went on at {life.ended_at}" if life.ended_at else what


def describe_turn(turn: Turn) -> str:
    """Return what a restart or a resume was, when, and what it began from."""
    words = {"policy": "restarted", "request": "restarted on request", "resume": "resumed"}
    life = turn.life
    at = f" at {life.begun_at}" if life.begun_at else ""
    source = f" from {life.origin.path.name}" if life.origin else " afresh"
    return f"{words[life.begun_by]}{at}{source}"
