"""``Player.Chatted``: chat messages for scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.engine.services.speech import MAX_SAID
from tests.engine.services.bench import ANN, BOB, Bench, bench
from tests.engine.torture import Plan, torture

LISTEN = """
Players.PlayerAdded:Connect(function(player)
    player.Chatted:Connect(function(...) print(player.Name, ...) end)
end)
"""


def say(world: Bench, agent_id: str, content: str) -> None:
    player = world.services.players.find(agent_id)
    assert player is not None
    world.services.speech.add(player, content)


def test_chatted_fires_for_each_message_in_the_order_of_speaking() -> None:
    world = bench(LISTEN, players=("Ann", "Bob"))
    for agent_id, content in ((BOB, "one"), (ANN, "zwölf"), (BOB, "three")):
        say(world, agent_id, content)
    assert world.printed() == []
    world.tick()
    assert world.printed() == ["Bob\tone", "Ann\tzwölf".encode().decode("latin-1"), "Bob\tthree"]
    world.tick()
    assert world.printed() == []


def test_message_of_a_player_who_has_left_is_dropped() -> None:
    world = bench(LISTEN, players=("Ann",))
    say(world, ANN, "bye")
    world.services.players.remove(ANN)
    world.tick()
    assert world.printed() == []


def test_number_of_waiting_messages_is_limited() -> None:
    world = bench(LISTEN, players=("Ann",))
    for number in range(MAX_SAID + 5):
        say(world, ANN, str(number))
    (warning,) = world.printed()
    assert "more than 1000 messages wait" in warning
    world.tick()
    assert world.printed()[0] == "Ann\t5"


def test_snapshot_contains_waiting_messages() -> None:
    world = bench(LISTEN, players=("Ann",))
    say(world, ANN, "hello")
    document = world.document()
    restored = Bench().restore(document)
    assert restored.document() == document
    for each in (world, restored):
        each.tick()
    assert world.printed() == restored.printed() == ["Ann\thello"]


@pytest.mark.thorough
def test_world_with_speaking_agents_continues_exactly(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text('name = "speech"\n')
    (tmp_path / "main.lua").write_text(LISTEN)
    plan = Plan().join(0, "Ada").join(2, "Bo").say(3, "Ada", "hi").say(3, "Bo", "ho").leave(4, "Bo")
    run = torture(tmp_path, plan, ticks=8, saves=range(1, 8, 2))
    assert [line for line in run.lines if "Lua" in line] == [
        "out [Lua] Ada\thi",
        "out [Lua] Bo\tho",
    ]
