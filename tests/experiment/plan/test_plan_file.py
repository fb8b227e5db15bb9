"""Plans as TOML: dumping and loading are inverse, and errors name file, line, key and value."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox import Budget
from clawblox.errors import ConfigError
from clawblox.experiment import (
    AgentSpec,
    Checkpoints,
    Condition,
    Limits,
    Plan,
    Price,
    Retry,
    Save,
    Stop,
    WorldSpec,
)
from clawblox.experiment.plan.plan_file import locate_fault

EXAMPLE = """\
    name = "panda-memory"
    generations = 10
    duration = "1h"
    seeds = [1, 2]
    labels = { question = "memory" }
    save = { before = "5m", budget = { output_tokens = 40_000 } }
    checkpoint = { every = false }
    limits = { worlds = 4, per_model = { "claude-fable-5" = 3 } }
    retry = { from = "template" }
    [world]
    dir = "../worlds/panda"
    env = { SCENE = "cubes" }
    [[agents]]
    driver = "claude"
    template = "agent"
    system_prompt = "/prompts/system.md"
    binary = "claude-2"
    [sweep]
    "agents.*.template" = ["agent", "other"]
    [prices]
    "claude-4.5" = { input = 3, output = 15.5 }
    """


def test_loading_a_file_returns_the_plan_that_it_describes(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text(textwrap.dedent(EXAMPLE))
    assert Plan.load(file) == Plan(
        WorldSpec(tmp_path / "../worlds/panda", env={"SCENE": "cubes"}),
        [
            AgentSpec(
                "claude",
                template=tmp_path / "agent",
                system_prompt="/prompts/system.md",
                binary="claude-2",
            )
        ],
        name="panda-memory",
        generations=10,
        seeds=[1, 2],
        labels={"question": "memory"},
        save=Save(before=300, budget=Budget(output_tokens=40_000)),
        checkpoint=Checkpoints(every=None),
        limits=Limits(worlds=4, per_model={"claude-fable-5": 3}),
        retry=Retry(source="template"),
        sweep={"agents.*.template": [str(tmp_path / "agent"), str(tmp_path / "other")]},
        prices={"claude-4.5": Price(input=3.0, output=15.5)},
    )


def test_a_plan_with_relative_paths_can_move_with_its_directory(tmp_path: Path) -> None:
    plan = Plan.loads(textwrap.dedent(EXAMPLE), base=tmp_path)
    moved = Plan.loads(plan.dumps(base=tmp_path), base=tmp_path / "elsewhere")
    assert [agent.template for agent in moved.agents] == [tmp_path / "elsewhere/agent"]
    assert list(moved.sweep["agents.*.template"])[1] == str(tmp_path / "elsewhere/other")
    assert (moved.agents[0].system_prompt, moved.world.dir) == (
        Path("/prompts/system.md"),
        tmp_path / "../worlds/panda",
    )


def test_the_score_is_a_function_in_the_directory_of_the_file(tmp_path: Path) -> None:
    text = """\
    world = "panda"
    agents = [{ driver = "claude" }]
    score = "scoring.gold:points"
    """
    file = tmp_path / "memory" / "exp.toml"
    file.parent.mkdir()
    file.write_text(textwrap.dedent(text))
    plan = Plan.load(file)
    assert plan.score == f"{tmp_path}/memory/scoring.gold:points"
    assert Plan.loads(plan.dumps()) == plan
    assert 'score = "./scoring.gold:points"' in plan.dumps(base=file.parent)
    assert Plan.loads(plan.dumps(base=file.parent), base=file.parent) == plan
    assert f'score = "{plan.score}"' in plan.dumps(base=tmp_path / "experiments" / "memory")
    assert plan.but(score=False).score is None
    assert plan.but(score="scores:points").score == f"{Path.cwd()}/scores:points"
    assert plan.but(score="lib/scores:points").score == f"{Path.cwd()}/lib/scores:points"


def test_all_faults_are_reported_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    faulty = EXAMPLE.replace("generations = 10", "generations = 0").replace("env =", "environ =")
    faulty = faulty.replace("template = ", "templat = ").replace("input = 3, ", "")
    file.write_text(textwrap.dedent(faulty).replace("binary", "\n# the program\nbinary"))
    with pytest.raises(ConfigError) as caught:
        Plan.load(file)
    assert (caught.value.path, caught.value.line) == (file, 12)
    required = "these are required: prices.claude-4.5.input, prices.claude-4.5.output"
    assert str(caught.value).splitlines() == [
        "world.environ: unknown key",
        f"  file: {file}:12",
        "  also: line 15: agents.0.templat: unknown key; did you mean template?",
        f"  also: line 23: prices.claude-4.5.input: missing ({required})",
        "  also: line 2: generations: must be a whole number, 1 or more, not 0",
        "  hint: the keys are dir, record, env, port, port_wait, host, health_timeout, datastore",
    ]


def test_a_missing_key_is_reported_at_its_table(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text("world = 'w'\n\n[[agents]]\nmodel = 'm'\n")
    with pytest.raises(ConfigError, match=r"agents.0.driver: missing") as caught:
        Plan.load(file)
    assert caught.value.line == 3
    with pytest.raises(ConfigError) as caught:
        Plan.loads("")
    assert caught.value.hint == "these are required: world, agents"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "world: missing"),
        ("world = 3", "agents: missing"),
        ("world = 3\nagents = 4", "world: must be a table of its fields (dir, "),
        (
            "world = 'w'\nagents = [3]",
            "agents.0: must be a table of its fields (driver, ",
        ),
        ("world = ", "not TOML: Invalid value"),
        ("world = ''\nagents = [{driver='kimi'}]", "world.dir: must be a path, not ''"),
        ("world = 'w'\nagents = [{driver='kimi'}]\nsweep = 3", "sweep: must be a table of"),
        ("world = 'w'\nagents = [{driver='kimi'}]\nconditions = [3]", "conditions.0: must be"),
    ],
)
def test_documents_other_than_plans_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Plan.loads(text)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope.toml: the file does not exist"):
        Plan.load(tmp_path / "nope.toml")


# -- loads is the inverse of dumps ----------------------------------------------------------------

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
PROMPTS = st.text(CHARACTERS, min_size=1, max_size=40).filter(str.strip)
WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
PATHS = st.lists(WORDS.filter(lambda word: "/" not in word), min_size=1, max_size=3).map(
    lambda parts: os.path.join("/", *parts)
)
SECONDS = st.floats(1e-3, 1e9) | st.integers(1, 10**9)
COUNTS = st.integers(1, 10**6)
MOST_AGENTS = 3
MODEL_LIMITS = st.integers(MOST_AGENTS, 10**6)
"""Limits of a model that all agents of a plan may have."""
BUDGETS = st.builds(
    Budget,
    tokens=st.none() | COUNTS,
    usd=st.none() | st.floats(1e-3, 1e6),
    turns=st.none() | COUNTS,
)
DOLLARS = st.floats(0, 1e3)
PRICES = st.builds(Price, input=DOLLARS, output=DOLLARS, cached=st.none() | DOLLARS)
LABELS = WORDS | st.booleans() | st.integers(0, 9) | st.floats(0, 1)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_ ]{0,9}", fullmatch=True)
SAVES = st.none() | st.builds(Save, prompt=PROMPTS, before=SECONDS, budget=st.none() | BUDGETS)
COMMANDS = (
    st.none()
    | st.lists(PROMPTS, max_size=3)
    | st.dictionaries(WORDS, st.lists(PROMPTS, max_size=2), max_size=2)
)


@st.composite
def agent_lists(draw: st.DrawFn) -> list[AgentSpec]:
    names = draw(st.lists(NAMES, min_size=1, max_size=MOST_AGENTS, unique=True))
    optional = {
        "model": WORDS,
        "template": PATHS,
        "system_prompt": PATHS,
        "binary": PATHS | WORDS.filter(lambda word: "/" not in word),
        "version": WORDS,
    }
    return [
        AgentSpec(
            draw(st.sampled_from(["claude", "command"])),
            name=name,
            prompt=draw(PROMPTS),
            env=draw(st.lists(st.sampled_from(["A", "B_TOKEN"]), unique=True)),
            sandbox=draw(st.sampled_from([True, False, "strict"])),
            budget=draw(st.none() | BUDGETS),
            command=draw(COMMANDS),
            **{key: draw(st.none() | values) for key, values in optional.items()},
        )
        for name in names
    ]


SWEPT: dict[str, st.SearchStrategy[Any]] = {
    "agents.*.model": WORDS,
    "agents.0.prompt": PROMPTS,
    "agents.*.system_prompt": PATHS,
    "agents.0.budget": st.just(False) | BUDGETS,
    "world.env.SCENE": PROMPTS,
    "save": st.just(False) | st.builds(Save, before=SECONDS),
    "duration": SECONDS,
}


@st.composite
def swept_values(draw: st.DrawFn) -> dict[str, Any]:
    return {
        path: draw(SWEPT[path])
        for path in draw(st.lists(st.sampled_from(sorted(SWEPT)), max_size=3, unique=True))
    }


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(0, 2))
    return Plan(
        WorldSpec(draw(PATHS), env=draw(st.dictionaries(st.sampled_from(["A", "Ü.x"]), PROMPTS))),
        draw(agent_lists()),
        name=draw(st.none() | WORDS.filter(lambda word: word[0] not in ".-")),
        duration=draw(SECONDS),
        seeds=draw(st.lists(st.integers(0, 2**63 - 1), max_size=2, unique=True)),
        labels=draw(st.dictionaries(st.sampled_from(["a", "b"]), LABELS)),
        save=draw(SAVES),
        checkpoint={"every": draw(st.none() | SECONDS), "keep": draw(st.none() | COUNTS)},
        stop=Stop(world_time=draw(st.none() | SECONDS)),
        limits={
            "min_free": draw(st.none() | COUNTS),
            "per_model": draw(st.dictionaries(WORDS, MODEL_LIMITS, max_size=2)),
        },
        score=draw(st.none() | PATHS.map("{}/scores:points".format)),
        sweep={path: [value] for path, value in draw(swept_values()).items()},
        conditions=[Condition(f"C{index}_", draw(swept_values())) for index in range(count)],
        prices=draw(st.dictionaries(WORDS, PRICES, max_size=2)),
    )


@given(plan=plans())
@settings(max_examples=20)
def test_loading_is_the_inverse_of_dumping(plan: Plan) -> None:
    loaded = Plan.loads(plan.dumps(), base="/nowhere")
    assert loaded == Plan.loads(plan.dumps(base="/"), base="/") == plan
    assert hash(loaded) == hash(plan)
    assert loaded.chains() == plan.chains()


def test_fault_found_later_has_its_line_in_the_file(tmp_path: Path) -> None:
    text = """name = "exp"
world = "w"
save = { before = 60 }
[[agents]]
driver = "claude"
[[agents]]
driver = "command"
name = "Oni"
command = { start = ["a"] }
[sweep]
"save.before" = [60]
"""
    path = tmp_path / "exp.toml"
    places = {
        "save.before": 3,
        "sweep.save.before": 11,
        "agents.Eko.env": 4,
        "agents.Oni.command.start": 9,
        "agents.1.command": 9,
        "limits.min_free": None,
    }
    for key, line in places.items():
        first, second = ConfigError("is wrong", key="name"), ConfigError("is wrong", key=key)
        for error in (
            locate_fault(second, text, path),
            locate_fault(first.but(others=(second,)), text, path).others[0],
        ):
            assert (error.key, error.line) == (key, line)
            assert error.path == (None if line is None else path)
    elsewhere = ConfigError("is wrong", key="save.before", path=Path("world.toml"))
    assert locate_fault(elsewhere, text, path).path == Path("world.toml")
