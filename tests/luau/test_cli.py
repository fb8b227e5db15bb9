"""``python -m clawblox.luau run``"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.luau.cli import main


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clawblox.luau", "run", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_prints_what_the_script_prints(tmp_path: Path) -> None:
    path = tmp_path / "hello.luau"
    path.write_text("print('hällo', 1) coroutine.yield() print('never')")
    done = run(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hällo\t1\n", "")


def test_an_error_is_shown_with_its_stack(tmp_path: Path) -> None:
    path = tmp_path / "bad.luau"
    path.write_text("local function f() error('why') end\nf()")
    done = run(path)
    assert done.returncode == 1
    assert done.stderr == "bad.luau:1: why\nbad.luau:1 function f\nbad.luau:2\n"


@pytest.mark.parametrize(
    ("source", "code"),
    [("print('x') return 1, 'OK'", 0), ("return 'no'", 1), ("", 1), ("error()", 1)],
)
def test_conformance_files_have_to_return_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, code: int
) -> None:
    path = tmp_path / "file.luau"
    path.write_text(source)
    assert main(["run", str(path), "--conformance"]) == code
    assert capsys.readouterr().out == ""
