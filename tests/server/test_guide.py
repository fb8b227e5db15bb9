"""``docs/server.md`` shows programs that run, and names only things that exist."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clawblox.server import Clock, Simulation
from clawblox.server.app import _Api
from clawblox.server.launch_settings import _add_flags

GUIDE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
JSON = {"Content-Type": "application/json"}


def test_the_world_of_the_guide_runs_and_resumes(launch, tmp_path):
    program = tmp_path / "world.py"
    program.write_text(GUIDE.split("```python\n")[1].split("```")[0])
    world = launch(program, "--clock", "lockstep")
    headers = {"X-Session": world.ask("POST", "/join?name=a").json()["session"], **JSON}
    body = b'{"type":"Add","data":2}'
    assert world.ask("POST", "/input", headers=headers, body=body).json()["sum"] == 2
    assert world.ask("POST", "/input", headers=headers, body=b'{"type":"x"}').status == 400

    saved = tmp_path / "snapshot.json"
    saved.write_bytes(world.snapshot().body)
    resumed = launch(program, "--clock", "lockstep", "--resume", str(saved))
    assert resumed.snapshot().body == saved.read_bytes()
    assert resumed.ask("GET", "/observe", headers=headers).json()["sum"] == 2


@pytest.mark.parametrize("block", [-2, -1], ids=["of the simulation", "of the routes"])
def test_a_test_of_the_guide_passes(monkeypatch, block):
    blocks = [block.split("```")[0] for block in GUIDE.split("```python\n")[1:]]
    world = ModuleType("world")
    exec(blocks[0], world.__dict__)
    monkeypatch.setitem(sys.modules, "world", world)
    names: dict[str, Any] = {}
    exec(blocks[block], names)
    for name, value in names.items():
        if name.startswith("test_"):
            value()


def test_the_guide_names_every_member_flag_and_route():
    members = {name for name in vars(Simulation) if not name.startswith("_")}
    parser = argparse.ArgumentParser()
    _add_flags(parser, {})
    flags = {flag for action in parser._actions for flag in action.option_strings}
    own = _Api.routes(_Api.__new__(_Api))
    routes = {f"{'POST' if 'POST' in route.methods else 'GET'} {route.path}" for route in own}
    spoken = re.sub(r"[`(|]", " ", GUIDE)
    for name in {*members, *(f"Clock.{clock.name}" for clock in Clock)}:
        assert re.search(rf"\b{re.escape(name)}\b", spoken), name
    for flag in flags - {"-h", "--help"}:
        assert f"`{flag}`" in GUIDE, flag
    for route in routes:
        assert f"`{route}" in GUIDE, route


def test_the_hash_of_rules_changes_with_rules_and_not_with_comments(tmp_path: Path) -> None:
    (block,) = (text for text in GUIDE.split("```python\n")[1:] if "def hash_rules" in text)
    names: dict[str, Any] = {}
    exec(block.split("```")[0], names)
    rules = tmp_path / "rules.py"

    def hashed(text: str) -> str:
        rules.write_text(text)
        return str(names["hash_rules"](rules))

    before = hashed("def rule(x):\n    if x:\n        return 1\n    return 2\n")
    mended = (
        "# mended\ndef rule(\n    x\n):  # better\n\n    if x:\n        return 1\n    return 2\n"
    )
    assert hashed(mended) == before
    for changed in (
        "def rule(x):\n    if x:\n        return 1\n    return 3\n",
        "def rule(x):\n    if x:\n        return 1\n        return 2\n",
    ):
        assert hashed(changed) != before
