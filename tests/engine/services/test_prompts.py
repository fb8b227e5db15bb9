"""ClickDetector and ProximityPrompt: use of nearby parts by agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.playing import play, printed, say
from tests.engine.torture import Plan, agent_id, torture

SCENE = """
local function part(name, x, parent)
    local made = Instance.new("Part")
    made.Name, made.Anchored, made.Size = name, true, Vector3.new(2, 2, 2)
    made.Position, made.Parent = Vector3.new(x, 6, 0), parent
    return made
end
local function tick() return math.round(time() * 60) end
local function show(id) print("id", id:GetDebugId()) end
game.Players.PlayerAdded:Connect(function(player)
    player.Character.HumanoidRootPart.Anchored = true
    player.Character.HumanoidRootPart.Position = Vector3.new(0, 6, 0)
end)
"""
CLICKS = (
    SCENE
    + """
local function detector(parent, distance)
    local made = Instance.new("ClickDetector")
    made.MaxActivationDistance = distance or made.MaxActivationDistance
    made.MouseClick:Connect(function(player) print("click", parent, player) end)
    made.Parent = parent
end
local house = Instance.new("Model", workspace)
house.Name = "House"
detector(house)
local door, bell = part("Door", 20, house), part("Bell", 20, house)
detector(bell, 5)
detector(part("Near", 33, workspace))
detector(part("Far", 34, workspace))
part("Bare", 2, workspace)
detector(part("Stored", 2, game.ReplicatedStorage))
"""
)


def numbers(directory: Path, main: str) -> dict[str, int]:
    """Return the ids of the parts in a world by name."""
    world = play(directory, main).world
    model = world._parts.model
    return {part.name: part.number for part in model.instances() if part.is_a("BasePart")}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Door", ["click\tHouse\tAda"]),
        ("Bell", []),
        ("Near", ["click\tNear\tAda"]),
        ("Far", []),
        ("Bare", []),
        ("Stored", []),
    ],
)
def test_a_click_reaches_the_nearest_detector_within_its_distance(
    tmp_path: Path, name: str, expected: list[str]
) -> None:
    plan = Plan().join(0, "Ada").act(1, "Ada", "Click", {"id": numbers(tmp_path, CLICKS)[name]})
    assert say(tmp_path, CLICKS, 2, plan) == expected


@pytest.mark.parametrize(
    "data", [None, [3], "Door", {}, {"id": None}, {"id": True}, {"id": -1}, {"id": 1e300},
             {"id": 10**30}, {"id": 1}, {"id": "7"}]
)  # fmt: skip
@pytest.mark.parametrize("kind", ["Click", "Prompt"])
def test_inputs_without_a_valid_part_only_fire_input_received(
    tmp_path: Path, kind: str, data: Any
) -> None:
    main = CLICKS + (
        "game:GetService('AgentInputService').InputReceived:Connect(function(_, kind) "
        "print(kind) end)"
    )
    assert say(tmp_path, main, 2, Plan().join(0, "Ada").act(1, "Ada", kind, data)) == [kind]


def test_click_has_no_effect_for_a_player_without_a_character(tmp_path: Path) -> None:
    main = CLICKS + "game.Players.PlayerAdded:Connect(function(player) player.Character = nil end)"
    plan = Plan().join(0, "Ada").act(1, "Ada", "Click", {"id": numbers(tmp_path, CLICKS)["Door"]})
    assert say(tmp_path, main, 2, plan) == []


PROMPTS = (
    SCENE
    + """
local EVENTS = { "PromptButtonHoldBegan", "PromptButtonHoldEnded", "Triggered", "TriggerEnded" }
local function prompt(parent, hold)
    local made = Instance.new("ProximityPrompt")
    made.HoldDuration = hold
    for _, event in EVENTS do
        made[event]:Connect(function(player) print(tick(), made.Name, event, player) end)
    end
    made.Parent = parent
    made.Name = parent.Name
    return made
end
local door = prompt(part("Door", 5, workspace), 0)
local chest = prompt(Instance.new("Attachment", part("Chest", 5, workspace)), 0.1)
chest.Name = "Chest"
local house = Instance.new("Model", workspace)
house.Name = "House"
local wall = part("Wall", 5, house)
local house_prompt = prompt(house, 0.1)
"""
)


def test_prompt_without_a_duration_triggers_immediately(tmp_path: Path) -> None:
    main = PROMPTS + (
        "for _, event in {'PromptTriggered', 'PromptTriggerEnded'} do "
        "game:GetService('ProximityPromptService')[event]:Connect("
        "function(prompt, player) print(event, prompt, player) end) end"
    )
    plan = Plan().join(0, "Ada").act(1, "Ada", "Prompt", {"id": numbers(tmp_path, PROMPTS)["Door"]})
    assert say(tmp_path, main, 3, plan) == [
        *("1\tDoor\tTriggered\tAda", "PromptTriggered\tDoor\tAda"),
        *("1\tDoor\tTriggerEnded\tAda", "PromptTriggerEnded\tDoor\tAda"),
    ]


@pytest.mark.parametrize("name", ["Chest", "Wall"])
def test_prompt_is_held_for_its_duration_even_across_a_restore(tmp_path: Path, name: str) -> None:
    number = numbers(tmp_path, PROMPTS)[name]
    (tmp_path / "world.toml").write_text('name = "prompts"')
    plan = Plan().join(0, "Ada").join(0, "Bo")
    plan.act(1, "Ada", "Prompt", {"id": number}).act(3, "Bo", "Prompt", {"id": number})
    run = torture(tmp_path, plan, ticks=12, saves=(1, 2, 6, 8))
    shown = "House" if name == "Wall" else name
    assert printed(run) == [
        f"1\t{shown}\tPromptButtonHoldBegan\tAda",
        f"3\t{shown}\tPromptButtonHoldBegan\tBo",
        *(f"7\t{shown}\t{event}\tAda" for event in ENDS),
        *(f"9\t{shown}\t{event}\tBo" for event in ENDS),
    ]


ENDS = ("PromptButtonHoldEnded", "Triggered", "TriggerEnded")


@pytest.mark.parametrize(
    "change",
    [
        "chest.Enabled = false",
        "chest:Destroy()",
        "chest.MaxActivationDistance = 1",
        "workspace.Chest.Position = Vector3.new(50, 0, 0)",
        "workspace.Chest.Parent = game.ReplicatedStorage",
        "game.Players.Ada.Character = nil",
    ],
)
def test_a_hold_ends_when_the_prompt_is_out_of_reach(tmp_path: Path, change: str) -> None:
    plan = Plan().join(0, "Ada")
    plan.act(1, "Ada", "Prompt", {"id": numbers(tmp_path, PROMPTS)["Chest"]})
    main = f"{PROMPTS} task.wait(0.05) {change}"
    lines = say(tmp_path, main, 12, plan)
    assert lines[0] == "1\tChest\tPromptButtonHoldBegan\tAda"
    ended = [] if "Destroy" in change else ["3\tChest\tPromptButtonHoldEnded\tAda"]
    assert lines[1:] == ended


@pytest.mark.parametrize("data", [None, {"id": 0}])
def test_another_prompt_input_ends_the_hold(tmp_path: Path, data: Any) -> None:
    plan = Plan().join(0, "Ada")
    plan.act(1, "Ada", "Prompt", {"id": numbers(tmp_path, PROMPTS)["Chest"]})
    plan.act(2, "Ada", "Prompt", data)
    assert say(tmp_path, PROMPTS, 12, plan) == [
        "1\tChest\tPromptButtonHoldBegan\tAda",
        "2\tChest\tPromptButtonHoldEnded\tAda",
    ]


@pytest.mark.thorough
def test_a_hold_ends_when_the_player_leaves(tmp_path: Path) -> None:
    plan = Plan().join(0, "Ada")
    plan.act(1, "Ada", "Prompt", {"id": numbers(tmp_path, PROMPTS)["Chest"]}).leave(3, "Ada")
    (tmp_path / "world.toml").write_text('name = "prompts"')
    run = torture(tmp_path, plan, ticks=6, saves=(2, 3, 4))
    assert printed(run) == [
        "1\tChest\tPromptButtonHoldBegan\tAda",
        "3\tChest\tPromptButtonHoldEnded\tAda",
    ]


def test_entities_list_their_detectors_and_prompts(tmp_path: Path) -> None:
    main = PROMPTS + (
        "door.ActionText, door.ObjectText = 'Open', 'Door' "
        "Instance.new('ClickDetector', workspace.Chest) "
        "local off = prompt(part('Off', 5, workspace), 0) off.Enabled = false"
    )
    seen = play(tmp_path, main, 1, Plan().join(0, "Ada")).world.observe(agent_id("Ada"))
    shown = {each["name"]: each for each in seen["world"]["entities"]}
    assert shown["Door"]["prompt"] == {
        "action": "Open",
        "object": "Door",
        "hold_s": 0,
        "distance": 10,
    }
    assert shown["Chest"]["click"] == {"distance": 32}
    assert not {"prompt", "click"} & shown["Off"].keys()


def test_key_and_style_of_a_prompt_are_enum_items(tmp_path: Path) -> None:
    main = """
    local prompt = Instance.new("ProximityPrompt")
    print(prompt.KeyboardKeyCode.Name, prompt.GamepadKeyCode.Name, prompt.Style.Name)
    prompt.KeyboardKeyCode, prompt.Style = Enum.KeyCode.F, "Custom"
    print(prompt.KeyboardKeyCode.Name, prompt.Style.Name, prompt.Exclusivity.Name)
    """
    assert say(tmp_path, main) == ["E\tButtonX\tDefault", "F\tCustom\tOnePerButton"]


def test_world_without_prompts_has_an_unchanged_snapshot(tmp_path: Path) -> None:
    saved = play(tmp_path, PROMPTS, 2, Plan().join(0, "Ada")).world.snapshot()
    assert "prompts" not in saved["systems"]["services"]
