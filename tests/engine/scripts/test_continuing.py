"""A world of scripts, GUI and values continues exactly from every tick."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.scripts.support import write_world
from tests.engine.torture import Plan, torture

MAIN = """
local Rules = require(ServerScriptService.Rules)
Players.PlayerAdded:Connect(function(player) Rules.welcome(player) end)
game:GetService("AgentInputService").InputReceived:Connect(function(player, kind, data)
    print(player, kind, data and data.element_id)
end)
"""
RULES = """
local Rules = {clicks = 0, params = RaycastParams.new(), stream = Random.new(3)}
Rules.params.FilterType = Enum.RaycastFilterType.Include
Rules.params.FilterDescendantsInstances = {Workspace}
function Rules.welcome(player)
    local screen = Instance.new("ScreenGui")
    local button = Instance.new("TextButton")
    button.Text = "Go"
    button.Size = UDim2.new(0.5, 10, 0, 30)
    button.TextXAlignment = Enum.TextXAlignment.Left
    button.Parent = screen
    screen.Parent = player.PlayerGui
    player:SetAttribute("button", tonumber(button:GetDebugId()))
    button.MouseButton1Click:Connect(function()
        Rules.clicks += 1
        button.Text = `{Rules.clicks} {Rules.stream:NextInteger(1, 100)}`
        button.BackgroundColor3 = Color3.fromHSV(Rules.stream:NextNumber(), 1, 1)
    end)
end
return Rules
"""
SPIN = """
local Rules = require(ServerScriptService.Rules)
local part = Instance.new("Part")
part.Anchored = true
part.Material = Enum.Material.Neon
part.Parent = script.Parent
local turn = CFrame.Angles(0.1, 0.2, 0)
local from, to = CFrame.new(1, 2, 3), CFrame.new(4, 5, 6) * CFrame.Angles(0, 3, 0)
for at = 0, 1, 0.1 do
    part.CFrame = from:Lerp(to, at) * turn
    print(part.CFrame.LookVector, Rules.params.FilterType, Rules.clicks)
    task.wait()
end
local late = Instance.new("Script")
late.Name = "Late"
late.Source = "print(script.Name) script:Destroy()"
late.Parent = script
"""


@pytest.mark.thorough
def test_scripts_modules_values_and_guis_continue_exactly_from_each_tick(tmp_path: Path) -> None:
    files = {"ServerScriptService__Rules.module.lua": RULES, "Workspace__Things__Spin.lua": SPIN}
    (tmp_path / "world.toml").write_text('name = "scripts"\ngame_type = "lua"\n')
    write_world(tmp_path, MAIN, **files)
    plan = Plan().join(2, "Ann")
    for tick in (3, 6, 8):
        for element in range(80):
            plan.act(tick, "Ann", "GuiClick", {"element_id": element})
    run = torture(tmp_path, plan, ticks=18, saves=range(18))
    lines = [line.removeprefix("out [Lua] ") for line in run.lines]
    assert "Late" in lines
    assert any(line.endswith("Include\t3") for line in lines)
