"""``CollectionService``: instances by their tags."""

from __future__ import annotations

from weakref import ref

from tests.engine.services.bench import Bench, bench, output

SETUP = """
local function make(name, parent)
    local folder = Instance.new("Folder")
    folder.Name = name
    folder.Parent = parent
    return folder
end
local function names(list)
    local found = {}
    for at, each in list do found[at] = each.Name end
    return table.concat(found, " ")
end
"""


def test_get_tagged_returns_instances_of_the_tree_in_order_of_creation() -> None:
    assert output(
        SETUP
        + """
        local a, b, c = make("a", ServerStorage), make("b", Workspace), make("c", nil)
        c:AddTag("Coin")
        CollectionService:AddTag(b, "Coin")
        a:AddTag("Coin")
        a:AddTag("Coin")
        print(names(CollectionService:GetTagged("Coin")))
        c.Parent = b
        print(names(CollectionService:GetTagged("Coin")))
        CollectionService:RemoveTag(a, "Coin")
        b.Parent = nil
        print(#CollectionService:GetTagged("Coin"), #CollectionService:GetTagged("Nothing"))
        print(CollectionService:HasTag(b, "Coin"), CollectionService:HasTag(a, "Coin"))
        b:AddTag("Old")
        print(table.concat(CollectionService:GetTags(b), " "))
        """
    ) == ["a b", "a b c", "0\t0", "true\tfalse", "Coin Old"]


def test_tag_signals_fire_when_tagged_instances_enter_or_leave_the_tree() -> None:
    assert output(
        SETUP
        + """
        local function on(what, signal)
            signal:Connect(function(each) print(what, each) end)
        end
        on("added", CollectionService:GetInstanceAddedSignal("Coin"))
        on("removed", CollectionService:GetInstanceRemovedSignal("Coin"))
        on("first", CollectionService.TagAdded)
        on("last", CollectionService.TagRemoved)
        local a = make("a", Workspace)
        a:AddTag("Coin")
        a:AddTag("Coin")
        a:AddTag("Other")
        local b = make("b", a)
        b:AddTag("Coin")
        print("moves")
        a.Parent = ServerStorage
        print("leaves")
        a.Parent = nil
        print("copied")
        a:Clone().Parent = Workspace
        print("destroyed")
        Workspace:FindFirstChild("a"):Destroy()
        """
    ) == [
        "first\tCoin", "added\ta", "first\tOther", "added\tb",
        "moves",
        "leaves", "removed\ta", "last\tOther", "removed\tb", "last\tCoin",
        "copied", "first\tCoin", "added\ta", "first\tOther", "added\tb",
        "destroyed", "removed\tb", "removed\ta", "last\tCoin", "last\tOther",
    ]  # fmt: skip


def test_all_tags_of_the_tree_are_listed() -> None:
    assert output(
        SETUP
        + """
        make("a", Workspace):AddTag("Z")
        make("b", Workspace):AddTag("A")
        make("c", nil):AddTag("Loose")
        print(table.concat(CollectionService:GetAllTags(), " "))
        print(CollectionService:GetInstanceAddedSignal("A") ==
            CollectionService:GetInstanceAddedSignal("A"))
        print(pcall(CollectionService.AddTag, CollectionService, 5, "A"))
        print(pcall(CollectionService.GetTagged, CollectionService))
        """
    ) == [
        "A Z",
        "true",
        "false\tinvalid argument #1 to 'AddTag' (Instance expected, got number)",
        "false\tinvalid argument #1 to 'GetTagged' (string expected, got nil)",
    ]


def test_a_handler_that_moves_the_tagged_instance_back_leaves_it_tagged_once() -> None:
    assert output(
        SETUP
        + """
        local a = make("a", Workspace)
        a:AddTag("Coin")
        Workspace.ChildRemoved:Connect(function(each)
            if each.Parent == nil then each.Parent = ServerStorage end
        end)
        a.Parent = nil
        print(a.Parent, #CollectionService:GetTagged("Coin"))
        a:Destroy()
        print(#CollectionService:GetTagged("Coin"))
        """
    ) == ["ServerStorage\t1", "0"]


def test_tags_and_their_signals_are_in_snapshots() -> None:
    world = bench(
        SETUP
        + """
        local b, a = make("b", Workspace), make("a", Workspace)
        a:AddTag("Coin")
        b:AddTag("Coin")
        local kept = CollectionService:GetInstanceRemovedSignal("Coin")
        CollectionService:GetInstanceAddedSignal("Coin"):Connect(function(each)
            print("added", each)
        end)
        kept:Wait()
        print("removed", names(CollectionService:GetTagged("Coin")))
        make("c", Workspace):AddTag("Coin")
        """
    )
    document = world.document()
    restored = Bench().restore(document)
    assert restored.document() == document
    for each in (world, restored):
        each.run("Workspace.a:Destroy()")
        each.tick(2)
    assert world.printed() == restored.printed() == ["removed\tb", "added\tc"]
    assert world.document() == restored.document()


def test_signals_without_listeners_are_not_stored() -> None:
    world = bench(
        """
        for at = 1, 1000 do
            CollectionService:GetInstanceAddedSignal("tag" .. at)
            Workspace:GetAttributeChangedSignal("name" .. at)
            Workspace:GetAttributeChangedSignal("used" .. at):Connect(print):Disconnect()
        end
        local kept = Workspace:GetAttributeChangedSignal("kept")
        kept:Connect(print)
        print(kept == Workspace:GetAttributeChangedSignal("kept"))
        Workspace:SetAttribute("kept", 1)
        """
    )
    assert world.printed() == ["true", ""]
    assert len(world.model.hub._signals) == 1


def test_signals_of_class_members_are_stored_but_not_those_of_attributes() -> None:
    workspace = bench("").model.workspace
    found = {name: ref(workspace.signal(name)) for name in ("ChildAdded", "@Name", "#speed")}
    assert {name for name, signal in found.items() if signal() is not None} == {
        "ChildAdded",
        "@Name",
    }
    assert workspace.signals == {}
