"""Files that an experiment keeps but does not need: failed runs and old checkpoints. Blocks.

The runs and periodic checkpoints of a generation serve its retries. After its commit, the
experiment needs only the committed run, the checkpoints at the boundary and the end, the archive
that the pointer of the chain names with the run around it, and the sources of branches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from clawblox.checkpoint.archive import registry
from clawblox.experiment import layout
from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.history.journal import Journal, fold_lines
from clawblox.experiment.history.lines import About
from clawblox.experiment.history.state import AttemptState, GenerationState
from clawblox.experiment.live.preparing import find_archive, find_attempt
from clawblox.experiment.reading.record import ExperimentRecord
from clawblox.system.trees import remove_tree, tree_size
from clawblox.team.pointer import read_pointer

LeftoverKind: TypeAlias = Literal["run", "checkpoint"]

_SPENT: Final = frozenset({"periodic", "pause"})
"""Kinds of checkpoints that only serve retries and pauses of their generation."""


@attrs.frozen(kw_only=True)
class Leftover:
    """An unneeded run directory or archive.

    Attributes:
        path: The directory or file, absolute.
        kind: Kind of the leftover.
        size_bytes: Its size.
        checkpoints: The recorded checkpoints in it.
    """

    path: Path
    kind: LeftoverKind
    size_bytes: int
    checkpoints: tuple[CheckpointRef, ...] = ()


def list_leftovers(record: ExperimentRecord) -> list[Leftover]:
    """Return the unneeded files of an experiment, in the order of its journal.

    Args:
        record: The experiment.

    Raises:
        ClawbloxError: A directory of the experiment is a link.
        OSError: A directory cannot be read.
    """
    record.require_no_links()
    return [
        leftover
        for chain in record.state.chains.values()
        for generation in chain.generations.values()
        for attempt in generation.attempts
        for leftover in _list(record, generation, attempt)
        if leftover.path.exists()
    ]


def remove_leftovers(directory: Path, leftovers: Sequence[Leftover]) -> None:
    """Remove unneeded files of an experiment; the journal records the removal first.

    Args:
        directory: The directory of the experiment.
        leftovers: The result of :func:`list_leftovers`; new sources of forks are kept.

    Raises:
        RunLockedError: A process runs the experiment.
        OSError: A file cannot be removed.
    """
    with Journal(directory) as journal:
        sources = fold_lines(directory, journal.lines).fork_sources
        for leftover in leftovers:
            if sources.isdisjoint(leftover.checkpoints):
                for ref in leftover.checkpoints:
                    about = About(ref.chain, ref.generation, ref.attempt)
                    journal.append("checkpoint.removed", {"file": ref.file}, about)
                remove = remove_tree if leftover.kind == "run" else registry.remove
                remove(leftover.path)


# -- needed files --------------------------------------------------------------------------------


def _list(
    record: ExperimentRecord, generation: GenerationState, attempt: AttemptState
) -> Iterator[Leftover]:
    chain_dir = layout.chain_dir(record.dir, generation.chain, record.plan.layout)
    sources, pointed = record.state.fork_sources, read_pointer(chain_dir)
    if attempt.outcome == "committed":
        yield from _list_archives(chain_dir, attempt, sources, pointed)
    elif attempt.ending is not None and _is_spent(generation, attempt, sources):
        place = find_attempt(chain_dir, attempt.attempt_id)
        holds_pointed = pointed is not None and place in pointed.parents
        # The public scripts may have completed the generation under the name of the attempt.
        if place is not None and place.name != generation.source and not holds_pointed:
            refs = tuple(point.ref for point in attempt.checkpoints)
            size_bytes = tree_size(place)
            yield Leftover(path=place, kind="run", size_bytes=size_bytes, checkpoints=refs)


def _list_archives(
    chain_dir: Path,
    attempt: AttemptState,
    sources: Collection[CheckpointRef],
    pointed: Path | None,
) -> Iterator[Leftover]:
    for point in attempt.checkpoints:
        archive = find_archive(chain_dir, point.ref)
        if archive in (None, pointed) or point.kind not in _SPENT or point.ref in sources:
            continue
        size_bytes = archive.stat().st_size
        refs = (point.ref,)
        yield Leftover(path=archive, kind="checkpoint", size_bytes=size_bytes, checkpoints=refs)


def _is_spent(
    generation: GenerationState, attempt: AttemptState, sources: Collection[CheckpointRef]
) -> bool:
    """Return whether an uncommitted attempt that has ended can be the source of nothing."""
    refs = {point.ref for point in attempt.checkpoints}
    return refs.isdisjoint(sources) and (generation.is_over or not refs)
