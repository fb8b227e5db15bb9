"""A defect of a display is reported once and never ends the displayed work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import anyio
import pytest
import structlog

from clawblox import AsyncWorld
from clawblox.cli.options import OrchestratorOptions
from clawblox.cli.playing.session import PlaySession
from clawblox.cli.running import (
    batch_run,
    displays,
    experiment_scenes,
    foreground,
    run_scenes,
    slow_work,
)
from clawblox.cli.running.batch_run import BatchRun, Orchestrator
from clawblox.cli.running.displays import LiveLines
from clawblox.cli.running.experiment_run import ExperimentRunner
from clawblox.cli.running.foreground import Foreground
from clawblox.cli.running.live_table import LiveTable
from clawblox.cli.running.slow_work import StartProgress
from clawblox.cli.terminal import reports as terminal_reports
from clawblox.cli.terminal import screen
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.cli.terminal.screen import progress_bar, relay
from clawblox.errors import BatchError, WorldExitedError
from clawblox.experiment.plan import AgentSpec, Plan
from tests.experiment.fakes import FakeBackend, FakedExperiment
from tests.support.simulated_clock import SimulatedClock
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

REPORT = "display failed; what it shows continues"


@pytest.fixture(autouse=True)
def _without_rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(terminal_reports, "_REST_S", 0.001)
    yield
    structlog.reset_defaults()


@pytest.fixture
def output() -> Iterator[Output]:
    with open(os.devnull, "w") as stream, Output(stream) as output:
        yield output


def fail(*_: object, **__: object) -> NoReturn:
    raise KeyError("a defect")


def reports(capsys: pytest.CaptureFixture[str]) -> int:
    return capsys.readouterr().err.count(REPORT)


@pytest.mark.parametrize("kind", [LiveLines, LiveTable])
async def test_instances_keep_running_after_a_display_defect(
    kind: type,
    output: Output,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.is_terminal = kind is LiveTable
    monkeypatch.setattr(batch_run, "describe_event", fail)
    monkeypatch.setattr(run_scenes, "render", fail)
    monkeypatch.setattr(kind, "finish", fail)
    world = AsyncWorld(make_world(tmp_path, "--exit-after", "0.1"), run_dir=tmp_path / "run")
    run = BatchRun(
        world=world,
        run_dir=tmp_path / "run",
        count=1,
        start=partial(world.start_many, 1),
        options=OrchestratorOptions(),
        starter_fd=None,
    )
    with anyio.fail_after(60), pytest.raises(BatchError) as failed:
        await Orchestrator(run, output).run_until_asked()
    # On a slow machine the process ends before it is ready.
    assert "exit status 9" in str(failed.value.failed["w000"])
    assert reports(capsys) == 1


async def test_foreground_world_keeps_running_after_an_output_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(foreground, "_headings", fail)
    # The standard output of tests is not a file.
    monkeypatch.setattr(foreground.sys, "stdout", open(os.devnull, "w"))  # noqa: SIM115
    world = AsyncWorld(make_world(tmp_path, "--exit-after", "0.1"), run_dir=tmp_path / "run")
    run = Foreground(world, tmp_path / "run", world.start, {}, 1.0, None)
    with anyio.fail_after(60), pytest.raises(WorldExitedError, match="exit status 9"):
        await run.run_until_asked()
    foreground.sys.stdout.close()
    assert reports(capsys) == 1


async def test_experiment_keeps_running_after_a_display_defect(
    output: Output,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(experiment_scenes, "describe_experiment_event", fail)
    monkeypatch.setattr(displays, "_INTERVAL_S", 0.001)
    clock = SimulatedClock()
    plan = Plan(
        make_world(tmp_path),
        agents=[AgentSpec("claude", name="Eko")],
        name="exp",
        generations=1,
        duration=600.0,
        limits={"min_free": None},
    )
    experiment = FakedExperiment(clock, FakeBackend(clock), plan, dir=tmp_path / "exp")

    async def tick() -> None:
        while True:
            await anyio.sleep(0)
            await clock.jump()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            status = await ExperimentRunner(experiment, output).run_until_asked()
            tasks.cancel_scope.cancel()
    assert status == 0
    assert reports(capsys) == 1


async def test_start_continues_after_a_defect_of_its_progress_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slow_work, "_PLAIN_INTERVAL_S", 0.0)
    looks: list[int] = []

    def describe() -> str:
        looks.append(1)
        return fail()

    monkeypatch.setattr(slow_work, "describe_archives", describe)

    async def start() -> Any:
        while len(looks) < 3:
            await anyio.sleep(0.001)
        return "started"

    progress = StartProgress(AsyncWorld(make_world(tmp_path)), tmp_path)
    with anyio.fail_after(60):
        assert await progress.accompany(start) == "started"
    assert reports(capsys) == 1


async def test_work_continues_after_a_defect_of_its_bar_or_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draws: list[int] = []

    async def draw(*_: object) -> None:
        draws.append(1)
        fail()

    monkeypatch.setattr(screen, "_DELAY_S", 0.0)
    monkeypatch.setattr(screen.Bar, "_draw", draw)

    async def work(show: Any) -> str:
        show(1)
        show(2)
        while len(draws) < 3:
            await anyio.sleep(0.001)
        return "done"

    shown: list[int] = []

    async def show(number: int) -> None:
        shown.append(number)
        fail()

    monkeypatch.setattr(screen.sys, "stderr", open(os.devnull, "w"))  # noqa: SIM115
    with anyio.fail_after(60):
        async with progress_bar("Working", 1) as bar:
            bar._is_shown = True
            assert await relay(work, show) == "done"
    screen.sys.stderr.close()
    assert shown == [1, 2]


class Typed:
    """A console with typed lines."""

    is_interactive = False

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)

    async def read_line(self) -> str | None:
        return self._lines.pop(0) if self._lines else None


class Agent:
    async def observe(self) -> Any:
        return {"position": 1}

    async def messages(self, **_: object) -> NoReturn:
        fail()


class Person:
    """A player in a running world."""

    agent = Agent()
    life = None


async def test_play_session_continues_after_an_output_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[int] = []

    async def show(*_: object) -> None:
        shown.append(1)
        fail()

    monkeypatch.setattr(PlaySession, "_show_value", show)
    player: Any = Person()
    console: Any = Typed("observe", "observe")
    with anyio.fail_after(60):
        assert await PlaySession(player, console, ()).run() == 1
    assert len(shown) == 2
    assert reports(capsys) == 1


async def test_lost_output_is_not_reported_as_a_defect() -> None:
    async def show() -> None:
        raise OutputGone

    with pytest.raises(OutputGone):
        await terminal_reports.DisplayContainment().keep_showing(show)
