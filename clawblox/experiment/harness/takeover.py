"""Takes over the work of the public generation scripts in the directory of a chain. Blocks.

Their complete generations become lines of the journal. A generation that is continued from an
archive becomes an attempt that was interrupted right after that checkpoint. So an experiment
can continue a directory that the scripts started or continued.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clawblox.checkpoint.api import read_metadata
from clawblox.errors import ConfigError, RunLockedError
from clawblox.errors.general import shorten
from clawblox.experiment import layout
from clawblox.experiment.harness.script_files import (
    ImportedGeneration,
    ResumePoint,
    find_resume_point,
    read_chain,
    read_rows,
)
from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.lines import About, JournalLine, LineType
from clawblox.experiment.history.state import IMPORTED, ExperimentState
from clawblox.experiment.live.run_directories import set_aside
from clawblox.experiment.plan.naming import is_name, safe_name
from clawblox.experiment.plan.plan import Chain, Plan
from clawblox.experiment.tables.chain_files import moved_attempts
from clawblox.rundir.claims import find_owner
from clawblox.system.clock import utc_now
from clawblox.system.files import digest_file, make_private_dir


def check_takeover(directory: Path, plan: Plan, archive: Path | None) -> bool:
    """Check a takeover before anything is recorded; return whether there is anything to take over.

    Args:
        directory: The directory of the experiment.
        plan: Its plan.
        archive: The archive from which its only chain continues, or None.

    Raises:
        CheckpointError: The archive cannot be read, or is not sound.
        ConfigError: A table is not valid, or a table or the archive does not fit the plan.
    """
    checks = [_check(chain, place, archive) for chain, place in _places(directory, plan, archive)]
    return any(checks)


def take_over(
    journal: Journal,
    state: ExperimentState,
    directory: Path,
    plan: Plan,
    archive: Path | None,
) -> None:
    """Record the work of the scripts in the directories of the chains. Idempotent.

    A directory of the scripts is renamed if a chain needs its name.

    Args:
        journal: The journal, open.
        state: The state of the experiment, which is kept up to date.
        directory: The directory of the experiment.
        plan: The plan in force.
        archive: The archive from which the only chain continues, or None.

    Raises:
        CheckpointError: The archive cannot be read or is damaged.
        ConfigError: A table is invalid, a workspace is missing, or the archive does not fit.
        RunLockedError: A script still runs the next generation of a chain.
        OSError: A line cannot be written, or a file cannot be copied or renamed.
    """
    for chain, place in _places(directory, plan, archive):
        _import_rows(journal, state, chain, place)
        if archive is not None:
            _import_archive(journal, state, chain, place, archive)
        prefix = layout.run_prefix(plan.name, chain.name, plan.layout, given=plan.run_prefix)
        _set_aside_unknown(state, chain, place, prefix)


def _places(directory: Path, plan: Plan, archive: Path | None) -> list[tuple[Chain, Path]]:
    """Return the chains of a plan with their directories."""
    chains = plan.chains()
    if archive is not None and len(chains) > 1:
        message = f"must be left out for an experiment of {len(chains)} chains"
        raise ConfigError(message, key="resume_from", value=str(archive))
    return [(chain, layout.chain_dir(directory, chain.name, plan.layout)) for chain in chains]


def _check(chain: Chain, chain_dir: Path, archive: Path | None) -> bool:
    generations = _read_generations(chain, chain_dir)
    if archive is not None:
        _require_names(chain_dir, archive)
        _find_point(chain, archive, last=max((g.number for g in generations), default=0))
    return bool(generations) or archive is not None


def _import_rows(journal: Journal, state: ExperimentState, chain: Chain, chain_dir: Path) -> None:
    """Record the complete generations of a chain's table that are missing from the journal.

    If the scripts completed a generation again from an older archive, the new completion counts,
    because their later generations continue from it.
    """
    recorded = _recorded_runs(journal.lines, chain.name)
    for generation in _read_generations(chain, chain_dir):
        number, data = generation.number, generation.data
        if (number, data["run_id"]) not in recorded:
            state.apply(journal.append("imported", data, About(chain.name, number)))


def _read_generations(chain: Chain, chain_dir: Path) -> Sequence[ImportedGeneration]:
    table = layout.table_path(chain_dir)
    if not table.exists() or next(read_rows(table), None) is None:
        return ()
    return read_chain(chain_dir, agents=len(chain.plan.agents)).generations


def _recorded_runs(lines: Sequence[JournalLine], chain: str) -> set[tuple[int | None, str]]:
    """Return the complete generations of a chain in the journal, with their names in the table."""
    return {
        (line.generation, str(line.data.get("run_id", line.data.get("files", line.attempt))))
        for line in lines
        if line.type in ("committed", "imported") and line.chain == chain
    }


def _import_archive(
    journal: Journal, state: ExperimentState, chain: Chain, chain_dir: Path, archive: Path
) -> None:
    """Let a chain continue from an archive of the public scripts or of this package.

    An archive outside the directory of the chain is copied into it.
    """
    generations = state.chain(chain.name).generations.values()
    last = max((generation.number for generation in generations if generation.is_over), default=0)
    _require_names(chain_dir, archive)
    point = _find_point(chain, archive, last=last)
    directory, path = _place(chain_dir, archive, read_metadata(archive))
    moved = {name: attempt_id for attempt_id, name in moved_attempts(journal.lines).items()}
    attempt_id = moved.get(directory, directory)
    facts = _find_facts(journal.lines, chain.name, attempt_id, path) or _read_facts(path, point)
    _write_attempt(journal, state, chain.name, point.generation, attempt_id, facts)


def _write_attempt(
    journal: Journal,
    state: ExperimentState,
    chain: str,
    number: int,
    attempt_id: str,
    facts: Mapping[str, Any],
) -> None:
    """Write the missing files of an attempt that was interrupted after its checkpoint."""

    def write(type_: LineType, data: Mapping[str, Any], attempt_id: str = attempt_id) -> None:
        state.apply(journal.append(type_, data, About(chain, number, attempt_id)))

    generation = state.chain(chain).generations.get(number)
    if generation is None or generation.find_attempt(attempt_id) is None:
        write("opened", {"phase": "work", "reason": IMPORTED})
    generation = state.chain(chain).generations[number]
    latest = generation.latest_checkpoint
    if latest is None or (latest.ref.attempt, latest.ref.file) != (attempt_id, facts["file"]):
        write("checkpoint", facts)
    for other in generation.attempts:
        if other.ending is None and not other.working:
            write("interrupted", {"usage": []}, other.attempt_id)


def _find_point(chain: Chain, archive: Path, *, last: int) -> ResumePoint:
    """Return the point that an archive continues, after the complete generations up to ``last``."""
    agents = chain.plan.agents
    point = find_resume_point(archive, agents=len(agents))
    if point.generation <= last:
        raise ConfigError(
            f"must be of an incomplete generation, not of generation {point.generation}",
            key="resume_from",
            value=str(archive),
            hint="clawblox experiment fork starts branches at such a checkpoint",
        )
    if point.driver and point.driver != agents[0].driver:
        raise ConfigError(
            f"must have agents of the driver {agents[0].driver}, not {shorten(point.driver, 80)}",
            key="resume_from",
            value=str(archive),
            hint="a conversation can only continue in the program that started it",
        )
    return point


def _find_facts(
    lines: Sequence[JournalLine], chain: str, attempt_id: str, path: Path
) -> Mapping[str, Any] | None:
    """Return the journal's facts about a checkpoint of this package, or None."""
    for line in reversed(lines):
        is_of_attempt = (line.chain, line.attempt) == (chain, attempt_id)
        if is_of_attempt and line.type == "checkpoint" and line.data["file"] == path.name:
            return line.data
    return None


def _read_facts(path: Path, point: ResumePoint) -> Mapping[str, Any]:
    return {
        "file": path.name,
        "sha256": digest_file(path),
        "kind": "periodic",
        "elapsed_s": float(point.elapsed_s),
        "size_bytes": path.stat().st_size,
    }


def _place(chain_dir: Path, archive: Path, metadata: Mapping[str, Any]) -> tuple[str, Path]:
    """Return the attempt of an archive, and its path in the directory of the chain."""
    resolved = archive.resolve()
    if (directory := _find_directory(chain_dir, resolved)) is not None:
        return directory, resolved
    attempt_id = safe_name(str(metadata.get("run_id") or "imported")).strip(".") or "imported"
    place = layout.archive_path(chain_dir, attempt_id[:200], archive.name)
    make_private_dir(place.parent)
    if not place.exists():
        partial = place.with_name(f".{place.name}.partial")
        shutil.copyfile(resolved, partial)
        partial.replace(place)
    return attempt_id[:200], place


def _find_directory(chain_dir: Path, archive: Path) -> str | None:
    """Return the name of the run directory around an archive; None outside the chain."""
    runs = layout.runs_dir(chain_dir).resolve()
    if archive.parent.name == "checkpoints" and archive.parents[1].parent == runs:
        return archive.parents[1].name
    return None


def _require_names(chain_dir: Path, archive: Path) -> None:
    """Check that a journal may contain the names of an archive and its run."""
    directory = _find_directory(chain_dir, archive.resolve())
    if directory is not None and not is_name(directory):
        raise ConfigError(
            f"the name of its run directory must consist of letters, digits, dots, underscores and"
            f" hyphens, not {shorten(repr(directory), 80)}",
            key="resume_from",
            value=str(archive),
            hint="rename that directory",
        )


def _set_aside_unknown(state: ExperimentState, chain: Chain, chain_dir: Path, prefix: str) -> None:
    """Rename an interrupted script's directory of the next generation, whose name is needed."""
    own = state.chain(chain.name)
    number = 1 if own.latest is None else own.latest.number + own.latest.is_over
    attempt_id = layout.attempt_name(prefix, number)
    run_dir = layout.attempt_dir(chain_dir, attempt_id)
    is_own = any(other.attempt_id == attempt_id for other in own.attempts)
    if is_own or number > chain.plan.generations or not os.path.lexists(run_dir):
        return
    pid = find_owner(run_dir)
    if pid is not None:
        message = f"process {pid} runs generation {number} in {run_dir}"
        raise RunLockedError(message, pid=pid, hint="stop it first; its checkpoints remain")
    set_aside(chain_dir, attempt_id, layout.failed_name(attempt_id, utc_now()))
