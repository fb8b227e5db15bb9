"""The save from which a resumed instance continues, and its manifest and record afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from clawblox import AsyncWorld, SavedSnapshot, SnapshotRefusedError, StartedWorld, WorldStartError
from clawblox.concurrency.batch import Batch
from clawblox.world.fleet import Fleet
from tests.support.crowd import (
    act,
    join,
    join_all,
    leftovers,
    look,
    make_motley_world,
    until,
    variables_of,
)
from tests.support.processes import marked_processes
from tests.support.sockets import free_port, stranger_on
from tests.support.worlds import ask, make_world
from tests.world.resume.support import (
    BlockError,
    edges,
    find_record,
    home,
    interrupt,
    resume,
    run_of,
)
from tests.world.test_cancellation import Interrupted, run_and_cancel

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


class Counting:
    """Agents that add, and the saves between."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers
        self.sessions: dict[str, str] = {}
        self.saves: dict[str, list[SavedSnapshot]] = {}

    async def __call__(self, world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        """Add each number to the counter of each instance and save it."""
        self.sessions = await join_all(world, batch)
        for number in self.numbers:
            for started in batch:
                act(started.port, self.sessions[started.name], number)
            saves = await world.save_all()
            for name, saved in saves.done.items():
                self.saves.setdefault(name, []).append(saved)
        for started in batch:
            act(started.port, self.sessions[started.name], 1000)  # lost


async def test_each_instance_continues_from_its_last_save_with_sessions_and_port(
    tmp_path: Path, run: Path
) -> None:
    directory, counting = make_world(tmp_path), Counting(1, 2)
    before = await interrupt(directory, run, 3, counting, restart="checkpoint", max_restarts=7)
    begun = {name: run_of(run, name) for name in before.done}
    seen: dict[str, int] = {}

    async def observe(_world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        for started in batch:
            seen[started.name] = look(started.port, counting.sessions[started.name])["counter"]
            assert run_of(run, started.name) == {
                **{key: begun[started.name][key] for key in ("id", "index", "started_at")},
                "status": "running",
            }

    for number in (1, 2, 3):
        batch, events = await resume(directory, run, observe)
        assert batch.failed == {}
        assert seen == dict.fromkeys(before.done, 3)
        for name, started in batch.done.items():
            saved = counting.saves[name][-1]
            assert started.port == before[name].port
            assert started.instance_dir == before[name].instance_dir
            assert started.resume_path == events[name].data["resume_path"] == saved.path
            assert events[name].data["reason"] is None
            record = await find_record(run, name)
            assert (record.restarts, record.run_id) == (number, begun[name]["id"])
            assert record.started_at == begun[name]["started_at"]
            assert (record.options["restart"], record.options["max_restarts"]) == ("checkpoint", 7)
            told = edges(run, name)
            assert [edge["number"] for edge in told] == list(range(1, number + 1))
            assert {edge["by"] for edge in told} == {"resume"}
            assert {edge["parent_sha256"] for edge in told} == {saved.sha256}
            assert {edge["resume_from"] for edge in told} == {f"checkpoints/{saved.path.name}"}
            assert {edge["run_id"] for edge in told} == {begun[name]["id"]}
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_a_missing_or_changed_save_is_skipped(tmp_path: Path, run: Path) -> None:
    directory, counting = make_world(tmp_path), Counting(1, 2, 4)
    await interrupt(directory, run, 4, counting)
    saves = {name: [saved.path for saved in found] for name, found in counting.saves.items()}
    saves["w000"][2].unlink()
    saves["w001"][2].write_bytes(saves["w001"][0].read_bytes())
    saves["w002"][2].unlink()
    saves["w002"][1].unlink()
    for path in saves["w003"]:
        path.unlink()
    seen: dict[str, int] = {}

    async def observe(_world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        for name in ("w000", "w001", "w002"):
            seen[name] = look(batch[name].port, counting.sessions[name])["counter"]

    batch, events = await resume(directory, run, observe)
    assert list(batch.done) == list(saves)
    assert seen == {"w000": 3, "w001": 3, "w002": 1}
    assert [batch[name].resume_path for name in saves] == [
        saves["w000"][1],
        saves["w001"][1],
        saves["w002"][0],
        None,
    ]
    reasons = {name: event.data["reason"] for name, event in events.items()}
    assert reasons == {
        "w000": f"{saves['w000'][2].name} is missing",
        "w001": f"{saves['w001'][2].name} is not the file that was saved",
        "w002": f"{saves['w002'][2].name} is missing",
        "w003": f"{saves['w003'][2].name} is missing",
    }
    assert "parent_sha256" not in edges(run, "w003")[0]


@pytest.mark.thorough
async def test_saves_of_other_runs_and_removed_saves_do_not_count(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    await interrupt(directory, run, 1, Counting(1))
    await interrupt(directory, run, 1)  # another run of the same name
    batch, events = await resume(directory, run)
    assert batch["w000"].resume_path is None
    assert events["w000"].data["reason"] == "it has no save"

    async def autosave(world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        async with world.events() as events:
            await world.autosave(every=0.01, keep=1)
            for _ in range(3):
                await until(events, "saved", batch.done)

    await resume(directory, run, autosave)
    batch, events = await resume(directory, run)
    assert events["w000"].data["reason"] is None
    assert batch["w000"].resume_path is not None


# -------------------------------------------------------------------------- without a save


@pytest.mark.thorough
async def test_an_instance_without_a_save_starts_as_its_run_started(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, toml_extra="reseed = true")
    source = Counting(5)
    await interrupt(directory, tmp_path / "source", 1, source)
    parent = source.saves["w000"][0]
    try:
        async with AsyncWorld(dir=directory) as world:
            (await world.fork(parent, 2, reseed=7, run_dir=run)).raise_if_failed()
            await world.save(instance="w001")
            raise BlockError
    except BlockError:
        pass
    begun = {name: run_of(run, name) for name in ("w000", "w001")}
    seeds: dict[str, str | None] = {}

    async def observe(_world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        for started in batch:
            seeds[started.name] = variables_of(started.pid).get("WORLD_RESEED")

    for number in (1, 2):
        batch, events = await resume(directory, run, observe)
        assert batch["w000"].resume_path == parent.path
        assert batch["w001"].resume_path != parent.path
        # A save contains the seed already.
        assert seeds == {"w000": "7", "w001": None}
        assert events["w000"].data["reason"] == "it has no save"
        told = edges(run, "w000")[-1]
        assert (told["number"], told["parent_sha256"]) == (number, parent.sha256)
        for name, run_section in begun.items():
            origin = {key: run_of(run, name)[key] for key in ("resume_from", "parent_sha256")}
            assert origin == {key: run_section[key] for key in origin}
    parent.path.write_bytes(b"{}")
    batch, _ = await resume(directory, run)
    assert list(batch.done) == ["w001"]
    assert "was changed" in str(batch.failed["w000"])
    parent.path.unlink()
    batch, _ = await resume(directory, run)
    assert list(batch.done) == ["w001"]
    assert isinstance(batch.failed["w000"], WorldStartError)
    assert f"started from is missing: {parent.path}" in str(batch.failed["w000"])


async def test_a_world_that_refuses_its_snapshot_fails_and_the_others_continue(
    tmp_path: Path, run: Path
) -> None:
    directory = make_motley_world(tmp_path)
    specs = [{"name": "a", "env": {"FLAGS": ""}}, {"name": "b"}]
    counting = Counting(1)
    await interrupt(directory, run, specs, counting)
    # Another scene does not fit the snapshot of "a"; "b" is unchanged.
    shell = 'case "$CLAWBLOX_MANIFEST_PATH" in */a/*) FLAGS="--scene other";; esac; '
    toml = directory / "world.toml"
    toml.write_text(toml.read_text().replace('"exec ', json.dumps(shell)[:-1] + "exec "))
    batch, _ = await resume(directory, run, env={"FLAGS": ""})
    assert list(batch.done) == ["b"]
    assert isinstance(batch.failed["a"], SnapshotRefusedError)
    record = await find_record(run, "a")
    assert (record.state, record.stopped_on_purpose) == ("failed", False)


# --------------------------------------------------------------------------------------- damage


@pytest.mark.thorough
async def test_a_missing_manifest_is_written_again(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    await interrupt(directory, run, 2, Counting(1))
    begun = {name: run_of(run, name) for name in ("w000", "w001")}
    for place in (run, home(run, "w000")):
        (place / ".clawblox" / "manifest.json").unlink()
    (home(run, "w001") / ".clawblox" / "manifest.json").write_text("{")
    batch, events = await resume(directory, run)
    assert list(batch.done) == ["w000"]
    assert batch["w000"].resume_path is None
    assert "manifest cannot be read" in events["w000"].data["reason"]
    assert "not JSON" in str(batch.failed["w001"])
    told = run_of(run, "w000")
    assert {key: told[key] for key in ("id", "index", "started_at")} == {
        key: begun["w000"][key] for key in ("id", "index", "started_at")
    }
    listed = json.loads((run / ".clawblox" / "manifest.json").read_text())["instances"]
    assert {entry["name"] for entry in listed} == {"w000", "w001"}


@pytest.mark.thorough
async def test_torn_lines_of_the_records_do_not_affect_other_lines(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    await interrupt(directory, run, 2)
    journal = run / ".clawblox" / "instances" / "records.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"name": "w001", "state": "re')
    assert list((await resume(directory, run))[0].done) == ["w000", "w001"]
    with journal.open("ab") as file:
        file.write(b'\xff\n[]\n{"name": 7}\n')
    assert list((await resume(directory, run))[0].done) == ["w000", "w001"]


@pytest.mark.thorough
async def test_manifests_with_foreign_entries_are_read(tmp_path: Path, run: Path) -> None:
    directory, counting = make_world(tmp_path), Counting(1)
    await interrupt(directory, run, 1, counting)
    path = home(run, "w000") / ".clawblox" / "manifest.json"
    document = json.loads(path.read_text())
    run_id = document["run"]["id"]
    document["checkpoints"] += [7, {"run_id": run_id, "instance": "w000"}, {"run_id": ["x"]}]
    document["restarts"] = [None, {"run_id": run_id, "number": "two"}]
    path.write_text(json.dumps(document))
    batch, _ = await resume(directory, run)
    assert batch["w000"].resume_path == counting.saves["w000"][0].path


@pytest.mark.thorough
async def test_a_missing_instance_directory_is_created_again(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    await interrupt(directory, run, 2, Counting(1))
    shutil.rmtree(home(run, "w000"))
    batch, events = await resume(directory, run)
    assert list(batch.done) == ["w000", "w001"]
    assert events["w000"].data["resume_path"] is None


# ------------------------------------------------------------------------- restarts, lone ones


@pytest.mark.thorough
async def test_restarts_continue_from_the_saves_before_the_resume(
    tmp_path: Path, run: Path
) -> None:
    directory, counting = make_world(tmp_path), Counting(1, 2)
    await interrupt(directory, run, 1, counting, restart="checkpoint")

    async def kill(world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        first, second = counting.saves["w000"]
        second.path.unlink()
        async with world.events() as events:
            os.kill(batch["w000"].pid, signal.SIGKILL)
            seen = await until(events, "ready", ["w000"])
        (restart,) = [event for event in seen if event.kind == "restarting"]
        assert restart.data["resume_path"] == first.path
        assert look(batch["w000"].port, counting.sessions["w000"])["counter"] == 1

    await resume(directory, run, kill)
    told = [(edge["number"], edge["by"]) for edge in edges(run, "w000")]
    assert told == [(1, "resume"), (2, "policy")]
    assert (await find_record(run, "w000")).restarts == 2
    await resume(directory, run)
    assert [edge["number"] for edge in edges(run, "w000")] == [1, 2, 3]


async def test_a_single_instance_continues_with_its_options(tmp_path: Path, run: Path) -> None:
    directory, port = make_world(tmp_path), free_port()
    log_file = tmp_path / "own.log"
    try:
        async with AsyncWorld(dir=directory) as world:
            first = await world.start(
                run_dir=run, name="lone", port=port, record=True, log_file=log_file
            )
            session = await join(world, first)
            act(first.port, session, 3)
            saved = await world.save()
            await world.record_run(id="r001", status="running")
            raise BlockError
    except BlockError:
        pass

    async def observe(_world: AsyncWorld, batch: Batch[StartedWorld]) -> None:
        assert look(port, session)["counter"] == 3
        manifest = json.loads((run / ".clawblox" / "manifest.json").read_text())
        assert manifest["run"] == {"id": "r001", "status": "running"}
        assert "instances" not in manifest
        assert ask(port, "GET", "/api.md").status == 200

    batch, _ = await resume(directory, run, observe)
    again = batch["lone"]
    assert (again.port, again.log_file, again.record_dir) == (port, log_file, first.record_dir)
    assert (again.instance_dir, again.resume_path) == (run, saved.path)
    manifest = json.loads((run / ".clawblox" / "manifest.json").read_text())
    assert (manifest["run"]["id"], manifest["run"]["status"]) == ("r001", "interrupted")
    (edge,) = manifest["restarts"]
    assert (edge["number"], edge["run_id"], edge["by"]) == (1, "r001", "resume")


@pytest.mark.thorough
async def test_a_resume_cancelled_at_any_step_can_be_repeated(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Fleet._start_many
    directory = make_world(tmp_path)
    await interrupt(directory, run, 2, Counting(1))
    for at in range(1, 100):
        cut = Interrupted(at)
        monkeypatch.setattr(Fleet, "_start_many", lambda *args, i=cut: i.drive(original(*args)))
        async with AsyncWorld(dir=directory) as world:
            was_cancelled = await run_and_cancel(cut, "anyio", partial(world.resume_all, run))
            if not was_cancelled:
                assert list(world.instances) == ["w000", "w001"]
                break
            assert (world.instances, marked_processes()) == ((), set()), f"suspension {at}"
        assert leftovers(run) == []
    assert at > 5
    for name in ("w000", "w001"):
        told = edges(run, name)
        assert [edge["number"] for edge in told] == list(range(1, len(told) + 1))


@pytest.mark.thorough
async def test_a_resumed_instance_gets_another_port_if_its_port_is_taken(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    before = await interrupt(directory, run, 1)
    with stranger_on(before["w000"].port):
        batch, _ = await resume(directory, run)
        assert batch["w000"].port not in (0, before["w000"].port)
