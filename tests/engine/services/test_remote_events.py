"""Events that scripts send to clients, and clients to scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawblox.engine.errors import WorldHalted
from tests.engine.services.bench import ANN, BOB, Bench, bench


def test_fired_events_become_recent_events_with_the_number_of_the_tick() -> None:
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


def test_observation_contains_the_last_128_of_512_events() -> None:
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
def test_payload_is_converted_to_json(payload: str, expected: Any) -> None:
    world = bench(f"RemoteEventService:FireAllClients('e', {payload})")
    world.tick()
    assert [event["payload"] for event in world.services.remote_events.latest()] == [expected]


def test_a_payload_that_contains_itself_is_an_error_of_the_script() -> None:
    with pytest.raises(WorldHalted, match="the payload of an event is nested more than 128 deep"):
        bench("local t = {} t.t = t RemoteEventService:FireAllClients('e', t)")


def test_an_event_with_several_values_carries_all_of_them() -> None:
    world = bench(
        """
        local event = Instance.new('RemoteEvent', ReplicatedStorage)
        event.Name = 'Door'
        event:FireAllClients('front', true)
        event:FireAllClients('front', nil)
        event:FireAllClients()
        RemoteEventService:FireAllClients('Score', 3, {1})
        RemoteEventService:FireAllClientsUnreliable('Blink', 1, 2)
        """
    )
    world.tick()
    shown = [(each["name"], each["payload"]) for each in world.services.remote_events.latest()]
    assert shown == [
        ("Door", ["front", True]),
        ("Door", ["front", None]),
        ("Door", None),
        ("Score", [3, [1]]),
        ("Blink", [1, 2]),
    ]


PRIVATE = """
local event = Instance.new('RemoteEvent', ReplicatedStorage)
event.Name = 'Card'
local ann, bob = unpack(Players:GetPlayers())
event:FireClient(ann, 'ace', 1)
event:FireAllClients('shuffle')
event:FireClient(bob, 'king')
"""


def test_an_event_for_one_player_is_seen_by_that_agent_and_by_spectators() -> None:
    world = bench("", players=["Ann", "Bob"])
    world.run(PRIVATE)
    saved = Bench().restore(world.document())  # fired but not yet published
    for each in (world, saved):
        each.tick()
    events = Bench().restore(saved.document()).services.remote_events
    assert [each["payload"] for each in events.latest_for(ANN)] == [["ace", 1], "shuffle"]
    assert [each["payload"] for each in events.latest_for(BOB)] == ["shuffle", "king"]
    assert all("player" not in each for each in events.latest_for(ANN))
    assert [each.get("player") for each in events.latest()] == [ANN, None, BOB]
    assert events.latest() == world.services.remote_events.latest()


def test_events_for_others_do_not_displace_the_events_of_an_agent() -> None:
    world = bench("", players=["Ann", "Bob"])
    world.run(PRIVATE + "for i = 1, 300 do event:FireClient(bob, i) end")
    world.tick()
    assert [each["payload"] for each in world.services.remote_events.latest_for(ANN)] == [
        ["ace", 1],
        "shuffle",
    ]
    assert len(world.services.remote_events.latest_for(BOB)) == 128


def test_event_for_a_player_who_has_left_is_dropped() -> None:
    world = bench(
        "local event = Instance.new('RemoteEvent', ReplicatedStorage) kept = {}", players=["Ann"]
    )
    world.run("kept = Players.Ann")
    world.services.players.remove(ANN)
    for each in (world, Bench().restore(world.document())):
        each.run("ReplicatedStorage.RemoteEvent:FireClient(kept, 1)")
        each.tick()
        assert each.services.remote_events.latest() == []


def test_snapshot_refers_to_a_method_by_the_name_in_older_snapshots() -> None:
    world = bench("fire = Instance.new('RemoteEvent').FireClient")
    assert '"RemoteEvent:FireClient"' in world.document()


@pytest.mark.parametrize("player", ["nil", "'Ann'", "workspace"])
def test_fire_client_requires_a_player(player: str) -> None:
    with pytest.raises(WorldHalted, match=r"argument #1 to 'FireClient' \(Player expected, got"):
        bench(f"Instance.new('RemoteEvent'):FireClient({player}, 1)")


@pytest.mark.parametrize("reliable", [True, False])
def test_remote_event_fires_under_its_name_and_receives_client_events(reliable: bool) -> None:
    world = bench(
        f"""
        local event = Instance.new('{"" if reliable else "Unreliable"}RemoteEvent')
        """
        """
        event.Name = 'Door'
        event.Parent = ReplicatedStorage
        event:FireAllClients({open = true})
        Players.PlayerAdded:Connect(function(player) event:FireClient(player, 1) end)
        event.OnServerEvent:Connect(function(player, payload) print(player, payload.n) end)
        """,
        players=["Ann"],
    )
    player = world.services.players.find(ANN)
    for data in ({"name": "Door", "payload": {"n": 4}}, {"name": "Wall"}, None, {"name": 3}):
        world.services.inputs.add(player, "RemoteEvent", data)
    world.tick()
    assert world.printed() == ["Ann\t4"]
    shown = [
        (event["name"], event["payload"], event["reliable"])
        for event in world.services.remote_events.latest()
    ]
    assert shown == [("Door", {"open": True}, reliable), ("Door", 1, reliable)]
