"""Many worlds started by one call: their separate options, and the effects of a failure."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from clawblox import (
    AsyncWorld,
    ConfigError,
    SnapshotRefusedError,
    StartedWorld,
    WorldExitedBeforeReadyError,
    WorldReadyTimeoutError,
    WorldStartError,
)
from clawblox.concurrency.batch import Batch
from clawblox.config.options import InstanceSpec
from clawblox.errors import BatchError
from tests.support.crowd import (
    act,
    exposed,
    join,
    leftovers,
    look,
    make_motley_world,
    past,
    statuses,
    variables_of,
)
from tests.support.processes import marked_processes
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------- separate options


@pytest.mark.thorough
async def test_instances_can_differ_in_name_snapshot_variables_and_recording(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (origin,) = await world.start_many(1, run_dir=tmp_path / "origin")
        act(origin.port, await join(world, origin), 7)
        saved = await world.save()
        shutil.copy(saved.path, world.dir / "seven.json")
        await world.stop()
        batch = await world.start_many(
            [
                InstanceSpec(name="alpha", env={"TASTE": "sweet"}),
                {"record": True},
                {"resume": "seven.json", "env": {"MORE": "1"}},
                InstanceSpec(),
            ],
            run_dir=run,
            env={"TASTE": "plain", "ALL": "yes"},
        )
        alpha, recording, resumed, plain = batch
        assert list(batch.done) == ["alpha", "w000", "w001", "w002"]
        variables = {one.name: variables_of(one.pid) for one in batch}
        assert [variables[one.name]["TASTE"] for one in batch] == ["sweet", *["plain"] * 3]
        assert {variables[one.name]["ALL"] for one in batch} == {"yes"}
        assert [one.name for one in batch if "MORE" in variables[one.name]] == [resumed.name]
        assert [one.record_dir for one in batch] == [
            None,
            run / "worlds/w000/recordings",
            None,
            None,
        ]
        act(recording.port, await join(world, recording), 3)
        assert (run / "worlds/w000/recordings/counter.jsonl").read_text() != ""
        assert resumed.resume_path == world.dir / "seven.json"
        session = await join(world, resumed)
        assert look(resumed.port, session)["counter"] == 7
        assert look(plain.port, await join(world, plain))["counter"] == 0
        tokens = {variables[one.name]["WORLD_OPERATOR_TOKEN"] for one in batch}
        assert len(tokens) == len({one.port for one in batch}) == len(batch) == 4
    assert alpha.instance_dir == run / "worlds" / "alpha"


@pytest.mark.thorough
async def test_every_instance_has_its_own_directory_that_only_its_owner_can_read(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(3, run_dir=run, record=True)
        saves = await world.save_all()
        assert exposed(run) == []
        for started in batch:
            home = run / "worlds" / started.name
            assert started.instance_dir == home
            assert started.run_dir == run
            assert started.log_file == home / "logs" / f"{started.name}.log"
            assert started.command_file == home / "runtime" / f"{started.name}.sh"
            assert started.record_dir == home / "recordings"
            assert saves[started.name].path.parent == home / "checkpoints"
            told = variables_of(started.pid)["CLAWBLOX_MANIFEST_PATH"]
            assert told == str(home / ".clawblox" / "manifest.json")
            assert {path.name for path in home.iterdir()} == {
                ".clawblox",
                "checkpoints",
                "logs",
                "recordings",
                "runtime",
            }
    assert {path.name for path in run.iterdir()} == {".clawblox", "worlds"}
    assert not list((tmp_path / "counter").glob(".clawblox"))


async def test_without_a_run_directory_instances_go_to_a_hidden_folder(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (started,) = await world.start_many(1)
        await world.save_all()
        assert started.instance_dir == world.dir / ".clawblox" / "worlds" / "w000"
        assert started.run_dir == world.dir
    assert {path.name for path in world.dir.iterdir()} == {".clawblox", "world.toml"}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no instance": ({"instances": 0}, "instances"),
    "more than there are ports": ({"instances": 12_001}, "instances"),
    "a list of more": ({"instances": [{}] * 12_001}, "instances"),
    "too many for any list": ({"instances": 10**15}, "instances"),
    "no number": ({"instances": True}, "instances"),
    "one name twice": ({"instances": [{"name": "a"}, {"name": "a"}]}, "name"),
    "no name": ({"instances": [{"name": "../a"}]}, "name"),
    "a number as text": ({"instances": "3"}, "instances"),
    "numbers in place of fields": ({"instances": [1]}, "instances"),
    "a name that is not text": ({"instances": [{"name": 5}]}, "name"),
    "variables that are not a mapping": ({"instances": [{"env": ["A=1"]}]}, "env"),
    "an unknown field": ({"instances": [{"port": 1}]}, "instances.port"),
    "a snapshot that is not there": ({"instances": [{"resume": "none.json"}]}, "resume"),
    "a variable of the contract": ({"instances": [{"env": {"WORLD_PORT": "1"}}]}, "env.WORLD_PORT"),
    "an unknown restart policy": ({"instances": 1, "restart": "always"}, "restart"),
    "no restart at all": ({"instances": 1, "restart": "fresh", "max_restarts": 0}, "max_restarts"),
    "an unknown on_failure": ({"instances": 1, "on_failure": "panic"}, "on_failure"),
}


@pytest.mark.parametrize(("arguments", "key"), WRONG.values(), ids=WRONG)
async def test_an_invalid_argument_is_named_before_any_instance_starts(
    tmp_path: Path, run: Path, arguments: dict[str, Any], key: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        with pytest.raises(ConfigError) as caught:
            await world.start_many(arguments.pop("instances"), run_dir=run, **arguments)
        assert caught.value.key == key
        assert await past(events) == []
        assert not (run / "worlds").exists()
    assert leftovers(run) == []


# ------------------------------------------------------------------------- one of them fails


def pids(batch: Batch[StartedWorld]) -> set[int]:
    return {started.pid for started in batch}


@pytest.mark.thorough
async def test_a_failed_instance_does_not_affect_the_others(tmp_path: Path, run: Path) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text("{}")
    specs: list[InstanceSpec | dict[str, Any]] = [
        {"name": "hangs", "env": {"FLAGS": "--never-listen"}},
        InstanceSpec(),
        {"name": "exits", "env": {"FLAGS": "--exit-at-once 5"}},
        InstanceSpec(),
        {"name": "refuses", "resume": foreign},
        InstanceSpec(),
    ]
    async with AsyncWorld(dir=make_motley_world(tmp_path)) as world:
        batch = await world.start_many(specs, run_dir=run, health_timeout=3)
        assert list(batch.done) == ["w000", "w001", "w002"]
        assert {name: type(error) for name, error in batch.failed.items()} == {
            "exits": WorldExitedBeforeReadyError,
            "refuses": SnapshotRefusedError,
            "hangs": WorldReadyTimeoutError,
        }
        assert list(batch.failed)[-1] == "hangs"  # the first cause first
        assert world.instances == ("w000", "w001", "w002")
        assert marked_processes() == pids(batch)
        assert len(await world.save_all()) == 3
        assert_says_what_failed(batch)
        told = statuses(run, ["w000", "exits", "refuses", "hangs"])
        assert [one["status"] for one in told.values()] == ["running", *["failed"] * 3]
        again = await world.start_many([{"name": "exits"}], run_dir=run)
        assert again["exits"].name == "exits"
    assert leftovers(run) == []


def assert_says_what_failed(batch: Batch[StartedWorld]) -> None:
    with pytest.raises(BatchError) as caught:
        batch.raise_if_failed()
    text = str(caught.value)
    assert "3 of 6 instances failed" in text
    for name, error in batch.failed.items():
        assert f"{name}: {type(error).__name__}: " in text
    assert caught.value.__cause__ is next(iter(batch.failed.values()))
    with pytest.raises(WorldExitedBeforeReadyError) as failure:
        batch["exits"]
    assert failure.value.exit is not None
    assert failure.value.exit.status == 5
    assert failure.value.log_lines[-1] == "cannot go on, exiting with 5"
    assert batch["w001"] in list(batch)
    with pytest.raises(KeyError):
        batch["w009"]


async def test_stop_all_ends_every_instance_at_the_first_failure(tmp_path: Path, run: Path) -> None:
    late = "--never-listen --exit-after 0.5"
    specs = [{}, {}, {"env": {"FLAGS": late}}, {"env": {"FLAGS": "--never-listen"}}]
    async with AsyncWorld(dir=make_motley_world(tmp_path)) as world:
        other = await world.start(run_dir=run, name="other")
        batch = await world.start_many(specs, run_dir=run, on_failure="stop_all")
        assert batch.done == {}
        assert next(iter(batch.failed)) == "w002"
        assert type(batch.failed["w002"]) is WorldExitedBeforeReadyError
        for name in ("w000", "w001", "w003"):
            assert type(batch.failed[name]) is WorldStartError
            assert "'w002' failed" in str(batch.failed[name])
        assert world.instances == ("other",)
        assert marked_processes() == {other.pid}
        assert list((await world.start_many(2, run_dir=run)).done) == ["w000", "w001"]
