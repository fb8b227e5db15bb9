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
    run = play(tmp_path, main, 1, memory_bytes=MEMORY, steps_per_tick=5_000_000)
    assert run.world.halted_error is not None
    assert "not enough memory" in run.world.halted_error


def test_instances_that_nothing_refers_to_any_more_do_not_count(tmp_path):
    main = "for _ = 1, 20000 do local part = Instance.new('Part', workspace) part:Destroy() end"
    run = play(tmp_path, main, 1, memory_bytes=MEMORY, steps_per_tick=5_000_000)
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
