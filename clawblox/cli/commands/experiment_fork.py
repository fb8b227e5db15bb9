"""``clawblox experiment fork``: makes or previews branches of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import click

from clawblox.cli.parameters import (
    FILE,
    count_type,
    directory_argument,
    examples,
    existing_experiment,
    existing_path,
    show,
)
from clawblox.cli.plan_options import apply_score, score_option
from clawblox.cli.running.experiment_run import make_call, run_experiment, running_options
from clawblox.cli.running.experiment_scenes import look_at_experiment
from clawblox.config.arguments import check_duration
from clawblox.config.toml_text import read_toml_text
from clawblox.errors import UsageError
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.live.survey import survey_plan
from clawblox.experiment.reading.record import ExperimentRecord, read_experiment
from clawblox.experiment.running.forking import ForkRequest, plan_fork
from clawblox.experiment.running.open_experiment import ask_experiment
from clawblox.experiment.tables.status import RUNNING
from clawblox.rundir.experiments import find_experiment_owner
from clawblox.views.experiment_fork import ForkPreview, describe_fork

_CONTROL = "-"
"""The prompt of control branches, which continue without a new message."""

_number = partial(click.option, type=count_type(1), default=1, show_default=True)


@examples("""
  clawblox experiment fork experiments/m1 opus-r2/g003@20m -n 4
  clawblox experiment fork experiments/m1 opus-r2@end --prompt-file storm.md
  clawblox experiment fork experiments/m1 opus-r2@end --dry-run   only list

CHECKPOINT is CHAIN/gNNN@MOMENT. The moment is an active time such as 20m, which means the
nearest earlier checkpoint; or last, boundary (before the save prompt) or end. The default is
the latest generation and its last checkpoint.

The branches run in the process that runs the experiment. If there is none, this command runs
them, together with all incomplete generations.
""")
@click.command("fork")
@directory_argument
@click.argument("checkpoint", metavar="CHECKPOINT")
@_number("-n", "--count", help="Number of branches for each prompt.")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="TEXT",
    show_default="-",
    help="First message to the agents; - continues without a message. Can be repeated.",
)
@click.option(
    "--prompt-file",
    "prompt_files",
    type=FILE,
    multiple=True,
    help="File with a first message; can be repeated.",
)
@click.option(
    "--duration",
    metavar="DURATION",
    show_default="the rest of the generation",
    help="Active time of each branch, such as 15m.",
)
@_number("--generations", help="Number of generations of each branch.")
@click.option(
    "--reseed",
    type=count_type(0),
    metavar="SEED",
    show_default="the random state of the checkpoint",
    help="Random seed of the first branch's world; each further branch gets the next number.",
)
@click.option(
    "--parallel",
    type=count_type(1),
    show_default="no limit",
    help="Number of branches at a time; 1 is needed for agents outside a sandbox.",
)
@score_option
@click.option("--dry-run", is_flag=True, help="List the branches without making them.")
@running_options
def fork(
    ctx: click.Context,
    *,
    directory: str,
    checkpoint: str,
    prompts: tuple[str, ...],
    prompt_files: tuple[str, ...],
    duration: str | None,
    score: str | None,
    dry_run: bool,
    **options: Any,
) -> int:
    """Make branches of a checkpoint and run them.

    A branch is a chain that starts with copies of the world and its agents, including their
    conversations and workspaces, and with its own first message.

    \f
    Raises:
        ConfigError: There is no such checkpoint, or the value of an option is wrong.
        UsageError: The branches cannot run in parallel, or --score is given while a process runs
            the experiment.
        ControlError: The process that runs the experiment refused.
    """
    place = existing_experiment(directory)
    how = {name: options.pop(name) for name in ("detach", "as_json", "starter_fd")}
    texts = [None if text == _CONTROL else text for text in prompts]
    texts += [read_toml_text(existing_path(file)) for file in prompt_files]
    seconds = None if duration is None else check_duration(duration, "--duration")
    arguments = {**options, "prompts": texts or [None], "duration": seconds}
    record = read_experiment(place)
    source = record.find_checkpoint(checkpoint)
    plan = None if score is None else apply_score(record.plan, score)
    if dry_run:
        preview = anyio.run(_preview_fork, record, ForkRequest(source=source, **arguments))
        show(preview.facts(), "\n".join(describe_fork(preview)), as_json=how["as_json"])
        return 0
    call = make_call(ctx, place, **how)
    if score is not None and not call.is_spawned and find_experiment_owner(place) is not None:
        text = "--score: must be left out while a process runs the experiment"
        raise UsageError(text, hint="its branches are scored like its other chains")

    async def branch_off() -> int:
        if not call.is_spawned and plan is None:
            answer = await ask_experiment(place, "fork", {"place": checkpoint, **arguments})
            if answer is not None:
                show(answer, "\n".join(map(str, answer["branches"])), as_json=call.as_json)
                return 0

        async def begin(experiment: AsyncExperiment) -> Sequence[str]:
            return await experiment.fork(source, **arguments)

        return await run_experiment(call, partial(AsyncExperiment, plan, dir=place), begin)

    return anyio.run(branch_off)


async def _preview_fork(record: ExperimentRecord, fork: ForkRequest) -> ForkPreview:
    """Check a fork and return its preview, without side effects."""
    status = (await look_at_experiment(record.dir)).status
    running = [chain.name for chain in status.chains if chain.state in RUNNING]
    is_running = status.pid is not None
    chain = record.chains[fork.source.ref.chain]
    branches = plan_fork(fork, chain, record.state, running if is_running else ())
    if not is_running:
        await survey_plan(record.plan, record.dir, stage="worked", are_variables_needed=False)
    rows, ref = record.results().rows(), fork.source.ref
    costs = [
        row.cost_usd for row in rows if (row.chain, row.generation) == (ref.chain, ref.generation)
    ]
    return ForkPreview(
        fork=fork,
        branches=tuple(branches),
        chain=chain,
        status=status,
        source_usd=costs[0] if costs else None,
    )
