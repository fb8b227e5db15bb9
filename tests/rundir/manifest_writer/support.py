"""Helpers for the tests of the manifest writer: writers, content of manifests, and a gate."""

import contextlib
import json
import threading
from pathlib import Path

import pytest

from clawblox.rundir import manifest_file
from clawblox.rundir.manifest import Manifest, Update, manifest_path, parse_manifest
from clawblox.rundir.manifest_updates import checkpoint_update
from clawblox.rundir.manifest_writer import ManifestWriters
from tests.support.waiting import HANG_S

BACKENDS = pytest.mark.parametrize(
    "anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.thorough)]
)


@contextlib.asynccontextmanager
async def writing(run_dir: Path, **options: float):
    """Run a writer, close it at the end."""
    async with ManifestWriters(**options) as writers:
        yield writers.of(run_dir)


def checkpoint(name: str) -> Update:
    return checkpoint_update({"path": f"checkpoints/{name}", "format": "f"})


def read(run_dir: Path) -> Manifest:
    """Read the manifest without ``read_manifest``, which must not block a running loop."""
    path = manifest_path(run_dir)
    return parse_manifest(path.read_bytes(), path)


def checkpoint_names(run_dir: Path) -> list[str]:
    return [Path(entry["path"]).name for entry in read(run_dir).checkpoints]


def recording_names(run_dir: Path) -> list[str]:
    return [entry["path"] for entry in read(run_dir).recordings]


def rename_in(run_dir: Path, document: dict) -> None:
    """Write a manifest like worlds: rename a temporary file with a commonly used name."""
    path = manifest_path(run_dir)
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name("manifest.json.tmp")
    temporary.write_text(json.dumps(document))
    temporary.rename(path)


def files_beside(run_dir: Path) -> set[str]:
    return {path.name for path in manifest_path(run_dir).parent.iterdir()}


CLEAN = {"manifest.json", "manifest.json.lock"}


class Gate:
    """Holds the writer's thread just before it writes its file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_reached = threading.Event()
        self._is_open = threading.Event()
        write = manifest_file._write_private

        def gated(*args, **options):
            self.is_reached.set()
            assert self._is_open.wait(HANG_S)
            return write(*args, **options)

        monkeypatch.setattr(manifest_file, "_write_private", gated)

    def open(self) -> None:
        self._is_open.set()
