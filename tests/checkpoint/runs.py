"""Run directories with agents and snapshots, for tests of saves."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import attrs

from clawblox.checkpoint import save_checkpoint, verify_checkpoint
from clawblox.rundir.manifest import Update, read_manifest
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import run_update

TOKEN_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def fake_token(seed: int = 1) -> str:
    """Return a fake that looks like a GitHub token."""
    chosen = random.Random(seed)
    return "gh" + "p_" + "".join(chosen.choice(TOKEN_LETTERS) for _ in range(36))


@attrs.frozen
class Run:
    """A run directory with an agent and a snapshot."""

    dir: Path

    @property
    def checkpoints(self) -> Path:
        return self.dir / "checkpoints"

    @property
    def agent(self) -> Path:
        return self.dir / "agents" / "rocky"

    @property
    def workspace(self) -> Path:
        return self.agent / "workspace"

    @property
    def snapshot(self) -> Path:
        return self.dir / "s1.json"

    def archive(self, name: str = "a") -> Path:
        return self.checkpoints / f"{name}.ckpt"

    def archives(self) -> list[Path]:
        return sorted(self.dir.rglob("*.ckpt"))

    def partials(self) -> list[Path]:
        return sorted(self.dir.rglob("*.partial"))

    def save(self, name: str = "a", **options: object) -> Path:
        """Save the run; agents without a conversation need no backend."""
        given = {"world_snapshot": self.snapshot, "agents": {"rocky": self.agent}, **options}
        return save_checkpoint(self.archive(name), **given)

    def entries(self) -> list[dict[str, object]]:
        """Return the entries of archives in the manifest."""
        found = read_manifest(self.dir).checkpoints
        return [dict(entry) for entry in found if entry["format"] == "clawblox-ckpt-v1"]


def make_run(parent: Path, *, manifest: bool = True) -> Run:
    """Create a run directory with two small files in the agent's workspace."""
    run = Run(parent / "run")
    run.workspace.mkdir(parents=True)
    (run.workspace / "SOUL.md").write_text("I look for stones.\n" * 40)
    (run.workspace / "go.sh").write_text("#!/bin/sh\necho go\n")
    (run.workspace / "go.sh").chmod(0o755)
    run.snapshot.write_text(json.dumps({"format": "counter-v1", "time": 12.5, "value": 7}))
    if manifest:
        update_manifest(run, run_update(id="r001", status="running"))
    return run


def update_manifest(run: Run, update: Update) -> None:
    ManifestFile(run.dir / ".clawblox" / "manifest.json", lock_wait=5).apply([update])


def check_archives(run: Run) -> None:
    """Check that all archives of the run can be loaded."""
    for path in run.archives():
        assert verify_checkpoint(path).is_verified


def contents(directory: Path) -> Iterator[tuple[str, bytes | None]]:
    """Yield every path below a directory, with the content of files."""
    for found, directories, files in os.walk(directory):
        for name in directories:
            yield str(Path(found, name).relative_to(directory)), None
        for name in files:
            path = Path(found, name)
            yield str(path.relative_to(directory)), path.read_bytes()
