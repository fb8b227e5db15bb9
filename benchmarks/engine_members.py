"""Cost of properties and events of instances for scripts.

All times are CPU time of the process, without the surrounding loop.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.measure import measure_loops
from clawblox.engine.settings import EngineSettings
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep

__all__ = ["MEMBERS", "measure_members"]

MEMBERS: Final = {
    "part.Name = text": "part.Name = 'x'",
    "part.Transparency = number": "part.Transparency = 0.5",
    "part.Position = vector": "part.Position = v",
    "reading part.Name": "x = part.Name",
    "reading part.Transparency": "x = part.Transparency",
    "reading part.Position": "x = part.Position",
    "reading an event": "x = part.Touched",
    "Connect and Disconnect": "part.Touched:Connect(f):Disconnect()",
}
_TIMES: Final = 1000
_BEFORE: Final = """
local part, v, x = Instance.new("Part"), Vector3.new(1, 2, 3), nil
part.Parent = workspace
local function f() end
_G.bodies = {}
"""


def measure_members(rounds: int) -> dict[str, float]:
    """Return the CPU time of each operation in `MEMBERS`, in ns: the minimum over some rounds."""
    return run_deep(lambda: _measure(rounds))


def _measure(rounds: int) -> dict[str, float]:
    bodies = {"": "", **MEMBERS}
    functions = "\n".join(
        f"_G.bodies[{name!r}] = function() for i = 1, {_TIMES} do {body} end end"
        for name, body in bodies.items()
    )
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "main.lua").write_text(_BEFORE + functions)
        silent = Console(lambda line: None, lambda line: None)
        world = EngineWorld(EngineSettings(directory=Path(directory)), silent)
        world.begin()
    vm = world._parts.vm
    loaded = dict(vm.globals["_G"]["bodies"])
    loops = {name: partial(vm.call, loaded[name]) for name in bodies}
    return measure_loops(loops, _TIMES, rounds)
