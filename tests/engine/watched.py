"""A world in its own process, watched with small limits.

    watched.py DIR CPU_S MEMORY_BYTES PATIENCE_S

Prints the process id of the helper, and then each line of the world.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from clawblox.engine.errors import WorldHalted
from clawblox.engine.settings import EngineSettings
from clawblox.engine.watchdog.client import Watchdog
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep


def search(*_: object) -> None:
    """Hold the interpreter lock endlessly."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def main(directory: str, cpu_s: str, memory_bytes: str, patience_s: str) -> None:
    settings = EngineSettings(directory=Path(directory), steps_per_tick=1 << 60)
    with Watchdog() as watchdog:
        watchdog.start(
            cpu_s=float(cpu_s),
            memory_bytes=int(memory_bytes),
            patience_s=float(patience_s),
            interval_s=0.02,
        )
        print(watchdog._helper.pid, flush=True)
        world = EngineWorld(settings, watchdog=watchdog)
        vm = world._parts.vm

        def wait(*_: object) -> None:
            """Avoid charge points until the VM is asked to stop."""
            while not vm.is_interrupted:
                pass

        vm.globals.update({"search": search, "wait_for_the_watchdog": wait})
        try:
            run_deep(lambda: play(world))
        except WorldHalted as halted:
            print(f"halted: {halted}", flush=True)
        sys.stdin.read()


def play(world: EngineWorld) -> None:
    world.begin()
    for _ in range(3):
        world.step()
    print("played", flush=True)


main(*sys.argv[1:])
