"""Groups of rows: their estimates, and branches compared with the controls of their checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment.tables.results import Results, join_results, make_results
from tests.experiment.journals import Journal, make_plan, used

HINT = "Get behind it."


class Forks:
    """A journal of chains with a checkpoint in generation 1, and of forks of that checkpoint."""

    def __init__(self, *chains: str, **fields: Any) -> None:
        self.journal = Journal()
        self.plan = make_plan(generations=1, **fields)
        self._sources: dict[str, Any] = {}
        self._count = 0
        for chain in chains:
            attempt = self.journal.open(chain, 1).work()
            self._sources[chain] = attempt.checkpoint("boundary")
            attempt.write("scored", {"scores": {"points": 1000.0}}).commit([used(1)])

    def fork(self, chain: str, branches: Mapping[str | None, Sequence[float | None]]) -> None:
        """Add branches with the given points by first message; None marks an unfinished branch."""
        rounds = max(map(len, branches.values()))
        self._count += 1
        numbered = [
            (prompt, values[place])
            for place in range(rounds)
            for prompt, values in branches.items()
            if place < len(values)
        ]
        for number, (prompt, points) in enumerate(numbered, 1):
            name = f"{chain}-f{self._count}-{number}"
            label = "as-before" if prompt is None else prompt.lower()
            facts = {"group": self._count, "number": number, "prompt": prompt, "label": label}
            source = self._sources[chain]
            self.journal.write("chain.forked", {"source": source, **facts}, chain=name)
            attempt = self.journal.open(name, 1, origin=source).work()
            if points is not None:
                attempt.write("scored", {"scores": {"points": points}}).commit([used(1)])

    @property
    def results(self) -> Results:
        return make_results(self.journal.plans(self.plan))


def test_branches_of_one_checkpoint_are_compared_one_by_one() -> None:
    forks = Forks("r1")
    forks.fork("r1", {None: [1.0, 2.0, 3.0], HINT: [3.0, 3.0, 7.0]})
    (difference,) = forks.results.differences("points")
    assert (difference.by, difference.column) == ({"prompt": "get behind it."}, "points")
    assert (difference.unit, difference.control) == ("branch", 2.0)
    assert (difference.estimate.n, difference.estimate.median) == (3, 2.0)
    assert difference.estimate.mean == pytest.approx(7 / 3)
    assert difference.interval == pytest.approx((-1.4612, 6.1279), abs=1e-3)


def test_swept_prompts_are_not_grouped_with_the_messages_of_branches() -> None:
    sweep = {"agents.*.prompt": ["go", "wait"]}
    forks = Forks("go-r1", "wait-r1", repeats=1, sweep=sweep)
    forks.fork("go-r1", {None: [1.0], "wait": [5.0]})
    means = {
        key: {
            group.by[key]: group.estimate.mean for group in forks.results.summary("points", by=key)
        }
        for key in ("prompt", "agents_prompt")
    }
    assert means["prompt"] == {None: 1000.0, "as-before": 1.0, "wait": 5.0}
    assert means["agents_prompt"] == {"go": pytest.approx(1006 / 3), "wait": 1000.0}
    (difference,) = forks.results.differences("points", by=("prompt", "agents_prompt"))
    assert difference.by == {"prompt": "wait", "agents_prompt": "go"}


def test_each_checkpoint_is_a_pair_of_the_means_of_its_branches() -> None:
    forks = Forks("r1", "r2")
    forks.fork("r1", {None: [1.0, 3.0], HINT: [4.0, 6.0]})
    forks.fork("r2", {None: [11.0], HINT: [15.0, 19.0]})
    (difference,) = forks.results.differences("points")
    assert (difference.unit, difference.estimate.n) == ("checkpoint", 2)
    assert (difference.control, difference.estimate.mean) == (6.5, 4.5)
    assert difference.interval == pytest.approx((4.5 - 12.7062 * 1.5, 4.5 + 12.7062 * 1.5))


def test_branch_without_a_control_of_its_checkpoint_is_not_paired() -> None:
    forks = Forks("r1", "r2")
    forks.fork("r1", {None: [1.0], HINT: [4.0]})
    forks.fork("r2", {HINT: [100.0]})
    (difference,) = forks.results.differences("points")
    assert (difference.estimate.n, difference.estimate.mean) == (1, 3.0)
    assert (difference.estimate.standard_error, difference.interval) == (None, None)


def test_unfinished_branches_are_not_paired() -> None:
    forks = Forks("r1")
    forks.fork("r1", {None: [None, 2.0], HINT: [5.0, None]})
    (difference,) = forks.results.differences("points")
    assert (difference.estimate.n, difference.estimate.mean) == (1, 3.0)
    forks = Forks("r1")
    forks.fork("r1", {None: [None], HINT: [5.0]})
    assert forks.results.differences("points") == []


def test_controls_may_come_from_a_later_fork_of_the_checkpoint() -> None:
    forks = Forks("r1")
    forks.fork("r1", {HINT: [5.0, 6.0]})
    forks.fork("r1", {None: [1.0, 1.0]})
    (difference,) = forks.results.differences("points")
    assert (difference.estimate.n, difference.estimate.mean) == (2, 4.5)


def test_each_message_of_a_group_is_compared_with_the_controls_of_the_group() -> None:
    sweep = {"agents.0.model": ["claude-fable-5", "claude-opus-4-8"]}
    forks = Forks("fable-r1", "opus-r1", sweep=sweep)
    for chain, control in (("fable-r1", 0.0), ("opus-r1", 10.0)):
        forks.fork(chain, {None: [control], "One": [control + 1], "Two": [control + 2]})
    found = forks.results.differences("points", by=["model", "prompt"])
    assert [(*one.by.values(), one.estimate.mean) for one in found] == [
        ("claude-fable-5", "one", 1.0),
        ("claude-fable-5", "two", 2.0),
        ("claude-opus-4-8", "one", 1.0),
        ("claude-opus-4-8", "two", 2.0),
    ]
    pooled = forks.results.differences("points")
    assert [(one.by["prompt"], one.estimate.n) for one in pooled] == [("one", 2), ("two", 2)]
    assert forks.results.differences("points", by=["chain", "prompt"]) == []


def test_generations_common_to_a_branch_and_its_control_are_a_single_pair() -> None:
    forks = Forks("r1")
    forks.fork("r1", {None: [1.0], HINT: [2.0]})
    for name, points in (("r1-f1-1", 3.0), ("r1-f1-2", 7.0)):
        attempt = forks.journal.open(name, 2).work()
        attempt.write("scored", {"scores": {"points": points}}).commit([used(1)])
    attempt = forks.journal.open("r1-f1-2", 3).work()
    attempt.write("scored", {"scores": {"points": 500.0}}).commit([used(1)])
    (difference,) = forks.results.differences("points")
    assert (difference.estimate.n, difference.control, difference.estimate.mean) == (1, 2.0, 2.5)


def test_only_a_table_by_prompt_has_the_differences_below_it() -> None:
    forks = Forks("r1")
    forks.fork("r1", {None: [1.0, 2.0, 3.0], HINT: [3.0, 3.0, 7.0]})
    lines = forks.results.table(by="prompt", mean=["points"]).splitlines()
    assert [line.split("  ")[0] for line in lines[1:4]] == ["-", "as-before", "get behind it."]
    _, title, heading, row = lines[3:][1:]
    assert title.startswith("Difference from the control branches of the same checkpoint")
    assert heading.split() == [
        *("PROMPT", "COLUMN", "PAIRS", "OF", "PAIRS", "CONTROL"),
        *("DIFFERENCE", "SE", "MEDIAN", "95%", "FROM", "95%", "TO"),
    ]
    assert row.split()[3:] == [
        *("points", "branch", "3", "2", "2.333", "0.8819", "2", "-1.461", "6.128")
    ]
    assert "Difference" not in forks.results.table(by="chain", mean=["points"])
    assert "Difference" not in forks.results.table(by="prompt", mean=["turns"], agents=True)


def test_a_table_of_branches_without_a_control_says_that_they_are_not_compared() -> None:
    forks = Forks("r1")
    forks.fork("r1", {HINT: [3.0, 7.0]})
    assert (
        forks.results.table(by="prompt", mean=["points"])
        .splitlines()[-1]
        .endswith("no checkpoint has complete branches both without a message and with one.")
    )
    for others in ({"by": "chain"}, {"by": "prompt", "agents": True, "mean": ["turns"]}):
        assert "No differences" not in forks.results.table(**others)
    forks = Forks("r1")
    forks.fork("r1", {None: [3.0, 7.0]})
    assert "No differences" not in forks.results.table(by="prompt", mean=["points"])


def test_chains_of_the_same_name_in_joined_experiments_are_different_chains() -> None:
    forks = [Forks("r1"), Forks("r1")]
    for points, experiment in zip((3.0, 7.0), forks, strict=True):
        experiment.fork("r1", {None: [1.0], HINT: [points]})
    joined = join_results({"a": forks[0].results, "b": forks[1].results})
    (difference,) = joined.differences("points")
    assert (difference.estimate.n, difference.estimate.mean) == (2, 4.0)
    (branches,) = joined.series("points", by=()).values()
    assert branches["a r1-f1-2"] == {1: 3.0}
    assert branches["b r1-f1-2"] == {1: 7.0}
    heading, first, *others = joined.table().splitlines()
    assert heading.split()[:2] == ["EXPERIMENT", "CHAIN"]
    assert (first.split()[:2], others[-1].split()[:2]) == (["a", "r1"], ["b", "r1-f1-2"])
    assert joined.table(agents=True).startswith("EXPERIMENT  CHAIN")
    means = {
        one.by["experiment"]: one.estimate.n for one in joined.summary("points", by="experiment")
    }
    assert means == {"a": 3, "b": 3}


def test_an_experiment_without_branches_has_no_differences() -> None:
    assert Forks("r1").results.differences("points") == []


# -- groups -------------------------------------------------------------------------------------


def swept() -> Results:
    """Return the results of two models with and without a workspace; one score is missing."""
    sweep = {
        "agents.0.model": ["claude-fable-5", "claude-opus-4-8"],
        "inherit.workspace": [True, False],
    }
    journal, plan = Journal(), make_plan(sweep=sweep, generations=1)
    for number, chain in enumerate(plan.chains()):
        attempt = journal.open(chain.name, 1).work()
        scores = {"points": float(number)} if number != 4 else {}
        attempt.write("scored", {"scores": scores}).commit([used(number)])
    return make_results(journal.plans(plan))


def test_rows_are_grouped_by_the_values_of_several_columns() -> None:
    found = swept().summary("points", by=["model", "workspace"])
    assert [(*one.by.values(), one.estimate.n, one.estimate.mean) for one in found] == [
        ("claude-fable-5", True, 1, 0.0),
        ("claude-fable-5", False, 2, 3.0),
        ("claude-opus-4-8", True, 2, 4.0),
        ("claude-opus-4-8", False, 2, 5.0),
    ]
    (everything,) = swept().summary("output_tokens")
    assert (everything.by, everything.estimate.n, everything.estimate.median) == ({}, 8, 3.5)
    by_agent = swept().summary("output_tokens", by="display", agents=True)
    assert [(one.by["display"], one.estimate.n) for one in by_agent] == [("Eko", 8), ("Moa", 8)]
    with pytest.raises(ConfigError, match="by: must be a column, not 'modle'"):
        swept().summary("points", by=["model", "modle"])


def test_a_table_by_several_columns_says_how_many_values_a_score_has() -> None:
    heading, first, *others = swept().table(by=["model", "workspace"]).splitlines()
    assert heading.split()[:7] == ["MODEL", "WORKSPACE", "N", "POINTS", "N", "SE", "MEDIAN"]
    assert first.split()[:7] == ["claude-fable-5", "true", "2", "0", "1", "-", "0"]
    assert [line.split()[2] for line in others] == ["2", "2", "2"]
    assert heading.split().count("SE") == 1  # of scores, not of usage


def test_labels_are_columns_next_to_the_chains() -> None:
    heading, first, *_ = swept().table().splitlines()
    assert heading.split()[:4] == ["CHAIN", "MODEL", "WORKSPACE", "GEN"]
    assert first.split()[1:4] == ["claude-fable-5", "true", "1"]
    of_agents = swept().table(agents=True).splitlines()[0]
    assert of_agents.split().count("MODEL") == 1
    assert "WORKSPACE" in of_agents


def test_a_label_with_the_name_of_a_column_says_that_it_is_a_label() -> None:
    journal, plan = Journal(), make_plan(labels={"status": "draft"})
    journal.open("r1", 1).work().commit([used(1)])
    heading, row = make_results(journal.plans(plan)).table().splitlines()
    assert heading.split()[:6] == ["CHAIN", "LABEL", "STATUS", "GEN", "STATUS", "ENDED"]
    assert row.split()[:4] == ["r1", "draft", "1", "committed"]
