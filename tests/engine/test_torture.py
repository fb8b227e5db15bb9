"""Every test world continues exactly from its snapshots, in a new process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.runner import Backend
from clawblox.engine.settings import read_settings
from clawblox.luau import run_deep
from tests.engine.playing import WORLDS, copy_world, read_plan
from tests.engine.torture import Run, digest, torture

ON = 300
"""Number of ticks that a restored world runs."""
SAMPLES = {
    "n02_threads": (1, 29),
    "n06_touches": (29,),
    "n13_store": (7, 31),
    "n13_waits": (3, 12, 20),
}
DEFAULT = "n13_store"
"""The world with rows; ``world/test_snapshots.py`` covers threads and touches."""
SHORT = ("n02_threads", "n10_inputs", "n13_store", "n13_waits")
LONGEST = 500


def check(name: str, directory: Path, *, saves: list[int], on: int) -> None:
    world = copy_world(name, directory)
    torture(
        world,
        read_plan(world),
        ticks=max(saves) + on,
        saves=saves,
        on=on,
        datastore=Backend.SQLITE,
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == DEFAULT else pytest.mark.thorough) for name in SAMPLES],
)
def test_a_world_continues_exactly(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, saves=list(SAMPLES[name]), on=60)


@pytest.mark.thorough
@pytest.mark.parametrize("name", WORLDS)
def test_every_world_continues_exactly_from_random_ticks(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    saves = [chance.randint(0, 10), chance.randint(10, 100), chance.randint(100, LONGEST)]
    check(name, tmp_path, saves=saves, on=ON)


@pytest.mark.thorough
@pytest.mark.parametrize("name", SHORT)
def test_a_short_world_continues_exactly_from_each_tick(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, saves=list(range(40)), on=100)


@pytest.mark.thorough
def test_reseeded_forks_differ_from_the_first_draw_but_equal_their_twins(
    tmp_path: Path,
) -> None:
    directory = copy_world("random", tmp_path)
    settings, plan = read_settings(directory), read_plan(directory)

    def run() -> list[list[str]]:
        original = Run(settings, plan).start()
        for _ in range(10):
            original.step()
        state = original.world.snapshot()
        return [go_on(state, seed) for seed in (None, *range(8)) for _ in "ab"]

    def go_on(state: Any, seed: int | None) -> list[str]:
        fork = Run(settings, plan).restore(state, ())
        if seed is not None:
            fork.world.reseed(seed)
        digests = []
        for _ in range(5):
            fork.step()
            digests.append(digest(fork.record() | {"fingerprint": None}))  # it contains the seed
        return digests

    digests = run_deep(run)
    assert digests[::2] == digests[1::2]
    for tick in range(5):
        assert len({fork[tick] for fork in digests[::2]}) == 9
