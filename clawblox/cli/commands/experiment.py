"""``clawblox experiment``: experiments of many generations, from plan to results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import click

from clawblox.cli.commands.experiment_fork import fork
from clawblox.cli.commands.experiment_results import COMMANDS
from clawblox.cli.commands.experiment_show import COMMANDS as SHOWN
from clawblox.cli.experiment_dirs import refuse_no_plan
from clawblox.cli.parameters import (
    DIR,
    FILE,
    PATH,
    directory_argument,
    examples,
    existing_experiment,
    show,
)
from clawblox.cli.plan_options import (
    add_cluster,
    apply_score,
    cluster_option,
    naming_lines,
    score_option,
    settings_option,
)
from clawblox.cli.running.experiment_run import (
    make_call,
    pause_on_term_option,
    run_experiment,
    running_options,
)
from clawblox.cli.running.smoke_run import run_smoke, smoke_directory
from clawblox.cli.terminal.output import note
from clawblox.config.arguments import mismatch
from clawblox.errors import UsageError
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.history.journal import read_lines
from clawblox.experiment.history.lines import WORK, JournalLine
from clawblox.experiment.live.survey import Stage, Survey
from clawblox.experiment.plan import Plan
from clawblox.experiment.plan.dotted import apply_settings
from clawblox.experiment.plan.smoke import make_smoke_plan
from clawblox.experiment.plan.values import to_plain
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.running.backends import survey_experiment
from clawblox.experiment.running.open_experiment import ask_experiment
from clawblox.experiment.running.opening import check_amendment
from clawblox.experiment.schedule.score_functions import load_score
from clawblox.experiment.tables.lead_time import find_lead_time
from clawblox.rundir.experiments import JOURNAL_NAME
from clawblox.spelling import suggest_nearest
from clawblox.views.experiment_plan import describe_plan
from clawblox.views.formatting import shorten_path, suggest
from clawblox.world.sources import DEFAULT_EXPERIMENTS

_JOB_VARIABLE: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Variable that Ray sets for the command of a job; Ray removes RAY_JOB_ID there."""


@examples("""
  clawblox experiment run exp.toml --dry-run
  clawblox experiment run exp.toml
  clawblox experiment list
  clawblox experiment status experiments/m1 --watch
  clawblox experiment resume experiments/m1
  clawblox experiment fork experiments/m1 opus-r2/g003@20m -n 4
  clawblox experiment results experiments/m1 --by model

A plan is a TOML file; clawblox experiment run --help has a small one. DIR is the directory of
an experiment, by default experiments/<name>.
""")
@click.group("experiment")
def command() -> None:
    """Run, resume, fork and score experiments of many generations.

    A generation is a bounded run of a world with agents. A chain is a line of generations: the
    agents of each generation inherit the workspaces of the previous one. An experiment runs a chain
    for each combination of the values that its plan varies, and for each repeat. It can be
    interrupted at any moment, and resumed from its last checkpoints.
    """


# -- run and resume -----------------------------------------------------------------------------


@examples("""
  clawblox experiment run exp.toml --dry-run    start nothing
  clawblox experiment run exp.toml --smoke      try all conditions
  clawblox experiment run exp.toml
  clawblox experiment run exp.toml --name memory-2 --set limits.worlds=8
  clawblox experiment run exp.toml --detach
  clawblox experiment run exp.toml --continue --pause-on-term    in a job

\b
A small plan:
  generations = 10
  duration = "1h"
  repeats = 3
  world = { dir = "worlds/panda" }
  [[agents]]
  driver = "claude"
  env = ["ANTHROPIC_API_KEY"]
  [sweep]
  "agents.*.model" = ["claude-fable-5", "claude-opus-4-8"]

Ctrl-C saves and stops, a second Ctrl-C kills; clawblox experiment resume continues. Exit
status: 0 all generations are committed, 1 a chain has failed, 75 paused (usage limit, login,
disk, time or money), 130 interrupted, 2 wrong usage.
""")
@command.command("run")
@click.argument("plan_file", type=PATH, metavar="PLAN")
@click.option("--name", metavar="NAME", help="Name of the experiment, in place of the plan's.")
@click.option(
    "--dir",
    "given_dir",
    type=DIR,
    show_default="experiments/<name>",
    help="Directory of the experiment.",
)
@settings_option
@score_option
@cluster_option
@click.option(
    "--continue",
    "may_exist",
    is_flag=True,
    help="Continue the experiment if the directory has one, like resume; otherwise start it.",
)
@click.option("--dry-run", is_flag=True, help="Check everything without starting anything.")
@click.option(
    "--smoke",
    is_flag=True,
    help="Run each condition for one generation of 60 seconds, in a separate directory.",
)
@pause_on_term_option
@running_options
def run(
    ctx: click.Context,
    *,
    plan_file: str,
    name: str | None,
    given_dir: str | None,
    settings: Mapping[str, Any],
    score: str | None,
    address: str | None,
    may_exist: bool,
    dry_run: bool,
    smoke: bool,
    **how: Any,
) -> int:
    """Start an experiment and run it to its end.

    PLAN is a TOML file. All its requirements are checked first, and all faults are reported
    together; --dry-run also lists the chains with their values. On a terminal a live table shows
    the chains, and ? shows its keys; elsewhere each event is a line.

    --smoke shows that everything starts: it runs each condition for a minute and lists the
    conditions that failed. A smoke run is not part of the experiment, and its directory is kept
    only after a failure.

    \f
    Raises:
        ConfigError: The plan, or the value of an option, is wrong.
        UsageError: The directory of the experiment exists, or options exclude each other.
        ClawbloxError: The experiment cannot be run.
    """
    refuse_no_plan(Path(plan_file), "PLAN")
    settings = add_cluster(settings, address)
    plan = apply_score(apply_settings(Plan.load(plan_file), settings), score)
    plan = plan if name is None else plan.but(name=name)
    place = Path(given_dir or Path(DEFAULT_EXPERIMENTS, plan.name))
    require_lasting(place)
    directory = place.absolute()
    if smoke:
        if dry_run or may_exist or how["detach"]:
            raise UsageError("--smoke: must be given without --continue, --dry-run and --detach")
        directory, smoked = smoke_directory(directory), make_smoke_plan(plan)
        with naming_lines(plan_file, settings):
            anyio.run(survey_experiment, smoked, directory)
        return anyio.run(partial(run_smoke, plan, directory, as_json=how["as_json"]))
    call = make_call(ctx, directory, **how)
    is_known = may_exist and (directory / JOURNAL_NAME).exists()
    lines = read_lines(directory) if is_known else []
    if not call.is_spawned and not is_known:  # a spawned process already logs into the directory
        require_new(directory)
    with naming_lines(plan_file, settings):
        # Otherwise the experiment is surveyed when it is opened.
        if dry_run or not (call.is_spawned or lines):
            if lines:
                check_amendment(directory, lines, plan)
            stage = _find_stage(lines)
            look = partial(
                survey_experiment, plan, directory, stage=stage, are_variables_needed=not dry_run
            )
            survey = anyio.run(look)  # a plan with faults leaves no files
            if dry_run:
                _show_dry_run(plan, survey, lines, as_json=call.as_json)
                return 0
            for text in survey.notes:
                note(text)
        return anyio.run(run_experiment, call, lambda: AsyncExperiment(plan, dir=directory))


def _find_stage(lines: Sequence[JournalLine]) -> Stage:
    if any(line.type in WORK for line in lines):
        return "worked"
    return "recorded" if lines else "new"


def _show_dry_run(
    plan: Plan, survey: Survey, lines: Sequence[JournalLine], *, as_json: bool
) -> None:
    chains = {chain.name: to_plain(chain.condition) for chain in plan.chains()}
    lead_time = find_lead_time(plan, lines)
    facts = {
        **attrs.asdict(survey),
        **attrs.asdict(lead_time),
        "chains": [*chains],
        "conditions": chains,
    }
    show(facts, "\n".join(describe_plan(plan, survey, lead_time)), as_json=as_json)


def require_lasting(place: Path) -> None:
    """Refuse a relative directory in a cluster job, whose current directory is temporary.

    Raises:
        UsageError: The directory would be inside the temporary directory of a job.
    """
    if _JOB_VARIABLE in os.environ and not place.is_absolute():
        raise UsageError(
            f"--dir: must be an absolute path in a Ray job, not {shorten_path(place)}: the current "
            "directory of a job is temporary",
            hint=f"choose a directory that outlives the job: --dir /data/{place.name}",
        )


def require_new(directory: Path) -> None:
    """Refuse a directory that is not empty.

    Raises:
        UsageError: The directory contains files.
    """
    if directory.is_dir() and any(directory.iterdir()):
        raise UsageError(
            f"the directory of the experiment exists: {shorten_path(directory)}",
            hint=f"to continue it: {suggest('experiment resume', directory)}; for another "
            "experiment: --name NEW",
        )


@examples("""
  clawblox experiment resume experiments/m1
  clawblox experiment resume experiments/m1 --set generations=20
  clawblox experiment resume experiments/m1 --plan exp.toml --accept save

Limits, retries, checkpoints, labels, the cluster and the score may change freely, and
generations, repeats, seeds and conditions may be added. The changes that --accept names apply
to generations that start later. Other changes, such as another driver, need a new experiment.
""")
@command.command("resume")
@directory_argument
@click.option(
    "--plan",
    "plan_file",
    type=FILE,
    show_default="the recorded plan",
    help="Plan to continue with.",
)
@settings_option
@score_option
@cluster_option
@click.option(
    "--accept",
    multiple=True,
    metavar="FIELD",
    help="Accept a change of this field: duration, save, stop, budget, version, "
    "max_restarts, stall_timeout, request_rate, world, prompts "
    "or templates; can be repeated.",
)
@click.option("--retry-failed", is_flag=True, help="Try failed chains again.")
@pause_on_term_option
@running_options
def resume(
    ctx: click.Context,
    *,
    directory: str,
    plan_file: str | None,
    settings: Mapping[str, Any],
    score: str | None,
    address: str | None,
    accept: tuple[str, ...],
    retry_failed: bool,
    **how: Any,
) -> int:
    """Continue an experiment from its last checkpoints.

    \f
    Raises:
        ConfigError: The plan, or the value of an option, is wrong.
        PlanChangedError: The plan or a file has changed, and the change is not accepted.
        RunLockedError: Another process runs the experiment.
        ClawbloxError: The experiment cannot be run.
    """
    place = existing_experiment(directory)
    if plan_file is not None:
        refuse_no_plan(Path(plan_file), "--plan")
    recorded = read_experiment(place).plan
    plan = recorded if plan_file is None else Plan.load(plan_file).but(name=recorded.name)
    settings = add_cluster(settings, address)
    changed = apply_score(apply_settings(plan, settings), score)
    is_changed = plan_file is not None or settings or score is not None
    make = partial(
        AsyncExperiment,
        changed if is_changed else None,
        dir=place,
        accept=accept,
        retry_failed=retry_failed,
    )
    with naming_lines(plan_file, settings):
        if changed.score not in (None, recorded.score):
            load_score(changed.score)  # before the change is recorded
        return anyio.run(run_experiment, make_call(ctx, place, **how), make)


# -- a running experiment -----------------------------------------------------------------------


@examples("""
  clawblox experiment stop experiments/m1               all chains
  clawblox experiment stop experiments/m1 opus-r1       this chain
  clawblox experiment stop experiments/m1 --now         without checkpoints

clawblox experiment resume continues.
""")
@command.command("stop")
@directory_argument
@click.argument("chains", nargs=-1, metavar="[CHAIN]...")
@click.option("--now", is_flag=True, help="Stop immediately, without checkpoints.")
def stop(directory: str, chains: tuple[str, ...], *, now: bool) -> None:
    """Save and stop the chains of a running experiment.

    The command returns when the chains have stopped. It also succeeds if the experiment is not
    running.

    \f
    Raises:
        UsageError: The directory contains no experiment, or --now is given with chains.
        ConfigError: There is no such chain.
        ControlError: The process that runs the experiment refused.
    """
    place = existing_experiment(directory)
    known = read_experiment(place).chains
    for chain in chains:
        if chain not in known:
            hint = suggest_nearest(chain, known) or f"there are: {', '.join(known)}"
            raise mismatch("CHAIN", "a chain", chain, hint=hint)
    if now and chains:
        raise UsageError("--now: must be given without chains, as it ends the whole experiment")
    answer = anyio.run(ask_experiment, place, "stop", {"chains": list(chains) or None, "now": now})
    what = ", ".join(chains) or shorten_path(place)
    click.echo(f"{what}: {'was not running' if answer is None else 'stopped'}")


for _command in (*SHOWN, fork, *COMMANDS):
    command.add_command(_command)
