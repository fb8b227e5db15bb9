"""The errors of a plan whose files, programs or variables are missing."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

from clawblox.cli.plan_options import naming_lines
from clawblox.errors import ConfigError
from clawblox.experiment.live.survey import survey_plan
from clawblox.experiment.plan import Plan
from tests.support.worlds import make_world

PLAN = """\
world = "counter"
save = false
retry = {{ from = "template" }}
score = "scores:gold"

[[agents]]
driver = "command"
auto_continue = false
command = {command}
env = ["A_KEY", "B_KEY"]
template = "nowhere"
system_prompt = "nothing.md"
"""


def survey(plan: Plan, directory: Path, *, is_dry: bool = False) -> None:
    anyio.run(partial(survey_plan, plan, directory, {}, are_variables_needed=not is_dry))


def refuse(root: Path, command: str, *, is_dry: bool = False) -> str:
    make_world(root)
    (root / "exp.toml").write_text(PLAN.format(command=command))
    plan = Plan.load(root / "exp.toml")
    with pytest.raises(ConfigError) as caught, naming_lines(str(root / "exp.toml"), ()):
        survey(plan, root / "exp", is_dry=is_dry)
    return str(caught.value)


@pytest.mark.parametrize("is_dry", [False, True])
def test_all_missing_things_are_in_one_error_with_their_lines(tmp_path: Path, is_dry: bool) -> None:
    error = refuse(tmp_path, '{ start = ["no-such-agent", "{prompt}"] }', is_dry=is_dry)
    assert "score: there is no such module" in error
    assert "'no-such-agent' is not on PATH" in error
    assert "line 10: agents.Eko.env: must have values in the environment" in error
    assert "export A_KEY=… B_KEY=…" in error
    assert "line 12: agents.0.system_prompt: must be an existing file, not 'nothing.md'" in error


def test_a_template_that_is_missing_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "nothing.md").touch()
    error = refuse(tmp_path, '{ start = ["true", "{prompt}"] }')
    assert "line 11: agents.0.template: must be an existing directory, not 'nowhere'" in error


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ('["./agent.py"]', 'write { start = ["./agent.py", "{prompt}"] }'),
        ('{ start = ["./agent.py", "{prompt}"] }', "make it executable: chmod +x "),
        ('{ start = ["./other.py", "{prompt}"] }', "put it there and make it executable"),
        ('{ start = ["/no/agent", "{prompt}"] }', "give the path of the program, or the name of"),
        ('{ start = ["no-such-agent", "{prompt}"] }', "or give its path: ./no-such-agent is"),
    ],
)
def test_a_program_that_cannot_run_is_reported_by_its_kind(
    tmp_path: Path, command: str, advice: str
) -> None:
    (tmp_path / "agent.py").write_text("print(1)\n")
    error = refuse(tmp_path, command)
    assert advice in error
    assert "doctor" not in error


def test_a_fault_of_the_world_has_its_own_file_and_line(tmp_path: Path) -> None:
    make_world(tmp_path)
    (tmp_path / "counter" / "world.toml").write_text('name = "w"\n[run]\ncommand = "a"\n')
    (tmp_path / "exp.toml").write_text(PLAN.format(command='{ start = ["a", "{prompt}"] }'))
    with pytest.raises(ConfigError) as caught:
        survey(Plan.load(tmp_path / "exp.toml"), tmp_path / "exp")
    assert caught.value.key == "run.command"
    assert caught.value.line == 3
