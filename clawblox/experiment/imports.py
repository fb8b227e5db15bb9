"""Takes over what the public generation scripts did in the directory of a chain. Blocks.

Their complete generations become lines of the journal. So an experiment continues a directory that
they began, or in which they have continued.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawblox.checkpoint.api import read_metadata
from clawblox.errors import ConfigError
from clawblox.experiment import layout
from clawblox.experiment.ended_attempts import set_aside
from clawblox.experiment.harness_import import find_resume_point, read_chain, read_rows
from clawblox.experiment.journal import Journal
from clawblox.experiment.plan.naming import safe_name
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.state import ExperimentState
from clawblox.system.clock import utc_now
from clawblox.system.files import digest_file, make_private_dir


def import_rows(journal: Journal, state: ExperimentState, chain: Chain, chain_dir: Path) -> None:
    """Record the complete generations of a chain's table that the journal does not have.

    Args:
        journal: The journal, open.
        state: The state of the experiment.
        chain: The chain.
        chain_dir: Its directory.

    Raises:
        ConfigError: The table is not valid, or a workspace is missing.
        OSError: A line cannot be written.
    """
    table = layout.table_path(chain_dir)
    if not table.exists() or next(read_rows(table), None) is None:
        return
    own = state.chain(chain.name).generations
    imported = read_chain(chain_dir, agents=len(chain.plan.agents))
    for generation in imported.generations:
        if generation.number not in own or not own[generation.number].is_over:
            line = journal.append(
                "imported", generation.data, chain=chain.name, generation=generation.number
            )
            state.apply(line)


def import_archive(
    journal: Journal, state: ExperimentState, chain: Chain, chain_dir: Path, archive: Path
) -> None:
    """Let a chain continue from an archive of the public scripts or of this package.

    An archive outside the directory of the chain is copied into it.

    Args:
        journal: The journal, open.
        state: The state of the experiment.
        chain: The chain.
        chain_dir: Its directory.
        archive: The archive.

    Raises:
        CheckpointError: The archive cannot be read, or is not sound.
        ConfigError: It is of a generation that is complete, or has other agents.
        OSError: It cannot be copied, or a line cannot be written.
    """
    point = find_resume_point(archive, agents=len(chain.plan.agents))
    known = state.chain(chain.name).generations.get(point.generation)
    if known is not None and known.is_over:
        raise ConfigError(
            f"must be of a generation that is not complete, not of generation {point.generation}",
            key="resume_from",
            value=str(archive),
            hint="clawblox experiment fork begins branches at such a checkpoint",
        )
    metadata = read_metadata(archive)
    attempt, path = _place(chain_dir, archive, metadata)
    facts = {
        "file": path.name,
        "sha256": digest_file(path),
        "kind": "periodic",
        "elapsed_s": float(point.elapsed_s),
        "size_bytes": path.stat().st_size,
    }
    names: dict[str, Any] = {
        "chain": chain.name,
        "generation": point.generation,
        "attempt": attempt,
    }
    # A call that was killed between two lines is completed by the next.
    if known is None or known.find_attempt(attempt) is None:
        state.apply(journal.append("opened", {"phase": "work", "reason": "imported"}, **names))
    generation = state.chain(chain.name).generations[point.generation]
    ancestry = generation.ancestry()
    if not ancestry or (ancestry[0].ref.attempt, ancestry[0].ref.file) != (attempt, path.name):
        state.apply(journal.append("checkpoint", facts, **names))
    made_by = generation.find_attempt(attempt)
    if made_by is not None and made_by.ending is None:
        state.apply(journal.append("interrupted", {"usage": []}, **names))


def set_aside_unknown(state: ExperimentState, chain: Chain, chain_dir: Path, prefix: str) -> None:
    """Rename what an interrupted script left of the next generation, whose name is needed.

    Args:
        state: The state of the experiment.
        chain: The chain.
        chain_dir: Its directory.
        prefix: Prefix of the names of its runs.

    Raises:
        OSError: The directory cannot be renamed.
    """
    generations = state.chain(chain.name).generations
    latest = max(generations, default=0)
    if latest in generations and not generations[latest].is_over:
        return
    attempt = layout.attempt_name(prefix, latest + 1)
    set_aside(chain_dir, attempt, layout.failed_name(attempt, utc_now()))


def _place(chain_dir: Path, archive: Path, metadata: Mapping[str, Any]) -> tuple[str, Path]:
    """Return the attempt of an archive, and its path in the directory of the chain."""
    resolved = archive.resolve()
    runs = layout.runs_dir(chain_dir).resolve()
    if resolved.is_relative_to(runs) and resolved.parent.name == "checkpoints":
        return resolved.relative_to(runs).parts[0], resolved
    attempt = safe_name(str(metadata.get("run_id") or "imported")).strip(".") or "imported"
    place = layout.archive_path(chain_dir, attempt[:200], archive.name)
    make_private_dir(place.parent)
    if not place.exists():
        partial = place.with_name(f".{place.name}.partial")
        shutil.copyfile(resolved, partial)
        partial.replace(place)
    return attempt[:200], place
