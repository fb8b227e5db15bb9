"""Results as tables of text, CSV, JSON and data frames."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from clawblox.agents.values import Usage
from clawblox.errors import ConfigError
from clawblox.experiment.tables.results import (
    AGENTS_NAME,
    ROWS_NAME,
    Results,
    make_results,
    write_results,
)
from tests.experiment.journals import Journal, make_plan, used
from tests.experiment.tables.test_rows import journals

MODELS = ["claude-fable-5", "claude-opus-4-8"]
HOSTILE = 'a,"b"\r\n\x1b[2J=1+1 \ud800'


def swept() -> Results:
    """Return the results of two models in two repeats, with a score each; the last failed."""
    journal = Journal()
    plan = make_plan(sweep={"agents.0.model": MODELS})
    for score, chain in enumerate(("fable-r1", "opus-r1", "fable-r2")):
        attempt = journal.open(chain, 1).work().write("scored", {"scores": {"cubes": 2.0 * score}})
        attempt.commit([used(100 * (score + 1), 1.0), used(0, 0.0)])
    journal.open("opus-r2", 1).work().end("failed", [used(9, 0.5)], cause="world", text=HOSTILE)
    return make_results(journal.plans(plan))


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_the_table_shows_every_generation() -> None:
    heading, *lines = swept().table().splitlines()
    assert heading.split() == [
        *("CHAIN", "MODEL", "GEN", "STATUS", "ENDED", "BY", "ACTIVE", "S", "TURNS"),
        *("OUTPUT", "TOKENS", "COST", "USD", "CUBES"),
    ]
    assert lines[0].split() == [
        "fable-r1",
        MODELS[0],
        "1",
        "committed",
        "duration",
        "3600",
        "2",
        "100",
        "1",
        "0",
    ]
    assert lines[3].split() == ["opus-r2", MODELS[1], "1", "failed", "0", "0", "0", "0", "-"]


def rescored() -> Results:
    """Return the results of two models; a newer function version has rescored some generations."""
    journal = Journal()
    plan = make_plan(sweep={"agents.0.model": MODELS})
    for score, chain in enumerate(("fable-r1", "opus-r1", "fable-r2")):
        attempt = journal.open(chain, 1).work().write("scored", {"scores": {"cubes": 1.0 + score}})
        attempt.commit([used(100, 1.0)])
    facts = {"scores": {"cubes": 9.0}, "function": {"name": "scores:cubes", "digest": "ab" * 32}}
    journal.write("rescored", facts, chain="fable-r1", generation=1)
    journal.write("rescored", {"error": "KeyError"}, chain="opus-r1", generation=1)
    return make_results(journal.plans(plan))


def test_tables_mark_scores_of_another_version_and_means_that_include_them() -> None:
    results = rescored()
    *rows, note = results.table().splitlines()
    assert [row.split()[-1] for row in rows] == ["CUBES", "9", "2*", "3*"]
    assert note.startswith("* scores of another version of their function")
    *means, note = results.table(by="model", mean=["cubes"]).splitlines()
    assert [row.split()[2] for row in means] == ["CUBES", "6*", "2*"]
    assert note.startswith("* scores of another version of their function")
    assert "*" not in results.table(by="model", mean=["turns"])
    assert "*" not in results.table(agents=True)
    assert results.has_kept("cubes")
    assert not results.has_kept("turns")


def test_scores_are_plain_numbers_beside_their_versions() -> None:
    results = rescored()
    first, second, _ = read(results.to_csv())
    assert (first["score.cubes"], second["score.cubes"]) == ("9.0", "2.0")
    assert first["score_version.cubes"] == "scores:cubes@abababababab"
    assert (second["score_version.cubes"], second["kept_scores"]) == ("", "cubes")
    plain = json.loads(results.to_json())["rows"][1]
    assert (plain["scores"], plain["kept_scores"]) == ({"cubes": 2.0}, ["cubes"])
    assert plain["score_versions"] == {"cubes": ""}
    assert results.series("cubes", by="model") == {
        MODELS[0]: {"fable-r1": {1: 9.0}, "fable-r2": {1: 3.0}},
        MODELS[1]: {"opus-r1": {1: 2.0}},
    }


def test_the_table_of_agents_shows_each_agent_in_every_generation() -> None:
    lines = [line.split() for line in swept().table(agents=True).splitlines()]
    heading = ["CHAIN", "GEN", "AGENT", "DRIVER", "MODEL", "STATUS", "TURNS"]
    assert lines[0] == [*heading, "OUTPUT", "TOKENS", "COST", "USD"]
    assert lines[1] == ["fable-r1", "1", "Eko", "claude", MODELS[0], "committed", "1", "100", "1"]
    assert lines[2] == ["fable-r1", "1", "Moa", "codex", "gpt-6", "committed", "1", "0", "0"]
    assert len(lines) == 9


def test_means_of_agents_are_grouped_by_agent_model_not_by_chain_model() -> None:
    table = swept().table(by="model", mean=["output_tokens"], agents=True)
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [
        ["claude-fable-5", "2", "200"],
        ["gpt-6", "3", "0"],
        ["claude-opus-4-8", "1", "200"],
    ]


def long_names() -> Results:
    """Return the results of chains with long names, long reasons and two scores."""
    journal = Journal()
    sweep = {"agents.0.model": MODELS, "inherit.workspace": [True, False], "save.before": [60, 300]}
    plan = make_plan(repeats=1, sweep=sweep)
    for chain in plan.chains():
        attempt = journal.open(chain.name, 1).work()
        attempt.write("scored", {"scores": {"cubes": 1234.5, "points_per_s": 0.1234}})
        attempt.commit([used(100_000, 1.25)] * 2, ended_by="stop: all cubes are in the basket")
    return make_results(journal.plans(plan))


@pytest.mark.parametrize("agents", [False, True])
@pytest.mark.parametrize("by", [None, "chain", "model"])
def test_a_table_fits_its_width_and_shows_more_if_it_is_wider(by: str | None, agents: bool) -> None:
    results, columns = long_names(), 0
    for width in range(50, 191, 7):
        heading, *rows = results.table(by=by, agents=agents, width=width).splitlines()
        assert max(map(len, (heading, *rows))) <= width, width
        assert len(set(rows)) == len(rows)  # names are not cut to the same text
        assert len(heading.split()) >= columns
        columns = len(heading.split())
    assert heading == results.table(by=by, agents=agents).splitlines()[0]


def test_means_by_a_boolean_are_named_true_and_false() -> None:
    lines = long_names().table(by="workspace", mean=["cubes"]).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["true", "false"]


def test_means_by_a_label_include_only_complete_generations() -> None:
    table = swept().table(by="model")
    assert [line.split()[:6] for line in table.splitlines()] == [
        ["MODEL", "N", "CUBES", "SE", "MEDIAN", "ACTIVE"],
        ["claude-fable-5", "2", "2", "2", "2", "3600"],
        ["claude-opus-4-8", "1", "2", "-", "2", "3600"],
    ]


def test_means_without_a_group_include_all_complete_generations() -> None:
    lines = swept().table(mean=["cubes"]).splitlines()
    assert [line.split() for line in lines] == [
        ["N", "CUBES", "SE", "MEDIAN"],
        ["3", "2", "1.155", "2"],
    ]


def test_a_group_without_values_has_no_mean() -> None:
    journal = Journal()
    journal.open("r1", 1).work().commit([Usage(output_tokens=5)])
    table = make_results(journal.plans(make_plan())).table(by="chain")
    assert table.splitlines()[1].split() == ["r1", "1", "3600", "0", "5", "-"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"by": "modle"}, "by: must be a column, not 'modle'"),
        ({"mean": ["cube"]}, "did you mean cubes?"),
        ({"by": "qqqqqq"}, "the columns are experiment, chain"),
        ({"mean": ["status"]}, "mean: must be a column of numbers, not 'status'"),
    ],
)
def test_an_unknown_column_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        swept().table(**options)
    assert text in str(error.value)


def test_a_series_has_the_scores_of_complete_generations_by_chain() -> None:
    assert swept().series("cubes", by="model") == {
        MODELS[0]: {"fable-r1": {1: 0.0}, "fable-r2": {1: 4.0}},
        MODELS[1]: {"opus-r1": {1: 2.0}},
    }
    assert swept().series("output_tokens")["fable-r2"] == {"fable-r2": {1: 300}}
    with pytest.raises(ConfigError, match="score: must be a column of numbers, not 'ended_by'"):
        swept().series("ended_by")


def test_csv_has_a_column_for_each_label_and_score() -> None:
    header = swept().to_csv().splitlines()[0].split(",")
    assert header[:6] == ["experiment", "chain", "repeat", "seed", "label.model", "generation"]
    assert header[header.index("world_time") + 1] == "score.cubes"
    (first, *_) = read(swept().to_csv())
    assert (first["score.cubes"], first["is_estimated"], first["seed"]) == ("0.0", "false", "")


def test_csv_lines_end_in_lf() -> None:
    assert swept().to_csv().count("\r") == HOSTILE.count("\r")


def test_hostile_text_stays_in_its_cell_and_out_of_the_terminal() -> None:
    (*_, last) = read(swept().to_csv())
    assert last["error"] == HOSTILE
    assert json.loads(swept().to_json())["rows"][-1]["error"] == HOSTILE
    journal = Journal()
    journal.open("r1", 1).work().commit([], None).journal.lines[-1].data["ended_by"] = "\x1b[2J\n"
    assert make_results(journal.plans(make_plan())).table().count("\n") == 1


def test_json_has_all_rows() -> None:
    document = json.loads(swept().to_json())
    assert (len(document["rows"]), len(document["agents"])) == (4, 8)
    assert document["rows"][0]["labels"] == {"model": MODELS[0]}


def test_files_are_written_only_if_they_differ(tmp_path: Path) -> None:
    results = swept()
    write_results(tmp_path, results)
    first = {name: (tmp_path / name).stat().st_ino for name in (ROWS_NAME, AGENTS_NAME)}
    (tmp_path / AGENTS_NAME).write_text("")
    write_results(tmp_path, results)
    assert (tmp_path / ROWS_NAME).stat().st_ino == first[ROWS_NAME]
    results.write_csv(tmp_path / "copy.csv", agents=True)
    assert (tmp_path / AGENTS_NAME).read_bytes() == (tmp_path / "copy.csv").read_bytes()


def test_a_data_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawblox.extras.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pandas.*pip install"):
        swept().dataframe()


def test_a_data_frame_has_the_columns_of_the_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pandas.py").write_text("def DataFrame(rows, columns): return rows, columns\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "pandas", raising=False)
    rows, columns = swept().dataframe(agents=True)
    assert columns == swept().to_csv(agents=True).splitlines()[0].split(",")
    assert (rows[0]["label.model"], rows[0]["cost_usd"]) == (MODELS[0], 1.0)


@given(journals())
def test_csv_equals_the_journal(journal: Journal) -> None:
    results = make_results(journal.plans(make_plan()))
    for table, agents in ((results.rows(), False), (results.agents(), True)):
        cells = read(results.to_csv(agents=agents))
        assert len(cells) == len(table)
        for row, cell in zip(table, cells, strict=True):
            assert (row.chain, str(row.generation), row.status) == (
                *(cell["chain"], cell["generation"], cell["status"]),
            )
            assert int(cell["spent_tokens"]) == row.spent_tokens
            assert float(cell["cost_usd"] or "nan") == row.cost_usd or row.cost_usd is None
