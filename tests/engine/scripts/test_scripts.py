"""The order and the shared state of scripts, and ``require``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.scripts.support import ScriptWorld, write_world


def begin(directory: Path, main: str = "", **files: str) -> ScriptWorld:
    return ScriptWorld().begin(write_world(directory, main, **files))


def test_main_runs_first_then_workspace_then_server_scripts_in_tree_order(
    tmp_path: Path,
) -> None:
    say = "print(script.Name)"
    world = begin(
        tmp_path,
        "print('main', Workspace.a.ClassName, ServerScriptService.f.deep.ClassName)",
        **{
            "ServerScriptService__x.server.lua": say, "ServerScriptService__f__deep.lua": say,
            "Workspace__b.lua": say, "Workspace__a.lua": say + "task.wait() print('later')",
            "Workspace__m.module.lua": "print('never')",
        },
    )  # fmt: skip
    assert world.lines == ["main\tScript\tScript"]
    world.tick()
    assert world.lines[1:] == ["a", "b", "deep", "x", "later"]


def test_a_disabled_script_runs_once_it_is_enabled_and_only_once(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        "local s = Workspace.s s.Disabled = true assert(not s.Enabled) "
        "task.wait(2 / 60) s.Enabled = true assert(not s.Disabled) "
        "task.wait(2 / 60) s.Disabled = true s.Disabled = false",
        **{"Workspace__s.lua": "print('runs')"},
    )
    world.tick(3)
    assert world.lines == []
    world.tick(4)
    assert world.lines == ["runs"]


MAKE = """
local s = Instance.new("Script")
s.Name = "New"
s.Source = "print('new', script.Name)"
s.Parent = %s
print("made")
"""


def test_script_created_by_a_script_runs_in_the_next_tick(tmp_path: Path) -> None:
    world = begin(tmp_path, "", **{"Workspace__s.lua": MAKE % "Workspace"})
    world.tick()
    assert world.lines == ["made"]
    world.tick(3)
    assert world.lines == ["made", "new\tNew"]


def test_a_script_that_has_run_does_not_run_again(tmp_path: Path) -> None:
    change = "script.Source = 'print(2)' script.Parent = ServerScriptService"
    world = begin(tmp_path, "", **{"Workspace__s.lua": f"print(1) {change}"})
    world.tick(3)
    assert world.lines == ["1"]


def test_script_runs_when_parented_and_each_copy_runs(tmp_path: Path) -> None:
    world = begin(tmp_path, MAKE % "ServerStorage" + "task.wait(2 / 60)"
                  "for _ = 1, 2 do s:Clone().Parent = Workspace end s:Destroy()")  # fmt: skip
    world.tick(2)
    assert world.lines == ["made"]
    world.tick(3)
    assert world.lines == ["made", "new\tNew", "new\tNew"]


def test_scripts_have_separate_globals_and_share_two_tables(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        "own = 1 _G.a = 2 shared.b = 3 print(script.Name, script.ClassName, script.Parent.Name)",
        **{
            "Workspace__s.lua": "print(own, _G.a, shared.b, script.Name, "
            "pcall(function() math.x = 1 end))"
        },
    )
    world.tick()
    assert world.lines[0] == "main\tScript\tServerScriptService"
    assert world.lines[1].startswith("nil\t2\t3\ts\tfalse\t")


def test_a_module_runs_once_with_its_own_script(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        "local m = require(ServerScriptService.m) assert(m == require(ServerScriptService.m)) "
        "print(m.name, _G.runs)",
        **{
            "ServerScriptService__m.module.lua":
            "_G.runs = (_G.runs or 0) + 1 return {name = script.Name}",
            "Workspace__s.lua": "print(require(ServerScriptService.m).name, _G.runs)",
        },
    )  # fmt: skip
    world.tick()
    assert world.lines == ["m\t1", "m\t1"]


@pytest.mark.parametrize("value", ["nil", "false", ""])
def test_module_without_a_return_value_runs_once(tmp_path: Path, value: str) -> None:
    world = begin(
        tmp_path,
        "for _ = 1, 2 do print(require(Workspace.m), _G.runs) end",
        **{"Workspace__m.module.lua": f"_G.runs = (_G.runs or 0) + 1 return {value}"},
    )
    assert world.lines == [f"{value or 'nil'}\t1"] * 2


REQUIRE = "print(pcall(require, Workspace.a))"


@pytest.mark.parametrize(
    ("call", "module", "error"),
    [
        ("require(Workspace)", "", "require expects a ModuleScript"),
        ("require('a')", "", "require expects a ModuleScript"),
        ("require()", "", "require expects a ModuleScript"),
        ("require(Workspace.a)", "return require(Workspace.a)",
         "cyclic module dependency detected"),
        ("require(Workspace.a)", "error('broken')", "broken"),
        ("require(Workspace.a)", "return +", "Expected identifier when parsing expression"),
    ],
)  # fmt: skip
def test_require_reports_its_errors(tmp_path: Path, call: str, module: str, error: str) -> None:
    main = f"for _ = 1, 2 do print(pcall(function() return {call} end)) end"
    world = begin(tmp_path, main, **{"Workspace__a.module.lua": module})
    assert len(world.lines) == 2
    for line in world.lines:
        assert line.startswith("false\t")
        assert error in line
    world.tick(3)  # the threads of the module do not continue


def test_a_module_may_wait_while_it_loads(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        """
        for name = 1, 2 do
            task.spawn(function() print(name, require(Workspace.m).value, tick() * 60) end)
        end
        """,
        **{"Workspace__m.module.lua": "print('begins') task.wait(0.05) return { value = 7 }"},
    )
    world.tick(5)
    assert world.lines == ["begins", "1\t7\t3", "2\t7\t3"]


def test_a_cycle_of_modules_that_wait_is_an_error(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        "print(pcall(require, Workspace.a))",
        **{
            "Workspace__a.module.lua": "task.wait() return require(Workspace.b)",
            "Workspace__b.module.lua": "task.wait() return require(Workspace.c)",
            "Workspace__c.module.lua": "task.wait() return require(Workspace.a)",
        },
    )
    world.tick(6)
    (line,) = world.lines
    assert line.startswith("false\t")
    assert "c.module.lua:1: cyclic module dependency detected" in line


def test_module_error_after_a_wait_reaches_all_requirers_and_is_not_cached(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        """
        task.spawn(function() print(1, pcall(require, Workspace.m)) end)
        task.spawn(function()
            print(2, pcall(require, Workspace.m))
            print(3, pcall(require, Workspace.m))
        end)
        """,
        **{
            "Workspace__m.module.lua": "_G.runs = (_G.runs or 0) + 1 task.wait()"
            " if _G.runs == 1 then error('first') end return _G.runs"
        },
    )
    world.tick(4)
    error = "scripts/Workspace/m.module.lua:1: first"
    assert world.lines == [f"1\tfalse\t{error}", f"2\tfalse\t{error}", "3\ttrue\t2"]
    assert world.scheduler.errors.count == 0


def test_module_continues_after_its_requirer_is_cancelled(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        """
        local first = task.spawn(function() require(Workspace.m) print("never") end)
        task.spawn(function() print(require(Workspace.m)) end)
        task.cancel(first)
        local last = task.spawn(require, Workspace.lost)
        task.cancel(last)
        """,
        **{
            "Workspace__m.module.lua": "task.wait() return 'kept'",
            "Workspace__lost.module.lua": "task.wait() error('nobody waits')",
        },
    )
    world.tick(3)
    assert world.lines[0] == "kept"
    assert world.scheduler.errors.count == 1
    assert "nobody waits" in world.scheduler.errors.last


def test_a_module_whose_thread_is_closed_fails(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        """
        task.spawn(function() print(pcall(require, Workspace.m)) end)
        task.cancel(_G.thread)
        """,
        **{"Workspace__m.module.lua": "_G.thread = coroutine.running() coroutine.yield()"},
    )
    assert world.lines == ["false\tthe thread was closed"]


def test_yielded_module_continues_when_a_script_resumes_it(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        """
        task.spawn(function() print(require(Workspace.m)) end)
        print(coroutine.resume(_G.thread, 5))
        """,
        **{"Workspace__m.module.lua": "_G.thread = coroutine.running() return coroutine.yield()"},
    )
    assert world.lines == ["5", "true\t5"]


@pytest.mark.thorough
def test_chain_of_waiting_modules_finishes_in_order(tmp_path: Path) -> None:
    count = 400
    modules = {
        f"Workspace__m{at}.module.lua": f"return require(Workspace.m{at + 1}) + 1"
        for at in range(count)
    }
    world = begin(
        tmp_path,
        f"for at = {count}, 0, -1 do task.spawn(require, Workspace['m' .. at]) end"
        " print(require(Workspace.m0))",
        **modules,
        **{f"Workspace__m{count}.module.lua": "task.wait() return 0"},
    )
    world.tick(3)
    assert world.lines == [str(count)]


def test_modules_that_wait_continue_after_a_restore(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        """
        task.spawn(function() print(require(Workspace.a)) end)
        task.spawn(function() print(pcall(require, Workspace.bad)) end)
        task.spawn(function() print(require(Workspace.a)) end)
        """,
        **{
            "Workspace__a.module.lua": "task.wait(0.05) return require(Workspace.b)",
            "Workspace__b.module.lua": "task.wait(0.05) return 'b' .. tick() * 60",
            "Workspace__bad.module.lua": "task.wait(0.1) error('bad')",
        },
    )
    lines = []
    for _ in range(9):
        world.tick(1)
        lines += world.lines
        world = world.again()
    assert lines == ["false\tscripts/Workspace/bad.module.lua:1: bad", "b6", "b6"]


def test_module_may_wait_for_an_existing_child(tmp_path: Path) -> None:
    source = "return script.Parent:WaitForChild('b').ClassName"
    world = begin(tmp_path, "print(require(Workspace.a))",
                  **{"Workspace__a.module.lua": source, "Workspace__b.module.lua": ""})  # fmt: skip
    assert world.lines == ["ModuleScript"]


def test_modules_require_each_other(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        "print(require(Workspace.a))",
        **{
            "Workspace__a.module.lua": "return require(script.Parent.f.b) + 1",
            "Workspace__f__b.module.lua": "return 41",
        },
    )
    assert world.lines == ["42"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"main": "error('no')"}, "Failed to load script: main.lua:1: no"),
        ({"main": "x ="}, "Failed to load script: main.lua:1: "),
        ({"Workspace__s.lua": "\nerror('no')"},
         "Begin frame error: scripts/Workspace/s.lua:2: no"),
        ({"Workspace__s.lua": "x ="}, "Failed to load script: scripts/Workspace/s.lua:1: "),
        ({"Workspace__m.module.lua": "error('no')", "main": "require(Workspace.m)"},
         "Failed to load script: scripts/Workspace/m.module.lua:1: no"),
        ({"main": MAKE.replace("print('new', script.Name)", "error('no')") % "Workspace"},
         "Begin frame error: Workspace.New:1: no"),
    ],
)  # fmt: skip
def test_uncaught_error_halts_the_world_and_names_the_file(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    assert ScriptWorld().halted(write_world(tmp_path, **files)).startswith(expected)


def test_warn_joins_values_with_a_tab(tmp_path: Path) -> None:
    world = begin(tmp_path, "warn('a', nil, true, 2, 1.5, Workspace, 'ë')")
    assert world.warnings == ["a\tnil\ttrue\t2\t1.5\tWorkspace\të"]


def test_script_that_never_finishes_loading_halts_the_world(tmp_path: Path) -> None:
    world = ScriptWorld(steps=100_000)
    found = world.halted(write_world(tmp_path, **{"Workspace__s.lua": "while true do end"}))
    assert "Begin frame error" in found


def test_scripts_and_modules_continue_after_a_restore(tmp_path: Path) -> None:
    world = begin(
        tmp_path,
        "local m = require(Workspace.m) Workspace.off.Disabled = true "
        + MAKE % "ServerStorage"
        + "task.wait(3 / 60) assert(require(Workspace.m) == m and _G.runs == 1) "
        "s.Parent = Workspace Workspace.off.Disabled = false",
        **{
            "Workspace__m.module.lua": "_G.runs = (_G.runs or 0) + 1 return {}",
            "Workspace__on.lua": "print('on')",
            "Workspace__off.lua": "print('off') task.wait(1 / 60) error('here')",
        },
    )
    world.tick(2)
    assert world.lines == ["made", "on"]
    restored = world.again()
    restored.tick(3)
    assert restored.lines == ["off", "new\tNew"]
    restored.tick(1)
    assert restored.scheduler.errors.last.endswith("scripts/Workspace/off.lua:1: here")
