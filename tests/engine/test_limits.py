"""Endless scripts exhaust neither the time nor the memory of a world through engine calls."""

from __future__ import annotations

import pytest

from tests.engine.playing import play

MEMORY = 4 << 20

LOOPS = {
    "nothing": ("", 1),
    "protected": ("pcall(function() while true do end end)", 1),
    "threads": ("task.spawn(function() end)", 20),
    "waits": ("task.delay(1e6, function() end)", 20),
    "handlers": ("workspace.ChildAdded:Connect(function() end)", 20),
    "instances": ("Instance.new('Folder').Parent = workspace", 80),
    "copies": ("workspace.Terrain:Clone()", 50),
    "lists": ("workspace:GetDescendants()", 2),
    "searches": ("workspace:FindFirstChild('nothing', true)", 2),
    "rays": ("workspace:Raycast(Vector3.zero, Vector3.new(0, -9, 0))", 100),
    "boxes": ("workspace:GetPartBoundsInRadius(Vector3.zero, 9)", 30),
}
"""Calls, with the minimum number of steps charged per call."""
KEPT = {
    "arguments": "task.delay(1e6, print, long .. number)",
    "variables": "local own = long .. number task.spawn(function() task.wait(1e6) print(own) end)",
    "handlers": "local s = long .. number workspace.ChildAdded:Connect(function() print(s) end)",
    "attributes": "workspace:SetAttribute('a' .. number, long .. number)",
    "names": "local f = Instance.new('Folder') f.Name = long .. number f.Parent = workspace",
    "instances": "Instance.new('Folder').Parent = workspace",
}


@pytest.mark.thorough
@pytest.mark.parametrize("loop", LOOPS)
def test_endless_loop_halts_the_world_and_names_the_setting(loop, tmp_path):
    body, steps = LOOPS[loop]
    source = f"Instance.new('Part', workspace)\ntask.wait()\nwhile true do _G.n += 1 {body} end"
    run = play(tmp_path, f"_G.n = 0 {source}", 3, steps_per_tick=200_000)
    assert run.world.failure is not None
    assert run.world.failure.startswith("Begin frame error: main.lua:3: exhausted")
    assert "[clawblox] steps_per_tick in world.toml" in run.world.failure
    assert run.world._parts.vm.globals["_G"]["n"] <= 200_000 / steps


@pytest.mark.thorough
@pytest.mark.parametrize("kept", KEPT)
def test_script_values_held_by_the_engine_count_as_memory(kept, tmp_path):
    source = f"""
        local long = string.rep("x", 10000)
        for number = 1, 20000 do
            {KEPT[kept]}
        end"""
    run = play(tmp_path, source, 0, memory_bytes=8_000_000)
    assert run.world.failure is not None
    assert "not enough memory" in run.world.failure
    assert "[clawblox] memory_mib in world.toml" in run.world.failure


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
    assert run.world.failure is not None
    assert run.world.failure.endswith(
        "not enough memory: 4 MiB ([clawblox] memory_mib in world.toml)"
    )


@pytest.mark.thorough
def test_unreferenced_instances_do_not_count_as_memory(tmp_path):
    main = "for _ = 1, 20000 do local part = Instance.new('Part', workspace) part:Destroy() end"
    run = play(tmp_path, main, 1, memory_bytes=MEMORY, steps_per_tick=3_000_000)
    assert run.world.failure is None


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
    "rays": """
        for at = 1, 50 do Instance.new("Part", workspace).Position = Vector3.new(at, 0, 0) end
        for _ = 1, 40 do workspace:Raycast(Vector3.new(-5, 0, 0), Vector3.new(100, 0, 0)) end
    """,
    "searches of boxes": """
        for _ = 1, 50 do Instance.new("Part", workspace) end
        for _ = 1, 40 do workspace:GetPartBoundsInRadius(Vector3.zero, 9) end
    """,
    "searches within parts": """
        for _ = 1, 50 do Instance.new("Part", workspace) end
        for _ = 1, 40 do workspace:GetPartsInPart(workspace.Part) end
    """,
    "models that move": """
        local model = Instance.new("Model", workspace)
        for _ = 1, 50 do Instance.new("Part", model) end
        for _ = 1, 40 do model:PivotTo(CFrame.new()) end
    """,
    "connections": "for _ = 1, 2000 do workspace.ChildAdded:Connect(print):Disconnect() end",
    "lists of tags": """
        for at = 1, 100 do workspace:AddTag("t" .. at) end
        for _ = 1, 200 do workspace:GetTags() end
    """,
    "lists of attributes": """
        for at = 1, 100 do workspace:SetAttribute("t" .. at, at) end
        for _ = 1, 200 do workspace:GetAttributes() end
    """,
    "one of many data stores": """
        local service = game:GetService("DataStoreService")
        for at = 1, 100 do service:GetDataStore(at) end
        for _ = 1, 300 do service:GetDataStore(100) end
    """,
    "rotations": "local at = CFrame.new() for _ = 1, 2000 do at = at * CFrame.Angles(1, 2, 3) end",
    "coroutines": "for _ = 1, 3000 do coroutine.wrap(function() end)() end",
    "formats": "for _ = 1, 2000 do string.format('%s %d', 'x', 1) end",
    "JSON": """
        local list = table.create(200, "x")
        for _ = 1, 20 do game.HttpService:JSONDecode(game.HttpService:JSONEncode(list)) end
    """,
    "errors that are caught": "for _ = 1, 1000 do pcall(error, 'x') end",
    "errors that are translated": "for _ = 1, 500 do pcall(function() local x x.y = 1 end) end",
    "errors far down the stack": """
        local function fail(levels) if levels == 0 then error("x") end fail(levels - 1) return 1 end
        for _ = 1, 50 do pcall(fail, 150) end
    """,
}


@pytest.mark.parametrize("main", DEAR.values(), ids=DEAR)
def test_engine_work_for_a_script_costs_steps(tmp_path, main):
    run = play(tmp_path, main, 1, steps_per_tick=BUDGET)
    assert run.world.failure is not None
    assert run.world.failure.endswith(BUDGET_TEXT)


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
def test_growing_world_halts_when_a_tick_exceeds_the_steps(tmp_path, main):
    run = play(tmp_path, main, 24, steps_per_tick=BUDGET)
    assert run.world.failure is not None
    assert run.world.failure.endswith(BUDGET_TEXT)


def test_the_payloads_of_recent_events_count_as_memory(tmp_path):
    main = """
    for at = 1, 300 do
        local text = string.rep("x", 100000) .. at
        game:GetService("RemoteEventService"):FireAllClients("Say", { text = { text } })
    end
    """
    run = play(tmp_path, main, memory_bytes=MEMORY)
    assert run.world.failure is not None
    assert "not enough memory" in run.world.failure
