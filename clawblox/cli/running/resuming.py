"""Chooses and describes interrupted instances, for ``resume`` and ``up``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from clawblox.agents.status import read_agents
from clawblox.cli.terminal.output import ask, note
from clawblox.errors import ClawbloxError, UsageError
from clawblox.printable import name_some, printable
from clawblox.results import SavedSnapshot
from clawblox.rundir.experiments import find_experiment_part
from clawblox.rundir.interrupted import STOPPED_ON_PURPOSE, Interrupted, InterruptedRun
from clawblox.rundir.records import InstanceRecord
from clawblox.rundir.status import read_run
from clawblox.views.formatting import count_words, format_age, format_seconds, shorten_path, suggest

if TYPE_CHECKING:
    from clawblox.team.resume import TeamResume

_SHOWN_NAMES = 8

Choice: TypeAlias = Literal["continue", "fresh"]
"""How to treat interrupted instances: continue them, or start new instances."""


def require_interrupted(interruption: InterruptedRun, run_dir: Path) -> None:
    """Refuse a run without instances that can continue.

    Raises:
        ClawbloxError: No instance was interrupted; the text has the reason for each.
    """
    if not interruption.instances:
        stopped = [name for name, why in interruption.left.items() if why == STOPPED_ON_PURPOSE]
        raise ClawbloxError(
            f"Nothing to resume in '{shorten_path(run_dir)}': {_describe_left(interruption)}",
            hint=f"to resume an instance anyway: {suggest('resume', run_dir, stopped[0])}"
            if stopped
            else None,
        )


def show_interruption(
    interruption: InterruptedRun, run_dir: Path, team: TeamResume | None = None
) -> None:
    """Print the instances that continue, with their saves, and those that stay ended.

    Args:
        interruption: The instances.
        run_dir: Their run directory.
        team: The agent that continues with an instance, and the checkpoint; None for no agent.
    """
    count, total = len(interruption.instances), len(interruption.instances) + len(interruption.left)
    share = "" if count == total else f"{count} of "
    click.echo(f"Resuming {share}{count_words(total, 'instance')} of {shorten_path(run_dir)}:")
    width = max((len(record.name) for record in interruption.records), default=0)
    for instance in interruption.instances:
        click.echo(f"  {instance.record.name:{width}}  {printable(_describe_instance(instance))}")
    if interruption.left:
        click.echo(f"Left alone: {_describe_left(interruption)}")
    agent = None
    if team is not None:
        agent, checkpoint = team.record.agents[0].name, team.archive.name
        click.echo(f"  with its agent {printable(agent)}, both from {printable(checkpoint)}")
    others = [printable(other.name) for other in read_agents(run_dir) if other.name != agent]
    if others:
        click.echo(f"Not resumed: {count_words(len(others), 'agent')}, {', '.join(others)}.")
        from clawblox.cli.running.resume_sources import suggest_agent  # takes long to load

        for line in suggest_agent(interruption, run_dir):
            click.echo(f"With an agent:  {line}")
    if (part := find_experiment_part(run_dir)) is not None:
        line = suggest("experiment resume", part.experiment)
        click.echo(f"The experiment, with its agents:  {line}")


def choose(run_dir: Path, given: Choice | None) -> Choice:
    """Return how to treat the interrupted instances of a run directory.

    Args:
        run_dir: The run directory, resolved.
        given: The choice from the options; None asks on a terminal.

    Raises:
        UsageError: Instances were interrupted, and neither an option nor an answer has decided.
    """
    names = _find_names(run_dir)
    if given is not None or not names:
        return given or "fresh"
    text = _describe_names(run_dir, names)
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.echo(f"{text}.", err=True)
        answers: dict[str, Choice] = {"c": "continue", "f": "fresh"}
        question = partial(click.prompt, "Continue them, or start fresh? (c/f)", err=True)
        while (answer := ask(question)) is not None:
            if (choice := answers.get(answer.strip().lower()[:1])) is not None:
                return choice
            click.echo("Error: answer c or f", err=True)
    refuse_interrupted(
        run_dir, "--continue resumes them; --fresh starts new instances in their place"
    )
    return "fresh"


def refuse_interrupted(run_dir: Path, hint: str) -> None:
    """Refuse a run directory in which instances were interrupted. Blocks.

    Args:
        run_dir: The run directory, resolved.
        hint: Hint of the error.

    Raises:
        UsageError: Instances were interrupted.
    """
    if names := _find_names(run_dir):
        raise UsageError(
            _describe_names(run_dir, names),
            hint=f"{hint}\n"
            f"        to see what they continue from: {suggest('resume', run_dir, '--dry-run')}",
        )


def _find_names(run_dir: Path) -> Sequence[str]:
    """Return the interrupted instances; empty if an orchestrator runs, which prevents a start."""
    run = read_run(run_dir)
    return run.interrupted if run.owner_pid is None else ()


def note_interrupted(run_dir: Path) -> None:
    """Print a note on standard error about saves that a new run ignores. Blocks.

    Args:
        run_dir: The run directory, resolved.
    """
    run = read_run(run_dir)
    for status in run.instances:
        if status.name in run.interrupted and status.saved_path is not None:
            note(
                f"{status.name} was interrupted in '{shorten_path(run_dir)}'. This run starts "
                f"over.\nTo continue from its last save: --resume {shorten_path(status.saved_path)}"
            )


def _describe_names(run_dir: Path, names: Sequence[str]) -> str:
    count = count_words(len(names), "interrupted instance")
    return f"'{shorten_path(run_dir)}' has {count}: {name_some(names, _SHOWN_NAMES)}"


def _describe_left(interruption: InterruptedRun) -> str:
    """Return the reasons why instances are not resumed, with their names."""
    reasons: dict[str, list[str]] = {}
    for name, why in interruption.left.items():
        reasons.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())


def _describe_instance(instance: Interrupted) -> str:
    if instance.problem is not None:
        return f"cannot continue: {instance.problem}"
    if not instance.number:
        return "begins now: it was waiting to be started"
    if instance.last_save is None:
        return f"from the start of its run: {instance.reason}"
    text = _describe_save(instance.last_save, instance.record)
    return text if instance.reason is None else f"{text}, because {instance.reason}"


def _describe_save(save: SavedSnapshot, record: InstanceRecord) -> str:
    # For a file of the instance, the name suffices, and the line fits on a terminal.
    is_its = save.path.is_relative_to(record.instance_dir)
    place = save.path.name if is_its else shorten_path(save.path)
    time = [] if save.time is None else [f"sim time {save.time:g}"]
    return ", ".join((f"from {place}", *time, _describe_age(save, record)))


def _describe_age(save: SavedSnapshot, record: InstanceRecord) -> str:
    # If an instance was killed with its orchestrator, only the time of the save is known.
    if record.state in ("exited", "failed") and record.ended_at is not None:
        with contextlib.suppress(ValueError):
            saved, ended = map(datetime.fromisoformat, (save.created_at, record.ended_at))
            return f"{format_seconds((ended - saved).total_seconds())} before it ended"
    return f"saved {format_age(save.created_at)} ago"
