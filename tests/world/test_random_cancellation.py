"""One or several cancellations at random moments: all operations end and clean up.

``test_cancellation`` strikes at every suspension of one operation, once. Here the second
cancellation strikes the clean-up after the first.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.worlds import make_world

SECONDS_A_ROUND = 10
SEED = 20_000


def cancel_at_random(tmp_path: Path, backend: str, rounds: int) -> None:
    """Run a program that is cancelled in each round; fail with the round if it does not end."""
    world, runs, log = make_world(tmp_path), tmp_path / "runs", tmp_path / "log"
    numbers = (str(rounds), str(SEED))
    command = [
        sys.executable,
        "-m",
        "tests.support.cancelling",
        backend,
        str(world),
        str(runs),
        *numbers,
    ]
    with log.open("wb") as output:
        try:
            ended = subprocess.run(
                command,
                cwd=Path(__file__).parents[2],
                stdout=output,
                stderr=output,
                timeout=60 + SECONDS_A_ROUND * rounds**0.5,
            )
        except subprocess.TimeoutExpired:
            pytest.fail(f"it hangs:\n{last_lines(log)}")
    assert not ended.returncode, last_lines(log)


def last_lines(log: Path) -> str:
    return "\n".join(log.read_text().splitlines()[-40:])


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_random_cancellations_end_and_clean_up(tmp_path: Path, backend: str):
    cancel_at_random(tmp_path, backend, 24)


@pytest.mark.thorough
@pytest.mark.parametrize(("backend", "rounds"), [("asyncio", 500), ("trio", 150)])
def test_hundreds_of_random_cancellations_end_and_clean_up(
    tmp_path: Path, backend: str, rounds: int
):
    cancel_at_random(tmp_path, backend, rounds)
