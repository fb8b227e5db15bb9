"""Files that are derived from the journal."""

from __future__ import annotations

import csv
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.experiment.history.machine import next_step
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.layout import chain_dir, table_path
from clawblox.experiment.plan import Plan
from clawblox.experiment.tables.chain_files import write_chain_files
from clawblox.experiment.tables.derived import DerivedFiles
from clawblox.experiment.tables.results import collect_results, make_results
from clawblox.team.pointer import read_pointer
from tests.experiment.journals import Journal, make_plan, used
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio


async def rows(directory: Path, plan: Plan, journal: Journal, chain: str) -> list[dict[str, str]]:
    """Write the derived files, and return the table of a chain."""
    await DerivedFiles(directory, journal.plans(plan), journal.lines).flush()
    return read_table(directory, plan, chain)


def read_table(directory: Path, plan: Plan, chain: str) -> list[dict[str, str]]:
    table = table_path(chain_dir(directory, chain, plan.layout))
    return list(csv.DictReader(table.read_text().splitlines()))


def origins(table: list[dict[str, str]]) -> set[str]:
    return {row["template_in"] for row in table}


async def test_each_chain_has_its_own_tmux_session(tmp_path: Path) -> None:
    plan, journal = make_plan(tmux="gen"), Journal()
    for chain in ("r1", "r2"):
        journal.open(chain, 1).commit([used(1)] * 2)
    for chain in ("r1", "r2"):
        written = await rows(tmp_path, plan, journal, chain)
        assert {row["tmux_session"] for row in written} == {f"gen-{chain}-g001-0"}
        assert {row["duration_seconds"] for row in written} == {"3600"}


async def test_single_chain_uses_the_names_of_the_public_scripts(tmp_path: Path) -> None:
    plan = make_plan(layout="flat", repeats=1, tmux="gen", run_prefix="panda-r1")
    journal = Journal()
    attempt = journal.open("r1", 1)
    attempt.checkpoint()
    archive = tmp_path / "runs" / attempt.name / "checkpoints" / "c0.ckpt"
    archive.parent.mkdir(parents=True)
    archive.touch()
    attempt.commit([used(1)] * 2)
    written = await rows(tmp_path, plan, journal, "r1")
    assert {row["tmux_session"] for row in written} == {"gen-g001-0"}
    assert read_pointer(tmp_path) == archive


async def test_the_pointer_follows_the_directory_of_a_failed_attempt(tmp_path: Path) -> None:
    plan, journal = make_plan(layout="flat", repeats=1), Journal()
    attempt = journal.open("r1", 1)
    attempt.checkpoint()
    attempt.end("failed", cause="world", text="", moved_to="aside")
    run_dir = tmp_path / "runs" / attempt.name
    (run_dir / "checkpoints").mkdir(parents=True)
    (run_dir / "checkpoints" / "c0.ckpt").touch()
    files = DerivedFiles(tmp_path, journal.plans(plan), journal.lines)
    await files.flush()
    assert read_pointer(tmp_path) == run_dir / "checkpoints" / "c0.ckpt"
    run_dir.rename(run_dir.with_name("aside"))
    await files.flush()
    assert read_pointer(tmp_path) == tmp_path / "runs" / "aside" / "checkpoints" / "c0.ckpt"


async def test_the_table_of_a_branch_follows_the_directory_of_its_source(tmp_path: Path) -> None:
    plan, journal = make_plan(), Journal()
    source = journal.open("r1", 2)
    origin = source.checkpoint()
    branch = {"source": origin, "group": 1, "number": 1, "generations": 2}
    journal.write("chain.forked", branch, chain="r1-f1-1")
    journal.open("r1-f1-1", 2, origin=origin).commit([used(1)] * 2)
    state, before = journal.state, len(journal.lines)
    files = DerivedFiles(tmp_path, Plans([plan], state), journal.lines)
    await files.flush()
    runs = tmp_path / "chains" / "r1" / "runs"
    archive = runs / source.name / "checkpoints" / "c0.ckpt"
    assert origins(read_table(tmp_path, plan, "r1-f1-1")) == {f"checkpoint:{archive}"}
    source.end("failed", cause="world", text="", moved_to="aside")
    for line in journal.lines[before:]:
        state.apply(line)
        files.note(line)
    await files.flush()
    archive = runs / "aside" / "checkpoints" / "c0.ckpt"
    assert origins(read_table(tmp_path, plan, "r1-f1-1")) == {f"checkpoint:{archive}"}
    assert origins(await rows(tmp_path, plan, journal, "r1-f1-1")) == {f"checkpoint:{archive}"}


async def test_the_pointer_is_written_after_each_checkpoint(tmp_path: Path) -> None:
    plan, journal = make_plan(), Journal()
    files = DerivedFiles(tmp_path, journal.plans(plan), journal.lines)
    await files.flush()
    attempt = journal.open("r1", 1).work()
    run_dir = tmp_path / "chains" / "r1" / "runs" / attempt.name
    (run_dir / "checkpoints").mkdir(parents=True)
    for line in journal.lines:
        files.note(line)
    for name in ("c0.ckpt", "c1.ckpt"):
        (run_dir / "checkpoints" / name).touch()
        attempt.checkpoint()
        files.note(journal.lines[-1])
        await files.flush(with_results=False)
        assert read_pointer(run_dir.parents[1]) == run_dir / "checkpoints" / name


async def test_the_results_wait_while_the_files_of_chains_are_written(tmp_path: Path) -> None:
    plan, journal = make_plan(), Journal()
    journal.open("r1", 1).commit([used(1)] * 2)
    files = DerivedFiles(tmp_path, journal.plans(plan), journal.lines)
    await files.flush(with_results=False)
    assert len(read_table(tmp_path, plan, "r1")) == 2
    assert not (tmp_path / "results.csv").exists()
    await files.flush()
    assert (tmp_path / "results.csv").exists()


async def test_files_are_written_again_only_where_lines_have_changed_them(tmp_path: Path) -> None:
    plan, journal = make_plan(), Journal()
    journal.open("r1", 1).commit([used(1)] * 2)
    files = DerivedFiles(tmp_path, journal.plans(plan), journal.lines)
    await files.flush()
    table = table_path(chain_dir(tmp_path, "r1", "chains"))
    table.unlink()
    await files.flush()
    assert not table.exists()
    journal.open("r1", 2).commit([used(1)] * 2)
    for line in journal.lines[2:]:
        files.note(line)
    await files.flush()
    assert len(table.read_text().splitlines()) == 5


async def test_other_tasks_run_while_the_results_of_many_chains_are_made(tmp_path: Path) -> None:
    plan, journal = make_plan(repeats=3), Journal()
    for chain in ("r1", "r2", "r3"):
        journal.open(chain, 1).commit([used(1)] * 2)
    turns: list[int] = []

    async def count() -> None:
        while True:
            turns.append(1)
            await anyio.sleep(0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        results = await collect_results(journal.plans(plan))
        tasks.cancel_scope.cancel()
    assert len(turns) >= 3
    assert results == make_results(journal.plans(plan))


async def test_the_last_flush_waits_for_a_running_flush_and_writes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, journal = make_plan(), Journal()
    journal.open("r1", 1).commit([used(1)] * 2)
    files = DerivedFiles(tmp_path, journal.plans(plan), journal.lines)
    has_begun, may_end = threading.Event(), threading.Event()

    def write(*arguments: Any) -> None:
        has_begun.set()
        may_end.wait(HANG_S)
        write_chain_files(*arguments)

    monkeypatch.setattr("clawblox.experiment.tables.derived.write_chain_files", write)
    scope = anyio.CancelScope()

    async def flush_cancelled() -> None:
        with scope:
            await files.flush()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flush_cancelled)
        await wait_until_async(has_begun.is_set)
        tasks.start_soon(files.flush)
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        may_end.set()
    assert (tmp_path / "results.csv").exists()


async def test_a_generation_inherits_workspaces_from_the_attempt_that_worked_not_that_scored(
    tmp_path: Path,
) -> None:
    plan, journal = make_plan(), Journal()
    worked = journal.open("r1", 1).work()
    end = worked.checkpoint("end")
    worked.end("interrupted")
    paths = [f"runs/{worked.name}/agents/a{index}/workspace" for index in range(2)]
    journal.open("r1", 1, origin=end, phase="score").commit([], files=worked.name, workspaces=paths)
    chain = plan.chains()[0]
    following = next_step(journal.plans(plan), chain)
    assert following == AttemptOrder(chain=chain, generation=2, inherited=worked.name)
    journal.open("r1", 2, inherited=worked.name).commit([])
    written = await rows(tmp_path, plan, journal, "r1")
    assert [row["template_in"] for row in written[2:]] == [
        row["workspace_out"] for row in written[:2]
    ]
