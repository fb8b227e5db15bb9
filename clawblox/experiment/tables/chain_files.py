"""The table of a chain's generations and the pointer to its latest archive.

Both are derived from the journal and have the format of the public generation scripts, which can
resume a chain from them. They are rewritten after every step that changes them, and when an
experiment is opened, so they name existing files even if the experiment's directory was moved.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.experiment import layout
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.plan.plan import Layout
from clawblox.system.clock import format_utc, parse_utc
from clawblox.system.files import make_private_dir, publish_changed
from clawblox.team.pointer import read_pointer, write_pointer

COLUMNS: Final = (
    "generation",
    "agent_index",
    "agent_name",
    "run_id",
    "tmux_session",
    "template_in",
    "workspace_out",
    "start_utc",
    "end_utc",
    "duration_seconds",
)
"""The columns of the table, in their order."""

CHECKPOINT_PREFIX: Final = "checkpoint:"
"""Precedes the archive in ``template_in`` if a generation continued from an archive."""


@attrs.frozen(kw_only=True)
class PlannedChain:
    """The part of a plan that the files of a chain contain.

    Attributes:
        templates: The template of each agent, absolute; None for an empty workspace.
        duration_s: Planned duration of a generation, in seconds.
        runs: Prefix of all runs of the experiment.
        tmux: Prefix of its tmux sessions, or None.
    """

    templates: Sequence[Path | None]
    duration_s: float
    runs: str
    tmux: str | None = None


def write_chain_files(
    chain_dir: Path,
    lines: Sequence[JournalLine],
    revisions: Sequence[PlannedChain],
    style: Layout,
    moved: Mapping[str, str],
) -> None:
    """Write the table and the pointer of a chain if they differ from its lines. Blocks.

    Args:
        chain_dir: The directory of the chain, absolute; it is created if it is missing.
        lines: The lines of the journal that are about the chain.
        revisions: The plan of the chain in each revision of the experiment's plan.
        style: The layout of the experiment.
        moved: The attempts of all chains that were moved; see :func:`moved_attempts`.

    Raises:
        OSError: A file cannot be written; it has its old content.
    """
    make_private_dir(layout.runs_dir(chain_dir))
    table = format_table(chain_dir, lines, revisions, moved)
    publish_changed(layout.table_path(chain_dir), table, durable=False)
    latest = find_latest(chain_dir, lines, moved)
    if latest is None:
        if not _has_sound_pointer(chain_dir):  # it may name an imported archive
            layout.pointer_path(chain_dir).unlink(missing_ok=True)
        return
    line, archive = latest
    is_imported_after = any(other.type == "imported" and other.seq > line.seq for other in lines)
    if is_imported_after and _has_sound_pointer(chain_dir):
        return
    write_pointer(
        layout.pointer_path(chain_dir),
        archive,
        {"generation": line.generation, "elapsed_seconds": int(line.data.get("elapsed_s", 0))},
        written_at=_seconds(line.at),
        is_absolute=style == "flat",
    )


def _has_sound_pointer(chain_dir: Path) -> bool:
    archive = read_pointer(chain_dir)
    return archive is not None and archive.is_file()


def find_latest(
    chain_dir: Path, lines: Sequence[JournalLine], moved: Mapping[str, str]
) -> tuple[JournalLine, Path] | None:
    """Return the line and the path of a chain's latest existing archive, or None.

    Args:
        chain_dir: The directory of the chain.
        lines: The lines of the journal that are about the chain.
        moved: The attempts that were moved.
    """
    for line in reversed(lines):
        if line.type == "checkpoint" and line.attempt is not None:
            for directory in (moved.get(line.attempt, line.attempt), line.attempt):
                archive = layout.archive_path(chain_dir, directory, str(line.data["file"]))
                if archive.is_file():
                    return line, archive
    return None


def is_moving(chain_dir: Path, lines: Sequence[JournalLine], moved: Mapping[str, str]) -> bool:
    """Return whether the latest archive is in a directory that is about to be renamed.

    Args:
        chain_dir: The directory of the chain.
        lines: The lines of the journal that are about the chain.
        moved: The attempts that were moved.
    """
    latest = find_latest(chain_dir, lines, moved)
    if latest is None:
        return False
    line, archive = latest
    attempt = str(line.attempt)
    return archive.parents[1].name != moved.get(attempt, attempt)


def moved_attempts(lines: Iterable[JournalLine]) -> dict[str, str]:
    """Return the new names of the run directories that were renamed after a failure, by attempt.

    No two attempts of an experiment have the same name.
    """
    return {
        line.attempt: str(line.data["moved_to"])
        for line in lines
        if line.type == "failed" and line.attempt is not None and line.data.get("moved_to")
    }


# -- the table -----------------------------------------------------------------------------------


def format_table(
    chain_dir: Path,
    lines: Sequence[JournalLine],
    revisions: Sequence[PlannedChain],
    moved: Mapping[str, str],
) -> bytes:
    """Return the content of the table of a chain.

    Lines end in LF, since older public scripts refuse a header that ends in another character.
    Newer scripts read both.

    Args:
        chain_dir: The directory of the chain, absolute.
        lines: The lines of the journal that are about the chain.
        revisions: The plan of the chain in each revision of the experiment's plan.
        moved: The attempts of all chains that were moved.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(COLUMNS)
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerows(_rows(chain_dir, lines, revisions, moved))
    return text.getvalue().encode("utf-8", "surrogateescape")


def _rows(
    chain_dir: Path,
    lines: Sequence[JournalLine],
    revisions: Sequence[PlannedChain],
    moved: Mapping[str, str],
) -> Iterator[dict[str, Any]]:
    opened = {line.attempt: line for line in lines if line.type == "opened"}
    origins = _Origins(chain_dir, lines, moved)
    complete = {line.generation: line for line in lines if line.type in ("committed", "imported")}
    for line in complete.values():
        if line.type == "imported":
            for row in line.data["rows"]:
                known = {column: row[column] for column in COLUMNS}
                yield {**known, "workspace_out": str(chain_dir / row["workspace_out"])}
        else:
            beginning = opened[line.attempt]
            planned = revisions[int(beginning.data.get("revision", 0))]
            yield from _committed_rows(chain_dir, line, beginning, planned, origins)


def _committed_rows(
    chain_dir: Path,
    line: JournalLine,
    opened: JournalLine,
    planned: PlannedChain,
    origins: _Origins,
) -> Iterator[dict[str, Any]]:
    attempt = _files(line)
    for index, agent in enumerate(line.data["agents"]):
        yield {
            "generation": line.generation,
            "agent_index": index,
            "agent_name": agent["name"],
            "run_id": attempt,
            "tmux_session": layout.tmux_session(planned.tmux, attempt, planned.runs),
            "template_in": origins.describe(opened, index, planned),
            "workspace_out": str(chain_dir / line.data["workspaces"][index]),
            "start_utc": _seconds(line.data["started_at"]),
            "end_utc": _seconds(line.data["ended_at"]),
            "duration_seconds": round(planned.duration_s),
        }


class _Origins:
    """The origins of a chain's generations.

    Args:
        chain_dir: The directory of the chain.
        lines: The lines about the chain.
        moved: The attempts of all chains that were moved.
    """

    def __init__(
        self, chain_dir: Path, lines: Sequence[JournalLine], moved: Mapping[str, str]
    ) -> None:
        self._chain_dir = chain_dir
        self._moved = moved
        self._workspaces = {
            _files(line): line.data["workspaces"]
            for line in lines
            if line.type in ("committed", "imported")
        }

    def describe(self, opened: JournalLine, index: int, planned: PlannedChain) -> str:
        """Return the origin of an agent's workspace, as shown in the table.

        Args:
            opened: The line that opened the attempt.
            index: Index of the agent in its world.
            planned: The plan of the chain.
        """
        origin, inherited = opened.data.get("origin"), opened.data.get("inherited")
        if origin is not None:
            return f"{CHECKPOINT_PREFIX}{self._find_archive(origin, str(opened.chain))}"
        if inherited is not None:
            workspaces = self._workspaces[inherited]  # an imported generation may have fewer
            return str(self._chain_dir / workspaces[index]) if index < len(workspaces) else ""
        template = planned.templates[index]
        return "" if template is None else str(template)

    def _find_archive(self, origin: Mapping[str, Any], chain: str) -> Path:
        """Return the path of an archive of this chain, or of the source of a branch."""
        attempt = str(origin["attempt"])
        chain_dir = self._chain_dir
        if origin["chain"] != chain:  # only chains with sibling directories have branches
            chain_dir = chain_dir.parent / origin["chain"]
        return layout.archive_path(chain_dir, self._moved.get(attempt, attempt), origin["file"])


def _files(line: JournalLine) -> str:
    """Return the attempt that left the workspaces of a generation."""
    name = "files" if line.type == "committed" else "run_id"
    return str(line.data.get(name, line.attempt))


def _seconds(at: str) -> str:
    """Return the time of a line in whole seconds."""
    time = parse_utc(at)
    return at if time is None else format_utc(time)
