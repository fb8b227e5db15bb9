"""Two archives and their metadata are compared member by member."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from clawblox.checkpoint import CheckpointFormatError, diff_checkpoints, verify_checkpoint
from tests.checkpoint.runs import Run

WORKSPACE = "agents/rocky/workspace"


def test_archives_of_the_same_state_do_not_differ(run: Run):
    found = diff_checkpoints(run.save("a"), run.save("b"))
    assert (found.added, found.removed, found.changed, found.unchanged) == ((), (), (), 3)
    assert set(found.metadata) <= {"created_at"}
    assert not diff_checkpoints(run.archive("a"), run.archive("a"))


def test_added_removed_and_changed_members_are_reported(run: Run):
    first = run.save("a", metadata={"generation": 1, "same": 0})
    (run.workspace / "SOUL.md").unlink()
    (run.workspace / "new.md").write_text("new")
    (run.workspace / "go.sh").chmod(0o644)
    run.snapshot.write_bytes(run.snapshot.read_bytes().replace(b"7", b"8"))
    second = run.save("b", metadata={"generation": 2, "same": 0, "more": 1})
    found = diff_checkpoints(first, second)
    assert found.added == (f"{WORKSPACE}/new.md",)
    assert found.removed == (f"{WORKSPACE}/SOUL.md",)
    assert found.changed == (f"{WORKSPACE}/go.sh", "world.snapshot")
    assert found.unchanged == 0
    assert {"generation", "more"} <= set(found.metadata)
    assert not {"same", "files", "secret_scan"} & set(found.metadata)
    assert found


def plain_archive(path: Path, content: bytes) -> Path:
    """Write an archive like another program, without digests."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", '{"schema_version":1}')
        archive.writestr("world.snapshot", content)
    return path


def test_archives_without_digests_are_compared_by_their_content(run: Run, tmp_path: Path):
    one = plain_archive(tmp_path / "one.ckpt", b"content 1")
    other = plain_archive(tmp_path / "other.ckpt", b"content 2")
    assert not verify_checkpoint(one).is_verified
    assert diff_checkpoints(one, other).changed == ("world.snapshot",)
    assert not diff_checkpoints(one, one)


def test_a_damaged_archive_cannot_be_compared(run: Run):
    first, second = run.save("a"), run.save("b")
    second.write_bytes(second.read_bytes()[:-1])
    with pytest.raises(CheckpointFormatError):
        diff_checkpoints(first, second)
