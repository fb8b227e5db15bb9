"""The rows of an experiment match its journal."""

from __future__ import annotations

import csv
import io
import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.agents.values import Usage, sum_usage
from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.history.lines import JournalLine, read_usage
from clawblox.experiment.plan.parts import Price
from clawblox.experiment.tables.results import make_results
from clawblox.experiment.tables.rows import AgentRow, Row
from tests.experiment.journals import Journal, make_plan, used

PRICE = Price(input=10.0, output=100.0)
USAGE = [used(100, 1.0), used(50, 0.5)]


def make_rows_from(journal: Journal, **fields: object) -> list[Row]:
    return make_results(journal.plans(make_plan(**fields))).rows()


def make_agent_rows_from(journal: Journal, **fields: object) -> list[AgentRow]:
    return make_results(journal.plans(make_plan(**fields))).agents()


def test_started_generation_has_a_row() -> None:
    journal = Journal()
    journal.open("r1", 1).work().commit(USAGE)
    journal.open("r2", 1)
    journal.open("r1", 2).work()
    rows = make_rows_from(journal)
    assert [(row.chain, row.generation, row.status) for row in rows] == [
        ("r1", 1, "committed"),
        ("r1", 2, "working"),
        ("r2", 1, "preparing"),
    ]


def test_a_committed_generation_has_the_facts_of_its_end() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    end = attempt.checkpoint("end", USAGE, reason="duration")
    attempt.write("scored", {"scores": {"cubes": 4.0}}).commit(USAGE)
    (row,) = make_rows_from(journal, labels={"question": "memory"})
    assert (row.ended_by, row.active_s, row.idle_s, row.world_time) == ("duration", 3600, 60, 7200)
    assert (row.turns, row.output_tokens, row.cost_usd, row.is_estimated) == (2, 150, 1.5, False)
    assert (row.scores, row.labels) == ({"cubes": 4.0}, {"question": "memory"})
    assert row.run_dir == f"chains/r1/runs/{attempt.name}"
    assert row.checkpoint == f"{row.run_dir}/checkpoints/{end['file']}"
    assert (row.experiment, row.repeat, row.seed, row.error) == ("panda", 1, None, "")


def test_a_row_has_the_node_of_its_latest_attempt_and_all_machine_differences() -> None:
    journal = Journal()
    journal.open("r1", 1, host={"node": "n1"}).work().end("interrupted")
    journal.open("r1", 1, host={"node": "n2"}, differs="libc: b, before a").end("interrupted")
    journal.open("r1", 1, host={"node": "n3"}, differs="libc: a, before b").work().commit(USAGE)
    journal.open("r1", 2).work()
    rows = make_rows_from(journal)
    differs = "libc: b, before a; libc: a, before b"
    assert [(row.node, row.differs) for row in rows] == [("n3", differs), ("", "")]


def test_a_row_has_script_errors_of_its_latest_attempt_but_agents_have_none() -> None:
    journal = Journal()
    first = {"count": 3, "last": "main.lua:2: no"}
    journal.open("r1", 1).work().end("failed", cause="world", text="halted", script_errors=first)
    journal.open("r1", 1).work().commit(
        USAGE, script_errors={"count": 5, "last": "main.lua:9: off"}
    )
    journal.open("r1", 2).work().commit(USAGE)
    journal.open("r2", 1).work()
    rows = [(row.script_errors, row.last_script_error) for row in make_rows_from(journal)]
    assert rows == [(5, "main.lua:9: off"), (None, ""), (None, "")]
    assert not {name for name in attrs.fields_dict(AgentRow) if "error" in name}
    text = make_results(journal.plans(make_plan())).to_csv()
    assert [cells["script_errors"] for cells in csv.DictReader(io.StringIO(text))] == ["5", "", ""]


def test_agents_have_rows_with_their_own_usage() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work().commit(USAGE)
    eko, moa = make_agent_rows_from(journal)
    assert (eko.index, eko.display, eko.driver, eko.model) == (0, "Eko", "claude", "claude-fable-5")
    assert (moa.index, moa.name, moa.program_version) == (1, "a1", "2.1.1")
    assert (eko.output_tokens, moa.output_tokens, moa.cost_usd) == (100, 50, 0.5)
    assert moa.workspace_out == f"chains/r1/runs/{attempt.name}/agents/a1/workspace"


def test_a_generation_scored_by_another_attempt_has_the_versions_of_its_agents() -> None:
    journal = Journal()
    worked = journal.open("r1", 1).work()
    end = worked.checkpoint("end")
    worked.end("interrupted")
    scored = journal.open("r1", 1, origin=end, phase="score")
    assert [row.program_version for row in make_agent_rows_from(journal)] == ["2.1.0", "2.1.1"]
    scored.write("working", {"agents": []}).commit([], USAGE, files=worked.name)
    assert [row.program_version for row in make_agent_rows_from(journal)] == ["2.1.0", "2.1.1"]


def test_lost_attempts_count_as_spent_but_not_as_used() -> None:
    journal = Journal()
    first = journal.open("r1", 1).work()
    origin = first.checkpoint(usage=[used(10, 0.1), used(10, 0.1)])
    first.end("failed", USAGE, cause="world", text="halted", moved_to=f"{first.name}.failed-x")
    second = journal.open("r1", 1, origin=origin).work()
    second.commit([used(20, 0.2), used(20, 0.2)], total=[used(30, 0.3), used(30, 0.3)])
    (row,) = make_rows_from(journal)
    assert (row.attempts, row.output_tokens, row.cost_usd) == (2, 60, pytest.approx(0.6))
    assert (row.spent_tokens, row.spent_usd) == (150 + 40 + 40, pytest.approx(1.9))


def test_a_failed_generation_names_its_error_and_its_renamed_directory() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint(usage=[used(7)])
    attempt.end("failed", cause="world", text="world died: 4", moved_to="x.failed-1")
    (row,) = make_rows_from(journal)
    assert (row.status, row.error, row.run_dir) == (
        "failed",
        "world died: 4",
        "chains/r1/runs/x.failed-1",
    )
    assert row.checkpoint == "chains/r1/runs/x.failed-1/checkpoints/c0.ckpt"
    assert (row.active_s, row.output_tokens) == (900.0, 7)


def test_the_time_between_a_pause_and_the_next_attempt_is_paused() -> None:
    journal = Journal()
    journal.open("r1", 1).work().end("paused", reason="limit", text="limit")
    journal.wait(9)
    journal.open("r1", 1).work().end("interrupted")
    journal.wait(9)
    journal.open("r1", 1).work().commit(USAGE)
    (row,) = make_rows_from(journal)
    assert row.paused_s == 600.0


def test_an_error_keeps_the_score_and_is_in_the_row() -> None:
    journal = Journal()
    journal.open("r1", 1).work().write("scored", {"scores": {"cubes": 4.0}}).commit(USAGE)
    journal.write("rescored", {"error": "KeyError: 'cubes'"}, chain="r1", generation=1)
    (row,) = make_rows_from(journal)
    assert (row.scores, row.error, row.kept_scores) == ({"cubes": 4.0}, "KeyError: 'cubes'", ())


def test_a_score_of_an_earlier_function_version_is_kept_and_marked() -> None:
    journal = Journal()
    old, new = ({"name": "scores:points", "digest": digit * 64} for digit in "ab")
    journal.write("session.begun", {"hooks": {"score": old}})
    for chain in ("r1", "r2"):
        scores = {"cubes": 4.0, "speed": 1.0}
        journal.open(chain, 1).work().write("scored", {"scores": scores}).commit(USAGE)
    journal.write("rescored", {"error": "gone", "function": new}, chain="r1", generation=1)
    facts = {"scores": {"cubes": 5.0}, "function": new}
    journal.write("rescored", facts, chain="r2", generation=1)
    first, second = make_rows_from(journal)
    before, after = "scores:points@aaaaaaaaaaaa", "scores:points@bbbbbbbbbbbb"
    assert first.score_versions == {"cubes": before, "speed": before}
    assert second.score_versions == {"cubes": after, "speed": before}
    assert (first.kept_scores, second.kept_scores) == (("cubes", "speed"), ("speed",))


def test_a_new_score_replaces_the_old_one() -> None:
    journal = Journal()
    journal.open("r1", 1).work().write("scored", {"error": "KeyError: 'cubes'"}).commit(USAGE)
    (row,) = make_rows_from(journal)
    assert (row.scores, row.error) == ({}, "KeyError: 'cubes'")
    journal.write("rescored", {"scores": {"cubes": 2.0}}, chain="r1", generation=1)
    (row,) = make_rows_from(journal)
    assert (row.scores, row.error) == ({"cubes": 2.0}, "")


def test_a_branch_has_the_labels_of_its_source_and_names_the_archive() -> None:
    journal = Journal()
    first = journal.open("fable-r1", 1).work()
    source = first.checkpoint(mid_turn=["Eko"])
    fork = {"source": source, "group": 1, "number": 1, "label": "storm", "reseed": 7}
    journal.write("chain.forked", fork, chain="fable-r1-b1")
    journal.open("fable-r1-b1", 1, origin=source).work().commit(USAGE)
    sweep = {"agents.*.model": ["claude-fable-5", "claude-opus-4-8"]}
    plan = make_plan(sweep=sweep)
    original, branch = make_results(journal.plans(plan)).rows()
    assert branch.labels == {"model": "claude-fable-5", "prompt": "storm"}
    assert (branch.branch, branch.seed, branch.mid_turn) == ("storm", 7, ("Eko",))
    assert branch.forked_from == original.checkpoint
    assert (original.forked_from, original.branch, original.mid_turn) == ("", "", ())
    ref = CheckpointRef(**source)
    assert make_results(journal.plans(plan), forked_from=ref).rows() == [branch]
    assert make_results(journal.plans(plan), forked_from=attrs.evolve(ref, sha256="")).rows() == []


def test_an_imported_generation_has_the_rows_of_its_table() -> None:
    journal = Journal()
    row = {
        "agent_name": "Eko-rgen-g001-w0-a0",
        "run_id": "gen-g001",
        "workspace_out": "runs/gen-g001/agents/a/workspace",
        "start_utc": "2026-01-01T00:00:00Z",
        "end_utc": "2026-01-01T00:30:00Z",
    }
    data = {"run_id": "gen-g001", "rows": [row]}
    journal.write("imported", data, chain="r1", generation=1)
    results = make_results(journal.plans(make_plan(repeats=1, layout="flat")))
    (generation,), agents = results.rows(), results.agents()
    assert (generation.status, generation.run_dir) == ("imported", "runs/gen-g001")
    assert generation.started_at == row["start_utc"]
    assert agents[0].workspace_out == row["workspace_out"]
    assert (agents[0].name, agents[1].name) == (row["agent_name"], "")
    for imported in (generation, *agents):
        assert (imported.output_tokens, imported.cost_usd) == (None, None)
        assert (imported.spent_tokens, imported.spent_usd) == (None, None)


# -- costs --------------------------------------------------------------------------------------


def test_tokens_and_cost_that_a_program_does_not_report_are_unknown_not_0() -> None:
    journal = Journal()
    journal.open("r1", 1).work().commit([used(100, 1.0), Usage(turns=3)])
    results = make_results(journal.plans(make_plan(repeats=1)))
    (row,), (eko, moa) = results.rows(), results.agents()
    assert (row.turns, row.output_tokens, row.cost_usd, row.spent_tokens) == (4, None, None, None)
    assert (eko.output_tokens, eko.cost_usd) == (100, 1.0)
    assert (moa.turns, moa.input_tokens, moa.cost_usd) == (3, None, None)
    (cells,) = csv.DictReader(io.StringIO(results.to_csv()))
    names = ("output_tokens", "cached_tokens", "cost_usd", "spent_tokens", "spent_usd")
    assert {cells[name] for name in names} == {""}
    assert json.loads(results.to_json())["rows"][0]["output_tokens"] is None
    assert results.table(by="chain", mean=["output_tokens"])


def test_row_counts_possibly_missing_turn_costs() -> None:
    journal = Journal()
    usage = [attrs.evolve(used(100, 1.0), missing_costs=2), used(50, 0.5)]
    journal.open("r1", 1).work().commit(usage)
    (row,), (eko, moa) = make_rows_from(journal), make_agent_rows_from(journal)
    assert (row.missing_costs, eko.missing_costs, moa.missing_costs) == (2, 2, 0)


def test_prices_of_the_plan_estimate_what_a_program_does_not_report() -> None:
    journal = Journal()
    journal.open("r1", 1).work().commit([used(100, 1.0), used(1_000_000)])
    (row,) = make_rows_from(journal)
    assert (row.cost_usd, row.is_estimated) == (None, False)
    (row,) = make_rows_from(journal, prices={"gpt-6": PRICE})
    assert (row.cost_usd, row.is_estimated) == (pytest.approx(101.0001), True)


# -- any journal --------------------------------------------------------------------------------

USAGES = st.lists(
    st.builds(
        Usage,
        input_tokens=st.integers(0, 10**9),
        output_tokens=st.integers(0, 10**9),
        turns=st.integers(0, 99),
        cost_usd=st.floats(0, 100),
    ),
    max_size=2,
)
LOST = st.sampled_from(["failed", "paused", "interrupted"])
GENERATION = st.tuples(st.lists(st.tuples(LOST, USAGES), max_size=3), USAGES)


@st.composite
def journals(draw: st.DrawFn) -> Journal:
    journal = Journal()
    for chain in ("r1", "r2"):
        for number, (lost, usage) in enumerate(draw(st.lists(GENERATION, max_size=3)), 1):
            for ending, lost_usage in lost:
                journal.open(chain, number).work().end(ending, lost_usage, text='a,"b"\nc')
            journal.open(chain, number).work().commit(usage)
    if draw(st.booleans()):
        journal.open("r1", 9).work()
    return journal


def committed(line: JournalLine) -> tuple[str | None, int | None]:
    return line.chain, line.generation


@given(journals())
def test_rows_agree_with_the_lines_of_any_journal(journal: Journal) -> None:
    results = make_results(journal.plans(make_plan()))
    rows, agents = results.rows(), results.agents()
    ends = [line for line in journal.lines if line.type == "committed"]
    assert [(row.chain, row.generation) for row in rows if row.is_over] == list(
        map(committed, ends)
    )
    used_up = [sum_usage(read_usage(line.data["used"])) for line in ends]
    assert [row.output_tokens for row in rows if row.is_over] == [
        usage.output_tokens for usage in used_up
    ]
    ledger = [usage for line in journal.lines for usage in read_usage(line.data.get("usage"))]
    for table in (rows, agents):
        assert sum(row.spent_tokens for row in table) == sum(usage.tokens for usage in ledger)
        spent_usd = sum(row.spent_usd or 0.0 for row in table)
        assert spent_usd == pytest.approx(sum(usage.cost_usd or 0.0 for usage in ledger))
    assert sum(row.attempts for row in rows) == len({line.attempt for line in journal.lines})
    assert make_results(journal.plans(make_plan())).rows() == rows
