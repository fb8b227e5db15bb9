"""``clawblox fork``: instances that go on from a snapshot, of a run or of a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import anyio
import attrs
import click
from click.core import ParameterSource

from clawblox.cli.parameters import PATH, count_option, existing_run_dir
from clawblox.cli.running.batch_run import Crowd, ManyCommand, ManyOptions, many_options, run_crowd
from clawblox.cli.running.relay import relay
from clawblox.cli.running.saves import save_and_tell
from clawblox.cli.running.worlds import open_world
from clawblox.cli.terminal.output import Output, note, shorten_path
from clawblox.cli.terminal.screen import progress_bar
from clawblox.config.options import DEFAULT_SAVE_TIMEOUT_S
from clawblox.errors import ClawbloxError, UsageError
from clawblox.protocol import SEEDS
from clawblox.rundir.operations import OnEvent, find_orchestrator, fork_instances
from clawblox.rundir.snapshot_files import find_snapshot, snapshot_places
from clawblox.rundir.status import InstanceStatus, last_saves_by_run, read_instances

__all__ = ["command"]

_OF_AN_ORCHESTRATOR = ("autosave", "keep", "grace", "save_at_end", "metrics_port")


class _ForkCommand(ManyCommand):
    sections: ClassVar = {
        **ManyCommand.sections,
        "The instances": (
            *("count", "reseed", "run_id", "new_run_dir"),
            *ManyCommand.sections["The instances"],
        ),
    }


def _seed(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value is None or value in SEEDS:
        return value
    raise click.BadParameter(f"{value} is not 0 to 2**64 - 1.", ctx, param)


@click.command(
    "fork",
    cls=_ForkCommand,
    epilog="""\
    \b
    Examples:
      clawblox fork runs/r001 w003 -n 8             save w003 now, and go on
      clawblox fork runs/r001 w003 -n 8 --reseed 7  each its own random numbers
      clawblox fork runs/r001 runs/r001/worlds/w003/checkpoints/s1.json
      clawblox fork runs/r001 w003 -n 8 --run-dir runs/r002
      clawblox fork runs/r001 w003 --run-id w003-20260622T185925000000Z

    Where an orchestrator runs in RUN_DIR, the new instances are its own, and live as long as it
    does; this command returns when they are ready. Elsewhere, and with --run-dir, this command
    is their orchestrator, as clawblox up is.
    """,
)
@click.argument("run_dir", type=PATH, metavar="RUN_DIR")
@click.argument("source", type=PATH, metavar="SOURCE")
@count_option
@click.option(
    "--reseed",
    type=int,
    callback=_seed,
    metavar="SEED",
    help="Seed of the first; each of the others gets one more.  [default: none is reseeded]",
)
@click.option(
    "--run-id",
    metavar="ID",
    help="Fork the last save of an earlier run in RUN_DIR.  [default: the latest run]",
)
@click.option(
    "--run-dir",
    "new_run_dir",
    type=PATH,
    metavar="DIR",
    help="Another run directory for them.  [default: RUN_DIR]",
)
@many_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    run_dir: str,
    source: str,
    count: int,
    reseed: int | None,
    run_id: str | None,
    new_run_dir: str | None,
    **options: Any,  # noqa: ANN401 - those of ManyOptions
) -> None:
    """Start instances that go on from one snapshot, each on its own.

    RUN_DIR is where the source ran. SOURCE is one of its instances, or the file of a snapshot:
    a running instance is saved now; of an ended one the last save of its run is taken that is
    still there.
    """
    directory = existing_run_dir(run_dir).absolute()
    found = _find_source(directory, source, run_id)
    options_given = ManyOptions(**options)
    home = directory if new_run_dir is None else Path(new_run_dir).absolute()
    if new_run_dir is None and find_orchestrator(directory, found.world_dir) is not None:
        _refuse_options(ctx, run_dir)
        ctx.exit(anyio.run(_ask_orchestrator, found, count, reseed, options_given))
    world = open_world(str(found.world_dir))
    # Who goes to the background saves there, and not here too.
    is_here = options_given.report_to is not None or not options_given.detach
    start = partial(
        world.fork,
        anyio.run(_take_checkpoint, found) if is_here else {},
        count,
        run_dir=home,
        reseed=reseed,
        **options_given.of_starts(),
    )
    run_crowd(ctx, Crowd(world, home, count, start, options_given))


def _refuse_options(ctx: click.Context, run_dir: str) -> None:
    for param in ctx.command.params:
        is_given = ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        if is_given and param.name in _OF_AN_ORCHESTRATOR:
            raise UsageError(
                f"{param.opts[0]} is for an orchestrator of its own, and one runs in '{run_dir}'",
                hint="leave it out, or give --run-dir to run them elsewhere",
            )


# -- what is forked ---------------------------------------------------------------------------


@attrs.frozen
class _Source:
    """What is forked: an instance, or a file.

    Attributes:
        run_dir: Where it ran.
        world_dir: Its world.
        instance: The instance; None for a file.
        path: The file; None for an instance that is to be saved.
        sha256: Its digest, when that is known.
        run_id: Id of the run that it was saved in, when that is known.
    """

    run_dir: Path
    world_dir: Path
    instance: str | None
    path: Path | None
    sha256: str | None = None
    run_id: str = ""


def _find_source(run_dir: Path, source: str, run_id: str | None) -> _Source:
    known = read_instances(run_dir)
    for status in known:
        if status.name == source:
            return _source_of(run_dir, status, run_id)
    worlds = {status.world_dir for status in known}
    places = [place for world in worlds for place in snapshot_places(source, world, "SOURCE")]
    if not any(place.is_file() for place in places):
        names = ", ".join(status.name for status in known)
        raise UsageError(
            f"'{source}' is neither an instance of {run_dir} nor a file; there are: {names}",
            hint=f"looked for the file {' and '.join(map(str, dict.fromkeys(places)))}",
        )
    if run_id is not None:
        raise UsageError(
            f"--run-id is for the saves of an instance, and '{source}' is a file",
            hint="leave it out",
        )
    if len(worlds) > 1:
        raise UsageError(
            f"{len(worlds)} worlds ran in {run_dir}, and a file does not tell which is its own",
            hint="name the instance that it was saved of",
        )
    world_dir = worlds.pop()
    return _Source(run_dir, world_dir, None, find_snapshot(source, world_dir, "SOURCE"))


def _source_of(run_dir: Path, status: InstanceStatus, run_id: str | None) -> _Source:
    """Return an instance as a source, with its last save unless it can be saved now.

    Raises:
        ClawbloxError: The run has no save of it.
        UsageError: There is no such run.
    """
    if run_id is None and status.state == "ready":
        return _Source(run_dir, status.world_dir, status.name, None)
    saves = last_saves_by_run(status)
    save = saves.get(status.run_id if run_id is None else run_id)
    if save is None:
        raise _no_save(status, run_id, [known for known in saves if known])
    return _Source(run_dir, status.world_dir, status.name, save.path, save.sha256, save.run_id)


def _no_save(status: InstanceStatus, run_id: str | None, known: Sequence[str]) -> ClawbloxError:
    if run_id is not None:
        return UsageError(
            f"no save of instance {status.name!r} in run {run_id!r} is there; "
            f"there are saves of: {', '.join(known) or 'no other run'}"
        )
    earlier = f"; --run-id takes one of an earlier run: {', '.join(known)}" if known else ""
    return ClawbloxError(
        f"Instance {status.name!r} is not ready ({status.state}), and no save of it is there",
        hint=f"name another instance, or the file of a snapshot{earlier}",
    )


async def _take_checkpoint(source: _Source) -> Mapping[str, Any]:
    """Return the snapshot, as ``AsyncWorld.fork`` takes it; a running instance is saved now."""
    if source.path is not None:
        run = f" (run {source.run_id})" if source.run_id else ""
        note(f"Forking {shorten_path(source.path)}{run}")
        return {"path": str(source.path), "sha256": source.sha256}
    assert source.instance is not None
    saves = await save_and_tell(
        source.run_dir,
        [source.instance],
        directory=None,
        timeout=DEFAULT_SAVE_TIMEOUT_S,
        is_quiet=True,
    )
    for error in saves.failed.values():
        raise ClawbloxError(f"Instance {source.instance!r} cannot be saved") from error
    saved = saves.done[source.instance]
    note(f"Forking {source.instance}, saved as {shorten_path(saved.path)}")
    return {"path": str(saved.path), "sha256": saved.sha256}


# -- by the orchestrator that runs ----------------------------------------------------------------


async def _ask_orchestrator(
    source: _Source, count: int, reseed: int | None, options: ManyOptions
) -> int:
    """Have the run's own orchestrator fork; return the exit status."""
    checkpoint = await _take_checkpoint(source)
    failures = 0

    async def work(show_soon: OnEvent) -> bool:
        def take(event: Mapping[str, Any]) -> None:
            nonlocal failures
            failures += event["event"] == "failed"
            if event["event"] == "progress":
                bar.advance()
            else:
                show_soon(event)

        return await fork_instances(
            source.run_dir,
            source.world_dir,
            checkpoint,
            count,
            reseed=reseed,
            on_event=take,
            options=options.of_starts(),
        )

    async def show(event: Mapping[str, Any]) -> None:
        if event["event"] == "failed":
            await bar.note(f"{event['instance']}: failed: {event['error']}")
        else:
            await bar.write_line(output, f"{event['instance']}: ready at {event['url']}")

    with Output(sys.stdout) as output:
        async with progress_bar("Starting", count) as bar:
            if not await relay(work, show):
                raise ClawbloxError("The orchestrator of the run directory has ended meanwhile")
    return 1 if failures else 0
