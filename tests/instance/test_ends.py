"""Every way in which an instance can end, and what its record and its manifest say of it."""

from __future__ import annotations

import itertools

import pytest

from clawblox.instance.ends import End

TABLE = {
    "stopped on purpose": ((True, True, False, False, True), "exited", "complete"),
    "interrupted while it served": ((True, True, False, False, False), "exited", "interrupted"),
    "died": ((True, True, True, False, False), "exited", "failed"),
    "finished": ((True, True, True, True, False), "exited", "complete"),
    "its start failed": ((True, False, False, False, False), "failed", "failed"),
    "stopped during its start": ((True, False, False, False, True), "failed", "failed"),
    "stopped before its turn": ((False, False, False, False, True), "failed", "failed"),
    "interrupted before its turn": ((False,) * 5, "interrupted", "failed"),
}


@pytest.mark.parametrize(("facts", "state", "status"), TABLE.values(), ids=TABLE)
def test_the_end_of_an_instance_is_reported_exactly(
    facts: tuple[bool, ...], state: str, status: str
) -> None:
    names = ("was_begun", "was_ready", "has_died", "has_finished", "is_on_purpose")
    end = End(**dict(zip(names, facts, strict=True)))
    assert (end.state, end.run_status) == (state, status)


def test_only_what_was_ready_is_ever_complete() -> None:
    for facts in itertools.product((False, True), repeat=4):
        begun, died, finished, meant = facts
        end = End(
            was_begun=begun,
            was_ready=False,
            has_died=died,
            has_finished=finished,
            is_on_purpose=meant,
        )
        assert end.run_status == "failed"
        assert end.state != "exited"
