"""``clawblox run``: runs one world in the foreground until Ctrl-C."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs
import click
from click.core import ParameterSource

from clawblox.cli.field_options import (
    SectionedCommand,
    is_typed,
    option_words,
    options_from,
    section_option,
    typed_parameters,
)
from clawblox.cli.options import StopOptions
from clawblox.cli.parameters import examples, world_argument
from clawblox.cli.running.foreground import Foreground
from clawblox.cli.running.resume_sources import (
    ResumeSource,
    find_resume_source,
    require_turns_left,
    world_options,
)
from clawblox.cli.running.resuming import note_interrupted, refuse_interrupted
from clawblox.cli.running.run_dirs import (
    inner_runs_dir,
    make_tokens,
    open_world,
    opened_run_dir,
    outer_run_dir,
)
from clawblox.config.options import StartOptions
from clawblox.rundir.interrupted import set_aside
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.status import read_run
from clawblox.team.record import AgentRunOptions, RunAgent
from clawblox.views.formatting import shorten_path, suggest
from clawblox.world.async_world import AsyncWorld

if TYPE_CHECKING:
    from clawblox.cli.running.companion import Companion


@examples("""
  clawblox run                          the world in this directory
  clawblox run worlds/panda --port 0    on a free port
  clawblox run worlds/panda --record --run-dir runs/r001
  clawblox run worlds/panda --resume runs/r001/checkpoints/s1.json
  clawblox run worlds/panda --resume gen001.ckpt --run-dir runs/r002
  clawblox run --resume runs/r001       world, agent and options of that run
  clawblox run https://github.com/OWNER/REPO/tree/main/worlds/panda
  clawblox run worlds/panda --agent claude --max-turns 20

Ctrl-C, SIGTERM and SIGHUP stop the world, and a second signal kills it; the exit status is then
130, 143 or 129. The status is 1 if the world or its agent does not start or ends unexpectedly,
and 0 if the agent has used up its budget, or clawblox stop has stopped the agent or the world.
""")
@click.command("run", cls=SectionedCommand)
@world_argument
@options_from(
    StartOptions,
    "options",
    without=("env", "detach", "restart", "max_restarts", "restart_window"),
    defaults={"port": 8080},
    reads_environment=True,
)
@section_option(
    "--tmux",
    section="Files and names",
    metavar="SESSION",
    help="Run the world in a window of this tmux session, and show its agent in another.",
)
@section_option(
    "--fresh",
    "is_fresh",
    is_flag=True,
    section="Recording and resuming",
    help="Start over even if instances were interrupted in the run directory.",
)
@options_from(AgentRunOptions, "agent_options", reads_environment=True)
@options_from(StopOptions, "stop_options")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    world: str,
    options: StartOptions,
    tmux: str | None,
    is_fresh: bool,
    agent_options: AgentRunOptions,
    stop_options: StopOptions,
) -> int:
    """Run one world in the foreground until Ctrl-C.

    WORLD is a directory with a world.toml, or the URL of one in a GitHub repository; by default
    the current directory. When the world is ready, its address is printed, followed by its output.
    An option overrides its environment variable.

    With --agent, an agent acts in the world, and its actions are printed in place of the world's
    output. To continue such a run, give its directory or its checkpoint.json to --resume: world and
    agent are restored in a new run directory, with their options.

    \f
    Raises:
        ClawbloxError: The world could not be started, or ended unexpectedly.
        UsageError: Instances were interrupted in the run directory, and no option decides about
            them.
    """
    source = None
    if isinstance(options.resume, str | os.PathLike):
        source = find_resume_source(os.fspath(options.resume), Path(world).absolute())
    if source is not None:
        if source.record is not None and not is_typed(ctx, "world"):
            world = source.record.world_dir
        recorded = {
            name: value
            for name, value in world_options(source.record).items()
            if ctx.get_parameter_source(name) is ParameterSource.DEFAULT
        }
        options = attrs.evolve(options, **recorded, resume=source.path)
    agent = _choose_agent(ctx, agent_options, tmux, source)
    opened = open_world(world)
    inner = inner_runs_dir(os.environ, options.port)
    given = _given_run_dir(ctx, options, is_inner=inner is not None)
    with opened_run_dir(opened, given, place=inner) as run_dir:
        click.echo(f"Run directory: {shorten_path(run_dir)}")
        companion = None
        if agent is not None:
            from clawblox.cli.running.companion import Companion  # takes long to load

            companion = Companion(opened, run_dir, agent, is_fresh=options.resume is None)
            companion.resume_words = resume_words(opened, options, agent, stop_options)
        if options.resume is None:
            _begin_again(ctx, resolve_run_dir(run_dir), options.name, is_fresh=is_fresh)
        return anyio.run(_run, opened, run_dir, options, tmux, stop_options, companion)


def _begin_again(ctx: click.Context, run_dir: Path, name: str | None, *, is_fresh: bool) -> None:
    """Set interrupted instances of a run directory aside, or refuse to start in their place.

    An instance of another name may start next to them. A run that is the world of another run
    starts over together with that run.

    Raises:
        UsageError: Instances were interrupted in a directory that the caller named.
    """
    if is_fresh:
        set_aside(run_dir, read_run(run_dir).interrupted)
    elif name is not None and name not in read_run(run_dir).interrupted:
        return
    elif any(is_typed(ctx, name) for name in ("run_dir", "record_dir")):
        refuse_interrupted(
            run_dir, f"{suggest('resume', run_dir)} resumes them; --fresh starts in their place"
        )
    else:
        note_interrupted(run_dir)


# -- a run that continues -------------------------------------------------------------------------

_OF_ONE_RUN = ("record_dir", "reseed", "resume", "run_dir")
"""Options that a run does not inherit from the run that it continues."""


def resume_words(
    world: AsyncWorld, options: StartOptions, agent: RunAgent, stop_options: StopOptions
) -> list[str]:
    """Return the command line that continues a world and its agent, without ``--resume``."""
    place = shorten_path(world.dir)
    return [
        *("clawblox", "run", f"./{place}" if place.startswith("-") else place),
        *option_words(command, options, without=_OF_ONE_RUN),
        *(() if agent.tmux is None else ("--tmux", agent.tmux)),
        *option_words(command, agent.options, without=("max_turns",)),
        *option_words(command, stop_options),
    ]


def _choose_agent(
    ctx: click.Context, options: AgentRunOptions, tmux: str | None, source: ResumeSource | None
) -> RunAgent | None:
    """Return the agent of the options, or else the agent of the run to continue.

    Raises:
        ClawbloxError: The agent of the run has used all its allowed turns.
        click.UsageError: Options of an agent are given without an agent.
    """
    recorded = None if source is None else source.agent
    typed = list(typed_parameters(ctx, attrs.fields_dict(AgentRunOptions)))
    given = {str(param.name): getattr(options, str(param.name)) for param in typed}
    if recorded is None or options.agent not in (None, recorded.options.agent):
        if options.agent is None and given:
            raise click.UsageError(f"{typed[0].opts[0]}: must be given with --agent", ctx)
        return None if options.agent is None else RunAgent(options=options, tmux=tmux)
    agent = RunAgent(
        options=attrs.evolve(recorded.options, **{"max_turns": None, **given}),
        tmux=tmux or recorded.tmux,
        turn_limit=None if "max_turns" in given else recorded.turn_limit,
    )
    if source is not None and source.run_dir is not None:
        require_turns_left(source.run_dir, agent)
    return agent


# -- the run ------------------------------------------------------------------------------------


async def _run(
    world: AsyncWorld,
    run_dir: Path,
    options: StartOptions,
    tmux: str | None,
    stop_options: StopOptions,
    companion: Companion | None,
) -> int:
    tokens = make_tokens()
    options = attrs.evolve(options, run_dir=run_dir, env=tokens, _tmux_session=tmux)
    foreground = Foreground(
        world,
        run_dir,
        partial(world.start, **options.arguments()),
        tokens=tokens,
        grace_seconds=stop_options.grace_seconds,
        companion=companion,
    )
    return await foreground.run_until_asked()


def _given_run_dir(ctx: click.Context, options: StartOptions, *, is_inner: bool) -> Path | None:
    """Return the requested run directory; None for a new directory.

    Args:
        ctx: The context of the command.
        options: Its options.
        is_inner: Whether the run is the world of another run and must not use its directory.
    """
    if options.run_dir is not None:
        return Path(options.run_dir).absolute()
    record_home = None if options.record_dir is None else options.record_dir.parent
    if is_typed(ctx, "record_dir"):
        return record_home
    return None if is_inner else outer_run_dir(os.environ) or record_home
