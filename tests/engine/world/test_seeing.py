"""Parts and folders in observations and spectator states."""

from __future__ import annotations

from clawblox.luau import run_deep
from tests.engine.playing import play
from tests.engine.torture import Plan, agent_id

ROCKY = agent_id("Rocky")


def observe(directory, main, plan=None, ticks=1, **settings):
    run = play(directory, main, ticks, plan or Plan().join(0, "Rocky"), **settings)
    assert run.world.failure is None, run.lines
    return run_deep(lambda: run.world.observe(ROCKY))


def spectate(directory, main, plan=None, ticks=1):
    return run_deep(play(directory, main, ticks, plan or Plan()).world.spectate)


def entities(directory, main, **settings):
    seen = observe(directory, main, **settings)["world"]["entities"]
    return [each for each in seen if each["name"] != "HumanoidRootPart"]


PARTS = """
local function make(name, at)
    local part = Instance.new("Part")
    part.Name, part.Anchored, part.Position, part.Parent = name, true, at, workspace
    return part
end
"""


def test_map_contains_exactly_the_static_parts(tmp_path):
    run = play(
        tmp_path,
        PARTS
        + """
        local folder = Instance.new("Folder", workspace)
        folder:AddTag("Static")
        folder:SetAttribute("Kind", "maze")
        local wall = make("Wall", Vector3.new(5000, 1, 0))
        wall:AddTag("Static")
        wall:SetAttribute("Door", false)
        wall.Parent = folder
        make("Coin", Vector3.new(1, 1, 1))
        make("Floor", Vector3.new(0, 0, 0)):AddTag("Static")
        """,
        1,
        Plan().join(0, "Rocky"),
    )
    wall, floor = run.world.map()["entities"]
    assert (wall["name"], wall["position"], wall["attributes"]) == (
        *("Wall", [5000.0, 1.0, 0.0]),
        {"Door": False},
    )
    assert floor.keys() == {
        *("id", "name", "entity_type", "position", "size", "color", "material", "shape"),
        "anchored",
    }
    seen = run.world.observe(ROCKY)["world"]["entities"]
    assert {each["name"] for each in seen} == {"Coin", "Folder", "HumanoidRootPart"}


def test_observed_part_has_rounded_members_without_defaults(tmp_path):
    (plain, turned) = entities(
        tmp_path,
        PARTS
        + """
        make("Plain", Vector3.new(1.234, 5.678, -0.001))
        local part = make("Turned", Vector3.new(0, 8, 0))
        part.CFrame = CFrame.new(0, 8, 0) * CFrame.Angles(0, math.pi / 2, 0)
        part.Shape, part.Material = Enum.PartType.Ball, Enum.Material.Neon
        part.Color, part.Transparency = Color3.new(0.1, 0.2, 1), 0.25
        part:SetAttribute("ModelUrl", "asset://car.glb")
        part:SetAttribute("Alpha", 1)
        """,
    )
    assert plain == {
        "id": plain["id"],
        "name": "Plain",
        "entity_type": "part",
        "position": [1.23, 5.68, 0.0],
        "size": [4.0, 1.0, 2.0],
        "color": [0.6, 0.6, 0.6],
        "material": "Plastic",
        "shape": "Block",
        "anchored": True,
    }
    assert str(plain["position"]) == "[1.23, 5.68, 0.0]"  # 0.0 for -0.0
    rows = turned.pop("rotation")
    assert [[round(part) for part in row] for row in rows] == [[0, 0, 1], [0, 1, 0], [-1, 0, 0]]
    assert (turned["color"], turned["transparency"]) == ([0.1, 0.2, 1.0], 0.25)
    assert (turned["shape"], turned["material"]) == ("Ball", "Neon")
    assert list(turned["attributes"].items()) == [("Alpha", 1), ("ModelUrl", "/assets/car.glb")]


def test_observation_omits_static_parts_and_shows_folders_with_attributes(tmp_path):
    seen = entities(
        tmp_path,
        PARTS
        + """
        make("Floor", Vector3.new(0, 0, 0)):AddTag("Static")
        Instance.new("Folder", workspace).Name = "Empty"
        local state = Instance.new("Folder", workspace)
        state.Name = "GameState"
        state:SetAttribute("b", {1, {2}})
        state:SetAttribute("a", Vector3.new(0.1, 2, 3))
        make("Inside", Vector3.new(0, 9, 0)).Parent = state
        """,
    )
    assert [each["name"] for each in seen] == ["GameState", "Inside"]
    assert seen[0] == {
        "id": seen[0]["id"],
        "name": "GameState",
        "entity_type": "folder",
        "position": [0.0, 0.0, 0.0],
        "size": [0.0, 0.0, 0.0],
        "anchored": True,
        "attributes": {"a": [0.1, 2.0, 3.0], "b": [1, [2]]},
    }
    assert list(seen[0]["attributes"]) == ["a", "b"]


def test_observation_radius_is_measured_to_the_nearest_point_of_a_part(tmp_path):
    seen = entities(
        tmp_path,
        PARTS
        + """
        local floor = make("Floor", Vector3.new(500, -10, 0))
        floor.Size = Vector3.new(1000, 1, 1000)
        make("Near", Vector3.new(29, 3, 0))
        make("Far", Vector3.new(60, 3, 0))
        local turned = make("Turned", Vector3.new(0, 3, 60))
        turned.Size = Vector3.new(80, 1, 1)
        turned.CFrame = CFrame.new(0, 3, 60) * CFrame.Angles(0, math.pi / 2, 0)
        """,
        observation_radius=40.0,
    )
    assert [each["name"] for each in seen] == ["Floor", "Near", "Turned"]


def test_observation_radius_attribute_can_only_reduce_the_radius(tmp_path):
    def names(radius: str) -> list[str]:
        seen = entities(
            tmp_path,
            PARTS
            + f"""
            make("Near", Vector3.new(10, 3, 0))
            make("Middle", Vector3.new(35, 3, 0))
            make("Far", Vector3.new(90, 3, 0))
            Players.PlayerAdded:Connect(function(player)
                player:SetAttribute("ObservationRadius", {radius})
            end)
            """,
            observation_radius=50.0,
        )
        return [each["name"] for each in seen]

    assert names("20") == ["Near"]
    assert names("1000") == names('"near"') == names("0 / 0") == ["Near", "Middle"]
    assert names("-5") == []


def test_observation_keys_are_ordered_and_include_view_attributes(tmp_path):
    seen = observe(
        tmp_path,
        """
        Players.PlayerAdded:Connect(function(player)
            player:SetAttribute("Zeal", 1)
            player:SetAttribute("Score", 2.5)
        end)
        """,
    )
    assert list(seen) == [
        "tick",
        "game_status",
        "player",
        "other_players",
        "world",
        "events",
        "recent_events",
    ]
    player = seen["player"]
    assert (seen["tick"], seen["game_status"], player["id"]) == (1, "active", ROCKY)
    assert list(player["attributes"]) == sorted(player["attributes"])
    position, attributes = player["position"], player["attributes"]
    assert (attributes["Score"], attributes["Zeal"], attributes["ViewFovDeg"]) == (2.5, 1, 105.0)
    origin = [attributes[f"ViewOrigin{axis}"] for axis in "XYZ"]
    assert origin == [position[0], round(position[1] + 2, 2), position[2]]
    assert [attributes[f"ViewForward{axis}"] for axis in "XYZ"] == [0.0, 0.0, -1.0]
    assert seen["events"] == []


def test_spectators_get_the_render_data_of_a_part(tmp_path):
    seen = spectate(
        tmp_path,
        PARTS
        + """
        make("Plain", Vector3.new(0, 0, 0)):AddTag("Static")
        local part = make("Dressed", Vector3.new(0, 0, 0))
        part.Anchored = false
        for name, value in {
            RenderPresetId = "glow", RenderRole = "hazard", RenderPrimitive = "cone",
            RenderMaterial = "Lava", RenderColor = Vector3.new(1, 0.5, 0), RenderStatic = true,
            RenderVisible = false, RenderCastsShadow = false, RenderReceivesShadow = false,
            model_url = " asset://a/b.glb ", ModelYawOffsetDeg = 90,
        } do
            part:SetAttribute(name, value)
        end
        part.Transparency = 0.5
        """,
    )
    plain, dressed = seen["entities"]
    assert plain == {
        "id": plain["id"],
        "type": "part",
        "position": [0.0, 0.0, 0.0],
        "size": [4.0, 1.0, 2.0],
        "render": {
            "kind": "primitive",
            "role": "unspecified",
            "primitive": "block",
            "material": "Plastic",
            "color": [0.6, 0.6, 0.6],
            "static": True,
            "casts_shadow": True,
            "receives_shadow": True,
            "visible": True,
            "double_sided": False,
        },
    }
    assert dressed["render"] == {
        "kind": "preset",
        "role": "hazard",
        "preset_id": "glow",
        "primitive": "cone",
        "material": "Lava",
        "color": [1.0, 0.5, 0.0],
        "static": True,
        "casts_shadow": False,
        "receives_shadow": False,
        "visible": False,
        "double_sided": False,
        "transparency": 0.5,
    }
    assert (dressed["model_url"], dressed["model_yaw_offset_deg"]) == ("/assets/a/b.glb", 90)


def test_spectator_state_has_simulation_time_and_gui(tmp_path):
    seen = spectate(
        tmp_path,
        """
        Players.PlayerAdded:Connect(function(player)
            local gui = Instance.new("ScreenGui", player.PlayerGui)
            Instance.new("TextLabel", gui).Text = "Hello"
        end)
        """,
        Plan().join(1, "Rocky"),
        30,
    )
    assert (seen["tick"], seen["server_time_ms"], seen["game_status"]) == (30, 500, "playing")
    (player,) = seen["players"]
    assert (player["id"], player["name"], player["health"]) == (ROCKY, "Rocky", 100)
    (screen,) = player["gui"]
    assert (screen["type"], screen["children"][0]["text"]) == ("ScreenGui", "Hello")
    assert (seen["sounds"], seen["recent_events"]) == ([], [])


def test_spectator_state_and_events_of_a_tick_have_the_same_time(tmp_path):
    main = 'game:GetService("RemoteEventService"):FireAllClients("hello")'
    seen = spectate(tmp_path, f"task.delay(4 / 60, function() {main} end)", None, 5)
    (event,) = seen["recent_events"]
    before = spectate(tmp_path, main, None, event["tick"])
    assert event["server_time_ms"] == before["server_time_ms"] == 66


SCORES = """
game.Players.PlayerAdded:Connect(function(player)
    if player.Name == "Cy" then return end
    local board = Instance.new("Folder")
    board.Name = "leaderstats"
    local function add(class, name, value)
        local score = Instance.new(class)
        score.Name, score.Value, score.Parent = name, value, board
    end
    add("IntValue", "Coins", 3)
    add("NumberValue", "Time", 1.5)
    add("StringValue", "Rank", "Gärtner")
    add("BoolValue", "Won", false)
    add("Color3Value", "Team", Color3.new(1, 0, 0))
    add("NumberValue", "Best", math.huge)
    add("IntValue", "Coins", 9)
    add("ObjectValue", "Tool", workspace)
    add("CFrameValue", "Place", CFrame.new())
    Instance.new("Folder", board)
    board.Parent = player
end)
"""


def test_observation_contains_the_leaderstats_of_players(tmp_path):
    plan = Plan().join(0, "Rocky").join(0, "Ada").join(0, "Cy")
    run = play(tmp_path, SCORES, 1, plan)
    assert run.world.failure is None, run.lines
    seen = run_deep(lambda: run.world.observe(ROCKY))
    scores = {
        "Coins": 3,
        "Time": 1.5,
        "Rank": "Gärtner",
        "Won": False,
        "Team": [1.0, 0.0, 0.0],
        "Best": None,
    }
    assert seen["player"]["leaderstats"] == scores
    assert list(seen["player"]["leaderstats"]) == list(scores)
    assert [each["leaderstats"] for each in seen["other_players"]] == [scores]  # Ada hides Cy
    players = run_deep(run.world.spectate)["players"]
    assert [each.get("leaderstats") for each in players] == [scores, scores, None]
