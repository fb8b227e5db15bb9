"""Small members used by Roblox scripts: a row for each, with its printed lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.playing import printed, say
from tests.engine.torture import Plan, torture

JOINED = """
game.Players.PlayerAdded:Connect(function(player)
    local function service(name) return game:GetService(name) end
    SOURCE
end)
"""


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("print(player:RequestStreamAroundAsync(Vector3.one, 5))", [""]),
        (
            """
            local old = player.Character
            for _, name in { '', 'Async', 'WithHumanoidDescription',
                    'WithHumanoidDescriptionAsync' } do
                player['LoadCharacter' .. name](player)
                print(player.Character ~= old, player.Character.Parent == workspace)
                old = player.Character
            end
            """,
            ["true\ttrue"] * 4,
        ),
        (
            """
            local analytics = service('AnalyticsService')
            analytics:LogEconomyEvent(player, Enum.AnalyticsEconomyFlowType.Sink, 'Gold', 5, 7)
            analytics:LogOnboardingFunnelStepEvent(player, 1, 'Joined')
            print(analytics:LogProgressionEvent(), service('ContentProvider'):PreloadAsync({}))
            """,
            ["nil"],
        ),
        (
            """
            for name, event in { LogService = 'MessageOut', ScriptContext = 'Error',
                    Players = 'PlayerMembershipChanged' } do
                service(name)[event]:Connect(function() error('never') end)
            end
            print(service('Stats').ClassName, service('SocialService').ClassName)
            """,
            ["Stats\tSocialService"],
        ),
        (
            """
            local http = service('HttpService')
            print(http.HttpEnabled)
            for _, name in { 'GetAsync', 'GetSecret', 'PostAsync', 'RequestAsync' } do
                print(pcall(http[name], http, 'https://example.com'))
            end
            """,
            ["false", *["false\tHTTP requests are not enabled"] * 4],
        ),
        (
            """
            local worn = Instance.new('HumanoidDescription')
            local coat = { AssetId = 7, AccessoryType = Enum.AccessoryType.Jacket }
            print(#worn:GetAccessories(true), worn:SetAccessories({ coat, { AssetId = 8 } }, true))
            coat.AssetId = 9
            local list = worn:GetAccessories(true)
            print(#list, list[1].AssetId, list[1].AccessoryType, list[2].AssetId)
            list[1].AssetId = 9
            print(worn:Clone():GetAccessories()[1].AssetId)
            print((select(2, pcall(worn.SetAccessories, worn, { 1 }))))
            """,
            [
                "0",
                "2\t7\tEnum.AccessoryType.Jacket\t8",
                "7",
                "invalid argument #1 to 'SetAccessories' (array of tables expected, got table)",
            ],
        ),
    ],
)
def test_small_members_exist(tmp_path: Path, source: str, lines: list[str]) -> None:
    plan = Plan().join(0, "Ada")
    assert say(tmp_path, JOINED.replace("SOURCE", source), 4, plan) == lines


WORN = """
local humanoid = Instance.new("Humanoid", workspace)
local worn = Instance.new("HumanoidDescription")
worn:SetAccessories({ { AssetId = 7 } }, true)
worn.Shirt = 5
print(humanoid:GetAppliedDescription().Shirt)
humanoid:ApplyDescriptionAsync(worn)
worn.Shirt, worn = 6, nil
humanoid:GetAppliedDescription().Shirt = 6
task.wait(0.05)
local applied = humanoid:GetAppliedDescription()
print(applied.Shirt, applied:GetAccessories()[1].AssetId)
print((select(2, pcall(humanoid.ApplyDescription, humanoid, workspace))))
"""


def test_humanoid_keeps_a_copy_of_its_description_even_after_a_restore(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(WORN)
    (tmp_path / "world.toml").write_text('name = "worn"')
    run = torture(tmp_path, Plan(), ticks=5, saves=(1, 4))
    assert printed(run) == [
        "0",
        "5\t7",
        "invalid argument #1 to 'ApplyDescription' (HumanoidDescription expected, got Instance)",
    ]
