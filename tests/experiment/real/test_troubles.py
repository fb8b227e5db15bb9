"""Ends and pauses of generations with real worlds and programs, and their continuations."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.experiment.history.journal import read_lines
from tests.experiment.real.trials import ACT, SAVE, Trial
from tests.support.sockets import stranger_on

pytestmark = pytest.mark.needs("curl")


def make_trial(root: Path, turns: int = 5, **changes: Any) -> Trial:
    """Make a trial with one agent and one generation that closes after a number of turns."""
    trial = Trial.make(root, **{"agents": ["Eko"], "generations": 1, **changes})
    trial.close(1, turns)
    return trial


def types(trial: Trial) -> list[str]:
    return [line.type for line in trial.lines if line.chain is not None]


@pytest.mark.thorough
def test_a_generation_waits_for_the_end_of_a_usage_limit_and_continues(tmp_path: Path) -> None:
    limit = {"after": 2, "times": 1, "resets_in": 5}
    trial = make_trial(tmp_path, faults={"usage_limit": limit})
    assert trial.run() == (0, {"status": "done", "text": ""})
    paused, committed = trial.attempts("r1", 1)
    assert paused.ending is not None
    assert (paused.outcome, paused.ending.data["reason"]) == ("paused", "limit")
    assert paused.ending.data["until"]
    assert committed.origin == paused.checkpoints[-1].ref
    assert paused.checkpoints[-1].kind == "pause"
    assert (
        paused.working["agents"][0]["conversation"]
        == (committed.working["agents"][0]["conversation"])
    )
    (messages,) = trial.messages(committed)
    assert (messages[0], messages[-1]) == (f"Begin\n{ACT}", SAVE)


@pytest.mark.thorough
def test_limit_that_lasts_too_long_ends_the_run_with_a_pause(tmp_path: Path) -> None:
    limit = {"after": 2, "times": 1, "resets_at": int(time.time()) + 3600}
    trial = make_trial(
        tmp_path, faults={"usage_limit": limit}, retry={"delay": 0.0, "longest_pause": 0.1}
    )
    status, said = trial.run()
    assert (status, said["status"]) == (75, "paused")
    assert "limited" in said["text"]


@pytest.mark.thorough
def test_expired_login_pauses_the_experiment_until_the_next_run(
    tmp_path: Path,
) -> None:
    expired = {"after": 2, "times": 1, "status": 401}
    trial = make_trial(tmp_path, faults={"api_error": expired})
    status, said = trial.run()
    assert (status, said["status"]) == (75, "paused")
    assert "login" in said["text"]
    assert trial.run() == (0, {"status": "done", "text": ""})
    (messages,) = trial.messages(trial.attempts("r1", 1)[-1])
    assert (messages[0], messages[-1]) == (f"Begin\n{ACT}", SAVE)


@pytest.mark.thorough
def test_a_program_that_crashed_continues_its_conversation_in_the_same_attempt(
    tmp_path: Path,
) -> None:
    trial = make_trial(tmp_path, faults={"crash_at_turn": {"after": 2, "times": 1, "signal": 9}})
    assert trial.run() == (0, {"status": "done", "text": ""})
    (attempt,) = trial.attempts("r1", 1)
    (messages,) = trial.messages(attempt)
    assert messages[0] == f"Begin\n{ACT}"
    assert AUTO_CONTINUE in messages


@pytest.mark.thorough
def test_an_agent_that_cannot_work_fails_its_chain_and_leaves_its_files(tmp_path: Path) -> None:
    trial = make_trial(
        tmp_path,
        agents=["Moa"],
        faults={"api_error": {"after": 1, "status": 400}},
        retry={"delay": 0.0, "attempts": 1},
    )
    status, said = trial.run()
    assert (status, said["status"]) == (1, "failed")
    assert "Moa" in said["text"]
    for attempt in trial.attempts("r1", 1):
        assert attempt.ending is not None
        assert attempt.ending.data["cause"] == "agent"
        runs = trial.chain_dir("r1") / "runs"
        assert not (runs / attempt.attempt_id).exists()
        assert (runs / attempt.ending.data["moved_to"] / "agents").is_dir()


@pytest.mark.thorough
def test_a_key_in_a_workspace_pauses_its_chain_and_is_never_archived(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, checkpoint={"every": 0.1, "idle_quiet": 0.0, "idle_wait": 10.0})
    trial = trial.with_prompt("Begin\nRUN printenv ANTHROPIC_API_KEY > key.txt")
    status, said = trial.run()
    assert (status, said["status"]) == (75, "paused")
    assert "key.txt" in said["text"]
    assert set(types(trial)) == {"opened", "prepared", "working", "checkpoint.failed", "paused"}
    assert {line.data["secret"] for line in trial.lines if line.type == "checkpoint.failed"} == {
        True
    }
    assert not list(trial.directory.rglob("*.ckpt"))


@pytest.mark.thorough
def test_no_attempt_starts_while_the_disk_is_too_full(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, limits={"min_free": 1 << 60})
    status, said = trial.run()
    assert (status, said["status"]) == (75, "paused")
    assert "GB are free" in said["text"]
    assert "working" not in types(trial)


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
def test_full_disk_ends_worlds_and_agents_and_pauses_the_run(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, turns=20)
    trial = trial.with_prompt("Begin\nRUN head -c 40M /dev/zero > ../../../big; true")
    trial.directory.mkdir()
    small = ["bwrap", "--dev-bind", "/", "/", "--size", "16000000", "--tmpfs", trial.directory]
    keep = ["sh", "-c", '"$@"; status=$?; cp "$0/exp/journal.jsonl" "$0"; exit $status', tmp_path]
    status, said = trial.run(wrapper=[*map(str, small), *map(str, keep)])
    assert (status, said["status"]) == (75, "paused")
    assert "disk is full" in said["text"]
    lines = read_lines(tmp_path)  # the small disk is gone with the program
    assert [line.type for line in lines][-2:] == ["paused", "session.ended"]
    assert lines[-2].data["reason"] == "disk"


@pytest.mark.thorough
def test_attempt_that_finds_its_address_in_use_keeps_the_latest_checkpoint(
    tmp_path: Path,
) -> None:
    trial = make_trial(tmp_path, turns=20, retry={"delay": 0.0, "attempts": 2})
    trial.run("after checkpoint")
    working = next(line for line in trial.lines if line.type == "working")
    port = int(working.data["agents"][0]["base_url"].rpartition(":")[2])
    with stranger_on(port):
        status, said = trial.run()
    assert (status, said["status"]) == (1, "failed")
    assert str(port) in said["text"]
    killed, *failed = trial.attempts("r1", 1)
    assert len(failed) == 3
    for attempt in failed:
        assert attempt.ending is not None
        assert attempt.ending.data["cause"] == "address"
        assert attempt.origin == killed.checkpoints[-1].ref


# -- hostile agents -------------------------------------------------------------------------------


HOSTILE = """Begin
RUN test -e notes.md || { ln -s /etc/passwd stolen; ln -s ../../../.. up; mkfifo pipe; \
mkdir .claude; echo '{"hooks": {}}' > .claude/settings.json; echo '{}' > .mcp.json; \
echo remember > notes.md; ln -s notes.md inside; }"""
"""Leaves traps in a new workspace."""

TRAPS = {"stolen", "up", "pipe", ".mcp.json"}


@pytest.mark.thorough
def test_a_workspace_with_traps_is_inherited_without_them(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, turns=1, generations=2).with_prompt(HOSTILE)
    trial.close(2, 1)
    assert trial.run() == (0, {"status": "done", "text": ""})
    first, second = (
        trial.directory / str(row.workspace_out) for row in trial.record.results().agents()
    )
    left, inherited = ({path.name for path in place.iterdir()} for place in (first, second))
    assert left > TRAPS
    assert inherited == left - TRAPS
    assert not any((second / ".claude").iterdir())
    assert (second / "inside").read_text() == "remember\n"


@pytest.mark.thorough
def test_lines_of_a_megabyte_are_harmless(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, turns=2, faults={"oversize": 1 << 20})
    assert trial.run() == (0, {"status": "done", "text": ""})


RENAMES = {
    "session": ("mv ../session ../elsewhere", 1, "has no transcript"),
    "logs": ("mv ../logs ../elsewhere", 0, ""),
    "workspace": ("mv ../workspace ../elsewhere", 75, "the workspace of Eko"),
    "agent": ("cd ../..; mv Eko* elsewhere", 1, "has no transcript"),
    "link": ("mv ../session ../elsewhere; ln -s elsewhere ../session", 75, "cannot be read"),
}
"""Command of an agent on its own directory, the exit status, and a part of the message."""


@pytest.mark.thorough
@pytest.mark.parametrize("rename", RENAMES.values(), ids=RENAMES.keys())
def test_an_agent_that_renames_its_directories_ends_its_own_attempt_with_a_reason(
    tmp_path: Path, rename: tuple[str, int, str]
) -> None:
    command, expected, part = rename
    trial = make_trial(tmp_path, turns=2, retry={"delay": 0.0, "attempts": 0})
    status, said = trial.with_prompt(f"Begin\nRUN {command}").run()
    assert status == expected
    assert part in said["text"]
    assert "defect" not in {line.data.get("cause") for line in trial.lines}


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["rm {0}", "rm -r {1}", "cp {0} {0}.new; mv {0}.new {0}"])
def test_lost_journal_ends_worlds_and_agents_until_a_person_continues(
    tmp_path: Path, command: str
) -> None:
    trial = make_trial(tmp_path)
    journal, flag = trial.directory / "journal.jsonl", tmp_path / "was-here"
    taken = command.format(journal, trial.directory)
    trial = trial.with_prompt(f"Begin\nRUN [ -e {flag} ] || {{ touch {flag}; {taken}; }}")
    assert trial.run() == (1, {})  # and all its processes have ended
    (kept,) = trial.directory.glob("journal.lost-*.jsonl")
    assert trial.run() == (1, {})
    if (trial.directory / "plan.toml").exists():
        kept.rename(journal)
        assert trial.run() == (0, {"status": "done", "text": ""})
