"""``clawblox experiment``: plans, refusals, runs, and their output."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path

import pytest

from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.lines import About
from clawblox.experiment.plan import Plan
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.running.opening import begin_or_continue
from clawblox.rundir import driver_lease
from tests.agents.standins import install, misbehave
from tests.cli.conftest import API_KEY, Command, Start, assert_nothing_runs
from tests.support.files import look_at
from tests.support.worlds import make_world

KEYS = {"ANTHROPIC_API_KEY": API_KEY}
PLAN = """\
name = "memory"
generations = {generations}
duration = "{duration}"
save = {{ prompt = "Save.", before = "0.3s" }}
checkpoint = {{ every = false, idle_quiet = 0.1, idle_wait = 0.2 }}
limits = {{ min_free = false }}
world = {{ dir = "counter" }}

[[agents]]
driver = "claude"
model = "claude-fable-5"
binary = "bin/claude"
template = "template"
env = ["ANTHROPIC_API_KEY"]
"""


def write_plan(root: Path, *, generations: int = 1, duration: str = "1s") -> Path:
    """Write a plan with all files that it names, below the current directory."""
    install(root / "bin", "claude")
    make_world(root)
    (root / "template").mkdir()
    (root / "template" / "notes.md").write_text("Nothing yet.\n")
    misbehave(root / "template", turn_s=0.05)
    plan = root / "exp.toml"
    plan.write_text(PLAN.format(generations=generations, duration=duration))
    return plan


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write_plan(tmp_path / "cwd")


@pytest.fixture
def begun(plan: Path) -> Path:
    """Return an experiment that has not run yet."""
    directory = plan.parent / "experiments" / "memory"
    directory.mkdir(parents=True)
    with Journal(directory) as journal:
        begin_or_continue(journal, directory, Plan.load(plan))
    return directory


def refuse(call: Start, *words: str) -> str:
    """Return the error of a wrongly used command."""
    command = call("experiment", *words, env=KEYS)
    assert command.wait() == 2, command.err
    assert command.out == ""
    return command.err.partition("Error: ")[2]


def test_the_help_has_a_plan_that_is_valid(call: Start) -> None:
    text = call("experiment", "run", "--help").out
    small = text.partition("A small plan:\n")[2].partition("\n\n")[0]
    assert len(Plan.loads(textwrap.dedent(small)).chains()) == 6


# -- before anything runs -----------------------------------------------------------------------


@pytest.mark.usefixtures("plan")
def test_dry_run_describes_the_plan_and_writes_no_files(call: Start) -> None:
    before = look_at(Path.cwd())
    words = ("experiment", "run", "exp.toml", "--dry-run", "--set", "generations=3")
    command = call(*words, env=KEYS)
    assert command.wait() == 0, command.err
    chains, tokens, inputs, pause, note, _, chain = command.out.splitlines()
    assert chains.startswith(
        "1 chain of 3 generations of 1s, 1 world at a time: at least 3s. Disk:"
    )
    assert tokens.startswith("No limit of output tokens")
    assert inputs.startswith("world counter ")
    assert inputs.endswith("copied: template")
    assert pause.startswith("Pause: not measured yet;")
    facts = json.loads(call(*words, "--json", env=KEYS).out)
    assert (facts["chains"], facts["conditions"], facts["notes"]) == (["r1"], {"r1": {}}, [note])
    assert chain == "r1"
    assert "nothing in counter shows that it can record itself" in note
    assert set(facts["programs"]) == {"claude"}
    assert look_at(Path.cwd()) == before


def test_all_faults_of_a_plan_are_reported(plan: Path, call: Start) -> None:
    plan.write_text(plan.read_text().replace("bin/claude", "bin/nothing"))
    for more in ((), ("--dry-run",), ("--detach",)):
        error = refuse(call, "run", "exp.toml", "--set", "seeds=[1]", *more)
        assert not Path("experiments").exists()
    assert "seeds: must be left out: the world takes no seed" in error
    assert "agents.Eko:" in error


def test_save_time_that_leaves_no_time_for_work_is_refused_with_its_line(
    plan: Path, call: Start
) -> None:
    text = plan.read_text().replace("0.3s", "1s")
    plan.write_text(text)
    line = text.splitlines().index('save = { prompt = "Save.", before = "1s" }') + 1
    for more in ((), ("--dry-run",)):
        error = refuse(call, "run", "exp.toml", *more)
        assert error.startswith("save.before: must be less than the duration, 1 s, not '1s'\n")
        assert f"  file: exp.toml:{line}\n" in error
    error = refuse(call, "run", "exp.toml", "--set", "save.before=2s")
    assert "file:" not in error
    assert not Path("experiments").exists()


def test_a_plan_with_a_misspelled_key_is_refused_with_its_line(plan: Path, call: Start) -> None:
    plan.write_text(plan.read_text().replace("generations", "generation"))
    error = refuse(call, "run", "exp.toml")
    assert "did you mean generations?" in error
    assert "exp.toml:2" in error


def test_an_existing_directory_is_refused_with_advice(begun: Path, call: Start) -> None:
    error = refuse(call, "run", "exp.toml")
    assert error == (
        "the directory of the experiment exists: experiments/memory\n"
        "  hint: to continue it: clawblox experiment resume experiments/memory; "
        "for another experiment: --name NEW\n"
    )
    assert begun.exists()


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run", "exp.toml", "--name", "m2", "--set", "limits.wolds=1"), "limits.wolds: unknown"),
        (("run", "exp.toml", "--set", "limits"), "Invalid value for '--set': must be PATH=VALUE"),
        (("run", "missing.toml"), "missing.toml: the file does not exist"),
        (("resume", "experiments/memory", "--accept", "savee"), "--accept: must be one of"),
        (("status", "."), "there is no experiment in "),
        (("results", "experiments/memory", "--csv", "--json"), "--csv, --json and --svg cannot"),
        (("stop", "experiments/memory", "r1", "--now"), "--now: must be given without chains"),
        (("stop", "experiments/memory", "r9"), "CHAIN: must be a chain, not 'r9'"),
        (("fork", "experiments/memory", "r1/g001"), "CHECKPOINT: there is no such chain"),
        (("fork", "experiments/memory", "r1", "-n", "0"), "Invalid value for '-n'"),
        (("rescore", "experiments/memory", "cubes"), "MODULE:FUNC: must be a module and a"),
        (("rescore", "experiments/memory", "no_module:f"), "MODULE:FUNC: there is no such mod"),
        (("rescore", "experiments/memory", "json:dumps"), "MODULE:FUNC: there is no such module"),
        (("rescore", "experiments/memory"), "MODULE:FUNC: must be given, as the plan has no score"),
        (("run", "exp.toml", "--name", "m2", "--score", "cubes"), "--score: must be a module and"),
        (("resume", "experiments/memory", "--score", "no:f"), "--score: there is no such module"),
        (("clean", "experiments/memory", "--json"), "--json: must be given with --yes or"),
    ],
)
def test_wrong_usage_is_refused_in_the_words_of_options(
    call: Start, words: tuple[str, ...], text: str
) -> None:
    error = refuse(call, *words)
    assert text in error


def test_a_missing_directory_is_an_error(call: Start) -> None:
    for name in ("status", "results", "resume", "stop", "clean"):
        command = call("experiment", name, "experiments/none")
        assert command.wait() == 1
        assert command.err == "Error: Path 'experiments/none' does not exist\n", name


@pytest.mark.usefixtures("begun")
def test_stopped_experiment_can_be_shown(call: Start) -> None:
    status = call("experiment", "status", "experiments/memory")
    assert status.out.splitlines()[:2] == [
        status.out.splitlines()[0],
        "0 of 1 committed · 1 waiting",
    ]
    facts = json.loads(call("experiment", "status", "experiments/memory", "--json").out)
    assert (facts["name"], facts["pid"], facts["generations"]) == ("memory", None, 1)
    assert call("experiment", "results", "experiments/memory").out == "No generation has started.\n"
    stop = call("experiment", "stop", "experiments/memory")
    assert (stop.wait(), stop.out) == (0, "experiments/memory: was not running\n")
    clean = call("experiment", "clean", "experiments/memory")
    assert (clean.wait(), clean.out) == (0, "Nothing to remove.\n")


def test_the_status_names_the_other_machine_whose_process_runs_the_experiment(
    begun: Path, call: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_lease, "boot_id", lambda: "another boot")
    with Journal(begun):
        status = call("experiment", "status", str(begun))
        assert f"driver on {os.uname().nodename}" in status.out.splitlines()[0]
        facts = json.loads(call("experiment", "status", str(begun), "--json").out)
        assert facts["host"] == os.uname().nodename
    facts = json.loads(call("experiment", "status", str(begun), "--json").out)
    assert facts["host"] is None


def test_hostile_names_are_shown_as_escapes(begun: Path, call: Start) -> None:
    hostile = "\x1b[2J\u202e"
    with Journal(begun) as journal:
        about = About("r1", 1, "a")
        journal.append("opened", {"phase": "work", "reason": hostile}, about)
        facts = {"cause": "plan", "text": hostile, "usage": [], "moved_to": "a.failed-1"}
        journal.append("failed", facts, about)
    (begun / "chains" / "r1" / "runs" / "a.failed-1").mkdir(parents=True)
    for words in (["status"], ["results"], ["clean", "--dry-run"]):
        name, *options = words
        command = call("experiment", name, str(begun), *options)
        assert command.wait() == 0, command.err
        assert "\x1b" not in command.out
        assert "\u202e" not in command.out
    assert "failed" in call("experiment", "status", str(begun)).out


def test_changes_of_a_started_plan_are_refused_with_hints(begun: Path, call: Start) -> None:
    with Journal(begun) as journal:
        for step in ("opened", "prepared", "working", "interrupted"):
            journal.append(step, {"usage": []}, About("r1", 1, "a"))
    error = refuse(call, "resume", "experiments/memory", "--set", "duration=2h")
    assert (
        "  duration: was 1.0, is 7200.0\n  accept for later generations: --accept duration" in error
    )
    error = refuse(call, "resume", "experiments/memory", "--set", "agents.Eko.model=other")
    assert "the plan differs in 1 field" in error


# -- runs ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plan")
def test_an_experiment_runs_from_its_plan_to_its_results(call: Start) -> None:
    run = call("experiment", "run", "exp.toml", "--set", "retry.attempts=0", env=KEYS)
    assert run.wait() == 0, run.out + run.err
    assert "r1 generation 1 works: Eko-rmemory-r1-g001-w0-a0" in run.out
    assert run.out.splitlines()[-1] == ("results:  clawblox experiment results experiments/memory")
    heading, row = call("experiment", "results", "experiments/memory").out.splitlines()
    assert heading.split()[:3] == ["CHAIN", "GEN", "STATUS"]
    assert row.split()[:4] == ["r1", "1", "committed", "duration"]
    table = call("experiment", "results", "experiments/memory", "--csv", "--agents").out
    assert table.startswith("experiment,chain,")
    assert len(json.loads(call("experiment", "results", "experiments/memory", "--json").out)) == 2
    drawn = call("experiment", "results", "experiments/memory", "--svg", "scores.svg")
    assert drawn.out == "Wrote scores.svg\n"
    assert "output_tokens by chain" in Path("scores.svg").read_text()
    again = call("experiment", "resume", "experiments/memory", "--json", env=KEYS)
    assert again.wait() == 0
    assert json.loads(again.out) == {"status": "done", "exit_status": 0, "text": "", "rows": []}
    fork = call("experiment", "fork", "experiments/memory", "r1", "--parallel", "1")
    assert fork.wait() == 2
    assert "hint: export ANTHROPIC_API_KEY=" in fork.err
    assert list(read_experiment("experiments/memory").state.chains) == ["r1"]
    assert_nothing_runs()


def wait_for_work(command: Command) -> None:
    command.wait_for("generation 1 works")


@pytest.mark.thorough
def test_an_experiment_in_the_background_is_watched_and_stopped(
    tmp_path: Path, call: Start
) -> None:
    write_plan(tmp_path / "cwd", duration="1h")
    words = ("experiment", "run", "exp.toml", "--set", "repeats=2", "--detach")
    run = call(*words, env=KEYS)
    assert run.wait() == 0, run.err
    assert "stop:   clawblox experiment stop experiments/memory\n" in run.out
    facts = json.loads(call("experiment", "status", "experiments/memory", "--json").out)
    assert facts["pid"] != os.getpid()
    second = call("experiment", "resume", "experiments/memory", env=KEYS)
    assert second.wait() == 1
    assert "runs the experiment in" in second.err
    stop = call("experiment", "stop", "experiments/memory", "r1")
    assert (stop.wait(), stop.out) == (0, "r1: stopped\n")
    chains = read_experiment("experiments/memory").state.chains
    assert [list(chain.attempts)[-1].outcome for chain in chains.values()] == ["paused", None]
    fork = call("experiment", "fork", "experiments/memory", "r1", "-n", "2", "--parallel", "1")
    # Written by the process in the background.
    assert (fork.wait(), fork.out) == (0, "r1-f1-1\nr1-f1-2\n")
    stop = call("experiment", "stop", "experiments/memory", "--now")
    assert (stop.wait(), stop.out) == (0, "experiments/memory: stopped\n")
    assert_nothing_runs()


@pytest.mark.thorough
def test_agent_reason_is_its_used_up_budget_after_the_save_prompt(plan: Path, call: Start) -> None:
    text = plan.read_text().replace('duration = "1s"', 'duration = "60s"')
    plan.write_text(f"{text}budget = {{ turns = 1 }}\n")
    run = call("experiment", "run", "exp.toml", env=KEYS)
    assert run.wait() == 0, run.out + run.err
    shown = call("ps", "experiments/memory", "--all").out
    assert "budget of 1 turn used up" in shown
    assert "stopped on request" not in shown
    assert_nothing_runs()
