"""The README's programs run as they stand there, again and again; its links lead somewhere."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import free_port

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
IN_A_SHELL = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
FOREGROUND, BACKGROUND, ARCHIVE = (block for block in IN_A_SHELL if "pip install" not in block)
PAGES = [
    *(ROOT / "README.md", ROOT / "benchmarks" / "README.md"),
    *sorted((ROOT / "docs").glob("*.md")),
]
TIMEOUT_S = 60


@pytest.fixture
def beside_the_examples(tmp_path: Path) -> Path:
    """Return a directory that looks like a clone, as far as the programs can see."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def environment() -> dict[str, str]:
    """Return the variables of a shell in which no environment is activated."""
    left = ("VIRTUAL_ENV", "CONDA_PREFIX", "WORLD_")
    return {key: value for key, value in os.environ.items() if not key.startswith(left)}


def run(directory: Path, *arguments: str, path: str = "/usr/bin:/bin") -> str:
    """Run a program to its end; return what it prints."""
    result = subprocess.run(
        arguments,
        cwd=directory,
        env={**environment(), "PATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


SCRIPTS = f"{Path(sys.executable).parent}:/usr/bin:/bin"


@pytest.mark.parametrize("program", PROGRAMS, ids=["async", "many", "script", "checkpoint"])
def test_a_program_of_the_readme_runs_again_and_prints(
    beside_the_examples: Path, program: str
) -> None:
    program = program.replace("8085", str(free_port()))
    for _ in range(2):
        assert run(beside_the_examples, sys.executable, "-c", program).strip()


def test_the_quickstart_runs_from_start_to_resumed_and_again(beside_the_examples: Path) -> None:
    for _ in range(2):
        out = run(beside_the_examples, sys.executable, "examples/quickstart.py")
        assert "equal to the byte" in out


def test_the_commands_in_the_background_run_again_and_print(beside_the_examples: Path) -> None:
    for _ in range(2):
        for command in BACKGROUND.splitlines():
            assert run(beside_the_examples, "/bin/sh", "-c", command, path=SCRIPTS).strip()


def test_the_command_in_the_foreground_runs_again_until_ctrl_c(beside_the_examples: Path) -> None:
    for _ in range(2):
        command = FOREGROUND.replace("8080", str(free_port()))
        with subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            cwd=beside_the_examples,
            env={**environment(), "PATH": SCRIPTS},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                assert "is ready at" in process.stdout.readline()
            finally:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 130


def test_the_command_that_shows_an_archive_shows_the_one_that_a_program_has_saved(
    beside_the_examples: Path,
) -> None:
    run(beside_the_examples, sys.executable, "-c", PROGRAMS[-1])
    assert "Rocky" in run(beside_the_examples, "/bin/sh", "-c", ARCHIVE, path=SCRIPTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_meant_for_a_shell_can_be_copied(page: Path) -> None:
    text = page.read_text()
    assert "```console" not in text
    assert not re.search(r"^\s*\$ ", text, re.MULTILINE)
    for block in re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL):
        subprocess.run(["/bin/sh", "-n", "-c", block], check=True, timeout=TIMEOUT_S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
