"""``clawblox resume``: continues an interrupted run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs
import click

from clawblox.agents.layout import AGENTS_DIR
from clawblox.cli.experiment_dirs import refuse_running_attempt
from clawblox.cli.field_options import (
    SectionedCommand,
    options_from,
    section_option,
    typed_parameters,
)
from clawblox.cli.options import OrchestratorOptions, ResumeOptions, StopOptions
from clawblox.cli.parameters import Selection, examples, run_dir_arguments
from clawblox.cli.running.batch_run import BatchRun, add_orchestrator_options, run_batch
from clawblox.cli.running.resuming import require_interrupted, show_interruption
from clawblox.cli.running.run_dirs import make_tokens, open_world
from clawblox.cli.terminal.output import note
from clawblox.concurrency.batch import Batch
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import StartOptions
from clawblox.errors import ClawbloxError, UsageError
from clawblox.printable import printable
from clawblox.results import StartedWorld
from clawblox.rundir.interrupted import InterruptedRun, find_interrupted
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.status import read_run
from clawblox.views.formatting import format_labels, shorten_path, suggest
from clawblox.world.async_world import AsyncWorld
from clawblox.world.resume import find_resumable
from clawblox.world_keys import CONFIG_NAME

if TYPE_CHECKING:
    from clawblox.team.resume import TeamResume


@examples("""
  clawblox resume runs/r001             all interrupted instances
  clawblox resume runs/r001 --dry-run   only show which, and from which saves
  clawblox resume runs/r001 w000 w003   these two, even if stopped on purpose
  clawblox resume runs/r001 --autosave 300 --detach

After a crash, a reboot or Ctrl-C, each instance continues with the same name, directory and
options, from the last good save of its run; without a save, from the start of its run. An
instance that was stopped on purpose, or whose world ended with status 0, is left alone. Values
of --env are not stored on disk: set these variables in the environment, or give --env again.
The agent of a clawblox run --agent continues too, in the foreground, from the latest checkpoint
of both.

Signals and the exit status are as for clawblox up; the status is also 1 if there are no
instances to resume.
""")
@click.command("resume", cls=SectionedCommand)
@run_dir_arguments
@options_from(ResumeOptions, "options")
@section_option(
    "--dry-run",
    section="Instances",
    is_flag=True,
    help="Only show which instances would continue, and from which saves.",
)
@add_orchestrator_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    chosen: Selection,
    options: ResumeOptions,
    dry_run: bool,
    orchestrator_options: OrchestratorOptions,
    starter_fd: int | None,
) -> int:
    """Continue an interrupted run until Ctrl-C or until all instances have ended.

    RUN_DIR is the current directory by default; without an INSTANCE, all interrupted instances
    continue.

    \f
    Raises:
        ClawbloxError: There are no instances to resume; or instances failed to start.
        UsageError: Instances of several worlds were interrupted; or a name or a label is wrong.
    """
    directory = resolve_run_dir(chosen.run_dir)
    refuse_running_attempt(directory)
    names = _choose(chosen)

    async def resume() -> int:
        # A preview leaves the leftover processes of a killed orchestrator alone.
        look = partial(run_blocking, find_interrupted) if dry_run else find_resumable
        interruption = await look(directory, names)
        require_interrupted(interruption, directory)
        team = None
        if (directory / AGENTS_DIR).is_dir():
            from clawblox.cli.running.resume_sources import find_team_resume  # takes long to load

            team = find_team_resume(directory, interruption)
        if team is not None:
            interruption = team.found
        world = _open_its_world(interruption)
        show_interruption(interruption, directory, team)
        if dry_run:
            return 0
        env = options.env if team is None else {**make_tokens(), **options.env}
        start = partial(
            world.resume_all, directory, instances=names or None, env=env, found=interruption
        )
        if team is not None:
            duties = attrs.fields_dict(OrchestratorOptions).keys() - attrs.fields_dict(StopOptions)
            for param in typed_parameters(ctx, duties):
                raise click.UsageError(
                    f"{param.opts[0]}: must not be given for a run with an agent, which continues "
                    "in the foreground and makes checkpoints as clawblox run does",
                    ctx,
                )
            return await _run_with_agent(
                world, team, start, env, orchestrator_options.grace_seconds
            )
        count = len(interruption.instances)
        batch_run = BatchRun(
            world, directory, count, start, orchestrator_options, starter_fd, verb="Resuming"
        )
        return await run_batch(ctx, batch_run)

    return anyio.run(resume)


# -- with an agent ------------------------------------------------------------------------------


async def _run_with_agent(
    world: AsyncWorld,
    team: TeamResume,
    start: Callable[[], Awaitable[Batch[StartedWorld]]],
    tokens: Mapping[str, str],
    grace_seconds: float,
) -> int:
    from clawblox.cli.commands.run import resume_words  # these take long to load
    from clawblox.cli.running.companion import Companion
    from clawblox.cli.running.foreground import Foreground
    from clawblox.cli.running.resume_sources import world_options
    from clawblox.cli.terminal.screen import work_with_bar

    for name, aside in (await work_with_bar("Loading", team.restore)).items():
        if aside is not None:
            click.echo(f"  later work of {name} is set aside in {shorten_path(aside)}")
    agent = team.record.command_line
    assert agent is not None
    agent = attrs.evolve(agent, options=attrs.evolve(agent.options, max_turns=None))
    companion = Companion(world, team.run_dir, agent, is_fresh=False)
    (record,) = (one for one in team.found.records if one.name == team.instance)
    companion.resume_words = resume_words(
        world,
        StartOptions(**world_options(record)),
        agent,
        StopOptions(grace_seconds=grace_seconds),
    )

    async def start_its_own() -> StartedWorld:
        batch = await start()
        for name in batch.failed.keys() - {team.instance}:
            note(f"{name}: {printable(str(batch.failed[name]))}")
        return batch[team.instance]

    foreground = Foreground(
        world,
        team.run_dir,
        start_its_own,
        tokens=tokens,
        grace_seconds=grace_seconds,
        companion=companion,
    )
    return await foreground.run_until_asked()


# -- which instances ----------------------------------------------------------------------------


def _choose(chosen: Selection) -> Sequence[str]:
    """Return the names of the chosen instances; an empty result means all interrupted instances."""
    if not chosen.labels or chosen.typed:
        return chosen.names
    interrupted = set(read_run(chosen.run_dir).interrupted)
    if not (matches := [name for name in chosen.names if name in interrupted]):
        place, labels = shorten_path(chosen.run_dir), format_labels(chosen.labels)
        raise ClawbloxError(
            f"No instance to resume in '{place}' has {labels}",
            hint=f"{suggest('ps', chosen.run_dir)} shows the instances",
        )
    return matches


def _open_its_world(interruption: InterruptedRun) -> AsyncWorld:
    """Return the world of the instances to resume."""
    worlds: dict[str, list[str]] = {}
    for record in interruption.records:
        worlds.setdefault(record.world_dir, []).append(record.name)
    if len(worlds) > 1:
        parts = (f"{Path(world).name} ({', '.join(names)})" for world, names in worlds.items())
        raise UsageError(
            f"Instances of {len(worlds)} worlds were interrupted: {'; '.join(parts)}",
            hint="name the instances of a single world",
        )
    ((world_dir, names),) = worlds.items()
    if not (Path(world_dir) / CONFIG_NAME).is_file():
        raise ClawbloxError(
            f"The world of {', '.join(names)} is gone: there is no {CONFIG_NAME} in '{world_dir}'",
            hint="restore the directory of the world",
        )
    return open_world(world_dir)
