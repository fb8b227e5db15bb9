"""Score functions are imported from the directory of their plan, and leave no files there."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.score_functions import load_score
from clawblox.rundir.experiments import JOURNAL_NAME, PLAN_NAME
from tests.support.files import look_at

GOLD = "def gold(end):\n    return {number}\n"


@pytest.fixture(autouse=True)
def _modules_as_before() -> Iterator[None]:
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_module_is_found_only_in_its_directory(tmp_path: Path) -> None:
    write(tmp_path / "scores.py", GOLD.format(number=3))
    assert load_score(f"{tmp_path}/scores:gold")(None) == 3
    for text in ("json:dumps", "pytest:raises", "scores.more:gold"):
        with pytest.raises(ConfigError, match="there is no such module in") as caught:
            load_score(f"{tmp_path}/{text}")
        assert caught.value.key == "score"


def test_modules_in_packages_and_packages_are_found(tmp_path: Path) -> None:
    write(tmp_path / "scoring" / "gold.py", GOLD.format(number=3))
    write(tmp_path / "whole" / "__init__.py", "from .gold import gold")
    write(tmp_path / "whole" / "gold.py", GOLD.format(number=4))
    assert load_score(f"{tmp_path}/scoring.gold:gold")(None) == 3
    assert load_score(f"{tmp_path}/whole:gold")(None) == 4


def test_modules_of_the_same_name_are_not_confused(tmp_path: Path) -> None:
    scores = "from helpers import VALUE\n\ndef gold(end):\n    return VALUE\n"
    for number in (1, 2):
        write(tmp_path / str(number) / "scores.py", scores)
        write(tmp_path / str(number) / "helpers.py", f"VALUE = {number}")
    functions = [load_score(f"{tmp_path}/{number}/scores:gold") for number in (1, 2, 1)]
    assert [function(None) for function in functions] == [1, 2, 1]
    assert "helpers" not in sys.modules
    assert "scores" not in sys.modules


def test_no_installed_module_is_replaced(tmp_path: Path) -> None:
    text = "import statistics\n\ndef gold(end):\n    return statistics.fmean([1, 3])\n"
    write(tmp_path / "scores.py", text)
    write(tmp_path / "statistics.py", "def gold(end):\n    return 7\n")
    path = list(sys.path)
    assert load_score(f"{tmp_path}/statistics:gold")(None) == 7
    assert load_score(f"{tmp_path}/scores:gold")(None) == 2.0
    assert sys.modules["statistics"] is statistics
    assert sys.path == path


def test_import_path_is_changed_only_by_the_module_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [str(tmp_path), *sys.path]
    monkeypatch.setattr(sys, "path", list(before))
    write(tmp_path / "scores.py", f"import sys\n\nsys.path.append('/lib')\n{GOLD.format(number=3)}")
    assert load_score(f"{tmp_path}/scores:gold")(None) == 3
    assert sys.path == [*before, "/lib"]


def test_import_leaves_the_directory_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(tmp_path / "scores.py", f"import helpers\n\n{GOLD.format(number=3)}")
    write(tmp_path / "helpers.py", "")
    before = look_at(tmp_path)
    assert load_score(f"{tmp_path}/scores:gold")(None) == 3
    assert look_at(tmp_path) == before
    assert sys.dont_write_bytecode is False


def test_a_module_is_imported_once_and_again_after_a_change(tmp_path: Path) -> None:
    count = "with open(__file__ + '.log', 'a') as log:\n    log.write('x')\n\n"
    write(tmp_path / "scores.py", count + GOLD.format(number=3))
    assert [load_score(f"{tmp_path}/scores:gold")(None) for _ in range(3)] == [3, 3, 3]
    write(tmp_path / "scores.py", count + GOLD.format(number=40))
    assert load_score(f"{tmp_path}/scores:gold")(None) == 40
    assert (tmp_path / "scores.py.log").read_text() == "xx"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("import os\nx = y\n", 2, "cannot be imported: NameError: name 'y' is not defined"),
        ("import os\nx = = 1\n", 2, "cannot be imported: SyntaxError: invalid syntax"),
        ("\n\nimport no_such_module\n", 3, "cannot be imported: ModuleNotFoundError: No module"),
        ("import sys\nsys.exit('enough')", 2, "cannot be imported: SystemExit: enough"),
        ("import json\n\njson.loads('[')", 3, "cannot be imported: JSONDecodeError: "),
        ("gold = 3\n", None, "must be a function, not of the type int"),
        ("def golds(end):\n    return 3\n", None, "there is no such function"),
    ],
)
def test_a_fault_names_the_file_and_the_line(
    tmp_path: Path, text: str, line: int | None, message: str
) -> None:
    file = write(tmp_path / "scores.py", text)
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            load_score(f"{tmp_path}/scores:gold", "--score")
        assert caught.value.message.startswith(message)
        assert (caught.value.key, caught.value.path, caught.value.line) == ("--score", file, line)


def test_unknown_function_name_lists_the_existing_functions(tmp_path: Path) -> None:
    text = f"from os.path import join\nLIMIT = 3\n{GOLD.format(number=3)}"
    write(tmp_path / "scores.py", text)
    with pytest.raises(ConfigError) as caught:
        load_score(f"{tmp_path}/scores:silverware")
    assert caught.value.hint == "its functions are gold"


def test_fault_in_an_imported_sibling_names_the_sibling(tmp_path: Path) -> None:
    write(tmp_path / "scores.py", f"from .helpers import x\n{GOLD.format(number=3)}")
    helpers = write(tmp_path / "helpers.py", "\nx = y\n")
    with pytest.raises(ConfigError) as caught:
        load_score(f"{tmp_path}/scores:gold")
    assert (caught.value.path, caught.value.line) == (helpers, 2)


@pytest.mark.parametrize(
    "place",
    ["", "lib", "chains/r1/runs/exp-r1-g001/agents/Eko/workspace", "inputs/ab12-template/deep/er"],
)
def test_no_module_is_imported_from_the_directory_of_an_experiment(
    tmp_path: Path, place: str
) -> None:
    write(tmp_path / "exp" / JOURNAL_NAME, "")
    write(tmp_path / "exp" / PLAN_NAME, "")
    file = write(tmp_path / "exp" / place / "scores.py", "raise SystemExit('imported')")
    link = tmp_path / "scores.py"
    link.symlink_to(file)
    for directory in (file.parent, tmp_path):
        with pytest.raises(ConfigError, match="must be outside of the directory of an experiment"):
            load_score(f"{directory}/scores:gold")


def test_no_module_is_imported_from_the_workspace_of_an_agent(tmp_path: Path) -> None:
    write(tmp_path / "run" / ".clawblox" / "manifest.json", "{}")
    workspace = tmp_path / "run" / "agents" / "Eko" / "workspace"
    write(workspace / "scores.py", "raise SystemExit('imported')")
    with pytest.raises(ConfigError, match="must be outside of the directory of agents"):
        load_score(f"{workspace}/scores:gold")


def test_the_name_of_a_score_function_does_not_include_its_directory(tmp_path: Path) -> None:
    write(tmp_path / "a" / "scores.py", GOLD.format(number=3))
    write(tmp_path / "b" / "scores.py", GOLD.format(number=3))
    plans = [
        Plan(tmp_path / "world", [AgentSpec("claude")], score=f"{tmp_path}/{place}/scores:gold")
        for place in "ab"
    ]
    first, second = (Callbacks().load(plan) for plan in plans)
    assert first == second
    assert first["score"]["name"] == "scores:gold"
    write(tmp_path / "b" / "scores.py", GOLD.format(number=4000))
    changed = Callbacks().load(plans[1])
    assert changed["score"]["digest"] != first["score"]["digest"]
