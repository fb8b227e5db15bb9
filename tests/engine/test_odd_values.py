"""Odd values for every member of every class, every constructor, and every global function.

The result is always a value, an error that the script can catch, or a halted world with a text,
never an exception of the host. Afterwards the world can be observed, saved and restored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from clawblox.engine.errors import WorldHalted
from clawblox.engine.instances.spec import ClassSpec
from clawblox.engine.settings import EngineSettings
from clawblox.engine.world.assembly import Assembly
from clawblox.engine.world.console import Console
from clawblox.luau import run_deep
from tests.engine.torture import Plan, Run


def fill(name: str, seed: int, calls: int, spec: ClassSpec | None = None) -> str:
    """Return a script of ``odd_values``, with its parameters."""
    script = "".join((SCRIPTS / f"{each}.lua").read_text() for each in ("head", name))
    words = {"SEED": str(seed), "CALLS": str(calls)}
    if spec is not None:
        words |= {
            "CLASS": json.dumps(spec.name),
            "PROPERTIES": luau_list([*spec.properties, *spec.getters, "Nonsense"]),
            "METHODS": luau_list(spec.methods),
            "EVENTS": luau_list(spec.events),
        }
    for word, value in words.items():
        script = script.replace(word, value)
    return script


def luau_list(names: Iterable[str]) -> str:
    return "{ " + ", ".join(json.dumps(name) for name in dict.fromkeys(names)) + " }"


def check(directory: Path, main: str) -> str:
    """Run a script for some ticks; return its outcome."""
    (directory / "main.lua").write_text(main)
    settings = EngineSettings(directory=directory, steps_per_tick=1_000_000, memory_bytes=64 << 20)
    run = Run(settings, Plan().join(0, "Rocky").act(2, "Rocky", "Hello", {"a": [None, 1e30]}))
    try:
        run.start()
    except WorldHalted as halted:
        assert run.lines, "a halted world says why"
        return str(halted)
    for _ in range(5):
        run.step()
        json.dumps(run.record(), allow_nan=False)
    if run.world.failure is not None:
        return run.world.failure
    state = json.loads(json.dumps(run.world.snapshot()))
    twin = Run(settings, Plan()).restore(state, run.names)
    assert json.dumps(twin.world.snapshot()) == json.dumps(run.world.snapshot())
    return next((line for line in run.lines if "tries" in line), "")


def all_classes(directory: Path) -> list[ClassSpec]:
    (directory / "main.lua").write_text("")
    made = Assembly(EngineSettings(directory=directory), Console(print, print))
    return list(made.model.classes)


SCRIPTS = Path(__file__).parent / "odd_values"


@pytest.mark.thorough
def test_members_of_all_classes_accept_or_refuse_odd_values(tmp_path: Path) -> None:
    ended = {
        spec.name: run_deep(lambda spec=spec: check(tmp_path, fill("members", 1, 12, spec)))
        for spec in all_classes(tmp_path)
    }
    finished = [name for name, end in ended.items() if "tries" in end]
    assert len(finished) > 0.8 * len(ended), ended


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 4))
def test_libraries_accept_or_refuse_odd_values(tmp_path: Path, seed: int) -> None:
    assert run_deep(lambda: check(tmp_path, fill("libraries", seed, 12)))
