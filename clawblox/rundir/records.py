"""Instance records: descriptions on disk of the instances of a run directory, for all processes.

Each line of ``<run dir>/.clawblox/instances/records.jsonl`` is a record with the location, start
and end of an instance. The last line of each name is valid. Records contain no secrets. Only the
process that holds the lock of a name (see ``claims``) writes its record.

Records contain absolute paths. If an instance's directory is not in the run directory with its
record, the run directory was moved, and paths below the old location are mapped to the new one.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

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
"""Returns the current location of a path in a manifest; see :func:`path_mover`."""

RecordState = Literal["planned", "starting", "ready", "exited", "failed", "interrupted", "unknown"]


class InstanceRecord(msgspec.Struct, frozen=True):
    """The record of one instance on disk.

    Attributes:
        name: Name of the instance.
        state: State that the orchestrator wrote last; see :attr:`is_alive`. A ``planned`` instance
            is queued to start; ``unknown`` is never written, see ``listed``.
        world: Name of the world.
        world_dir: Directory with the ``world.toml``.
        instance_dir: Directory with the manifest and the files of the instance.
        index: Index among many instances; None for an instance that was started alone.
        host: Address to which the world binds.
        port: Port of the world.
        base_path: Prefix of the world's routes.
        url: Address of the instance.
        pid: Process of the world; 0 before it is spawned.
        start_time: Start of that process, in clock ticks since boot.
        boot_id: The boot to which pid and start time belong.
        cookie: Value of ``CLAWBLOX_INSTANCE`` in the processes of the instance.
        command_file: Script that reruns the launch.
        log_file: Output of the world's processes.
        log_start: Offset in the log of the first byte of the instance.
        started_at: UTC time of the start.
        ended_at: UTC time of the end.
        resume_path: Snapshot that the instance was restored from.
        is_detached: Whether the instance outlives its orchestrator.
        orchestrator_pid: Process of the orchestrator.
        control: Name of the orchestrator's control socket; empty without a socket.
        restarts: Number of restarts.
        exit: Last exit of the process.
        halt: Reason for a halt before the end, in the world's words.
        run_id: Id of the run; empty if unknown.
        options: The options of the start, by the names of ``StartOptions``: JSON values, without
            values of environment variables, because they may be secret.
        first_resume_path: Snapshot that the run started from; None for a fresh start.
        first_sha256: Digest of that snapshot; None if unknown.
        stopped_on_purpose: Whether the instance was stopped on request, so that a resume skips it.
        has_finished: Whether the world exited without being stopped, with status 0.
        rate: Approximate speed that the world reported; None without a report.
        script_errors: The script errors that the world last reported; None without errors.
        datastore_path: File with the rows of the data stores; None if the instance has no such
            file.
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
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    first_resume_path: str | None = None
    first_sha256: str | None = None
    stopped_on_purpose: bool = False
    has_finished: bool = False
    rate: TickRate | None = None
    script_errors: ScriptErrors | None = None
    datastore_path: str | None = None
    schema_version: int = 1

    def __hash__(self) -> int:
        return hash((self.instance_dir, self.name, self.cookie))  # options have no hash

    @property
    def labels(self) -> Mapping[str, Any]:
        """The labels of the start."""
        labels = self.options.get("labels")
        return labels if isinstance(labels, Mapping) else {}

    @property
    def seed(self) -> int | None:
        """Seed of the initial random state; None if that came from a snapshot or is unknown."""
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
            was_interrupted: Whether the instance ended unobserved, in an unknown way.
        """
        state: RecordState = "exited" if self.state == "ready" else "failed"
        state = "interrupted" if was_interrupted else state
        return msgspec.structs.replace(
            self,
            state=state,
            ended_at=format_utc(utc_now()),
            stopped_on_purpose=not was_interrupted and self.halt is None,
        )


def write_records(run_dir: Path, *records: InstanceRecord) -> None:
    """Write the records of instances, replacing their earlier records. Blocks.

    Call this only as the owner of the instances' names. It keeps no file open, takes a few system
    calls and does not wait for the disk, because no instance survives a loss of power.

    Args:
        run_dir: The run directory; :func:`clawblox.rundir.claims.claim_name` was called for it.
        *records: The records; their ``options`` must be JSON values.

    Raises:
        OSError: The records cannot be written; the old records are still valid.
        TypeError: A value among the options is not a JSON value.
    """
    if records:
        append_line(records_journal(run_dir), b"".join(map(encode_record, records)).rstrip())


def restore_records(run_dir: Path, records: Iterable[InstanceRecord]) -> list[str]:
    """Write the records that are missing in the journal again. Blocks.

    Call this only as the owner of the instances' names. A file that is not a journal is replaced.

    Returns:
        The names of the instances whose records were lost.

    Raises:
        OSError: The records cannot be written.
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
    """Replace the record of an instance that has ended unless its name is in use again. Blocks.

    Raises:
        OSError: The record cannot be written; the old record is still valid.
    """
    with locked_name(run_dir, record.name) as is_locked:
        known = read_record(run_dir, record.name) if is_locked else None
        if known is not None and known.cookie == record.cookie:
            write_records(run_dir, record)


def has_records(run_dir: Path) -> bool:
    """Return whether an instance ever ran in a run directory. Blocks."""
    return os.path.isfile(records_journal(run_dir))  # noqa: PTH113 - no error for a closed directory


def check_records(run_dir: Path) -> None:
    """Check that the records of a run directory, if any, can be read. Blocks.

    Raises:
        OSError: The records cannot be read; the error names their file.
        ManifestError: A later version of clawblox wrote the records.
    """
    check_journal(records_journal(run_dir))
    read_records(run_dir)


def read_records(run_dir: Path) -> list[InstanceRecord]:
    """Return the records of a run directory, sorted by name; empty without any runs. Blocks.

    Raises:
        ManifestError: A later version of clawblox wrote a record.
    """
    journal = records_journal(run_dir)
    found = (_decode_again(line, journal) for _, line in sorted(read_lines(journal).items()))
    return [record for record in found if record is not None]


def read_record(run_dir: Path, name: str) -> InstanceRecord | None:
    """Return the record of one instance, or None. Blocks.

    Raises:
        ManifestError: A later version of clawblox wrote the record.
    """
    journal = records_journal(run_dir)
    line = read_line(journal, name)
    return None if line is None else _decode(line, journal)


def read_running(run_dir: Path) -> list[InstanceRecord]:
    """Return the records of the instances that are alive. Blocks."""
    return [record for record in read_records(run_dir) if record.is_alive]


def close_stale_records(run_dir: Path, *, without: Collection[str] = ()) -> list[InstanceRecord]:
    """Mark the instances whose orchestrator and process are gone as interrupted. Blocks.

    Args:
        run_dir: The run directory.
        without: Names of instances to leave unchanged.

    Returns:
        The previous records of the interrupted instances.
    """
    stale = [record for record in read_records(run_dir) if _is_stale(record)]
    meant = (record for record in stale if record.name not in without)
    return [record for record in meant if _close(run_dir, record.name)]


def _is_stale(record: InstanceRecord) -> bool:
    return record.state in ("starting", "ready") and not record.is_alive


def _close(run_dir: Path, name: str) -> bool:
    with locked_name(run_dir, name) as is_locked:
        # The last owner of the name may have written another record since then.
        record = read_record(run_dir, name) if is_locked else None
        if record is None or not _is_stale(record):
            return False
        note_end_without_owner(record, was_interrupted=True)
        write_records(run_dir, record.ended(was_interrupted=True))
        return True


def note_end_without_owner(record: InstanceRecord, *, was_interrupted: bool) -> None:
    """Note the end of an instance without its orchestrator in the index of its log. Blocks.

    Args:
        record: The record of the instance.
        was_interrupted: Whether the instance ended unobserved, in an unknown way.
    """
    event = "interrupted" if was_interrupted else "stopped"
    text = "interrupted: its orchestrator was killed" if was_interrupted else event
    note_end(Path(record.log_file), event, text, was_watched=not record.is_detached)


@contextlib.contextmanager
def locked_name(run_dir: Path, name: str) -> Iterator[bool]:
    """Take the lock of a name briefly; yield whether it was free. Blocks."""
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


def _decode(line: bytes, journal: Path) -> InstanceRecord | None:
    """Return the record of a line; None if another program wrote the line."""
    try:
        record = _FORMAT.decode(line)
    except LaterVersionError as error:
        raise ManifestError(f"a record {error.problem}", path=journal, hint=error.hint) from error
    except RecordError:
        return None
    # An address in place of a directory would be downloaded and run.
    return None if is_world_url(record.world_dir) else record


_decode_again: Final = functools.lru_cache(maxsize=1024)(_decode)
"""Remembers records, for tables that are drawn again; a start that reads its own record once would
keep it in memory.
"""


# -- run directories that were moved ---------------------------------------------------------------


MEMBERS_DIR: Final = "worlds"
"""Name of the directory with the directories of many instances."""
_PATHS: Final = (
    *("instance_dir", "command_file", "log_file"),
    *("resume_path", "first_resume_path", "datastore_path"),
)


def relocated(run_dir: Path, record: InstanceRecord) -> InstanceRecord:
    """Return a record with its paths mapped to the current run directory. Blocks.

    Args:
        run_dir: The run directory, resolved.
        record: A record of this run directory.

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
    return msgspec.structs.replace(record, **paths, options=options)


def read_located(run_dir: Path) -> list[InstanceRecord]:
    """Return all records of a run directory, with current paths even after a move. Blocks.

    Another run may be at the old location, for example if a failed run was renamed and its name
    used again. Records whose instance directories were left behind are returned unchanged.

    Args:
        run_dir: The run directory.

    Raises:
        ManifestError: A later version of clawblox wrote the records.
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
    """Return a function that maps paths in the manifests of a run to current paths. Blocks.

    The manifest of one of many instances contains absolute paths of files outside of its own
    directory but in the run directory, such as agents. After a move, these paths are out of date,
    or lead into another run.

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
    """Return the former paths of a moved run directory, according to its records. Blocks.

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

    Call this only while no orchestrator of the run is alive.

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
    """Return the run directory as recorded, without ``worlds/<name>`` for one of many instances."""
    home = Path(record.instance_dir)
    if home.name != record.name or home.parent.name != MEMBERS_DIR:
        return home
    base = home.parent.parent
    return base.parent if base.name == STATE_DIR_NAME else base
