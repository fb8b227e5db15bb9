"""Events that scripts send to clients, and clients to scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawblox.engine.errors import WorldHalted
from tests.engine.services.bench import ANN, bench


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
