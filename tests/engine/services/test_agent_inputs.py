"""The allowed inputs of agents, and their order for scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.services.agent_inputs import check_input
from clawblox.server import InputError
from tests.engine.playing import say
from tests.engine.services.bench import ANN, BOB, Bench, bench
from tests.engine.torture import Plan


@pytest.mark.parametrize(
    ("action", "data"),
    [
        *((action, {"position": [1, 2.5, -3]}) for action in ("MoveTo", "Pickup", "Place")),
        ("Throw", {"direction": [0, 1, 0]}),
        ("Throw", {"direction": [0, 1, 0], "speed": 3}),
        ("Throw", {"direction": [0, 1, 0], "speed": None}),
        ("MoveTo", {"position": [1e9, -(10**9), 5e-324]}),
        ("Throw", {"direction": [1e9, -1e9, 0], "speed": -1e9}),
        ("OpenGate", [1e308]),
        ("Stop", None),
        ("Jump", {"anything": 1}),
        ("GuiClick", {"element_id": "x"}),
        ("OpenGate", [1]),
        ("", None),
    ],
)
def test_valid_inputs_are_accepted(action: str, data: Any) -> None:
    check_input(action, data, allow_reset=False)


BEYOND = (float("nan"), float("inf"), 1e308, 1e39, 10**300, -(10**9) - 1, 1000000000.0000001)
NOT_VECTORS: list[Any] = [None, [1, 2], [1, 2, 3, 4], [1, 2, "3"], [1, 2, True], "abc", {}]


@pytest.mark.parametrize(
    ("action", "data", "message"),
    [
        *(
            (action, data, f"{action}: data.position must be a finite [x, y, z]")
            for action in ("MoveTo", "Pickup", "Place")
            for data in (None, [], 1, {}, *({"position": each} for each in NOT_VECTORS))
        ),
        *(
            (action, {"position": [1, number, 3]}, f"{action}: data.position must be a finite")
            for action in ("MoveTo", "Pickup", "Place")
            for number in BEYOND
        ),
        *(
            ("Throw", {"direction": [number, 0, 0]}, "Throw: data.direction must be a finite")
            for number in BEYOND
        ),
        *(
            ("Throw", {"direction": [1, 0, 0], "speed": number}, "Throw: data.speed must be a")
            for number in BEYOND
        ),
        ("Throw", {"position": [1, 2, 3]}, "Throw: data.direction must be a finite [x, y, z]"),
        ("Throw", {"direction": [1, 2, 3], "speed": "1"}, "Throw: data.speed must be a finite"),
        ("Reset", None, "Reset is not allowed"),
    ],
)
def test_malformed_inputs_are_refused(action: str, data: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_input(action, data, allow_reset=False)
    assert str(caught.value).startswith(message)


def test_reset_input_requires_allow_reset() -> None:
    check_input("Reset", None, allow_reset=True)


def test_inputs_are_processed_by_player_in_order_of_joining() -> None:
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


def test_gui_click_fires_the_event_of_the_players_element_after_the_input() -> None:
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
    for element in (
        ids[0],
        ids[1],
        str(ids[0]),
        f"+{ids[0]}",
        f" {ids[0]}",
        "",
        "9" * 30,
        "\u0663",
    ):
        inputs.add(players.find(ANN), "GuiClick", {"element_id": element})
    inputs.add(players.find(ANN), "GuiClick", None)
    world.tick()
    click = ["Ann\tGuiClick", "click\tAnn"]
    assert world.printed() == [*click, "Ann\tGuiClick", *click, *["Ann\tGuiClick"] * 6]


def test_null_in_an_array_leaves_a_hole() -> None:
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


def test_get_inputs_empties_the_queue_when_called_in_a_heartbeat() -> None:
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


def test_input_stays_queued_until_a_script_takes_it() -> None:
    world = bench("", players=["Ann"])
    world.services.inputs.add(world.services.players.find(ANN), "A", 1)
    world.tick(7)
    world.run(POLL + "poll('later') poll('again')")
    assert world.printed() == ["later\tAnn\ttrue\tA=1", "again\tAnn\tfalse\t"]


def test_script_polling_twice_per_second_gets_every_input(tmp_path: Path) -> None:
    main = """
    local inputs, seen = game:GetService("AgentInputService"), 0
    while true do
        task.wait(0.5)
        for _, player in Players:GetPlayers() do seen += #inputs:GetInputs(player) end
        print(seen)
    end
    """
    plan = Plan().join(0, "Ann")
    for number in range(40):
        plan.act(1 + 2 * number, "Ann", "Step", number)
    assert say(tmp_path, main, 121, plan)[-1] == "40"


FULL = "AgentInputService: too many inputs of Ann wait for GetInputs; the oldest are dropped"


def test_a_queue_keeps_the_newest_256_inputs_of_a_player_and_warns_once() -> None:
    world = bench("", players=["Ann", "Bob"])
    ann, bob = map(world.services.players.find, (ANN, BOB))
    world.services.inputs.add(bob, "Bob's", 0)
    for number in range(300):
        world.services.inputs.add(ann, "Step", number)
        if number % 50 == 0:
            world.tick()
    world.run(
        "for _, player in Players:GetPlayers() do local taken = AgentInputService:GetInputs(player)"
        " print(player, #taken, taken[1].data, taken[#taken].data) end"
    )
    assert world.printed() == [
        f"{FULL} (a player has 256 at most)",
        "Ann\t256\t44\t299",
        "Bob\t1\t0\t0",
    ]


def test_queued_inputs_are_limited_by_total_size() -> None:
    world = bench("", players=["Ann"])
    for number in range(60):
        world.services.inputs.add(world.services.players.find(ANN), "Big", [number, "x" * 60_000])
    world.run(
        "local taken = AgentInputService:GetInputs(Players:GetPlayers()[1])"
        " print(#taken, taken[#taken].data[1])"
    )
    assert world.printed()[-1] == "17\t59"


def test_full_queue_is_not_reported_if_scripts_use_the_event() -> None:
    world = bench("AgentInputService.InputReceived:Connect(function() end)", players=["Ann"])
    for number in range(300):
        world.services.inputs.add(world.services.players.find(ANN), "Step", number)
        world.tick()
    assert world.printed() == []


@pytest.mark.thorough
@pytest.mark.parametrize("taken", [0, 1, 2, 3])
def test_snapshot_contains_unprocessed_and_queued_inputs(
    taken: int,
) -> None:
    world = bench(
        "AgentInputService.InputReceived:Connect(function(_, kind) print(kind) end)",
        players=["Ann"],
    )
    ann = world.services.players.find(ANN)
    take = POLL + "poll('took')"
    for step, name in enumerate("abc"):
        if step == taken:
            world.run(take)
        world.services.inputs.add(ann, name, step)
        if step == 0:
            world.tick()
    if taken == 3:
        world.run(take)
    restored = Bench().restore(world.document())
    for each in (world, restored):
        each.lines.clear()
        each.tick()
        each.run(take)
    printed = world.printed()
    assert restored.printed() == printed
    assert printed[:2] == ["b", "c"]
    queued = " ".join(f"{name}={at}" for at, name in enumerate("abc") if taken == 0 or at >= taken)
    assert printed[2] == f"took\tAnn\t{'true' if queued else 'false'}\t{queued}"


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
