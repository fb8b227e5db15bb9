"""A plan with two agents, whose attempts run on a real world and stand-in programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.cluster.engine import Engine
from clawblox.experiment.cluster.remote_backend import RemoteBackend
from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.live_attempt import LiveAttempt
from clawblox.experiment.live.live_backend import LiveBackend
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.plan.cluster import Cluster
from clawblox.experiment.schedule.ports import SavedCheckpointFile, Signal
from tests.agents.standins import install, misbehave, told
from tests.experiment.cluster.local_engine import LocalEngine
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world

DRIVERS = {"Eko": "claude", "Moa": "codex"}
FIRST = "exp-r1-g001"
SAVE = "Save your memory now."


@attrs.define
class Scene:
    """A plan, its backend, and the signals of its attempts."""

    plan: Plan
    backend: LiveBackend
    signals: list[Signal] = attrs.field(factory=list)

    def order(self, attempt_id: str = FIRST, **more: Any) -> AttemptOrder:
        """Return the order for an attempt at the first generation."""
        return AttemptOrder(
            chain=self.plan.chains()[0], generation=1, attempt_id=attempt_id, **more
        )

    def run_dir(self, attempt_id: str = FIRST, chain: str = "r1") -> Path:
        """Return the run directory of an attempt."""
        return self.backend.directory / "chains" / chain / "runs" / attempt_id

    def agent_dirs(self, attempt_id: str = FIRST, chain: str = "r1") -> list[Path]:
        """Return the directories of the attempt's agents in order."""
        return sorted((self.run_dir(attempt_id, chain) / "agents").iterdir())

    async def prepare(self, order: AttemptOrder, **faults: Any) -> None:
        """Prepare an attempt, and enable the faults of its agents."""
        await self.backend.prepare(order)
        for directory in self.agent_dirs(order.attempt_id):
            misbehave(directory / "workspace", **{"turn_s": 0.05, **faults})

    @asynccontextmanager
    async def open(
        self, order: AttemptOrder, signals: list[Signal] | None = None
    ) -> AsyncIterator[Any]:
        """Open an attempt where there is room for it, and keep its signals."""
        kept = self.signals if signals is None else signals
        async with (
            self.backend.room(order.chain) as room,
            self.backend.open(order, kept.append, room) as attempt,
        ):
            yield attempt

    async def told(
        self, working: Any, attempt_id: str = FIRST, chain: str = "r1"
    ) -> list[list[str]]:
        """Return the messages that each agent received in its conversation.

        Args:
            working: The result of starting the attempt, which names the conversations.
            attempt_id: The attempt.
            chain: Its chain.
        """
        ids = [agent["conversation"] for agent in working["agents"]]
        return await run_blocking(self._read, ids, self.agent_dirs(attempt_id, chain))

    def _read(self, ids: list[str], directories: list[Path]) -> list[list[str]]:
        return [
            told((find_driver(spec.driver).transcripts(AgentDir(directory)) or {})[session])
            for spec, session, directory in zip(self.plan.agents, ids, directories, strict=True)
        ]


@pytest.fixture(params=["here", pytest.param("nodes", marks=pytest.mark.thorough)])
async def scene(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    """Yield a scene with a Claude Code and a Codex agent, here and on a cluster node."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-key-0001")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key-0002")
    monkeypatch.setenv("CLAWBLOX_SCRATCH", str(tmp_path))
    agents = [
        AgentSpec(driver, name=name, binary=install(tmp_path / "bin", driver))
        for name, driver in DRIVERS.items()
    ]
    plan = Plan(make_world(tmp_path), agents, name="exp", save={"prompt": SAVE})
    make = LiveBackend if request.param == "here" else make_remote_backend
    with anyio.fail_after(HANG_S):
        async with serving(make(tmp_path / "exp", "chains", {})) as backend:
            yield Scene(plan, backend)


looks_inside = pytest.mark.parametrize("scene", ["here"], indirect=True)
"""Marks a test that inspects an attempt, which must therefore run in this process."""


def make_remote_backend(*arguments: Any, engine: Engine | None = None) -> RemoteBackend:
    """Return a backend whose attempts run on one of two nodes, both on this machine."""
    given = engine or LocalEngine({"first": 2, "second": 2})
    return RemoteBackend(*arguments, cluster=Cluster(lease=10.0), connect=lambda _cluster: given)


@asynccontextmanager
async def serving(backend: LiveBackend) -> AsyncIterator[LiveBackend]:
    """Serve a backend while the block runs."""
    async with Tasks() as tasks:
        tasks.start_soon(backend.serve)
        yield backend


@pytest.fixture
def alone(scene: Scene) -> Scene:
    """Return the scene with the first agent only."""
    scene.plan = scene.plan.but(agents=scene.plan.agents[:1])
    return scene


def refer(attempt_id: str, saved: SavedCheckpointFile, chain: str = "r1") -> CheckpointRef:
    """Return the reference to a checkpoint of an attempt."""
    return CheckpointRef(
        chain=chain, generation=1, attempt=attempt_id, file=saved.file, sha256=saved.sha256
    )


async def wait_for_turns(attempt: LiveAttempt, turns: int) -> None:
    """Wait until every agent has ended a number of turns in an attempt."""
    await wait_until_async(lambda: min(used.turns for used in attempt.usage()) >= turns)


async def wait_until_done(attempt: LiveAttempt) -> None:
    """Wait until no agent is in a turn."""
    await wait_until_async(lambda: not any(agent.is_working for agent in attempt.activity()))
