"""``clawblox experiment list``, and the default experiment of commands."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from clawblox.cli.running.smoke_run import smoke_directory
from clawblox.experiment.history.journal import JOURNAL_NAME, Journal
from clawblox.experiment.reading import overview
from clawblox.experiment.reading.overview import read_overview, sort_experiments
from clawblox.rundir import driver_lease
from clawblox.rundir.find_runs import find_experiments_below
from tests.cli.commands.test_experiment import refuse, write_plan
from tests.cli.commands.test_ps_runs import make_run
from tests.cli.conftest import Start
from tests.golden.test_golden_experiments import V1

HOSTILE = "\x1b[2J\u202ename\nrunning: 9 of 9"


def copy(name: str, changed_at: int) -> Path:
    """Return an experiment in the current directory, with the time of its last change."""
    directory = Path(shutil.copytree(V1, Path.cwd() / name))
    os.utime(directory / JOURNAL_NAME, (changed_at, changed_at))
    return directory


def names(call: Start, *words: str) -> list[str]:
    document = json.loads(call("experiment", "list", *words, "--json").out)
    return [str(Path(one["directory"]).relative_to(Path.cwd())) for one in document]


def test_list_shows_the_most_recently_changed_experiment_first(call: Start) -> None:
    copy("experiments/old", 1_000_000_000)
    copy("worlds/panda/results/new", 1_200_000_000)
    listed = call("experiment", "list")
    assert listed.wait() == 0, listed.err
    heading, new, old = listed.out.splitlines()
    assert heading.split() == [
        *("EXPERIMENT", "DIR", "STATUS", "CHAINS", "COMMITTED", "SPENT", "CHANGED")
    ]
    assert new.split()[:8] == [
        *("exp", "worlds/panda/results/new", "done", "4", "8", "of", "8", "$2.00")
    ]
    assert old.split()[1] == "experiments/old"
    assert old.endswith("d ago") or "d" in old.split()[-2]
    assert names(call, "worlds") == ["worlds/panda/results/new"]
    (facts,) = json.loads(call("experiment", "list", "worlds", "--json").out)
    assert (facts["state"], facts["committed"], facts["generations"]) == ("done", 8, 8)
    assert facts["changed_at"] == "2008-01-10T21:20:00.000Z"


def test_broken_and_foreign_directories_are_lines_with_the_reason(call: Start) -> None:
    copy("experiments/sound", 1_000_000_000)
    torn = copy("experiments/torn", 1_000_000_001)
    lines = (torn / JOURNAL_NAME).read_bytes().splitlines(keepends=True)
    (torn / JOURNAL_NAME).write_bytes(b"".join(lines[:3] + lines[4:]))
    (copy("experiments/planless", 1_000_000_002) / "plan.toml").unlink()
    lost = copy("experiments/lost", 1_000_000_003)
    (lost / JOURNAL_NAME).rename(lost / "journal.lost-20260622T185925Z.jsonl")
    for name, make in (
        ("piped", os.mkfifo),
        ("linked", lambda path: path.symlink_to("/etc/passwd")),
        ("a_directory", Path.mkdir),
        ("foreign", lambda path: path.write_text('{"event": "not ours"}\n')),
        ("binary", lambda path: path.write_bytes(b"\x00\xff" * 100 + b"\n")),
        ("empty", Path.touch),
        (HOSTILE, Path.touch),
    ):
        directory = Path("experiments", name)
        directory.mkdir()
        make(directory / JOURNAL_NAME)
    Path("closed").mkdir(mode=0)
    Path("link").symlink_to("experiments/sound")
    listed = call("experiment", "list")
    assert listed.wait() == 0, listed.err
    table, _, reasons = listed.out.partition("\n\n")
    assert len(table.splitlines()) == 2
    assert "experiments/sound" in table
    by_name = dict(line.split(": ", 1) for line in reasons.splitlines())
    assert len(by_name) == 10
    assert "line 4 is not valid" in by_name["experiments/torn"]
    assert "plan.toml" in by_name["experiments/planless"]
    assert "has lost its journal" in by_name["experiments/lost"]
    assert by_name["experiments/piped"].endswith("is not a regular file")
    assert by_name["experiments/linked"].endswith("is a symbolic link")
    assert "was interrupted before it started" in by_name["experiments/empty"]
    assert "\x1b" not in listed.out
    assert all(line.isprintable() for line in listed.out.splitlines())


def test_an_empty_directory_has_no_experiment(call: Start) -> None:
    listed = call("experiment", "list")
    assert (listed.wait(), listed.out) == (0, f"There is no experiment in '{Path.cwd()}'.\n")
    assert json.loads(call("experiment", "list", "--json").out) == []
    assert "Path 'missing' does not exist" in call("experiment", "list", "missing").err
    Path("file").touch()
    assert "DIR: must be a directory" in refuse(call, "list", "file")


def test_only_the_latest_experiments_are_read(call: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(overview.MAX_EXPERIMENTS + 2):
        directory = Path("experiments", f"e{number:03}")
        directory.mkdir(parents=True)
        (directory / JOURNAL_NAME).touch()
        os.utime(directory / JOURNAL_NAME, (number, number))
    listed = call("experiment", "list")
    assert len(listed.out.splitlines()) == overview.MAX_EXPERIMENTS
    assert listed.err.startswith("2 experiments that changed earlier: ")
    monkeypatch.setattr(overview, "_MAX_JOURNAL_BYTES", 100)
    found = read_overview(copy("large", 5))
    assert (found.state, found.error) == (
        "unreadable",
        f"{Path.cwd()}/large/{JOURNAL_NAME} is larger than 100 bytes",
    )


def test_list_continues_after_a_defect_of_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(directory: Path) -> None:
        raise RecursionError(f"too deep in {directory}\udcff")

    monkeypatch.setattr(overview, "read_experiment", fail)
    found = read_overview(Path(shutil.copytree(V1, tmp_path / "exp")))
    assert found.state == "unreadable"
    assert found.error == f"RecursionError: too deep in {tmp_path / 'exp'}\ufffd"


def test_search_for_experiments_is_bounded_and_does_not_enter_experiments(tmp_path: Path) -> None:
    inside = ["a/b/c/d/e", "near", "worlds/x/results/y"]
    outside = ["a/b/c/d/e/f", ".git/x", "node_modules/x", "near/chains/z"]
    for name in inside + outside:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / JOURNAL_NAME).touch()
    make_run(tmp_path / "run", "a")
    workspace = tmp_path / "run" / "agents" / "Eko" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / JOURNAL_NAME).touch()
    (tmp_path / "link").symlink_to(tmp_path / "worlds")
    assert find_experiments_below(tmp_path) == [tmp_path / name for name in inside]
    here = tmp_path / inside[0]
    assert find_experiments_below(here) == sort_experiments(here) == [here]
    assert find_experiments_below(tmp_path / "missing") == []


def test_experiment_is_listed_as_running_while_a_process_holds_it(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(V1, tmp_path / "exp"))
    with Journal(directory):
        assert read_overview(directory).state == "running"
    assert read_overview(directory).state == "done"


def test_an_experiment_that_another_machine_runs_names_it(
    call: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(driver_lease, "boot_id", lambda: "another boot")
        journal = Journal(copy("exp", 5)).__enter__()
    try:
        host = os.uname().nodename
        assert f"done, driver on {host} " in call("experiment", "list").out
        [facts] = json.loads(call("experiment", "list", "--json").out)
        assert facts["host"] == host
    finally:
        journal.__exit__()
    assert "driver on" not in call("experiment", "list").out


def test_interrupted_experiment_is_listed_as_stopped_and_new_one_as_not_started(
    tmp_path: Path,
) -> None:
    directory = Path(shutil.copytree(V1, tmp_path / "exp"))
    journal = directory / JOURNAL_NAME
    lines = journal.read_bytes().splitlines(keepends=True)
    states = set()
    for count in range(1, len(lines) + 1):
        journal.write_bytes(b"".join(lines[:count]))
        found = read_overview(directory)
        assert found.error == ""
        states.add(found.state)
    assert states == {"not begun", "stopped", "paused", "failed", "done"} & states
    assert {"not begun", "stopped", "done"} <= states


# -- without an argument --------------------------------------------------------------------------


def test_status_and_results_use_the_newest_experiment_and_name_it(call: Start) -> None:
    copy("experiments/old", 1_000_000_000)
    copy("experiments/new", 1_200_000_000)
    Path("foreign").mkdir()
    Path("foreign", JOURNAL_NAME).touch()  # changed last, but not an experiment
    for words in (("status",), ("results",), ("results", "--csv"), ("show", "r1/g001")):
        command = call("experiment", *words)
        assert command.wait() == 0, command.err
        assert command.err == (
            "Experiment: experiments/new, the newest of 2 experiments; give DIR for another\n"
        )
    assert call("experiment", "status").out.startswith("exp · experiments/new")
    assert call("experiment", "status", "experiments/old").err == ""


def test_damaged_newest_experiment_is_an_error_that_names_the_way_to_another(call: Start) -> None:
    copy("experiments/sound", 1_000_000_000)
    journal = copy("experiments/torn", 1_200_000_000) / JOURNAL_NAME
    journal.write_text(f"[]\n{journal.read_text()}")
    for words in (("status",), ("status", "--watch"), ("results",), ("show", "r1")):
        command = call("experiment", *words)
        assert command.wait() == 1
        choice, error, *_ = command.err.splitlines()
        assert choice.startswith("Experiment: experiments/torn, the newest of 2 experiments; ")
        assert choice.endswith("give DIR for another")
        assert error.startswith(f"Error: {journal}: line 1 is not valid: ")


def test_a_smoke_run_is_marked_in_the_list_and_is_never_the_newest(call: Start) -> None:
    smoke = smoke_directory(Path("experiments/memory"))
    copy(str(smoke), 1_200_000_000)
    assert refuse(call, "status").startswith(f"there is no experiment in '{Path.cwd()}'\n")
    copy("experiments/memory", 1_000_000_000)
    status = call("experiment", "status")
    assert status.err == "Experiment: experiments/memory\n"
    assert "Error: RUN" not in call("verify").err
    assert "there are: experiments/memory\n" in refuse(call, "status", "experiments")
    _, first, second = call("experiment", "list").out.splitlines()
    assert f"{smoke}  smoke run: done" in first
    assert "smoke" not in second
    Path(smoke, "plan.toml").unlink()
    listed = json.loads(call("experiment", "list", "--json").out)
    assert [(one["state"], one["is_smoke"]) for one in listed] == [
        ("unreadable", True),
        ("done", False),
    ]


def test_command_inside_an_experiment_uses_that_experiment(call: Start) -> None:
    copy("experiments/old", 1_000_000_000)
    copy("experiments/new", 1_200_000_000)
    chain = Path("experiments/old/chains/r1")
    chain.mkdir(parents=True)
    for place in (Path("experiments/old"), chain):
        command = call("experiment", "status", cwd=place.absolute())
        assert command.wait() == 0, command.err
        assert command.err.startswith("Experiment: ")
        assert "experiments/old" in command.err + str(place)
        assert "newest" not in command.err


def test_directory_is_required_when_there_is_no_experiment(call: Start) -> None:
    for words in (("status",), ("results",), ("show", "r1")):
        assert refuse(call, *words).startswith(f"there is no experiment in '{Path.cwd()}'\n")


@pytest.mark.parametrize("name", ["verify", "replay"])
def test_run_is_chosen_by_default_only_if_it_is_the_only_run(name: str, call: Start) -> None:
    command = call(name)
    assert command.wait() == 2
    assert command.err.startswith("Error: RUN: must be given, as there is no run")
    make_run(Path.cwd() / "runs" / "r1", "a")
    command = call(name)
    assert command.err.startswith("Run: runs/r1\n")
    make_run(Path.cwd() / "runs" / "r2", "a")
    command = call(name)
    assert command.wait() == 2
    lines = [line.strip() for line in command.err.splitlines()]
    assert lines == [
        f"Error: RUN: must be given, as there are 2 in '{Path.cwd()}':",
        "runs/r1",
        "runs/r2",
    ]


def test_verify_counts_an_experiment_once_and_replay_counts_its_runs(
    call: Start,
) -> None:
    directory = copy("experiments/exp", 1_000_000_000)
    for number in (1, 2):
        make_run(directory / "chains" / "r1" / "runs" / f"exp-r1-g00{number}", "a")
    assert call("verify").err.startswith("Run: experiments/exp\n")
    replayed = call("replay")
    assert replayed.wait() == 2
    assert "experiments/exp/chains/r1/runs/exp-r1-g001\n" in replayed.err
    make_run(Path.cwd() / "runs" / "r1", "a")
    assert "there are 2 in" in call("verify").err


def test_directory_with_only_a_plan_is_not_an_experiment(tmp_path: Path, call: Start) -> None:
    write_plan(tmp_path / "cwd")
    assert refuse(call, "status").startswith("there is no experiment in")
