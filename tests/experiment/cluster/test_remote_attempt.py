"""An attempt on a node: lost answers, damaged files, and an untrusted node."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, ConfigError
from clawblox.experiment.cluster import remote_backend
from clawblox.experiment.cluster.engine import CallLostError
from clawblox.experiment.schedule.ports import AttemptError
from tests.experiment.attempts import (
    Scene,
    alone,
    looks_inside,
    make_remote_backend,
    scene,
    serving,
    wait_for_turns,
)
from tests.experiment.cluster.local_engine import LocalEngine, LocalHost
from tests.support.waiting import wait_until_async

__all__ = ["alone", "scene"]

pytestmark = [pytest.mark.anyio, looks_inside]


@attrs.define(eq=False)
class FaultyHost:
    """A host whose answers are changed in transit; see ``engine.HostHandle``.

    Attributes:
        host: The host.
        change: Takes the name of a call, its number among the calls of that name and the correct
            answer; returns the answer to deliver, or raises the error of the call.
    """

    host: LocalHost
    change: Callable[[str, int, Any], Any]
    counts: dict[str, int] = attrs.field(factory=dict)

    def call(
        self, number: int, pending: tuple[int, ...], name: str, arguments: tuple[Any, ...]
    ) -> Future[Any]:
        answer: Future[Any] = Future()
        count = self.counts[name] = self.counts.get(name, 0) + 1

        def pass_on(right: Future[Any]) -> None:
            try:
                answer.set_result(self.change(name, count, right.result()))
            except Exception as error:
                answer.set_exception(error)

        self.host.call(number, pending, name, arguments).add_done_callback(pass_on)
        return answer

    def renew(self, token: float | None) -> Future[float]:
        return self.host.renew(token)

    def end(self) -> None:
        self.host.end()


class FaultyEngine(LocalEngine):
    """An engine with faulty hosts."""

    def __init__(self, change: Callable[[str, int, Any], Any]) -> None:
        super().__init__({"first": 1})
        self._change = change

    def start_host(self, *arguments: Any) -> Any:
        return FaultyHost(super().start_host(*arguments), self._change)


def lose_each_first(name: str, count: int, right: Any) -> Any:
    """Lose the first answer of each method after it has run."""
    if count == 1:
        raise CallLostError(f"the answer to {name} is lost")
    return right


@pytest.mark.parametrize(
    "anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.thorough)]
)
async def test_lost_answer_does_not_repeat_the_call(alone: Scene) -> None:
    engine = FaultyEngine(lose_each_first)
    made = make_remote_backend(alone.backend.directory, "chains", {}, engine=engine)
    async with serving(made) as alone.backend:
        await alone.prepare(alone.order())
        async with alone.open(alone.order()) as attempt:
            working = await attempt.start()
            await wait_for_turns(attempt, 1)
            saved = await attempt.checkpoint("periodic", lambda: 3.0, idle_wait=5.0)
            await attempt.send("Once.")
            await wait_for_turns(attempt, 2)
            await attempt.stop_agents()
    archives = alone.run_dir() / "checkpoints"
    assert [path.name for path in archives.glob("*.ckpt")] == [saved.file]
    messages = await alone.told(working)
    assert [text.count("Once.") for text in messages[0]].count(1) == 1


@pytest.mark.thorough
async def test_an_archive_that_arrives_damaged_is_not_a_checkpoint(alone: Scene) -> None:
    is_damaged = True
    times: list[float] = []

    def damage(name: str, _count: int, right: Any) -> Any:
        if name == "checkpoint":
            times.append(right.value.save_s)
        if name == "read" and is_damaged:
            data = bytearray(right.value)
            data[len(data) // 2] ^= 1
            return attrs.evolve(right, value=bytes(data))
        return right

    made = make_remote_backend(alone.backend.directory, "chains", {}, engine=FaultyEngine(damage))
    async with serving(made) as alone.backend:
        await alone.prepare(alone.order())
        async with alone.open(alone.order()) as attempt:
            await attempt.start()
            with pytest.raises(ClawbloxError, match="does not match its digest"):
                await attempt.checkpoint("periodic", lambda: 3.0, idle_wait=5.0)
            archives = alone.run_dir() / "checkpoints"
            assert not await run_blocking(lambda: list(archives.glob("*")))
            with pytest.raises(AttemptError, match="did not arrive") as raised:
                await attempt.stop_agents()
            assert raised.value.cause == "node"
            is_damaged = False
            saved = await attempt.checkpoint("end", lambda: 3.0, idle_wait=5.0)
            assert saved.save_s > times[-1] > 0.0  # it had to come here


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["../../escape.ckpt", "a/b.ckpt", ".hidden", "/tmp/escape.ckpt"])
async def test_hostile_names_from_a_node_are_refused(alone: Scene, name: str) -> None:
    def rename(method: str, _count: int, right: Any) -> Any:
        if method == "checkpoint" and right.error is None:
            return attrs.evolve(right, value=attrs.evolve(right.value, file=name))
        return right

    made = make_remote_backend(alone.backend.directory, "chains", {}, engine=FaultyEngine(rename))
    async with serving(made) as alone.backend:
        await alone.prepare(alone.order())
        async with alone.open(alone.order()) as attempt:
            await attempt.start()
            with pytest.raises(AttemptError, match="sent the invalid archive name") as raised:
                await attempt.checkpoint("periodic", lambda: 3.0, idle_wait=5.0)
            assert raised.value.cause == "node"


@pytest.mark.thorough
async def test_the_error_names_a_different_version_on_a_node(
    alone: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await run_blocking(remote_backend.describe_node)
    monkeypatch.setattr(remote_backend, "describe_node", lambda: {**here, "clawblox": "0.0.1"})
    made = make_remote_backend(alone.backend.directory, "chains", {})
    async with serving(made) as alone.backend:
        await alone.prepare(alone.order())
        with pytest.raises(
            AttemptError, match=r"clawblox is .* on the node .* but 0\.0\.1 here"
        ) as raised:
            async with alone.open(alone.order()):
                raise AssertionError
    assert raised.value.cause == "setup"


@pytest.mark.thorough
async def test_failing_host_starts_are_retried_a_limited_number_of_times(
    alone: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_backend, "_RETRY_S", 0.0)
    monkeypatch.setattr(remote_backend, "_MAX_TRIES", 2)
    scratch = tmp_path / "open" / f"clawblox-hosts-{os.getuid()}"
    scratch.mkdir(parents=True)
    scratch.chmod(0o755)
    monkeypatch.setenv("CLAWBLOX_SCRATCH", str(scratch.parent))
    made = make_remote_backend(alone.backend.directory, "chains", {})
    async with serving(made) as alone.backend:
        with pytest.raises(ClawbloxError, match="only this user can use") as raised:
            async with made.room(alone.order().chain):
                raise AssertionError
    assert raised.value.hint is not None
    assert "CLAWBLOX_SCRATCH" in raised.value.hint


@pytest.mark.thorough
async def test_a_closed_attempt_leaves_no_files_on_its_node(alone: Scene, tmp_path: Path) -> None:
    made = make_remote_backend(alone.backend.directory, "chains", {})
    hosts = tmp_path / f"clawblox-hosts-{os.getuid()}" / "hosts"
    async with serving(made) as alone.backend:
        await alone.prepare(alone.order())
        async with alone.open(alone.order()) as attempt:
            await attempt.start()
            assert len(list(hosts.iterdir())) == 1
        assert not list(hosts.iterdir())


@pytest.mark.thorough
async def test_programs_are_checked_on_a_node(alone: Scene) -> None:
    engine = LocalEngine({"first": 1})
    made = make_remote_backend(alone.backend.directory, "chains", {}, engine=engine)
    lost = alone.plan.but(agents=[alone.plan.agents[0].but(binary="/no/such/claude")])
    async with serving(made):
        survey = await made.survey_on_node(alone.plan, stage="recorded")
        assert survey.rooms == {"first": 1}
        assert survey.programs["claude"] is not None
        with pytest.raises(ConfigError, match="/no/such/claude"):
            await made.survey_on_node(lost, stage="recorded")
        await wait_until_async(lambda: not engine.hosts)


async def test_full_cluster_does_not_prevent_the_start_of_an_experiment(
    alone: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_backend, "_SURVEY_WAIT_S", 0.01)
    full = LocalEngine({"first": 0})
    made = make_remote_backend(alone.backend.directory, "chains", {}, engine=full)
    pinned = alone.plan.but(agents=[alone.plan.agents[0].but(version="1.2.3")])
    async with serving(made):
        await made.survey(pinned, has_worked=False)


class OpenEngine(LocalEngine):
    """An engine that anybody can use or eavesdrop on."""

    has_token = False
    is_private = True


async def test_keys_are_not_sent_to_an_open_cluster(alone: Scene) -> None:
    engine = OpenEngine({"first": 1})
    made = make_remote_backend(alone.backend.directory, "chains", {}, engine=engine)
    async with serving(made):
        with pytest.raises(ConfigError, match="must require a token"):
            await made.survey(alone.plan, has_worked=False)
        engine.has_token, engine.is_private = True, False
        with pytest.raises(ConfigError, match="must be encrypted"):
            await made.survey(alone.plan, has_worked=False)


@pytest.mark.thorough
async def test_keys_are_sent_to_a_network_that_the_plan_trusts(alone: Scene) -> None:
    engine = OpenEngine({"first": 1})
    engine.has_token, engine.is_private = True, False
    made = make_remote_backend(alone.backend.directory, "chains", {}, engine=engine)
    async with serving(made):
        made._cluster = attrs.evolve(made._cluster, trusted_network=True)
        await made.survey(alone.plan, has_worked=False)
