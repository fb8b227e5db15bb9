"""The next host removes the place of a killed host, but not those of other hosts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawblox.experiment.cluster.scratch import scratch_dir
from clawblox.system.files import make_private_dir

HOST = """
import anyio
from clawblox.experiment.cluster.scratch import make_place
print(anyio.run(make_place), flush=True)
input()
"""


@pytest.fixture(autouse=True)
def own_scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLAWBLOX_SCRATCH", str(tmp_path))


@contextmanager
def host() -> Iterator[Path]:
    """Run a process with a place; yield the place, then kill the process."""
    command = [sys.executable, "-c", HOST]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield Path(process.stdout.readline().strip())
        finally:
            process.kill()


@pytest.mark.thorough
def test_place_of_a_host_that_was_just_killed_is_removed() -> None:
    with host() as place, host():
        assert place.exists()
    with host():
        assert not place.exists()


@pytest.mark.thorough
def test_place_that_has_no_lock_yet_is_left_alone() -> None:
    new = make_private_dir(scratch_dir() / "hosts") / ".new-host"
    new.mkdir()
    with host():
        assert new.exists()
