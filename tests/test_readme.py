"""The README's programs run as they stand there, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import free_port

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def run_beside_the_examples(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "examples").symlink_to(ROOT / "examples")
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=["async", "many", "script", "checkpoint"])
def test_a_program_of_the_readme_runs(tmp_path: Path, program: str) -> None:
    program = program.replace("8085", str(free_port()))
    result = run_beside_the_examples(tmp_path, "-c", program)
    assert result.returncode == 0, result.stderr


def test_the_quickstart_runs_from_start_to_resumed(tmp_path: Path) -> None:
    result = run_beside_the_examples(tmp_path, "examples/quickstart.py")
    assert result.returncode == 0, result.stderr
    assert "equal to the byte" in result.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
