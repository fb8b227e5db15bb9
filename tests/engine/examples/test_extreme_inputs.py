"""Inputs of agents cannot halt the worlds of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import clawblox.cli
from clawblox.engine.settings import read_settings
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep
from clawblox.server import HostedWorld
from tests.engine.torture import ROOT
from tests.support.extremes import flood

WORLDS = {
    "platform_race": ROOT / "examples" / "platform_race",
    "workshop": ROOT / "examples" / "workshop",
    "starter": Path(clawblox.cli.__file__).with_name("starter") / "engine",
}
OWN = {
    "platform_race": {"Leap", "Restart"},
    "workshop": {"Gather", "Craft", "Select", "Remove"},
    "starter": {"Home"},
}
CHECKED = {"MoveTo", "Pickup", "Place", "Throw", "Stop", "Jump", "GuiClick"}
WALK_TICKS = 500
"""Number of ticks for a walk, which a character abandons after 480 ticks."""


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "ticks"), [("platform_race", 4), ("workshop", 4), ("starter", 1)])
def test_extreme_inputs_do_not_halt_the_worlds_of_the_package(name, ticks):
    simulation = EngineWorld(read_settings(WORLDS[name]))

    def play() -> None:
        simulation.begin()
        world = HostedWorld(simulation)
        accepted = flood(world, [*CHECKED, *OWN[name], "Reset"], ticks)
        assert accepted >= CHECKED | OWN[name]
        for session, x in zip(list(world.sessions), (1e9, -1e9), strict=True):
            world.queue(session, "MoveTo", {"position": [x, -x, x]})
        for _ in range(WALK_TICKS):
            world.apply_inputs()
            world.step()
        assert world.failure is None

    run_deep(play)
