"""Instance records: the instances of a run directory, on disk for every other process to read.

Each line of ``<run dir>/.clawblox/instances/records.jsonl`` is a record: where an instance is, how
it was started and how it ended. The last line of a name is its record. A record has no secret.
Only the process that has the lock of a name (see ``claims``) writes its record.

Records have absolute paths. Where an instance's directory is not in the run directory that has its
record, that was moved, and the paths below the old run directory are below the new one.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from clawblox.config.arguments import is_world_url
from clawblox.errors import ManifestError, UsageError
from clawblox.protocol import ScriptErrors, TickRate
from clawblox.results import ProcessExit
from clawblox.rundir.journal import append_line, check_journal, read_line, read_lines, restore_lines
from clawblox.rundir.paths import STATE_DIR_NAME, name_lock, records_dir, records_journal
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import make_private_dir
from clawblox.system.locks import lock_file, unlock_file
from clawblox.system.process_tree import boot_id, is_same_process, read_process
from clawblox.system.record_file import LaterVersionError, RecordError, RecordFormat, encode_record
from clawblox.telemetry.log_index import note_end

PathMover: TypeAlias = Callable[[Path], Path]
"""Returns where a path of a manifest is now; see :func:`path_mover`."""

RecordState = Literal["planned", "starting", "ready", "exited", "failed", "interrupted", "unknown"]


@attrs.frozen
class InstanceRecord:
    """The record of one instance on disk.

    Attributes:
        name: Its name.
        state: What its orchestrator wrote last; see :attr:`is_alive`. A ``planned`` instance waits
            for its turn to start; ``unknown`` is never written, see ``listed``.
        world: Name of the world.
        world_dir: Directory with the ``world.toml``.
        instance_dir: Directory with its manifest and its files.
        index: Its place among many; None for an instance that was started alone.
        host: Address that it binds.
        port: Its port.
        base_path: Prefix of its routes.
        url: Its address.
        pid: Process of the world; 0 before there is one.
        start_time: Start of that process, in clock ticks since boot.
        boot_id: The boot in which pid and start time mean anything.
        cookie: Value of ``CLAWBLOX_INSTANCE`` in its processes.
        command_file: Script that reruns the launch.
        log_file: Its output.
        log_start: Offset of its first byte in the log.
        started_at: UTC time of the start.
        ended_at: UTC time of the end.
        resume_path: Snapshot that it was restored from.
        is_detached: Whether it outlives its orchestrator.
        orchestrator_pid: Process of its orchestrator.
        control: Name of the control socket of its orchestrator; empty for none.
        restarts: How often it was brought back.
        exit: How it ended, the last time.
        halt: Why it had halted before it was ended, in the world's words.
        run_id: Id of its run; empty if not known.
        options: The options of its start, by the names of ``StartOptions``: JSON values, without
            values of environment variables, because they may be secret.
        first_resume_path: Snapshot that its run began from; None if it began without.
        first_sha256: Digest of that snapshot; None if not known.
        stopped_on_purpose: Whether somebody had it stopped, so that a resume leaves it alone.
        has_finished: Whether its world ended by itself, with status 0.
        rate: How fast it runs, roughly, as its world reported; None if it did not.
        script_errors: The errors of its scripts, as its world last reported; None without any.
        datastore_path: File of the rows of its data stores; None if it has none of its own.
        schema_version: Version of the format of records.
    """

    name: str
    state: RecordState
    world: str
    world_dir: str
    instance_dir: str
    index: int | None
    host: str
    port: int
    base_path: str
    url: str
    pid: int
    start_time: int
    boot_id: str
    cookie: str
    command_file: str
    log_file: str
    log_start: int
    started_at: str
    ended_at: str | None
    resume_path: str | None
    is_detached: bool
    orchestrator_pid: int
    control: str
    restarts: int
    exit: ProcessExit | None
    halt: str | None = None
    run_id: str = ""
    options: Mapping[str, Any] = attrs.field(factory=dict, hash=False)
    first_resume_path: str | None = None
    first_sha256: str | None = None
    stopped_on_purpose: bool = False
    has_finished: bool = False
    rate: TickRate | None = None
    script_errors: ScriptErrors | None = None
    datastore_path: str | None = None
    schema_version: int = 1

    @property
    def labels(self) -> Mapping[str, Any]:
        """The labels of its start."""
        labels = self.options.get("labels")
        return labels if isinstance(labels, Mapping) else {}

    @property
    def seed(self) -> int | None:
        """The seed that its random state began with; None if that was a snapshot's, or unknown."""
        seed = self.options.get("reseed")
        return seed if type(seed) is int else None

    @property
    def is_alive(self) -> bool:
        """True if the world's process is alive, regardless of ``state``."""
        return (
            self.pid > 0
            and self.boot_id == boot_id()
            and is_same_process(self.pid, self.start_time)
            and read_process(self.pid) is not None
        )

    def ended(self, *, was_interrupted: bool) -> InstanceRecord:
        """Return the record of an instance that has ended without its orchestrator.

        Args:
            was_interrupted: Whether it had ended before anyone looked, in an unknown way.
        """
        state: RecordState = "exited" if self.state == "ready" else "failed"
        state = "interrupted" if was_interrupted else state
        return attrs.evolve(
            self,
            state=state,
            ended_at=format_utc(utc_now()),
            stopped_on_purpose=not was_interrupted and self.halt is None,
        )


def write_records(run_dir: Path, *records: InstanceRecord) -> None:
    """Write the records of instances, in place of their earlier records. Blocks.

    Call it as the owner of the instances' names only. It opens nothing that has to be closed, costs
    a few system calls and does not wait for the disk: after a loss of power nothing runs.

    Args:
        run_dir: The run directory; :func:`clawblox.rundir.claims.claim_name` was called for it.
        *records: The records; their ``options`` must be values that JSON has.

    Raises:
        OSError: The old records are still valid.
        TypeError: A value among the options is not a JSON value.
    """
    if records:
        append_line(records_journal(run_dir), b"".join(map(encode_record, records)).rstrip())


def restore_records(run_dir: Path, records: Iterable[InstanceRecord]) -> list[str]:
    """Write the records again that the journal lacks. Blocks.

    Call it as the owner of the names of the instances only. A file that is no journal is replaced.

    Returns:
        The names of the instances whose records were lost.

    Raises:
        OSError: They cannot be written.
    """
    journal = records_journal(run_dir)
    lines = {record.name: encode_record(record) for record in records}
    known = read_lines(journal)
    lost = {name: line for name, line in lines.items() if known.get(name) != line}
    if lost:
        make_private_dir(records_dir(run_dir))
        restore_lines(journal, b"".join(lost.values()).rstrip())
    return [*lost]


def replace_record(run_dir: Path, record: InstanceRecord) -> None:
    """Write another record of an instance that has ended, unless its name is in use again. Blocks.

    Raises:
        OSError: The old record is still valid.
    """
    with locked_name(run_dir, record.name) as is_locked:
        known = read_record(run_dir, record.name) if is_locked else None
        if known is not None and known.cookie == record.cookie:
            write_records(run_dir, record)


def has_records(run_dir: Path) -> bool:
    """Return whether an instance ever ran in a run directory. Blocks."""
    return os.path.isfile(records_journal(run_dir))  # noqa: PTH113 - no error for a closed directory


def check_records(run_dir: Path) -> None:
    """Check that the records of a run directory, if it has any, can be read. Blocks.

    Raises:
        OSError: They cannot be read; names their file.
        ManifestError: A later version of clawblox wrote them.
    """
    check_journal(records_journal(run_dir))
    read_records(run_dir)


def read_records(run_dir: Path) -> list[InstanceRecord]:
    """Return the records of a run directory by name; none when nothing ran there. Blocks.

    Raises:
        ManifestError: A later version of clawblox wrote a record.
    """
    journal = records_journal(run_dir)
    found = (_decode(line, journal) for _, line in sorted(read_lines(journal).items()))
    return [record for record in found if record is not None]


def read_record(run_dir: Path, name: str) -> InstanceRecord | None:
    """Return the record of one instance, or None. Blocks.

    Raises:
        ManifestError: A later version of clawblox wrote it.
    """
    journal = records_journal(run_dir)
    line = read_line(journal, name)
    return None if line is None else _decode(line, journal)


def read_running(run_dir: Path) -> list[InstanceRecord]:
    """Return the records of the instances that live now. Blocks."""
    return [record for record in read_records(run_dir) if record.is_alive]


def close_stale_records(run_dir: Path, *, without: Collection[str] = ()) -> list[InstanceRecord]:
    """Mark the instances whose orchestrator and process are gone as interrupted. Blocks.

    Args:
        run_dir: The run directory.
        without: Names of instances that are left as they are.

    Returns:
        Their records as they were: these instances were interrupted.
    """
    stale = [record for record in read_records(run_dir) if _is_stale(record)]
    meant = (record for record in stale if record.name not in without)
    return [record for record in meant if _close(run_dir, record.name)]


def _is_stale(record: InstanceRecord) -> bool:
    return record.state in ("starting", "ready") and not record.is_alive


def _close(run_dir: Path, name: str) -> bool:
    with locked_name(run_dir, name) as is_locked:
        # The last owner of the name may have written another record since.
        record = read_record(run_dir, name) if is_locked else None
        if record is None or not _is_stale(record):
            return False
        note_end_without_owner(record, was_interrupted=True)
        write_records(run_dir, record.ended(was_interrupted=True))
        return True


def note_end_without_owner(record: InstanceRecord, *, was_interrupted: bool) -> None:
    """Note in the index of its log that an instance ended without its orchestrator. Blocks.

    Args:
        record: The record of the instance.
        was_interrupted: Whether it had ended before anyone looked, in an unknown way.
    """
    event = "interrupted" if was_interrupted else "stopped"
    text = "interrupted: its orchestrator was killed" if was_interrupted else event
    note_end(Path(record.log_file), event, text, was_watched=not record.is_detached)


@contextlib.contextmanager
def locked_name(run_dir: Path, name: str) -> Iterator[bool]:
    """Take the lock of a name for a moment; yield whether it was free. Blocks."""
    lock_path = name_lock(run_dir, name)
    fd = lock_file(lock_path)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            unlock_file(lock_path, fd)


_FORMAT: Final = RecordFormat(
    kind="the record of an instance",
    decoder=msgspec.json.Decoder(InstanceRecord),
)


@functools.lru_cache(maxsize=1024)
def _decode(line: bytes, journal: Path) -> InstanceRecord | None:
    """Return a record, or None for a line that another program wrote."""
    try:
        record = _FORMAT.decode(line)
    except LaterVersionError as error:
        raise ManifestError(f"a record {error.problem}", path=journal, hint=error.hint) from error
    except RecordError:
        return None
    # An address in place of a directory would be downloaded, and run.
    return None if is_world_url(record.world_dir) else record


# -- run directories that were moved ---------------------------------------------------------------


MEMBERS_DIR: Final = "worlds"
"""The directory in a run directory with the directories of many instances."""
_PATHS: Final = (
    *("instance_dir", "command_file", "log_file"),
    *("resume_path", "first_resume_path", "datastore_path"),
)


def relocated(run_dir: Path, record: InstanceRecord) -> InstanceRecord:
    """Return a record with its paths in the run directory that it lies in. Blocks.

    Args:
        run_dir: The run directory, resolved.
        record: One of its records.

    Raises:
        UsageError: The run directory was moved without the directory of this instance.
    """
    home = Path(record.instance_dir)
    if home.is_relative_to(run_dir):
        return record
    former = former_run_dir(record)
    if not (run_dir / home.relative_to(former)).is_dir():
        raise UsageError(
            f"{run_dir} was moved: instance {record.name!r} ran in {home}",
            hint="move that directory too, or fork from the snapshots in it",
        )

    def moved(path: object) -> Any:  # noqa: ANN401 - an option may be of any type
        if not isinstance(path, str) or not Path(path).is_relative_to(former):
            return path
        return str(run_dir / Path(path).relative_to(former))

    paths = {name: moved(getattr(record, name)) for name in _PATHS}
    if not Path(record.world_dir).is_dir():
        paths["world_dir"] = moved(record.world_dir)
    options = {name: moved(value) for name, value in record.options.items()}
    return attrs.evolve(record, **paths, options=options)


def read_located(run_dir: Path) -> list[InstanceRecord]:
    """Return all records of a run directory, with paths below it even if it was moved. Blocks.

    Another run may be where it was, as when a failed run is renamed and its name used again. A
    record whose instance's directory was left behind is as it was written.

    Args:
        run_dir: The run directory.

    Raises:
        ManifestError: A later version of clawblox has written the records.
    """
    records = read_records(run_dir)
    if all(Path(record.instance_dir).is_relative_to(run_dir) for record in records):
        return records
    home = Path(os.path.realpath(run_dir))

    def locate(record: InstanceRecord) -> InstanceRecord:
        try:
            return relocated(home, record)
        except UsageError:
            return record

    return [locate(record) for record in records]


def path_mover(run_dir: Path) -> PathMover:
    """Return the function that returns where a path is now that a manifest of a run has. Blocks.

    The manifest of one of many has absolute paths of files in the run directory but outside of its
    own, such as agents. After a move these paths are out of date, or lead into another run.

    Args:
        run_dir: The run directory.
    """
    find_former = functools.cache(former_run_dirs)

    def move(path: Path) -> Path:
        if path.is_relative_to(run_dir):
            return path
        around = (place for place in find_former(run_dir) if path.is_relative_to(place))
        home = Path(os.path.realpath(run_dir))
        return next((home / path.relative_to(place) for place in around), path)

    return move


def former_run_dirs(run_dir: Path) -> frozenset[Path]:
    """Return where a run directory was when its records were written, if it was moved. Blocks.

    Args:
        run_dir: The run directory.

    Raises:
        ManifestError: A later version of clawblox wrote the records.
    """
    home, records = Path(os.path.realpath(run_dir)), read_records(run_dir)
    moved = (one for one in records if not Path(one.instance_dir).is_relative_to(home))
    return frozenset(map(former_run_dir, moved))


def adopt_moved(run_dir: Path) -> None:
    """Write the records of a moved run directory with their new paths. Blocks.

    Call it where no orchestrator of the run lives.

    Args:
        run_dir: The run directory, resolved.

    Raises:
        UsageError: The run directory was moved without the directory of one of its instances.
        OSError: A record cannot be written.
    """
    for record in read_records(run_dir):
        here = relocated(run_dir, record)
        if here is not record:
            replace_record(run_dir, here)


def former_run_dir(record: InstanceRecord) -> Path:
    """Return the run directory of a record as it was; one of many has ``worlds/<name>`` in it."""
    home = Path(record.instance_dir)
    if home.name != record.name or home.parent.name != MEMBERS_DIR:
        return home
    base = home.parent.parent
    return base.parent if base.name == STATE_DIR_NAME else base
