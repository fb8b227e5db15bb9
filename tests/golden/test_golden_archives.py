"""Archives that earlier versions wrote load, and those of later versions are refused.

Every change of the format adds an archive here; none is ever replaced.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from clawblox.checkpoint import load_checkpoint, verify_checkpoint
from clawblox.checkpoint.model import SCHEMA_VERSION
from clawblox.errors import CheckpointVersionError

ARCHIVES = Path(__file__).parent / "archives"
VERSIONS = [1, 2]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_archive_of_each_schema_version_verifies_and_loads(tmp_path: Path, version: int) -> None:
    archive = ARCHIVES / f"v{version}.ckpt"
    verification = verify_checkpoint(archive)
    assert verification.is_verified
    assert verification.metadata["schema_version"] == version
    loaded = load_checkpoint(archive, tmp_path)
    assert loaded["verified"]
    assert loaded["lost_sessions"] == {}
    assert loaded["metadata"]["label"] == "golden"
    assert json.loads(loaded["world_snapshot"].read_bytes())["value"] == 7
    agent = loaded["agents"]["rocky"]
    workspace = agent / "workspace"
    assert (workspace / "link").read_text() == "I am.\n"
    assert (workspace / "go.sh").stat().st_mode & 0o777 == 0o700
    assert (workspace / "empty").is_dir()
    session_id = (agent / "claude_session_id.txt").read_text().strip()
    (transcript,) = (agent / "session" / "projects").glob(f"*/{session_id}.jsonl")
    assert "MELON" in transcript.read_text()


def test_paths_other_than_names_are_restored_since_schema_version_2(tmp_path: Path) -> None:
    loaded = load_checkpoint(ARCHIVES / "v2.ckpt", tmp_path)
    workspace = loaded["agents"]["rocky"] / "workspace"
    assert (workspace / "2026-06-22T18:59:24.log").read_text() == "started\n"
    assert [(workspace / name).read_text() for name in ("a", "a.")] == ["one", "another"]
    assert (workspace / "new\nline").read_text() == "two lines"
    assert (workspace / "Foo::Bar" / "empty ").is_dir()
    assert (workspace / "back\\link").read_text() == "1;\n"


def test_the_schema_version_that_is_written_has_an_archive_here() -> None:
    assert VERSIONS[-1] == SCHEMA_VERSION
    assert {path.name for path in ARCHIVES.iterdir()} == {
        f"v{version}.ckpt" for version in VERSIONS
    }


def test_an_archive_of_a_later_schema_version_is_refused_with_advice(tmp_path: Path) -> None:
    later = tmp_path / "later.ckpt"
    latest = ARCHIVES / f"v{SCHEMA_VERSION}.ckpt"
    with zipfile.ZipFile(latest) as archive, zipfile.ZipFile(later, "w") as changed:
        for member in archive.infolist():
            content = archive.read(member)
            if member.filename == "metadata.json":
                content = content.replace(b'"schema_version":2', b'"schema_version":3', 1)
            changed.writestr(member, content)
    with pytest.raises(CheckpointVersionError) as refused:
        load_checkpoint(later, tmp_path / "run")
    assert refused.value.message == (
        "the archive has schema_version 3, but this clawblox reads only up to 2"
    )
    assert refused.value.hint == "load it with the clawblox that wrote it, or a newer version"
    assert not (tmp_path / "run").exists()
