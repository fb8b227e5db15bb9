"""Errors for the author of a plan, in TOML terms and with a correction."""

from __future__ import annotations

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment.plan import AgentSpec, Plan

TOP = """\
world = {{ dir = "w"{world} }}
{top}
[[agents]]
driver = "command"
command = {{ start = ["a", "{{prompt}}"] }}
{agent}
"""


def refuse(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Plan.loads(text)
    return caught.value


def refuse_part(*, top: str = "", agent: str = "", world: str = "") -> str:
    return str(refuse(TOP.format(top=top, agent=agent, world=world)))


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ({"top": "repeats = true"}, "repeats: must be a whole number, 1 to 10000, not true"),
        ({"top": "duration = []"}, "or a duration such as '30m' or '1.5h', not []"),
        ({"top": "labels = []"}, "labels: must be a table of at most 16 names to values, not []"),
        ({"top": "seeds = { a = 1 }"}, "seeds: must be a list of seeds, not { a = 1 }"),
        ({"top": "sweep = { repeats = [] }"}, "must be a list of at least one value, not []"),
        ({"top": "prune = 'yes'"}, "prune: must be true or false, not 'yes'"),
        (
            {"agent": "sandbox = 'yes'"},
            "agents.0.sandbox: must be true, false or strict, not 'yes'",
        ),
        ({"world": ", record = 1"}, "world.record: must be true or false, not 1"),
        ({"top": "limits = { dollars = 0 }"}, "limits.dollars: must be a number above 0, not 0"),
        ({"top": "limits = 3"}, "limits: must be a table of its fields (worlds, agents, dollars"),
        ({"agent": "prompt = { a = true }"}, "agents.0.prompt: must be text, not { a = true }"),
        ({"top": "sweep = { 'inherit.world' = [true, true] }"}, "twice\n  value: true"),
    ],
)
def test_errors_show_values_and_types_as_in_toml(part: dict[str, str], line: str) -> None:
    assert line in refuse_part(**part)


@pytest.mark.parametrize(
    ("part", "hint"),
    [
        ({"top": "checkpoint = { every = 0 }"}, "false turns off periodic checkpoints"),
        ({"top": "checkpoint = { keep = 0 }"}, "false keeps all"),
        ({"top": "limits = { min_free = 0 }"}, "false sets no limit"),
        ({"top": "limits = { wall = 0 }"}, "leave it out for no limit"),
        ({"top": "stop = { world_time = 0 }"}, "leave it out for no limit"),
        ({"agent": "budget = { turns = 0 }"}, "leave it out for no limit"),
        ({"top": "save = true"}, "leave it out for the default message; false sends none"),
        ({"agent": "env = ['STEPS=6']"}, 'write ["STEPS"], and export STEPS=… before each start'),
        ({"agent": "env = { STEPS = '6' }"}, 'write ["STEPS"]; the values come from the'),
        ({"top": "score = 'scores.py:gold'"}, "write scores:gold"),
        ({"top": "score = 'lib/scores.py::gold'"}, "write lib/scores:gold"),
        ({"top": "score = 'scores.gold'"}, "write scores:gold"),
        ({"top": "score = 'scores:gold()'"}, "write scores:gold"),
        ({"top": "score = 'scores.py'"}, "write scores:FUNCTION"),
        ({"top": "[save]\nprompt = 'x'\ngenerations = 3"}, "keys below [save] belong to it"),
        ({"agent": "generations = 3"}, "keys below [[agents]] belong to it: write those of the"),
        ({"top": "[[limits]]\nworlds = 3"}, "write [limits] in place of [[limits]]"),
        ({"top": "[conditions]\nname = 'a'"}, "write [[conditions]] in place of [conditions]"),
    ],
)
def test_hint_shows_the_correct_text(part: dict[str, str], hint: str) -> None:
    assert f"hint: {hint}" in refuse_part(**part)


def test_variables_of_a_world_in_a_list_are_shown_as_a_table_without_their_values() -> None:
    error = refuse_part(world=', env = ["TOKEN=s3cret"]')
    assert 'world.env: must be a table of names to values, such as { TOKEN = "…" }' in error
    assert "s3cret" not in error


@pytest.mark.parametrize(
    "head",
    [
        "agents = 'claude'\nworld = 'w'",
        "agents = ['claude']\nworld = 'w'",
        "agents = [{ driver = 'clod' }]\nworld = 'w'",
        "agents = [{ name = 'Eko' }]\nworld = 'w'",
        "agents = [{ driver = 'claude' }]",
        "agents = [{ driver = 'claude' }]\nworld = ''",
        "agents = [{ driver = 'claude' }]\nworld = 5",
        "agents = [{ driver = 'claude' }]\nworld = { dir = 5 }",
        "worlds = 'w'\nagent = []",
        "agents = [{ driver = 'claude' }]\nworld = 'w'\nconditions = [{ set = {} }]",
    ],
)
def test_fault_in_a_required_value_hides_no_other_fault(head: str) -> None:
    error = refuse(f"{head}\ngenerations = '3'\nduration = true\nretry = {{ attempts = 'x' }}")
    keys = {fault.key for fault in (error, *error.others)}
    assert {"generations", "duration", "retry.attempts"} < keys


def test_paths_of_invalid_agents_are_not_checked() -> None:
    error = refuse("agents = 'x'\nworld = 'w'\nsweep = { 'agents.Bo.model' = ['a', 'b'] }")
    assert (error.key, error.others) == ("agents", ())


@pytest.mark.parametrize("top", ["on_done = { argv = ['x'] }", "seeds = { a = 1 }"])
def test_hint_about_brackets_is_only_for_lists_of_tables(top: str) -> None:
    assert "in place of" not in refuse_part(top=top)


def test_program_given_as_driver_is_refused_with_its_correct_key() -> None:
    error = refuse("world = 'w'\n[[agents]]\ndriver = './agent.py'")
    assert error.hint is not None
    assert 'driver = "command"' in error.hint


def test_table_in_place_of_a_list_of_agents_gets_a_hint_about_brackets() -> None:
    text = "world = 'w'\n[agents]\ndriver = 'claude'\n"
    assert refuse(text).hint == "write [[agents]] in place of [agents]"
    named = refuse(text.replace("[agents]", "[agents.Eko]"))
    assert named.hint == "write [[agents]], with name = 'Eko' below it, in place of [agents.Eko]"
    assert named.line == 2


def test_missing_key_gets_a_hint_if_it_is_in_the_last_table() -> None:
    error = refuse("[[agents]]\ndriver = 'claude'\nworld = 'w'\n")
    assert error.message == "missing"
    assert error.hint is not None
    assert error.hint.startswith("keys below [[agents]] belong to it")


@pytest.mark.parametrize("value", ["True", "(1, 2)", "kimi"])
def test_python_values_in_toml_get_a_hint_with_the_toml_form(value: str) -> None:
    error = refuse(f"world = 'w'\nseeds = {value}\n")
    assert error.message == "not TOML: Invalid value"
    assert error.line == 2
    assert error.hint is not None
    assert "true and false in lower case" in error.hint


def test_a_hint_of_several_faults_is_shown_once() -> None:
    error = refuse_part(agent="generations = 3\nrepeats = 2\nseeds = [1]")
    assert error.count("unknown key") == 3
    assert error.count("belong to it") == 1


def test_a_plan_in_python_is_refused_in_the_words_of_python() -> None:
    agent = AgentSpec("claude")
    with pytest.raises(ConfigError, match="not True"):
        Plan("w", [agent], repeats=True)
    with pytest.raises(ConfigError, match="True or False, not 1"):
        Plan({"dir": "w", "record": 1}, [agent])
    with pytest.raises(ConfigError) as caught:
        Plan({"dir": "w", "env": ["STEPS=6"]}, [agent])
    assert 'a mapping of names to values, such as {"STEPS": "…"}' in str(caught.value)
    with pytest.raises(ConfigError, match="False turns off periodic checkpoints"):
        Plan("w", [agent], checkpoint={"every": 0})
