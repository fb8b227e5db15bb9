"""Begins an experiment where the public generation scripts left one. Everything here blocks.

Complete generations of their table become lines ``imported``. A generation that is continued from
an archive becomes an attempt that was interrupted right after that checkpoint. What an interrupted
script left half-done is set aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from clawblox.agents.values import Usage
from clawblox.errors import ConfigError
from clawblox.experiment import layout
from clawblox.experiment.ended_attempts import set_aside
from clawblox.experiment.harness_import import ImportedChain, ResumePoint
from clawblox.experiment.journal import Journal
from clawblox.experiment.lines import LineType
from clawblox.experiment.opening import begin
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.state import ChainState, ExperimentState
from clawblox.system.clock import utc_now
from clawblox.system.files import digest_file


@attrs.frozen(kw_only=True)
class HarnessArchive:
    """An archive from which a generation continues.

    Attributes:
        path: The archive, in ``checkpoints`` of a run directory of the experiment.
        point: Where it continues the generation.
    """

    path: Path
    point: ResumePoint

    @property
    def attempt(self) -> str:
        """Name of the run that made it."""
        return self.path.parent.parent.name


def begin_from_harness(
    directory: Path, plan: Plan, *, chain: ImportedChain | None, archive: HarnessArchive | None
) -> None:
    """Write the first lines of the journal. Idempotent: after a crash, call it again.

    Args:
        directory: The directory of the experiment.
        plan: Its plan, with a single chain.
        chain: The generations of the table; None if it has none.
        archive: The archive from which a generation continues; None to begin the next generation.

    Raises:
        RunLockedError: Another process runs the experiment.
        ConfigError: The archive is elsewhere, or its generation is complete.
        ClawbloxError: The journal cannot be used, or a file of the plan is missing.
        OSError: A directory cannot be renamed.
    """
    (name,) = (chain.name for chain in plan.chains())
    with Journal(directory) as journal:
        begin(journal, directory, plan)
        for generation in chain.generations if chain else ():
            if generation.number not in ExperimentState(journal.lines).chain(name).generations:
                journal.append(
                    "imported", generation.data, chain=name, generation=generation.number
                )
        state = ExperimentState(journal.lines).chain(name)
        if archive is None:
            _set_aside_next(directory, plan, max(state.generations, default=0) + 1)
        else:
            _check_archive(directory, archive, state)
            _write_attempt(journal, name, archive, agents=len(plan.agents))


def _check_archive(directory: Path, archive: HarnessArchive, chain: ChainState) -> None:
    expected = layout.archive_path(directory, archive.attempt, archive.path.name)
    if archive.path.resolve() != expected.resolve():
        raise ConfigError(
            f"must be an archive in checkpoints of a run below {layout.runs_dir(directory)}",
            path=archive.path,
        )
    number = archive.point.generation
    last = max((n for n, generation in chain.generations.items() if generation.is_over), default=0)
    if number <= last:
        raise ConfigError(
            f"generation {number} is complete",
            path=archive.path,
            hint="--resume continues after it; clawblox experiment fork tries it again",
        )


def _write_attempt(journal: Journal, chain: str, archive: HarnessArchive, *, agents: int) -> None:
    written = {line.type for line in journal.lines if line.attempt == archive.attempt}
    for type_, data in _lines_of(archive, agents=agents):
        if type_ not in written:
            number = archive.point.generation
            journal.append(type_, data, chain=chain, generation=number, attempt=archive.attempt)


def _lines_of(archive: HarnessArchive, *, agents: int) -> Iterator[tuple[LineType, dict[str, Any]]]:
    """Yield the lines of an attempt that was interrupted after its checkpoint."""
    usage = [attrs.asdict(Usage())] * agents
    facts = {"phase": "work", "reason": "", "elapsed_s": 0.0, "revision": 0}
    yield "opened", {"origin": None, "inherited": None, **facts}
    yield (
        "checkpoint",
        {
            "file": archive.path.name,
            "sha256": digest_file(archive.path),
            "kind": "periodic",
            "elapsed_s": float(archive.point.elapsed_s),
            "usage": usage,
            "mid_turn": [],
            "size_bytes": archive.path.stat().st_size,
        },
    )
    yield "interrupted", {"usage": usage}


def _set_aside_next(directory: Path, plan: Plan, generation: int) -> None:
    """Rename what an interrupted script left of the next generation, whose name is needed."""
    prefix = plan.run_prefix or plan.name
    attempt = layout.attempt_name(prefix, generation)
    set_aside(directory, attempt, layout.failed_name(attempt, utc_now()))
