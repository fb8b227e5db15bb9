"""``clawblox verify``: checks that a world repeats its recordings exactly."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from clawblox import __version__
from clawblox.cli.field_options import OptionsCommand, options_from
from clawblox.cli.parameters import PATH, examples, existing_path, json_option, recording_option
from clawblox.cli.running.experiment_choice import choose_only_run, only_run
from clawblox.cli.running.runner import CommandSignals
from clawblox.cli.terminal.output import Output
from clawblox.cli.terminal.reports import configure_logging
from clawblox.cli.terminal.screen import progress_bar, relay
from clawblox.errors import ClawbloxError, UsageError
from clawblox.replay import VerifiedReplay, VerifiedRun, verify_run
from clawblox.replay.attempts import is_experiment
from clawblox.replay.kept_verification import keep_verification
from clawblox.replay.sources import VerifyOptions
from clawblox.views.formatting import format_json, shorten_path
from clawblox.views.verified_runs import describe_replay, format_attempts, sum_up

if TYPE_CHECKING:
    from clawblox.experiment.schedule.callbacks import Score


@examples("""
  clawblox verify runs/r001                   all recordings of a run
  clawblox verify runs/r001 --recording 2     one of them
  clawblox verify recording-0001.jsonl.zst --world worlds/panda
  clawblox verify experiments/memory          all attempts, as one table

The exit status is 0 if every recording is equal to its replay, 1 if a recording differs or was
changed after it was finished, and otherwise 3 if a recording was cut, cannot be verified, or
with --strict has an unchecked start. Recordings are also compared with each other: if a
restored world continues an earlier recording, another attempt or the source of its branch, it
must start with the state that the earlier replay has reached. Values of --env of the run are
not stored on disk: set these variables in the environment, or give --env again.
""")
@click.command("verify", cls=OptionsCommand)
@only_run
@recording_option("Verify only this recording of the run, counted from 1.")
@click.option(
    "--world",
    "world_dir",
    type=PATH,
    metavar="WORLD",
    help="World directory; by default the recorded world, as named in your own records.",
)
@click.option(
    "--strict", is_flag=True, help="Count a recording with an unchecked start as not verified."
)
@click.option(
    "--scores",
    is_flag=True,
    help="Compute the scores of an experiment again, from states that replays have reached. Their "
    "function is imported, and runs here; a different score does not change the exit status.",
)
@click.option(
    "--score",
    "function",
    metavar="MODULE:FUNC",
    help="With --scores: the score function, instead of that of the plan.",
)
@options_from(VerifyOptions, "options", without=("number", "world_dir"))
@json_option
def command(
    *,
    run: str | None,
    number: int | None,
    world_dir: str | None,
    strict: bool,
    scores: bool,
    function: str | None,
    options: VerifyOptions,
    as_json: bool,
) -> int | None:
    """Repeat the recordings of a run in new processes of its world, and compare.

    RUN is a run directory, the directory of an experiment, or a file with a recording, by default
    the only run or experiment in the current directory. A new process of the world gets the first
    state or the seed, and each input of an agent at its original tick; it records the events and
    the observations of agents and spectators. clawblox compares the two recordings until the first
    difference. The code of the world runs on this machine, from a private copy of its directory;
    only the results remain, in .clawblox of RUN. The directory of the world is printed first, to
    standard error.

    \f
    Raises:
        ClawbloxError: RUN does not exist, or Zstandard is missing.
        ConfigError: The directory of the world is not a world, or a variable has no value.
        ManifestError: RUN is a directory without a manifest.
        UsageError: RUN is left out, and there is not exactly one; there is no such recording; or
            its world is unknown and must be given.
        OSError: A file cannot be read or written.
    """
    chosen = choose_only_run(run, are_experiments=True)
    existing_path(chosen)
    if function is not None and not scores:
        raise UsageError("--score is the function for --scores: add that")
    configure_logging()
    work = partial(
        verify_run,
        chosen,
        number=number,
        world_dir=world_dir,
        env=options.env,
        in_place=options.in_place,
        strict=strict,
        scores=scores,
        score=None if function is None else _load_score(function),
        health_timeout=options.health_timeout,
        stall_timeout=options.stall_timeout,
    )
    signals = CommandSignals()
    try:
        verified = anyio.run(signals.run_or_cancel, partial(_verify, work, as_json))
    except ModuleNotFoundError as error:
        raise ClawbloxError(str(error)) from error
    if verified is None:
        return signals.exit_status
    if Path(chosen).is_dir():
        keep_verification(Path(chosen), verified, __version__)
    if as_json:
        click.echo(format_json(verified.document()))
    else:
        if is_experiment(Path(chosen)):
            click.echo(format_attempts(verified))
        click.echo(sum_up(verified))
    return verified.exit_status


def _load_score(text: str) -> Score:
    # Imported here because runs do not need experiments, and experiments take long to import.
    from clawblox.experiment.schedule.score_functions import load_function

    return load_function(text, "--score")


async def _verify(work: Callable[..., Awaitable[VerifiedRun]], is_quiet: bool) -> VerifiedRun:
    with Output(sys.stdout) as output:
        async with progress_bar("Verifying", 0) as bar:

            async def show(replay: VerifiedReplay) -> None:
                if replay.attempt is None and not is_quiet:  # attempts are shown as rows of a table
                    await bar.write_line(output, describe_replay(replay))

            async def show_world(world: str) -> None:
                await bar.note(f"World: {shorten_path(Path(world))}")

            verify = partial(work, on_progress=bar.reach, on_world=show_world)
            return await relay(lambda on_replay: verify(on_replay=on_replay), show)
