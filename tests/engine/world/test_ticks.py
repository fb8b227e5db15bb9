"""The phases of a tick, and players who join, act, leave and are removed."""

from __future__ import annotations

import pytest

from clawblox.engine.settings import EngineSettings
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep
from clawblox.server import InputError
from tests.engine.playing import play, printed, say
from tests.engine.torture import Plan, agent_id


def test_phases_of_a_tick_run_in_order(tmp_path):
    lines = say(
        tmp_path,
        """
        local RunService = game:GetService("RunService")
        local AgentInputService = game:GetService("AgentInputService")
        local function show(...) print(math.round(time() * 60), ...) end
        local late = Instance.new("Script")
        late.Source = 'print(math.round(time() * 60), "script")'
        Players.PlayerAdded:Connect(function(player)
            if player.Name == "Rocky" then
                local humanoid = player.Character.Humanoid
                humanoid.StateChanged:Connect(function(_, state) show("state", state.Name) end)
                humanoid.MoveToFinished:Connect(function() show("finished") end)
                return
            end
            player:Kick("bye")
            late.Parent = game:GetService("ServerScriptService")
            local pad = Instance.new("Part", workspace)
            pad.Anchored, pad.CanCollide, pad.Size = true, false, Vector3.new(40, 20, 40)
            pad.Touched:Connect(function(other) show("touch", other) end)
        end)
        Players.PlayerRemoving:Connect(function(player)
            show("removing", player, player.Character ~= nil, #Players:GetPlayers())
        end)
        RunService.Stepped:Connect(function(_, dt) show("stepped", dt == 1 / 60) end)
        RunService.Heartbeat:Connect(function(dt)
            show("heartbeat", dt == 1 / 60, #AgentInputService:GetInputs(Players.Rocky))
        end)
        AgentInputService.InputReceived:Connect(function(player, kind)
            show("input", kind)
            player.Character.Humanoid:CancelMoveTo()
        end)
        task.delay(1 / 60, function() show("thread") end)
        """,
        2,
        Plan().join(0, "Rocky").join(1, "Ada").act(1, "Rocky", "Hello"),
    )
    assert lines == [
        "0\tstepped\ttrue",
        "0\tstate\tFreefall",
        "0\theartbeat\ttrue\t0",
        "1\tremoving\tAda\ttrue\t2",
        "1\tscript",
        "1\tthread",
        "1\tstepped\ttrue",
        "1\tinput\tHello",
        "1\tfinished",
        "1\ttouch\tHumanoidRootPart",
        "1\theartbeat\ttrue\t1",
    ]


def test_player_objects_exist_before_player_added_fires(tmp_path):
    assert say(
        tmp_path,
        """
        Players.PlayerAdded:Connect(function(player)
            local root = player.Character.HumanoidRootPart
            print(player.Parent, player.Name, player.DisplayName, #Players:GetPlayers())
            print(player.Character, player.Character.Parent, player.Character.PrimaryPart == root)
            print(root.Position, root.Size, root:GetAttribute("ModelUrl"), player.PlayerGui)
            print(player.Character.Humanoid.Health, player.UserId == Players.Rocky.UserId)
            player.CharacterAdded:Connect(function() print("added") end)
        end)
        """,
        3,
        Plan().join(0, "Rocky"),
    ) == [
        "Players\tRocky\tRocky\t1",
        "Rocky\tWorkspace\ttrue",
        "-1.5, 6, 0\t2, 5, 2\tasset://player.glb\tPlayerGui",
        "100\ttrue",
    ]


def test_tree_scripts_get_player_added_for_joins_before_the_first_tick(tmp_path):
    server = tmp_path / "scripts" / "ServerScriptService"
    server.mkdir(parents=True)
    (server / "Server.lua").write_text(
        """
        print("server", time())
        Players.PlayerAdded:Connect(function(player) print("added", player) end)
        """
    )
    lines = say(tmp_path, "print('main')", 2, Plan().join(0, "Rocky").join(0, "Ada"))
    assert lines == ["main", "server\t0", "added\tRocky", "added\tAda"]


def test_inputs_are_ordered_by_joining_and_then_by_arrival(tmp_path):
    assert say(
        tmp_path,
        """
        game:GetService("AgentInputService").InputReceived:Connect(function(player, kind, data)
            print(player, kind, data and data.n)
        end)
        """,
        2,
        Plan()
        .join(0, "Rocky")
        .join(0, "Ada")
        .act(1, "Ada", "A", {"n": 1})
        .act(1, "Rocky", "B", {"n": 2})
        .act(1, "Ada", "C"),
    ) == ["Rocky\tB\t2", "Ada\tA\t1", "Ada\tC\tnil"]


def test_click_only_reaches_elements_of_the_players_own_gui(tmp_path):
    def clicks(element: str) -> list[str]:
        main = """
            Players.PlayerAdded:Connect(function(player)
                local gui = Instance.new("ScreenGui", player.PlayerGui)
                local button = Instance.new("TextButton", gui)
                button.MouseButton1Click:Connect(function() print("clicked", player) end)
                print(button:GetDebugId())
            end)
            """
        ids = say(tmp_path, main, 1, Plan().join(0, "Rocky").join(0, "Ada"))
        plan = Plan().join(0, "Rocky").join(0, "Ada")
        plan.act(1, "Rocky", "GuiClick", {"element_id": int(ids[0 if element == "own" else 1])})
        plan.act(1, "Rocky", "GuiClick", {"element_id": "x"})
        plan.act(1, "Rocky", "GuiClick")
        return say(tmp_path, main, 2, plan)[2:]

    assert clicks("own") == ["clicked\tRocky"]
    assert clicks("other") == []


def test_kicked_and_idle_players_are_removed_and_their_sessions_end(tmp_path):
    main = """
        Players.PlayerAdded:Connect(function(player)
            if player.Name == "Ada" then player:Kick("too loud") end
        end)
        Players.PlayerRemoving:Connect(function(player) print("removing", player) end)
        """
    plan = Plan().join(0, "Rocky").join(0, "Ada").join(0, "Bob")
    for tick in (30, 90, 150, 210):
        plan.act(tick, "Bob", "Stay")
    run = play(tmp_path, main, 250, plan, afk_timeout_s=2.0)
    assert run.names == ["Bob"]
    assert printed(run) == ["removing\tAda", "removing\tRocky"]
    kicked, idle = [line for line in run.lines if line.startswith("err")]
    assert kicked.startswith("err [Kick] Removing player Ada (user_id=")
    assert kicked.endswith(") - Reason: too loud")
    assert idle == "err [AFK] Kicking player Rocky (idle for 3.0s)"
    with pytest.raises(KeyError):
        run_deep(lambda: run.world.observe(agent_id("Rocky")))


def test_player_removing_fires_before_the_character_is_removed(tmp_path):
    assert say(
        tmp_path,
        """
        Players.PlayerRemoving:Connect(function(player)
            print(player.Parent, player.Character.Parent)
            task.delay(1 / 60, function() print(player.Parent, player.Character.Parent) end)
        end)
        """,
        4,
        Plan().join(0, "Rocky").leave(1, "Rocky"),
    ) == ["Players\tWorkspace", "nil\tnil"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("Players.PlayerAdded:Connect(error)", "Failed to fire PlayerAdded"),
        ("Players.PlayerRemoving:Connect(error)", "Failed to fire PlayerRemoving"),
        ("input:Connect(error)", "Failed to process agent inputs"),
        ("run.Heartbeat:Connect(error)", "End frame error"),
        ("run.Stepped:Connect(error)", "Begin frame error"),
        ("part.Destroying:Connect(error)", "End frame error"),
        ("part.Touched:Connect(error)", "Touch event"),
    ],
)
def test_halted_world_names_the_place_of_the_error(tmp_path, statement, where):
    height = -499.9 if "Destroying" in statement else 6
    main = (
        'local run = game:GetService("RunService")\n'
        'local input = game:GetService("AgentInputService").InputReceived\n'
        'local part = Instance.new("Part", workspace)\n'
        f"part.Position = Vector3.new(0, {height}, 0)\n" + statement
    )
    plan = Plan().join(1, "Rocky").act(2, "Rocky", "Hello").leave(4, "Rocky")
    run = play(tmp_path, main, 6, plan, halts_on_error=True)
    assert run.world.failure is not None
    assert run.world.failure.startswith(f"{where}: ")
    assert run.lines[0] == f"err [Lua Error] {run.world.failure}"


def test_reset_gives_a_new_character_if_the_world_allows_it(tmp_path):
    main = """
        Players.PlayerAdded:Connect(function(player)
            player.CharacterAdded:Connect(function(new) print("new", new.Parent) end)
            player.CharacterAppearanceLoaded:Connect(function(new)
                print("appearance", new == player.Character)
            end)
        end)
        game:GetService("AgentInputService").InputReceived:Connect(function(player, kind)
            print(kind)
        end)
        """
    run = play(tmp_path, main, 1, Plan().join(0, "Rocky"), allow_reset=True)
    run_deep(lambda: run.world.act(agent_id("Rocky"), "Reset", None))
    run.step()
    assert printed(run) == ["Reset", "new\tWorkspace", "appearance\ttrue"]
    refused = play(tmp_path, main, 1, Plan().join(0, "Rocky"))
    with pytest.raises(InputError, match="allow_reset"):
        run_deep(lambda: refused.world.act(agent_id("Rocky"), "Reset", None))


def test_refused_input_does_not_change_the_world(tmp_path):
    run = play(tmp_path, "", 1, Plan().join(0, "Rocky"))
    before = run.record()
    with pytest.raises(InputError):
        run_deep(lambda: run.world.act(agent_id("Rocky"), "MoveTo", {"position": [1, 2]}))
    assert run.record() == before


def test_reseeding_changes_only_random_numbers(tmp_path):
    main = "while true do task.wait() print(math.random(1000), Random.new():NextNumber()) end"
    state = play(tmp_path, main, 3).world.snapshot()

    def go_on(seed: int | None) -> list[str]:
        lines: list[str] = []

        def run() -> None:
            world = EngineWorld(EngineSettings(directory=tmp_path), Console(lines.append))
            world.restore(state)
            if seed is not None:
                world.reseed(seed)
                assert world.time == 3 / 60
            for _ in range(3):
                world.step()

        run_deep(run)
        return lines

    assert go_on(5) == go_on(5)
    assert len({tuple(go_on(seed)) for seed in (None, 5, 6)}) == 3


def test_log_lines_of_a_world_start_with_the_tick(tmp_path, capsys):
    (tmp_path / "main.lua").write_text(
        """
        print("first\\nsecond")
        task.wait(0.1)
        warn("later")
        error("lost")
        """
    )

    def run() -> None:
        world = EngineWorld(EngineSettings(directory=tmp_path))
        world.begin()
        for _ in range(7):
            world.step()

    run_deep(run)
    captured = capsys.readouterr()
    assert captured.out.splitlines() == ["[tick 0] [Lua] first", "[tick 0] [Lua] second"]
    lines = captured.err.splitlines()
    assert lines[:2] == [
        "[tick 6] [Lua WARN] later",
        "[tick 6] [Lua Error] Begin frame error: main.lua:5: lost",
    ]
    assert all(line.startswith("[tick 6] ") for line in lines)


def test_print_and_warn_format_values_like_luau(tmp_path):
    run = play(tmp_path, 'print("héllo", 1, 1.5, nil, true, workspace) warn("wörld", 2)')
    assert run.lines == [
        "out [Lua] héllo\t1\t1.5\tnil\ttrue\tWorkspace",
        "err [Lua WARN] wörld\t2",
    ]
