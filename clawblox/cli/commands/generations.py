"""``clawblox generations``: runs a chain of generations, with the options of the public script."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

import anyio
import click
from click.core import ParameterSource

from clawblox.cli.field_options import SectionedCommand, add_options, section_option
from clawblox.cli.parameters import (
    DIR,
    FILE,
    SECONDS,
    background_option,
    count_type,
    examples,
)
from clawblox.cli.running.experiment_run import ExperimentCall, run_experiment
from clawblox.cli.terminal.output import note
from clawblox.config.arguments import check_duration, mismatch
from clawblox.errors import ConfigError, UsageError
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.harness import BACKENDS, GenerationOptions, find_env, make_room
from clawblox.experiment.layout import format_stamp
from clawblox.experiment.plan.parts import DEFAULT_SAVE_PROMPT
from clawblox.experiment.plan.sweep import MAX_CHAINS
from clawblox.system.clock import utc_now
from clawblox.views.formatting import shorten_path

_MAX_GENERATIONS: Final = 10**6
_MAX_AGENTS: Final = 1000
_COUNT: Final = count_type(1, _MAX_GENERATIONS)
_DURATION: Final = re.compile(r"[1-9][0-9]*[smh]?")


class _GenerationDuration(click.ParamType[float]):
    """A whole number of seconds, minutes or hours, in the format of the public script."""

    name = "duration"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the duration in seconds.

        Raises:
            click.BadParameter: The value is not such a duration.
        """
        text = str(value).strip()
        if not _DURATION.fullmatch(text):
            self.fail(f"must be a duration like 3600, 60m or 1h, not {text!r}", param, ctx)
        try:
            return check_duration(text, "")
        except ConfigError as error:
            self.fail(error.message, param, ctx)


def _option(
    section: str, *flags: str, envvar: str | None = None, default: object = None, **others: Any
) -> Any:  # noqa: ANN401 - a decorator
    """Return an option that an environment variable also sets, by default of the same name."""
    others.setdefault("show_default", default is not None)
    return section_option(
        *flags,
        section=section,
        envvar=envvar or flags[0].partition("/")[0].strip("-").replace("-", "_").upper(),
        show_envvar=True,
        default=default,
        **others,
    )


_chain = partial(_option, "Generations")
_agent = partial(_option, "Agent")
_world = partial(_option, "Address")
_files = partial(_option, "Files and names")
_saves = partial(_option, "Saves")
_failures = partial(_option, "Failures")
_timeouts = partial(_option, "Timeouts")
_resuming = partial(section_option, section="Recording and resuming")


_OPTIONS: Final = (
    _chain(
        "--generations",
        default=30,
        type=_COUNT,
        help="Number of the last generation, including complete generations.",
    ),
    _chain(
        "--generation-duration",
        default="30m",
        type=_GenerationDuration(),
        metavar="DURATION",
        help="Duration of a generation, including the time for saving: 3600, 60m or 1h.",
    ),
    section_option(
        "--parallel",
        section="Generations",
        default=1,
        show_default=True,
        type=count_type(1, MAX_CHAINS),
        help="Number of chains that run at the same time, each with a directory below chains.",
    ),
    _agent(
        "--backend",
        default="claude",
        type=click.Choice(BACKENDS),
        help="Program of the agents.",
    ),
    _agent(
        "--agents-per-world",
        default=1,
        type=count_type(1, _MAX_AGENTS),
        help="Number of agents.",
    ),
    _agent(
        "--model",
        show_default="the program's own choice",
        metavar="MODEL",
        help="Model to use.",
    ),
    _agent("--goal", default="Begin", metavar="TEXT", help="First message."),
    _agent(
        "--template",
        type=DIR,
        show_default="agent/template/agent if it exists",
        help="Directory with the workspace of the first generation.",
    ),
    section_option(
        "--system-prompt",
        section="Agent",
        type=FILE,
        show_default="system_prompt.md of the world",
        help="File with the system prompt.",
    ),
    _agent(
        "--permission-mode",
        default="bypassPermissions",
        metavar="MODE",
        help="Permission mode, in the program's own terms.",
    ),
    _agent("--sandbox/--no-sandbox", default=True, help="Run the programs in a sandbox."),
    _agent(
        "--claude-native-sandbox/--no-claude-native-sandbox",
        default=True,
        help="Also let Claude Code run its commands in its own sandbox.",
    ),
    _agent(
        "--bare",
        default=False,
        is_flag=True,
        help="Let Claude Code skip hooks and files that it reads automatically.",
    ),
    _world(
        "--base-port",
        default=8085,
        type=count_type(1, 65535),
        metavar="PORT",
        help="Port of the world; with --parallel, free ports are used.",
    ),
    _world(
        "--port-wait",
        envvar="PORT_WAIT_SECONDS",
        default=120,
        type=SECONDS,
        help="Time to wait for a busy port.",
    ),
    _resuming(
        "--resume",
        is_flag=True,
        help="Continue after the last complete generation, with its recorded options.",
    ),
    _resuming(
        "--resume-from",
        type=FILE,
        help="Continue a generation from an archive, then run the later ones.",
    ),
    _resuming(
        "--force",
        is_flag=True,
        help="Start over if the experiment exists; its directory is renamed to NAME.replaced-TIME.",
    ),
    _resuming(
        "--accept",
        multiple=True,
        metavar="FIELD",
        help="Accept a change of world, prompts, templates or version; can be repeated.",
    ),
    _option(
        "Recording and resuming",
        "--record/--no-record",
        default=True,
        help="Let the world record its run.",
    ),
    _files(
        "--world-dir",
        default="worlds/mujoco-panda",
        type=DIR,
        help="Directory of the world; the experiment is in results below it.",
    ),
    _files(
        "--experiment-id",
        default=lambda: f"genexp-python-{format_stamp(utc_now())}",
        show_default="genexp-python-<time>",
        metavar="ID",
        help="Name of the experiment.",
    ),
    _files(
        "--run-prefix",
        show_default="the experiment's name",
        metavar="PREFIX",
        help="Prefix of the names of runs.",
    ),
    _files(
        "--tmux-prefix",
        default="clawblox-gen-python",
        metavar="PREFIX",
        help="Prefix of the names of tmux sessions.",
    ),
    _files(
        "--prune-reconstructable-artifacts/--no-prune-reconstructable-artifacts",
        default=True,
        show_default=False,
        help="After a generation, remove versions of programs and virtual environments of agents.",
    ),
    _saves(
        "--save-prompt",
        default=DEFAULT_SAVE_PROMPT,
        show_default=False,
        metavar="TEXT",
        help="Message before the end of a generation.",
    ),
    _saves(
        "--save-time",
        envvar="SAVE_GRACE_SECONDS",
        default=300,
        show_default="300, at most a quarter of the duration",
        type=SECONDS,
        help="Time before the end at which this message is sent; 0 sends no message.",
    ),
    section_option(
        "--full-save-phase",
        section="Saves",
        is_flag=True,
        help="Wait until this time is over even if all agents are done.",
    ),
    _saves(
        "--checkpoint-every",
        default=900,
        type=SECONDS,
        help="Make a checkpoint of world and agents at this interval; 0 disables this.",
    ),
    _failures(
        "--retries",
        envvar="MAX_GENERATION_RETRIES",
        default=3,
        type=count_type(0),
        help="Maximum number of retries of a generation, from its last checkpoint.",
    ),
    _failures(
        "--retry-delay",
        envvar="RETRY_DELAY_SECONDS",
        default=15,
        type=SECONDS,
        help="Time before a retry.",
    ),
    _timeouts(
        "--health-timeout",
        default=30,
        type=SECONDS,
        help="Time limit for a world to become ready.",
    ),
    _timeouts(
        "--grace",
        "grace_seconds",
        envvar="STOP_GRACE_SECONDS",
        default=1,
        type=SECONDS,
        help="Time between TERM and KILL when worlds and agents are stopped.",
    ),
    section_option(
        "--detach",
        section="Orchestrator",
        is_flag=True,
        help="Return when the experiment has started, and keep running in the background.",
    ),
)


@examples("""
  clawblox generations --world-dir worlds/panda --generations 10
  clawblox generations --world-dir worlds/panda --experiment-id e1 --resume
  clawblox generations --world-dir worlds/panda --parallel 4

The options, variables and files are those of the public script run_agent_generations.py, but
--force deletes nothing. The files are a table of the generations, a pointer to the latest
archive, and run directories. Each program can continue an experiment of the other.

If CLAUDE_CODE_OAUTH_TOKEN is not in the environment, agents get it from the file .env in the
current directory, or from the file that CLAWBLOX_ENV_FILE names.

Ctrl-C saves and stops, a second Ctrl-C kills; --resume continues. Exit status: 0 all
generations are complete, 1 some failed, 75 paused, 130 interrupted, 2 wrong usage.
""")
@click.command("generations", cls=SectionedCommand)
@add_options(*_OPTIONS)
@background_option
@click.pass_context
def command(ctx: click.Context, /, *, detach: bool, starter_fd: int | None, **values: Any) -> int:
    """Run a chain of generations of agents in one world.

    Each generation has a new world, and its agents inherit the workspaces of their predecessors.

    \f
    Raises:
        ConfigError: The value of an option is wrong.
        UsageError: The directory of the experiment exists, and no option continues or replaces it;
            or the options contradict each other.
        RunLockedError: Another process runs the experiment that would be replaced.
        ClawbloxError: There is no experiment to continue.
    """
    given = {
        name
        for name in values
        if ctx.get_parameter_source(name)
        in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    }
    options = GenerationOptions(values=values, given=given)
    if values["force"] and not options.is_new:
        raise UsageError("--force: must be left out when an experiment is continued")
    name, *others = ctx.obj
    call = ExperimentCall(
        directory=options.directory,
        command=[name],
        args=["--experiment-id", options.name, *others],  # the default depends on the time
        detach=detach,
        starter_fd=starter_fd,
    )
    if options.is_new and not call.is_spawned:
        clear_directory(options)
    return anyio.run(run_experiment, call, partial(open_generations, options))


def open_generations(options: GenerationOptions) -> AsyncExperiment:
    """Return the experiment that the options start or continue, not open yet. Blocks.

    Args:
        options: The options.

    Raises:
        ConfigError: The value of an option is wrong.
        ClawbloxError: There is no experiment to continue.
    """
    if not options.is_new and options.archive is None:
        _require_begun(options)
    plan = options.choose_plan()
    return AsyncExperiment(
        plan,
        dir=options.directory,
        env=find_env(plan),
        accept=options.accepted,
        retry_failed=not options.is_new,
        resume_from=options.archive,
        grace_seconds=options.values["grace_seconds"],
    )


def _require_begun(options: GenerationOptions) -> None:
    """Refuse to continue an experiment that does not exist."""
    if options.directory.is_dir():
        return
    results = options.directory.parent
    names = sorted(path.name for path in results.glob("*/") if not path.name.startswith("."))
    hint = f"there are: {', '.join(names)}" if names else f"{shorten_path(results)} has none"
    if "experiment_id" not in options.given:
        raise ConfigError("must be given with --resume", key="--experiment-id", hint=hint)
    raise mismatch("--experiment-id", "an experiment that exists", options.name, hint=hint)


def clear_directory(options: GenerationOptions) -> None:
    """Check that a new experiment can start here; with --force, move an existing one aside."""
    directory = options.directory
    if directory.exists() and not options.values["force"]:
        raise UsageError(
            f"the directory of the experiment exists: {shorten_path(directory)}",
            hint="--resume continues it, --force renames it and starts over; for another "
            "experiment: --experiment-id",
        )
    if (place := anyio.run(make_room, options)) is not None:
        note(f"{shorten_path(directory)} is now {shorten_path(place)}")
