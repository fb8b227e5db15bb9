"""Extreme values of agents' inputs, as the servers read them from JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from clawblox.server import HostedWorld
from clawblox.server.payload import read_json

__all__ = ["NUMBERS", "VALUES", "flood", "shapes"]

NUMBERS: Final = tuple(
    json.loads(text)
    for text in (
        *("0", "-0.0", "1", "-1", "0.5", "5e-324", "1e-45", "1e-38", "2147483648"),
        *(
            "1e9",
            "-1e9",
            "1000000000",
            "1000000000.0000001",
            "1000000001",
            "-1e10",
            "9007199254740993",
        ),
        *("3.4e38", "1e39", "-1e39", "1e154", "1e308", "-1.7976931348623157e308", "9" * 308),
    )
)
"""Numbers that are valid JSON; checks of numbers refuse those beyond 1e9."""

VALUES: Final = (
    *NUMBERS,
    *(None, True, False, "", "5", "nan", "0x10", "é\0\u2028", "x" * 5000),
    *([], [1, 2], [1, None, 3], ["1", "2", "3"], [[1], [2], [3]], [{}, {}, {}], [True] * 3),
    *({}, {"x": 1, "y": 2, "z": 3}, {"1": 1, "2": 2, "3": 3}, {"position": [1, 2, 3]}),
    json.loads("[" * 50 + "]" * 50),
)


def shapes(value: Any) -> Iterator[Any]:
    """Yield input data that contains a value at every place that a shipped world reads."""
    vector = [value, value, value]
    yield from (None, value, {"position": value}, {"position": vector}, {"position": [0, value, 0]})
    yield {"position": [value, 0, 0], "block": value, "item": value}
    yield {"position": [0, 0, 16], "block": value}
    yield from ({"direction": vector}, {"direction": [1, 0, 0], "speed": value})
    yield from ({"direction": [value, value]}, {"direction": [value, 0]}, {"force": value})
    yield from ({"element_id": value}, {"item": value}, {"block": value})


def flood(world: HostedWorld, kinds: Sequence[str], ticks: int = 4) -> set[str]:
    """Send a world every kind of input with every value in every shape.

    Args:
        world: The world; two agents join it.
        kinds: The types of the inputs.
        ticks: Number of ticks that the world runs after the inputs of one type and value.

    Returns:
        The types of the inputs that the world has accepted.
    """
    sessions = [world.join(name) for name in ("Ada", '<b>"%s" ' + "🦊" * 90)]
    accepted = set()
    for value in VALUES:
        for kind in (*kinds, "Nonsense", "", "toString", "x" * 5000):
            sent = []
            for number, data in enumerate(shapes(value)):
                body = read_json(json.dumps({"type": kind, "data": data}).encode())
                session = sessions[number % 2]
                sent.append(world.queue(session, body["type"], body["data"]))
            for _ in range(ticks):
                world.apply_inputs()
                world.step()
                assert world.failure is None, (kind, value, world.failure)
            for session in sessions:
                world.observe(session)
                world.say(session, "é\0\u2028%s" * 70)
            accepted |= {item.action for item in sent if item.refusal is None}
    return accepted
