"""MessagingService: messages that arrive in the next tick, even after a restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.engine.errors import WorldHalted
from clawblox.engine.services.messaging import MOST_BYTES, MOST_LETTERS
from tests.engine.playing import printed
from tests.engine.services.bench import Bench, bench
from tests.engine.torture import Plan, torture

TALK = """
local messaging = game:GetService("MessagingService")
local first = messaging:SubscribeAsync("news.today", function(message)
    print(math.round(time() * 60), "first", message.Data.list[2], message.Sent * 60)
    message.Data.list[2] = "changed"
end)
messaging:SubscribeAsync("other", error)
task.wait(0.05)
local data = { list = { 1, "two é" } }
print(messaging:PublishAsync("news.today", data))
data.list[2] = "later"
task.wait(0.05)
first:Disconnect()
messaging:PublishAsync("news.today", 1)
"""


def test_message_arrives_in_the_next_tick_even_after_a_restore(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(TALK)
    (tmp_path / "world.toml").write_text('name = "talk"')
    run = torture(tmp_path, Plan(), ticks=10, saves=(1, 4, 5, 8))
    assert printed(run) == ["", "4\tfirst\ttwo é\t3"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("PublishAsync, m, '', 1", f"PublishAsync: the topic must have 1 to {MOST_LETTERS} bytes"),
        (f"SubscribeAsync, m, ('x'):rep({MOST_LETTERS + 1}), print", "SubscribeAsync: the topic"),
        ("SubscribeAsync, m, 't'", "Attempt to connect failed"),
        ("PublishAsync, m, 't', print", "Failed to serialize value to JSON"),
        (
            f"PublishAsync, m, 't', ('x'):rep({MOST_BYTES - 1})",
            f"the message must have at most {MOST_BYTES} bytes as JSON, not {MOST_BYTES + 1}",
        ),
    ],
)
def test_invalid_message_or_topic_is_refused(call: str, error: str) -> None:
    world = bench(f"local m = game:GetService('MessagingService') print(pcall(m.{call}))")
    (line,) = world.printed()
    assert error in line


@pytest.mark.parametrize("damage", ['"nothing"', '"\\u00ff"', "true"])
def test_damaged_message_in_a_snapshot_halts_the_world(damage: str) -> None:
    world = bench("game:GetService('MessagingService'):PublishAsync('t', 'marked')")
    saved = world.document()
    assert '"\\"marked\\""' in saved
    with pytest.raises(WorldHalted, match=r"damaged|'deliver'"):
        Bench().restore(saved.replace('"\\"marked\\""', damage)).tick(2)


def test_waiting_messages_are_limited_by_the_steps_of_a_tick() -> None:
    with pytest.raises(Exception, match="steps"):
        bench("local m = game.MessagingService while true do m:PublishAsync('t', 1) end")
