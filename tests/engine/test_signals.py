"""Signals: the order of handlers, and changes during an event."""

from __future__ import annotations

from tests.engine.playing import play, printed, say

EVENT = """
local event = workspace.ChildAdded
local function fire() Instance.new("Folder").Parent = workspace end
"""


def test_handlers_run_in_order_of_connection_in_separate_threads(tmp_path):
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


def test_handler_disconnected_during_an_event_is_skipped_and_a_new_handler_waits(tmp_path):
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


def test_once_runs_once_even_if_the_event_fires_within_it(tmp_path):
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


def test_wait_resumes_within_the_event_after_the_handlers_with_the_arguments(tmp_path):
    assert say(
        tmp_path,
        EVENT
        + """
        task.spawn(function()
            local child = event:Wait()
            print("got", child, math.round(time() * 60))
        end)
        event:Connect(function() print("handled") end)
        task.delay(3 / 60, function() fire() print("fired", math.round(time() * 60)) end)
        """,
        6,
    ) == ["handled", "got\tFolder\t3", "fired\t3"]


def test_thread_that_waits_again_gets_the_next_event_even_if_nested(tmp_path):
    assert say(
        tmp_path,
        """
        local event = Instance.new("BindableEvent")
        for _, name in { "a", "b" } do
            task.spawn(function()
                while true do
                    local value = event.Event:Wait()
                    print(name, value)
                    if name == "a" and value == 1 then event:Fire(2) end
                end
            end)
        end
        event:Fire(1)
        event:Fire(3)
        """,
    ) == ["a\t1", "b\t2", "b\t3", "a\t3"]


def test_thread_cancelled_by_a_handler_does_not_get_the_event(tmp_path):
    assert say(
        tmp_path,
        EVENT
        + """
        local waits = task.spawn(function() event:Wait() print("never") end)
        event:Connect(function() task.cancel(waits) end)
        fire()
        print("on")
        """,
    ) == ["on"]


def test_error_in_a_handler_only_ends_its_thread(tmp_path):
    main = """
        event:Connect(function() error("bad") end)
        event:Connect(function() print("next") end)
        print(pcall(fire))
        """
    run = play(tmp_path, EVENT + main)
    assert run.world.failure is None
    assert run.lines[0] == "err [Lua Error] Failed to load script: main.lua:5: bad"
    assert printed(run) == ["next", "true"]


def test_handler_error_with_on_error_halt_halts_the_world_despite_pcall(tmp_path):
    main = EVENT + 'event:Connect(function() error("bad") end)\nprint(pcall(fire))\nprint("on")'
    run = play(tmp_path, main, halts_on_error=True)
    assert run.world.failure == "Failed to load script: main.lua:4: bad"
    assert "out [Lua] on" not in run.lines


def test_events_within_events_end_the_innermost_thread(tmp_path):
    run = play(tmp_path, EVENT + "event:Connect(fire)\nfire()\nprint('on')")
    assert run.world.failure is None
    assert "stack overflow" in run.lines[0]
    assert printed(run) == ["on"]


def test_connect_refuses_values_other_than_functions_and_calls_with_a_dot(tmp_path):
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
