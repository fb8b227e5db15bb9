"""The status of the instances of a run directory, running or ended.

The status is read from records, manifests, logs and ``/proc``, so it is also available for runs of
other orchestrators and for finished runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from clawblox.errors import ManifestError, UsageError
from clawblox.protocol import INSTANCE_ENV, ScriptErrors, TickRate
from clawblox.results import Labels, ProcessExit, format_label, has_labels
from clawblox.rundir.listed import read_listed
from clawblox.rundir.listed_saves import LineageSave, last_saves
from clawblox.rundir.paths import run_lock
from clawblox.rundir.records import (
    InstanceRecord,
    locked_name,
    path_mover,
    read_located,
    read_records,
)
from clawblox.system.clock import parse_utc
from clawblox.system.locks import lock_owner
from clawblox.system.process_tree import (
    Mark,
    Search,
    boot_id,
    find_trees,
    measure_usage,
    read_process,
)
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

InstanceState: TypeAlias = Literal[
    "starting",
    "ready",
    "restarting",
    "stopping",
    "exited",
    "halted",
    "failed",
    "interrupted",
    "unknown",
]
"""The state of an instance: the recorded state, corrected by the state of its processes.

``restarting`` died and is starting again; ``stopping`` has no more processes, but its orchestrator
is still cleaning up; ``halted`` reported that it has stopped for good, and was ended;
``interrupted`` was left behind by an orchestrator that is gone; ``failed`` was never ready;
``unknown`` has no record, and its manifest does not contain its end.
"""

OVER: tuple[InstanceState, ...] = ("exited", "halted", "failed", "interrupted", "unknown")
"""The states of instances that have ended or are unknown."""

GOOD_EXITS = (ProcessExit(status=0), ProcessExit(signal="SIGTERM"))
"""Exits of a world's process that are not failures: status 0, or the TERM of a stop."""


@attrs.frozen
class InstanceStatus:
    """The current status of one instance of a run directory.

    Attributes:
        name: Name of the instance.
        state: State of the instance.
        world: Name of the world.
        world_dir: Directory with the ``world.toml``.
        instance_dir: Directory with the manifest and the files of the instance.
        run_dir: The run directory.
        pid: Process of the world; None if it is not alive.
        host: Address to which the world binds.
        port: Port of the world.
        url: Address of the instance.
        uptime_s: Seconds from the start until now or until the end; None if unknown. Ignored in
            comparisons, like the other measurements ``rss_bytes``, ``cpu_s`` and ``rate``.
        started_at: UTC time of the start.
        ended_at: UTC time of the end; None if the instance is alive or the time is unknown.
        exit: Exit of the world's process, if known.
        restarts: Number of restarts.
        rss_bytes: Resident memory of all processes of the instance; None if none is alive.
        cpu_s: Processor time of all live processes, in seconds; None if none is alive.
        saved_at: UTC time of the last existing save of the run; None without a save.
        saved_path: File of the last save.
        saved_sha256: Digest of the last save; None if the manifest does not contain it.
        sim_time: Simulation time of the last save; None if the snapshot does not contain it.
        is_detached: Whether the instance outlives its orchestrator.
        orchestrator_pid: Process of the orchestrator.
        resume_path: Snapshot that the instance was restored from, if any.
        command_file: Script that reruns the launch.
        log_file: Output of the world's processes.
        halt: Reason for a halt, in the world's words; None without a halt.
        run_id: Id of the run, including the last save; empty for a run of an older version.
        labels: Labels of the start.
        seed: Seed of the run's initial random state; None if that came from a snapshot.
        rate: Approximate speed that the world reports; None without a report or after the end.
        script_errors: The script errors that the world last reported; None without errors.
    """

    name: str
    state: InstanceState
    world: str
    world_dir: Path
    instance_dir: Path
    run_dir: Path
    pid: int | None
    host: str
    port: int
    url: str
    uptime_s: float | None = attrs.field(eq=False)
    started_at: str
    ended_at: str | None
    exit: ProcessExit | None
    restarts: int
    rss_bytes: int | None = attrs.field(eq=False)
    cpu_s: float | None = attrs.field(eq=False)
    saved_at: str | None
    saved_path: Path | None
    saved_sha256: str | None
    sim_time: float | None
    is_detached: bool
    orchestrator_pid: int
    resume_path: Path | None
    command_file: Path
    log_file: Path
    halt: str | None = None
    run_id: str = ""
    labels: Mapping[str, Any] = attrs.field(factory=dict, hash=False)
    seed: int | None = None
    rate: TickRate | None = attrs.field(default=None, eq=False)
    script_errors: ScriptErrors | None = None

    @property
    def has_died(self) -> bool:
        """True if the instance has ended, but not with a good exit or by the TERM of a stop."""
        return is_death(self.state, self.exit)


def is_death(state: InstanceState, exit: ProcessExit | None) -> bool:  # noqa: A002 - its name
    """Return whether an instance has ended, but not with a good exit or by the TERM of a stop."""
    if state != "exited":
        return state in ("halted", "failed", "interrupted")
    return exit is not None and exit not in GOOD_EXITS


@attrs.frozen
class Run:
    """The instances of a run directory at one moment.

    Attributes:
        directory: The run directory.
        instances: The instances that were started, sorted by name.
        waiting: Number of planned instances that an orchestrator has not started yet.
        owner_pid: Pid of the orchestrator that starts many instances there, or None.
        interrupted: Names of the instances that a resume would continue.
    """

    directory: Path
    instances: tuple[InstanceStatus, ...]
    waiting: int
    owner_pid: int | None
    interrupted: tuple[str, ...]


def read_run(run_dir: Path, names: Sequence[str] = ()) -> Run:
    """Return the instances of a run directory, running or ended. Blocks.

    Args:
        run_dir: The run directory; without any runs, it has no instances.
        names: Names of the instances to return; empty means all.

    Raises:
        UsageError: A named instance does not exist.
    """
    (run,) = _read_runs({run_dir: select_records(run_dir, names)})
    return run


def read_runs(run_dirs: Iterable[Path]) -> list[Run]:
    """Return the instances of run directories, in one pass over the processes. Blocks.

    For a run directory without records, the instances come from its manifest. A run directory
    written by a later version of clawblox is skipped with a warning.
    """
    runs = {}
    for run_dir in run_dirs:
        with _log.contain("run directory left out", expected=(ManifestError,)):
            runs[run_dir] = read_listed(run_dir)
    return _read_runs(runs)


def is_interrupted(record: InstanceRecord) -> bool:
    """Return whether a resume would continue an instance. Blocks."""
    if record.has_finished or record.stopped_on_purpose:
        return False
    return is_over(record) or not (has_owner(record) or record.is_detached)


def run_owner(run_dir: Path) -> int | None:
    """Return the pid of the orchestrator that starts many instances in a run directory. Blocks."""
    return living_owner(run_lock(run_dir))


def living_owner(lock_path: Path) -> int | None:
    """Return the pid of the live process that holds a lock, or None. Blocks."""
    owner = lock_owner(lock_path)
    return owner.pid if owner is not None and read_process(owner.pid) is not None else None


def own_start(run_dir: Path) -> InstanceRecord | None:
    """Return the record of the instance that this process is starting, if any. Blocks."""
    mine = (found for found in read_records(run_dir) if found.orchestrator_pid == os.getpid())
    return next((found for found in mine if found.state == "starting"), None)


def select_records(
    run_dir: Path, names: Sequence[str], labels: Labels | None = None
) -> list[InstanceRecord]:
    """Return the named records of a run directory, or all. Blocks.

    Args:
        run_dir: The run directory.
        names: The instances; empty means all.
        labels: Labels that the instances must have.

    Raises:
        UsageError: A named instance does not exist, or no instance has the labels.
    """
    found = choose_named(run_dir, read_located(run_dir), names)
    if not labels:
        return found
    with_labels = [record for record in found if has_labels(record.labels, labels)]
    if not with_labels:
        wanted = ", ".join(f"{name}={format_label(value)}" for name, value in labels.items())
        there = sorted({name for record in found for name in record.labels})
        raise UsageError(
            f"no instance in {run_dir} has {wanted}; the labels there are: "
            f"{', '.join(there) or 'none'}"
        )
    return with_labels


def choose_named(
    run_dir: Path, records: Sequence[InstanceRecord], names: Sequence[str]
) -> list[InstanceRecord]:
    """Return the named records among those of a run directory; without names, return all.

    Raises:
        UsageError: A named instance is not among them.
    """
    known = [record.name for record in records]
    if unknown := [name for name in names if name not in known]:
        there = ", ".join(known) or "none"
        raise UsageError(f"no instance {unknown[0]!r} in {run_dir}; there are: {there}")
    return [record for record in records if not names or record.name in names]


def is_ready(record: InstanceRecord) -> bool:
    """Return whether an instance is serving. Blocks."""
    return record.state == "ready" and record.is_alive


def is_waiting(record: InstanceRecord) -> bool:
    """Return whether an instance is queued to start in its orchestrator. Blocks."""
    return record.state == "planned" and has_owner(record)


def has_owner(record: InstanceRecord) -> bool:
    """Return whether the orchestrator of an instance is alive. Blocks."""
    return record.boot_id == boot_id() and read_process(record.orchestrator_pid) is not None


def is_over(record: InstanceRecord) -> bool:
    """Return whether an instance has ended and its orchestrator has cleaned up. Blocks."""
    return judge_state(record) in OVER


def is_owned(run_dir: Path, record: InstanceRecord) -> bool:
    """Return whether a live orchestrator is starting, running or restarting an instance. Blocks."""
    if is_over(record) or not has_owner(record):
        return False
    if record.state == "planned":
        return run_owner(run_dir) == record.orchestrator_pid
    # With a free lock, it is detached, or another program has its orchestrator's pid.
    with locked_name(run_dir, record.name) as is_free:
        return not is_free


def make_mark(record: InstanceRecord) -> Mark:
    """Return the mark of an instance's processes. Blocks."""
    is_this_boot = record.pid > 0 and record.boot_id == boot_id()
    leaders = ((record.pid, record.start_time),) if is_this_boot else ()
    return Mark(f"{INSTANCE_ENV}={record.cookie}".encode(), leaders)


def _read_runs(runs: Mapping[Path, Sequence[InstanceRecord]]) -> list[Run]:
    alive = [record for records in runs.values() for record in records if record.is_alive]
    trees = find_trees([Search((make_mark(record),)) for record in alive]) if alive else []
    usages = {
        record.cookie: measure_usage(proc.pid for proc in tree)
        for record, tree in zip(alive, trees, strict=True)
    }
    return [_describe_run(run_dir, records, usages) for run_dir, records in runs.items()]


def _describe_run(
    run_dir: Path, records: Sequence[InstanceRecord], usages: Mapping[str, tuple[int, float]]
) -> Run:
    begun = [record for record in records if not is_waiting(record)]
    saves = last_saves(begun, path_mover(run_dir))
    return Run(
        directory=run_dir,
        instances=tuple(
            _describe_status(run_dir, record, usages.get(record.cookie), saves.get(record.name))
            for record in begun
        ),
        waiting=len(records) - len(begun),
        owner_pid=run_owner(run_dir),
        interrupted=tuple(record.name for record in records if is_interrupted(record)),
    )


def _describe_status(
    run_dir: Path, record: InstanceRecord, usage: tuple[int, float] | None, save: LineageSave | None
) -> InstanceStatus:
    is_alive = usage is not None
    names = [name for name in attrs.fields_dict(InstanceStatus) if hasattr(record, name)]
    values: dict[str, Any] = {name: getattr(record, name) for name in names}
    values.update(
        state=judge_state(record, is_alive=is_alive),
        world_dir=Path(record.world_dir),
        instance_dir=Path(record.instance_dir),
        run_dir=run_dir,
        pid=record.pid if is_alive else None,
        uptime_s=_measure_age(record.start_time) if is_alive else _measure_lifetime(record),
        rss_bytes=usage[0] if usage else None,
        cpu_s=usage[1] if usage else None,
        saved_at=save.created_at if save else None,
        saved_path=save.path if save else None,
        saved_sha256=save.sha256 if save else None,
        sim_time=save.time if save else None,
        resume_path=Path(record.resume_path) if record.resume_path else None,
        command_file=Path(record.command_file),
        log_file=Path(record.log_file),
        rate=record.rate if is_alive else None,
    )
    return InstanceStatus(**values)


def judge_state(record: InstanceRecord, *, is_alive: bool | None = None) -> InstanceState:
    """Return the state of an instance now. Blocks.

    Args:
        record: Record of the instance.
        is_alive: Whether its process is alive; None checks.
    """
    if record.state in OVER:
        return "halted" if record.halt is not None else record.state
    is_alive = record.is_alive if is_alive is None else is_alive
    if not is_alive and not has_owner(record):
        return "interrupted"
    if record.state == "planned":
        return "starting"
    if record.restarts and record.state == "starting":
        return "restarting"
    if record.halt is not None:
        return "stopping"
    return record.state if is_alive else "stopping" if record.pid else "starting"


def _measure_age(start_time: int) -> float:
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, since_boot - start_time / os.sysconf("SC_CLK_TCK"))


def _measure_lifetime(record: InstanceRecord) -> float | None:
    begin, end = parse_utc(record.started_at), parse_utc(record.ended_at)
    return None if begin is None or end is None else max(0.0, (end - begin).total_seconds())
