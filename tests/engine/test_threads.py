"""Waiting threads, and the library ``task``."""

from __future__ import annotations

import pytest

from tests.engine.playing import play, printed, say
from tests.engine.torture import Plan


def test_wait_resumes_at_the_first_tick_at_or_after_its_time(tmp_path):
    lines = say(
        tmp_path,
        """
        for _, seconds in {0, 1 / 60, 0.017, 0.1, 1 / 30} do
            task.spawn(function()
                local elapsed = task.wait(seconds)
                print(seconds, math.round(time() * 60), math.round(elapsed * 60))
            end)
        end
        """,
        10,
    )
    assert [line.split("\t")[1:] for line in lines] == [
        ["0", "1"],
        ["1", "1"],
        ["2", "2"],
        ["2", "2"],
        ["6", "6"],
    ]


FRAMES = """
local RunService = game:GetService("RunService")
RunService.Stepped:Connect(function() print("stepped") end)
RunService.Heartbeat:Connect(function() print("heartbeat") end)
"""


def test_threads_deferred_by_main_run_in_the_first_tick_before_stepped_and_heartbeat(tmp_path):
    lines = say(
        tmp_path,
        FRAMES
        + """
        task.delay(0, print, "delayed")
        task.defer(function() print("deferred") task.defer(print, "deferred again") end)
        task.spawn(function() print("waited", task.wait() == 1 / 60) end)
        task.spawn(function() workspace.ChildAdded:Wait() print("signalled") end)
        task.spawn(function() workspace:WaitForChild("Lamp") print("found") end)
        local lamp = Instance.new("Part")
        lamp.Name = "Lamp"
        lamp.Parent = workspace
        """,
        2,
    )
    load = ["signalled"]
    first = ["deferred", "deferred again", "delayed", "waited\ttrue", "found"]
    frame = ["stepped", "heartbeat"]
    assert lines == [*load, *first, *frame, *frame]


def test_threads_deferred_by_player_added_run_in_the_next_tick_before_heartbeat(tmp_path):
    lines = say(
        tmp_path,
        FRAMES
        + """
        game:GetService("Players").PlayerAdded:Connect(function(player)
            print(player.Name)
            task.defer(print, "deferred")
        end)
        """,
        2,
        Plan().join(1, "Ada"),
    )
    frame = ["stepped", "heartbeat"]
    assert lines == [*frame, "Ada", "deferred", *frame]


def test_threads_deferred_by_a_tree_script_run_in_its_first_tick(tmp_path):
    (tmp_path / "scripts" / "ServerScriptService").mkdir(parents=True)
    script = tmp_path / "scripts" / "ServerScriptService" / "Late.server.lua"
    script.write_text('task.defer(print, "deferred") print("started")')
    assert say(tmp_path, FRAMES, 1) == ["started", "deferred", "stepped", "heartbeat"]


def test_threads_deferred_in_a_tick_run_in_the_next_tick(tmp_path):
    lines = say(
        tmp_path,
        FRAMES
        + """
        RunService.Stepped:Once(function() task.defer(print, "deferred") end)
        RunService.Heartbeat:Once(function() task.defer(print, "deferred later") end)
        """,
        2,
    )
    frame = ["stepped", "heartbeat"]
    assert lines == [*frame, "deferred", "deferred later", *frame]


def test_deferred_threads_resume_first_and_due_threads_in_scheduling_order(tmp_path):
    lines = say(
        tmp_path,
        """
        game:GetService("RunService").Stepped:Once(function()
            task.delay(2 / 60, print, "delayed")
            task.spawn(function() task.wait(2 / 60) print("waited") end)
            task.spawn(function() task.wait() task.wait() print("waited twice") end)
            task.defer(function() print("deferred") task.defer(print, "deferred again") end)
        end)
        """,
        3,
    )
    assert lines == [
        "deferred",
        "deferred again",
        "delayed",
        "waited",
        "waited twice",
    ]


def test_threads_deferred_by_due_threads_run_in_the_same_tick(tmp_path):
    assert say(
        tmp_path,
        """
        local function show(text) print(text, math.round(time() * 60)) end
        task.delay(1 / 60, function() task.defer(show, "deferred") show("delayed") end)
        task.delay(1 / 60, show, "next")
        """,
        3,
    ) == ["delayed\t1", "next\t1", "deferred\t1"]


def test_endlessly_nested_defers_continue_in_the_next_tick(tmp_path):
    run = play(
        tmp_path,
        """
        local count = 0
        local function again() count += 1 task.defer(again) end
        task.defer(again)
        game:GetService("RunService").Heartbeat:Connect(function() print(count) end)
        """,
        2,
    )
    assert printed(run) == ["160", "320"]
    (warning,) = [line for line in run.lines if line.startswith("err ")]
    assert "nested more than 80 deep" in warning


def test_a_deferred_thread_may_be_cancelled_and_resumed_before_its_turn(tmp_path):
    assert say(
        tmp_path,
        """
        task.cancel(task.defer(print, "never"))
        local early = task.defer(function(...) print("early", ...) end, 1)
        task.spawn(early, 2)
        local first
        task.defer(function() task.cancel(first) end)
        first = task.defer(print, "never")
        """,
        2,
    ) == ["early\t2"]


def test_a_thread_that_yields_stays_suspended_until_a_script_resumes_it(tmp_path):
    assert say(
        tmp_path,
        """
        local kept = {}
        local function wait_for_values(name)
            kept[name] = coroutine.running()
            local function show(...) print(name, math.round(time() * 60), ...) end
            show(coroutine.yield())
        end
        task.spawn(wait_for_values, "spawned")
        task.defer(wait_for_values, "deferred")
        workspace.ChildAdded:Once(function() wait_for_values("handler") end)
        Instance.new("Folder", workspace)
        task.wait(0.1)
        print(coroutine.status(kept.handler))
        task.spawn(kept.spawned, 1, nil, 3)
        print(coroutine.resume(kept.deferred, "b"))
        task.defer(kept.handler, "c")
        """,
        9,
    ) == [
        "suspended",
        "spawned\t6\t1\tnil\t3",
        "deferred\t6\tb",
        "true",
        "handler\t6\tc",
    ]


def test_unreferenced_yielded_thread_causes_a_single_warning(tmp_path):
    run = play(
        tmp_path,
        """
        local kept = task.spawn(function() coroutine.yield() end)
        local resumed = task.spawn(function() coroutine.yield() end)
        task.spawn(resumed)
        for _ = 1, 3 do
            task.spawn(function()
                coroutine.yield()
            end)
        end
        _G.kept = kept
        while true do coroutine.yield() end
        """,
        3,
    )
    assert [line.split(": a thread")[0] for line in run.lines] == [
        "err [Lua WARN] main.lua:7",
        "err [Lua WARN] main.lua:11",
    ]
    assert "nothing refers to it" in run.lines[0]


def test_thread_resumed_by_another_drops_its_wait(tmp_path):
    assert say(
        tmp_path,
        """
        local waits = task.spawn(function()
            print(math.round(time() * 60), task.wait(3 / 60))
            print(math.round(time() * 60), task.wait(5 / 60))
            print(math.round(time() * 60))
        end)
        task.delay(1 / 60, function() task.spawn(waits, "early") end)
        """,
        9,
    ) == ["0\tearly", f"1\t{5 / 60}", "6"]


def test_spawn_runs_immediately_up_to_its_first_wait_and_returns_the_thread(tmp_path):
    assert say(
        tmp_path,
        """
        local thread = task.spawn(function(a, b) print(a, b) task.wait() print("later") end, 1, 2)
        print(typeof(thread), coroutine.status(thread))
        task.spawn(coroutine.create(function(...) print("thread", ...) end), "x")
        print(task.defer(print, "d") ~= nil, task.delay(0, print, "e") ~= nil)
        """,
        2,
    ) == ["1\t2", "thread\tsuspended", "thread\tx", "true\ttrue", "d", "later", "e"]


LOST = {
    "in the first run of task.spawn": "task.spawn(function() error('lost') end)",
    "after a wait": "task.spawn(function() task.wait() error('lost') end)",
    "in task.defer": "task.defer(function() error('lost') end)",
    "in task.delay": "task.delay(0, function() error('lost') end)",
    "in a handler": "workspace.ChildAdded:Connect(function() error('lost') end)"
    " Instance.new('Folder', workspace)",
    "after an event": "task.spawn(function() workspace.ChildAdded:Wait() error('lost') end)"
    " Instance.new('Folder', workspace)",
    "of the main script after a wait": "task.delay(0, print, 'on') task.wait() error('lost')",
}


@pytest.mark.parametrize("place", LOST)
def test_error_ends_its_thread_but_not_the_world(tmp_path, place):
    run = play(tmp_path, LOST[place] + "\ntask.delay(0.1, print, 'still here')", 9)
    assert run.world.failure is None
    errors = run.world._parts.scheduler.errors
    assert errors.count == 1
    assert errors.last.endswith(": main.lua:1: lost")
    assert f"err [Lua Error] {errors.last}" in run.lines
    if "main script" not in place:
        assert run.lines[-1] == "out [Lua] still here"


@pytest.mark.parametrize("place", list(LOST)[1:])
def test_error_with_on_error_halt_halts_the_world(tmp_path, place):
    run = play(tmp_path, LOST[place], 9, halts_on_error=True)
    assert run.world.failure is not None
    assert run.world.failure.endswith("main.lua:1: lost")


def test_error_in_the_first_run_of_spawn_with_on_error_halt_is_a_warning(tmp_path):
    main = 'task.spawn(function() error("lost") end) print("goes on")'
    run = play(tmp_path, main, 1, halts_on_error=True)
    assert run.lines == ["err [Lua WARN] task.spawn error: main.lua:1: lost", "out [Lua] goes on"]
    assert run.world.failure is None


def test_errors_from_one_place_are_logged_once_per_second_with_their_count(tmp_path):
    run = play(
        tmp_path,
        """
        game:GetService("RunService").Heartbeat:Connect(function()
            error("at " .. math.round(time() * 60))
        end)
        game:GetService("RunService").Stepped:Connect(function() error("stepped") end)
        """,
        130,
    )
    assert run.world._parts.scheduler.errors.count == 260
    assert [line for line in run.lines if "Lua Error" in line or "more since" in line] == [
        "err [Lua Error] Begin frame error: main.lua:5: stepped",
        "err [Lua Error] End frame error: main.lua:3: at 0",
        "err [Lua Error] Begin frame error: main.lua:5: stepped",
        "err   (59 more since the last line about this place)",
        "err [Lua Error] End frame error: main.lua:3: at 60",
        "err   (59 more since the last line about this place)",
        "err [Lua Error] Begin frame error: main.lua:5: stepped",
        "err   (59 more since the last line about this place)",
        "err [Lua Error] End frame error: main.lua:3: at 120",
        "err   (59 more since the last line about this place)",
    ]


def test_error_text_is_truncated_in_the_log(tmp_path):
    run = play(tmp_path, "task.defer(function() error(string.rep('x', 1e6), 0) end)", 1)
    assert run.lines[0] == f"err [Lua Error] Begin frame error: {'x' * 4000}… (1000000 characters)"
    assert sum(map(len, run.lines)) < 10_000


def test_tree_script_error_fails_the_start_only_in_the_first_tick(tmp_path):
    (tmp_path / "scripts" / "ServerScriptService").mkdir(parents=True)
    script = tmp_path / "scripts" / "ServerScriptService" / "s.server.lua"
    script.write_text("error('early')")
    where = "Begin frame error: scripts/ServerScriptService/s.server.lua:1: "
    assert play(tmp_path, "", 2).world.failure == where + "early"
    script.write_text("task.wait() error('later')")
    assert play(tmp_path, "", 2).world._parts.scheduler.errors.last == where + "later"


def test_error_in_a_script_created_later_only_ends_its_thread(tmp_path):
    run = play(
        tmp_path,
        """
        task.wait()
        for _, source in { "error('no')", "local = 1" } do
            local made = Instance.new("Script")
            made.Source = source
            made.Parent = workspace
        end
        """,
        4,
    )
    assert run.world.failure is None
    assert run.world._parts.scheduler.errors.count == 2


def test_cancel_drops_a_waiting_thread_and_ignores_a_dead_thread(tmp_path):
    assert (
        say(
            tmp_path,
            """
            local thread = task.delay(1 / 60, print, "never")
            task.cancel(thread)
            task.cancel(thread)
            local waiting = task.spawn(function() workspace.ChildAdded:Wait() print("never") end)
            task.cancel(waiting)
            Instance.new("Part").Parent = workspace
            """,
            3,
        )
        == []
    )


def test_wait_and_tick_warn_once_per_world(tmp_path):
    run = play(tmp_path, "wait() wait() print(tick()) tick()", 3)
    assert run.lines == [
        "err [Lua WARN] wait() is legacy; prefer task.wait()",
        "err [Lua WARN] tick() is legacy; prefer task.wait() and RunService events",
        f"out [Lua] {1 / 60}",
    ]


def test_all_clocks_use_simulation_time(tmp_path):
    lines = say(
        tmp_path,
        "task.wait(2) print(time() == 2, os.clock() == 2, os.time() == 2, elapsedTime() == 2)",
        121,
    )
    assert lines == ["true\ttrue\ttrue\ttrue"]


def test_wait_for_child_returns_immediately_or_in_a_later_tick_or_times_out(tmp_path):
    assert say(
        tmp_path,
        """
        local there = Instance.new("Folder") there.Name = "There" there.Parent = workspace
        print(workspace:WaitForChild("There"), math.round(time() * 60))
        task.delay(3 / 60, function()
            local late = Instance.new("Folder") late.Name = "Late" late.Parent = workspace
        end)
        print(workspace:WaitForChild("Late"), math.round(time() * 60))
        print(workspace:WaitForChild("Never", 5 / 60), math.round(time() * 60))
        """,
        12,
    ) == ["There\t0", "Late\t3", "nil\t8"]


def test_invalid_task_arguments_raise_script_errors(tmp_path):
    lines = say(
        tmp_path,
        """
        print(pcall(task.wait, "soon"))
        print(pcall(task.spawn, 5))
        print(pcall(task.delay, 1))
        print(pcall(task.cancel, print))
        """,
    )
    assert lines == [
        "false\tinvalid argument #1 to 'wait' (number expected, got string)",
        "false\tinvalid argument #1 to 'spawn' (function or thread expected, got number)",
        "false\tinvalid argument #2 to 'delay' (function or thread expected, got nil)",
        "false\tinvalid argument #1 to 'cancel' (thread expected, got function)",
    ]


def test_an_endless_loop_halts_the_world_with_a_clear_message(tmp_path):
    run = play(tmp_path, "task.wait()\nwhile true do end", 3, steps_per_tick=100_000)
    assert run.world.failure is not None
    assert run.world.failure.startswith("Begin frame error: main.lua:2: ")
    assert printed(run) == []


def test_the_log_of_a_halted_world_shows_the_source_and_the_stack(tmp_path):
    run = play(
        tmp_path,
        "local function fail()\n    error('no')\nend\nworkspace.ChildAdded:Connect(function()\n"
        "    fail()\nend)\ntask.wait()\nInstance.new('Part').Parent = workspace\n",
        2,
        halts_on_error=True,
    )
    assert run.lines == [
        "err [Lua Error] Begin frame error: main.lua:2: no",
        "err       1 | local function fail()",
        "err >     2 |     error('no')",
        "err       3 | end",
        "err       4 | workspace.ChildAdded:Connect(function()",
        "err Stack, newest call first:",
        "err   main.lua:2 function fail",
        "err   main.lua:5",
        "err [Halted] Instance stopped due to Lua error. Fix the script and restart.",
    ]


def test_a_world_whose_main_does_not_compile_or_fails_is_halted(tmp_path):
    run = play(tmp_path, "local = 1")
    assert run.world.failure is not None
    assert run.world.failure.startswith("Failed to load script: main.lua:1: ")
    assert play(tmp_path, "error('x')").world.failure == ("Failed to load script: main.lua:1: x")
