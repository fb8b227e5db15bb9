"""``clawblox replay``: shows what happened in a recorded world."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import click

from clawblox.cli.commands.wait import shell_status
from clawblox.cli.experiment_dirs import refuse_experiment
from clawblox.cli.parameters import (
    PATH,
    SECONDS,
    examples,
    existing_path,
    json_option,
    recording_option,
)
from clawblox.cli.running.experiment_choice import choose_only_run, only_run
from clawblox.cli.running.runner import CommandSignals
from clawblox.cli.terminal.output import Output, OutputGone, note
from clawblox.cli.terminal.width import table_width
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, RecordingError, UsageError
from clawblox.foreign_values import clean_value
from clawblox.printable import printable_name
from clawblox.recording.blocks import Track
from clawblox.recording.reader import Record, RecordingReader
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.recordings import (
    FoundRecording,
    find_damage,
    find_recordings,
    opened_recording,
    refuse_archive,
)
from clawblox.supervision.tree import SharedStop
from clawblox.views.formatting import format_json, shorten_path
from clawblox.views.recordings import (
    Timeline,
    format_world_at,
    read_roster,
    read_world_at,
    world_at_document,
)
from clawblox.world.recorded_worlds import find_recorded_world
from clawblox.world.viewer import GRACE_S, HOST, require_viewer, run_viewer

_WIDTH: Final = 100
"""Width of a state outside a terminal, in columns."""
_MOST_LISTED: Final = 20


@examples("""
  clawblox replay runs/r001               all events, and what agents saw
  clawblox replay runs/r001 --track inputs
  clawblox replay runs/r001 --at 83.5     the world at 83.5 seconds
  clawblox replay runs/r001 --json | jq 'select(.event == "chat")'
  clawblox replay runs/r001/recordings/recording-0002.jsonl.zst
  clawblox replay runs/r001 --viewer      in the viewer of the world
""")
@click.command("replay")
@only_run
@recording_option("Which recording of the run, counted from 1; needed if there are several.")
@click.option(
    "--track",
    "tracks",
    type=click.Choice([track.value for track in Track]),
    multiple=True,
    help="Show only records of this track; can be repeated. By default inputs and observations, "
    "with --json all.",
)
@click.option("--since", type=SECONDS, help="Start at this simulation time.")
@click.option(
    "--at",
    type=SECONDS,
    help="Show the world at this simulation time: the last frame, the last observation of "
    "each agent, and the surrounding events.",
)
@click.option(
    "--viewer",
    is_flag=True,
    help="Show the recording with the command in [replay] of the world's world.toml.",
)
@click.option(
    "--world",
    "world_dir",
    type=PATH,
    metavar="WORLD",
    help="World directory of the viewer; by default the recorded world, as named in your own "
    "records.",
)
@json_option
def command(
    *,
    run: str | None,
    number: int | None,
    tracks: tuple[str, ...],
    since: float | None,
    at: float | None,
    viewer: bool,
    world_dir: str | None,
    as_json: bool,
) -> int | None:
    """Show what happened in a recorded world without running it.

    RUN is a run directory or a file with a recording, by default the only run in the current
    directory. Times are in seconds of simulation time.

    \f
    Raises:
        ClawbloxError: RUN does not exist, or the viewer cannot be started.
        ManifestError: RUN is a directory without a manifest.
        RecordingError: The recording is damaged, or the file is not a recording.
        UsageError: RUN is left out, and there is not exactly one run; RUN is an experiment; RUN has
            no recordings or several; options exclude each other; or the world of the viewer is
            unknown and must be given.
        OSError: The recording cannot be read.
    """
    has_part = bool(tracks) or since is not None
    if at is not None and has_part:
        raise UsageError("--at shows all tracks at one time; leave out --track and --since")
    if viewer and (at is not None or has_part or as_json):
        raise UsageError("--viewer shows the whole recording; leave out options for other output")
    if world_dir is not None and not viewer:
        raise UsageError("--world is the world of the viewer; add --viewer")
    place = existing_path(choose_only_run(run))
    if number is not None and not place.is_dir():
        raise UsageError("--recording is for run directories; RUN is a file")
    if place.is_dir():
        refuse_experiment(place)
    else:
        refuse_archive(place)
    run_dir = resolve_run_dir(place) if place.is_dir() else None
    found = _choose(run_dir, number) if run_dir else FoundRecording(place.absolute())
    if viewer:
        with _reading(found.path, run_dir):
            pass  # only a file that is a recording is given to the viewer
        world = Path(world_dir) if world_dir else find_recorded_world(found, run_dir)
        return anyio.run(_show_viewer, world, found.path)
    with _reading(found.path, run_dir) as recording:
        _note_damage(found, run_dir)
        if at is not None:
            _show_world(recording, at, as_json=as_json)
        else:
            _show_records(recording, tracks, since, as_json=as_json)
    return None


def _choose(run_dir: Path, number: int | None) -> FoundRecording:
    """Return the recording with a number; None means the only recording.

    Raises:
        UsageError: There is no recording with this number, or there are several.
    """
    recordings = find_recordings(run_dir)
    if not recordings:
        raise UsageError(
            f"There are no recordings in {shorten_path(run_dir)}: start it with --record"
        )
    if number is None and len(recordings) == 1:
        return recordings[0]
    if number is not None and number <= len(recordings):
        return recordings[number - 1]
    wanted = "there are several" if number is None else f"there is no recording {number}"
    raise UsageError(f"--recording: {wanted}:\n{_list(recordings, run_dir)}")


def _list(recordings: Sequence[FoundRecording], run_dir: Path) -> str:
    lines = [
        f"{number:4}  {printable_name(found.instance):8}  {shorten_path(found.path)}"
        f"{_mark_damage(found, run_dir)}"
        for number, found in enumerate(recordings[:_MOST_LISTED], 1)
    ]
    rest = len(recordings) - len(lines)
    return "\n".join([*lines, *([f"      and {rest} more"] if rest else [])])


def _mark_damage(found: FoundRecording, run_dir: Path) -> str:
    try:
        damage = find_damage(found, run_dir)
    except RecordingError as error:
        return f"  ({error.headline})"
    return f"  ({damage})" if damage else ""


def _note_damage(found: FoundRecording, run_dir: Path | None) -> None:
    damage = find_damage(found, run_dir)
    if damage is not None:
        how = "is incomplete: it was cut" if damage == "incomplete" else "was changed"
        note(f"{shorten_path(found.path)} {how} after it was finished")


@contextmanager
def _reading(path: Path, run_dir: Path | None) -> Iterator[RecordingReader]:
    try:
        with opened_recording(path, run_dir) as recording:
            if recording.torn_at is not None:
                note(
                    f"{shorten_path(path)} ends with an incomplete block, which is left out: it is "
                    "being written, or its writer was killed"
                )
            yield recording
    except ModuleNotFoundError as error:
        raise ClawbloxError(str(error)) from error


def _show_records(
    recording: RecordingReader, chosen: Sequence[str], since: float | None, *, as_json: bool
) -> None:
    begin = float("-inf") if since is None else since
    timeline = Timeline(read_roster(recording, begin))
    default = tuple(Track) if as_json else (Track.INPUTS, Track.OBSERVATIONS)
    tracks = [Track(track) for track in dict.fromkeys(chosen)] or default
    for record in recording.read(tracks, begin):
        click.echo(_encode(record) if as_json else timeline.describe(record))


def _encode(record: Record) -> str:
    document = {"track": record.track, **record.fields}
    try:
        return json.dumps(document)
    except RecursionError:  # the parser allows slightly deeper nesting than the encoder
        return json.dumps(clean_value(document))


def _show_world(recording: RecordingReader, time: float, *, as_json: bool) -> None:
    world = read_world_at(recording, time)
    if as_json:
        click.echo(format_json(world_at_document(world)))
        return
    for line in format_world_at(world, table_width() or _WIDTH):
        click.echo(line)


async def _show_viewer(world_dir: Path, recording: Path) -> int:
    """Run the viewer of a world with a recording until the viewer ends or a signal ends it.

    A note names the world first. The viewer's output is printed. The processes that it has
    started end with it.

    Args:
        world_dir: The world.
        recording: The file to show, absolute.

    Returns:
        The exit status of the viewer; or 128 plus the signal that ended the viewer or this command.

    Raises:
        ConfigError: The world has no viewer.
        ClawbloxError: The viewer cannot be started.

    Cancellation: ends the viewer.
    """
    viewer = await run_blocking(require_viewer, world_dir)
    note(f"World: {shorten_path(viewer.cwd)}")
    ending, signals = SharedStop(), CommandSignals()

    async def stop(_: object) -> bool:
        ending.begin(GRACE_S)
        ending.scope.cancel()
        return True

    async def kill() -> None:
        ending.kill_now()

    def begin(_words: object, port: int) -> None:
        if viewer.has_port:
            note(f"The viewer gets the address http://{HOST}:{port}")

    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with Output(sys.stdout) as output:

        async def print_output(data: bytes) -> None:
            try:
                await output.write(decoder.decode(data, final=not data))
            except OutputGone:
                ending.scope.cancel()

        async with signals.obeyed(stop, kill):
            end = await run_viewer(viewer, recording, begin, print_output, ending)
    return shell_status(end) if signals.exit_status is None else signals.exit_status
