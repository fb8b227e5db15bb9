"""What a chain does after each way in which an attempt ends."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from clawblox.experiment.history.checkpoints import Branch, CheckpointRef
from clawblox.experiment.history.machine import Begin, Over, last_generation, next_step
from clawblox.experiment.plan.parts import Retry
from tests.experiment.journals import Journal

RETRY = Retry(attempts=3)
TEMPLATE = Retry(attempts=3, source="template")


def decide(journal: Journal, retry: Retry = RETRY, **options: Any) -> Begin:
    """Return the attempt that follows in the chain r1, which has one generation."""
    step = next_step(journal.state.chain("r1"), 1, retry, **options)
    assert isinstance(step, Begin)
    return step


def fail(journal: Journal, cause: str = "world", **opened: Any) -> None:
    journal.open("r1", 1, **opened).work().end("failed", cause=cause)


def archive_name(begin: Begin) -> str | None:
    return None if begin.origin is None else begin.origin.file


@pytest.mark.parametrize("cause", ["setup", "secret", "plan"])
def test_what_another_attempt_would_meet_again_is_not_tried_again(cause: str) -> None:
    journal = Journal()
    fail(journal, cause)
    assert next_step(journal.state.chain("r1"), 1, RETRY) == Over(status="failed")


@pytest.mark.parametrize("cause", ["world", "agent", "start", "address", "defect"])
def test_another_failure_is_tried_again(cause: str) -> None:
    journal = Journal()
    fail(journal, cause)
    assert decide(journal).reason == f"failed: {cause}"


def test_pauses_and_interruptions_count_as_no_failures() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    for _ in range(2):
        attempt.checkpoint()
    attempt.end("failed", cause="world")
    for ending in ("paused", "interrupted") * 3:
        journal.open("r1", 1).work().end(ending, reason="limit", text="limit")
    fail(journal)
    assert archive_name(decide(journal)) == "c0.ckpt"
    assert next_step(journal.state.chain("r1"), 1, Retry(attempts=1)) == Over(status="failed")


def test_a_failure_goes_back_in_the_history_that_led_to_the_latest_checkpoint() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    _, origin, _ = (attempt.checkpoint() for _ in range(3))
    attempt.end("failed", cause="world")
    again = journal.open("r1", 1, origin=origin).work()
    again.checkpoint()
    again.end("failed", cause="world")
    files = [archive_name(decide(journal))]
    for _ in range(2):
        fail(journal)
        files.append(archive_name(decide(journal)))
    assert files == ["c3.ckpt", "c1.ckpt", "c0.ckpt"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_failures_after_the_active_time_go_back_no_further(count: int) -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint()
    attempt.checkpoint("boundary", reason="duration")
    attempt.end("failed", cause="world")
    for _ in range(count - 1):
        fail(journal)
    begin = decide(journal)
    assert (archive_name(begin), begin.phase, begin.closing) == ("c1.ckpt", "save", "duration")


def test_a_retry_from_the_template_begins_at_the_beginning() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint()
    attempt.end("failed", cause="world")
    assert archive_name(decide(journal)) == "c0.ckpt"
    begin = decide(journal, TEMPLATE)
    assert (begin.origin, begin.elapsed_s) == (None, 0.0)


@pytest.mark.parametrize("kind", ["periodic", "pause", "boundary"])
def test_without_conversations_in_checkpoints_it_begins_at_the_beginning(kind: str) -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    attempt.checkpoint(kind)
    attempt.end("interrupted")
    assert archive_name(decide(journal)) == "c0.ckpt"
    assert archive_name(decide(journal, has_minds=False)) is None


@pytest.mark.parametrize("retry", [RETRY, TEMPLATE])
@pytest.mark.parametrize("has_minds", [True, False])
def test_a_generation_with_its_last_checkpoint_is_only_scored(
    retry: Retry, *, has_minds: bool
) -> None:
    for ending in ("failed", "paused", "interrupted"):
        journal = Journal()
        attempt = journal.open("r1", 1).work()
        attempt.checkpoint("end", reason="duration")
        attempt.end(ending, cause="world", reason="limit", text="limit")
        begin = decide(journal, retry, has_minds=has_minds)
        assert (archive_name(begin), begin.phase) == ("c0.ckpt", "score")


@pytest.mark.parametrize(("duration_s", "elapsed_s"), [(None, 900.0), (600.0, 0.0)])
def test_a_branch_has_the_rest_of_the_generation_or_a_duration_of_its_own(
    duration_s: float | None, elapsed_s: float
) -> None:
    journal = Journal()
    source = CheckpointRef(**journal.open("r1", 2).work().checkpoint())
    branch = Branch(
        source=source, group=1, number=1, elapsed_s=900.0, duration_s=duration_s, generations=3
    )
    journal.write("chain.forked", attrs.asdict(branch), chain="r1-f1-1")
    chain = journal.state.chain("r1-f1-1")
    assert next_step(chain, 4, RETRY) == Begin(
        generation=2, origin=source, elapsed_s=elapsed_s, branch=branch
    )
    assert last_generation(chain, 9) == 4
    assert last_generation(journal.state.chain("r1"), 9) == 9
