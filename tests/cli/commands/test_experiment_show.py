"""``clawblox experiment show`` and ``logs``: what happened in a generation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from clawblox.experiment import Experiment, Plan
from clawblox.experiment.history.journal import JOURNAL_NAME
from tests.cli.commands.test_experiment import KEYS, refuse, write_plan
from tests.cli.conftest import Start
from tests.golden.test_golden_experiments import V1

EXPERIMENT = "experiments/memory"
RUN = f"{EXPERIMENT}/chains/r1/runs/memory-r1-g001"
AGENT = f"{RUN}/agents/Eko-rmemory-r1-g001-w0-a0"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an experiment of one generation, played by a stand-in for an agent."""
    root = tmp_path_factory.mktemp("played")
    plan = Plan.load(write_plan(root))
    with Experiment(plan, dir=root / EXPERIMENT, env=KEYS) as experiment:
        assert experiment.run().status == "done"
    return root / EXPERIMENT


@pytest.fixture
def ended(played: Path) -> Path:
    """Return a copy of the experiment with files that a test may change."""
    ignore = shutil.ignore_patterns("*.sock")
    return Path(shutil.copytree(played, EXPERIMENT, symlinks=True, ignore=ignore))


@pytest.fixture
def recorded() -> Path:
    """Return an experiment with retries, pauses and branches, but without its runs."""
    return Path(shutil.copytree(V1, "exp"))


def test_show_names_the_node_of_a_generation(recorded: Path, call: Start) -> None:
    assert "\nnode " not in call("experiment", "show", str(recorded), "r1/g001").out
    journal = recorded / JOURNAL_NAME
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    host = {"node": "gpu-7", "lease_s": 30.0, "bound_s": 31.0}
    for line in lines:
        if line["type"] == "opened":
            line["data"] |= {"host": host, "differs": "libc: b, before a"}
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = call("experiment", "show", str(recorded), "r1/g001").out.splitlines()
    (node,) = (line.split(maxsplit=1)[1] for line in shown if line.startswith("node "))
    assert node.startswith("gpu-7, on another libc: b, before a")


def test_show_lists_the_actions_and_files_of_the_agent(ended: Path, call: Start) -> None:
    shown = call("experiment", "show", "r1/g001")
    assert shown.wait() == 0, shown.err
    assert shown.err == f"Experiment: {EXPERIMENT}\n"
    facts = dict(line.split(maxsplit=1) for line in shown.out.partition("\n\n")[0].splitlines())
    assert facts["generation"] == "r1, generation 1"
    assert facts["status"].startswith("committed: ")
    assert facts["run"] == RUN
    assert facts["archive"].startswith(f"{RUN}/checkpoints/gen001-")
    assert facts["logs"] == f"{RUN}/logs"
    agent, place, *activity = shown.out.partition("\n\n")[2].splitlines()
    assert agent.startswith("Eko (claude claude-fable-5 ")
    assert " turn" in agent
    assert place.strip() == f"in {AGENT}"
    assert any(line.startswith("  > Save.") for line in activity)
    assert any(line.startswith("  | ") for line in activity)
    few = call("experiment", "show", EXPERIMENT, "r1", "-n", "3").out
    assert few.splitlines()[-3:] == shown.out.splitlines()[-3:]
    assert len(few.splitlines()) == len(shown.out.splitlines()) - len(activity) + 3
    document = json.loads(call("experiment", "show", str(ended), "r1/1", "--json").out)
    assert document["row"]["status"] == "committed"
    assert document["run_dir"] == str(Path(RUN).absolute())
    assert document["agents"][0]["directory"] == str(Path(AGENT).absolute())
    assert document["agents"][0]["activity"][-1] == activity[-1][2:]
    assert document["agents"][0]["row"]["workspace_out"].endswith("/workspace")


def test_generation_logs_show_the_world_log_with_the_options_of_logs(
    ended: Path, call: Start
) -> None:
    whole = call("logs", RUN)
    assert whole.out
    shown = call("experiment", "logs", str(ended), "r1/g001")
    assert (shown.wait(), shown.err, shown.out) == (0, "", whole.out)
    last = call("experiment", "logs", "r1", "-n", "1", "--json")
    assert json.loads(last.out) == json.loads(call("logs", RUN, "-n", "1", "--json").out)


def test_show_lists_attempts_with_outcomes_and_places(recorded: Path, call: Start) -> None:
    shown = call("experiment", "show", str(recorded), "r1/g001")
    assert shown.wait() == 0, shown.err
    heading, failed, committed, *_ = shown.out.partition("ATTEMPT")[2].splitlines()
    assert heading.split() == ["OUTCOME", "ACTIVE", "REASON", "RUN"]
    assert failed.split()[:3] == ["1", "failed", "15m"]
    assert "world" in failed
    assert ".failed-" in failed
    assert committed.split()[:2] == ["2", "committed"]
    assert "scores" in shown.out
    assert "ATTEMPT" not in call("experiment", "show", str(recorded), "r1-f1-1").out


def test_logs_of_a_removed_run_are_an_error(recorded: Path, call: Start) -> None:
    logs = call("experiment", "logs", str(recorded), "r1/g001")
    assert logs.wait() == 1
    assert "does not exist" in logs.err


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("r11/g001", ["there is no such chain", "did you mean r1?"]),
        ("r1-f1-3", ["there is no such chain", "did you mean r1-f1-"]),
        ("qqqqqq", ["there is no such chain", "the chains: r1, r2, r1-f1-1, r1-f1-2"]),
        ("r1/g009", ["r1 has no such generation", "its generations: 1, 2, 3"]),
        ("r1/g001@20m", ["must be a chain and a generation, such as r2/g003"]),
        ("", ["must be a chain and a generation, such as r2/g003"]),
        ("../r1", ["must be a chain and a generation, such as r2/g003"]),
    ],
)
@pytest.mark.parametrize("name", ["show", "logs"])
def test_an_unknown_generation_is_an_error_that_names_similar_ones(
    name: str, place: str, words: list[str], recorded: Path, call: Start
) -> None:
    error = refuse(call, name, str(recorded), place)
    assert error.startswith("CHAIN/gNNN: ")
    assert all(word in error for word in words), error


def test_chain_that_has_not_started_has_no_generation_to_show(recorded: Path, call: Start) -> None:
    journal = recorded / JOURNAL_NAME
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    assert "has not started" in refuse(call, "show", str(recorded), "r2")


@pytest.mark.parametrize("words", [(), ("exp", "r1", "g001")])
def test_show_with_other_words_asks_for_a_generation(
    words: tuple[str, ...], recorded: Path, call: Start
) -> None:
    assert recorded.is_dir()
    command = call("experiment", "show", *words)
    assert command.wait() == 2
    assert "Give a generation, such as r2/g003" in command.err


def test_links_in_an_experiment_are_not_followed(ended: Path, call: Start) -> None:
    for place in (AGENT + "/logs", AGENT, RUN + "/agents", RUN):
        Path(place).rename("elsewhere")
        Path(place).symlink_to(Path("elsewhere").absolute())
        shown = call("experiment", "show", str(ended), "r1/g001")
        assert "> Save." not in shown.out
        assert "must not be a symbolic link" in shown.out + shown.err, place
        if place == RUN:
            logs = call("experiment", "logs", str(ended), "r1/g001")
            assert (logs.wait(), logs.out) == (1, "")
        Path(place).unlink()
        Path("elsewhere").rename(place)


def test_show_names_a_missing_conversation_and_shows_the_rest(ended: Path, call: Start) -> None:
    shutil.rmtree(AGENT)
    shown = call("experiment", "show", str(ended), "r1/g001")
    assert shown.wait() == 0, shown.err
    assert "its actions cannot be read: " in shown.out
    assert ["run", RUN] in map(str.split, shown.out.splitlines())
