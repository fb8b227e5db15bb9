"""The services besides data stores: names, values, orders and texts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from clawblox.engine.errors import WorldHalted
from clawblox.engine.services.agent_inputs import check_input
from clawblox.engine.services.chat import within_hearing
from clawblox.engine.services.sounds import spectate_sounds
from clawblox.luau import Vector
from clawblox.server import InputError
from tests.engine.services.bench import AGENT, Bench, bench

ANN, BOB, CY = (AGENT.format(number) for number in (1, 2, 3))


def output(source: str, *, ticks: int = 0, **options: Any) -> list[str]:
    world = bench(source, **options)
    world.tick(ticks)
    return world.printed()


# game, RunService


def test_unknown_services_are_nil() -> None:
    source = (
        "print(game:GetService('RunService') == RunService, game.RunService == RunService)\n"
        "print(game:GetService('TweenService'), game:GetService(), game.Nothing)"
    )
    assert output(source) == ["true\ttrue", "nil\tnil\tnil"]


def test_run_service_is_a_server_that_runs() -> None:
    source = "print(RunService:IsServer(), RunService:IsClient(), RunService:IsStudio())"
    assert output(source) == ["true\tfalse\tfalse"]


def test_n1_stepped_comes_before_inputs_and_heartbeat_after() -> None:
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


def test_bind_to_close_functions_run_once_in_order_and_report_errors() -> None:
    world = bench(
        """
        for i = 1, 3 do
            game:BindToClose(function() print(i) if i == 2 then error('no', 0) end end)
        end
        """
    )
    assert [str(failure) for failure in world.services.game.close()] == ["BindToClose: no"]
    assert world.printed() == ["1", "2", "3"]
    assert world.services.game.close() == []


# Inputs


@pytest.mark.parametrize(
    ("action", "data"),
    [
        *((action, {"position": [1, 2.5, -3]}) for action in ("MoveTo", "Pickup", "Place")),
        ("Throw", {"direction": [0, 1, 0]}),
        ("Throw", {"direction": [0, 1, 0], "speed": 3}),
        ("Throw", {"direction": [0, 1, 0], "speed": None}),
        ("Stop", None),
        ("Jump", {"anything": 1}),
        ("GuiClick", {"element_id": "x"}),
        ("OpenGate", [1]),
        ("", None),
    ],
)
def test_section_1_valid_inputs(action: str, data: Any) -> None:
    check_input(action, data, allow_reset=False)


NOT_VECTORS: list[Any] = [None, [1, 2], [1, 2, 3, 4], [1, 2, "3"], [1, 2, True], "abc", {}]


@pytest.mark.parametrize(
    ("action", "data", "message"),
    [
        *(
            (action, data, f"{action}: data.position must be a finite [x, y, z]")
            for action in ("MoveTo", "Pickup", "Place")
            for data in (None, [], 1, {}, *({"position": each} for each in NOT_VECTORS))
        ),
        ("MoveTo", {"position": [1, 2, float("nan")]}, "MoveTo: data.position must be a finite"),
        ("Throw", {"position": [1, 2, 3]}, "Throw: data.direction must be a finite [x, y, z]"),
        ("Throw", {"direction": [1, 2, 3], "speed": "1"}, "Throw: data.speed must be a finite"),
        ("Reset", None, "Reset is not allowed"),
    ],
)
def test_section_1_wrong_inputs(action: str, data: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_input(action, data, allow_reset=False)
    assert str(caught.value).startswith(message)


def test_section_1_reset_needs_permission() -> None:
    check_input("Reset", None, allow_reset=True)


def test_n10_players_in_order_of_joining_and_each_ones_inputs_in_order() -> None:
    world = bench(
        "AgentInputService.InputReceived:Connect(function(p, kind, data)"
        " print(p.Name, kind, data) end)",
        players=["Ann", "Bob"],
    )
    inputs, players = world.services.inputs, world.services.players
    inputs.effects["GuiClick"] = lambda player, data: world.lines.append(f"clicks {data}")
    inputs.add(players.find(BOB), "First", 1)
    inputs.add(players.find(ANN), "GuiClick", 7)
    inputs.add(players.find(BOB), "Second", None)
    inputs.add(players.find(ANN), "Last", "x")
    world.tick()
    assert world.printed() == [
        "Ann\tGuiClick\t7",
        "clicks 7",
        "Ann\tLast\tx",
        "Bob\tFirst\t1",
        "Bob\tSecond\tnil",
    ]


def test_n10_gui_click_fires_the_event_of_an_own_element_after_the_input() -> None:
    world = bench(
        """
        AgentInputService.InputReceived:Connect(function(p, kind) print(p, kind) end)
        Players.PlayerAdded:Connect(function(player)
            local screen = Instance.new('ScreenGui', player.PlayerGui)
            local button = Instance.new('TextButton', screen)
            button.MouseButton1Click:Connect(function() print('click', player) end)
            print(button:GetDebugId())
        end)
        """,
        players=["Ann", "Bob"],
    )
    ids = [int(line) for line in world.printed()]
    inputs, players = world.services.inputs, world.services.players
    for data in ({"element_id": ids[0]}, {"element_id": ids[1]}, {"element_id": "x"}, None):
        inputs.add(players.find(ANN), "GuiClick", data)
    world.tick()
    assert world.printed() == ["Ann\tGuiClick", "click\tAnn", *["Ann\tGuiClick"] * 3]


def test_n10_null_in_an_array_leaves_a_hole() -> None:
    world = bench(
        """
        AgentInputService.InputReceived:Connect(function(_, _, data)
            print(data.list[1], data.list[2], data.list[3], data.gone, data.text, data.whole)
        end)
        """,
        players=["Ann"],
    )
    data = {"list": [1, None, 2.5], "gone": None, "text": "\N{SNOWMAN}", "whole": 3}
    world.services.inputs.add(world.services.players.find(ANN), "X", data)
    world.tick()
    assert world.printed() == ["1\tnil\t2.5\tnil\t\xe2\x98\x83\t3"]


POLL = """
local function poll(where)
    for _, player in Players:GetPlayers() do
        local pending = AgentInputService:HasPendingInputs(player)
        local names = {}
        for _, input in AgentInputService:GetInputs(player) do
            table.insert(names, `{input.type}={input.data}`)
        end
        print(where, player.Name, pending, table.concat(names, ' '))
    end
end
"""


def test_n1_get_inputs_in_a_heartbeat_empties_the_queue() -> None:
    world = bench(
        POLL + "RunService.Heartbeat:Connect(function() poll('h') end)", players=["Ann", "Bob"]
    )
    inputs, players = world.services.inputs, world.services.players
    inputs.add(players.find(ANN), "A", 1)
    inputs.add(players.find(ANN), "B", None)
    world.tick(2)
    assert world.printed() == [
        *("h\tAnn\ttrue\tA=1 B=nil", "h\tBob\tfalse\t"),
        *("h\tAnn\tfalse\t", "h\tBob\tfalse\t"),
    ]


def test_what_is_not_taken_is_dropped_at_the_end_of_the_tick() -> None:
    world = bench("", players=["Ann"])
    world.services.inputs.add(world.services.players.find(ANN), "A", 1)
    world.tick()
    world.run(POLL + "poll('later')")
    assert world.printed() == ["later\tAnn\tfalse\t"]


def test_inputs_reach_the_event_even_if_a_script_polls_first() -> None:
    world = bench(
        POLL + "RunService.Stepped:Connect(function() poll('s') end)\n"
        "AgentInputService.InputReceived:Connect(function(_, kind) print(kind) poll('i') end)",
        players=["Ann"],
    )
    player = world.services.players.find(ANN)
    world.services.inputs.add(player, "A", 1)
    world.services.inputs.add(player, "B", 2)
    world.tick()
    assert world.printed() == [
        *("s\tAnn\ttrue\tA=1 B=2", "A", "i\tAnn\tfalse\t", "B", "i\tAnn\tfalse\t"),
    ]


# Remote events


def test_n13_events_of_a_tick_become_recent_events_with_its_number() -> None:
    world = bench(
        """
        RunService.Heartbeat:Connect(function()
            RemoteEventService:FireAllClients('  hit ', {1, 2})
            RemoteEventService:FireAllClientsUnreliable('blink')
            RemoteEventService:FireAllClients('  ', 1)
            RemoteEventService:FireAllClients(nil, 1)
        end)
        """
    )
    world.tick(6)
    latest = world.services.remote_events.latest()
    assert latest[-2:] == [
        {"id": 11, "tick": 5, "server_time_ms": 83, "name": "hit", "reliable": True,
         "payload": [1, 2]},
        {"id": 12, "tick": 5, "server_time_ms": 83, "name": "blink", "reliable": False,
         "payload": None},
    ]  # fmt: skip
    assert [event["id"] for event in latest] == list(range(1, 13))


def test_n13_observations_carry_the_last_128_of_512() -> None:
    world = bench(
        """
        RunService.Heartbeat:Connect(function()
            for i = 1, 600 do RemoteEventService:FireAllClients('e', i) end
        end)
        """
    )
    world.tick()
    assert [event["id"] for event in world.services.remote_events.latest()] == [*range(473, 601)]
    assert len(json.loads(world.document())["services"]["remote_events"]["recent"]) == 512


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("{}", []),
        ("{1, 'a', true}", [1, "a", True]),
        ("{[2] = 1}", {"2": 1}),
        ("{1, x = 2.5}", {"1": 1, "x": 2.5}),
        ("Vector3.new(1, 2.5, 3)", [1, 2.5, 3]),
        ("Color3.new(0, 0.5, 1)", [0, 0.5, 1]),
        (
            "CFrame.new(1, 2, 3)",
            {"position": [1, 2, 3], "rotation": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]},
        ),
        ("game", "[userdata]"),
        ("Enum.Material.Neon", "[userdata]"),
        ("{0/0}", [None]),
        ("print", None),
        ("'\\u{2603}'", "\N{SNOWMAN}"),
    ],
)
def test_n13_payloads(payload: str, expected: Any) -> None:
    world = bench(f"RemoteEventService:FireAllClients('e', {payload})")
    world.tick()
    assert [event["payload"] for event in world.services.remote_events.latest()] == [expected]


def test_a_payload_that_contains_itself_is_an_error_of_the_script() -> None:
    with pytest.raises(WorldHalted, match="the payload of an event is nested more than 128 deep"):
        bench("local t = {} t.t = t RemoteEventService:FireAllClients('e', t)")


def test_a_remote_event_fires_under_its_name_and_hears_clients() -> None:
    world = bench(
        """
        local event = Instance.new('RemoteEvent')
        event.Name = 'Door'
        event.Parent = ReplicatedStorage
        event:FireAllClients({open = true})
        event.OnServerEvent:Connect(function(player, payload) print(player, payload.n) end)
        """,
        players=["Ann"],
    )
    player = world.services.players.find(ANN)
    for data in ({"name": "Door", "payload": {"n": 4}}, {"name": "Wall"}, None, {"name": 3}):
        world.services.inputs.add(player, "RemoteEvent", data)
    world.tick()
    assert world.printed() == ["Ann\t4"]
    (event,) = world.services.remote_events.latest()
    assert (event["name"], event["payload"]) == ("Door", {"open": True})


# HttpService


def test_n13_json_both_ways() -> None:
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


def test_an_array_with_a_far_hole_uses_up_the_steps_and_not_the_machine() -> None:
    with pytest.raises(WorldHalted, match="exhausted the allowed number of steps"):
        bench("HttpService:JSONEncode({[1e12] = 1})")


def test_guids_are_version_4_and_repeat_in_a_replay() -> None:
    source = "print(HttpService:GenerateGUID(), HttpService:GenerateGUID(false))"
    first, second = output(source), output(source)
    assert first == second
    form = "[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}"
    assert re.fullmatch(rf"\{{({form})\}}\t(?!\1){form}", first[0])


# PhysicsService


def test_there_are_32_groups_and_all_collide_at_first() -> None:
    source = """
    local p = PhysicsService
    for i = 1, 31 do p:RegisterCollisionGroup(`g{i}`) end
    p:RegisterCollisionGroup('g1')
    print(pcall(function() p:RegisterCollisionGroup('one more') end))
    print(#p:GetRegisteredCollisionGroups(), p:GetMaxCollisionGroups())
    print(p:CollisionGroupsAreCollidable('g1', 'g2'), p:CollisionGroupsAreCollidable('g1', 'g1'))
    p:CollisionGroupSetCollidable('g1', 'g2', false)
    print(p:CollisionGroupsAreCollidable('g2', 'g1'), p:CollisionGroupsAreCollidable('g1', 'g1'))
    print(pcall(function() p:CollisionGroupSetCollidable('g1', 'none', false) end))
    print(p:IsCollisionGroupRegistered('g31'), p:IsCollisionGroupRegistered('g32'))
    p:UnregisterCollisionGroup('g2')
    p:RegisterCollisionGroup('g2')
    print(p:CollisionGroupsAreCollidable('g2', 'g1'))
    """
    assert output(source) == [
        "false\tscript:5: Cannot register more than 32 collision groups",
        "32\t32",
        "true\ttrue",
        "false\ttrue",
        "false\tscript:10: Collision group 'none' is not registered",
        "true\tfalse",
        "true",
    ]


def test_the_older_names_of_collision_groups() -> None:
    source = """
    local p = PhysicsService
    print(p:CreateCollisionGroup('a'), p:CreateCollisionGroup('b'), p:GetCollisionGroupId('b'))
    local part = Instance.new('Part')
    p:SetPartCollisionGroup(part, 'b')
    print(part.CollisionGroup, p:CollisionGroupContainsPart('b', part))
    p:RemoveCollisionGroup('a')
    p:RenameCollisionGroup('b', 'c')
    local names = {}
    for _, group in p:GetCollisionGroups() do table.insert(names, `{group.id} {group.name}`) end
    print(table.concat(names, ', '))
    """
    world = Bench().begin()
    for effect in ("collide",):
        world.model.effects[effect] = lambda instance, name: None
    world.run(source)
    assert world.printed() == ["1\t2\t2", "b\ttrue", "0 Default, 2 c"]


def test_bits_of_groups_for_physics() -> None:
    world = bench(
        "PhysicsService:RegisterCollisionGroup('a')\n"
        "PhysicsService:CollisionGroupSetCollidable('a', 'Default', false)"
    )
    groups = world.services.collision_groups
    every = (1 << 32) - 1
    assert groups.bits("Default") == (1, every & ~2)
    assert groups.bits("a") == (2, every & ~1)
    assert groups.bits("unknown") == groups.bits("Default")


# Debris


def test_debris_is_destroyed_at_the_first_tick_at_or_after_its_time() -> None:
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


def test_sounds_are_data_with_a_time() -> None:
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


# Players


def test_n8_players_are_listed_and_found() -> None:
    world = bench(
        """
        Players.PlayerAdded:Connect(function(player)
            print(player.Name, player.DisplayName, player.Character, player.PlayerGui)
            print(#Players:GetPlayers(), Players:GetPlayerByUserId(player.UserId) == player)
            print(Players:GetPlayerFromCharacter(player.Character) == player)
        end)
        print(Players.LocalPlayer, Players.MaxPlayers, Players:GetPlayerFromCharacter(nil))
        """,
        players=["Ann", "B\N{SNOWMAN}"],
    )
    assert world.printed() == [
        "nil\t3\tnil",
        *("Ann\tAnn\tAnn\tPlayerGui", "1\ttrue", "true"),
        *("B\xe2\x98\x83\tB\xe2\x98\x83\tB\xe2\x98\x83\tPlayerGui", "2\ttrue", "true"),
    ]


def test_n8_the_user_id_is_the_lowest_53_bits_of_the_agents_uuid() -> None:
    players = Bench().begin().services.players
    assert players.add("ffffffff-ffff-4fff-bfff-ffffffffffff", "a")["UserId"] == 2**53 - 1
    assert players.add("ffffffff-ffff-4fff-8000-000000000000", "b")["UserId"] == 1
    assert players.add("00000000-0000-4000-8020-000000000005", "c")["UserId"] == 5


LEAVING = """
Players.PlayerRemoving:Connect(function(player)
    print('leaves', player.Name, #Players:GetPlayers(), player.Character.Parent, player.Parent)
end)
RunService.Stepped:Connect(function(time) if time > 0 then print(#Players:GetPlayers()) end end)
"""


def test_n10_kick_takes_effect_at_the_next_ticks_start() -> None:
    world = bench(
        LEAVING + "RunService.Heartbeat:Once(function() Players.Ann:Kick('too loud')"
        " Players.Ann:Kick() print('kicked') end)",
        players=["Ann", "Bob"],
    )
    world.tick(2)
    assert world.printed() == [
        "kicked",
        "[Kick] Removing player Ann (user_id=1) - Reason: too loud",
        "leaves\tAnn\t2\tWorkspace\tPlayers",
        "1",
    ]
    assert world.services.players.removed() == [ANN]
    assert world.services.players.removed() == []
    assert world.services.players.find(ANN) is None


def test_n10_idle_players_are_removed_at_a_check_once_the_time_is_over() -> None:
    world = bench(LEAVING, players=["Ann", "Bob"], afk_timeout_s=2.0)
    world.tick(90)
    world.services.players.touch(BOB)
    world.tick(90)
    assert world.services.players.removed() == []
    world.printed()
    world.tick()  # tick 180 is the first check after 120 ticks
    assert world.printed() == [
        "[AFK] Kicking player Ann (idle for 3.0s)",
        "leaves\tAnn\t2\tWorkspace\tPlayers",
        "1",
    ]
    world.tick(59)
    assert world.services.players.removed() == [ANN]
    world.tick()
    assert world.services.players.removed() == [BOB]


def test_bots_join_at_the_next_tick_up_to_max_players_and_are_never_idle() -> None:
    world = bench(
        "for i = 1, 3 do Players:AddBot(`bot {i}`) end\n"
        "Players.PlayerAdded:Connect(function(p) print(p.Name, p.UserId, p.Character) end)",
        afk_timeout_s=1.0,
    )
    world.run("Players:AddBot('bot 4')")
    full = "cannot join: the world has 3 players"
    assert world.printed() == [f"[Bot] bot 4 {full}"]
    world.services.players.add(ANN, "Ann")  # takes the place of the last
    assert world.printed() == ["Ann\t1\tAnn"]
    world.tick()
    assert world.printed() == ["bot 1\t-1\tbot 1", "bot 2\t-2\tbot 2", f"[Bot] bot 3 {full}"]
    world.tick(200)
    assert [agent_id for agent_id, _ in world.services.players.listed()] == ["bot-1", "bot-2"]
    assert world.services.players.removed() == [ANN]
    world.run("Players['bot 1']:Kick()")
    world.tick()
    assert world.services.players.removed() == []  # a bot has no session
    assert [agent_id for agent_id, _ in world.services.players.listed()] == ["bot-2"]


@pytest.mark.parametrize(
    ("event", "where"),
    [
        ("PlayerAdded", "Failed to fire PlayerAdded"),
        ("PlayerRemoving", "Failed to fire PlayerRemoving"),
    ],
)
def test_n3_texts_of_failing_handlers(event: str, where: str) -> None:
    world = bench(f"Players.{event}:Connect(function() error('no', 0) end)")

    def join_and_leave() -> None:
        world.services.players.add(ANN, "Ann")
        world.services.players.remove(ANN)

    with pytest.raises(WorldHalted) as caught:
        join_and_leave()
    assert str(caught.value) == f"{where}: no"


# Chat


def test_speech_is_heard_within_the_hearing_radius() -> None:
    players = [("a", Vector(0, 0, 0)), ("b", Vector(30, 0, 0)), ("c", Vector(0, 0, 30.1))]
    assert within_hearing(Vector(0, 0, 0), players, 30.0) == ["a", "b"]


# Snapshots


def test_services_with_state_go_on_in_another_world_exactly() -> None:
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
