"""The GUI: defaults, assignment, JSON and clicks."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from clawblox.engine.gui import billboard_json, find_clicked, gui_json
from tests.engine.gui.support import GuiWorld
from tests.engine.playing import say
from tests.engine.torture import Plan

shared_world = functools.cache(GuiWorld)

N8_DEFAULTS = {
    "Frame": {
        "Size": "{0, 100}, {0, 100}", "Position": "{0, 0}, {0, 0}", "AnchorPoint": "0, 0",
        "ZIndex": "1", "Visible": "true", "BackgroundColor3": "1, 1, 1",
        "BackgroundTransparency": "0", "BorderSizePixel": "1",
        "BorderColor3": "0.10000000149011612, 0.10000000149011612, 0.10000000149011612",
    },
    "TextLabel": {
        "BackgroundTransparency": "1", "TextColor3": "0, 0, 0", "TextSize": "14",
        "TextXAlignment": "Center", "TextYAlignment": "Center", "Font": "SourceSans", "Text": "",
        "Size": "{0, 100}, {0, 100}",
    },
    "TextButton": {"BackgroundTransparency": "0", "TextSize": "14", "Font": "SourceSans"},
    "ImageLabel": {"BackgroundTransparency": "1", "ImageColor3": "1, 1, 1", "Image": ""},
    "ImageButton": {"BackgroundTransparency": "0", "ImageTransparency": "0"},
    "ScreenGui": {"DisplayOrder": "0", "Enabled": "true", "ResetOnSpawn": "true"},
    "BillboardGui": {
        "Size": "{0, 100}, {0, 50}", "StudsOffset": "0, 0, 0", "AlwaysOnTop": "false",
    },
}  # fmt: skip


@pytest.mark.parametrize("class_name", N8_DEFAULTS)
def test_gui_properties_have_the_documented_defaults(class_name: str) -> None:
    world = shared_world()
    made = world.model.make(class_name)
    for name, shown in N8_DEFAULTS[class_name].items():
        assert world.run(f"return tostring(made.{name})", made=made) == shown, name


N8_GROUPS = {
    "ScreenGui": ["LayerCollector", "GuiBase2d"],
    "Frame": ["GuiObject", "GuiBase2d"],
    "TextLabel": ["GuiObject", "GuiBase2d"],
    "TextButton": ["GuiButton", "GuiObject", "GuiBase2d"],
    "ImageButton": ["GuiButton", "GuiObject"],
    "UICorner": ["UIComponent"],
}


@pytest.mark.parametrize("class_name", N8_GROUPS)
def test_gui_classes_extend_their_base_classes(class_name: str) -> None:
    made = shared_world().model.make(class_name)
    for group in [class_name, *N8_GROUPS[class_name], "Instance"]:
        assert made.is_a(group)
    assert not made.is_a("BasePart")


@pytest.mark.parametrize("class_name", ["TextButton", "ImageButton"])
def test_gui_buttons_have_click_events(class_name: str) -> None:
    made = shared_world().model.make(class_name)
    for event in ("Click", "Down", "Up"):
        assert f"MouseButton1{event}" in made.spec.event_names
    assert {"MouseEnter", "MouseLeave"} <= made.spec.event_names


def test_alignments_and_fonts_accept_enum_items_and_read_as_text() -> None:
    label = shared_world().model.make("TextLabel")
    run = functools.partial(shared_world().run, label=label)
    assert run("label.TextXAlignment = Enum.TextXAlignment.Left return label.TextXAlignment") == (
        "Left"
    )
    assert run("label.TextYAlignment = 'Top' return label.TextYAlignment") == "Top"
    assert run("label.Font = Enum.Font.GothamBold return label.Font") == "GothamBold"
    error = functools.partial(shared_world().error, label=label)
    assert error("label.TextXAlignment = 'Middle'") == (
        "invalid value for property 'TextXAlignment': "
        "'Middle' is not a valid member of Enum.TextXAlignment"
    )
    assert "got EnumItem" in error("label.TextXAlignment = Enum.Font.Gotham")


def test_text_size_is_at_least_1() -> None:
    label = shared_world().model.make("TextLabel")
    assert shared_world().run("label.TextSize = 0 return label.TextSize", label=label) == 1.0


def test_number_assigned_to_text_is_formatted_like_tostring() -> None:
    label = shared_world().model.make("TextLabel")
    assert shared_world().run("label.Text = 5 return label.Text", label=label) == "5"


@pytest.mark.parametrize("point", ["Vector2.new(0.5, 1)", "{X = 0.5, Y = 1}", "{0.5, 1}"])
def test_anchor_point_accepts_a_vector_or_a_table_of_two_numbers(point: str) -> None:
    frame = shared_world().model.make("Frame")
    source = f"f.AnchorPoint = {point} return f.AnchorPoint.X, f.AnchorPoint.Y"
    assert shared_world().run(source, f=frame) == (0.5, 1.0)
    assert "Vector2 expected" in shared_world().error("f.AnchorPoint = {1}", f=frame)
    assert "must be finite" in shared_world().error("f.AnchorPoint = Vector2.new(1/0, 0)", f=frame)


def test_spectators_get_the_tree_of_a_gui() -> None:
    world = GuiWorld()
    screen = world.add("ScreenGui", world.gui, "Hud")
    label = world.add("TextLabel", screen, "Score")
    world.add("UICorner", label)
    button = world.add("ImageButton", label)
    world.add("Folder", world.gui)
    world.run(
        "label.Text = 'Zoë' label.Size = UDim2.new(0.1, 3, 1, -4) "
        "label.AnchorPoint = Vector2.new(0.5, 0) label.TextXAlignment = 'Left'",
        label=label,
    )
    assert json.loads(json.dumps(gui_json(world.gui))) == [
        {
            "id": screen.number, "type": "ScreenGui", "name": "Hud", "display_order": 0,
            "enabled": True,
            "children": [
                {
                    "id": label.number, "type": "TextLabel", "name": "Score",
                    "position": {"x_scale": 0, "x_offset": 0, "y_scale": 0, "y_offset": 0},
                    "size": {"x_scale": 0.1, "x_offset": 3, "y_scale": 1, "y_offset": -4},
                    "anchor_point": [0.5, 0], "rotation": 0, "z_index": 1, "visible": True,
                    "background_color": [1, 1, 1], "background_transparency": 1,
                    "border_color": [0.1, 0.1, 0.1], "border_size_pixel": 1, "text": "Zoë",
                    "text_color": [0, 0, 0], "text_size": 14, "text_transparency": 0,
                    "text_x_alignment": "Left", "text_y_alignment": "Center",
                    "children": [
                        {
                            "id": button.number, "type": "ImageButton", "name": "ImageButton",
                            "position": {"x_scale": 0, "x_offset": 0, "y_scale": 0, "y_offset": 0},
                            "size": {
                                "x_scale": 0, "x_offset": 100, "y_scale": 0, "y_offset": 100,
                            },
                            "anchor_point": [0, 0], "rotation": 0, "z_index": 1, "visible": True,
                            "background_color": [1, 1, 1], "background_transparency": 0,
                            "border_color": [0.1, 0.1, 0.1], "border_size_pixel": 1, "image": "",
                            "image_color": [1, 1, 1], "image_transparency": 0, "children": [],
                        }
                    ],
                }
            ],
        }
    ]  # fmt: skip


def test_gui_with_extreme_numbers_is_valid_json() -> None:
    world = GuiWorld()
    frame = world.add("Frame", world.gui)
    world.run("f.ZIndex = 1/0 f.Rotation = 1/0 f.BorderSizePixel = -1/0 "
              "f.Size = UDim2.new(1/0, 1/0, 0, 0)", f=frame)  # fmt: skip
    (shown,) = json.loads(json.dumps(gui_json(world.gui), allow_nan=False))
    assert (shown["z_index"], shown["rotation"], shown["border_size_pixel"]) == (2**31 - 1, None, 0)
    assert shown["size"]["x_scale"] is None


def test_billboard_contains_only_its_direct_labels() -> None:
    world = GuiWorld()
    part = world.add("Part", None)
    assert billboard_json(part) is None
    billboard = world.add("BillboardGui", part)
    world.add("BillboardGui", part)
    label = world.add("TextLabel", billboard)
    world.add("TextLabel", world.add("Frame", billboard))
    world.run("l.Text = 'Hi' l.TextSize = 20 b.StudsOffset = Vector3.new(0, 2.5, 0) "
              "b.AlwaysOnTop = true", l=label, b=billboard)  # fmt: skip
    assert billboard_json(part) == {
        "studs_offset": [0, 2.5, 0],
        "always_on_top": True,
        "labels": [{"text": "Hi", "color": [0, 0, 0], "size": 20}],
    }
    world.run("b.Enabled = false", b=billboard)
    assert billboard_json(part) is None


def test_click_only_finds_buttons_of_the_players_own_gui() -> None:
    world = GuiWorld()
    screen = world.add("ScreenGui", world.gui)
    button = world.add("TextButton", screen)
    others = world.add("TextButton", world.add("PlayerGui", None))
    assert find_clicked(world.gui, button.number) is button
    bad: list[Any] = [screen.number, others.number, world.gui.number, 99, -1, 2.0, True, "x", None]
    for element_id in bad:
        assert find_clicked(world.gui, element_id) is None


def test_new_character_gives_the_player_copies_of_starter_gui(tmp_path):
    main = """
    for _, name in { "Score", "Map" } do
        local screen = Instance.new("ScreenGui", game.StarterGui)
        screen.Name = name
        screen.ResetOnSpawn = name == "Score"
        local label = Instance.new("TextLabel", screen)
        label.Text = name
    end
    game.Players.PlayerAdded:Connect(function(player)
        local gui = player.PlayerGui
        local score, map = gui.Score, gui.Map
        print(#gui:GetChildren(), score.TextLabel.Text, score ~= game.StarterGui.Score)
        score.TextLabel.Text, map.TextLabel.Text = "7", "drawn"
        player:LoadCharacter()
        print(#gui:GetChildren(), gui.Score ~= score, gui.Score.TextLabel.Text, score.Parent)
        print(gui.Map == map, gui.Map.TextLabel.Text)
    end)
    """
    assert say(tmp_path, main, 2, Plan().join(1, "Ada")) == [
        "2\tScore\ttrue",
        "2\ttrue\tScore\tnil",
        "true\tdrawn",
    ]
