"""The small services, and the saved state of all services."""

from __future__ import annotations

import re

import pytest

from clawblox.engine.errors import WorldHalted
from clawblox.engine.services.sounds import spectate_sounds
from clawblox.engine.services.speech import within_hearing
from clawblox.luau import Vector
from tests.engine.services.bench import ANN, BOB, Bench, bench, output

# game, RunService


def test_unknown_services_are_nil() -> None:
    source = (
        "print(game:GetService('RunService') == RunService, game.RunService == RunService)\n"
        "print(game:FindService('Nonsense'), game.Nothing)"
    )
    assert output(source) == ["true\ttrue", "nil\tnil"]


def test_run_service_reports_a_running_server() -> None:
    source = "print(RunService:IsServer(), RunService:IsClient(), RunService:IsStudio())"
    assert output(source) == ["true\tfalse\tfalse"]


def test_stepped_comes_before_inputs_and_heartbeat_after() -> None:
    world = bench(
        """
        RunService.Heartbeat:Connect(function(dt) print('heartbeat', dt * 60) end)
        RunService.Stepped:Connect(function(time, dt) print('stepped', time * 60, dt * 60) end)
        AgentInputService.InputReceived:Connect(function(_, kind) print(kind) end)
        """,
        players=["Ann"],
    )
    world.services.inputs.add(world.services.players.find(ANN), "Jump", None)
    world.tick(2)
    assert world.printed() == [
        *("stepped\t0\t1", "Jump", "heartbeat\t1"),
        *("stepped\t1\t1", "heartbeat\t1"),
    ]


def test_simulation_events_fire_next_to_stepped_and_heartbeat() -> None:
    world = bench(
        """
        for _, name in {'PostSimulation', 'PreSimulation', 'Heartbeat'} do
            RunService[name]:Connect(function(dt) print(name, dt * 60) end)
        end
        RunService.Stepped:Connect(function() print('Stepped') end)
        AgentInputService.InputReceived:Connect(function(_, kind) print(kind) end)
        """,
        players=["Ann"],
    )
    world.services.inputs.add(world.services.players.find(ANN), "Jump", None)
    world.tick()
    assert world.printed() == [
        "Stepped",
        "PreSimulation\t1",
        "Jump",
        "PostSimulation\t1",
        "Heartbeat\t1",
    ]


def test_game_has_the_ids_of_its_place_and_job() -> None:
    source = """
    if not game:IsLoaded() then game.Loaded:Wait() end
    print(game.PlaceId, game.PlaceVersion, game.GameId, game.CreatorId, game.PrivateServerOwnerId)
    print(game.JobId, game.PrivateServerId == '', RunService:IsRunMode(), game.CreatorType.Name)
    print(pcall(function() game.JobId = 'mine' end))
    """
    assert output(source) == [
        "0\t0\t0\t0\t0",
        "game\ttrue\tfalse\tUser",
        "false\tscript:5: property 'JobId' of DataModel is read-only",
    ]


def test_the_job_of_a_restored_world_is_that_of_the_saved_world() -> None:
    world = bench("")
    world.services.data_stores.game_id = "first"
    saved = Bench().restore(world.document())
    saved.run("print(game.JobId)")
    assert saved.printed() == ["first"]


def test_bind_to_close_functions_run_once_in_order_and_report_errors() -> None:
    world = bench(
        """
        for i = 1, 3 do
            game:BindToClose(function() print(i) if i == 2 then error('no', 0) end end)
        end
        """
    )
    assert [str(failure) for failure in world.services.at_close.close()] == ["BindToClose: no"]
    assert world.printed() == ["1", "2", "3"]
    assert world.services.at_close.close() == []


# HttpService


def test_json_encode_and_decode_convert_values() -> None:
    source = """
    print(HttpService:JSONEncode({b = {1, 2}, a = 'x', c = game, e = {}}))
    print(HttpService:JSONDecode('{"a": [1, null, 3]}').a[3], HttpService:JSONDecode('{'))
    print(HttpService:JSONDecode('null'), HttpService:JSONDecode(nil))
    local t = {} t.t = t
    print(pcall(function() HttpService:JSONEncode(t) end))
    """
    assert output(source) == [
        '{"a":"x","b":[1,2],"c":null,"e":{}}',
        "3\tnil",
        "nil\tnil",
        "false\tscript:6: JSONEncode: tables are nested more than 128 deep",
    ]


def test_encoding_an_array_with_a_far_hole_exhausts_the_steps() -> None:
    with pytest.raises(WorldHalted, match="exhausted the allowed number of steps"):
        bench("HttpService:JSONEncode({[1e12] = 1})")


def test_guids_are_version_4_and_repeat_in_a_replay() -> None:
    source = "print(HttpService:GenerateGUID(), HttpService:GenerateGUID(false))"
    first, second = output(source), output(source)
    assert first == second
    form = "[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}"
    assert re.fullmatch(rf"\{{({form})\}}\t(?!\1){form}", first[0])


# Debris


def test_debris_is_destroyed_in_the_first_tick_after_its_time() -> None:
    source = """
    for name, time in {a = 0, b = 0.05, c = 0.06} do
        local folder = Instance.new('Folder')
        folder.Name = name
        folder.Parent = workspace or Workspace
        folder.Destroying:Connect(function() print(name) end)
        Debris:AddItem(folder, time)
    end
    RunService.Stepped:Connect(function(time) print(time * 60) end)
    """
    assert output(source, ticks=6) == ["0", "a", "1", "2", "b", "3", "c", "4", "5"]


# Sounds, value objects, bindable events


def test_sound_has_data_and_a_time_position() -> None:
    source = """
    sound = Instance.new('Sound')
    sound.SoundId, sound.Parent, sound.PlaybackSpeed = 'asset://bell.ogg', Workspace, 2
    for _, event in {'Played', 'Paused', 'Stopped'} do
        sound[event]:Connect(function(id) print(event, id) end)
    end
    sound:Play()
    """
    world = bench(source)
    world.tick(30)
    workspace = world.model.workspace
    assert spectate_sounds(world.model.game) == [
        {"id": workspace.children[-1].number, "name": "Sound", "parent_id": workspace.number,
         "sound_id": "asset://bell.ogg", "volume": 0.5,
         "playback_speed": 2, "looped": False, "time_position": 1.0, "roll_off_min_distance": 10,
         "roll_off_max_distance": 10000},
    ]  # fmt: skip
    world.run("sound.PlaybackSpeed = 1 sound:Pause() print(sound.TimePosition, sound.IsPlaying)")
    world.tick(60)
    assert spectate_sounds(world.model.game) == []
    world.run("sound:Resume()")
    world.tick(60)
    world.run("print(sound.TimePosition) sound:Stop() print(sound.TimePosition, sound.Playing)")
    assert world.printed() == [
        *("Played\tasset://bell.ogg", "Paused\tasset://bell.ogg", "1\tfalse"),
        *("Played\tasset://bell.ogg", "2", "Stopped\tasset://bell.ogg", "0\tfalse"),
    ]


def test_changed_of_a_value_object_gets_the_new_value() -> None:
    source = """
    local value = Instance.new('IntValue')
    value.Changed:Connect(function(new) print('changed', new) end)
    value:GetPropertyChangedSignal('Value'):Connect(function() print('property') end)
    value.Value = 2.5
    value.Value = 3
    value.Value = -0.4
    value.Name = 'other'
    print(value.Value)
    local bind = Instance.new('BindableEvent')
    bind.Event:Connect(print)
    bind:Fire(1, nil, 'x')
    """
    assert output(source) == [
        *("property", "changed\t3", "property", "changed\t0", "0", "1\tnil\tx"),
    ]


# Chat


def test_speech_is_heard_within_the_hearing_radius() -> None:
    players = [("a", Vector(0, 0, 0)), ("b", Vector(30, 0, 0)), ("c", Vector(0, 0, 30.1))]
    assert within_hearing(Vector(0, 0, 0), players, 30.0) == ["a", "b"]


# Snapshots


def test_services_with_state_continue_exactly_in_a_restored_world() -> None:
    source = """
    PhysicsService:RegisterCollisionGroup('a')
    PhysicsService:CollisionGroupSetCollidable('a', 'a', false)
    local loose = Instance.new('Folder')
    loose.Name = 'loose'
    loose.Destroying:Connect(function() print('destroyed') end)
    Debris:AddItem(loose, 0.1)
    Players:AddBot('bot')
    Players.Ann:Kick('bye')
    sound = Instance.new('Sound')
    sound.Parent = Workspace
    sound:Play()
    RunService.Heartbeat:Connect(function()
        RemoteEventService:FireAllClients('time', sound.TimePosition)
        print(PhysicsService:CollisionGroupsAreCollidable('a', 'a'), #Players:GetPlayers())
    end)
    AgentInputService.InputReceived:Connect(function(p, kind, data)
        print(p, kind, data.x, HttpService:GenerateGUID())
    end)
    RemoteEventService:FireAllClients('start')
    workspace = Workspace
    workspace.Terrain:FillBlock(CFrame.new(0, -2, 0), Vector3.new(64, 4, 64), Enum.Material.Grass)
    """
    first = bench("", players=["Ann", "Bob"])
    first.run(source)
    first.services.inputs.add(first.services.players.find(BOB), "Jump", {"x": 1})
    text = first.document()
    second = Bench().restore(text)
    assert second.document() == text
    for world in (first, second):
        world.tick(8)
    assert first.printed() == second.printed()
    assert first.document() == second.document() != text
    assert second.services.players.removed() == [ANN]
    assert second.services.players.find(BOB) is second.model.services["Players"].children[0]


def test_url_encode_percent_encodes_text() -> None:
    source = (
        "print(HttpService:UrlEncode('a b/\\u{2603}~'), pcall(HttpService.UrlEncode, HttpService))"
    )
    assert output(source) == [
        "a%20b%2F%E2%98%83~\tfalse\tinvalid argument #1 to 'UrlEncode' (string expected, got nil)"
    ]


def test_server_time_equals_simulation_time() -> None:
    world = bench("RunService.Stepped:Connect(function() print(Workspace:GetServerTimeNow()) end)")
    world.scheduler.tick = 90
    world.tick()
    assert world.printed() == ["1.5"]
