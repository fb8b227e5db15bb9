"""``clawblox fork``: starts new instances from a snapshot, of an instance or in a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import click

from clawblox.cli.commands.save import save_and_show
from clawblox.cli.experiment_dirs import refuse_new_run
from clawblox.cli.field_options import (
    SectionedCommand,
    options_from,
    section_option,
    typed_parameters,
)
from clawblox.cli.options import OrchestratorOptions
from clawblox.cli.parameters import (
    PATH,
    count_option,
    examples,
    existing_run_dir,
    run_dir_option,
)
from clawblox.cli.running.batch_run import BatchRun, add_orchestrator_options, run_batch
from clawblox.cli.running.run_dirs import open_world
from clawblox.cli.terminal.output import Output, note
from clawblox.cli.terminal.screen import progress_bar, relay
from clawblox.config.options import ManyOptions, SaveOptions
from clawblox.errors import ClawbloxError, UsageError
from clawblox.rundir.listed_saves import last_saves_by_run
from clawblox.rundir.operations import OnEvent, find_orchestrator, fork_instances
from clawblox.rundir.records import path_mover
from clawblox.rundir.snapshot_files import find_snapshot, snapshot_places
from clawblox.rundir.status import InstanceStatus, read_run
from clawblox.views.formatting import shorten_path


@examples("""
  clawblox fork runs/r001 w003 -n 8             save w003 now, fork it 8 times
  clawblox fork runs/r001 w003 -n 8 --reseed 7  with random seeds 7 to 14
  clawblox fork runs/r001 runs/r001/worlds/w003/checkpoints/s1.json
  clawblox fork runs/r001 w003 -n 8 --run-dir runs/r002
  clawblox fork runs/r001 w003 --run-id w003-20260622T185925000000Z

If an orchestrator runs in RUN_DIR, it starts the new instances and stops them when it ends;
this command returns when they are ready. Otherwise, and with --run-dir, this command runs
them itself, like clawblox up.
""")
@click.command("fork", cls=SectionedCommand)
@click.argument("run_dir", type=PATH, metavar="RUN_DIR")
@click.argument("source", type=PATH, metavar="SOURCE")
@count_option
@options_from(ManyOptions, "options", without=("detach", "resume"))
@section_option(
    "--run-id",
    section="Recording and resuming",
    metavar="ID",
    show_default="the latest run",
    help="Fork the last save of this earlier run in RUN_DIR.",
)
@run_dir_option("Run directory of the new instances.", "new_run_dir", default="RUN_DIR")
@add_orchestrator_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    run_dir: str,
    source: str,
    count: int,
    options: ManyOptions,
    run_id: str | None,
    new_run_dir: str | None,
    orchestrator_options: OrchestratorOptions,
    starter_fd: int | None,
) -> int:
    """Start new instances from one snapshot.

    RUN_DIR is the run directory of the source. SOURCE is an instance in it or a snapshot file. A
    running instance is saved first; an ended instance is forked from the last save of its latest
    run.

    \f
    Raises:
        UsageError: There is no such instance, file or run; or an option does not apply here.
        ClawbloxError: The instance cannot be saved and has no save; or instances failed to start.
    """
    directory = existing_run_dir(run_dir).absolute()
    origin = _find_source(directory, source, run_id)
    home = directory if new_run_dir is None else Path(new_run_dir).absolute()
    refuse_new_run(home)
    if new_run_dir is None and find_orchestrator(directory, origin.world_dir) is not None:
        duties = attrs.fields_dict(OrchestratorOptions).keys() - {"detach"}
        for param in typed_parameters(ctx, duties):
            raise UsageError(
                f"{param.opts[0]}: must be left out, as the orchestrator that runs in '{run_dir}' "
                "starts the instances",
                hint="or give --run-dir to run them elsewhere",
            )
        return anyio.run(_ask_orchestrator, origin, count, options)
    world = open_world(str(origin.world_dir))

    async def run() -> int:
        # With --detach only the process in the background takes the snapshot.
        is_here = starter_fd is not None or not orchestrator_options.detach
        start = partial(
            world.fork,
            await _take_snapshot(origin) if is_here else {},
            count,
            run_dir=home,
            on_failure=options.on_failure,
            **options.shared(),
        )
        batch_run = BatchRun(world, home, count, start, orchestrator_options, starter_fd)
        return await run_batch(ctx, batch_run)

    return anyio.run(run)


# -- the source -------------------------------------------------------------------------------


@attrs.frozen
class _Source:
    """The source of a fork: an instance or a file.

    Attributes:
        run_dir: The run directory.
        world_dir: Directory of the world.
        instance: The instance; None for a file.
        path: The snapshot; None for an instance that has yet to be saved.
        sha256: Digest of the snapshot; None if unknown.
        run_id: Id of the run in which the snapshot was saved; empty if unknown.
    """

    run_dir: Path
    world_dir: Path
    instance: str | None
    path: Path | None
    sha256: str | None = None
    run_id: str = ""


def _find_source(run_dir: Path, source: str, run_id: str | None) -> _Source:
    statuses = read_run(run_dir).instances
    for status in statuses:
        if status.name == source:
            return _find_save(run_dir, status, run_id)
    worlds = {status.world_dir for status in statuses}
    places = [place for world in worlds for place in snapshot_places(source, world, "SOURCE")]
    if not any(place.is_file() for place in places):
        names = ", ".join(status.name for status in statuses)
        raise UsageError(
            f"SOURCE: must be an instance of {run_dir} or a file, not '{source}'; "
            f"there are: {names}",
            hint=f"looked for the file {' and '.join(map(str, dict.fromkeys(places)))}",
        )
    if run_id is not None:
        raise UsageError(f"--run-id: must be left out, as '{source}' is a file, not an instance")
    if len(worlds) > 1:
        raise UsageError(
            f"'{source}' may belong to any of the {len(worlds)} worlds that ran in {run_dir}",
            hint="name the instance that it was saved from",
        )
    world_dir = worlds.pop()
    return _Source(run_dir, world_dir, None, find_snapshot(source, world_dir, "SOURCE"))


def _find_save(run_dir: Path, status: InstanceStatus, run_id: str | None) -> _Source:
    """Return an instance as a source, with its last save if it cannot be saved now."""
    if run_id is None and status.state == "ready":
        return _Source(run_dir, status.world_dir, status.name, None)
    saves = last_saves_by_run(status.name, status.instance_dir, path_mover(status.run_dir))
    save = saves.get(status.run_id if run_id is None else run_id)
    if save is not None:
        return _Source(run_dir, status.world_dir, status.name, save.path, save.sha256, save.run_id)
    saved_runs = ", ".join(filter(None, saves))
    if run_id is not None:
        raise UsageError(
            f"Instance {status.name!r} has no save from run {run_id!r}; "
            f"it has saves from: {saved_runs or 'no other run'}"
        )
    earlier = f"; or an earlier run with --run-id: {saved_runs}" if saved_runs else ""
    raise ClawbloxError(
        f"Instance {status.name!r} is not ready ({status.state}) and has no save",
        hint=f"name another instance, or a snapshot file{earlier}",
    )


async def _take_snapshot(source: _Source) -> Mapping[str, Any]:
    """Return the snapshot as ``AsyncWorld.fork`` takes it; save a running instance now."""
    if source.path is not None:
        run = f" (run {source.run_id})" if source.run_id else ""
        note(f"Forking {shorten_path(source.path)}{run}")
        return {"path": str(source.path), "sha256": source.sha256}
    assert source.instance is not None
    saves = await save_and_show(source.run_dir, [source.instance], SaveOptions(), is_quiet=True)
    for error in saves.failed.values():
        raise ClawbloxError(f"Instance {source.instance!r} cannot be saved") from error
    saved = saves.done[source.instance]
    note(f"Forking {source.instance}, saved as {shorten_path(saved.path)}")
    return {"path": str(saved.path), "sha256": saved.sha256}


# -- through the running orchestrator ------------------------------------------------------------


async def _ask_orchestrator(source: _Source, count: int, options: ManyOptions) -> int:
    """Ask the orchestrator of the run to fork the instance; return the exit status."""
    snapshot = await _take_snapshot(source)
    not_sent = attrs.filters.exclude("detach", "resume")
    failures = 0

    async def work(show_soon: OnEvent) -> bool:
        def on_event(event: Mapping[str, Any]) -> None:
            nonlocal failures
            failures += event["event"] == "failed"
            if event["event"] == "progress":
                bar.advance()
            else:
                show_soon(event)

        return await fork_instances(
            source.run_dir,
            source.world_dir,
            snapshot,
            count,
            on_event=on_event,
            options=attrs.asdict(options, recurse=False, filter=not_sent),
        )

    async def show(event: Mapping[str, Any]) -> None:
        if event["event"] == "failed":
            await bar.note(f"{event['instance']}: failed: {event['error']}")
        else:
            await bar.write_line(output, f"{event['instance']}: ready at {event['url']}")

    with Output(sys.stdout) as output:
        async with progress_bar("Starting", count) as bar:
            if not await relay(work, show):
                raise ClawbloxError(
                    f"The orchestrator of '{source.run_dir}' has ended in the meantime"
                )
    return 1 if failures else 0
