"""Instances: the tree, its events, attributes, tags and copies."""

from __future__ import annotations

import pytest

from tests.engine.playing import play, say


def test_instance_ids_count_from_one_and_instances_equal_only_themselves(tmp_path):
    assert say(
        tmp_path,
        """
        local a, b = Instance.new("Part"), Instance.new("Folder")
        print(tonumber(b:GetDebugId()) - tonumber(a:GetDebugId()), game:GetDebugId())
        print(tostring(a), a.Name, a.ClassName, a == a, a == Instance.new("Part"), typeof(a))
        print(pcall(Instance.new, "Nonsense"))
        print(pcall(Instance.new, "Workspace"))
        """,
    ) == [
        "1\t1",
        "Part\tPart\tPart\ttrue\tfalse\tInstance",
        "false\tUnknown class 'Nonsense'",
        "false\tUnknown class 'Workspace'",
    ]


def test_reparenting_notifies_the_old_parent_the_new_parent_and_then_the_property(tmp_path):
    assert say(
        tmp_path,
        """
        local old, new, part = Instance.new("Folder"), Instance.new("Model"), Instance.new("Part")
        part.Parent = old
        old.ChildRemoved:Connect(function(child) print("removed", child, part.Parent) end)
        old.DescendantRemoving:Connect(function(child) print("removing", child, part.Parent) end)
        new.ChildAdded:Connect(function(child) print("added", child, part.Parent) end)
        new.DescendantAdded:Connect(function(child) print("descendant", child) end)
        part:GetPropertyChangedSignal("Parent"):Connect(function() print("property") end)
        part.AncestryChanged:Connect(function(child, parent) print("ancestry", child, parent) end)
        part.Parent = new
        part.Parent = new
        """,
    ) == [
        "removing\tPart\tFolder",
        "removed\tPart\tModel",
        "added\tPart\tModel",
        "descendant\tPart",
        "property",
        "ancestry\tPart\tModel",
    ]


def test_destroy_fires_depth_first_once_and_unparents_each_after_its_children(tmp_path):
    assert say(
        tmp_path,
        """
        local function make(name, parent)
            local made = Instance.new("Folder")
            made.Name, made.Parent = name, parent
            made.Destroying:Connect(function() print("destroying", name, made.Parent) end)
            made.ChildRemoved:Connect(function(child) print(name, "lost", child) end)
            return made
        end
        local a = make("a", workspace)
        local b = make("b", a)
        local c, d = make("c", b), make("d", a)
        local heard = a.AttributeChanged:Connect(print)
        a:Destroy()
        a:Destroy()
        a:SetAttribute("x", 1)
        print(a.Parent, c.Parent, heard.Connected, #a:GetChildren())
        print(pcall(function() a.Parent = workspace end))
        """,
    ) == [
        "destroying\ta\tWorkspace",
        "destroying\tb\ta",
        "destroying\tc\tb",
        "b\tlost\tc",
        "a\tlost\tb",
        "destroying\td\ta",
        "a\tlost\td",
        "nil\tnil\tfalse\t0",
        "false\tmain.lua:17: The Parent property of a is locked, because it is destroyed",
    ]


def test_destroying_an_instance_within_its_own_destroying_event_is_harmless(tmp_path):
    assert say(
        tmp_path,
        """
        local part = Instance.new("Part", workspace)
        part.Destroying:Connect(function() print("once") part:Destroy() end)
        part:Destroy()
        print(part.Parent)
        """,
    ) == ["once", "nil"]


@pytest.mark.parametrize(
    "statement", ["workspace:Destroy()", "game:Destroy()", "workspace.Parent = nil"]
)
def test_services_cannot_be_moved(tmp_path, statement):
    run = play(tmp_path, f"Instance.new('Part', workspace)\n{statement}")
    assert run.world.failure is not None
    assert "is locked" in run.world.failure


def test_instance_cannot_be_its_own_descendant(tmp_path):
    (line,) = say(
        tmp_path,
        """
        local a, b = Instance.new("Model"), Instance.new("Model")
        b.Parent = a
        print(pcall(function() a.Parent = b end))
        """,
    )
    assert "would result in circular reference" in line


def test_names_find_children_in_order_and_follow_renames(tmp_path):
    assert say(
        tmp_path,
        """
        local box = Instance.new("Folder", workspace)
        local first, second = Instance.new("Part"), Instance.new("Part")
        first.Parent, second.Parent = box, box
        print(box.Part == first, box.Nothing)
        first.Name = "First"
        print(box.Part == second, box.First == first)
        second.Name = "First"
        print(box.First == first, box:FindFirstChild("Part"))
        local inner = Instance.new("Folder", first)
        inner.Name = "Deep"
        print(box:FindFirstChild("Deep"), box:FindFirstChild("Deep", true) == inner)
        first.Parent = nil
        print(box.First == second, box:FindFirstChildOfClass("BasePart"))
        print(box:FindFirstChildWhichIsA("BasePart") == second)
        """,
    ) == [
        "true\tnil",
        "true\ttrue",
        "true\tnil",
        "nil\ttrue",
        "true\tnil",
        "true",
    ]


def test_number_is_accepted_as_a_name_in_tostring_form_except_nan(tmp_path):
    lines = say(
        tmp_path,
        """
        local a, b = Instance.new("Folder", Workspace), Instance.new("Folder")
        a.Name, b.Name = "12", "2.5"
        b.Parent = a
        print(Workspace:FindFirstChild(12) == a, Workspace:WaitForChild(12) == a)
        print(Workspace:FindFirstChild(2.5, true) == b, b:FindFirstAncestor(12) == a)
        a:AddTag(7)
        a:SetAttribute(-0.5, "x")
        print(a:HasTag("7"), a:HasTag(7), a:GetAttribute("-0.5"), a:GetAttribute(-0.5))
        a:RemoveTag(7)
        print(#a:GetTags(), Workspace:FindFirstChild(0 / 0), a:HasTag(0 / 0))
        print(pcall(Workspace.WaitForChild, Workspace, 0 / 0))
        print(pcall(a.AddTag, a, 0 / 0))
        """,
    )
    refused = "(string expected, got NaN)"
    assert lines == [
        "true\ttrue",
        "true\ttrue",
        "true\ttrue\tx\tx",
        "0\tnil\tfalse",
        f"false\tinvalid argument #1 to 'WaitForChild' {refused}",
        f"false\tinvalid argument #1 to 'AddTag' {refused}",
    ]


def test_recursive_search_is_depth_first_parents_before_children(tmp_path):
    assert say(
        tmp_path,
        """
        local function make(name, parent)
            local made = Instance.new("Folder", parent)
            made.Name = name
            return made
        end
        local a = make("a", workspace)
        local b = make("b", a)
        make("x", b):SetAttribute("deep", true)
        make("x", a)
        print(a:FindFirstChild("x", true):GetAttribute("deep"))
        local names = {}
        for at, found in a:GetDescendants() do names[at] = found.Name end
        print(table.concat(names, " "))
        """,
    ) == ["true", "b x x"]


def test_attributes_report_every_assignment_and_nil_removes_them(tmp_path):
    assert say(
        tmp_path,
        """
        local f = Instance.new("Folder")
        f.AttributeChanged:Connect(function(name) print("changed", name) end)
        f:GetAttributeChangedSignal("a"):Connect(function(...) print("a", select("#", ...)) end)
        f:SetAttribute("a", 1)
        f:SetAttribute("a", 1)
        f:SetAttribute("b", true)
        f:SetAttribute("a", nil)
        print(f:GetAttribute("a"), f:GetAttributes().b, next(f:GetAttributes()))
        """,
    ) == [
        "changed\ta",
        "a\t0",
        "changed\ta",
        "a\t0",
        "changed\tb",
        "changed\ta",
        "a\t0",
        "nil\ttrue\tb\ttrue",
    ]


def test_attributes_accept_plain_values_and_arrays_and_return_new_tables(tmp_path):
    assert say(
        tmp_path,
        """
        local f = Instance.new("Folder")
        local list = {1, {Vector3.new(1, 2, 3), "x"}, named = 5}
        f:SetAttribute("list", list)
        list[1] = 2
        local read = f:GetAttribute("list")
        print(read[1], read[2][1], read.named, read == f:GetAttribute("list"))
        for _, bad in {print, f, RaycastParams.new(), coroutine.create(print)} do
            print(pcall(f.SetAttribute, f, "bad", bad))
        end
        """,
    ) == ["1\t1, 2, 3\tnil\tfalse", *["false\tUnsupported attribute type"] * 4]


def test_property_signals_fire_when_a_script_sets_another_value(tmp_path):
    assert say(
        tmp_path,
        """
        local part = Instance.new("Part")
        for _, name in {"Name", "Transparency", "Anchored", "Color"} do
            part:GetPropertyChangedSignal(name):Connect(function() print(name) end)
        end
        part.Changed:Connect(function(name) print("Changed", name) end)
        part.Transparency = 0
        part.Transparency = 2
        part.Transparency = 1
        part.Anchored = true
        part.Anchored = true
        part.Name = "x"
        part.Name = "x"
        part.Color = Color3.new(1, 0, 0)
        part.Color = Color3.new(1, 0, 0)
        print(pcall(part.GetPropertyChangedSignal, part, "Nonsense"))
        """,
    ) == [
        "Transparency",
        "Changed\tTransparency",
        "Anchored",
        "Changed\tAnchored",
        "Name",
        "Changed\tName",
        "Color",
        "Changed\tColor",
        "false\tNonsense is not a valid property name of Part",
    ]


def test_clone_copies_all_but_connections_and_refers_to_its_own_parts(tmp_path):
    assert say(
        tmp_path,
        """
        local model, part, weld = Instance.new("Model"), Instance.new("Part"), Instance.new("Weld")
        local outside = Instance.new("Part")
        part.Parent, weld.Parent = model, part
        model.PrimaryPart, weld.Part0, weld.Part1 = part, part, outside
        part.Transparency = 0.5
        part:SetAttribute("list", {1})
        part:AddTag("Static") part:AddTag("Red") part:RemoveTag("Static")
        part.AttributeChanged:Connect(print)
        model.Name, model.Parent = "Car", workspace
        local copy = model:Clone()
        local own = copy.Part
        own:SetAttribute("list", {2})
        print(copy.Name, copy.Parent, copy.PrimaryPart == own, own ~= part)
        print(own.Weld.Part0 == own, own.Weld.Part1 == outside, own.Transparency)
        print(own:HasTag("Red"), #own:GetTags(), part:GetAttribute("list")[1])
        """,
    ) == ["Car\tnil\ttrue\ttrue", "true\ttrue\t0.5", "true\t1\t1"]


def test_is_a_follows_the_class_groups(tmp_path):
    assert say(
        tmp_path,
        """
        local part, gui = Instance.new("Part"), Instance.new("ScreenGui")
        local button, corner = Instance.new("TextButton"), Instance.new("UICorner")
        print(part:IsA("BasePart"), part:IsA("Instance"), part:IsA("Model"), part:IsA("MeshPart"))
        print(gui:IsA("LayerCollector"), gui:IsA("GuiBase2d"), gui:IsA("GuiObject"))
        print(button:IsA("GuiButton"), button:IsA("GuiObject"), button:IsA("GuiBase2d"))
        print(Instance.new("Weld"):IsA("Constraint"), corner:IsA("UIComponent"))
        """,
    ) == ["true\ttrue\tfalse\tfalse", "true\ttrue\tfalse", "true\ttrue\ttrue", "true\ttrue"]


def test_new_value_objects_are_named_value(tmp_path):
    assert say(
        tmp_path,
        """
        for _, class in { "IntValue", "StringValue", "ObjectValue", "Color3Value" } do
            print(Instance.new(class).Name, Instance.new(class):Clone().Name)
        end
        print(Instance.new("Part").Name)
        """,
    ) == ["Value\tValue"] * 4 + ["Part"]


def test_attachment_refuses_a_pose_that_snapshots_cannot_restore(tmp_path):
    assert say(
        tmp_path,
        """
        local attachment = Instance.new("Attachment", workspace)
        print(pcall(function() attachment.CFrame = CFrame.new(0 / 0, 0, 0) end))
        print(attachment.Position)
        """,
    ) == ["false\tmain.lua:3: property 'CFrame' must be finite", "0, 0, 0"]


def test_invalid_assignment_error_names_the_property_and_the_type(tmp_path):
    assert say(
        tmp_path,
        """
        local part = Instance.new("Part")
        print(pcall(function() part.Nonsense = 1 end))
        print(pcall(function() part.Anchored = 1 end))
        print(pcall(function() part.ClassName = "x" end))
        print(pcall(function() part.Size = Vector3.new(0 / 0, 1, 1) end))
        print(pcall(function() part.Parent = 5 end))
        print(pcall(function() part.Material = "Cheese" end))
        print(pcall(function() part.Material = true end))
        print(pcall(part.SetAttribute, workspace))
        print(pcall(part.IsA))
        """,
    ) == [
        "false\tmain.lua:3: 'Nonsense' is not a valid member of Part 'Part'",
        "false\tmain.lua:4: invalid value for property 'Anchored' (boolean expected, got number)",
        "false\tmain.lua:5: property 'ClassName' of Part is read-only",
        "false\tmain.lua:6: property 'Size' must be finite, not nan, 1.0, 1.0",
        "false\tmain.lua:7: invalid value for property 'Parent' (Instance expected, got number)",
        (
            "false\tmain.lua:8: invalid value for property 'Material': "
            "'Cheese' is not a valid member of Enum.Material"
        ),
        (
            "false\tmain.lua:9: invalid value for property 'Material' "
            "(Enum.Material or the name of an item expected, got boolean)"
        ),
        "false\tinvalid argument #1 to 'SetAttribute' (string expected, got nil)",
        "false\tExpected ':' not '.' calling member function IsA",
    ]


def test_enum_property_accepts_an_item_by_value_name_or_number(tmp_path):
    assert say(
        tmp_path,
        """
        local part = Instance.new("Part")
        for _, material in { Enum.Material.Neon, "Neon", 288 } do
            part.Material = Enum.Material.Plastic
            part.Material = material
            print(part.Material)
        end
        part.Shape = "Ball"
        print(part.Shape == Enum.PartType.Ball)
        """,
    ) == ["Enum.Material.Neon"] * 3 + ["true"]


def test_the_workspace_has_two_names_in_game(tmp_path):
    assert say(tmp_path, "print(game.workspace == workspace, game.Workspace == workspace)") == [
        "true\ttrue"
    ]


def test_scripts_cannot_read_the_internal_rotation_of_a_part(tmp_path):
    script = """
        local part = Instance.new("Part")
        part.CFrame = CFrame.Angles(1, 2, 3)
        for _, name in { "Rotation9", "Rotation\\u{2089}", "Rotation\\x89" } do
            print(typeof(part[name]), pcall(function() part[part[name] or "Name"] = 1 end))
        end
    """
    assert say(tmp_path, script) == ["nil\ttrue"] * 3


def test_ancestors_are_found_by_the_classes_they_extend_and_descendants_by_name(tmp_path):
    assert say(
        tmp_path,
        """
        local model = Instance.new("Model", workspace)
        local part = Instance.new("Part", Instance.new("Folder", model))
        print(part:FindFirstAncestorWhichIsA("PVInstance") == model)
        print(part:FindFirstAncestorWhichIsA("Part"), part:FindFirstAncestorWhichIsA(nil))
        print(model:FindFirstDescendant("Part") == part, model:FindFirstDescendant("Zoe"))
        """,
    ) == ["true", "nil\tnil", "true\tnil"]
