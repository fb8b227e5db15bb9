"""The digests of a world's files, within limits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clawblox import AsyncWorld
from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.manifest import manifest_path
from clawblox.world import sources
from clawblox.world.sources import WorldFiles, parse_world_files, read_world_files
from tests.recording.files import read_all
from tests.replay.lives import dice_world


def test_the_digest_depends_on_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.py").write_text("one")
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    for result in ("results", "__pycache__", ".clawblox", ".git"):
        (tmp_path / result).mkdir()
        (tmp_path / result / "x").write_text("left out")
    before = read_world_files(tmp_path)
    assert before is not None
    assert before.files.keys() == {"rules/a.py", "link"}
    (tmp_path / "rules" / "a.py").write_text("two")
    (tmp_path / "b.py").write_text("new")
    now = read_world_files(tmp_path)
    assert now is not None
    assert now.sha256 != before.sha256
    assert before.find_changes(now) == ("b.py", "rules/a.py")
    assert WorldFiles(dict(reversed(now.files.items()))).sha256 == now.sha256


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_BYTES", "_MAX_ENTRIES"])
def test_a_world_beyond_the_limits_has_no_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    for number in range(4):
        (tmp_path / f"{number}.py").write_text("four")
    monkeypatch.setattr(sources, limit, 4 if limit != "MAX_BYTES" else 16)
    assert read_world_files(tmp_path) is not None
    (tmp_path / "more.py").write_text("four")
    assert read_world_files(tmp_path) is None
    assert read_world_files(tmp_path / "gone") is None


def test_a_file_list_with_a_wrong_digest_is_rejected() -> None:
    files = WorldFiles({"a.py": "0" * 64})
    assert parse_world_files(dict(files.files), files.sha256) == files
    values: list[Any] = [{"a.py": "1" * 64}, {"a.py": 7}, {"\ud800": "x"}, [], None, "a.py"]
    for value in values:
        assert parse_world_files(value, files.sha256) is None


@pytest.mark.anyio
async def test_a_recording_names_the_source_files_of_each_start(tmp_path: Path) -> None:
    directory, run_dir = dice_world(tmp_path), tmp_path / "run"
    expected = []
    async with AsyncWorld(dir=directory, run_dir=run_dir) as world:
        for number in range(2):
            (directory / "rules.py").write_text(f"SIDES = {number}")
            expected.append(await run_blocking(read_world_files, directory))
            await world.start(record=True)
            await world.stop()
    listed = json.loads(manifest_path(run_dir).read_text())["world_files"]
    assert [entry["files"] for entry in listed] == [dict(files.files) for files in expected]
    starts = [read_all(path)[0] for path in sorted((run_dir / "recordings").iterdir())]
    digests = [files.sha256 for files in expected]
    assert [start["world_files"] for start in starts] == digests
    assert [entry["sha256"] for entry in listed] == digests


@pytest.mark.anyio
async def test_a_world_that_does_not_record_gets_no_digest(tmp_path: Path) -> None:
    async with AsyncWorld(dir=dice_world(tmp_path), run_dir=tmp_path / "run") as world:
        await world.start()
    assert "world_files" not in json.loads(manifest_path(tmp_path / "run").read_text())


def test_a_manifest_keeps_the_latest_versions_of_source_files(tmp_path: Path) -> None:
    from clawblox.rundir.manifest import Manifest, Update

    manifest = Manifest(manifest_path(tmp_path))
    for number in range(30):
        entry = {"sha256": f"{number:064}", "files": {}}
        manifest = manifest.merged(Update(world_files=(entry,)))
        assert manifest.merged(Update(world_files=(entry,))) == manifest
    assert [int(entry["sha256"]) for entry in manifest.world_files] == [*range(10, 30)]
