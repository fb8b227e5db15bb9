"""Archives that other programs created from a directory, with entries for directories."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox.checkpoint import load_checkpoint, read_metadata, scan_checkpoint, verify_checkpoint
from clawblox.checkpoint.archive.reader import Archive
from tests.checkpoint.runs import Run

Pack = Callable[[Path, Path], object]


def pack_with_module(source: Path, path: Path) -> None:
    names = ["metadata.json", *sorted({name.name for name in source.iterdir()} - {"metadata.json"})]
    subprocess.run([sys.executable, "-m", "zipfile", "-c", path, *names], cwd=source, check=True)


def pack_with_shutil(source: Path, path: Path) -> None:
    os.rename(shutil.make_archive(str(path), "zip", source), path)


def pack_with_zip(source: Path, path: Path, *options: str) -> None:
    arguments = ["zip", "-q", *options, "-r", path, "metadata.json", "."]
    subprocess.run(arguments, cwd=source, check=True)


def pack_without_extras(source: Path, path: Path) -> None:
    pack_with_zip(source, path, "-X")


def pack_with_bsdtar(source: Path, path: Path) -> None:
    names = sorted({name.name for name in source.iterdir()} - {"metadata.json"})
    arguments = ["bsdtar", "-c", "--format", "zip", "-f", path, "metadata.json", *names]
    subprocess.run(arguments, cwd=source, check=True)


def pack_in_any_order(source: Path, path: Path) -> None:
    names = sorted(source.rglob("*"), key=lambda name: name.name == "metadata.json")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            place = str(name.relative_to(source))
            if name.is_dir():
                packed.writestr(f"{place}/", b"")
            else:
                packed.write(name, place)


PACKERS = [
    pack_in_any_order,
    pack_with_module,
    pack_with_shutil,
    pytest.param(pack_with_zip, marks=pytest.mark.needs("zip")),
    pytest.param(pack_without_extras, marks=pytest.mark.needs("zip")),
    pytest.param(pack_with_bsdtar, marks=pytest.mark.needs("bsdtar")),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the directory of an archive in the layout of another writer."""
    top = tmp_path / "source"
    workspace = top / "agents" / "a" / "workspace"
    for directory in ("src/deep", "empty", ".git/hooks", ".venv/lib"):
        (workspace / directory).mkdir(parents=True)
    (top / "agents" / "a" / "session").mkdir()
    (top / "agents" / "b" / "workspace").mkdir(parents=True)
    (top / "metadata.json").write_text('{"schema_version": 1}')
    (workspace / "notes.txt").write_text("my notes\n" * 100)
    (workspace / "random").write_bytes(os.urandom(3000))
    (workspace / "src" / "deep" / "go.sh").write_text("#!/bin/sh\n")
    (workspace / "src" / "deep" / "go.sh").chmod(0o755)
    (workspace / "src" / "nothing").touch()
    return top


def read_tree(top: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(top)): path.read_bytes() if path.is_file() else None
        for path in top.rglob("*")
    }


@pytest.mark.parametrize("pack", PACKERS)
def test_an_archive_of_another_program_with_entries_of_directories_loads(
    source: Path, tmp_path: Path, pack: Pack
):
    path = tmp_path / "a.ckpt"
    pack(source, path)
    with zipfile.ZipFile(path) as archive:
        assert "agents/a/workspace/empty/" in archive.namelist()
    loaded = load_checkpoint(path, tmp_path / "run")
    assert not loaded["verified"]
    assert [*loaded["agents"]] == ["a", "b"]
    assert {entry["path"] for entry in loaded["excluded"]} == {
        "agents/a/workspace/.git/hooks",
        "agents/a/workspace/.venv",
        "agents/a/workspace/.venv/lib",
    }
    expected = read_tree(source)
    for name in ("metadata.json", "agents/a/session"):
        del expected[name]
    for name in (".git/hooks", ".venv/lib", ".venv"):
        del expected[f"agents/a/workspace/{name}"]
    assert read_tree(tmp_path / "run") == expected
    script = loaded["agents"]["a"] / "workspace" / "src" / "deep" / "go.sh"
    assert script.stat().st_mode & 0o777 == 0o700
    assert verify_checkpoint(path).members == 5
    assert scan_checkpoint(path).findings == ()


@pytest.mark.parametrize("pack", PACKERS)
def test_an_extracted_archive_that_another_program_packs_again_is_verified(
    run: Run, tmp_path: Path, pack: Pack
):
    (run.workspace / "empty").mkdir()
    (run.workspace / "src").mkdir()
    for name in ("src/a.py", "odd:name", "odd.", "new\nline"):
        (run.workspace / name).write_text(name)
    path, extracted = run.save(world_snapshot=None), tmp_path / "extracted"
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            (extracted / archive.extract(member, extracted)).chmod(member.external_attr >> 16)
    (extracted / "agents" / "rocky" / "workspace" / "empty").mkdir()
    pack(extracted, tmp_path / "again.ckpt")
    assert json.dumps(read_metadata(tmp_path / "again.ckpt")) == json.dumps(read_metadata(path))
    loaded = load_checkpoint(tmp_path / "again.ckpt", tmp_path / "new")
    assert loaded["verified"]
    assert loaded["excluded"] == []
    assert read_tree(loaded["agents"]["rocky"] / "workspace") == read_tree(run.workspace)


def test_entries_of_directories_do_not_count_as_members(source: Path, tmp_path: Path):
    path = tmp_path / "a.ckpt"
    pack_with_module(source, path)
    with Archive.open(path) as archive:
        assert not any(entry.is_directory for entry in archive.entries)
        assert "agents/a/workspace/empty" in archive.directories
        archive.verify()
