"""Worlds continue exactly from saves at moments at which snapshots once lost state."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.engine.runner import Backend
from clawblox.engine.settings import EngineSettings
from clawblox.luau import run_deep
from tests.engine.torture import Plan, Run, differences

ON = 8
"""Number of ticks that both worlds run after the save."""


def written(value: Any) -> Any:
    """Return a value after writing and reading it as strict JSON."""
    return json.loads(json.dumps(value, allow_nan=False))


def check(
    directory: Path,
    main: str,
    ticks: int,
    *,
    acts: Plan | None = None,
    datastore: Backend = Backend.NONE,
) -> Run:
    """Run a world, save it, and check that the restored world continues exactly.

    Args:
        directory: Directory for the script.
        main: The script.
        ticks: Number of ticks before the save.
        acts: Actions of agents; those in the tick of the save come before the save.
        datastore: File for the rows of data stores.
    """
    (directory / "main.lua").write_text(main)
    settings = EngineSettings(directory=directory)
    return run_deep(lambda: _check(settings, ticks, acts or Plan(), datastore))


def _check(settings: EngineSettings, ticks: int, acts: Plan, datastore: Backend) -> Run:
    first = Run(settings, acts, datastore).start()
    for _ in range(ticks):
        first.step()
    for _, verb, name, *more in [each for each in acts.steps if each[0] == ticks]:
        first._do(verb, name, more)
    acts.steps = [each for each in acts.steps if each[0] != ticks]
    state = written(first.world.snapshot())
    second = Run(_copied(settings, datastore), acts, datastore)
    try:
        second.restore(state, first.names)
        second.lines[:] = first.lines
        second.fingerprint = first.fingerprint
        for at in range(ON):
            found = list(differences(written(first.record()), written(second.record())))
            assert not found, f"{at} ticks on: " + "\n".join(found[:9])
            first.step()
            second.step()
        assert first.world.failure is None, first.lines
    finally:
        first.close()
        second.close()
    return first


def _copied(settings: EngineSettings, datastore: Backend) -> EngineSettings:
    """Return settings with a copy of the rows, so two worlds do not block each other."""
    if datastore is Backend.NONE:
        return settings
    copy = settings.directory.with_name(f"{settings.directory.name}-copy")
    return attrs.evolve(settings, directory=Path(shutil.copytree(settings.directory, copy)))


HEARTBEAT = 'game:GetService("RunService").Heartbeat:Connect(function() {} end)\n'

WELDED = """
local model = Instance.new("Model", workspace)
local root = Instance.new("Part", model)
root.Name, root.Position = "HumanoidRootPart", Vector3.new(0, 20, 0)
local base = Instance.new("Part", workspace)
local weld = Instance.new("Weld", workspace)
weld.Part0, weld.Part1, weld.C0 = base, root, CFrame.new(0, 5, 0)
local humanoid = Instance.new("Humanoid")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("ticks", [1, 3, 5])
def test_welded_part_that_becomes_a_character_continues_exactly(tmp_path, ticks):
    check(tmp_path, WELDED + "task.delay(0.05, function() humanoid.Parent = model end)", ticks)


@pytest.mark.parametrize("ticks", [1, 3, 5])
def test_welded_character_that_becomes_a_part_continues_exactly(tmp_path, ticks):
    script = "humanoid.Parent = model task.delay(0.05, function() humanoid:Destroy() end)"
    check(tmp_path, WELDED + script, ticks)


def test_touch_of_an_otherwise_unreferenced_part_ends_exactly_after_a_restore(tmp_path):
    script = """
        workspace.Gravity = 0
        local pad = Instance.new("Part", workspace)
        pad.Anchored = true
        pad.TouchEnded:Connect(function(other) print("ended", other) end)
        local box = Instance.new("Part", workspace)
        box.Name, box.Position = "box", Vector3.new(0, 0.5, 0)
        local beat = 0
        box = nil
        """ + HEARTBEAT.format("beat += 1 if beat == 4 then workspace.box.Parent = nil end")
    assert "out [Lua] ended\tbox" in check(tmp_path, script, 4).lines


def test_inputs_taken_between_two_ticks_continue_exactly(tmp_path):
    script = """
        local service = game:GetService("AgentInputService")
        local function take(where)
            for _, player in Players:GetPlayers() do
                print(where, player, #service:GetInputs(player))
            end
        end
        Players.PlayerAdded:Connect(function() take("joined") end)
        service.InputReceived:Connect(function(player, kind) print(player, kind) end)
        """ + HEARTBEAT.format('take("beat")')
    plan = Plan().join(1, "Ada").act(3, "Ada", "Hello").join(3, "Bo").act(3, "Bo", "Hello")
    lines = check(tmp_path, script, 3, acts=plan).lines
    assert "out [Lua] joined\tAda\t1" in lines
    assert "out [Lua] beat\tBo\t1" in lines


def test_identity_of_values_survives_a_restore(tmp_path):
    script = """
        local part = Instance.new("Part", workspace)
        part.Anchored = true
        part.Color = Color3.new(1, 0, 0)
        part:SetAttribute("colour", part.Color)
        part:SetAttribute("colours", { part.Color })
        local plain = Instance.new("Part", workspace)
        plain.Anchored = true
        local label = Instance.new("TextLabel", workspace)
        local found = { [part.Color] = 1, [plain.Color] = 2, [label.Size] = 3 }
        """ + HEARTBEAT.format(
        "print(found[part.Color], found[plain.Color], found[label.Size],"
        " found[part:GetAttribute('colour')], found[part:GetAttribute('colours')[1]])"
    )
    assert "out [Lua] 1\t2\t3\t1\t1" in check(tmp_path, script, 2).lines


def test_default_values_of_two_instances_are_distinct(tmp_path):
    script = """
        local one, two = Instance.new("Part"), Instance.new("Part")
        local colour = one.Color
        print(rawequal(colour, one.Color), rawequal(colour, two.Color), colour == two.Color)
    """
    assert "out [Lua] true\tfalse\ttrue" in check(tmp_path, script, 0).lines


def test_table_in_a_property_keeps_its_identity_after_a_restore(tmp_path):
    script = """
        local part = Instance.new("Part", workspace)
        part.CustomPhysicalProperties = { Density = 1 }
        local held = part.CustomPhysicalProperties
        """ + HEARTBEAT.format(
        "held.Density += 1 print(part:GetMass(), part.CustomPhysicalProperties == held)"
    )
    assert "out [Lua] 16\ttrue" in check(tmp_path, script, 2).lines


def test_infinite_and_nan_numbers_survive_a_restore(tmp_path):
    script = """
        workspace.Gravity = -math.huge
        local model = Instance.new("Model", workspace)
        local animation = Instance.new("Animation")
        animation.AnimationId = "a"
        Instance.new("Humanoid", model):LoadAnimation(animation):Play(0.5, 1e308)
        workspace:SetAttribute("far", math.huge)
    """
    check(tmp_path, script, 2)


def test_memory_counts_are_equal_after_a_restore(tmp_path):
    script = """
        local part = Instance.new("Part", workspace)
        part.Anchored = true
        local ended = part.Touched:Connect(function() end)
        ended:Disconnect()
        local loose = Instance.new("Part").Touched:Connect(function() end)
        loose:Disconnect()
        part.ChildAdded:Once(function() end)
        Instance.new("Folder", part)
        """ + HEARTBEAT.format('print(part.TouchEnded, collectgarbage("count"))')
    check(tmp_path, script, 2)


def test_thread_waiting_for_a_data_store_and_a_time_continues_exactly(tmp_path):
    script = """
        local store = game:GetService("DataStoreService"):GetDataStore("rows")
        local thread = task.spawn(function()
            print("read", store:GetAsync("key"))
            print("waited", task.wait(0.1))
        end)
        task.delay(0.05, thread, "too late")
    """
    check(tmp_path, script, 0, datastore=Backend.SQLITE)
