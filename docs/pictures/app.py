"""Takes ``app_*.webp``: the pages of ``clawblox app`` over a real experiment and a recorded race.

    python -m docs.pictures.app

It needs Chromium. The agents are stand-ins that play marbles; one of them reaches a usage limit,
the world of an attempt is killed, and a checkpoint is forked into branches, as in
:mod:`docs.pictures.experiments`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio

from clawblox import AsyncExperiment, Plan, World
from clawblox.rundir.records import read_records
from docs import examples
from docs.pictures.experiments import points, reach_limit
from tests.engine.page.chromium import Chromium
from tests.optional import require_program
from tests.web.served import Served, served

__all__ = ["make_data", "take"]

_HERE: Final = Path(__file__).parent
_KILL_AFTER, _LIMIT_AFTER = 4, 7
"""Numbers of committed generations after which something happens."""
_BRANCHES: Final = 4
_HINT: Final = "Get behind a marble before you push it."
_RACE_S: Final = 16.0
_FRAME_S: Final = 5.0
"""Time in which the page in the frame has drawn, in seconds; nobody outside can ask it."""
_WIDTH, _HEIGHT = 1280, 860


async def _run_experiment() -> None:
    async with AsyncExperiment(Plan.load("memory/plan.toml"), score=points) as experiment:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_make_trouble, experiment)
            await experiment.run()
            tasks.cancel_scope.cancel()
        source = experiment.find_checkpoint("no_workspace-s1/g002", at="boundary")
        labels, prompts = ["control", "hint"], [None, _HINT]
        await experiment.fork(
            source, _BRANCHES, prompts=prompts, labels=labels, duration="10m", parallel=1
        )
        await experiment.run()


async def _make_trouble(experiment: AsyncExperiment) -> None:
    """Kill a world, and have an agent reach its limit."""
    waiting = {_KILL_AFTER: _kill_world, _LIMIT_AFTER: reach_limit}
    async with experiment.events() as events:
        async for event in events:
            committed = experiment.status().counts.get("committed", 0)
            due = [number for number in waiting if number <= committed]
            if event.kind == "generation.working" and due:
                waiting.pop(due[0])(experiment.dir, event.subject, str(event.attempt))


def _kill_world(directory: Path, chain: str, attempt: str) -> None:
    (record,) = read_records(directory / "chains" / chain / "runs" / attempt)
    os.kill(record.pid, signal.SIGKILL)


def _race() -> None:
    """Record a race of two players."""
    world = World("examples/platform_race", run_dir="runs/race")
    world.start(record=True)
    players = [world.join(name) for name in ("Red", "Blue")]
    time_s = 0.0
    while time_s < _RACE_S:
        for number, player in enumerate(players):
            goal = [8.0 + 2.0 * time_s, 14.0, 4.0 * number]
            seen = player.act("Leap", {"position": goal})
            time_s = seen["tick"] / seen["world"]["tick_rate"]
    world.save()
    world.stop()


def make_data(directory: Path) -> None:
    """Run everything in a directory; it takes some minutes."""
    with contextlib.chdir(directory):
        shutil.copytree(_HERE.parent.parent / "examples", "examples")  # paths of pages are relative
        examples.write_files(examples.PAGES_WITH_AGENTS[0], directory)
        os.environ.update(examples.install_agents(directory / ".agents"))
        anyio.run(_run_experiment)
        _race()


def _find_pages(site: Served) -> Iterator[tuple[str, str]]:
    """Yield the address of each picture below the key."""

    def follow(page: str, pattern: str) -> str:
        match = re.search(rf'href="/{site.key}/({pattern})"', site.text(page))
        assert match is not None, (page, pattern)
        return match[1].replace("&amp;", "&")

    yield "runs", ""
    yield "experiment", (experiment := follow("", "experiment/[0-9a-f]+"))
    runs = re.findall(rf'href="/{site.key}/(run/[0-9a-f]+)"', site.text(experiment))
    branch, other = runs[-1], runs[-2]
    yield "run", branch
    yield "agent", follow(branch, f"{branch}/agent/[0-9a-f]+")
    yield "log", follow(branch, f'{branch}/log/[^"]+')
    (learned,) = re.findall(
        rf'href="/{site.key}/(run/[0-9a-f]+)"[^>]*>workspace-s1/g003<', site.text(experiment)
    )
    yield "save", follow(learned, rf"{learned}/save/[0-9a-f]+(?=\">gen)")
    yield "compare", f"compare?a={other[4:]}&b={branch[4:]}"
    yield "lineage", "lineage"
    yield "usage", "usage"
    yield "replay", f"{follow('?q=race', 'run/[0-9a-f]+')}/replay?t=12"


def take(directory: Path, browser: Chromium) -> Iterator[tuple[str, bytes]]:
    """Yield the pictures by their names."""
    with served(directory) as site:
        for name, path in _find_pages(site):
            with browser.open(site.address + path, width=_WIDTH, height=_HEIGHT) as page:
                page.wait_for("document.querySelector('main h1') !== null")
                if name == "replay":
                    time.sleep(_FRAME_S)
                yield name, page.screenshot(format="webp", quality=72)


def main() -> None:
    """Make the data and take the pictures."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as profile:
        (lab := Path(place) / "lab").mkdir()
        make_data(lab)
        browser = Chromium(require_program("chromium"), Path(profile))
        try:
            for name, picture in take(lab, browser):
                (_HERE / f"app_{name}.webp").write_bytes(picture)
        finally:
            browser.close()


if __name__ == "__main__":
    main()
