"""Untrusted journals: changed at random, with names that lead elsewhere, and with links."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.errors import ClawbloxError
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.history.lines import encode
from clawblox.experiment.inputs import digest_inputs
from clawblox.experiment.leftovers import list_leftovers, remove_leftovers
from clawblox.experiment.live.attempt_files import AttemptRecord, RecordedAgent, write_record
from clawblox.experiment.plan import Plan
from clawblox.experiment.reading.record import read_experiment
from clawblox.rundir.experiments import JOURNAL_NAME
from tests.experiment.history.test_machine import record
from tests.support.worlds import make_world

OUTSIDE = "outside"
HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 3, 2**70, -0.5, 1e308, "", "x", [], {}, [None], {"a": 1}, ["x"] * 9),
    *(".", "..", "/", "*", "a/b", "\0", "\n", "x" * 300, "plan-1.toml", "plan-9.toml"),
    *(f"{'../' * depth}{OUTSIDE}" for depth in range(1, 8)),
    *("r1", "r2", "r1-f1-1", "exp-r1-g001", "2026-06-22T18:59:25Z", "work", "score", "committed"),
)
WORKSPACE = "runs/old-g001/agents/Eko-rold-g001-w0-a0/workspace"
CALLED = {"hook": "on_done", "reason": "", "running": False, "keys": ["done:9"]}
IMPORTED = {
    "run_id": "old-g001",
    "workspaces": [WORKSPACE],
    "rows": [
        {
            "generation": "1",
            "agent_index": "0",
            "agent_name": "Eko-rold-g001-w0-a0",
            "run_id": "old-g001",
            "tmux_session": "",
            "template_in": "/template",
            "workspace_out": WORKSPACE,
            "start_utc": "2026-06-22T18:59:25Z",
            "end_utc": "2026-06-22T19:59:25Z",
            "duration_seconds": "3600",
        }
    ],
}


class Scene:
    """An experiment with every kind of event, beside files of the user."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "experiments" / "exp"
        self.directory.mkdir(parents=True)
        for name in ("file", "checkpoints/file", "gen001-t000900-1.ckpt", "x.failed-1/file"):
            path = root / OUTSIDE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("of the user")
        self.lines = self._make_lines(make_world(root))
        self.write(self.lines)
        (self.directory / "chains" / "r3" / WORKSPACE).mkdir(parents=True)
        for line in self.lines:
            self._make_files(line)

    def _make_lines(self, world: Path) -> list[dict[str, Any]]:
        fake, lines = record()
        plan = fake.but(world=world)
        for name in ("plan.toml", "plan-1.toml"):
            (self.directory / name).write_text(plan.dumps(base=self.directory))
        inputs = digest_inputs(Plan.load(self.directory / "plan.toml"))
        plain = [json.loads(encode(line)) for line in lines]
        for line in plain:
            if line["type"] in ("experiment.begun", "plan.amended"):
                line["data"]["inputs"] = {
                    "world": dict(inputs.world),
                    "prompts": dict(inputs.prompts),
                    "templates": dict(inputs.templates),
                }
            elif line["type"] == "committed":
                path = f"runs/{line['data']['files']}/agents/Eko/workspace"
                line["data"] |= {"agents": [{"name": "Eko"}], "workspaces": [path]}
        last = plain[-1]
        about = {"at": last["at"], "chain": "r3", "generation": 9}
        rescored = {**about, "chain": "r1", "generation": 1, "data": {"scores": {"cubes": 4.0}}}
        more = [
            {**about, "type": "imported", "data": IMPORTED},
            {**rescored, "type": "rescored"},
            {"at": last["at"], "type": "hook.called", "data": CALLED},
            {"at": last["at"], "type": "hook.failed", "data": {"hook": "stop", "error": "no"}},
        ]
        return number([*plain, *more])

    def _make_files(self, line: dict[str, Any]) -> None:
        if "attempt" not in line:
            return
        name = line["data"].get("moved_to") or line["attempt"]
        run_dir = self.directory / "chains" / line["chain"] / "runs" / name
        if line["type"] == "opened":
            write_record(run_dir, AttemptRecord(agents=(RecordedAgent(name="Eko"),)))
        elif line["type"] == "checkpoint":
            archive = run_dir / "checkpoints" / line["data"]["file"]
            archive.parent.mkdir(exist_ok=True)
            archive.write_text("archive")

    def write(self, lines: list[dict[str, Any]]) -> None:
        for table in self.directory.rglob("generation_chain.csv"):
            table.unlink()  # it was derived from the earlier lines
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.directory / JOURNAL_NAME).write_text(text)

    def others(self) -> dict[str, Any]:
        """Return everything outside of the directory of the experiment."""
        return {
            str(path): path.read_bytes() if path.is_file() else os.lstat(path).st_mode
            for path in self.root.rglob("*")
            if not path.is_relative_to(self.directory)
        }

    def clean(self) -> None:
        remove_leftovers(self.directory, list_leftovers(read_experiment(self.directory)))

    def look(self) -> None:
        record = read_experiment(self.directory)
        record.status()
        results = record.results()
        for of_agents in (False, True):
            results.table(agents=of_agents)
            results.to_csv(agents=of_agents)
        results.to_json()

    def open(self) -> None:
        async def enter() -> None:
            async with AsyncExperiment.open(self.directory, env={}):
                pass

        anyio.run(enter)


def number(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**line, "seq": seq} for seq, line in enumerate(lines, 1)]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all members of a JSON value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    found = []
    for key in keys:
        found.append((*path, key))
        if isinstance(value[key], dict | list):
            found += places(value[key], (*path, key))
    return found


def mutate(lines: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """Return the lines with one change of a member or of the order."""
    changed: list[dict[str, Any]] = json.loads(json.dumps(lines))
    index = rng.randrange(len(changed))
    match rng.randrange(8):
        case 0:
            del changed[index]
        case 1:
            changed.insert(rng.randrange(len(changed)), changed[index])
        case 2:
            other = rng.randrange(len(changed))
            changed[index], changed[other] = changed[other], changed[index]
        case 3:
            changed[index]["type"] = rng.choice(lines)["type"]
        case _:
            *steps, last = rng.choice(places(changed[index]))
            parent: Any = changed[index]
            for step in steps:
                parent = parent[step]
            if rng.random() < 0.25:
                del parent[last]
            else:
                parent[last] = rng.choice(HOSTILE)
    return number(changed) if rng.random() < 0.9 else changed


@pytest.mark.parametrize("count", [12, pytest.param(500, marks=pytest.mark.thorough)])
def test_a_changed_journal_is_read_or_refused_with_its_line_and_changes_no_other_file(
    tmp_path: Path, count: int
) -> None:
    scene = Scene(tmp_path)
    before, rng = scene.others(), random.Random(38)
    refused: list[str] = []
    for _ in range(count):
        lines = mutate(scene.lines, rng)
        for use in (scene.look, scene.clean, scene.open):
            scene.write(lines)
            try:
                use()
            except ClawbloxError as error:
                refused.append(str(error))
        assert scene.others() == before
    assert refused
    assert not [error for error in refused if str(scene.directory) not in error]


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.thorough)])
def test_a_journal_with_changed_bytes_is_read_or_refused_with_the_line(
    tmp_path: Path, count: int
) -> None:
    scene = Scene(tmp_path)
    path, rng = scene.directory / JOURNAL_NAME, random.Random(11)
    whole = path.read_bytes()
    for _ in range(count):
        start = rng.randrange(len(whole))
        piece = rng.choice([b"", b"\xff", b"\n", b"NaN", b"9" * 5000, b"[" * 5000, b'"', b"-1e999"])
        path.write_bytes(whole[:start] + piece + whole[start + rng.randrange(9) :])
        with contextlib.suppress(ClawbloxError):
            scene.look()


@pytest.mark.parametrize("member", ["chain", "attempt", "moved_to", "file", "origin", "files"])
def test_name_that_leaves_the_directory_is_refused_with_its_line(
    tmp_path: Path, member: str
) -> None:
    scene = Scene(tmp_path)
    before = scene.others()
    line = next(
        line for line in scene.lines if member in line or line["data"].get(member) is not None
    )
    for name in ("", "/", "a/b", "..", "\0", "x" * 300, f"../../../../{OUTSIDE}"):
        if member in line:
            line[member] = name
        elif member == "origin":
            line["data"]["origin"]["attempt"] = name
        else:
            line["data"][member] = name
        scene.write(scene.lines)
        for use in (scene.look, scene.clean):
            with pytest.raises(ClawbloxError, match=f"line {line['seq']} is not valid"):
                use()
    with pytest.raises(ClawbloxError, match=f"line {line['seq']} is not valid"):
        scene.open()
    assert scene.others() == before


@pytest.mark.parametrize(
    "place",
    [
        *("chains", "chains/r1", "chains/r1/runs", "inputs", ".clawblox"),
        *("chains/r1/runs/RUN", "chains/r1/runs/RUN/checkpoints", "chains/r1/runs/RUN/.clawblox"),
    ],
)
def test_an_experiment_with_a_link_in_place_of_a_directory_is_refused_without_moving_files(
    tmp_path: Path, place: str
) -> None:
    scene = Scene(tmp_path)
    run = next((scene.directory / "chains" / "r1" / "runs").iterdir()).name
    path = scene.directory / place.replace("RUN", run)
    path.mkdir(exist_ok=True)
    path.rename(tmp_path / OUTSIDE / "moved")
    path.symlink_to(tmp_path / OUTSIDE / "moved")
    before = scene.others()
    for use in (scene.clean, scene.open):
        with pytest.raises(ClawbloxError, match="must not be a symbolic link"):
            use()
    assert scene.others() == before


def test_journal_with_a_wrong_first_line_is_refused(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    without_format = json.loads(json.dumps(scene.lines))
    del without_format[0]["data"]["format"]
    for lines in (number(scene.lines[1:]), without_format):
        scene.write(lines)
        for use in (scene.look, scene.clean, scene.open):
            with pytest.raises(ClawbloxError, match="line 1 is not valid"):
                use()


def test_model_that_is_not_a_string_is_refused_with_its_line(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    line = next(line for line in scene.lines if line["type"] == "working")
    line["data"]["agents"] = [{"name": "Eko", "model": ["opus"]}]  # a key of the table of prices
    scene.write(scene.lines)
    with pytest.raises(ClawbloxError, match=f"line {line['seq']} is not valid"):
        scene.look()


def test_user_link_next_to_the_runs_is_harmless(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (scene.directory / "chains" / "r1" / "runs" / "latest").symlink_to("exp-r1-g001")
    scene.open()
    scene.clean()


def test_plan_behind_a_link_is_not_read(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    plan = scene.directory / "plan-1.toml"
    plan.rename(tmp_path / "plan-1.toml")
    plan.symlink_to(tmp_path / "plan-1.toml")
    with pytest.raises(ClawbloxError, match="must not be a symbolic link"):
        scene.look()
