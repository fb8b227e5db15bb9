"""Recordings of an experiment are verified together: attempts, generations and branches."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox import AsyncWorld
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError, UsageError
from clawblox.experiment import Condition, LiveGeneration, read_experiment
from clawblox.experiment.layout import archive_path
from clawblox.experiment.running.rescoring import find_end
from clawblox.replay import VerifiedReplay, VerifiedRun
from clawblox.replay.kept_verification import (
    keep_verification,
    read_verification,
)
from clawblox.views.verified_runs import format_attempts
from tests.recording.files import Records, content, rewrite
from tests.replay.lives import dice_world, first_input, play, verified
from tests.replay.test_bad_replays import saying
from tests.replay.trials import CHAIN, KEYS, bets, ran_trial
from tests.support.processes import processes_in
from tests.support.sampling import sampled
from tests.world.test_private_copies_check import make_repository, make_silent_repository

pytestmark = pytest.mark.needs("curl")

BRANCH = f"{CHAIN}-f1-1"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment: a retried attempt, a generation in the world of the one before, a branch."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        return ran_trial(
            tmp_path_factory.mktemp("trial"),
            prompts=[None, "Try more."],
            generations=2,
            inherit={"world": True},
            world_env={"PACE": "quick"},
        )


@pytest.fixture(scope="module")
def whole(trial: Path) -> VerifiedRun:
    """The results of the whole experiment."""
    return verified(trial)


def find(run: VerifiedRun, chain: str, generation: int = 1, number: int = 1) -> VerifiedReplay:
    return next(
        replay
        for replay in run.replays
        if replay.attempt is not None
        and (replay.attempt.chain, replay.attempt.generation, replay.attempt.number)
        == (chain, generation, number)
    )


def copied(trial: Path, target: Path) -> Path:
    """Copy an experiment; sockets cannot be copied."""
    return shutil.copytree(trial, target, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))


def linked(replay: VerifiedReplay) -> tuple[str, str, int, int] | None:
    """Return the kind of a link, and the chain, generation and number that it leads to."""
    link = replay.link
    if link is None or link.attempt is None:
        return None
    return link.kind, link.attempt.chain, link.attempt.generation, link.attempt.number


def forged(
    trial: Path, target: Path, replay: VerifiedReplay, edit: Callable[[Records], Records]
) -> Path:
    """Copy an experiment with one changed recording."""
    copy = copied(trial, target)
    path = copy / replay.recording.relative_to(trial)
    path.unlink()
    rewrite(replay.recording, path, edit)
    manifest = path.parents[1] / ".clawblox" / "manifest.json"
    document = json.loads(manifest.read_text())
    (entry,) = document["recordings"]
    if "sha256" in entry:  # who can change the one can change the other
        entry |= content(path)
        manifest.write_text(json.dumps(document))
    return copy


def test_attempts_generations_and_branches_are_one_history(whole: VerifiedRun) -> None:
    assert whole.exit_status == 0
    assert [replay.attempt and replay.attempt.outcome for replay in whole.replays] == [
        "failed",
        *["committed"] * 4,
    ]
    failed, retried = find(whole, CHAIN), find(whole, CHAIN, number=2)
    assert failed.link is None
    assert failed.progress.has_begun_again
    assert not failed.progress.is_complete
    assert linked(retried) == ("continues", CHAIN, 1, 1)
    assert linked(find(whole, CHAIN, 2)) == ("continues", CHAIN, 1, 2)
    # Both branches have the same state, and not one of them continues the other.
    for branch in (BRANCH, f"{CHAIN}-f1-2"):
        assert linked(find(whole, branch)) == ("continues", CHAIN, 1, 2)
    saves = {replay.link.save for replay in whole.replays if replay.link}
    assert all(len(save) == 64 for save in saves)


def test_the_table_names_every_attempt_and_what_it_continues(whole: VerifiedRun) -> None:
    table = format_attempts(whole)
    heading, failed, retried, second, branch, other = map(str.split, table.splitlines())
    assert heading == ["CHAIN", "GEN", "ATTEMPT", "RECORDING", "OUTCOME", "LINK"]
    assert failed[:5] == [CHAIN, "1", "1", "failed", "1"]
    assert failed[-3:] == ["cut", "(killed)", "fresh"]
    assert " ".join(retried[5:-1]) == "equal continues g001, attempt 1 at tick"
    assert " ".join(second[5:-1]) == "equal continues g001, attempt 2 at tick"
    assert " ".join(branch[5:-1]) == f"equal continues {CHAIN}/g001, attempt 2 at tick"
    assert other[0] == f"{CHAIN}-f1-2"
    document = json.loads(json.dumps(whole.document()))
    assert document["equal"] is True
    names = [recording["attempt"]["name"] for recording in document["recordings"]]
    assert names[0] == f"exp-{CHAIN}-g001"
    assert names[1].startswith(f"exp-{CHAIN}-g001-r")
    assert document["recordings"][1]["link"]["attempt"]["name"] == names[0]


def test_the_results_of_an_experiment_lie_in_its_directory(
    trial: Path, whole: VerifiedRun, tmp_path: Path
) -> None:
    copy = copied(trial, tmp_path / "copy")
    replays = [
        attrs.evolve(replay, recording=copy / replay.recording.relative_to(trial))
        for replay in whole.replays
    ]
    here = attrs.evolve(whole, replays=tuple(replays))
    keep_verification(copy, here, "0.1.0")
    kept = read_verification(copy)
    assert kept is not None
    assert format_attempts(kept.report) == format_attempts(whole)
    assert [replay.recording for replay in kept.report.replays] == [r.recording for r in replays]
    assert kept.find_changes() == ()
    replays[2].recording.unlink()
    assert kept.find_changes() == (str(replays[2].recording.relative_to(copy)),)


def bet_more(records: Records) -> Records:
    first_input(records, 0)["data"] = 4
    return records


@pytest.mark.thorough
def test_a_forged_recording_is_named(trial: Path, whole: VerifiedRun, tmp_path: Path) -> None:
    run = verified(forged(trial, tmp_path / "exp", find(whole, CHAIN, 2), bet_more))
    assert [replay.is_different for replay in run.replays] == [False, False, True, False, False]
    assert run.exit_status == 1
    table = format_attempts(run)
    assert f"{CHAIN}       2    1 committed  1          differs at tick " in table
    assert f"exp-{CHAIN}-g002, recording 1: differs at tick " in table


@pytest.mark.thorough
def test_link_to_a_forged_recording_of_a_killed_world_is_unknown(
    trial: Path, whole: VerifiedRun, tmp_path: Path
) -> None:
    run = verified(forged(trial, tmp_path / "exp", find(whole, CHAIN), bet_more))
    # No observation is on disk that shows the other bet, but the next attempt does.
    link = find(run, CHAIN, number=2).link
    assert link is not None
    assert link.kind == "unknown"
    assert "unknown: nothing was verified up to tick" in format_attempts(run)


@pytest.mark.thorough
def test_a_branch_whose_state_differs_from_its_source_is_named(
    trial: Path, whole: VerifiedRun, tmp_path: Path
) -> None:
    def edit(records: Records) -> Records:
        records[0][1]["snapshot"]["state"]["shown"] = 77
        return records[:1]

    run = verified(forged(trial, tmp_path / "exp", find(whole, BRANCH), edit))
    branch = find(run, BRANCH)
    assert linked(branch) == ("differs", CHAIN, 1, 2)
    assert run.exit_status == 1
    (row,) = [line for line in format_attempts(run).splitlines() if line.startswith(BRANCH)]
    assert f"differs from {CHAIN}/g001, attempt 2 at tick" in row
    assert "does not continue recording 1" in format_attempts(run)


@pytest.mark.thorough
def test_a_recording_that_was_cut_is_named(trial: Path, whole: VerifiedRun, tmp_path: Path) -> None:
    copy = copied(trial, tmp_path / "exp")
    path = copy / find(whole, CHAIN, 2).recording.relative_to(trial)
    os.truncate(path, path.stat().st_size - 1)
    run = verified(copy)
    cut = find(run, CHAIN, 2)
    assert (cut.damage, run.exit_status) == ("incomplete", 3)
    table = format_attempts(run)
    assert "incomplete: equal to tick " in table
    assert f"exp-{CHAIN}-g002, recording 1: incomplete, its file was cut" in table


def test_a_world_that_fakes_equality_is_reported_for_every_attempt(
    trial: Path, whole: VerifiedRun, tmp_path: Path
) -> None:
    world = saying(tmp_path, whole.replays[0].recording.parents[1])
    run = verified(trial, world_dir=world)
    assert run.exit_status == 3
    assert {replay.status for replay in run.replays} == {"impossible"}
    assert format_attempts(run).count("not verified") == len(run.replays)


@pytest.mark.thorough
def test_an_attempt_without_its_recording_is_named(
    trial: Path, whole: VerifiedRun, tmp_path: Path
) -> None:
    copy = copied(trial, tmp_path / "exp")
    second = find(whole, CHAIN, 2).recording.relative_to(trial)
    shutil.rmtree(copy / second.parents[1])
    (copy / find(whole, CHAIN).recording.relative_to(trial)).unlink()
    manifest = copy / find(whole, BRANCH).recording.relative_to(trial)
    manifest = manifest.parents[1] / ".clawblox" / "manifest.json"
    document = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**document, "recordings": []}))
    run = verified(copy)
    assert run.exit_status == 3
    reasons = {
        place: find(run, *place).progress.reason for place in [(CHAIN, 1), (CHAIN, 2), (BRANCH, 1)]
    }
    assert reasons[CHAIN, 2] == "its run directory is gone"
    assert reasons[BRANCH, 1] == "the attempt has no recording"
    assert "No such file" in reasons[CHAIN, 1]
    retried = find(run, CHAIN, number=2)
    assert retried.link is not None
    assert retried.link.kind == "unknown"  # nothing reaches its state any more
    table = format_attempts(run)
    assert table.count("not verified") == 3
    assert f"exp-{CHAIN}-g002, " in table


@pytest.mark.thorough
def test_an_experiment_is_verified_whole_and_by_worlds_outside_of_it(
    trial: Path, whole: VerifiedRun, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="give the run directory"):
        verified(trial, number=1)
    attempt = find(whole, CHAIN, 2).recording.parents[1]
    alone = verified(attempt, env={"PACE": "quick"}).replays
    assert [(replay.attempt, replay.link) for replay in alone] == [(None, None)]
    copy = copied(trial, tmp_path / "exp")
    world = shutil.copytree(trial.parent / "dice", copy / "dice")
    for journal in copy.glob("chains/*/runs/*/.clawblox/instances/records.jsonl"):
        journal.write_text(journal.read_text().replace(str(trial.parent / "dice"), str(world)))
    with pytest.raises(UsageError, match="is in the directory of the experiment"):
        verified(copy)
    assert verified(copy, world_dir=world).exit_status == 0


def test_a_plan_that_others_can_write_gives_no_values_to_a_world(
    trial: Path, tmp_path: Path
) -> None:
    copy = copied(trial, tmp_path / "exp")
    (copy / read_experiment(copy).state.plan_file).chmod(0o666)
    assert "PACE" not in os.environ
    with pytest.raises(Exception, match="no value for PACE"):
        verified(copy)


def test_a_fork_continues_the_recording_of_its_parent(tmp_path: Path) -> None:
    async def record() -> None:
        async with AsyncWorld(dir=dice_world(tmp_path), run_dir=tmp_path / "run") as world:
            (parent,) = await world.start_many(1, record=True)
            agent = await world.join("Ada", instance=parent.name)
            await play([agent], [("Bet", 3)], 4, 1)
            await world.fork(await world.save(instance=parent.name), record=True)

    anyio.run(record)
    run = verified(tmp_path / "run")
    assert [(replay.instance, replay.progress.outcome) for replay in run.replays] == [
        ("w000", "equal"),
        ("w001", "equal"),
    ]
    link = run.replays[1].link
    assert link is not None
    assert (link.kind, link.instance, link.number, len(link.save)) == ("continues", "w000", 1, 64)


# ------------------------------------------------------------------------------------ scores


@pytest.mark.thorough
def test_scores_are_computed_again_from_the_replayed_ends(trial: Path, tmp_path: Path) -> None:
    copy = copied(trial, tmp_path / "exp")
    before = (copy / "journal.jsonl").read_bytes()
    run = verified(copy, scores=True, score=bets)
    assert run.exit_status == 0
    assert [(score.chain, score.generation, score.reason) for score in run.scores] == [
        (CHAIN, 1, ""),
        (CHAIN, 2, ""),
        (BRANCH, 1, ""),
        (f"{CHAIN}-f1-2", 1, ""),
    ]
    assert all(score.computed == score.recorded != {} for score in run.scores)
    assert not any(score.differences for score in run.scores)
    assert run.document()["scores"][0]["computed"] == run.scores[0].computed
    # The experiment is unchanged afterwards.
    assert (copy / "journal.jsonl").read_bytes() == before
    assert not list(copy.glob("chains/*/runs/*rescored*"))
    table = format_attempts(run).splitlines()
    assert table[0].split()[-1] == "SCORES"
    assert table[1].endswith("fresh")
    assert all(line.endswith("  equal") for line in table[2:])


@pytest.mark.thorough
def test_another_score_is_reported_and_is_not_a_difference(
    trial: Path, whole: VerifiedRun, tmp_path: Path
) -> None:
    copy = copied(trial, tmp_path / "exp")
    (copy / find(whole, CHAIN, 2).recording.relative_to(trial)).unlink()

    async def judge(end: Any) -> dict[str, float]:
        return {"bets": 1000.0}

    run = verified(copy, scores=True, score=judge)
    assert run.exit_status == 3  # because of the recording that is gone
    first, second, *_ = run.scores
    assert (first.differences, first.computed) == (["bets"], {"bets": 1000.0})
    assert second.computed == {}
    assert second.reason == "no replay has reached the state of its last checkpoint"
    table = format_attempts(run)
    assert f"bets {first.recorded['bets']} -> 1000.0" in table
    assert "not computed: no replay has reached the state" in table


@pytest.mark.thorough
@pytest.mark.needs("git")
@pytest.mark.parametrize("make", sampled([make_repository, make_silent_repository], every=2))
def test_a_world_that_needs_files_above_its_directory_is_scored(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    directory = ran_trial(tmp_path, world=make(tmp_path / "repository"))
    run = verified(directory, scores=True, score=bets)
    [score] = run.scores
    assert score.reason == ""
    assert score.computed == score.recorded != {}


@pytest.mark.thorough
def test_scores_of_a_swept_world_are_computed_in_its_private_copy(tmp_path: Path) -> None:
    world = dice_world(tmp_path)
    condition = Condition("dice", {"world.dir": world})
    directory = ran_trial(tmp_path, chain="dice-s7", world=world, conditions=[condition])

    async def count_processes(_end: LiveGeneration) -> dict[str, float]:
        return {"bets": float(len(await run_blocking(processes_in, world)))}

    run = verified(directory, scores=True, score=count_processes)
    assert [score.computed for score in run.scores] == [{"bets": 0.0}]


def find_archive(directory: Path, place: tuple[str, int]) -> Path:
    """Return the last checkpoint of a generation."""
    chain, generation = place
    end = find_end(read_experiment(directory).state.chains[chain].generations[generation])
    assert end is not None
    return archive_path(directory / "chains" / chain, end.ref.attempt, end.ref.file)


@pytest.mark.thorough
def test_an_end_that_no_replay_has_reached_is_not_scored(trial: Path, tmp_path: Path) -> None:
    copy = copied(trial, tmp_path / "exp")
    other, end = (find_archive(copy, place) for place in ((CHAIN, 2), (BRANCH, 1)))
    end.write_bytes(other.read_bytes())
    run = verified(copy, scores=True, score=bets)
    assert run.exit_status == 0
    reasons = {score.chain: score.reason for score in run.scores if score.generation == 1}
    assert reasons[BRANCH] == "no replay has reached the state of its last checkpoint"
    assert reasons[CHAIN] == ""


def test_scores_need_a_function_and_a_trusted_plan(trial: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the plan has none"):
        verified(trial, scores=True)
    with pytest.raises(UsageError, match="only experiments have scores"):
        verified(next(trial.glob("chains/*/runs/*")), scores=True, score=bets)
    copy = copied(trial, tmp_path / "exp")
    (copy / read_experiment(copy).state.plan_file).chmod(0o666)
    with pytest.raises(UsageError, match="the plan of the experiment cannot be trusted"):
        verified(copy, scores=True, score=bets, env={"PACE": "quick"})
