"""The value that a start returns: immutable facts with methods."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path

import attrs
import pytest

from clawblox import (
    AsyncStartedInstance,
    AsyncWorld,
    StartedInstance,
    StartedWorld,
    UsageError,
    World,
)
from tests.support.crowd import act, join, look
from tests.support.processes import is_alive
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

VERBS = ("save", "stop", "restart", "join", "logs")


def test_each_method_of_the_facts_takes_the_options_of_the_worlds_method() -> None:
    for name in VERBS:
        ours = dict(inspect.signature(getattr(AsyncStartedInstance, name)).parameters)
        theirs = dict(inspect.signature(getattr(AsyncWorld, name)).parameters)
        del theirs["instance"]
        assert list(ours.values()) == list(theirs.values()), name


@pytest.mark.thorough
async def test_methods_of_the_facts_affect_only_their_instance(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(2, run_dir=tmp_path / "run")
        started, other = batch["w000"], batch["w001"]
        async with await started.join("Rocky") as rocky:
            assert rocky.instance == "w000"
        session = await join(world, started)
        act(started.port, session, 5)
        saved = await started.save(dir=tmp_path / "saves")
        assert (saved.instance, saved.path.parent) == ("w000", tmp_path / "saves")
        again = await started.restart()
        assert isinstance(again, AsyncStartedInstance)
        assert (again.name, again.port) == ("w000", started.port)
        assert again.pid != started.pid
        assert look(again.port, session)["counter"] == 5
        assert [line async for line in again.logs(tail=0)] == []
        (fork,) = await world.fork(saved)
        assert (await fork.stop(grace_seconds=1)).instance == fork.name
        assert (await started.stop(grace_seconds=1)).instance == "w000"
        assert world.instances == ("w001",)
        assert is_alive(other.pid)
        alone = await world.start(run_dir=tmp_path / "alone")
        assert (await alone.stop(grace_seconds=1)).instance == alone.name
    with pytest.raises(UsageError, match="this world is not open"):
        await started.save()


def test_methods_of_sync_facts_need_no_await(tmp_path: Path) -> None:
    with World(dir=make_world(tmp_path)) as world:
        started = world.start(run_dir=tmp_path / "run")
        with started.join("Rocky") as rocky:
            assert rocky.instance == started.name
        assert started.save()["instance"] == started.name
        again = started.restart(save=False)
        assert (type(again), again.name) == (StartedInstance, started.name)
        assert [*again.logs(tail=0)] == []
        with pytest.raises(TypeError, match=r"StartedInstance\.save\(\) .* 'instance'"):
            again.save(instance="w000")  # type: ignore[call-arg]
        (fork,) = world.fork(again.save())
        assert fork.stop(grace_seconds=1).instance == fork.name
        assert again.stop(grace_seconds=HANG_S).rung == "terminated"


def test_the_facts_are_frozen_and_equal_facts_are_equal(tmp_path: Path) -> None:
    with World(dir=make_world(tmp_path)) as world:
        started = world.start(run_dir=tmp_path / "run")
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            started.name = "other"  # type: ignore[misc]
        assert isinstance(started, StartedWorld)
        assert repr(started) == f"StartedWorld('w000', {started.url!r})"
        assert attrs.asdict(started).keys() == {one.name for one in attrs.fields(StartedWorld)}
        twin = copy.copy(started)
        assert twin == started
        for facts in (twin, pickle.loads(pickle.dumps(started)), attrs.evolve(started)):
            assert (facts.name, facts.url, facts.pid) == (started.name, started.url, started.pid)
            with pytest.raises(UsageError, match="copy of its facts") as caught:
                facts.stop()
            assert caught.value.hint == "call the open world with instance='w000'"
        assert is_alive(started.pid)
