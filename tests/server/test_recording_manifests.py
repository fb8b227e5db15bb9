"""The entries of recordings in the manifest of the run."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from clawblox.recording.writer import FileDigest
from clawblox.server import recording
from clawblox.server.recording import register_recording


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    (directory / ".clawblox").mkdir(parents=True)
    return directory


@pytest.fixture
def manifest(run_dir: Path) -> Path:
    return run_dir / ".clawblox" / "manifest.json"


def test_a_path_outside_the_run_is_registered_absolute(manifest, tmp_path):
    register_recording(manifest, tmp_path / "elsewhere.jsonl")
    entry = json.loads(manifest.read_text())["recordings"][0]
    assert entry["path"] == str(tmp_path / "elsewhere.jsonl")


def test_a_manifest_is_written_in_the_documented_form(manifest, run_dir):
    register_recording(manifest, run_dir / "a.jsonl")
    text = manifest.read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert json.loads(text)["schema_version"] == 1


def test_a_manifest_is_private_under_any_umask(manifest, run_dir):
    umask = os.umask(0)
    try:
        register_recording(manifest, run_dir / "recordings" / "recording-0001.jsonl")
    finally:
        os.umask(umask)
    assert manifest.stat().st_mode & 0o777 == 0o600


def test_a_path_is_registered_once(manifest, run_dir):
    for _ in range(2):
        register_recording(manifest, run_dir / "a.jsonl")
    assert len(json.loads(manifest.read_text())["recordings"]) == 1


@pytest.mark.parametrize("text", ["[]", '{"recordings": {}}', ""])
def test_a_file_that_is_not_a_manifest_is_not_overwritten(manifest, run_dir, text):
    manifest.write_text(text)
    with pytest.raises(ValueError, match=r"manifest|Expecting value"):
        register_recording(manifest, run_dir / "a.jsonl")
    assert manifest.read_text() == text


def test_many_worlds_register_without_losing_an_entry(manifest, run_dir):
    paths = [run_dir / f"{number}.jsonl" for number in range(12)]
    threads = [threading.Thread(target=register_recording, args=(manifest, p)) for p in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    registered = json.loads(manifest.read_text())["recordings"]
    assert sorted(entry["path"] for entry in registered) == sorted(path.name for path in paths)


def test_a_stale_temporary_file_is_replaced(manifest, run_dir, monkeypatch):
    monkeypatch.setattr(recording, "LOCK_WAIT_S", 0.02)
    manifest.with_name("manifest.json.tmp").write_text("half")
    register_recording(manifest, run_dir / "a.jsonl")
    assert len(json.loads(manifest.read_text())["recordings"]) == 1


def test_a_digest_is_added_to_the_entry_at_its_place(manifest, run_dir):
    register_recording(manifest, run_dir / "a.jsonl")
    register_recording(manifest, run_dir / "b.jsonl")
    document = json.loads(manifest.read_text())
    document["recordings"][0]["label"] = "of another program"
    manifest.write_text(json.dumps(document))
    register_recording(manifest, run_dir / "a.jsonl", FileDigest(3, "d" * 64))
    first, second = json.loads(manifest.read_text())["recordings"]
    assert first == {
        "path": "a.jsonl",
        "events": "a.jsonl",
        "format": "clawblox-recording-v2",
        "label": "of another program",
        "size_bytes": 3,
        "sha256": "d" * 64,
    }
    assert second["path"] == "b.jsonl"
