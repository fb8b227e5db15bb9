"""Teams, and the team properties of players."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.playing import play, printed, say
from tests.engine.services.bench import ANN, bench
from tests.engine.torture import Plan, torture

TEAMS = """
local Teams = game:GetService("Teams")
local function make(name, color, isOpen)
    local team = Instance.new("Team")
    team.Name, team.TeamColor, team.AutoAssignable = name, BrickColor.new(color), isOpen
    team.PlayerAdded:Connect(function(player) print(name, "+", player, player.Team == team) end)
    team.PlayerRemoved:Connect(function(player) print(name, "-", player, player.Team) end)
    team.Parent = Teams
end
make("Reds", "Bright red", true)
make("Watchers", "White", false)
make("Blues", "Bright blue", true)
"""


def test_joining_player_is_added_to_the_smallest_open_team() -> None:
    world = bench(TEAMS, players=["Ann", "Bob", "Cid"])
    assert world.printed() == ["Reds\t+\tAnn\ttrue", "Blues\t+\tBob\ttrue", "Reds\t+\tCid\ttrue"]
    world.run(
        """
        local names = {}
        for _, team in game.Teams:GetTeams() do
            for _, player in team:GetPlayers() do table.insert(names, team.Name .. player.Name) end
        end
        print(table.concat(names, ' '), Players.Ann.TeamColor, Players.Ann.Neutral)
        """
    )
    assert world.printed() == ["RedsAnn RedsCid BluesBob\tBright red\tfalse"]
    world.services.players.remove(ANN)
    assert world.printed() == ["Reds\t-\tAnn\tnil"]


def test_team_color_and_neutral_of_a_player_stay_consistent() -> None:
    world = bench(TEAMS + "game.Teams.Reds.AutoAssignable = false", players=["Ann"])
    world.printed()
    world.run(
        """
        local ann, teams = Players.Ann, game.Teams
        local function show() print(ann.Team, ann.TeamColor, ann.Neutral) end
        show()
        ann.TeamColor = teams.Reds.TeamColor show()
        ann.Neutral = true show()
        ann.Neutral = false show()
        ann.TeamColor = BrickColor.new('Black') show()
        ann.Team = teams.Watchers show()
        teams.Watchers.TeamColor = BrickColor.new('Black') show()
        ann.Team = nil show()
        ann.Team = teams.Reds
        teams.Reds:Destroy() show()
        """
    )
    assert world.printed() == [
        "Blues\tBright blue\tfalse",
        *("Blues\t-\tAnn\tReds", "Reds\t+\tAnn\ttrue", "Reds\tBright red\tfalse"),
        *("Reds\t-\tAnn\tnil", "nil\tBright red\ttrue"),
        *("Reds\t+\tAnn\ttrue", "Reds\tBright red\tfalse"),
        *("Reds\t-\tAnn\tnil", "nil\tBlack\ttrue"),
        *("Watchers\t+\tAnn\ttrue", "Watchers\tWhite\tfalse"),
        "Watchers\tBlack\tfalse",
        *("Watchers\t-\tAnn\tnil", "nil\tBlack\ttrue"),
        *("Reds\t+\tAnn\ttrue", "Reds\t-\tAnn\tnil", "nil\tBright red\ttrue"),
    ]


def test_team_property_accepts_other_values() -> None:
    world = bench("", players=["Ann"])
    world.run(
        """
        local ann = Players.Ann
        ann:GetPropertyChangedSignal('Team'):Connect(function() print('changed', ann.Team) end)
        ann.Team = 'red'
        ann.Team = 'red'
        print(ann.Neutral, ann.TeamColor)
        """
    )
    assert world.printed() == ["changed\tred", "true\tWhite"]


def test_teams_are_restored(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(TEAMS)
    (tmp_path / "world.toml").write_text('name = "teams"')
    plan = Plan().join(0, "Ada").join(2, "Bo").leave(4, "Ada").join(5, "Cid")
    run = torture(tmp_path, plan, ticks=8, saves=(1, 3, 5))
    assert printed(run) == [
        "Reds\t+\tAda\ttrue",
        "Blues\t+\tBo\ttrue",
        "Reds\t-\tAda\tnil",
        "Reds\t+\tCid\ttrue",
    ]


LOCATIONS = """
local function place(x, color)
    local location = Instance.new("SpawnLocation")
    location.Anchored, location.Size = true, Vector3.new(6, 2, 6)
    location.Position = Vector3.new(x, 10, 0)
    if color then location.Neutral, location.TeamColor = false, BrickColor.new(color) end
    location.Parent = workspace
    return location
end
local function show(player) print(player, player.Character.HumanoidRootPart.Position) end
game.Players.PlayerAdded:Connect(show)
"""


def test_characters_appear_at_spawn_locations_in_turn(tmp_path: Path) -> None:
    main = LOCATIONS + "place(20) place(30).Enabled = false place(40) place(50, 'Black')"
    plan = Plan().join(0, "Ada").join(0, "Bo").join(0, "Cid")
    assert say(tmp_path, main, 1, plan) == ["Ada\t20, 14, 0", "Bo\t40, 14, 0", "Cid\t20, 14, 0"]


def test_character_appears_at_a_team_location_or_the_respawn_location(
    tmp_path: Path,
) -> None:
    main = (
        LOCATIONS
        + """
        local team = Instance.new("Team", game:GetService("Teams"))
        team.TeamColor = BrickColor.new("Black")
        place(20, "White")
        place(30, "Black")
        local far = place(99)
        far.Parent = nil
        local wanted = place(60)
        wanted.Parent = nil
        game.Players.PlayerAdded:Connect(function(player)
            player.CharacterAdded:Connect(function() show(player) end)
            player.RespawnLocation = wanted
            player:LoadCharacter()
            wanted.Parent = workspace
            player:LoadCharacter()
            wanted:Destroy()
            player:LoadCharacter()
            player.Neutral = true
            player:LoadCharacter()
        end)
        """
    )
    assert say(tmp_path, main, 1, Plan().join(0, "Ada")) == [
        "Ada\t30, 14, 0",
        "Ada\t30, 14, 0",
        "Ada\t60, 14, 0",
        "Ada\t30, 14, 0",
        "Ada\t0, 6, 0",
    ]


@pytest.mark.thorough
def test_spawn_locations_are_found_after_a_restore(tmp_path: Path) -> None:
    main = (
        LOCATIONS
        + """
        local first, second = place(40), place(20)
        first.Parent = nil
        first.Parent = workspace
        task.wait(0.05)
        second.Parent = nil
        """
    )
    (tmp_path / "main.lua").write_text(main)
    (tmp_path / "world.toml").write_text('name = "spawns"')
    plan = Plan().join(1, "Ada").join(2, "Bo").join(5, "Cid").join(5, "Dee")
    run = torture(tmp_path, plan, ticks=7, saves=(1, 2, 4))
    assert printed(run) == [
        "Ada\t40, 14, 0",
        "Bo\t20, 14, 0",
        "Cid\t40, 14, 0",
        "Dee\t40, 14, 0",
    ]


def test_spawn_location_is_an_ordinary_part(tmp_path: Path) -> None:
    run = play(tmp_path, LOCATIONS + "place(5)", 1, Plan().join(0, "Ada"))
    assert len(run.world.spectate()["entities"]) == 2
