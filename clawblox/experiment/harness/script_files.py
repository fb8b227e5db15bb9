"""Reads and checks the records of experiments that the public generation scripts started.

A table or an archive may come from a stranger. No named file is opened outside the
directory of the chain, no link is followed, and every value is checked before it becomes a line of
a journal.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, NoReturn, TypeAlias

import attrs

from clawblox.agents.programs import PROGRAMS, id_file_name
from clawblox.checkpoint.api import read_metadata
from clawblox.errors import CheckpointError, ConfigError
from clawblox.errors.general import shorten
from clawblox.experiment import layout
from clawblox.experiment.plan.naming import is_name
from clawblox.experiment.tables.chain_files import COLUMNS
from clawblox.foreign_values import finite_number
from clawblox.system.clock import parse_utc
from clawblox.system.regular_files import find_files, open_directory, read_regular

Row: TypeAlias = Mapping[str, str]
"""A row of the table, by column."""

_MAX_TABLE_BYTES: Final = 16 << 20
_MAX_TEXT_CHARS: Final = 8192
_RESUME_FROM: Final = "continue from an archive, in the directory checkpoints of its run"


@attrs.frozen
class ImportedGeneration:
    """A complete generation of a table.

    Attributes:
        number: Its number, from 1.
        rows: Its rows in the order of the agents; ``workspace_out`` is relative to the directory of
            the chain.
    """

    number: int
    rows: tuple[Row, ...]

    @property
    def data(self) -> dict[str, Any]:
        """Data of its line in the journal."""
        return {
            "run_id": self.rows[-1]["run_id"],
            "workspaces": [row["workspace_out"] for row in self.rows],
            "rows": [dict(row) for row in self.rows],
        }


@attrs.frozen(kw_only=True)
class ImportedChain:
    """The generations of a table, and the prefixes with which their chain continues.

    Attributes:
        generations: The generations, by number.
        run_prefix: Prefix of the names of the next runs.
        tmux_prefix: Prefix of the names of their tmux sessions, or None.
    """

    generations: tuple[ImportedGeneration, ...]
    run_prefix: str
    tmux_prefix: str | None


@attrs.frozen(kw_only=True)
class ResumePoint:
    """The point of a generation that an archive continues.

    Attributes:
        generation: The number of the generation, from 1.
        elapsed_s: Elapsed seconds of the generation.
        agents: The full names of the agents, in their order.
        driver: The driver of the first agent; empty if the archive does not name it.
    """

    generation: int
    elapsed_s: int
    agents: tuple[str, ...]
    driver: str


@attrs.frozen(kw_only=True)
class RecordedOptions:
    """Recorded options of generations.

    Attributes:
        driver: The driver of the agents; empty if it is not recorded.
        model: Their model, empty for the program's own choice; None if it is not recorded.
        duration_s: Planned duration of a generation, in seconds; None if it is not recorded.
    """

    driver: str = ""
    model: str | None = None
    duration_s: float | None = None


def find_resume_point(archive: Path, *, agents: int) -> ResumePoint:
    """Return the point of a generation that an archive continues. Blocks.

    Args:
        archive: An archive of the public scripts or of this package.
        agents: Number of agents in the world.

    Raises:
        CheckpointError: The archive cannot be read or is damaged.
        ConfigError: The archive has another number of agents, or no metadata of a generation.
    """
    metadata = read_metadata(archive)
    names = sorted(metadata.get("agents", ()), key=layout.agent_index)
    recorded = _number(metadata, "agents_per_world", archive, default=len(names))
    if recorded != len(names):
        raise ConfigError(
            f"must be {recorded} in the archive, as recorded there, not {len(names)}",
            path=archive,
            key="agents",
        )
    if len(names) != agents:
        raise ConfigError(
            f"must be {len(names)} as in the archive, not {agents}", path=archive, key="agents"
        )
    return ResumePoint(
        generation=_number(metadata, "generation", archive, default=1),
        elapsed_s=_number(metadata, "elapsed_seconds", archive, default=0),
        agents=tuple(names),
        driver=_find_driver(metadata),
    )


def _find_driver(metadata: Mapping[str, Any]) -> str:
    """Return the driver of the first agent of an archive; empty if it is not recorded."""
    agents = metadata.get("agents")
    states = (
        list(agents.values()) if isinstance(agents, dict) else []
    )  # old archives only have names
    driver = states[0].get("backend") if states and isinstance(states[0], dict) else None
    return driver if isinstance(driver, str) else ""


def _number(metadata: Mapping[str, Any], key: str, archive: Path, *, default: int) -> int:
    value = metadata.get(key, default)
    least = min(default, 1)
    number = finite_number(value, low=least)
    if number is None:
        raise ConfigError(f"must be {least} or more, not {value!r}", path=archive, key=key)
    return int(number)


# -- the table of complete generations ----------------------------------------------------------


def read_chain(chain_dir: Path, *, agents: int) -> ImportedChain:
    """Return the generations that the public scripts completed in a directory. Blocks.

    Args:
        chain_dir: The directory that contains the table, absolute.
        agents: Number of agents in each world.

    Raises:
        ConfigError: There is no generation to continue from: the table is missing, empty or
            invalid, its last generation has a different number of agents, or a workspace is
            missing.
    """
    path = layout.table_path(chain_dir)
    rows = list(read_rows(path))
    if not rows:
        raise ConfigError("no generation is complete", path=path, hint=_RESUME_FROM)
    generations: dict[int, list[Row]] = {}
    for row in rows:
        generations.setdefault(int(row["generation"]), []).append(row)
    last = max(generations)
    runs = {number: _complete_run(rows, agents=agents) for number, rows in generations.items()}
    sample = (runs[last] or _refuse_last(generations[last], path, agents=agents))[-1]
    return ImportedChain(
        generations=tuple(
            ImportedGeneration(number, tuple(_located(chain_dir, run, is_last=number == last)))
            for number, run in sorted((n, runs[n] or _latest_rows(generations[n])) for n in runs)
        ),
        run_prefix=layout.next_prefix(sample["run_id"]),
        tmux_prefix=layout.next_prefix(sample["tmux_session"]) or None,
    )


def _complete_run(rows: Sequence[Row], *, agents: int) -> Sequence[Row]:
    """Return the rows of the latest complete run of a generation, by agents, or an empty sequence.

    If a generation was completed again from an older archive, it has rows of several runs.
    """
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(row["run_id"], []).append(row)
    ordered = [sorted(run, key=_index) for run in runs.values()]
    complete = [run for run in ordered if [*map(_index, run)] == [*range(agents)]]
    return complete[-1] if complete else ()


def _latest_rows(rows: Sequence[Row]) -> Sequence[Row]:
    return sorted({_index(row): row for row in rows}.values(), key=_index)


def _refuse_last(rows: Sequence[Row], path: Path, *, agents: int) -> NoReturn:
    indexes = ", ".join(row["agent_index"] for row in rows)
    raise ConfigError(
        f"the last generation, {rows[0]['generation']}, must have a row for each of {agents} "
        f"agents, not for the indexes {shorten(indexes, 80)}",
        path=path,
        hint=f"give the number of agents of that generation; or {_RESUME_FROM}",
    )


def _located(chain_dir: Path, rows: Sequence[Row], *, is_last: bool) -> Iterator[Row]:
    """Yield the rows with workspaces relative to the directory of the chain."""
    for row in rows:
        workspace = _find_workspace(chain_dir, row)
        if workspace is None and is_last:
            raise ConfigError(
                f"the workspace of agent {row['agent_index']} must be a directory below "
                f"{layout.runs_dir(chain_dir)}, not {shorten(row['workspace_out'], 200)!r}",
                path=layout.table_path(chain_dir),
                hint="restore the run directory; links are not followed",
            )
        yield row if workspace is None else {**row, "workspace_out": workspace}


def _find_workspace(chain_dir: Path, row: Row) -> str | None:
    """Return the path of an existing workspace, relative to the directory of the chain.

    The place derived from the names comes first, because the written path may be that of a
    directory before a move.
    """
    written = os.path.relpath(chain_dir / row["workspace_out"], chain_dir)
    for path in (layout.workspace_path(row["run_id"], row["agent_name"]), written):
        if path.startswith("runs/"):
            with contextlib.suppress(OSError):
                os.close(open_directory(chain_dir, path))
                return path
    return None


def _index(row: Row) -> int:
    return int(row["agent_index"])


# -- options ------------------------------------------------------------------------------------


def read_options(
    chain_dir: Path, chain: ImportedChain | None, archive: Path | None
) -> RecordedOptions:
    """Return the recorded options of a chain. Blocks.

    Args:
        chain_dir: The directory of the chain, absolute.
        chain: The content of its table, or None.
        archive: The archive from which it continues, or None.
    """
    metadata = _read_first([archive] if archive is not None else _archives(chain_dir))
    driver, duration = _find_driver(metadata), metadata.get("generation_duration")
    if chain is not None and archive is None:
        last = chain.generations[-1].rows[-1]
        driver = driver or _find_id_file(chain_dir, last)
        duration = int(last["duration_seconds"])
    model = metadata.get("model")
    return RecordedOptions(
        driver=driver,
        model=model if isinstance(model, str) else None,
        duration_s=finite_number(duration, low=1.0),
    )


def _archives(chain_dir: Path) -> Sequence[Path]:
    """Return the archives of a chain, the latest generation first, in the order of their names."""
    files = find_files(chain_dir, "runs/*/checkpoints/gen*.ckpt")
    return sorted((file.path for file in files), key=lambda path: path.name, reverse=True)


def _read_first(archives: Iterable[Path]) -> Mapping[str, Any]:
    """Return the metadata of the first sound archive, or an empty mapping."""
    for archive in archives:
        with contextlib.suppress(CheckpointError):
            return read_metadata(archive)
    return {}


def _find_id_file(chain_dir: Path, row: Row) -> str:
    """Return the driver that recorded a conversation of an agent, or an empty string."""
    workspace = PurePath(layout.workspace_path(row["run_id"], row["agent_name"]))
    files = find_files(chain_dir, str(workspace.with_name("*_session_id.txt")))
    names = {file.path.name for file in files}
    return next((driver for driver in PROGRAMS if id_file_name(driver) in names), "")


# -- its rows -------------------------------------------------------------------------------------


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a table, checked. Blocks.

    Raises:
        ConfigError: The table cannot be read, or a row is not valid.
    """
    try:
        text = read_regular(path, max_bytes=_MAX_TABLE_BYTES).decode("utf-8-sig")
    except OSError as error:
        message = f"the table cannot be read: {error.strerror}"
        raise ConfigError(message, path=path, hint=_RESUME_FROM) from error
    except UnicodeDecodeError as error:
        raise ConfigError("the table is not UTF-8", path=path) from error
    table = csv.DictReader(io.StringIO(text, newline=""))
    try:
        missing = [column for column in COLUMNS if column not in (table.fieldnames or ())]
        if missing:
            message = f"the table must have the columns {', '.join(missing)}"
            raise ConfigError(message, path=path, line=1)
        for row in table:
            yield _check_row(row, path, table.line_num)
    except csv.Error as error:
        raise ConfigError(f"not CSV: {error}", path=path, line=table.line_num) from error


def _check_row(row: Mapping[str, Any], path: Path, line: int) -> Row:
    for column, (is_valid, expected) in _CHECKS.items():
        value = row[column]
        if not isinstance(value, str) or not is_valid(value):
            raise ConfigError(
                f"must be {expected}, not {shorten(repr(value), 200)}",
                path=path,
                line=line,
                key=column,
            )
    return {column: row[column] for column in COLUMNS}


def _is_path(text: str) -> bool:
    return 0 < len(text) <= _MAX_TEXT_CHARS and "\0" not in text


_NAME: Final = (is_name, "a name of letters, digits, dots, underscores and hyphens")
_PATH: Final = (_is_path, f"a path of at most {_MAX_TEXT_CHARS} characters")
_TIME: Final = (lambda text: parse_utc(text) is not None, "a time such as 2026-06-22T18:59:25Z")
_COUNT: Final = (re.compile(r"0{0,8}[1-9][0-9]{0,8}").fullmatch, "a whole number, 1 or more")

_CHECKS: Final[Mapping[str, tuple[Callable[[str], object], str]]] = {
    "generation": _COUNT,
    "agent_index": (re.compile(r"[0-9]{1,6}").fullmatch, "a whole number"),
    "agent_name": _NAME,
    "run_id": _NAME,
    "tmux_session": (lambda text: text == "" or is_name(text), f"empty or {_NAME[1]}"),
    "template_in": (lambda text: text == "" or _is_path(text), f"empty or {_PATH[1]}"),
    "workspace_out": _PATH,
    "start_utc": _TIME,
    "end_utc": _TIME,
    "duration_seconds": _COUNT,
}
"""Check of a value, and a description of valid values, by column."""
