"""A defect in the task of an instance fails only this instance, with a report."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld
from clawblox.instance.bookkeeping import InstanceBookkeeping
from clawblox.rundir import journal
from tests.support.crowd import until
from tests.support.defects import Point, inject_all, inject_at
from tests.support.processes import marked_processes
from tests.support.waiting import HANG_S
from tests.support.worlds import ask, make_world

SAMPLE = [
    Point("instance.watch:InstanceWatch.run", "crash"),
    Point("instance.supervisor:Supervisor._tear_down", "stop"),
]


def test_defect_in_an_instance_task_affects_no_sibling_and_ends_all_waits(
    tmp_path: Path,
) -> None:
    assert inject_at("instance", tmp_path / "defects", SAMPLE) == (len(SAMPLE), [])


@pytest.mark.thorough
@pytest.mark.parametrize("share", range(8))
def test_defect_in_any_function_of_the_task_affects_no_sibling(tmp_path: Path, share: int) -> None:
    reached, faults = inject_all("instance", tmp_path / "defects", share=(share, 8))
    assert faults == []
    assert reached > 20


@pytest.mark.anyio
async def test_instance_ends_even_if_its_end_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, line: bytes, **_: object) -> None:
        if b'"exited"' in line:
            raise ValueError("surrogates not allowed")
        append(path, line)

    append = journal.append_line
    monkeypatch.setattr("clawblox.rundir.records.append_line", refuse)
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            batch = await world.start_many(2, run_dir=tmp_path / "run")
            assert (await world.stop(instance="w000")).rung == "terminated"
            assert world.instances == ("w001",)
            assert ask(batch["w001"].port, "GET", "/api.md").status == 200
    assert not marked_processes()


@pytest.mark.anyio
async def test_permanent_defect_emits_an_event_and_ends_only_one_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(books: InstanceBookkeeping, *_: object, **__: object) -> None:
        if books._instance.name == "w000":
            raise ValueError("it cannot be noted")

    for name in ("note_exit", "record_end"):
        original = getattr(InstanceBookkeeping, name)
        monkeypatch.setattr(
            InstanceBookkeeping,
            name,
            lambda books, *args, original=original, **options: (
                fail(books) or original(books, *args, **options)
            ),
        )
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
            batch = await world.start_many(2, run_dir=tmp_path / "run", restart="fresh")
            ask(batch["w000"].port, "POST", "/__die?status=3")
            seen = await until(events, "gave_up", ["w000"])
            assert "a defect of clawblox" in seen[-1].data["reason"]
            await world.wait("w000")
            assert world.instances == ("w001",)
            assert ask(batch["w001"].port, "GET", "/api.md").status == 200
