"""Recordings of earlier revisions of the engine are verified, or say why they differ.

A new revision adds recordings here; none is ever replaced. ``engine-1`` does what every revision
runs in the same way, so nothing that scripts get later may change it; ``engine-1-order`` shows the
order of threads.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.engine.physics.saved import LIBRARY
from clawblox.replay import VerifiedReplay
from clawblox.views.verified_runs import describe_replay
from tests.recording.files import read_all
from tests.replay.lives import verified

HERE = Path(__file__).parent / "recording"


def replay(name: str) -> VerifiedReplay:
    recording = HERE / f"{name}.jsonl.zst"
    if LIBRARY not in str(read_all(recording)[0]["snapshot"]):
        pytest.skip("another physics library recorded it")
    return verified(recording, world_dir=HERE / name).replays[0]


def test_a_recording_of_revision_1_is_equal_but_for_the_form_of_its_states() -> None:
    verdict = replay("engine-1")
    assert verdict.progress.outcome == "equal", describe_replay(verdict)
    assert verdict.progress.fingerprints > 0
    assert verdict.progress.states == 0
    assert verdict.status == "equal_unchecked_start"
    assert "made by an older engine (revision 1; this one is 2), so whole states were not" in (
        describe_replay(verdict)
    )


def test_a_recording_of_another_order_of_threads_is_explained() -> None:
    verdict = replay("engine-1-order")
    assert verdict.status == "different"
    assert "; made by an older engine (revision 1; this one is 2)," in describe_replay(verdict)
