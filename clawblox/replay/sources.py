"""Finds the recordings to verify, their worlds and saves, and possible continuations. Blocks.

A recording continues an earlier one of its own instance, or of the instance whose save it started
from. The manifests have the digests of all saves, and of the saves that each process started from.
A manifest may come from a stranger: a save's file counts only with the digest in the manifest, and
only as data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, get_args

import attrs

from clawblox.config.arguments import SECONDS
from clawblox.config.options import DEFAULT_STALL_TIMEOUT_S, to_env
from clawblox.errors import ClawbloxError, ConfigError, ManifestError, RecordingError, UsageError
from clawblox.foreign_values import parse_document
from clawblox.instance.launch import find_variables
from clawblox.recording.blocks import MAX_START_BYTES, MAX_START_MEMBERS
from clawblox.replay.attempts import RecordedAttempt, is_experiment, list_attempts
from clawblox.replay.results import AttemptPlace
from clawblox.results import DataStoreBackend
from clawblox.rundir.lineage import read_lineage
from clawblox.rundir.lives import Origin
from clawblox.rundir.manifest import read_manifest
from clawblox.rundir.manifest_entries import objects_in
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.recordings import (
    Damage,
    FoundRecording,
    find_damage,
    find_record,
    find_run_dir,
    list_recordings,
    opened_recording,
    refuse_archive,
)
from clawblox.system.regular_files import read_regular
from clawblox.world.private_copies import TrialOptions
from clawblox.world.recorded_worlds import find_recorded_world
from clawblox.world.sources import find_world_dir, parse_world_files, read_world_files

_BACKENDS: Final = get_args(DataStoreBackend)


@attrs.frozen(kw_only=True)
class ReplaySource:
    """A recording with the world that repeats it, or the reason why it cannot be repeated.

    Attributes:
        found: The recording.
        number: Its number in its run, counted from 1; 0 for one in another format.
        attempt: The attempt that made it; None outside of experiments.
        origin: Name of the attempt from whose checkpoint that began; empty for a fresh world.
        run_dir: The run directory that lists it; None if none does.
        world: The directory or address of the world; empty if it is not repeated.
        env: Additional environment variables of the world.
        datastore: Where an engine world keeps the rows of its data stores; None means SQLite.
        first_tick: Tick at which it begins.
        first_time: Simulation time at which it begins, in seconds.
        last_tick: Its last tick.
        obstacle: Reason why it cannot be repeated; empty if it can.
        changed_files: Files of its world that changed since, by relative path: ``.`` where only
            that is known; None where nothing is.
        damage: How its file has changed since it was finished; None if it has not, or is not known.
        saves: Digests of the saves of its instance.
        origins: Digests of the saves that lives of its instance began from.
        save: The save that it began from; None for a fresh world, or if that is not known.
    """

    found: FoundRecording
    number: int
    attempt: AttemptPlace | None = None
    origin: str = ""
    run_dir: Path | None = None
    world: str = ""
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    datastore: DataStoreBackend | None = None
    first_tick: int = 0
    first_time: float = 0.0
    last_tick: int = 0
    obstacle: str = ""
    damage: Damage | None = None
    changed_files: tuple[str, ...] | None = None
    saves: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    save: Origin | None = None

    @property
    def ticks(self) -> int:
        """Number of its ticks."""
        return self.last_tick - self.first_tick

    def is_same_instance(self, other: ReplaySource) -> bool:
        """Return whether the same instance made both recordings."""
        same = (self.attempt, self.found.instance) == (other.attempt, other.found.instance)
        return same and self.number > 0 and other.number > 0

    def find_origin_saves(self, other: ReplaySource) -> Sequence[str]:
        """Return the digests of the saves of another instance that this one began from."""
        return [] if self.is_same_instance(other) else sorted(self.origins & other.saves)

    def may_continue(self, other: ReplaySource) -> bool:
        """Return whether this recording may start from a state of another.

        Several attempts can have made the same save; the journal names the one that counts.
        """
        if self.is_same_instance(other):
            return True
        if self.origin and other.attempt is not None:
            return other.attempt.name == self.origin
        return bool(self.find_origin_saves(other))


@attrs.frozen(kw_only=True)
class VerifyOptions(TrialOptions):
    """The recordings to verify, and the options.

    Attributes:
        number: Only this recording of a run, counted from 1; None means all.
        world_dir: The directory or address of the world; None means the one in the records.
        env: Values of environment variables of the world, before those of this process.
        stall_timeout: Seconds without any progress after which a replay is given up.
    """

    number: int | None = None
    world_dir: str | Path | None = None
    env: Mapping[str, str] = attrs.field(default=None, converter=to_env, repr=False)
    stall_timeout: float = attrs.field(default=DEFAULT_STALL_TIMEOUT_S, validator=SECONDS)


def find_sources(given: Path, options: VerifyOptions) -> list[ReplaySource]:
    """Return the runs to verify.

    Args:
        given: A run directory, the directory of an experiment, or the file of a recording.
        options: The choice.

    Raises:
        ClawbloxError: A manifest or a journal cannot be read; there is no such recording; or its
            world or a variable is not known.
        OSError: A directory cannot be read.
    """
    if is_experiment(given):
        return _find_in_experiment(resolve_run_dir(given), options)
    is_file = not given.is_dir()
    if is_file:
        refuse_archive(given)
    # No link leads from a run directory to a file that is looked for above its real directory.
    given = resolve_run_dir(given.parent) / given.name if is_file else resolve_run_dir(given)
    run_dir = find_run_dir(given) if is_file else given
    recordings = [] if run_dir is None else list_recordings(run_dir)
    listed = _number(recordings)
    if is_file:
        listed = [(found, n) for found, n in listed if found.path == given]
        listed = listed or [(FoundRecording(given), 1)]
    elif options.number is not None:
        listed = [(found, n) for found, n in listed if n == options.number]
    if not listed:
        raise no_recording(given, options.number, recordings)
    return [*_link(run_dir, (_read_source(found, n, run_dir, options) for found, n in listed))]


def no_recording(run: Path, number: int | None, recordings: Sequence[FoundRecording]) -> UsageError:
    """Return the error for a run that lacks a requested recording.

    Args:
        run: The run directory.
        number: The requested number; None for all.
        recordings: The recordings that it has.
    """
    count = sum(found.is_readable for found in recordings)
    if number is None or not count:
        return UsageError(
            f"there are no recordings in {run}", hint="start the run with record=True"
        )
    have = "1 recording, number 1" if count == 1 else f"{count} recordings, 1 to {count}"
    return UsageError(f"there is no recording {number} in {run}, which has {have}")


def _find_in_experiment(directory: Path, options: VerifyOptions) -> list[ReplaySource]:
    if options.number is not None:
        raise UsageError("recordings are numbered within a run: give the run directory with it")
    attempts = list_attempts(directory)
    if not attempts:
        raise UsageError(f"no world of the experiment in {directory} has run")
    return [source for attempt in attempts for source in _find_in_attempt(attempt, options)]


def _find_in_attempt(attempt: RecordedAttempt, options: VerifyOptions) -> Iterator[ReplaySource]:
    """Yield the recordings of an attempt, or the reason why there is none."""
    run_dir, listed, obstacle = attempt.run_dir, [], "its run directory is gone"
    if run_dir is not None:
        obstacle = "the attempt has no recording"
        try:
            listed = _number(list_recordings(run_dir))
        except ManifestError as error:
            obstacle = str(error).partition("\n")[0]
    if not listed:
        missing = FoundRecording(run_dir or Path(attempt.place.name))
        yield ReplaySource(found=missing, number=0, attempt=attempt.place, obstacle=obstacle)
        return
    options = attrs.evolve(options, env={**attempt.env, **options.env})
    sources = (_read_source(found, number, run_dir, options) for found, number in listed)
    for source in _link(run_dir, sources):
        yield attrs.evolve(source, attempt=attempt.place, origin=attempt.origin)


def _link(run_dir: Path | None, sources: Iterator[ReplaySource]) -> Iterator[ReplaySource]:
    """Yield recordings of a run with the digests of the saves of their instances."""
    saves: dict[str, set[str]] = {}
    origins: dict[str, set[Origin]] = {}
    if run_dir is not None:
        with suppress(ClawbloxError):  # of another version, so its recordings stay unconnected
            for instance in read_lineage(run_dir).instances:
                made = {save.sha256 for save in instance.saves if save.sha256}
                begun = {life.origin for life in instance.lives if life.origin}
                for name in (instance.name, ""):  # a single instance has no name
                    saves.setdefault(name, set()).update(made)
                    origins.setdefault(name, set()).update(begun)
    for source in sources:
        name = source.found.instance
        begun = origins.get(name, set())
        yield attrs.evolve(
            source,
            saves=frozenset(saves.get(name, ())),
            origins=frozenset(origin.sha256 for origin in begun if origin.sha256),
            save=find_save(begun, source.first_time),
        )


def _number(recordings: Sequence[FoundRecording]) -> list[tuple[FoundRecording, int]]:
    """Number the recordings like ``find_recordings``; those in other formats have 0."""
    numbers = iter(range(1, len(recordings) + 1))
    return [(found, next(numbers) if found.is_readable else 0) for found in recordings]


def _read_source(
    found: FoundRecording, number: int, run_dir: Path | None, options: VerifyOptions
) -> ReplaySource:
    damage: Damage | None = None
    with suppress(RecordingError):  # the check below also fails to read it
        damage = find_damage(found, run_dir)
    source = ReplaySource(found=found, number=number, damage=damage)
    if not found.is_readable:
        return attrs.evolve(source, obstacle=f"its format is {found.format!r}, of another program")
    try:
        with opened_recording(found.path, run_dir) as reader:
            start = reader.start()
            last_tick = max(entry.header.last.tick for entry in reader.index)
    except RecordingError as error:
        return attrs.evolve(source, obstacle=str(error).partition("\n")[0])
    world_dir, env = options.world_dir, options.env
    world = str(find_recorded_world(found, run_dir) if world_dir is None else world_dir)
    record = None if run_dir is None else find_record(run_dir, found)
    if record is not None:
        env, missing = find_variables(record, env, os.environ)
        if missing:
            raise ConfigError(
                f"no value for {', '.join(missing)}, which {record.name} had; values are never on "
                "disk",
                key="env",
                hint="set the variables in the environment, or give env=",
            )
    backend = None if record is None else record.options.get("datastore")
    return attrs.evolve(
        source,
        run_dir=run_dir,
        world=world,
        env=env,
        datastore=_choose_backend(start.get("datastore"), backend),
        changed_files=find_changed_files(found, start.get("world_files"), world),
        first_tick=start["tick"],
        first_time=start["time"],
        last_tick=last_tick,
    )


def find_changed_files(found: FoundRecording, sha256: object, world: str) -> tuple[str, ...] | None:
    """Return the files of a world that have changed since a recording was made.

    Args:
        found: The recording.
        sha256: Digest of the files, from its first record.
        world: The directory or address of the world.

    Returns:
        Their paths, ``.`` where only that there are some is known; None where nothing is.
    """
    if not isinstance(sha256, str):
        return None
    with suppress(ClawbloxError):  # refused later if it is not a world
        now = read_world_files(find_world_dir(world))
        if now is None:
            return None
        if now.sha256 == sha256:
            return ()
        manifest = None if found.manifest is None else read_manifest(found.manifest)
        for entry in objects_in(manifest.world_files if manifest else ()):
            files = parse_world_files(entry.get("files"), sha256)
            if files is not None:
                return files.find_changes(now)
        return (".",)
    return None


def _choose_backend(recorded: object, option: object) -> DataStoreBackend | None:
    """Return the store of a replay's rows: that of the recorded world, else of its record.

    A replay never opens a database of other worlds, whatever the recording requests.
    """
    named = (backend for name in (recorded, option) for backend in _BACKENDS if backend == name)
    backend: DataStoreBackend | None = next(named, None)
    return "none" if backend == "postgres" else backend


def find_save(origins: Iterable[Origin], time: object) -> Origin | None:
    """Return the save that a recording started from; None unless it is unique.

    Args:
        origins: The saves that lives of its instance began from.
        time: Simulation time at which it begins, in seconds.
    """
    saves = {origin.sha256: origin for origin in origins if origin.time in (None, time)}
    return next(iter(saves.values())) if len(saves) == 1 and None not in saves else None


def read_saved_start(save: Origin) -> dict[str, Any] | None:
    """Return the snapshot in a save as recordings have it, without ids of sessions and their key.

    Args:
        save: The save, with its digest.

    Returns:
        None if the file is gone, has another content, or is not a snapshot of the kit.
    """
    try:
        content = read_regular(save.path, max_bytes=MAX_START_BYTES)
        if hashlib.sha256(content).hexdigest() != save.sha256:
            return None
        snapshot = parse_document(content, max_members=MAX_START_MEMBERS)
        return {
            **{key: value for key, value in snapshot.items() if key != "ended_sessions"},
            "ids": {"issued": snapshot["ids"]["issued"]},
            "sessions": [
                {"agent_id": session["agent_id"], "name": session["name"]}
                for session in snapshot["sessions"]
            ],
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
