"""Descriptions of checkpoints, such as ``r1/g002@20m``."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment.reading.record import ExperimentRecord
from tests.experiment.journals import Journal, make_plan


def make_journal() -> Journal:
    """Return a journal of a generation with checkpoints at 3.02, 6.9, 8 and 8 seconds."""
    journal = Journal()
    attempt = journal.open("r1", 1)
    for kind, elapsed_s in [("periodic", 3.02), ("periodic", 6.9), ("boundary", 8.0), ("end", 8.0)]:
        attempt.checkpoint(kind, elapsed_s=elapsed_s)
    return journal


def make_record(journal: Journal) -> ExperimentRecord:
    plans = journal.plans(make_plan())
    return ExperimentRecord(dir=Path(), plans=plans, lines=journal.lines)


@pytest.mark.parametrize(
    ("moment", "file"),
    [
        ("@3s", "c0.ckpt"),
        ("@5", "c0.ckpt"),
        ("@6s", "c1.ckpt"),
        ("@1h", "c3.ckpt"),
        ("@boundary", "c2.ckpt"),
        ("@last", "c3.ckpt"),
        ("", "c3.ckpt"),
    ],
)
def test_moment_selects_the_nearest_earlier_checkpoint_in_whole_seconds(
    moment: str, file: str
) -> None:
    record = make_record(make_journal())
    for place in ("r1", "r1/g001", "r1/1"):
        assert record.find_checkpoint(place + moment).ref.file == file


def test_the_latest_checkpoint_of_a_kind_counts() -> None:
    journal = make_journal()
    again = journal.open("r1", 1)
    for kind in ("boundary", "end"):
        again.checkpoint(kind, elapsed_s=9.0)
    for moment, file in (("boundary", "c4.ckpt"), ("end", "c5.ckpt")):
        assert make_record(journal).find_checkpoint("r1", moment).ref.file == file


def test_existing_checkpoints_are_listed_by_their_selectors() -> None:
    record = make_record(make_journal())
    with pytest.raises(ConfigError) as caught:
        record.find_checkpoint("r1/g001@2s")
    assert caught.value.hint == (
        "its checkpoints: 3s (periodic), 6s (periodic), 8s (boundary), 8s (end)"
    )
    with pytest.raises(ConfigError, match="its generations: 1"):
        record.find_checkpoint("r1/g002")
