"""Archives that earlier versions wrote load, and those of later versions are refused.

Every change of the format adds an archive here; none is ever replaced.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from clawblox.checkpoint import load_checkpoint, verify_checkpoint
from clawblox.errors import CheckpointVersionError

ARCHIVE = Path(__file__).parent / "archives" / "v1.ckpt"


def test_an_archive_of_schema_version_1_verifies_and_loads(tmp_path: Path) -> None:
    verification = verify_checkpoint(ARCHIVE)
    assert verification.is_verified
    assert verification.metadata["schema_version"] == 1
    loaded = load_checkpoint(ARCHIVE, tmp_path)
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


def test_an_archive_of_a_later_schema_version_is_refused_with_advice(tmp_path: Path) -> None:
    later = tmp_path / "later.ckpt"
    with zipfile.ZipFile(ARCHIVE) as archive, zipfile.ZipFile(later, "w") as changed:
        for member in archive.infolist():
            content = archive.read(member)
            if member.filename == "metadata.json":
                content = content.replace(b'"schema_version":1', b'"schema_version":2', 1)
            changed.writestr(member, content)
    with pytest.raises(CheckpointVersionError) as refused:
        load_checkpoint(later, tmp_path / "run")
    assert refused.value.message == (
        "the archive has schema_version 2, but this clawblox reads only up to 1"
    )
    assert refused.value.hint == "load it with the clawblox that wrote it, or a newer version"
    assert not (tmp_path / "run").exists()
