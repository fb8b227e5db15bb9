"""A restored world continues exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.torture import Plan, torture

# A restored world runs beyond the next save and is compared with its document, too; this is
# sufficient. The thorough rows run to the end.

WAITING = """
local RunService = game:GetService("RunService")
local state = Instance.new("Folder")
state.Name = "GameState"
state.Parent = workspace
local beats = 0
RunService.Heartbeat:Connect(function(dt)
    beats += 1
    state:SetAttribute("beats", beats)
    state:SetAttribute("roll", math.random(1, 100))
end)
local once = RunService.Heartbeat:Once(function() print("once") end)
task.spawn(function()
    while true do
        local elapsed = task.wait(0.1)
        print("waited", elapsed)
    end
end)
task.spawn(function()
    local attribute = state.AttributeChanged:Wait()
    print("changed", attribute)
    local ok, message = pcall(function()
        local dt = RunService.Stepped:Wait()
        error("after " .. dt)
    end)
    print(ok, message)
end)
task.spawn(function()
    print("found", state:WaitForChild("Late", 5))
    print("missing", state:WaitForChild("Never", 0.2))
end)
task.delay(0.5, function(text)
    local late = Instance.new("Part")
    late.Name = text
    late.Parent = state
end, "Late")
-- held by this script alone, with a handler
local loose = Instance.new("Model")
loose.ChildAdded:Connect(function(child) print("loose got", child) end)
local kept = { Instance.new("Folder") }
kept[1].Name = "kept"
local list = {}
Players.PlayerAdded:Connect(function(player)
    print("joined", player.Name, player.UserId)
    player:SetAttribute("list", { 1, 2, { "a", Vector3.new(1, 2, 3) } })
end)
Players.PlayerRemoving:Connect(function(player) print("leaving", player) end)
game:GetService("AgentInputService").InputReceived:Connect(function(player, kind, data)
    print(player, kind, data and data.amount)
    kept[1]:Clone().Parent = loose
    if kind == "Kick" then player:Kick("enough") end
end)
coroutine.wrap(function() coroutine.yield() print("resumed") end)()
while true do
    task.wait(0.3)
    table.insert(list, tick())
end
"""


def make_world(directory: Path, main: str, extra: str = "") -> Path:
    (directory / "world.toml").write_text(f'name = "test"\n{extra}')
    (directory / "main.lua").write_text(main)
    return directory


@pytest.mark.parametrize(
    ("every", "on"), [(11, 6), pytest.param(4, 45, marks=pytest.mark.thorough)]
)
def test_world_with_threads_in_all_kinds_of_waits_continues_exactly(tmp_path, every, on):
    plan = (
        Plan()
        .join(2, "Rocky")
        .act(5, "Rocky", "Give", {"amount": 3})
        .join(9, "Ada")
        .act(15, "Ada", "Kick")
        .leave(30, "Rocky")
    )
    run = torture(make_world(tmp_path, WAITING), plan, ticks=45, saves=range(0, 45, every), on=on)
    for line in ("once", "found\tLate", "missing\tnil", "loose got\tkept", "Rocky\tGive\t3"):
        assert f"out [Lua] {line}" in run.lines


SHUFFLED = """
-- the order of the tree is not the order in which things were made
local PhysicsService = game:GetService("PhysicsService")
local RunService = game:GetService("RunService")
local Debris = game:GetService("Debris")
local floor = Instance.new("Part", workspace)
floor.Name, floor.Anchored, floor.Size = "Floor", true, Vector3.new(200, 1, 200)
local left, right = Instance.new("Folder", workspace), Instance.new("Model", workspace)
local boxes = {}
for at = 1, 12 do
    local box = Instance.new("Part", left)
    box.Name, box.Size = "Box" .. at, Vector3.new(2, 2, 2)
    box.Position = Vector3.new(at % 3 * 1.5, 1.6 + at * 2.1, 0)
    boxes[at] = box
    local force = Instance.new("BodyForce", box)
    force.Force = Vector3.new(at, 0, -at) * 10
end
for at = 12, 1, -3 do boxes[at].Parent = right end
for at = 2, 11, 4 do boxes[at].Parent = nil boxes[at].Parent = right end
local welds = {}
for at = 1, 3 do
    local weld = Instance.new("Weld")
    weld.Part0, weld.Part1, weld.C0 = boxes[at], boxes[at + 3], CFrame.new(0, 3, 0)
    welds[at] = weld
end
for at = 3, 1, -1 do welds[at].Parent = boxes[at] end
local beat = 0
local loose = {}
RunService.Heartbeat:Connect(function()
    beat += 1
    if beat % 5 == 0 then
        PhysicsService:RegisterCollisionGroup("G" .. beat)
        PhysicsService:CollisionGroupSetCollidable("Default", "G" .. beat, beat % 10 == 0)
        boxes[beat % 12 + 1].CollisionGroup = "G" .. beat
    end
    if beat % 7 == 0 then
        local copy = boxes[beat % 12 + 1]:Clone()
        copy.Position += Vector3.new(0, 9, 0)
        copy.Parent = if beat % 2 == 0 then left else right
        copy.Touched:Connect(function(other) copy:SetAttribute("touched", other.Name) end)
        Debris:AddItem(copy, 0.4)
        table.insert(loose, boxes[beat % 12 + 1]:Clone())
    end
    if beat % 11 == 0 then boxes[beat % 12 + 1].Anchored = not boxes[beat % 12 + 1].Anchored end
    if beat % 13 == 0 then welds[beat % 3 + 1].Enabled = not welds[beat % 3 + 1].Enabled end
    local hit = workspace:Raycast(Vector3.new(0, 50, 0), Vector3.new(0, -100, 0))
    floor:SetAttribute("hit", hit and hit.Instance.Name)
end)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ticks", "every", "on"), [(42, 5, 7), pytest.param(70, 6, 70, marks=pytest.mark.thorough)]
)
def test_pile_shuffled_by_scripts_continues_exactly(tmp_path, ticks, every, on):
    plan = Plan().join(3, "Rocky").act(10, "Rocky", "Hello").join(20, "Ada").leave(30, "Rocky")
    torture(make_world(tmp_path, SHUFFLED), plan, ticks=ticks, saves=range(2, ticks, every), on=on)
