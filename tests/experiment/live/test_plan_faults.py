"""Faults of a plan that only a start would find are found before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError
from clawblox.experiment.live import plan_faults
from clawblox.experiment.live.plan_faults import find_world_notes
from clawblox.experiment.live.survey import survey_plan
from clawblox.experiment.plan import AgentSpec, Plan, WorldSpec
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

TEMPLATE_ONLY = {"retry": {"from": "template"}}


def make_agent(command: object, **fields: Any) -> AgentSpec:
    given: Any = command
    return AgentSpec("command", name="Oni", command=given, **fields)


def command_plan(root: Path, agent: AgentSpec, **fields: Any) -> Plan:
    world = root / "counter"
    settings = {**TEMPLATE_ONLY, "save": None, **fields}
    return Plan(world if world.exists() else make_world(root), [agent], name="exp", **settings)


async def find_faults(plan: Plan, root: Path, **options: Any) -> str:
    """Return the error of a survey; empty if there is none."""
    try:
        await survey_plan(plan, root / "exp", {}, **options)
    except ConfigError as error:
        return str(error)
    return ""


def script(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


# -- the table of a command -----------------------------------------------------------------------

QUIET = {"auto_continue": False}
RESUME = {"resume": ["true", "{session}", "{prompt}"], "session": r"id (\S+)"}


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (["true", "{prompt}"], "agents.Oni.command: must be a table such as"),
        ({"start": "true {prompt}"}, "agents.Oni.command.start: must be the words of a command"),
        ({"start": ["true"]}, "agents.Oni.command.start: must have {prompt}"),
        ({"start": ["true", "{promt}", "{prompt}"]}, "not {promt}"),
        ({"start": ["true", "{prompt}"], "session": "("}, "command.session: must be a regular"),
        ({"start": ["true", "{prompt}"], "session": "id"}, "command.session: must be a regular"),
        ({"start": ["true", "{prompt}"], "session": "(a)(b)"}, "expression with one group"),
        ({"start": ["true", "{prompt}"], "prompt": "file"}, "command.prompt: must be argument or"),
        ({"start": ["true", "{prompt}"], "resum": []}, "command.resum: must be one of"),
        ({"start": ["true", "{prompt}"], **RESUME, "session": None}, "must come with"),
        ({"start": ["no-such-program", "{prompt}"]}, "'no-such-program' is not on PATH"),
    ],
)
async def test_a_wrong_command_is_found_before_the_start(
    tmp_path: Path, command: Any, fault: str
) -> None:
    plan = command_plan(tmp_path, make_agent(command, **QUIET))
    assert fault in await find_faults(plan, tmp_path)


async def test_a_command_needs_a_resume_entry_if_its_agent_must_continue(tmp_path: Path) -> None:
    start = {"start": ["true", "{prompt}"]}
    key = "agents.Oni.command.resume: must be given, with session"
    quiet, loud = make_agent(start, **QUIET), make_agent(start)
    saves: Any = {"save": {"prompt": "Save."}}
    assert f"{key}: auto_continue" in await find_faults(command_plan(tmp_path, loud), tmp_path)
    assert f"{key}: the save" in await find_faults(command_plan(tmp_path, quiet, **saves), tmp_path)
    swept = command_plan(tmp_path, quiet, sweep={"save": [False, saves["save"]]})
    assert f"{key}: the save" in await find_faults(swept, tmp_path)
    able = make_agent({**start, **RESUME})
    for plan in (command_plan(tmp_path, quiet), command_plan(tmp_path, able, **saves)):
        assert await find_faults(plan, tmp_path) == ""


async def test_variables_and_prompts_that_would_prevent_a_start_are_found(tmp_path: Path) -> None:
    agent = make_agent({"start": ["true", "{prompt}"]}, env=["HOME"], **QUIET)
    plan = command_plan(tmp_path, agent)
    with pytest.raises(ConfigError, match=r"agents\.Oni\.env\.HOME: must be left out"):
        await survey_plan(plan, tmp_path / "exp", {"HOME": "/root"})
    agent = make_agent({"start": ["true", "{prompt}"]}, prompt="x" * 200_000, **QUIET)
    faults = await find_faults(command_plan(tmp_path, agent), tmp_path)
    assert "agents.Oni.prompt: must be at most" in faults


# -- programs with a slash ------------------------------------------------------------------------


async def test_a_program_is_searched_for_in_the_plan_directory_or_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world(tmp_path)
    template, elsewhere = tmp_path / "template", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    text = """
world = "counter"
save = false
retry = { from = "template" }
[[agents]]
driver = "command"
template = "template"
auto_continue = false
command = { start = ["./bin/agent", "{prompt}"] }
"""
    script(template / "other")
    missing = await run_blocking(lambda: Plan.loads(text, base=tmp_path))
    assert "./bin/agent is not an executable file in its workspace" in await find_faults(
        missing, tmp_path
    )
    script(template / "bin/agent")
    plan = await run_blocking(lambda: Plan.loads(text, base=tmp_path))
    assert programs(plan) == ["{workspace}/bin/agent"]
    assert await find_faults(plan, tmp_path) == ""
    script(elsewhere / "bin/agent")  # the current directory is not the directory of the plan
    assert await run_blocking(lambda: Plan.loads(text, base=tmp_path)) == plan
    own = script(tmp_path / "bin/agent")
    placed = await run_blocking(lambda: Plan.loads(text, base=tmp_path))
    assert programs(placed) == [str(own)]
    assert await find_faults(placed, tmp_path) == ""
    for given in (plan, placed):
        assert Plan.loads(given.dumps(base=elsewhere), base=elsewhere) == given


def programs(plan: Plan) -> list[str]:
    command: Any = plan.agents[0].command
    return [command["start"][0]]


# -- worlds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "spec", "fault"),
    [
        ("", {"datastore": "postgres"}, "world.datastore: only for worlds of the built-in engine"),
        (
            '[sandbox]\ndeps_root = "nowhere"',
            {},
            "sandbox.deps_root: must be an existing",
        ),
        ('[agent]\nserver_source = "none.py"', {}, "agent.server_source: must be a readable file"),
        (
            '[[run.sidecar]]\nname = "x"\ncommand = ["bin/none"]',
            {},
            "run.sidecar.x: must begin",
        ),
    ],
)
async def test_unstartable_world_is_reported(
    tmp_path: Path, toml: str, spec: dict[str, Any], fault: str
) -> None:
    make_world(tmp_path, toml_extra=toml)
    agent = make_agent({"start": ["true", "{prompt}"]}, sandbox=True, **QUIET)
    plan = command_plan(tmp_path, agent).but(world=WorldSpec(tmp_path / "counter", **spec))
    assert fault in await find_faults(plan, tmp_path)


async def test_missing_program_of_a_world_is_reported(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    agent = make_agent({"start": ["true", "{prompt}"]}, **QUIET)
    lines = (world / "world.toml").read_text().splitlines()
    for program, is_found in [("./serve", False), ("no-such-program", False), ("sh", True)]:
        command = f"command = {json.dumps([program])}"
        text = [command if line.startswith("command") else line for line in lines]
        (world / "world.toml").write_text("\n".join(text))
        faults = await find_faults(command_plan(tmp_path, agent), tmp_path)
        assert ("run.command: must begin with a program" in faults) is not is_found
    (world / "system_prompt.md").write_bytes(b"\xff\xfe")
    faults = await find_faults(command_plan(tmp_path, agent), tmp_path)
    assert "system_prompt: cannot be read" in faults


async def test_concurrent_worlds_have_different_ports(tmp_path: Path) -> None:
    world = WorldSpec(make_world(tmp_path), port=9000)
    agent = make_agent({"start": ["true", "{prompt}"]}, **QUIET)
    plan = command_plan(tmp_path, agent, repeats=2).but(world=world)
    assert "world.port: must be left out" in await find_faults(plan, tmp_path)
    assert await find_faults(plan.but(limits={"worlds": 1}), tmp_path) == ""
    assert await find_faults(plan.but(repeats=1), tmp_path) == ""


async def test_recordings_need_zstandard_where_clawblox_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path)
    text = (world / "world.toml").read_text().replace("[run]", '[run]\nrecorder = "clawblox"')
    (world / "world.toml").write_text(text)
    agent = make_agent({"start": ["true", "{prompt}"]}, **QUIET)
    assert await find_faults(command_plan(tmp_path, agent), tmp_path) == ""
    monkeypatch.setattr("clawblox.zstd.find_zstandard", lambda: None)
    faults = await find_faults(command_plan(tmp_path, agent), tmp_path)
    assert "world.record: recordings need the package zstandard" in faults


@pytest.mark.parametrize(
    ("text", "toml", "is_noted"),
    [
        ("print('hello')", "", True),
        ("import os; os.environ['WORLD_RECORD']", "", False),
        ("from clawblox.server import serve", "", False),
        ("print('hello')", 'recorder = "clawblox"', False),
        ("print('hello')", 'recorder = "world"', False),
    ],
)
def test_a_world_without_a_visible_recorder_is_noted(
    tmp_path: Path, text: str, toml: str, *, is_noted: bool
) -> None:
    (tmp_path / "serve.py").write_text(text)
    command = 'command = ["{python}", "serve.py"]'
    (tmp_path / "world.toml").write_text(f'name = "w"\n[run]\n{command}\n{toml}\n')
    notes = list(find_world_notes(WorldSpec(tmp_path)))
    assert bool(notes) is is_noted
    assert all("recorder" in note for note in notes)
    assert list(find_world_notes(WorldSpec(tmp_path, record=False))) == []


# -- limits ---------------------------------------------------------------------------------------


async def test_a_full_disk_is_a_fault_only_in_a_new_experiment(tmp_path: Path) -> None:
    agent = make_agent({"start": ["true", "{prompt}"]}, **QUIET)
    plan = command_plan(tmp_path, agent, limits={"min_free": 10**18})
    assert (await find_faults(plan, tmp_path)).startswith("limits.min_free: must be at most ")
    for stage in ("recorded", "worked"):
        assert await find_faults(plan, tmp_path, stage=stage) == ""


async def test_dollar_limit_below_the_budgets_of_a_world_is_a_fault(tmp_path: Path) -> None:
    agent = make_agent({"start": ["true", "{prompt}"]}, model="m", budget={"usd": 3}, **QUIET)
    prices = {"m": {"input": 1, "output": 2}}
    for dollars, is_fault in [(3, True), (3.5, False)]:
        plan = command_plan(tmp_path, agent, limits={"dollars": dollars}, prices=prices)
        faults = await find_faults(plan, tmp_path)
        assert ("limits.dollars: must be more than $3" in faults) is is_fault


async def test_the_time_for_saving_is_a_fault_of_a_new_plan_only(tmp_path: Path) -> None:
    start = {"start": ["true", "{prompt}"], **RESUME}
    plan = command_plan(tmp_path, make_agent(start), duration=60, save={"before": 60})
    assert "save.before: must be less" in await find_faults(plan, tmp_path)
    for stage in ("recorded", "worked"):
        assert await find_faults(plan, tmp_path, stage=stage) == ""


async def test_a_session_in_tmux_needs_tmux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent({"start": ["true", "{prompt}"]}, **QUIET)
    plan = command_plan(tmp_path, agent, tmux="w")
    which = plan_faults.shutil.which
    monkeypatch.setattr(
        "shutil.which", lambda name, **more: None if name == "tmux" else which(name, **more)
    )
    assert "tmux: must be left out" in await find_faults(plan, tmp_path)
