"""Small members that scripts for Roblox use: one row for each, with the lines that it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.playing import say
from tests.engine.torture import Plan

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
    ],
)
def test_members_are_there(tmp_path: Path, source: str, lines: list[str]) -> None:
    plan = Plan().join(0, "Ada")
    assert say(tmp_path, JOINED.replace("SOURCE", source), 4, plan) == lines
