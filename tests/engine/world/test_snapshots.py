"""A restored world goes on exactly."""

from __future__ import annotations

from pathlib import Path

from tests.engine.torture import Plan, torture

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


def test_a_world_whose_threads_wait_in_every_way_continues_exactly_from_each_tick(tmp_path):
    plan = (
        Plan()
        .join(2, "Rocky")
        .act(5, "Rocky", "Give", {"amount": 3})
        .join(9, "Ada")
        .act(15, "Ada", "Kick")
        .leave(30, "Rocky")
    )
    run = torture(make_world(tmp_path, WAITING), plan, ticks=45, saves=range(0, 45, 4))
    for line in ("once", "found\tLate", "missing\tnil", "loose got\tkept", "Rocky\tGive\t3"):
        assert f"out [Lua] {line}" in run.lines
