"""The table and the pointer of a chain, as the public generation scripts read them."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from clawblox.experiment import layout
from clawblox.experiment.harness.script_files import read_chain
from clawblox.experiment.history.lines import JournalLine, LineType
from clawblox.experiment.plan.plan import Layout
from clawblox.experiment.tables.chain_files import PlannedChain, moved_attempts, write_chain_files
from clawblox.team.pointer import read_pointer
from tests.experiment.harness import scripts

STARTED, ENDED = "2026-06-22T18:59:25.104Z", "2026-06-22T19:29:25Z"
AT = "2026-06-22T19:14:25.999Z"
PLAN = PlannedChain(
    templates=[Path("/templates/agent")] * 2, duration_s=1800.0, runs="exp", tmux="gen"
)


class Chain:
    """A chain of two agents: its directory and the lines of its journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[JournalLine] = []

    def add(self, kind: LineType, generation: int | None, attempt: str | None, **data: Any) -> None:
        place = {"chain": "r1", "generation": generation, "attempt": attempt}
        self.lines.append(
            JournalLine(seq=len(self.lines) + 1, at=AT, type=kind, data=data, **place)
        )

    def open(
        self, generation: int, attempt: str, origin: Mapping[str, Any] | None, **data: Any
    ) -> None:
        self.add("opened", generation, attempt, origin=origin, **data)

    def save(self, generation: int, attempt: str, file: str, elapsed_s: float = 900.5) -> Path:
        self.add("checkpoint", generation, attempt, file=file, elapsed_s=elapsed_s)
        path = layout.archive_path(self.path, attempt, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    def commit(self, generation: int, run: str, *, attempt: str | None = None, **data: Any) -> None:
        names = [layout.full_name(name, run, place) for place, name in enumerate(("Eko", "Moa"))]
        workspaces = [layout.workspace_path(run, name) for name in names]
        for workspace in workspaces:
            (self.path / workspace).mkdir(parents=True)
        self.add(
            "committed",
            generation,
            attempt or run,
            agents=[{"name": name} for name in names],
            workspaces=workspaces,
            started_at=STARTED,
            ended_at=ENDED,
            **data,
        )

    def write(self, style: Layout = "flat", revisions: Sequence[PlannedChain] = (PLAN,)) -> None:
        moved = moved_attempts(self.lines)
        write_chain_files(self.path, self.lines, revisions, style, moved)

    def rows(self) -> list[dict[str, str]]:
        with layout.table_path(self.path).open(newline="") as file:
            return list(csv.DictReader(file))


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path / "exp")


@pytest.fixture
def finished(chain: Chain) -> Chain:
    """Return a chain with two committed generations."""
    chain.open(1, "exp-g001", None)
    chain.commit(1, "exp-g001")
    chain.open(2, "exp-g002", None, inherited="exp-g001")
    chain.commit(2, "exp-g002")
    return chain


# -- the table ----------------------------------------------------------------------------------


def test_a_new_chain_has_a_table_without_rows(chain: Chain) -> None:
    chain.write()
    header = layout.table_path(chain.path).read_bytes()
    assert header == f"{','.join(scripts.COLUMNS)}\n".encode()
    with pytest.raises(scripts.Refused, match="no completed generation"):
        scripts.resume(chain.path, 2)


def test_the_table_has_a_quoted_row_for_each_agent(finished: Chain) -> None:
    finished.write()
    lines = layout.table_path(finished.path).read_bytes().decode().splitlines(keepends=True)
    assert lines[0] == f"{','.join(scripts.COLUMNS)}\n"
    runs = finished.path / "runs"
    workspace = runs / "exp-g001" / "agents" / "Moa-rexp-g001-w0-a1" / "workspace"
    assert lines[2] == (
        '"1","1","Moa-rexp-g001-w0-a1","exp-g001","gen-g001","/templates/agent",'
        f'"{workspace}","2026-06-22T18:59:25Z","2026-06-22T19:29:25Z","1800"\n'
    )
    assert lines[4].split(",")[5] == f'"{workspace}"'
    assert len(lines) == 5


def test_a_path_that_is_not_utf_8_keeps_its_bytes(tmp_path: Path) -> None:
    chain = Chain(tmp_path / os.fsdecode(b"exp\xff"))
    chain.open(1, "exp-g001", None)
    chain.commit(1, "exp-g001")
    chain.write()
    assert os.fsencode(chain.path) in layout.table_path(chain.path).read_bytes()


def test_the_public_scripts_can_resume_the_chain(finished: Chain) -> None:
    finished.write()
    resumed = scripts.resume(finished.path, 2)
    assert resumed.generation == 3
    assert (resumed.run_prefix, resumed.tmux_prefix) == ("exp", "gen")
    assert resumed.templates == [row["workspace_out"] for row in finished.rows()[2:]]


def test_a_moved_chain_can_be_resumed_after_it_was_opened(finished: Chain, tmp_path: Path) -> None:
    finished.write()
    finished.path = finished.path.rename(tmp_path / "moved")
    with pytest.raises(scripts.Refused, match="does not exist"):
        scripts.resume(finished.path, 2)
    finished.write()
    assert scripts.resume(finished.path, 2).generation == 3


def test_an_unchanged_table_is_not_written_again(finished: Chain) -> None:
    finished.write()
    first = layout.table_path(finished.path).stat().st_ino
    finished.write()
    assert layout.table_path(finished.path).stat().st_ino == first


def test_a_generation_that_continued_from_an_archive_names_it(chain: Chain) -> None:
    again = "exp-g001-r20260622T185925Z"
    chain.open(1, "exp-g001", None)
    chain.save(1, "exp-g001", "a.ckpt")
    chain.add("failed", 1, "exp-g001", moved_to="exp-g001.failed-S")
    chain.open(1, again, {"chain": "r1", "attempt": "exp-g001", "file": "a.ckpt"})
    chain.commit(1, again)
    chain.write()
    archive = chain.path / "runs" / "exp-g001.failed-S" / "checkpoints" / "a.ckpt"
    assert {row["template_in"] for row in chain.rows()} == {f"checkpoint:{archive}"}
    assert {row["tmux_session"] for row in chain.rows()} == {"gen-g001-r20260622T185925Z"}


def test_a_branch_names_the_archive_of_its_source(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "chains" / "r1-b1")
    origin = {"chain": "source", "attempt": "exp-r1-g002", "file": "a.ckpt"}
    chain.open(2, "exp-r1-b1-g002", origin)
    chain.commit(2, "exp-r1-b1-g002")
    chain.write("chains")
    archive = tmp_path / "chains" / "source" / "runs" / "exp-r1-g002" / "checkpoints" / "a.ckpt"
    assert chain.rows()[0]["template_in"] == f"checkpoint:{archive}"


def test_a_generation_has_the_duration_of_its_revision_of_the_plan(finished: Chain) -> None:
    finished.open(3, "exp-g003", None, inherited="exp-g002", revision=1)
    finished.commit(3, "exp-g003")
    later = PlannedChain(templates=[None, None], duration_s=59.6, runs="exp")
    finished.write(revisions=[PLAN, later])
    rows = finished.rows()
    assert [row["duration_seconds"] for row in rows] == ["1800"] * 4 + ["60"] * 2
    assert [row["tmux_session"] for row in rows][-3:] == ["gen-g002", "", ""]


def test_a_generation_scored_again_names_the_run_with_its_files(chain: Chain) -> None:
    origin = {"chain": "r1", "attempt": "exp-g001", "file": "a.ckpt"}
    chain.open(1, "exp-g001-r20260622T185925Z", origin, phase="score")
    chain.commit(1, "exp-g001", attempt="exp-g001-r20260622T185925Z", files="exp-g001")
    chain.write()
    assert {row["run_id"] for row in chain.rows()} == {"exp-g001"}
    assert {row["tmux_session"] for row in chain.rows()} == {"gen-g001"}
    assert scripts.resume(chain.path, 2).run_prefix == "exp"


def test_an_agent_without_a_template_has_none_in_the_table(chain: Chain) -> None:
    chain.open(1, "exp-g001", None)
    chain.commit(1, "exp-g001")
    chain.write(revisions=[PlannedChain(templates=[None, None], duration_s=60, runs="exp")])
    assert [row["template_in"] for row in chain.rows()] == ["", ""]


def test_a_table_of_the_public_scripts_is_continued_with_its_rows_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "exp"
    scripts.begin(path)
    scripts.complete(path, 1, agents=("Eko", "Moa"))
    theirs = layout.table_path(path).read_text()
    chain = Chain(path)
    for generation in read_chain(path, agents=2).generations:
        chain.add("imported", generation.number, None, **generation.data)
    chain.write()
    assert layout.table_path(path).read_text() == theirs
    chain.open(2, "exp-g002", None, inherited="exp-g001")
    chain.commit(2, "exp-g002")
    chain.write()
    assert layout.table_path(path).read_text().startswith(theirs)
    assert chain.rows()[2]["template_in"] == chain.rows()[0]["workspace_out"]
    assert scripts.resume(path, 2).generation == 3
    scripts.complete(path, 3, agents=("Eko", "Moa"))
    assert len(read_chain(path, agents=2).generations) == 3


# -- the pointer --------------------------------------------------------------------------------


def test_the_pointer_has_the_facts_of_the_latest_archive(chain: Chain) -> None:
    chain.save(1, "exp-g001", "a.ckpt")
    archive = chain.save(2, "exp-g002", "b.ckpt")
    chain.write()
    assert json.loads(layout.pointer_path(chain.path).read_text()) == {
        "checkpoint": str(archive),
        "generation": 2,
        "elapsed_seconds": 900,
        "written_at": "2026-06-22T19:14:25Z",
    }


def test_the_pointer_is_relative_in_an_experiment_of_several_chains(chain: Chain) -> None:
    chain.save(1, "exp-g001", "a.ckpt")
    chain.write("chains")
    pointer = json.loads(layout.pointer_path(chain.path).read_text())
    assert pointer["checkpoint"] == "runs/exp-g001/checkpoints/a.ckpt"


def test_the_pointer_follows_a_failed_run(chain: Chain) -> None:
    archive = chain.save(1, "exp-g001", "a.ckpt")
    chain.write()
    failed = chain.path / "runs" / "exp-g001.failed-S"
    archive.parents[1].rename(failed)
    chain.add("failed", 1, "exp-g001", moved_to=failed.name)
    chain.write()
    assert read_pointer(chain.path) == failed / "checkpoints" / "a.ckpt"


def test_the_pointer_follows_a_moved_chain(chain: Chain, tmp_path: Path) -> None:
    chain.save(1, "exp-g001", "a.ckpt")
    chain.write()
    chain.path = chain.path.rename(tmp_path / "moved")
    chain.write()
    archive = read_pointer(chain.path)
    assert archive is not None
    assert archive.is_relative_to(tmp_path / "moved")
    assert archive.is_file()


def test_the_pointer_never_names_a_removed_archive(chain: Chain) -> None:
    first = chain.save(1, "exp-g001", "a.ckpt")
    second = chain.save(1, "exp-g001", "b.ckpt")
    chain.write()
    second.unlink()
    chain.write()
    assert read_pointer(chain.path) == first
    first.unlink()
    chain.write()
    assert not layout.pointer_path(chain.path).exists()


def test_the_pointer_of_an_imported_generation_stays(chain: Chain) -> None:
    archive = chain.save(1, "exp-g001", "a.ckpt")
    chain.write()
    chain.lines.clear()
    chain.write()
    assert read_pointer(chain.path) == archive
