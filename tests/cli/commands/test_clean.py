"""``clawblox clean``: removed files, output and refusals."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path

import pytest

from clawblox import World
from tests.cli.conftest import Start
from tests.support.worlds import make_world


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "cwd" / "runs" / "r1"


@pytest.fixture
def world(tmp_path: Path) -> World:
    # Concurrent runs of other tests are in the index and may refer to a save with equal content.
    return World(dir=make_world(tmp_path, "--scene", secrets.token_hex(8)))


def save_thrice(world: World, run: Path) -> list[Path]:
    world.start_many(1, run_dir=run)
    return [world.save().path for _ in range(3)]


@pytest.mark.thorough
def test_requested_saves_are_removed_only_with_option_all(
    world: World, run: Path, call: Start
) -> None:
    saves = save_thrice(world, run)
    world.close()
    plain = call("clean", "runs/r1")
    assert (plain.wait(), plain.out) == (0, "Nothing to remove. 3 saves and archives stay.\n")
    tried = call("clean", "runs/r1", "--all", "--dry-run")
    assert tried.wait() == 0
    heading, *rows, summary = tried.out.splitlines()
    assert heading.split() == ["FILE", "KIND", "SIZE"]
    assert sorted(row.split()[0] for row in rows) == sorted(
        str(path.relative_to(run.parents[1])) for path in saves[:2]
    )
    assert re.fullmatch(r"Would remove 2 files, \S+ B\. 1 save stays\.", summary)
    assert all(path.exists() for path in saves)
    done = call("clean", "runs/r1", "--all", "--json")
    assert done.wait() == 0
    (told,) = json.loads(done.out)
    assert told["run_dir"] == str(run)
    assert sorted(one["path"] for one in told["removed"]) == sorted(map(str, saves[:2]))
    assert [(one["path"], one["named_by"]) for one in told["kept"]] == [
        (str(saves[2]), "the last save of w000")
    ]
    assert told["freed_bytes"] == sum(one["size_bytes"] for one in told["removed"])
    assert [path.exists() for path in saves] == [False, False, True]


def test_clean_refuses_a_running_run_without_removing_files(
    world: World, run: Path, call: Start
) -> None:
    saves = save_thrice(world, run)
    refused = call("clean", "runs/r1", "--all")
    assert (refused.wait(), refused.out) == (1, "")
    assert f"the run directory {run} is held by pid" in refused.err
    assert all(path.exists() for path in saves)
    world.close()


def test_a_directory_without_a_run_is_refused(tmp_path: Path, call: Start) -> None:
    refused = call("clean", ".")
    assert (refused.wait(), refused.out) == (1, "")
    assert "Nothing has run in '.'" in refused.err
