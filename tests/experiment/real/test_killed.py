"""The orchestrator of two worlds with two agents each is killed in the middle of a generation."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

import attrs
import pytest

from clawblox import load_checkpoint
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.experiment.history.state import AttemptState
from tests.agents.standins import USAGE, told
from tests.experiment.harness.scripts import COLUMNS
from tests.experiment.real.trials import ACT, AGENTS, KEYS, SAVE, Trial, count_answers
from tests.support.files import read_all
from tests.support.processes import processes_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.needs("curl")

CHAINS = ("r1", "r2")


@attrs.frozen
class Killed:
    """An experiment that was killed in its second generation and run again.

    Attributes:
        trial: The experiment.
        before: The killed attempts at the second generation, by chain.
        again: Exit status and output of the last run of the program.
    """

    trial: Trial
    before: dict[str, AttemptState]
    again: tuple[int, dict[str, object]]

    def after(self, chain: str) -> AttemptState:
        """Return the attempt that continued."""
        return self.trial.attempts(chain, 2)[-1]


def kill_and_continue(root: Path) -> Killed:
    trial = Trial.make(root, repeats=2)
    trial.close(1)
    program = trial.start()
    wait_until(lambda: all(len(saves(trial, chain)) >= 2 for chain in CHAINS))
    trial.kill(program)
    before = {chain: trial.attempts(chain, 2)[0] for chain in CHAINS}
    trial.close(2)
    return Killed(trial, before, trial.run())


def saves(trial: Trial, chain: str) -> list[int]:
    """Return the numbers of the checkpoints in the second generation of a chain."""
    return [
        line.seq
        for line in trial.lines
        if (line.type, line.chain, line.generation) == ("checkpoint", chain, 2)
    ]


@pytest.mark.thorough
def test_the_same_program_continues_an_experiment_that_was_killed_in_a_generation(
    tmp_path: Path,
) -> None:
    # A single test covers all of this, since workers share no fixture, and it takes seconds.
    killed = kill_and_continue(tmp_path)
    assert killed.again == (0, {"status": "done", "text": ""})
    for chain in CHAINS:
        check_players(killed, chain)
        check_transcripts(killed, chain, tmp_path / f"loaded-{chain}")
        check_commits(killed, chain)
        check_table(killed, chain)
    check_results(killed)
    check_processes(killed)
    check_keys(killed)


def check_players(killed: Killed, chain: str) -> None:
    """The agents continue as the same players, in the same conversations."""
    before, after = killed.before[chain], killed.after(chain)
    assert after.origin == before.checkpoints[-1].ref
    for old, new in zip(before.working["agents"], after.working["agents"], strict=True):
        for same in ("name", "session", "conversation", "base_url"):
            assert old[same] == new[same]


def check_transcripts(killed: Killed, chain: str, loaded: Path) -> None:
    """The transcripts at the checkpoint are the beginnings of those at the end."""
    trial, after = killed.trial, killed.after(chain)
    checkpoint = killed.before[chain].checkpoints[-1]
    load_checkpoint(trial.archive(checkpoint), loaded)
    agents = after.working["agents"]
    saved = trial.transcripts_in(loaded, agents)
    assert checkpoint.mid_turn == ()
    assert [usage.turns for usage in checkpoint.usage] == list(map(count_answers, saved))
    for early, late in zip(saved, trial.transcripts(after), strict=True):
        beginning = told(early)
        assert len(beginning) >= 2
        messages = told(late)
        assert messages[: len(beginning) + 1] == [*beginning, AUTO_CONTINUE]
        assert messages[0] == f"Begin\n{ACT}"
        assert messages.count(SAVE) == 1
        assert messages[-1] == SAVE


def check_commits(killed: Killed, chain: str) -> None:
    """Each generation is committed once, with the workspaces of one history."""
    trial = killed.trial
    committed = Counter(
        line.generation for line in trial.lines if (line.type, line.chain) == ("committed", chain)
    )
    assert committed == {1: 1, 2: 1}
    assert [a.outcome for a in trial.attempts(chain, 2)] == ["interrupted", "committed"]
    for number in (1, 2):
        attempt = trial.attempts(chain, number)[-1]
        assert attempt.ending is not None
        for place in attempt.ending.data["workspaces"]:
            saves = (trial.chain_dir(chain) / place / "saves.txt").read_text()
            assert saves == "saved\n" * number


def check_table(killed: Killed, chain: str) -> None:
    """The table of generations has the format of the public scripts."""
    trial, directory = killed.trial, killed.trial.chain_dir(chain)
    text = (directory / "generation_chain.csv").read_text()
    assert text.startswith(",".join(COLUMNS) + "\n")
    assert "\r" not in text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["generation"], row["agent_index"]) for row in rows] == [
        ("1", "0"),
        ("1", "1"),
        ("2", "0"),
        ("2", "1"),
    ]
    assert [row["duration_seconds"] for row in rows] == ["600"] * 4
    archive = trial.archive(killed.before[chain].checkpoints[-1])
    for row in rows:
        attempt = trial.attempts(chain, int(row["generation"]))[-1]
        name = attempt.working["agents"][int(row["agent_index"])]["name"]
        assert (row["agent_name"], row["run_id"]) == (name, attempt.attempt_id)
        workspace = directory / "runs" / attempt.attempt_id / "agents" / name / "workspace"
        assert row["workspace_out"] == str(workspace)
        assert workspace.is_dir()
        assert row["start_utc"] <= row["end_utc"]
    assert {row["template_in"] for row in rows[2:]} == {f"checkpoint:{archive}"}


def check_results(
    killed: Killed,
) -> None:
    """The results count each generation once, and its usage as the transcripts do."""
    trial = killed.trial
    rows = trial.record.results().rows()
    assert [
        (row.chain, row.generation, row.status, row.ended_by, row.attempts) for row in rows
    ] == [
        (chain, number, "committed", "stop: enough", number)
        for chain in CHAINS
        for number in (1, 2)
    ]
    written = list(csv.DictReader(io.StringIO((trial.directory / "results.csv").read_text())))
    assert [row["turns"] for row in written] == [str(row.turns) for row in rows]
    for row in rows:
        attempt = trial.attempts(row.chain, row.generation)[-1]
        answers = sum(map(count_answers, trial.transcripts(attempt)))
        assert answers - len(AGENTS) <= row.turns <= answers  # the last ones were cut off
        assert row.output_tokens >= USAGE["output"] * row.turns
        assert row.scores == {"counter": pytest.approx((row.world_time or 0.0) * 2)}
        spent = [attempt.spent for attempt in trial.attempts(row.chain, row.generation)]
        assert row.spent_tokens == sum(usage.tokens for usages in spent for usage in usages)
        assert row.run_dir == str(trial.run_dir(attempt).relative_to(trial.directory))
    for agent in trial.record.results().agents():
        assert agent.program_version


def check_processes(killed: Killed) -> None:
    """No process is left running, and no chain had two worlds at the same time."""
    assert not processes_in(killed.trial.root)
    for chain in CHAINS:
        place = killed.trial.chain_dir(chain)
        assert (place / "alive").exists()
        assert not (place / "alive-twice").exists()


def check_keys(killed: Killed) -> None:
    """No key is written anywhere, although every agent is given a key by name."""
    names = {name for spec in killed.trial.plan.agents for name in spec.env}
    assert names == KEYS.keys()
    keys = [key.encode() for key in KEYS.values()]
    for path, content in read_all(killed.trial.root):
        assert not any(key in content for key in keys), path
