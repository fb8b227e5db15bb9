"""What of an interrupted run goes on, from what, and what is left alone, as lines of text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime

from clawblox.cli.tables.formatting import format_age, format_seconds, shorten_path
from clawblox.printable import printable
from clawblox.results import SavedSnapshot
from clawblox.rundir.interrupted import Interrupted, Interruption
from clawblox.rundir.records import InstanceRecord


def describe_interruption(found: Interruption) -> Iterator[str]:
    """Yield a line for each instance that goes on, and one for those that are left alone."""
    width = max((len(record.name) for record in found.records), default=0)
    for instance in found.instances:
        yield f"  {instance.record.name:{width}}  {printable(_describe(instance))}"
    if found.left:
        yield f"Left alone: {describe_left(found)}"


def describe_left(found: Interruption) -> str:
    """Return why instances are left alone, with their names."""
    reasons: dict[str, list[str]] = {}
    for name, why in found.left.items():
        reasons.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())


def _describe(instance: Interrupted) -> str:
    if instance.problem is not None:
        return f"cannot go on: {instance.problem}"
    if not instance.number:
        return "begins now: it was waiting to be started"
    if instance.save is None:
        return f"as its run began: {instance.reason}"
    text = _describe_save(instance.save, instance.record)
    return text if instance.reason is None else f"{text}, because {instance.reason}"


def _describe_save(save: SavedSnapshot, record: InstanceRecord) -> str:
    # Of a file of the instance the name is enough, and the line fits a terminal.
    is_its = save.path.is_relative_to(record.instance_dir)
    place = save.path.name if is_its else shorten_path(save.path)
    time = [] if save.time is None else [f"sim time {save.time:g}"]
    return ", ".join((f"from {place}", *time, _describe_age(save, record)))


def _describe_age(save: SavedSnapshot, record: InstanceRecord) -> str:
    # Of an instance that was killed with its orchestrator, only the save tells the time.
    if record.state in ("exited", "failed") and record.ended_at is not None:
        with contextlib.suppress(ValueError):
            saved, ended = map(datetime.fromisoformat, (save.created_at, record.ended_at))
            return f"{format_seconds((ended - saved).total_seconds())} before it ended"
    return f"saved {format_age(save.created_at)} ago"
