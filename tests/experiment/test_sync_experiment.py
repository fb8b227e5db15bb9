"""Experiments without ``await``: the same API, plain functions as hooks, and Ctrl-C."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from clawblox import AsyncExperiment, Experiment, ExperimentEvent, GenerationEnd, Row
from clawblox.errors import ConfigError, RunLockedError
from tests.experiment.real.trials import KEYS, Trial
from tests.support.waiting import HANG_S, wait_until

ROOT = Path(__file__).parents[2]

RETURNS_OTHERWISE = {
    "run": ("ExperimentRun", "RunOutcome"),
    "events": ("Subscription[ExperimentEvent]", "Stream[ExperimentEvent]"),
}

SCRIPT = """
import sys
from pathlib import Path
from clawblox import Experiment, Plan
root = Path(sys.argv[1])
print(Experiment(Plan.load(root / "plan.toml"), dir=root / "exp").run().status)
"""


def public_members(of: type) -> dict[str, object]:
    return {name: getattr(of, name) for name in dir(of) if not name.startswith("_")}


def test_both_classes_have_the_same_documented_members() -> None:
    ours, theirs = public_members(Experiment), public_members(AsyncExperiment)
    assert ours.keys() - {"close"} == theirs.keys()  # an async experiment is closed by its block
    assert all(map(inspect.getdoc, ours.values()))


def test_both_classes_take_the_same_arguments() -> None:
    assert inspect.signature(Experiment) == inspect.signature(AsyncExperiment)
    assert inspect.signature(Experiment.open) == inspect.signature(AsyncExperiment.open)
    for name, method in public_members(AsyncExperiment).items():
        if inspect.isfunction(method):
            expected, found = (
                inspect.signature(method),
                inspect.signature(getattr(Experiment, name)),
            )
            assert found.parameters == expected.parameters, name
            same = (expected.return_annotation,) * 2
            returned = expected.return_annotation, found.return_annotation
            assert returned == RETURNS_OTHERWISE.get(name, same), name


def test_open_continues_with_every_argument_of_the_constructor() -> None:
    ours = inspect.signature(AsyncExperiment.open).parameters
    theirs = inspect.signature(AsyncExperiment).parameters
    assert ours.keys() - {"dir"} == theirs.keys() - {"plan", "dir"}
    with pytest.raises(TypeError, match=r"Experiment\.open\(\) got an unexpected .*'scores'"):
        Experiment.open("exp", scores=None)  # type: ignore[call-arg]


class Hooks:
    """Hooks that are plain functions, with the threads in which they were called."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.rows: list[int] = []
        self.threads: set[threading.Thread] = set()

    def on_event(self, event: ExperimentEvent) -> None:
        self.threads.add(threading.current_thread())
        self.events.append(event.kind)

    def on_generation_end(self, row: Row) -> None:
        self.threads.add(threading.current_thread())
        self.rows.append(row.generation)

    def stop(self, generation: GenerationEnd) -> str | None:
        self.threads.add(threading.current_thread())
        return "enough" if min(agent.usage.turns for agent in generation.agents) else None

    def score(self, end: GenerationEnd) -> float:
        return float(end.observe("Moa")["counter"])


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def trial(keys: None, tmp_path: Path) -> Trial:
    return Trial.make(tmp_path, agents=["Eko", "Moa"], generations=1)


def test_a_script_runs_forks_and_scores_an_experiment_with_plain_functions(trial: Trial) -> None:
    hooks = Hooks()
    options: dict[str, Any] = {
        "stop": hooks.stop,
        "score": hooks.score,
        "on_event": hooks.on_event,
        "on_generation_end": hooks.on_generation_end,
    }
    experiment = Experiment(trial.plan, dir=trial.directory, **options)
    assert (experiment.dir, experiment.plan.name) == (trial.directory, "exp")
    with experiment.events() as events:
        outcome = experiment.run()
        assert next(events).kind == "experiment.started"
    assert (outcome.status, [row.generation for row in outcome.rows]) == ("done", [1])
    assert experiment.status().counts["committed"] == 1
    assert hooks.rows == [1]
    assert {"experiment.started", "generation.committed"} <= set(hooks.events)
    assert threading.main_thread() not in hooks.threads
    assert {thread.name for thread in hooks.threads}.isdisjoint({"clawblox-portal"})
    with pytest.raises(RunLockedError):
        Experiment.open(trial.directory).status()
    source = experiment.find_checkpoint("r1/g001", at="boundary")
    names = experiment.fork(source, prompts=("A storm is coming.",))
    assert experiment.run().status == "done"
    scored = experiment.rescore(lambda _end: 7.0)
    assert [(row.chain, row.scores["score"]) for row in scored] == [("r1", 7.0), (names[0], 7.0)]
    assert experiment.results().rows() == experiment.record.results().rows() == scored
    experiment.close()
    with Experiment.open(trial.directory) as again:
        assert again.run().rows == ()
        with pytest.raises(ConfigError, match="there is no such chain"):
            again.pause(["r9"])


def run_script(trial: Trial, *, until: str) -> subprocess.Popen[str]:
    """Start a script that runs the experiment; return once its journal has a line of a type."""
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(trial.root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: until in [line.type for line in trial.lines])
    return script


@pytest.mark.thorough
def test_ctrl_c_saves_and_stops_and_the_same_script_continues(trial: Trial) -> None:
    script = run_script(trial, until="checkpoint")
    script.send_signal(signal.SIGINT)
    _, errors = script.communicate(timeout=HANG_S)
    assert script.returncode == -signal.SIGINT, errors
    trial.wait_for_silence()
    (attempt,) = trial.attempts("r1", 1)
    assert (attempt.outcome, attempt.checkpoints[-1].kind) == ("paused", "pause")
    assert trial.lines[-1].data["reason"] == "stopped"
    trial.close(1)
    with Experiment.open(trial.directory, stop=Hooks().stop) as experiment:
        assert experiment.run().status == "done"
    assert len(trial.attempts("r1", 1)) == 2


def test_further_ctrl_c_ends_everything_without_a_checkpoint(keys: None, tmp_path: Path) -> None:
    endless = {"checkpoint": {"idle_wait": 600.0}, "faults": {"turn_s": 600.0}}
    trial = Trial.make(tmp_path, agents=["Eko"], generations=1, **endless)
    script = run_script(trial, until="working")

    def interrupted_again() -> bool:
        if script.poll() is None:
            script.send_signal(signal.SIGINT)
        return script.poll() is not None

    wait_until(interrupted_again)
    script.communicate(timeout=HANG_S)
    trial.wait_for_silence()
    (attempt,) = trial.attempts("r1", 1)
    assert not attempt.checkpoints
    assert trial.lines[-1].type in ("session.ended", "interrupted", "working")
