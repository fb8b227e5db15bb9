"""Hosts on a node share worlds, and report why they cannot open an attempt."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.cluster import lease, scratch
from clawblox.experiment.cluster.engine import HostEndedError
from clawblox.experiment.cluster.messages import Reply
from clawblox.experiment.cluster.node import MACHINE_FACTS
from clawblox.experiment.cluster.remote_attempt import call_host
from clawblox.experiment.cluster.trees import pack
from clawblox.experiment.plan import cluster
from clawblox.experiment.schedule.ports import AttemptError
from tests.experiment.attempts import Scene, make_remote_backend, scene, serving
from tests.experiment.cluster import local_engine
from tests.experiment.cluster.local_engine import LocalEngine, LocalHost

__all__ = ["scene"]


@pytest.fixture(autouse=True)
def own_scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLAWBLOX_SCRATCH", str(tmp_path))


def test_hosts_can_unpack_the_same_world_at_the_same_time(tmp_path: Path) -> None:
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


@pytest.mark.thorough
@pytest.mark.anyio
@pytest.mark.parametrize("scene", ["nodes"], indirect=True)
async def test_attempt_fails_with_the_reason_if_its_host_cannot_open_it(scene: Scene) -> None:
    (await run_blocking(scratch.scratch_dir) / "worlds").symlink_to("nowhere")
    order = scene.order()
    await scene.prepare(order)
    with pytest.raises(AttemptError, match="worlds"):
        async with scene.open(order):
            pass


class IdleHost(LocalHost):
    """A host without a process that answers until it is lost."""

    is_lost = False

    def start(self, node: str) -> None:
        self.node = node

    def call(self, *_arguments: Any) -> Future[Any]:
        return self._answer(Reply(value={**dict.fromkeys(MACHINE_FACTS, ""), "name": self.node}))

    def renew(self, token: float | None) -> Future[float]:
        return self._answer((token or 0.0) + 1.0)

    def _answer(self, value: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        if self.is_lost:
            answer.set_exception(HostEndedError("it is lost"))
        else:
            answer.set_result(value)
        return answer


@pytest.mark.anyio
@pytest.mark.parametrize("scene", ["here"], indirect=True)
async def test_node_that_lost_a_host_is_avoided_until_a_host_works_there(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "LocalHost", IdleHost)
    monkeypatch.setattr(lease, "MARGIN_S", 0.0)
    monkeypatch.setattr(cluster, "_SHORTEST_LEASE_S", 0.1)
    engine = LocalEngine({"roomy": 2, "small": 1})
    chain = scene.order().chain
    made = make_remote_backend(scene.backend.directory, "chains", {}, engine=engine)
    async with serving(made):
        usual, made._cluster = made._cluster, attrs.evolve(made._cluster, lease=1.0)
        async with made.room(chain) as room:
            assert room.node == "roomy"
            vars(engine.hosts[0])["is_lost"] = True
            with pytest.raises(AttemptError, match="did not renew"):
                await call_host(room.caller, "describe")
        made._cluster = usual
        async with made.room(chain) as elsewhere:
            assert elsewhere.node == "small"
            async with made.room(chain) as there:  # no other node has room
                assert there.node == "roomy"
        async with made.room(chain) as room:
            assert room.node == "roomy"
