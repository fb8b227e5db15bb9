"""Forks of a snapshot, which behave like their parent until they are reseeded."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from clawblox import AsyncWorld, ConfigError
from tests.support.crowd import act, join, look, past
from tests.support.running import manifest_of
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[3] / "examples"


def play(port: int, session: str) -> list[bytes]:
    """Send the same requests each time; return all bytes of the answers."""
    return [act(port, session, number) for number in (3, -1, 40)]


@pytest.mark.thorough
async def test_forks_and_their_parent_give_identical_answers(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        parent = await world.start(run_dir=run, name="parent")
        session = await join(world, parent)
        act(parent.port, session, 7)
        saved = await world.save()
        forks = await world.fork(saved, 2, run_dir=run)
        traces = [play(one.port, session) for one in (parent, *forks)]
        assert traces == [traces[0]] * 3
        assert len(set(traces[0])) == 3
        saves = await world.save_all()
        assert len({one.sha256 for one in saves}) == 1
        for fork in forks:
            told = manifest_of(fork.instance_dir)["run"]
            assert (told["resume_from"], told["parent_sha256"]) == (str(saved.path), saved.sha256)
            assert fork.resume_path == saved.path
        again = await world.fork(saved.path, run_dir=run)
        assert play(again["w002"].port, session) == traces[0]


async def test_a_fork_with_invalid_arguments_starts_no_instance(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        await world.start(run_dir=run, name="parent")
        saved = await world.save()
        await past(events)
        saved.path.write_bytes(saved.path.read_bytes() + b" ")
        for checkpoint, count, options in (
            (saved, 1, {}),
            (run / "none.json", 1, {}),
            (saved.path, 0, {}),
            (saved.path, 10**15, {}),
            (saved.path, 1, {"reseed": 3}),
        ):
            with pytest.raises(ConfigError):
                await world.fork(checkpoint, count, run_dir=run, **options)
        assert await past(events) == []
        assert world.instances == ("parent",)


@pytest.mark.thorough
async def test_each_fork_gets_its_own_seed_if_the_world_supports_it(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, toml_extra="reseed = true")
    async with AsyncWorld(dir=directory) as world:
        parent = await world.start(run_dir=run, name="parent")
        session = await join(world, parent)
        saved = await world.save()
        forks = await world.fork(saved, 3, run_dir=run, reseed=2**64 - 3)
        seeds = [look(one.port, session)["reseed"] for one in forks]
        assert seeds == [2**64 - 3, 2**64 - 2, 2**64 - 1]
        with pytest.raises(ConfigError) as caught:
            await world.fork(saved, 4, run_dir=run, reseed=2**64 - 3)
        assert caught.value.key == "reseed"
        assert len(world.instances) == 4


@pytest.fixture
def marbles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the example, whose ``python`` is this one."""
    directory = tmp_path / "marbles"
    shutil.copytree(EXAMPLES / "marbles", directory, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return directory


def play_marbles(port: int, session: str) -> list[bytes]:
    """Steer, and let agents join, which the world places at random.

    The trace contains agent ids instead of sessions, which differ in each launch.
    """
    headers = {"X-Session": session}
    trace: list[bytes] = []
    for number in range(3):
        newcomer = ask(port, "POST", f"/join?name=newcomer-{number}").json()["agent_id"]
        body = json.dumps({"type": "Steer", "data": {"direction": [1, number]}}).encode()
        steered = ask(port, "POST", "/input", body=body, headers={**headers, "Content-Type": JSON})
        assert steered.status == 200
        trace += [newcomer.encode(), steered.body]
    return [*trace, ask(port, "GET", "/observe", headers=headers).body]


JSON = "application/json"


@pytest.mark.thorough
async def test_forks_throw_the_same_dice_until_they_are_reseeded(marbles: Path, run: Path) -> None:
    async with AsyncWorld(dir=marbles) as world:
        parent = await world.start(run_dir=run, name="parent")
        session = await join(world, parent)
        play_marbles(parent.port, session)
        saved = await world.save()
        exact = await world.fork(saved, 2, run_dir=run)
        reseeded = await world.fork(saved, 2, run_dir=run, reseed=7)
        for batch in (exact, reseeded):
            batch.raise_if_failed()
        continued = play_marbles(parent.port, session)
        assert [play_marbles(one.port, session) for one in exact] == [continued] * 2
        others = [play_marbles(one.port, session) for one in reseeded]
        assert len({tuple(trace) for trace in (continued, *others)}) == 3
