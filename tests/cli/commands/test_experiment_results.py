"""``clawblox experiment results``: tables for terminals of every width."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Start
from tests.golden.test_golden_experiments import V1
from tests.support.terminals import terminal
from tests.support.waiting import wait_until


@pytest.fixture
def experiment_dir(tmp_path: Path) -> Path:
    """Return an experiment with two chains and two branches."""
    return Path(shutil.copytree(V1, tmp_path / "exp"))


def test_agents_are_rows_of_a_table(experiment_dir: Path, call: Start) -> None:
    table = call("experiment", "results", str(experiment_dir), "--agents")
    assert table.wait() == 0, table.err
    heading, first, *_ = table.out.splitlines()
    columns = ["CHAIN", "PROMPT", "QUESTION", "GEN", "AGENT", "DRIVER", "MODEL", "STATUS"]
    assert heading.split()[:8] == columns
    assert first.split()[:7] == ["r1", "-", "memory", "1", "Eko", "claude", "claude-fable-5"]
    rows = call("experiment", "results", str(experiment_dir), "--agents", "--csv").out
    assert len(list(csv.DictReader(io.StringIO(rows)))) == len(table.out.splitlines()) - 1


def test_means_of_agents_are_grouped_by_driver(experiment_dir: Path, call: Start) -> None:
    table = call("experiment", "results", str(experiment_dir), "--agents", "--by", "driver")
    assert [line.split()[0] for line in table.out.splitlines()] == ["DRIVER", "claude"]


def test_several_experiments_are_joined_in_one_table(experiment_dir: Path, call: Start) -> None:
    shutil.copytree(experiment_dir, "second")
    words = ("experiment", "results", str(experiment_dir), "second")
    joined = call(*words, "--csv")
    assert joined.wait() == 0, joined.err
    rows = list(csv.DictReader(io.StringIO(joined.out)))
    alone = csv.DictReader(io.StringIO(call(*words[:3], "--csv").out))
    assert {row["experiment"] for row in rows} == {str(experiment_dir), "second"}
    assert [row["chain"] for row in rows] == 2 * [row["chain"] for row in alone]
    facts = json.loads(call(*words, "--json").out)
    assert {row["experiment"] for row in facts["agents"]} == {str(experiment_dir), "second"}
    table = call(*words, "--by", "experiment").out.splitlines()
    assert [line.split()[0] for line in table] == ["EXPERIMENT", str(experiment_dir), "second"]
    assert call(*words, "--svg", "scores.svg").out == "Wrote scores.svg\n"


def test_a_directory_that_cannot_be_joined_is_named(experiment_dir: Path, call: Start) -> None:
    Path("link").symlink_to(experiment_dir)
    Path("empty").mkdir()
    same = call("experiment", "results", str(experiment_dir), "link")
    assert same.wait() == 2
    assert f"but '{experiment_dir}' and 'link' are the same directory" in same.err
    other = call("experiment", "results", str(experiment_dir), "empty")
    assert other.wait() == 2
    assert other.err.startswith("Error: there is no experiment in 'empty'\n")


@pytest.mark.thorough
@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("options", [(), ("--agents",), ("--by", "chain")])
def test_a_table_fits_the_terminal(
    experiment_dir: Path, columns: int, options: tuple[str, ...]
) -> None:
    words = ("experiment", "results", str(experiment_dir), *options)
    with terminal(*words, columns=columns) as shown:
        wait_until(lambda: shown.process.poll() is not None)
        lines = shown.read().splitlines()
    assert lines[0].startswith("CHAIN")
    assert len(lines) > 2
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("options", [("--json",), ("--svg", "scores.svg")])
def test_agents_option_is_refused_when_it_has_no_effect(
    experiment_dir: Path, call: Start, options: tuple[str, ...]
) -> None:
    command = call("experiment", "results", str(experiment_dir), "--agents", *options)
    assert command.wait() == 2
    assert "--agents" in command.err
    assert not Path("scores.svg").exists()


def test_groups_and_differences_are_printed_as_json(experiment_dir: Path, call: Start) -> None:
    words = ("experiment", "results", str(experiment_dir))
    document = json.loads(call(*words, "--by", "prompt,generation", "--json").out)
    first = next(group for group in document["groups"] if group["column"] == "cubes")
    assert first["by"].keys() == {"prompt", "generation"}
    assert first["estimate"].keys() == {"n", "mean", "standard_error", "median"}
    (difference,) = document["differences"]
    assert (difference["by"]["prompt"], difference["unit"]) == ("a-storm-is-coming", "branch")
    assert (difference["estimate"]["n"], difference["interval"]) == (1, None)
    refused = call(*words, "--by", "prompt", "--csv")
    assert (refused.wait(), "--by: must be left out with --csv" in refused.err) == (2, True)


def test_results_are_grouped_by_several_columns(experiment_dir: Path, call: Start) -> None:
    table = call("experiment", "results", str(experiment_dir), "--by", "chain, generation")
    assert table.wait() == 0, table.err
    heading, *rows = table.out.splitlines()
    assert heading.split()[:6] == ["CHAIN", "GEN", "N", "CUBES", "SE", "MEDIAN"]
    assert len(rows) == 8
    unknown = call("experiment", "results", str(experiment_dir), "--by", "chain,generatoin")
    assert unknown.wait() == 2
    assert "did you mean generation?" in unknown.err
