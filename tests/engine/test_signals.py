"""Signals: the order of handlers, and what happens while an event fires."""

from __future__ import annotations

from tests.engine.playing import play, say

EVENT = """
local event = workspace.ChildAdded
local function fire() Instance.new("Folder").Parent = workspace end
"""


def test_n2_handlers_run_in_order_of_connection_each_in_a_thread_of_its_own(tmp_path):
    assert say(
        tmp_path,
        EVENT
        + """
        local threads = {}
        for at = 1, 3 do
            event:Connect(function(child)
                threads[coroutine.running()] = true
                print(at, child.Parent)
            end)
        end
        fire()
        local count = 0
        for _ in threads do count += 1 end
        print(count)
        """,
    ) == ["1\tWorkspace", "2\tWorkspace", "3\tWorkspace", "3"]


def test_n2_a_handler_disconnected_meanwhile_is_skipped_and_a_new_handler_waits(tmp_path):
    assert say(
        tmp_path,
        EVENT
        + """
        local second
        event:Connect(function()
            print("first")
            second:Disconnect()
            event:Once(function() print("new") end)
        end)
        second = event:Connect(function() print("second") end)
        print(second.Connected)
        fire()
        print(second.Connected)
        second:Disconnect()
        fire()
        """,
    ) == ["true", "first", "false", "first", "new"]


def test_n2_once_runs_once_even_if_the_event_fires_within_it(tmp_path):
    assert say(
        tmp_path,
        EVENT
        + """
        local connection
        connection = event:Once(function()
            print("once", connection.Connected)
            fire()
        end)
        fire()
        print(connection.Connected)
        """,
    ) == ["once\ttrue", "false"]


def test_n2_wait_resumes_at_the_start_of_the_next_tick_with_the_arguments(tmp_path):
    assert say(
        tmp_path,
        EVENT
        + """
        task.spawn(function()
            local child = event:Wait()
            print("got", child, math.round(time() * 60))
        end)
        task.delay(3 / 60, function() fire() print("fired", math.round(time() * 60)) end)
        """,
        6,
    ) == ["fired\t3", "got\tFolder\t4"]


def test_an_error_of_a_handler_halts_through_pcall(tmp_path):
    run = play(
        tmp_path,
        EVENT + 'event:Connect(function() error("bad") end)\nprint(pcall(fire))\nprint("on")',
    )
    assert run.world.failure == "Failed to load script: main.lua:4: bad"
    assert "out [Lua] on" not in run.lines


def test_events_within_events_end_in_a_halted_world(tmp_path):
    run = play(tmp_path, EVENT + "event:Connect(fire)\nfire()")
    assert run.world.failure is not None
    assert "stack overflow" in run.world.failure


def test_connect_refuses_other_values_than_functions_and_a_dot_instead_of_a_colon(tmp_path):
    assert say(
        tmp_path,
        EVENT
        + """
        print(pcall(function() event:Connect(5) end))
        print(pcall(function() event.Connect(print) end))
        print(typeof(event), typeof(event:Connect(print)))
        """,
    ) == [
        "false\tmain.lua:5: Attempt to connect failed: Passed value is not a function",
        "false\tmain.lua:6: Expected ':' not '.' calling member function Connect",
        "RBXScriptSignal\tRBXScriptConnection",
    ]
