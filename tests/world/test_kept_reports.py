"""Reports that commands leave: hostile files are refused, and a failed write only warns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clawblox.errors import ClawbloxError
from clawblox.world import kept_reports
from clawblox.world.kept_reports import OWN, KeptReport, keep_report, read_kept
from clawblox.world.sources import WorldFiles, read_world_files

NAME = "check.json"
NOTHING = WorldFiles({}).sha256


def read(directory: Path) -> KeptReport[Mapping[str, Any]] | None:
    return read_kept(directory, NAME, lambda document, _directory: document)


def kept(directory: Path, judged: Mapping[str, WorldFiles | None] | None = None) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "world.toml").write_text("name = 'w'\n")
    own = {OWN: read_world_files(directory)}
    keep_report(directory, NAME, {"verdict": "exact"}, judged or own, "0.1.0")
    return directory / ".clawblox" / NAME


def test_a_report_names_changed_files_even_after_a_move(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    file = kept(tmp_path / "world")
    assert file.stat().st_mode & 0o777 == 0o600
    (tmp_path / "world").rename(tmp_path / "moved")
    report = read(tmp_path / "moved")
    assert report is not None
    assert (report.report, report.clawblox) == ({"verdict": "exact"}, "0.1.0")
    assert report.find_changes() == ()
    (tmp_path / "moved" / "world.toml").write_text("name = 'v'\n")
    (tmp_path / "moved" / "new.py").touch()
    assert report.find_changes() == ("new.py", "world.toml")


def test_files_without_digests_do_not_count_as_changed(tmp_path: Path) -> None:
    kept(tmp_path, {OWN: None})
    report = read(tmp_path)
    assert report is not None
    assert report.find_changes() is None


def test_files_elsewhere_are_read_only_for_a_trusted_report(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.py").touch()
    file = kept(tmp_path / "run", {str(other): read_world_files(other)})
    report = read(tmp_path / "run")
    assert report is not None
    assert report.find_changes() == ()
    (other / "a.py").write_text("x")
    assert report.find_changes() == (str(other / "a.py"),)
    file.chmod(0o666)
    assert report.find_changes() is None
    file.chmod(0o600)
    other.rename(tmp_path / "gone")
    assert report.find_changes() == (str(other),)


def changed(**fields: object) -> Mapping[str, object]:
    return fields


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (changed(schema_version=2), "it has schema_version 2, and this clawblox reads 1"),
        (changed(schema_version="1"), "Expected `int`, got `str`"),
        (changed(made_at=None), "Expected `str`, got `null`"),
        (changed(report=[1]), "Expected `object`, got `array`"),
        (changed(judged={".": []}), "Expected `object`, got `array`"),
        (changed(judged={".": {"files": {"a": 1}, "sha256": "0"}}), "do not match the digest"),
        (changed(judged={".": {"files": {"\ud800": "0"}, "sha256": "0"}}), "the digest in it"),
        (changed(judged={"a\x00b": {"files": {}, "sha256": NOTHING}}), "is not a directory"),
    ],
)
def test_a_report_of_the_wrong_shape_is_refused(
    tmp_path: Path, change: Mapping[str, object], text: str
) -> None:
    file = kept(tmp_path)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ClawbloxError, match="cannot be read") as refused:
        read(tmp_path)
    assert str(file) in str(refused.value)
    assert text in str(refused.value)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"[" * 100_000, b"\xff"])
def test_a_file_that_is_not_a_report_is_refused(tmp_path: Path, data: bytes) -> None:
    kept(tmp_path).write_bytes(data)
    with pytest.raises(ClawbloxError, match="cannot be read"):
        read(tmp_path)


def test_a_file_that_is_too_large_or_a_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = kept(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(kept_reports, "MAX_REPORT_BYTES", 99)
        with pytest.raises(ClawbloxError, match="cannot be read"):
            read(tmp_path)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClawbloxError, match="cannot be read"):
        read(tmp_path)


def test_a_too_large_report_only_warns_and_keeps_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(tmp_path)
    monkeypatch.setattr(kept_reports, "MAX_REPORT_BYTES", 1 << 20)
    keep_report(tmp_path, NAME, {"verdict": "x" * (1 << 20)}, {}, "0.1.0")
    assert capsys.readouterr().err.count("report not kept") == 1
    report = read(tmp_path)
    assert report is not None
    assert report.report == {"verdict": "exact"}
    assert [path.name for path in (tmp_path / ".clawblox").iterdir()] == [NAME]
