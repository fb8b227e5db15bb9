"""The static checks: format, lint, types and import rules, run from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = Path(sys.executable).parent

CHECKS = {
    "ruff format": ["ruff", "format", "--check", "."],
    "ruff check": ["ruff", "check", "."],
    "mypy": ["mypy"],
    "import-linter": ["lint-imports", "--no-cache"],
}


@pytest.mark.parametrize("command", CHECKS.values(), ids=CHECKS)
def test_the_repository_passes_all_checks(command: list[str], tmp_path: Path) -> None:
    program, *arguments = command
    is_writable = os.access(ROOT, os.W_OK)
    ruff_cache = ROOT / ".ruff_cache" if is_writable else tmp_path / "ruff"
    mypy_cache = ROOT / ".mypy_cache" if is_writable else Path(os.devnull)
    result = subprocess.run(
        [SCRIPTS / program, *arguments],
        cwd=ROOT,
        env={
            "PATH": f"{SCRIPTS}:/usr/bin:/bin",
            "MYPY_CACHE_DIR": str(mypy_cache),
            "RUFF_CACHE_DIR": str(ruff_cache),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
