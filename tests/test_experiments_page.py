"""The programs of the page about experiments, run in sequence with a stand-in as agent."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs import examples, plan_fields
from docs.pictures import experiments

PAGE = plan_fields.PAGE
QUICK = {
    "generations = 3": "generations = 1",
    "seeds = [1, 2, 3]": "seeds = [1]",
    "[true, false]": "[false]",
    "turns = 6": "turns = 1",
    "g002": "g001",
    "source, 4": "source, 1",
    "generation == 1]": "generation == 1][:3]",
}
"""Replacements in the page for the quick test."""
MARK = "-- the next program --"


@pytest.mark.thorough
def test_the_programs_of_the_page_run_in_sequence(tmp_path: Path) -> None:
    """All programs run in one process, which saves repeated imports."""
    text = PAGE.read_text()
    for shown, quick in QUICK.items():
        assert shown in text
        text = text.replace(shown, quick)
    page = tmp_path / "page.md"
    page.write_text(text)
    examples.write_files(page, tmp_path)
    programs = [one.code for one in examples.find_examples(page) if one.language == "python"]
    whole = examples.Example("python", f"print('{MARK}')\n".join(programs), "", (-1, -1))
    env = examples.install_agents(tmp_path / ".agents")
    (printed,) = examples.run_examples([whole], tmp_path, env)
    run, fork, again, plan, changed, record, hooks, rescored, values = printed.split(f"{MARK}\n")
    assert run.startswith("done: 1 generation committed\nWORKSPACE  N  POINTS")
    rows = [line.split()[:3] for line in fork.splitlines() if line]
    assert [row[:2] for row in rows[1:3]] == [["control", "1"], ["hint", "1"]]
    assert rows[-2] == ["hint", "points", "branch"]
    assert again == "done: 0 generations committed\n"
    assert plan == "16 fable-before300-r1 opus-before60-r4\n"
    assert changed.splitlines()[1] == "  duration: was 1800.0, is 2700.0"
    assert record.endswith("chains\n['opened', 'prepared', 'working']\n")
    assert [line.split()[:2] for line in hooks.splitlines()][-1] == ["s7", "budget"]
    assert rescored == "1 points points_per_s\n"
    assert values.endswith("{'prompt': 'hint'} 1 branch False\n")
    (shell,) = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    commands = examples.Example("bash", shell, "", (-1, -1))
    (shown,) = examples.run_examples([commands], tmp_path, env)
    assert "3 of 3 committed" in shown
    assert shown.endswith("Wrote scores.svg\n")


@pytest.mark.thorough
def test_the_programs_of_the_page_print_the_shown_output(tmp_path: Path) -> None:
    shown = examples.find_examples(PAGE)
    for example, printed in zip(shown, examples.run_page(PAGE, tmp_path), strict=True):
        if example.language == "python":  # the status contains times with different units
            assert examples.is_alike(example.output, printed), f"{example.code}\n{printed}"


def test_every_program_of_the_page_is_tested() -> None:
    blocks = PAGE.read_text().count("```python\n")
    files = [name for name in examples.find_files(PAGE) if name.endswith(".py")]
    programs = [one for one in examples.find_examples(PAGE) if one.language == "python"]
    assert blocks == len(programs) + len(files)


def test_the_tables_of_fields_match_the_docstrings() -> None:
    text = PAGE.read_text()
    assert plan_fields.render_page(text) == text, "run python -m docs.plan_fields"


@pytest.mark.parametrize(
    "path", [experiments.TABLE, experiments.SCORES, experiments.FORK, experiments.STEPS]
)
def test_a_picture_of_the_page_is_small_and_well_formed(path: Path) -> None:
    assert path.stat().st_size < 40_000
    ElementTree.fromstring(path.read_text())


def test_the_picture_of_the_steps_matches_the_scripts_output() -> None:
    assert experiments.STEPS.read_text() == experiments.draw_steps().render()
