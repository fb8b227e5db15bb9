"""``progress=``: a line on standard error in a terminal, or calls of a function."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox import AsyncWorld, ConfigError, save_checkpoint
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world

SCRIPT = """
import sys
from clawblox import World
with World(sys.argv[1], run_dir=sys.argv[2]) as world:
    world.start_many(3, progress=True).raise_if_failed()
    world.save_all(progress=True).raise_if_failed()
    world.stop_all(progress=True).raise_if_failed()
"""

GOES_ON = """
import contextlib, sys
from clawblox import World
with contextlib.suppress(ZeroDivisionError), World(sys.argv[1], run_dir=sys.argv[2]) as world:
    world.start_many(1)
    world.fork(world.save(), 3, progress=True).raise_if_failed()
    1 / 0
with World(sys.argv[1], run_dir=sys.argv[2]) as world:
    world.resume_all(progress=True).raise_if_failed()
"""


ARCHIVES = """
import sys, time
from clawblox import save_checkpoint
from clawblox.checkpoint.collect import plan
plan.is_idle = lambda *_: time.sleep(0.5)
save_checkpoint(sys.argv[2] + ".ckpt", idle_wait=1, progress=True)
"""


def run_script(tmp_path: Path, stderr: int, script: str = SCRIPT) -> None:
    # Slow to start and to save, because short operations show no line.
    directory = make_world(tmp_path, "--slow-boot=0.5", "--slow-stop=0.5")
    subprocess.run(
        [sys.executable, "-c", script, str(directory), str(tmp_path / "run")],
        stderr=stderr,
        check=True,
        timeout=HANG_S,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )


def shown_in_terminal(tmp_path: Path, script: str) -> str:
    """Return the output of a script to a terminal on standard error."""
    master, slave = os.openpty()
    try:
        run_script(tmp_path, slave, script)
        return os.read(master, 1 << 16).decode()
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.thorough
def test_a_terminal_shows_the_progress_of_a_start(tmp_path: Path) -> None:
    written = shown_in_terminal(tmp_path, SCRIPT)
    assert "Starting" in written
    assert "Stopping" in written
    assert "3/3" in written


@pytest.mark.thorough
def test_a_terminal_shows_the_progress_of_forks_and_resumes(tmp_path: Path) -> None:
    written = shown_in_terminal(tmp_path, GOES_ON)
    forked, resumed = written.split("Resuming", 1)
    assert "Starting" in forked
    assert "3/3" in forked
    assert "4/4" in resumed


@pytest.mark.thorough
def test_no_progress_is_shown_without_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        run_script(tmp_path, stderr.fileno())
    assert log.read_bytes() == b""


@pytest.mark.thorough
def test_a_terminal_shows_the_progress_of_an_archive(tmp_path: Path) -> None:
    assert "Saving" in shown_in_terminal(tmp_path, ARCHIVES)


@pytest.mark.anyio
async def test_a_function_is_called_with_the_number_done_and_the_total(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        calls.append((done, total))

    async with AsyncWorld(make_world(tmp_path), run_dir=tmp_path / "run") as world:
        (await world.start_many(2, progress=note)).raise_if_failed()
        await world.save_all(progress=note)
        await world.checkpoint(tmp_path / "a.ckpt", instance="w000", progress=note)
        bytes_done, bytes_in_all = calls.pop()
        assert bytes_done == bytes_in_all > 2
        calls = [counts for counts in calls if counts[1] == 2]
        (await world.fork(await world.save(instance="w000"), 1, progress=note)).raise_if_failed()
        (await world.stop_all(progress=note)).raise_if_failed()
    assert calls == [(1, 2), (2, 2), (1, 2), (2, 2), (1, 1), (1, 3), (2, 3), (3, 3)]


@pytest.mark.anyio
async def test_an_exception_from_the_progress_function_ends_all_starts(tmp_path: Path) -> None:
    def fail(done: int, total: int) -> None:
        raise KeyError(done, total)

    async with AsyncWorld(make_world(tmp_path), run_dir=tmp_path / "run") as world:
        with pytest.raises(KeyError):
            await world.start_many(3, progress=fail)
        assert world.instances == ()


@pytest.mark.anyio
async def test_every_call_refuses_an_invalid_progress_option(tmp_path: Path) -> None:
    wrong: object = "loud"
    async with AsyncWorld(make_world(tmp_path), run_dir=tmp_path / "run") as world:
        calls = (
            lambda: world.start_many(1, progress=wrong),
            lambda: world.resume_all(progress=wrong),
            lambda: world.stop_all(progress=wrong),
            lambda: world.save_all(progress=wrong),
        )
        for call in calls:
            with pytest.raises(ConfigError) as refusal:
                await call()
            assert refusal.value.key == "progress"
    with pytest.raises(ConfigError, match="True, False or a function of two numbers"):
        save_checkpoint(tmp_path / "a.ckpt", progress=wrong)
