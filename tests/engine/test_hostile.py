"""Scripts that try to use up the machine end in a halted world with a clear text."""

from __future__ import annotations

import pytest

from tests.engine.playing import play, say

MEMORY = 4 << 20


@pytest.mark.parametrize(
    "main",
    [
        'local t = {} while true do t[#t + 1] = string.rep("x", 1000) .. #t end',
        "while true do Instance.new('Part', workspace) end",
        "local t = {} while true do table.insert(t, Instance.new('Part')) end",
        "local m = Instance.new('Model', workspace) while true do m:Clone().Parent = m end",
        """
        local n = 0
        while true do
            n += 1
            workspace:SetAttribute("a" .. n, string.rep("x", 1000) .. n)
        end
        """,
        "local n = 0 while true do n += 1 workspace:AddTag(string.rep('x', 1000) .. n) end",
        "while true do workspace.ChildAdded:Connect(function() print(workspace) end) end",
        "while true do task.delay(9, print, string.rep('x', 1000)) end",
        "while true do task.spawn(function() workspace.ChildAdded:Wait() end) end",
    ],
)
def test_a_script_that_fills_the_memory_halts_the_world(tmp_path, main):
    run = play(tmp_path, main, 1, memory_bytes=MEMORY, steps_per_tick=3_000_000)
    assert run.world.halted_error is not None
    assert "not enough memory" in run.world.halted_error


def test_instances_that_nothing_refers_to_any_more_do_not_count(tmp_path):
    main = "for _ = 1, 20000 do local part = Instance.new('Part', workspace) part:Destroy() end"
    run = play(tmp_path, main, 1, memory_bytes=MEMORY, steps_per_tick=3_000_000)
    assert run.world.halted_error is None


def test_no_script_reads_what_the_engine_keeps_about_a_rotation(tmp_path):
    script = """
        local part = Instance.new("Part")
        part.CFrame = CFrame.Angles(1, 2, 3)
        for _, name in { "Rotation9", "Rotation\\u{2089}", "Rotation\\x89" } do
            print(typeof(part[name]), pcall(function() part[part[name] or "Name"] = 1 end))
        end
    """
    assert say(tmp_path, script) == ["nil\ttrue"] * 3


BUDGET = 20_000
BUDGET_TEXT = (
    "exhausted the allowed number of steps: 20000 ([clawblox] steps_per_tick in world.toml)"
)
DEAR = {
    "a storm of handlers": """
        for _ = 1, 100 do workspace.AttributeChanged:Connect(function() end) end
        for i = 1, 100 do workspace:SetAttribute("a", i) end
    """,
    "a deep tree": """
        local parent = workspace
        for _ = 1, 2000 do
            local folder = Instance.new("Folder")
            folder.Parent = parent
            parent = folder
        end
    """,
    "many parts": "for _ = 1, 2000 do Instance.new('Part', workspace) end",
    "many copies": """
        local model = Instance.new("Model")
        for _ = 1, 100 do Instance.new("Part", model) end
        for _ = 1, 20 do model:Clone() end
    """,
    "a large tree that moves": """
        local model = Instance.new("Model")
        for _ = 1, 150 do Instance.new("Folder", model) end
        for _ = 1, 20 do model.Parent = workspace model.Parent = nil end
    """,
    "many threads that are made": "for _ = 1, 2000 do task.delay(1, print) end",
    "many threads that start": "for _ = 1, 2000 do task.spawn(function() end) end",
    "searches of a large tree": """
        for _ = 1, 100 do Instance.new("Folder", workspace) end
        for _ = 1, 200 do workspace:FindFirstChild("x", true) end
    """,
    "lists of descendants": """
        for _ = 1, 100 do Instance.new("Folder", workspace) end
        for _ = 1, 200 do workspace:GetDescendants() end
    """,
    "lists of children": """
        for _ = 1, 100 do Instance.new("Folder", workspace) end
        for _ = 1, 200 do workspace:GetChildren() end
    """,
    "names of what lies deep": """
        local folder = workspace
        for _ = 1, 100 do folder = Instance.new("Folder", folder) end
        for _ = 1, 200 do folder:GetFullName() end
    """,
    "errors that are caught": "for _ = 1, 1000 do pcall(error, 'x') end",
    "errors that are translated": "for _ = 1, 500 do pcall(function() local x x.y = 1 end) end",
    "errors far down the stack": """
        local function fail(levels) if levels == 0 then error("x") end fail(levels - 1) return 1 end
        for _ = 1, 50 do pcall(fail, 150) end
    """,
}


@pytest.mark.parametrize("main", DEAR.values(), ids=DEAR)
def test_what_the_engine_does_for_a_script_costs_steps(tmp_path, main):
    run = play(tmp_path, main, 1, steps_per_tick=BUDGET)
    assert run.world.halted_error is not None
    assert run.world.halted_error.endswith(BUDGET_TEXT)


LATER = {
    "threads that wait for each tick": """
        for at = 0, 20 do
            task.delay(at / 60, function()
                for _ = 1, 100 do
                    task.spawn(function()
                        while true do game:GetService("RunService").Heartbeat:Wait() end
                    end)
                end
            end)
        end
    """,
    "threads that double in each tick": (
        "local function double() task.defer(double) task.defer(double) end double()"
    ),
    "scripts that copy themselves": """
        local script = Instance.new("Script")
        script.Source = "for _ = 1, 4 do script:Clone().Parent = script.Parent end"
        script.Parent = workspace
    """,
    "an event of the engine with many handlers": """
        for at = 0, 20 do
            task.delay(at / 60, function()
                for _ = 1, 200 do
                    game:GetService("RunService").Heartbeat:Connect(function() end)
                end
            end)
        end
    """,
}


@pytest.mark.parametrize("main", LATER.values(), ids=LATER)
def test_a_world_that_grows_in_each_tick_halts_when_a_tick_is_too_dear(tmp_path, main):
    run = play(tmp_path, main, 24, steps_per_tick=BUDGET)
    assert run.world.halted_error is not None
    assert run.world.halted_error.endswith(BUDGET_TEXT)


def test_a_full_heap_is_named_with_its_key(tmp_path):
    main = "local t = {} while true do t[#t + 1] = string.rep('x', 1000) .. #t end"
    run = play(tmp_path, main, memory_bytes=MEMORY)
    assert run.world.halted_error is not None
    assert run.world.halted_error.endswith(
        "not enough memory: 4 MiB ([clawblox] memory_mib in world.toml)"
    )


def test_the_payloads_of_recent_events_count_as_memory(tmp_path):
    main = """
    for at = 1, 300 do
        local text = string.rep("x", 100000) .. at
        game:GetService("RemoteEventService"):FireAllClients("Say", { text = { text } })
    end
    """
    run = play(tmp_path, main, memory_bytes=MEMORY)
    assert run.world.halted_error is not None
    assert "not enough memory" in run.world.halted_error
