"""A damaged snapshot is refused with the place of the damage, or its world runs normally."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.errors import SnapshotMismatch, WorldHalted
from clawblox.engine.settings import EngineSettings, read_settings
from clawblox.luau import run_deep
from tests.engine.playing import play
from tests.engine.torture import Plan, Run
from tests.support.waiting import HANG_S

MAIN = """
local function make(class, parent, properties)
    local made = Instance.new(class)
    for name, value in properties do made[name] = value end
    made.Parent = parent
    return made
end
workspace.Terrain:FillBlock(CFrame.new(0, -4, 0), Vector3.new(16, 8, 16), Enum.Material.Grass)
local lift = make("Part", workspace, { Anchored = true, Size = Vector3.new(40, 1, 40) })
lift:SetAttribute("list", { 1, Color3.new(1, 0, 0) })
local boxes = {}
for at = 1, 3 do
    boxes[at] = make("Part", workspace, { Position = Vector3.new(0, at * 2, 5) })
end
make("Weld", workspace, { Part0 = boxes[1], Part1 = boxes[2] })
make("BodyForce", boxes[3], { Force = Vector3.new(1, 0, 0) })
boxes[1].Touched:Connect(function() end)
game:GetService("Debris"):AddItem(make("Folder", nil, {}), 20)
game:GetService("PhysicsService"):RegisterCollisionGroup("Ghosts")
game:BindToClose(function() end)
require(make("ModuleScript", workspace, { Source = "return {}" }))
make("Script", workspace, { Disabled = true, Source = "print(1)" })
make("Sound", workspace, {}):Play()
Players.PlayerAdded:Connect(function(player)
    local humanoid = player.Character:WaitForChild("Humanoid")
    local track = humanoid:LoadAnimation(make("Animation", nil, { AnimationId = "wave" }))
    track.Looped = true
    track:Play()
    humanoid:MoveTo(Vector3.new(5, 0, 5))
end)
task.spawn(function() workspace:WaitForChild("Never", 100) end)
task.spawn(function() lift.ChildRemoved:Wait() end)
task.delay(5, print, "late")
local beat = 0
game:GetService("RunService").Heartbeat:Connect(function()
    beat += 1
    lift.Position += Vector3.new(0.1, 0, 0)
    workspace:Raycast(Vector3.new(0, 50, 0), Vector3.new(0, -100, 0))
    game:GetService("RemoteEventService"):FireAllClients("beat", { beat })
    if beat == 6 then
        Players:GetPlayers()[2]:Kick("enough")
        Players:AddBot("bot")
    end
end)
"""
GONE = object()
DAMAGE = (GONE, None, "x", -1, 7, 10**30, 1e308, 0.5, True, [], {}, [[]], [1, 2, 3])
CASES = 1200
"""Number of cases, from several thousands."""

Path_ = tuple[str | int, ...]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("world")
    (made / "world.toml").write_text('name = "test"\n')
    return made


@pytest.fixture(scope="module")
def state(directory: Path) -> Any:
    run = play(directory, MAIN, 6, Plan().join(1, "Ada").join(2, "Bo"))
    assert run.world.failure is None, run.lines
    return json.loads(json.dumps(run.world.snapshot()))


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Iterate over the paths of all values in a document, except in the VM's part."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            if (*path, key) != ("vm",):
                yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from places(each, (*path, at))


def damaged(state: Any, path: Path_, value: Any) -> Any:
    """Return a document with the value at a place replaced."""
    changed = holder = copy.deepcopy(state)
    for key in path[:-1]:
        holder = holder[key]
    if value is GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed


def try_to_run(directory: Path, state: Any) -> None:
    """Restore a state and use the world; errors other than a refusal or a halt are faults."""
    run = Run(EngineSettings(directory=directory), Plan())
    try:
        run.restore(state, [])
        for _ in range(3):
            run.world.step()
            json.dumps(run.world.snapshot(), allow_nan=False)
        for agent_id, _ in run.world._parts.services.players.listed():
            run.world.observe(agent_id)
        run.world.spectate()
    except (SnapshotMismatch, WorldHalted):
        return


def check_cases(directory: Path, state: Any, cases: list[tuple[Path_, Any]]) -> None:
    for path, value in cases:
        shown = "nothing" if value is GONE else repr(value)
        try:
            try_to_run(directory, damaged(state, path, value))
        except Exception as error:
            raise AssertionError(f"{'.'.join(map(str, path))}: {shown} instead") from error


def all_cases(state: Any) -> list[tuple[Path_, Any]]:
    cases = [(path, value) for path in places(state) for value in DAMAGE]
    random.Random("damage").shuffle(cases)
    return cases


@pytest.mark.thorough
def test_damaged_document_is_refused_or_runs(directory: Path, state: Any) -> None:
    run_deep(lambda: check_cases(directory, state, all_cases(state)[:CASES]))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("scheduler", "tick"), "soon", r"at state\.scheduler\.tick: 'soon' is not a whole number"),
        (("scheduler", "tick"), 7, "is not that of its tick"),
        (("scheduler", "waiting", 0, 4, 0), "x", "waits for 'x', which is unknown"),
        (("tree", "made"), GONE, r"at state\.tree: .* is not an object with the keys made, "),
        (("tree", "services", "Players"), 1, "no instance 1 of class Players"),
        (("signals", 0, 0), "no.thing", r"no signal no\.thing"),
        (("systems", "services", "debris", 0, 0), 1 << 40, "no Luau value number 1099511627776"),
        (("systems", "parts", "space", "bytes"), "AAAA", "the physics data is damaged"),
        (("systems", "parts", "space", "bodies", 0), GONE, "do not match the physics data"),
        (("systems", "parts", "space", "awake"), [999], "no body 999"),
        (("tree", "instances", 13, 2), None, r"body \d+ has no part in Workspace"),
        (("systems", "characters", "roots"), [[1, 1]], "no character 1 with the root 1"),
    ],
)  # fmt: skip
def test_refused_document_error_names_the_place(
    directory: Path, state: Any, path: Path_, value: Any, reason: str
) -> None:
    world = Run(EngineSettings(directory=directory), Plan()).world
    with pytest.raises(SnapshotMismatch, match=reason):
        world.restore(damaged(state, path, value))


@pytest.mark.thorough
def test_program_refuses_a_damaged_snapshot_without_a_traceback(
    directory: Path, state: Any
) -> None:
    content_hash = Run(read_settings(directory), Plan()).world.content_hash()
    bad = damaged(state, ("signals",), {"1": 2}) | {"content_hash": content_hash}
    saved = {
        "format": "clawblox-engine-v1",
        "version": 1,
        "time": state["time"],
        "tick": 6,
        "scene_hash": content_hash,
        "state": bad,
        "sessions": [],
        "ids": {"key": "00" * 32, "issued": 0},
        "pending_inputs": [],
        "chat": {"messages": [], "posted": 0},
    }
    (directory / "saved.json").write_text(json.dumps(saved))
    command = [sys.executable, "-m", "clawblox.engine", str(directory), "--port", "0"]
    done = subprocess.run(
        [*command, "--datastore", "none", "--resume", "saved.json"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 65
    assert "the snapshot is damaged at state.signals: {'1': 2} is not a list" in done.stderr
    assert "Traceback" not in done.stderr
