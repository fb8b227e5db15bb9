"""Tests that need a program are skipped without it, or fail where every program is required."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optional import PACKAGES, REQUIRED_ENV, find_program, require_package, require_program

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.usefixtures("_empty_path")


@pytest.fixture
def _empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(REQUIRED_ENV, raising=False)


def test_a_missing_program_skips_and_names_the_package() -> None:
    reason = r"rg is not installed \(Debian: apt-get install ripgrep\)"
    with pytest.raises(pytest.skip.Exception, match=reason):
        require_program("rg")


def test_a_missing_package_skips_and_names_the_extra() -> None:
    reason = r"no_such is not installed \(pip install 'clawblox\[ray\]'\)"
    with pytest.raises(pytest.skip.Exception, match=reason):
        require_package("no_such", "ray")


def test_a_missing_program_fails_if_all_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED_ENV, "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install ripgrep"):
        require_program("rg")


def test_a_program_is_found_by_its_other_name(tmp_path: Path) -> None:
    path = tmp_path / "chromium-browser"
    path.touch(0o755)
    assert find_program("chromium") == path


def test_the_missing_packages_are_printed(tmp_path: Path) -> None:
    (tmp_path / "tmux").touch(0o755)
    command = [sys.executable, "-m", "tests.optional"]
    printed = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, check=True)
    assert {*printed.stdout.decode().split(), "tmux", "postgresql"} == {*PACKAGES.values()} | {
        "tmux",
        "postgresql",
    }
    assert "tmux" not in printed.stdout.decode()


@pytest.mark.thorough
def test_the_mark_is_checked_before_a_test_is_set_up(tmp_path: Path) -> None:
    trial = tmp_path / "test_trial.py"
    trial.write_text(
        "import pytest\n@pytest.mark.needs('rg')\ndef test_trial(): raise AssertionError\n"
    )
    plugins = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-o", "markers=needs:")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *plugins, "-c", os.devnull, str(trial)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 skipped" in done.stdout
    assert "apt-get install ripgrep" in done.stdout
