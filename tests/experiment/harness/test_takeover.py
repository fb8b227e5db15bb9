"""Experiments continue directories of the public generation scripts, and the scripts theirs."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox import save_checkpoint
from clawblox.agents.values import Usage
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError, RunLockedError
from clawblox.experiment.harness import takeover
from clawblox.experiment.history.journal import Journal, read_lines
from clawblox.experiment.history.lines import About, LineType
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.reading.record import read_experiment
from clawblox.rundir.claims import claim_run
from clawblox.system.files import digest_file
from clawblox.team.pointer import read_pointer
from tests.experiment.fakes import Fault
from tests.experiment.harness import scripts
from tests.experiment.test_async_experiment import Scene, run

pytestmark = pytest.mark.anyio


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_generations_of_the_scripts_are_taken_over_and_continued(scene: Scene) -> None:
    scripts.begin(scene.directory)
    for generation in (1, 2):
        scripts.complete(scene.directory, generation, run_id=f"old-g{generation:03}")
    before = (scene.directory / "generation_chain.csv").read_text().splitlines()
    outcome = await run(scene, scene.plan(generations=3, layout="flat", run_prefix="old"))
    assert outcome.status == "done"
    (attempt,) = scene.backend.attempts
    assert attempt.order.generation == 3
    assert attempt.order.attempt_id == "old-g003"
    assert attempt.order.inherited == "old-g002"
    rows = read_experiment(scene.directory).results().rows()
    assert [row.status for row in rows] == ["imported", "imported", "committed"]
    after = (scene.directory / "generation_chain.csv").read_text().splitlines()
    assert len(after) == len(before)  # the fakes have no agents, so there is no row of the third


async def test_generations_that_the_scripts_add_later_are_taken_over_too(scene: Scene) -> None:
    scripts.begin(scene.directory)
    scripts.complete(scene.directory, 1, run_id="old-g001")
    plan = scene.plan(generations=1, layout="flat", run_prefix="old")
    assert (await run(scene, plan)).status == "done"
    scripts.complete(scene.directory, 2, run_id="old-g002")
    assert (await run(scene, plan.but(generations=3))).status == "done"
    assert [attempt.order.generation for attempt in scene.backend.attempts] == [3]


async def test_empty_table_of_the_scripts_continues_from_generation_1(
    scene: Scene,
) -> None:
    scripts.begin(scene.directory)
    assert (await run(scene, scene.plan(generations=1, layout="flat"))).status == "done"


async def test_generation_completed_twice_by_the_scripts_counts_with_the_later_row(
    scene: Scene,
) -> None:
    scripts.begin(scene.directory)
    for generation in (1, 2):
        scripts.complete(scene.directory, generation, run_id=f"old-g{generation:03}")
    async with scene.experiment(flat_plan(scene)):
        pass
    scripts.complete(scene.directory, 2, run_id="old-g002-rS")
    with pytest.raises(scripts.Refused):
        scripts.resume(scene.directory, 1)
    for _ in range(2):
        async with scene.experiment(flat_plan(scene)):
            pass
    assert [line.type for line in read_lines(scene.directory)].count("imported") == 3
    (row,) = read_experiment(scene.directory).results().rows()[1:]
    assert row.run_dir == "runs/old-g002-rS"
    assert scripts.resume(scene.directory, 1).generation == 3
    await run(scene, flat_plan(scene))
    assert scene.backend.attempts[0].order.inherited == "old-g002-rS"


async def test_an_attempt_that_the_scripts_completed_is_imported(scene: Scene) -> None:
    scripts.begin(scene.directory)
    scripts.complete(scene.directory, 1, run_id="old-g001")
    async with scene.experiment(flat_plan(scene)):
        pass
    await run_blocking(leave_attempt, scene)
    scripts.complete(scene.directory, 2, run_id="old-g002-rS")
    archive = scene.directory / "runs" / "old-g002-rS" / "gen002-t000900.ckpt"
    archive.touch()
    scripts.point_to(scene.directory, archive)
    async with scene.experiment(flat_plan(scene)) as exp:
        row = exp.results().rows()[1]
        assert (row.status, row.ended_at, row.active_s) == ("imported", "2026-06-22T19:29:25Z", 0.0)
        assert (row.run_dir, row.checkpoint) == ("runs/old-g002-rS", "")
    assert read_pointer(scene.directory) == archive
    archive.unlink()
    async with scene.experiment(None):
        pass
    assert read_pointer(scene.directory) == scene.directory / OWN_ARCHIVE


OWN_ARCHIVE = "runs/old-g002/checkpoints/gen-t000900.ckpt"


def leave_attempt(scene: Scene) -> None:
    """Leave the files of generation 2 that a killed orchestrator leaves, with a checkpoint."""
    own_archive(scene, 2)
    usage = attrs.asdict(Usage(output_tokens=7))
    steps: dict[LineType, dict[str, Any]] = {
        "opened": {"phase": "work"},
        "prepared": {},
        "working": {"agents": [{"name": "Eko-rold-g002-w0-a0"}], "world": {}},
        "checkpoint": {
            "file": "gen-t000900.ckpt",
            "sha256": digest_file(scene.directory / OWN_ARCHIVE),
            "kind": "periodic",
            "elapsed_s": 900.0,
            "usage": [usage],
        },
    }
    with Journal(scene.directory) as journal:
        for type_, data in steps.items():
            journal.append(type_, data, About("r1", 2, "old-g002"))


async def test_a_damaged_table_is_refused_and_left_unchanged(scene: Scene) -> None:
    scripts.begin(scene.directory)
    table = scene.directory / "generation_chain.csv"
    table.write_text(table.read_text() + "nonsense\n")
    before = table.read_bytes()
    with pytest.raises(ConfigError, match=r"generation_chain\.csv"):
        await run(scene, scene.plan(layout="flat"))
    assert table.read_bytes() == before
    assert not read_lines(scene.directory)  # so another plan can still start the experiment


# -- archives -----------------------------------------------------------------------------------


def make_archive(place: Path, generation: int) -> Path:
    """Make an archive as the scripts do, with one agent."""
    agent = place.parent / f"Eko-rold-g{generation:03}-w0-a0"
    (agent / "workspace").mkdir(parents=True)
    (agent / "workspace" / "notes.md").write_text("notes")
    scripts.begin_conversation(agent)
    snapshot = place.parent / "world.json"
    snapshot.write_text("{}")
    return save_checkpoint(
        place,
        world_snapshot=snapshot,
        agents={agent.name: agent},
        metadata={
            "generation": generation,
            "elapsed_seconds": 900,
            "run_id": f"old-g{generation:03}",
            "agents_per_world": 1,
        },
    )


def own_archive(scene: Scene, generation: int) -> Path:
    place = scene.directory / "runs" / f"old-g{generation:03}" / "checkpoints"
    place.mkdir(parents=True)
    return make_archive(place / "gen-t000900.ckpt", generation)


def flat_plan(scene: Scene) -> Plan:
    return scene.plan(generations=3, layout="flat", run_prefix="old")


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_archive_continues_its_generation_for_the_remaining_time(
    scene: Scene, tmp_path: Path, is_elsewhere: bool
) -> None:
    scripts.begin(scene.directory)
    for generation in (1, 2):
        scripts.complete(scene.directory, generation, run_id=f"old-g{generation:03}")
    (tmp_path / "elsewhere").mkdir()
    archive = await run_blocking(own_archive, scene, 3)
    if is_elsewhere:
        archive = Path(shutil.move(archive, tmp_path / "elsewhere"))
        shutil.rmtree(scene.directory / "runs" / "old-g003")
    scene.backend.archives.add(("r1", "old-g003", archive.name))
    outcome = await run(scene, flat_plan(scene), resume_from=archive)
    assert outcome.status == "done"
    (attempt,) = scene.backend.attempts
    assert attempt.order.origin is not None
    assert attempt.order.origin.file == archive.name
    assert attempt.order.active_s == 900.0
    assert attempt.order.attempt_id.startswith("old-g003-r")
    kept = scene.directory / "runs" / "old-g003" / "checkpoints" / archive.name
    assert kept.is_file()


async def test_generation_continued_from_an_archive_never_gets_new_agents(
    scene: Scene,
) -> None:
    scripts.begin(scene.directory)
    for generation in (1, 2):
        scripts.complete(scene.directory, generation, run_id=f"old-g{generation:03}")
    archive = await run_blocking(own_archive, scene, 3)
    scene.backend.archives.add(("r1", "old-g003", archive.name))
    scene.backend.faults["r1"] = [Fault(50.0, "world")] * 4
    outcome = await run(scene, flat_plan(scene), resume_from=archive)
    assert outcome.status == "failed"
    origins = [attempt.order.origin for attempt in scene.backend.attempts]
    assert [origin and origin.file for origin in origins] == [archive.name] * 4


async def test_a_copy_of_an_archive_is_complete_or_absent(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_half(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:100])
        raise OSError(errno.ENOSPC, "no space")

    (tmp_path / "elsewhere").mkdir()
    archive = await run_blocking(make_archive, tmp_path / "elsewhere" / "gen.ckpt", 1)
    with monkeypatch.context() as full:
        full.setattr(takeover.shutil, "copyfile", copy_half)
        with pytest.raises(OSError, match="no space"):
            await run(scene, flat_plan(scene), resume_from=archive)
    scene.backend.archives.add(("r1", "old-g001", archive.name))
    assert (await run(scene, flat_plan(scene), resume_from=archive)).status == "done"
    copy = scene.directory / "runs" / "old-g001" / "checkpoints" / archive.name
    assert copy.read_bytes() == archive.read_bytes()


async def test_an_import_that_was_killed_between_two_lines_is_completed(scene: Scene) -> None:
    scripts.begin(scene.directory)
    scripts.complete(scene.directory, 1, run_id="old-g001")
    archive = await run_blocking(own_archive, scene, 2)
    async with scene.experiment(flat_plan(scene), resume_from=archive):
        pass
    journal = scene.directory / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    kinds = ["experiment.begun", "imported", "opened", "checkpoint", "interrupted"]
    assert [line.type for line in read_lines(scene.directory)] == kinds
    for count in range(1, len(lines) + 1):
        journal.write_bytes(b"".join(lines[:count]))
        async with scene.experiment(flat_plan(scene), resume_from=archive):
            pass
        assert [line.type for line in read_lines(scene.directory)] == kinds


async def test_an_archive_of_a_complete_generation_is_refused(scene: Scene) -> None:
    scripts.begin(scene.directory)
    scripts.complete(scene.directory, 1, run_id="old-g001")
    archive = await run_blocking(make_archive, scene.directory / "gen.ckpt", 1)
    with pytest.raises(ConfigError, match="not of generation 1"):
        async with scene.experiment(flat_plan(scene), resume_from=archive):
            pass


async def test_archive_in_a_run_with_an_invalid_name_is_refused(
    scene: Scene,
) -> None:
    archive = await run_blocking(own_archive, scene, 1)
    run_dir = archive.parents[1]
    archive = run_dir.rename(run_dir.with_name("my old run")) / "checkpoints" / archive.name
    with pytest.raises(ConfigError, match="rename that directory"):
        async with scene.experiment(flat_plan(scene), resume_from=archive):
            pass
    assert not read_lines(scene.directory)


async def test_an_archive_of_agents_of_another_driver_is_refused(scene: Scene) -> None:
    archive = await run_blocking(make_archive, scene.directory.with_name("gen.ckpt"), 1)
    plan = flat_plan(scene).but(agents=[AgentSpec("codex", name="Eko")])
    with pytest.raises(ConfigError, match="agents of the driver codex, not claude"):
        async with scene.experiment(plan, resume_from=archive):
            pass
    assert not read_lines(scene.directory)


async def test_a_run_left_incomplete_by_an_interrupted_script_is_set_aside(scene: Scene) -> None:
    scripts.begin(scene.directory)
    scripts.complete(scene.directory, 1, run_id="old-g001")
    (scene.directory / "runs" / "old-g002" / "agents").mkdir(parents=True)
    async with scene.experiment(flat_plan(scene)):
        (moved,) = (scene.directory / "runs").glob("old-g002*")
        assert moved.name.startswith("old-g002.failed-")


async def test_running_script_keeps_its_run(scene: Scene) -> None:
    scripts.begin(scene.directory)
    run_dir = scene.directory / "runs" / "old-g001"
    run_dir.mkdir()
    claim = await run_blocking(claim_run, run_dir)
    with pytest.raises(RunLockedError, match="runs generation 1 in"):
        await run(scene, flat_plan(scene))
    assert run_dir.is_dir()
    await run_blocking(claim.release)
    async with scene.experiment(flat_plan(scene)):
        assert not run_dir.exists()


async def test_a_directory_after_the_last_generation_of_the_plan_is_kept(scene: Scene) -> None:
    scripts.begin(scene.directory)
    scripts.complete(scene.directory, 1, run_id="old-g001")
    run_dir = scene.directory / "runs" / "old-g002"
    run_dir.mkdir()
    await run(scene, flat_plan(scene).but(generations=1))
    assert run_dir.is_dir()


async def test_an_older_checkpoint_of_this_package_continues_with_its_totals(scene: Scene) -> None:
    scripts.begin(scene.directory)
    scripts.complete(scene.directory, 1, run_id="old-g001")
    async with scene.experiment(flat_plan(scene)):
        pass
    aside = await run_blocking(leave_failed_attempt, scene)
    archive = aside / "checkpoints" / "gen-t000900.ckpt"
    scene.backend.archives.add(("r1", "old-g002", archive.name))
    await run(scene, flat_plan(scene), resume_from=archive)
    order = scene.backend.attempts[0].order
    assert order.origin is not None
    assert (order.origin.attempt, order.origin.file) == ("old-g002", archive.name)
    recorded = [line.data for line in read_lines(scene.directory) if line.type == "checkpoint"]
    first, _, again, *_ = recorded
    assert again == first


def leave_failed_attempt(scene: Scene) -> Path:
    """Leave an attempt with two checkpoints that failed; return its directory."""
    leave_attempt(scene)
    with Journal(scene.directory) as journal:
        facts = {**journal.lines[-1].data, "file": "gen-t001800.ckpt", "usage": []}
        about = About("r1", 2, "old-g002")
        journal.append("checkpoint", facts, about)
        ending = {"cause": "world", "moved_to": "old-g002.failed-S", "usage": []}
        journal.append("failed", ending, about)
    aside = scene.directory / "runs" / "old-g002.failed-S"
    aside.with_name("old-g002").rename(aside)
    return aside
