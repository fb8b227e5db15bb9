"""Hosts on a node share worlds, and say why they cannot open an attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.cluster import scratch
from clawblox.experiment.cluster.trees import pack
from clawblox.experiment.schedule.ports import AttemptError
from tests.experiment.attempts import Scene, scene

__all__ = ["scene"]


@pytest.fixture(autouse=True)
def own_scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLAWBLOX_SCRATCH", str(tmp_path))


def test_hosts_may_unpack_the_same_world_at_once(tmp_path: Path) -> None:
    world, bundle = tmp_path / "world", tmp_path / "bundle"
    world.mkdir()
    (world / "world.toml").write_text("name = 'counter'")
    pack(world, bundle)
    for _ in range(2):
        scratch.keep_world(bundle, "digest")
    assert (scratch.world_path("digest") / "world.toml").read_bytes() == b"name = 'counter'"


def test_world_that_cannot_be_unpacked_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        scratch.keep_world(tmp_path / "absent", "digest")


@pytest.mark.anyio
@pytest.mark.parametrize("scene", ["nodes"], indirect=True)
async def test_attempt_that_a_host_cannot_open_fails_for_its_reason(scene: Scene) -> None:
    (await run_blocking(scratch.scratch_dir) / "worlds").symlink_to("nowhere")
    order = scene.order()
    await scene.prepare(order)
    with pytest.raises(AttemptError, match="worlds"):
        async with scene.open(order):
            pass
