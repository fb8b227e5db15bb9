"""Chains: names are short, safe, unique, and stable when a plan is extended."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.errors import ConfigError
from clawblox.experiment import AgentSpec, Condition, Plan
from clawblox.experiment.plan import naming
from clawblox.experiment.plan.naming import choose_words, copy_name, label_keys

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
AGENTS = [AgentSpec("claude", name="Eko"), AgentSpec("codex", name="Moa")]


def plan(**fields: Any) -> Plan:
    return Plan("worlds/panda", AGENTS, **fields)


def names(**fields: Any) -> list[str]:
    return [chain.name for chain in plan(**fields).chains()]


MODELS = ["claude-fable-5", "claude-opus-4-8"]


def test_chains_are_named_after_swept_values_and_repeats() -> None:
    assert names(sweep={"agents.*.model": MODELS}, repeats=2) == [
        "fable-r1",
        "opus-r1",
        "fable-r2",
        "opus-r2",
    ]


def test_chains_of_seeds_are_named_after_them() -> None:
    (_, chain) = plan(seeds=[7, 3]).chains()
    assert (chain.name, chain.seed, chain.repeat, chain.index) == ("s3", 3, 2, 1)


@pytest.mark.parametrize(
    ("path", "values", "words"),
    [
        ("agents.*.model", ["gpt-5", "gpt-5-mini", "gpt-5.1"], ["gpt", "mini", "gpt_5.1"]),
        ("agents.*.model", ["a/mini", "b/mini", "b_mini"], ["mini", "b_mini", "b_mini.2"]),
        ("agents.*.model", [None], ["no_model"]),
        ("world.record", [True, False], ["record", "no_record"]),
        ("duration", [1800.0, 0.5], ["duration1800", "duration0.5"]),
        ("world.env.SCENE", ["5", "cubes", "日本"], ["SCENE5", "cubes", "SCENE"]),
        ("agents.*.budget", [{"turns": 3}, {"usd": 2.5}], ["turns3", "usd2.5"]),
    ],
)
def test_short_words_depend_only_on_earlier_values(
    path: str, values: list[Any], words: list[str]
) -> None:
    assert choose_words(path, values) == words


def test_chains_of_a_grid_have_names_labels_and_conditions() -> None:
    sweep = {"agents.Eko.model": MODELS, "agents.Moa.model": ["gpt-5"], "save": [False]}
    chains = plan(sweep=sweep).chains()
    assert [chain.name for chain in chains] == ["fable-gpt-no_save-r1", "opus-gpt-no_save-r1"]
    assert chains[1].labels == {"Eko_model": MODELS[1], "Moa_model": "gpt-5", "save": False}
    assert chains[1].condition == {
        "agents.Eko.model": MODELS[1],
        "agents.Moa.model": "gpt-5",
        "save": False,
    }
    varied = chains[1].plan
    assert [agent.model for agent in varied.agents] == [MODELS[1], "gpt-5"]
    assert (varied.save, varied.sweep, varied.conditions) == (None, {}, ())


def test_conditions_come_after_the_grid_or_replace_a_missing_grid() -> None:
    scene = Condition("cubes", {"world.env.SCENE": "cubes", "agents.0.budget.turns": 9})
    assert names(conditions=[scene]) == ["cubes-r1"]
    (_, chain) = plan(sweep={"duration": ["30m"]}, conditions=[scene]).chains()
    assert (chain.name, chain.labels) == ("cubes-r1", {"SCENE": "cubes", "turns": 9})
    assert chain.plan.world.env == {"SCENE": "cubes"}
    budgets = [agent.budget and agent.budget.turns for agent in chain.plan.agents]
    assert budgets == [9, None]


def test_copying_a_swept_file_does_not_rename_its_chain() -> None:
    copies = [f"/inputs/{copy_name('0123456789abcdef' * 4, name)}" for name in ("calm", "wild2")]
    originals = ["/prompts/calm", "/prompts/wild2"]
    sweeps = [{"agents.*.system_prompt": paths} for paths in (originals, copies)]
    assert names(sweep=sweeps[0]) == names(sweep=sweeps[1]) == ["calm-r1", "wild2-r1"]
    labels = [[chain.labels for chain in plan(sweep=sweep).chains()] for sweep in sweeps]
    assert labels[0] == labels[1]


def test_labels_include_earlier_path_steps_only_if_the_last_are_equal() -> None:
    paths = ["agents.Eko.model", "agents.Moa.model", "save.before"]
    assert list(label_keys(paths).values()) == ["Eko_model", "Moa_model", "before"]


def test_label_of_a_swept_prompt_equals_the_label_of_branches_only_in_older_experiments() -> None:
    paths = ["agents.*.prompt", "save.prompt", "agents.Eko.system_prompt"]
    assert list(label_keys(paths).values()) == ["agents_prompt", "save_prompt", "system_prompt"]
    assert label_keys(paths[:1], naming=1) == {"agents.*.prompt": "prompt"}
    assert list(label_keys(["world.env.prompt"]).values()) == ["env_prompt"]


def test_a_long_name_is_cut_and_ends_in_a_digest_of_its_words() -> None:
    scenes = ["a" * 25, "b" * 25]
    sweep = {"world.env.A": scenes, "world.env.B": scenes, "duration": [1e9]}
    long = names(sweep=sweep, seeds=[2**64 - 1])
    assert [name.partition("_")[0] for name in long] == [
        "a" * 13,
        "a" * 13,
        "b" * 13,
        "b" * 13,
    ]
    assert len(set(long)) == 4
    assert all(SAFE.fullmatch(name) for name in long)
    old = names(sweep=sweep, seeds=[2**64 - 1], naming=1)
    assert [name.partition("_")[0] for name in old] == [
        "a" * 20 + "-" + "a" * 8,
        "a" * 20 + "-" + "b" * 8,
        "b" * 20 + "-" + "a" * 8,
        "b" * 20 + "-" + "b" * 8,
    ]


PUSH = "Get behind a marble before you push it."
PUSHES = [PUSH, PUSH.replace("before", "when"), f"{PUSH}\nThen push it.", "Push it."]


def test_long_values_get_short_unique_names_and_readable_labels() -> None:
    chains = plan(sweep={"agents.Eko.prompt": PUSHES}).chains()
    assert [chain.name for chain in chains] == [
        "Get_behind_a_6eec18-r1",
        "Get_behind_a_9c8ffa-r1",
        "Get_behind_a_a808fe-r1",
        "Push_it-r1",
    ]
    labels = [str(chain.labels["Eko_prompt"]) for chain in chains]
    assert labels == [
        *PUSHES[:2],
        "Get behind a marble before you push it. Then push… a808fe",
        "Push it.",
    ]
    assert chains[2].condition == {"agents.Eko.prompt": PUSHES[2]}


def test_long_texts_without_characters_for_names_are_distinguished_by_a_digest() -> None:
    first, second = "日本語" * 20, "中国話です " * 3
    words = [chain.name for chain in plan(sweep={"save.prompt": [first, second]}).chains()]
    again = [chain.name for chain in plan(sweep={"save.prompt": [second, first]}).chains()]
    assert words[::2][0].startswith("prompt_")
    assert set(words) == set(again)
    assert len(set(words)) == len(words)


def test_long_texts_with_the_same_start_differ_in_name_and_label() -> None:
    texts = ["Play the game of marbles. " * 20 + str(number) for number in range(100)]
    chains = plan(sweep={"agents.Eko.prompt": texts}).chains()
    assert len({chain.labels["Eko_prompt"] for chain in chains}) == len(texts)
    assert all(re.fullmatch(r"Play_the_game_[0-9a-f]{6}(\.2)?-r1", c.name) for c in chains)
    old = plan(sweep={"agents.Eko.prompt": texts}, naming=1).chains()
    assert [chain.name for chain in old[:3]] == [
        "marbles-r1",
        "Play_the_game_of_mar-r1",
        old[2].name,
    ]
    assert old[2].name == "Play_the_game_of_mar.2-r1"


def test_long_tables_differ_by_a_digest_and_long_paths_by_their_last_step() -> None:
    budgets = [{"turns": 3, "output_tokens": 100_000, "minutes": n} for n in (5, 6)]
    words = choose_words("agents.*.budget", budgets)
    assert all(re.fullmatch(r"turns3_output_[0-9a-f]{6}|turns3[0-9a-z_]+", word) for word in words)
    assert len(set(words)) == 2
    commands = [[f"/home/{who}/bin/agent", "--mode", "careful", "--twice"] for who in ("a", "b")]
    (first, second) = (choose_words("agents.*.command", [command]) for command in commands)
    assert first == second
    assert choose_words("agents.*.command", commands) == [*first, f"{first[0]}.2"]


def test_invisible_characters_of_a_text_are_left_out_of_its_label() -> None:
    for text, start in (
        ("Zoë \U0001f469\u200d\U0001f52c", "Zoë \U0001f469\U0001f52c… "),
        ("a\x1b[2J\u202eb", "a[2Jb… "),
    ):
        assert str(naming.label_value("agents.*.prompt", text, 2)).startswith(start)


def test_files_of_the_same_name_have_different_labels() -> None:
    paths = ["/calm/system.md", "/wild/system.md"]
    chains = plan(sweep={"agents.*.system_prompt": paths}).chains()
    assert [chain.labels["system_prompt"] for chain in chains] == ["system.md", "system.md.2"]


def test_combinations_whose_digests_are_the_same_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(naming, "_digest", lambda _text, _chars=6: "0" * 6)
    scenes = ["a" * 25, "a" * 26]
    with pytest.raises(ConfigError, match="two combinations have the same name"):
        plan(sweep={"world.env.A": ["c" * 25], "world.env.B": scenes})


TEXTS = st.text(
    st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30
) | st.sampled_from(["claude-fable-5", "fable", "fable.2", "x/fable", "r1", "a-r1"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "agents.*.model": TEXTS,
    "agents.Moa.prompt": TEXTS,
    "world.env.SCENE": TEXTS,
    "duration": st.integers(1, 10**6) | st.floats(1e-3, 1e6),
    "save.before": st.integers(1, 600),
    "world.record": st.booleans(),
    "agents.0.budget": st.builds(lambda turns: {"turns": turns}, st.integers(1, 5)),
}


def lists(path: str) -> st.SearchStrategy[list[Any]]:
    """Return lists of values for a path that differ even as text."""
    return st.lists(VALUES[path], min_size=2, max_size=6, unique_by=lambda value: str(value))


@st.composite
def sweeps(draw: st.DrawFn) -> dict[str, list[Any]]:
    paths = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=2, unique=True))
    return {path: draw(lists(path)) for path in paths}


CONDITION_NAMES = st.lists(
    st.from_regex(r"[A-Z][A-Za-z0-9._-]{0,36}", fullmatch=True), max_size=3, unique=True
)


def different(sweep: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Drop values of a sweep that are equal to an earlier value."""
    return {path: [v for i, v in enumerate(vs) if v not in vs[:i]] for path, vs in sweep.items()}


@given(data=st.data(), sweep=sweeps(), conditions=CONDITION_NAMES, count=st.integers(1, 4))
def test_names_are_safe_and_unique_and_extending_a_plan_renames_no_chain(
    data: st.DataObject, sweep: dict[str, list[Any]], conditions: list[str], count: int
) -> None:
    sweep = different(sweep)
    later = {"sweep": sweep, "conditions": [Condition(f"{name}_") for name in conditions]}
    shorter = {
        path: values[: data.draw(st.integers(1, len(values)))] for path, values in sweep.items()
    }
    kept = data.draw(st.integers(0 if sweep else min(1, len(conditions)), len(conditions)))
    earlier = {"sweep": shorter, "conditions": later["conditions"][:kept]}
    is_seeded = data.draw(st.booleans())
    rules = data.draw(st.sampled_from(naming.NAMINGS))
    seeds = data.draw(
        st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count, unique=True)
    )

    def chains(size: int, fields: dict[str, Any]) -> dict[str, Any]:
        repeats = {"seeds": seeds[:size]} if is_seeded else {"repeats": size}
        listed = plan(**fields, **repeats, naming=rules).chains()
        assert [chain.index for chain in listed] == list(range(len(listed)))
        by_name = {chain.name: (chain.condition, chain.seed, chain.plan.agents) for chain in listed}
        assert len(by_name) == len(listed)
        assert all(SAFE.fullmatch(name) for name in by_name)
        return by_name

    before = chains(data.draw(st.integers(1, count)), earlier)
    after = chains(count, later)
    assert {name: after.get(name) for name in before} == before
