"""Programs that end soon: their output, and limits of time and size."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

import pytest

from clawblox.system.process import run_briefly
from tests.support.waiting import HANG_S

ENV = {"PATH": os.environ["PATH"]}


def run(script: str, **limits: Any) -> tuple[int, str]:
    given = {"timeout": 30.0, **limits}
    outcome = run_briefly(["sh", "-c", script], env=ENV, **given)
    return outcome.status, outcome.output


def test_output_and_errors_are_returned_with_the_status() -> None:
    assert run("echo one; echo two >&2; exit 3") == (3, "one\ntwo\n")
    assert run("kill -9 $$") == (-9, "")


def test_a_program_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"sh did not end within 0\.2 s"):
        run(f"echo $$ > {tmp_path}/pid; exec sleep 600", timeout=0.2)


@pytest.mark.parametrize("limits", [{"timeout": 0.2}, {"max_bytes": 0}])
def test_children_of_a_killed_program_are_killed_too(limits: dict[str, Any]) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as child_lives:
        try:
            with pytest.raises(OSError):  # noqa: PT011 - a TimeoutError, or one for the size
                run("sleep 600 & echo; wait", pass_fds=[write_end], **limits)
        finally:
            os.close(write_end)
        assert select.select([child_lives], [], [], HANG_S)[0], "a child still has the pipe"


def test_a_program_that_closes_its_output_and_does_not_end_is_killed() -> None:
    with pytest.raises(TimeoutError):
        run("exec >&- 2>&-; exec sleep 600", timeout=0.2)


def test_a_program_with_endless_output_is_killed() -> None:
    with pytest.raises(OSError, match="wrote more than 100000 bytes"):
        run("yes", max_bytes=100_000)
    assert run("printf 1234", max_bytes=4) == (0, "1234")


def test_a_missing_program_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run_briefly(["/no/such/program"], env={}, timeout=1.0)
