"""Tools and backpacks, and their use by agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.playing import play, printed, say
from tests.engine.torture import Plan, agent_id, torture

FLOOR = """
local floor = Instance.new("Part")
floor.Anchored, floor.Size, floor.Position = true, Vector3.new(200, 2, 200), Vector3.new(0, -1, 0)
floor.Parent = workspace
"""
SWORD = (
    FLOOR
    + """
local function forge(name, parent)
    local tool = Instance.new("Tool")
    tool.Name = name
    local handle = Instance.new("Part")
    handle.Name, handle.Size, handle.Parent = "Handle", Vector3.new(1, 1, 5), tool
    for _, event in { "Equipped", "Unequipped", "Activated", "Deactivated" } do
        tool[event]:Connect(function() print(tool, event, tool.Parent) end)
    end
    tool.Parent = parent
    return tool
end
local function grip(player) return player.Character.HumanoidRootPart:FindFirstChild("RightGrip") end
"""
)
ADA = Plan().join(0, "Ada")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("player", "StarterGear"),
        ("game:GetService('StarterPlayer')", "StarterPlayerScripts"),
        ("game.StarterPlayer", "StarterCharacterScripts"),
    ],
)
def test_other_containers_are_created_on_first_access(
    tmp_path: Path, owner: str, name: str
) -> None:
    main = f"""
    game.Players.PlayerAdded:Connect(function(player)
        local owner = {owner}
        local before = #owner:GetChildren()
        local container = owner:WaitForChild("{name}")
        print(container.ClassName, container.Parent == owner, #owner:GetChildren() - before)
        print(owner.{name} == container, owner:FindFirstChild("{name}") == container)
    end)
    """
    assert say(tmp_path, main, 1, ADA) == [f"{name}\ttrue\t1", "true\ttrue"]


def test_directory_of_the_script_tree_replaces_a_container(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts" / "StarterPlayer" / "StarterPlayerScripts"
    scripts.mkdir(parents=True)
    (scripts / "Shared.module.lua").write_text("return 7")
    main = """
    local owner = game:GetService("StarterPlayer")
    local container = owner.StarterPlayerScripts
    print(require(container.Shared), container == owner:FindFirstChild("StarterPlayerScripts"))
    print(owner:FindFirstChildOfClass("StarterPlayerScripts"), #owner:GetChildren())
    """
    assert say(tmp_path, main) == ["7\ttrue", "nil\t1"]


def test_backpack_is_created_on_first_access(tmp_path: Path) -> None:
    main = """
    game.Players.PlayerAdded:Connect(function(player)
        local ways = {
            Ada = function() return player.Backpack end,
            Bo = function() return player:FindFirstChild("Backpack") end,
            Cid = function() return player:WaitForChild("Backpack") end,
            Dee = function() return player:FindFirstChildOfClass("Backpack") end,
            Eve = function() return player:FindFirstChildWhichIsA("Backpack") end,
        }
        local before = #player:GetChildren()
        local backpack = ways[player.Name]()
        print(player, backpack.ClassName, backpack.Parent == player, #player:GetChildren() - before)
        print(player.Backpack == backpack, pcall(function() player.Backpack = nil end))
    end)
    """
    plan = Plan()
    names = ("Ada", "Bo", "Cid", "Dee", "Eve")
    for name in names:
        plan.join(0, name)
    lines = say(tmp_path, main, 1, plan)
    assert lines[::2] == [f"{name}\tBackpack\ttrue\t1" for name in names]
    assert all(line.startswith("true\tfalse\tmain.lua:") for line in lines[1::2])


def test_world_may_provide_its_own_backpack(tmp_path: Path) -> None:
    main = """
    game.Players.PlayerAdded:Connect(function(player)
        local own = Instance.new("Folder")
        own.Name, own.Parent = "Backpack", player
        print(player.Backpack == own, player:FindFirstChild("Backpack") == own)
    end)
    """
    assert say(tmp_path, main, 1, ADA) == ["true\ttrue"]


def test_a_tool_is_welded_to_the_hand_while_it_is_held(tmp_path: Path) -> None:
    main = (
        SWORD
        + """
        game.Players.PlayerAdded:Connect(function(player)
            local sword, bow = forge("Sword", player.Backpack), forge("Bow", player.Backpack)
            local humanoid = player.Character.Humanoid
            humanoid:EquipTool(sword)
            humanoid:EquipTool(sword)
            print(grip(player).Part1 == sword.Handle, grip(player).C1 == sword.Grip)
            task.wait(0.5)
            local offset = sword.Handle.Position - player.Character.HumanoidRootPart.Position
            print(math.round(offset.X * 10), math.round(offset.Y * 10), math.round(offset.Z * 10))
            humanoid:MoveTo(Vector3.new(10, 0, 0))
            humanoid.MoveToFinished:Wait()
            print(math.abs(player.Character.HumanoidRootPart.Position.X - 10) < 1)
            humanoid:EquipTool(bow)
            print(grip(player).Part1 == bow.Handle, #player.Backpack:GetChildren())
            bow.Parent = workspace
            print(grip(player))
            bow.Parent = player.Character
            bow:Destroy()
            print(grip(player), pcall(humanoid.EquipTool, humanoid, workspace))
        end)
        """
    )
    assert say(tmp_path, main, 120, ADA) == [
        "Sword\tEquipped\tAda",
        "true\ttrue",
        "15\t-10\t0",
        "true",
        *("Sword\tUnequipped\tBackpack", "Bow\tEquipped\tAda", "true\t1"),
        *("Bow\tUnequipped\tWorkspace", "nil"),
        *("Bow\tEquipped\tAda", "Bow\tUnequipped\tAda"),
        "nil\tfalse\tinvalid argument #1 to 'EquipTool' (Tool expected, got Instance)",
    ]


def test_the_scripts_of_a_tool_run_in_the_backpack(tmp_path: Path) -> None:
    main = (
        SWORD
        + """
        local tool = Instance.new("Tool")
        local guard = Instance.new("Script", tool)
        guard.Source = [[
            print("ready", script.Parent.Parent)
            script.Parent.Equipped:Connect(function() print("drawn") end)
        ]]
        tool.Parent = game:GetService("StarterPack")
        game.Players.PlayerAdded:Connect(function(player)
            task.wait(0.05)
            player.Character.Humanoid:EquipTool(player.Backpack.Tool)
        end)
        """
    )
    assert say(tmp_path, main, 6, ADA) == ["ready\tBackpack", "drawn"]


def test_character_without_a_player_drops_its_tools_into_workspace(tmp_path: Path) -> None:
    main = (
        SWORD
        + """
        local guard = Instance.new("Model", workspace)
        local humanoid = Instance.new("Humanoid", guard)
        local sword = forge("Sword", guard)
        sword:Activate()
        sword.Enabled = false
        sword:Activate()
        sword:Deactivate()
        humanoid:UnequipTools()
        sword.Enabled = true
        sword:Activate()
        sword:Deactivate()
        """
    )
    assert say(tmp_path, main) == [
        "Sword\tEquipped\tModel",
        "Sword\tActivated\tModel",
        "Sword\tDeactivated\tModel",
        "Sword\tUnequipped\tWorkspace",
    ]


def test_starter_pack_fills_the_backpack_for_each_new_character(tmp_path: Path) -> None:
    main = (
        SWORD
        + """
        forge("Sword", game:GetService("StarterPack"))
        local function list(player)
            local names = {}
            for _, tool in player.Backpack:GetChildren() do table.insert(names, tool.Name) end
            print(player, table.concat(names, " "))
        end
        game.Players.PlayerAdded:Connect(function(player)
            list(player)
            forge("Bow", player.Backpack)
            Instance.new("Folder", player.Backpack)
            player:LoadCharacter()
            list(player)
        end)
        """
    )
    assert say(tmp_path, main, 1, ADA) == ["Ada\tSword", "Ada\tFolder Sword"]


ARMED = (
    SWORD
    + """
game.Players.PlayerAdded:Connect(function(player)
    forge("Sword", player.Backpack)
    forge("Bow", player.Backpack)
end)
game:GetService("AgentInputService").InputReceived:Connect(function(_, kind) print(kind) end)
"""
)
FIGHT = (
    Plan()
    .join(0, "Ada")
    .act(1, "Ada", "ActivateTool")
    .act(2, "Ada", "EquipTool", {"name": "Bow"})
    .act(3, "Ada", "ActivateTool", {"at": 1})
    .act(4, "Ada", "DeactivateTool")
    .act(5, "Ada", "UnequipTools")
)


def test_agents_equip_and_use_tools_even_after_a_restore(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(ARMED)
    (tmp_path / "world.toml").write_text('name = "armed"')
    run = torture(tmp_path, FIGHT, ticks=8, saves=(1, 3, 4, 6))
    assert printed(run) == [
        "ActivateTool",
        *("EquipTool", "Bow\tEquipped\tAda"),
        *("ActivateTool", "Bow\tActivated\tAda"),
        *("DeactivateTool", "Bow\tDeactivated\tAda"),
        *("UnequipTools", "Bow\tUnequipped\tBackpack"),
    ]


def observed(directory: Path, ticks: int, main: str = ARMED) -> dict[str, Any]:
    run = play(directory, main, ticks, FIGHT)
    player: dict[str, Any] = run.world.observe(agent_id("Ada"))["player"]
    return player


def test_observation_contains_the_tools_of_the_agent(tmp_path: Path) -> None:
    sword, bow = ({"name": name, "equipped": False} for name in ("Sword", "Bow"))
    assert observed(tmp_path, 1)["tools"] == [sword, bow]
    assert observed(tmp_path, 4)["tools"] == [{**bow, "equipped": True}, sword]
    assert "tools" not in observed(tmp_path, 4, "")


@pytest.mark.parametrize("data", [None, [], "Bow", {}, {"name": 1}, {"name": "Axe"}])
def test_equip_tool_ignores_a_tool_that_the_player_does_not_own(tmp_path: Path, data: Any) -> None:
    plan = Plan().join(0, "Ada").act(1, "Ada", "EquipTool", data)
    assert say(tmp_path, ARMED, 2, plan) == ["EquipTool"]


def test_tool_inputs_have_no_effect_without_tools_or_a_character(tmp_path: Path) -> None:
    plan = Plan().join(0, "Ada").join(0, "Bo")
    for kind in ("EquipTool", "UnequipTools", "ActivateTool", "DeactivateTool"):
        for name in ("Ada", "Bo"):
            plan.act(1, name, kind, {"name": "Bow"})
    main = """
    game.Players.PlayerAdded:Connect(function(player)
        if player.Name == "Bo" then player.Character = nil end
    end)
    """
    before = play(tmp_path, main, 2, Plan().join(0, "Ada").join(0, "Bo")).world.snapshot()
    after = play(tmp_path, main, 2, plan).world.snapshot()
    assert before["tree"] == after["tree"]
