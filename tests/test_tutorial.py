"""The tutorial's script works as the page describes, even if it is killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.rundir.lineage import read_lineage
from docs import examples
from docs.pictures import experiment
from tests.support.waiting import wait_until

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "examples" / "fork_worlds.py"
PAGE = ROOT / "docs" / "tutorial.md"
TIMEOUT_S = 60.0


def small_experiment(directory: Path) -> Path:
    """Write the script with two short worlds next to the example worlds; return its path."""
    directory.mkdir()
    text = SCRIPT.read_text()
    small = text.replace("FORK_AT, END_AT = 8, 75, 150", "FORK_AT, END_AT = 2, 5, 10")
    assert small != text
    (directory / "marbles").symlink_to(ROOT / "examples" / "marbles")
    (directory / "fork_worlds.py").write_text(small)
    return directory / "fork_worlds.py"


def start(script: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(script)]
    return subprocess.Popen(command, cwd=script.parent, stdout=subprocess.PIPE, text=True)


def finish(script: Path) -> str:
    """Run the script to its end; return its output."""
    with start(script) as process:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    return printed


def points(script: Path) -> set[str]:
    return set((script.parent / "runs" / "experiment" / "points.csv").read_text().splitlines())


@pytest.mark.thorough
def test_the_experiment_continues_after_a_crash_to_the_same_points(tmp_path: Path) -> None:
    whole, killed = small_experiment(tmp_path / "whole"), small_experiment(tmp_path / "killed")
    printed = finish(whole)
    assert re.fullmatch(r"first: w000 \d+ w001 \d+\nfork: w002 \d+ w003 \d+\n", printed)
    table = killed.parent / "runs" / "experiment" / "points.csv"
    with start(killed) as process:
        wait_until(lambda: table.exists() and "w001,w001,5.0" in table.read_text(), TIMEOUT_S)
        process.kill()
    assert process.returncode == -9
    assert finish(killed) == printed
    assert points(killed) == points(whole)
    lives = {one.name: one.restarts for one in read_lineage(table.parent).instances}
    assert [lives["w000"], lives["w001"]] == [1, 1]
    lines = experiment.read_lines(table)
    assert [lines[name].origin for name in ("w000", "w001")] == ["w000", "w001"]
    assert {10.0} == {max(lines[name].points) for name in ("w002", "w003")}
    assert "its 2 forks" in experiment.draw(lines).render()


def test_the_script_is_short_and_names_its_run_directory_once() -> None:
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 60
    assert text.count("runs/") == text.count("run_dir=") == 1
    assert "httpx" not in text


def test_the_excerpts_on_the_page_are_in_the_script() -> None:
    script = [line.partition("  # noqa")[0] for line in SCRIPT.read_text().splitlines()]
    complete = {example.code for example in examples.find_examples(PAGE)}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    excerpts = [block for block in blocks if block not in complete]
    assert len(excerpts) >= 5
    for line in "".join(excerpts).splitlines():
        assert line in script or line.strip() == "...", line


@pytest.mark.thorough
def test_the_examples_of_the_page_print_the_shown_output(tmp_path: Path) -> None:
    shown = examples.find_examples(PAGE)
    for example, printed in zip(shown, examples.run_examples(shown, tmp_path), strict=True):
        if not example.code.startswith("clawblox lineage"):  # its lanes depend on when saves began
            assert examples.is_alike(example.output, printed), f"{example.code}\n{printed}"
        if "cksum" in example.code:
            resumed, whole = printed.splitlines()[-2:]
            assert resumed == whole
            assert printed.splitlines()[:2] == example.output.splitlines()[:2]
    table = tmp_path / "runs" / "experiment" / "points.csv"
    assert experiment.draw(experiment.read_lines(table)).render() == experiment.PICTURE.read_text()
