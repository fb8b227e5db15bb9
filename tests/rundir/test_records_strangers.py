"""Records in a stranger's run directory that name paths outside of the directory."""

from __future__ import annotations

import json
from pathlib import Path

from clawblox.rundir.leftovers import close_interrupted, remove_leftovers, settle_unlisted_saves
from tests.rundir.support import make_record


def test_files_outside_of_the_run_directory_are_not_removed_or_relabelled(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    saves = other / "checkpoints"
    saves.mkdir(parents=True)
    listed = "w000-20260622T190000Z-abcdef.json"
    manifest = {
        "schema_version": 1,
        "run": {"id": "r001", "status": "running"},
        "checkpoints": [
            {
                "path": f"checkpoints/{listed}",
                "run_id": "r001",
                "created_at": "2026-06-22T19:00:00Z",
            }
        ],
    }
    (other / ".clawblox").mkdir()
    (other / ".clawblox" / "manifest.json").write_text(json.dumps(manifest))
    for path in (saves / "w000-20260622T185925Z-abcdef.json", saves / listed):
        path.write_text("{}")
    for directory in (other, saves):
        (directory / ".notes.1-2.abcdef.partial").write_text("of the user")
    make_record(
        run,
        0,
        instance_dir=str(other),
        command_file=str(other / "command.sh"),
        state="ready",
        started_at="2026-06-22T18:00:00Z",
        run_id="r001",
        orchestrator_pid=0,
    )
    before = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    remove_leftovers(run)
    settle_unlisted_saves(run)
    assert close_interrupted(run) == []
    assert {path: path.read_bytes() for path in other.rglob("*") if path.is_file()} == before
