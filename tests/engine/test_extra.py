"""The extra ``engine`` lists all packages that the engine imports."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.waiting import HANG_S

ROOT = Path(__file__).parents[2]
CODE = """
import json, sys

hidden = set(json.loads(sys.argv[2]))

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())

from pathlib import Path
import clawblox.engine.runner
from clawblox.engine.settings import EngineSettings
from clawblox.luau import run_deep
from tests.engine.torture import Plan, Run

def run():
    world = Run(EngineSettings(directory=Path(sys.argv[1])), Plan())
    world.start()
    world.world.join("0bb4f171-8c1e-4313-b6de-5b96fa09e102", "Ada")
    for _ in range(3):
        world.step()
    print(json.dumps(world.world.snapshot())[:1])

run_deep(run)
"""


@pytest.mark.thorough
def test_the_extra_names_every_package_that_a_world_with_a_character_needs(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text("")
    home = metadata.packages_distributions()
    needed = packages_of_the_extra("engine")
    hidden = [name for name, owners in home.items() if not needed & {plain(one) for one in owners}]
    assert "pytest" in hidden
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), json.dumps(hidden)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("{\n", "", 0)


def packages_of_the_extra(extra: str) -> set[str]:
    """Return the packages that pip would install for an extra of this package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [Requirement(text) for text in project["dependencies"]]
    waiting += [Requirement(f"clawblox[{extra}]")]
    found: dict[str, set[str]] = {}
    while waiting:
        wanted = waiting.pop()
        name, extras = plain(wanted.name), {"", *wanted.extras}
        new = extras - found.setdefault(name, set())
        found[name] |= new
        if name == "clawblox":
            ours = (project["optional-dependencies"][one] for one in new if one)
            waiting += [Requirement(text) for texts in ours for text in texts]
            continue
        for text in metadata.requires(name) or () if new else ():
            below = Requirement(text)
            if below.marker is None or any(below.marker.evaluate({"extra": one}) for one in new):
                waiting.append(below)
    return set(found)


def plain(name: str) -> str:
    """Return the normalized name of a package."""
    return name.lower().replace("_", "-").replace(".", "-")
