"""The guide, docs/engine.md: its world behaves as documented, and its outputs come from the engine.

The commands of the guide are tested with those of the other pages, in tests/test_readme.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from clawblox.engine import settings
from docs import examples
from tests.engine.playing import play
from tests.engine.torture import Plan, Run, agent_id
from tests.support.sockets import free_port
from tests.support.waiting import wait_until
from tests.support.worlds import ask

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "engine.md"
TEXT = PAGE.read_text()
FILES = examples.find_files(PAGE)
MAIN = FILES["lamp/main.lua"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def lamp(run: Run) -> dict[str, object]:
    seen = run.world.observe(agent_id("Ada"))
    (found,) = (each for each in seen["world"]["entities"] if each["name"] == "Lamp")
    return {"material": found["material"], **found["attributes"]}


def test_guide_shows_a_world_of_three_files():
    assert FILES.keys() == {"lamp/world.toml", "lamp/main.lua", "lamp/API.md"}


def test_nearby_agents_can_switch_the_lamp(tmp_path):
    plan = Plan().join(0, "Ada").act(1, "Ada", "Switch")
    plan.act(2, "Ada", "MoveTo", {"position": [10, 0, 0]}).act(60, "Ada", "Switch")
    far, near = (play(tmp_path, MAIN, ticks, plan) for ticks in (50, 70))
    assert lamp(far) == {"material": "Plastic", "On": False}
    assert lamp(near) == {"material": "Neon", "On": True}


def test_observation_has_the_keys_shown_in_the_guide(tmp_path):
    shown = json.loads(blocks("json")[0])
    run = play(tmp_path, MAIN, 20, Plan().join(0, "Ada").join(0, "Bo"))
    seen = run.world.observe(agent_id("Ada"))
    assert list(seen) == list(shown)
    for part in ("player", "other_players", "world"):
        there, here = (each[part] for each in (seen, shown))
        if isinstance(there, list):
            there, here = there[0], here[0]
        assert list(there) == list(here)
    (lamp,) = (each for each in seen["world"]["entities"] if each["name"] == "Lamp")
    assert list(lamp) == list(shown["world"]["entities"][0])


def test_script_error_is_reported_as_shown_in_the_guide(tmp_path):
    (shown,) = (block for block in blocks("text") if "Failed to process agent inputs" in block)
    wrong = MAIN.replace("local root = player.Character.", "local root = player.Charakter.")
    plan = Plan().join(0, "Ada").act(1, "Ada", "Switch")
    run = play(tmp_path, wrong, 3, plan)
    written = [line.removeprefix("err ") for line in run.lines]
    assert written == [line.removeprefix("[tick 84] ") for line in shown.splitlines()]


def test_the_defaults_in_the_table_of_world_toml_equal_the_defaults_of_the_engine(tmp_path):
    (tmp_path / "world.toml").write_text('name = "w"')
    (tmp_path / "main.lua").write_text("")
    ours = settings.read_settings(tmp_path)
    shown = dict(re.findall(r"^\| `([a-z_.]+)` \| `?([^ |`]+)`? \|", TEXT, re.MULTILINE))
    assert shown["max_players"] == str(ours.max_players)
    assert shown["afk_timeout"] == f"{ours.afk_timeout_s:g}"
    assert shown["observation.radius"] == f"{ours.observation_radius:g}"
    assert shown["agent_api.allow_reset"] == str(ours.allow_reset).lower()
    assert shown["clawblox.player_object_physics"] == str(ours.player_object_physics).lower()
    assert shown["clawblox.physics.solver_iterations"] == str(ours.solver_iterations)
    assert [shown[f"scripts.{name}"] for name in ("main", "tree", "skill")] == [
        *(ours.main, ours.tree, ours.skill)
    ]


@pytest.mark.thorough
def test_lock_step_world_runs_one_tick_per_input(tmp_path):
    run = tomllib.loads(next(block for block in blocks("toml") if block.startswith("[run]")))["run"]
    for name, text in FILES.items():
        (tmp_path / Path(name).name).write_text(text)
    command = [sys.executable if word == "{python}" else word for word in run["command"]]
    port = free_port()
    with subprocess.Popen([*command, "--port", str(port)], cwd=tmp_path, stdout=-1) as process:
        try:
            wait_until(lambda: b"Spectator" in process.stdout.readline(), what="it serves")
            session = ask(port, "POST", "/join?name=Ada").json()["session"]
            headers = {"X-Session": session, "Content-Type": "application/json"}
            ticks = [
                ask(port, "POST", "/input", headers=headers, body=b'{"type": "Look"}').json()[
                    "tick"
                ]
                for _ in range(3)
            ]
            assert ticks == [1, 2, 3]
            assert ask(port, "GET", "/observe", headers=headers).json()["tick"] == 3
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["steps_per_tick", "memory_mib"])
def test_the_limits_of_scripts_equal_the_limits_on_the_page(name):
    (shown,) = re.findall(rf"`\[clawblox\] {name}` \| ([\d,]+)", TEXT)
    defaults = settings.EngineSettings(directory=ROOT)
    ours = {
        "steps_per_tick": defaults.steps_per_tick,
        "memory_mib": defaults.memory_bytes >> 20,
    }
    assert int(shown.replace(",", "")) == ours[name]
