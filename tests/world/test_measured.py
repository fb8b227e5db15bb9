"""Recordings of other programs get digests in the background after the end of their world."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import AsyncWorld
from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.manifest_updates import recording_update
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.world import measured
from tests.recording.files import content
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


def listed(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of recordings by their names."""
    document = json.loads((run_dir / ".clawblox" / "manifest.json").read_text())
    return {Path(entry["path"]).name: entry for entry in document["recordings"]}


async def register(run_dir: Path, *paths: Path, form: str = "counter-v1") -> None:
    async with ManifestWriters() as writers:
        for path in paths:
            await writers.of(run_dir).apply(recording_update(path=path, format=form))


@pytest.mark.thorough
async def test_a_recording_of_another_program_is_measured_when_the_instance_ends(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    file = run_dir / "recordings" / "counter.jsonl"
    async with AsyncWorld(dir=make_world(tmp_path), run_dir=run_dir) as world:
        await world.start(record=True)
        agent = await world.join("Ada")
        await agent.act("add", 1)
        await register(run_dir, file)
        assert "sha256" not in listed(run_dir)["counter.jsonl"]
        await world.stop()
        await wait_until_async(lambda: "sha256" in listed(run_dir)["counter.jsonl"])
        first = await run_blocking(content, file)
        assert listed(run_dir)["counter.jsonl"].items() >= first.items()
        await world.start(record=True)
        agent = await world.join("Ada")
        await agent.act("add", 2)
        await world.restart()  # several starts write the same file
        longer = await run_blocking(content, file)
        assert longer != first
        await wait_until_async(lambda: listed(run_dir)["counter.jsonl"].items() >= longer.items())


async def test_only_files_of_the_run_are_measured(tmp_path: Path) -> None:
    run_dir, outside = tmp_path / "run", tmp_path / "outside.bin"
    outside.write_text("not of this run")
    async with AsyncWorld(dir=make_world(tmp_path), run_dir=run_dir) as world:
        await world.start(record=True)
        recordings = run_dir / "recordings"
        (recordings / "link.bin").symlink_to(outside)
        (recordings / "folder").mkdir()
        names = ("link.bin", "folder", "gone.bin", "own.bin")
        await register(run_dir, outside, *(recordings / name for name in names))
        # A killed world of the kit may have left this; only its writer knows the whole content.
        (recordings / "kit.jsonl.zst").write_text("cut")
        await register(run_dir, recordings / "kit.jsonl.zst", form="clawblox-recording-v2")
        (recordings / "own.bin").write_text("own")
        await world.stop()
        await wait_until_async(lambda: "sha256" in listed(run_dir)["own.bin"])
    without = {name for name, entry in listed(run_dir).items() if "sha256" not in entry}
    assert without == {"outside.bin", "link.bin", "folder", "gone.bin", "kit.jsonl.zst"}


async def test_a_stop_does_not_wait_for_the_measurement_of_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, has_begun, ends = tmp_path / "run", threading.Event(), threading.Event()

    def read(_found: object, _run_dir: Path, check: Callable[[], None]) -> None:
        has_begun.set()
        try:
            while not ends.wait(0.01):
                check()
        finally:
            ends.set()

    monkeypatch.setattr(measured, "digest_recording", read)
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path), run_dir=run_dir) as world:
            await world.start(record=True)
            await register(run_dir, run_dir / "recordings" / "huge.bin")
            assert (await world.stop()).rung != "not_running"
            await wait_until_async(has_begun.is_set)
            assert not ends.is_set()
            # The world restarts while the previous file is read.
            await world.start(record=True)
            assert not ends.is_set()
        assert ends.is_set(), "leaving ends the reading"
    assert "sha256" not in listed(run_dir)["huge.bin"]
