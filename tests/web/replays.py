"""Run directories with recordings, for the tests of replays."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import anyio

from clawblox import AsyncWorld
from clawblox.web.site import Site
from tests.worlds.viewers import world_with_viewer

TALLY = Path(__file__).parents[1] / "server" / "tally.py"


async def _play(world_dir: Path, run: Path, actions: list[tuple[str, object]]) -> None:
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=run, record=True)
        rocky = await world.join("Rocky")
        for action, data in actions:
            await rocky.act(action, data)
        await world.stop()


def record(world: Path, run: Path, *actions: tuple[str, object]) -> Path:
    """Play a world with one agent, and return its run directory with a recording."""
    anyio.run(partial(_play, world, run, list(actions)))
    return run


def engine_world(parent: Path, renderer: str = "", extra: str = "") -> Path:
    """Write an engine world with a falling part, and with its own renderer if given."""
    world = parent / "world"
    (world / "renderer").mkdir(parents=True)
    (world / "assets").mkdir()
    (world / "main.lua").write_text(
        "local part = Instance.new('Part')\n"
        "part.Name = 'Box'\npart.Position = Vector3.new(0, 50, 0)\npart.Parent = workspace\n"
    )
    entry = '[renderer]\nentry = "index.js"\n' if renderer else ""
    if renderer:
        (world / "renderer" / "index.js").write_text(renderer)
    (world / "world.toml").write_text(
        f'name = "box"\n[runtime]\nmode = "clawblox"\n[scripts]\nmain = "main.lua"\n{entry}{extra}'
    )
    return world


def tally_world(parent: Path, *viewer: str) -> Path:
    """Write a world without a renderer but with its own viewer."""
    world = world_with_viewer(parent, *viewer)
    shutil.copy(TALLY, world)
    with (world / "world.toml").open("a") as config:
        config.write(f"[run]\ncommand = {json.dumps([sys.executable, 'tally.py'])}\n")
    return world


def only_run(root: Path) -> str:
    """Return the name in addresses of the only run in a directory."""
    (run,) = Site(root).runs()
    return run.ident
