"""Exhausted resources: descriptors, disk space, and patience of the user."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from clawblox import AsyncWorld, WorldStartError
from clawblox.instance.health import ReadinessProbe, Steps
from tests.instance.supervision.support import told_by
from tests.support.crowd import leftovers, on_disk, registered
from tests.support.orchestrators import orchestrator
from tests.support.processes import marked_processes
from tests.support.sockets import is_listening
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

EXHAUSTED = """
import json
from clawblox import ClawbloxError
from tests.support.resources import open_fds
from tests.support.waiting import wait_until_async

async def nothing_is_left(before):
    await wait_until_async(lambda: len(open_fds()) <= before, what=f"{open_fds()} {before}")

async def main():
    async with AsyncWorld(dir=world_dir) as world:
        await world.start_many(1, run_dir=run_dir)  # what a process opens once, it has open now
        await world.connect("Rocky")
        await world.save_all()
        await world.stop_all()
        before = len(open_fds())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        used = time.process_time()
        batch = await world.start_many(40, run_dir=run_dir, health_timeout=30)
        saves = await world.save_all()
        used = time.process_time() - used
        stops = await world.stop_all(grace_seconds=10)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        errors = [*batch.failed.values(), *saves.failed.values(), *stops.failed.values()]
        told = [
            [len(batch.done), len(saves.done), len(stops.done) + len(stops.failed)],
            sorted({type(error).__name__ for error in errors}),
            [str(error) for error in errors if not isinstance(error, ClawbloxError)],
            used,
        ]
        tell("told:", json.dumps(told))
        await nothing_is_left(before)
        again = await world.start_many(4, run_dir=run_dir)
        again.raise_if_failed()
        assert list(again.done) == ["w000", "w001", "w002", "w003"], again
        await world.stop_all()
        await nothing_is_left(before)
anyio.run(main)
"""


@pytest.mark.thorough
def test_lack_of_descriptors_only_fails_some_starts(tmp_path: Path, run: Path) -> None:
    with orchestrator(EXHAUSTED, make_world(tmp_path), run) as exhausted:
        (started, saved, stopped), types, untyped, used_s = json.loads(told_by(exhausted))
        assert exhausted.process.wait(HANG_S) == 0
    print(f"{started} started, {saved} saved, {stopped} stopped, {types}, {used_s:.2f} s of CPU")
    assert 0 < started < 40
    assert stopped == started  # or processes whose end could not be observed were killed
    assert untyped == []
    assert "WorldStartError" in types
    assert "WorldIdentityError" not in types
    assert leftovers(run) == []


async def test_an_instance_that_cannot_be_probed_does_not_affect_the_others(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ReadinessProbe.probe_once

    def probe_once(probe: ReadinessProbe) -> Steps:
        if probe.log_file.name == "w001.log":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return original(probe)

    monkeypatch.setattr(ReadinessProbe, "probe_once", probe_once)
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(3, run_dir=run)
        assert list(batch.done) == ["w000", "w002"]
        with pytest.raises(WorldStartError, match=os.strerror(errno.EMFILE)):
            batch["w001"]
        assert marked_processes() == {one.pid for one in batch}


DISK_FULL = """
import hashlib, json
from pathlib import Path

def manifests():
    found = Path(run_dir).glob("worlds/*/.clawblox/*.json")
    return {str(path): path.read_bytes() for path in found}

async def main():
    async with AsyncWorld(dir=world_dir) as world:
        batch = await world.start_many(3, run_dir=run_dir)
        saved = [one.path for one in await world.save_all()]
        before = manifests()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        saves = await world.save_all()
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not saves.done and len(saves.failed) == 3
        errors = {f"{type(one).__name__}: {one.message}" for one in saves.failed.values()}
        tell("told:", json.dumps(sorted(errors)))
        assert manifests() == before
        assert sorted(Path(run_dir).glob("worlds/*/checkpoints/*")) == sorted(saved)
        assert len(await world.save_all()) == 3
anyio.run(main)
"""


@pytest.mark.thorough
def test_full_disk_fails_saves_without_harming_older_saves(tmp_path: Path, run: Path) -> None:
    with orchestrator(DISK_FULL, make_world(tmp_path, "--snapshot-mb", "1"), run) as full:
        (message,) = json.loads(told_by(full))
        assert full.process.wait(HANG_S) == 0
    assert message == "SnapshotError: File too large"
    for number in range(3):
        home = run / "worlds" / f"w{number:03}"
        assert len(on_disk(home)) == 2
        assert registered(home) == on_disk(home)


IMPATIENT = """
world = World(dir=world_dir)
batch = world.start_many(8, run_dir=run_dir)
import atexit
atexit.register(lambda: tell("leaving"))
tell(*(started.port for started in batch))
time.sleep(600)
"""


@pytest.mark.thorough
def test_impatient_ctrl_c_kills_all_worlds_of_a_script_immediately(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, "--ignore-sigterm")
    with orchestrator(IMPATIENT, directory, run, stderr=subprocess.DEVNULL) as script:
        ports = [int(word) for word in script.hear().split()]
        script.process.send_signal(signal.SIGINT)
        assert script.hear() == "leaving"

        def interrupted_again() -> bool:
            script.process.send_signal(signal.SIGINT)
            return script.process.poll() is not None

        wait_until(interrupted_again, HANG_S)
    wait_until(lambda: not marked_processes(), HANG_S)
    wait_until(lambda: not [port for port in ports if is_listening(port)], HANG_S)
    assert not list(run.rglob("*.partial"))
