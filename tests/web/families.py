"""Real runs that started from each other's saves, in one directory and across several."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import anyio

from clawblox import AsyncWorld, save_checkpoint
from clawblox.web.run_history import read_history
from clawblox.web.site import RunSummary, Site
from tests.replay.lives import dice_world, play

_ACTIONS = [("Bet", 3), ("Bet", 4)]


def make_family(parent: Path) -> Path:
    """Return a directory with two runs: a fork in the first, and a fork of that in the second.

    ``first`` has ``alpha`` and its fork ``w000``; ``second`` has an instance started from a save of
    ``w000``. After the fork, Ada bets 99 only in ``w000``.
    """
    lab = parent / "lab"
    anyio.run(partial(_make_family, dice_world(parent), lab))
    return lab


async def _make_family(directory: Path, lab: Path) -> None:
    first, second = lab / "first", lab / "second"
    async with AsyncWorld(dir=directory) as world:
        await world.start_many([{"name": "alpha"}], run_dir=first, record=True)
        agents = [await world.join("Ada", instance="alpha")]
        await play(agents, _ACTIONS, 4, 1)
        saved = await world.save(instance="alpha")
        await world.fork(saved, run_dir=first, record=True)
        branched = [await world.join("Ada", instance="w000")]
        await play(agents, _ACTIONS, 4, 2)
        await branched[0].act("Bet", 99)
        await play(branched, _ACTIONS, 3, 2)
        await world.save(instance="alpha")
        middle = await world.save(instance="w000")
        batch = await world.fork(middle, run_dir=second, record=True)
        for started in batch.done.values():
            await started.save()


def save_agent(run: Path, name: str, text: str, **more: str) -> Path:
    """Save an agent of a run whose workspace has a file with a text, and perhaps others."""
    workspace = run / "agents" / "rocky" / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "SOUL.md").write_text(text)
    for path, content in more.items():
        (workspace / path).write_text(content)
    path = run / "checkpoints" / f"{name}.ckpt"
    save_checkpoint(path, agents={"rocky": workspace.parent})
    return path


def find_run(site: Site, name: str) -> RunSummary:
    """Return the run with a name."""
    (run,) = [run for run in site.runs() if run.name == name]
    return run


def saves_of(site: Site, name: str, instance: str) -> list[tuple[str, Path]]:
    """Return the page and the file of each save of an instance, latest first."""
    run = find_run(site, name)
    return [
        (f"run/{run.ident}/save/{site.identify(save.path)}", save.path)
        for save in sorted(read_history(run).saves, key=lambda save: -(save.time or 0.0))
        if save.instance == instance
    ]


def moved(lab: Path, target: Path, *pairs: tuple[str, str]) -> Path:
    """Return a directory with copies of runs, by their old and new names."""
    for old, new in pairs:
        (target / new).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(lab / old, target / new, symlinks=True)
    return target
