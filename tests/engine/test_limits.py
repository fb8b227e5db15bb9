"""No endless script keeps a world busy or fills its memory, whatever it asks the engine for."""

from __future__ import annotations

import pytest

from tests.engine.playing import play

LOOPS = {
    "nothing": ("", 1),
    "protected": ("pcall(function() while true do end end)", 1),
    "threads": ("task.spawn(function() end)", 20),
    "waits": ("task.delay(1e6, function() end)", 20),
    "handlers": ("workspace.ChildAdded:Connect(function() end)", 20),
    "instances": ("Instance.new('Folder').Parent = workspace", 80),
    "copies": ("workspace.Terrain:Clone()", 50),
    "lists": ("workspace:GetDescendants()", 2),
    "searches": ("workspace:FindFirstChild('nothing', true)", 2),
    "rays": ("workspace:Raycast(Vector3.zero, Vector3.new(0, -9, 0))", 100),
    "boxes": ("workspace:GetPartBoundsInRadius(Vector3.zero, 9)", 100),
}
"""Calls, and the least number of steps that one is charged."""
KEPT = {
    "arguments": "task.delay(1e6, print, long .. number)",
    "variables": "local own = long .. number task.spawn(function() task.wait(1e6) print(own) end)",
    "handlers": "local s = long .. number workspace.ChildAdded:Connect(function() print(s) end)",
    "attributes": "workspace:SetAttribute('a' .. number, long .. number)",
    "names": "local f = Instance.new('Folder') f.Name = long .. number f.Parent = workspace",
    "instances": "Instance.new('Folder').Parent = workspace",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_an_endless_loop_halts_the_world_and_the_text_names_the_key(loop, tmp_path):
    body, steps = LOOPS[loop]
    source = f"Instance.new('Part', workspace)\ntask.wait()\nwhile true do _G.n += 1 {body} end"
    run = play(tmp_path, f"_G.n = 0 {source}", 3, steps_per_tick=200_000)
    assert run.world.halted_error is not None
    assert run.world.halted_error.startswith("Begin frame error: main.lua:3: exhausted")
    assert "[clawblox] steps_per_tick in world.toml" in run.world.halted_error
    assert run.world._parts.vm.globals["_G"]["n"] <= 200_000 / steps


@pytest.mark.parametrize("kept", KEPT)
def test_what_a_script_keeps_in_the_engine_counts_as_its_memory(kept, tmp_path):
    source = f"""
        local long = string.rep("x", 10000)
        for number = 1, 20000 do
            {KEPT[kept]}
        end"""
    run = play(tmp_path, source, 0, memory_bytes=8_000_000)
    assert run.world.halted_error is not None
    assert "not enough memory" in run.world.halted_error
    assert "[clawblox] memory_mib in world.toml" in run.world.halted_error
