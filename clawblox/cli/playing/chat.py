"""The chat messages of a world, however it answers: a pure function of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from clawblox.cli.tables.formatting import printable

__all__ = ["Message", "read_messages"]


@attrs.frozen
class Message:
    """A chat message.

    Attributes:
        key: Its id, or what else tells it from the others.
        agent_id: The world's id of the agent that said it; None if the world does not tell.
        name: Name of that agent; empty if the world does not tell.
        content: What was said, one printable line.
    """

    key: str | int
    agent_id: str | None
    name: str
    content: str

    def __str__(self) -> str:
        return f"{self.name or 'somebody'}: {self.content}"


def read_messages(answer: Any) -> list[Message]:  # noqa: ANN401 - the world decides
    """Return the messages in an answer to ``GET /chat/messages``, in its order.

    The answer is a list, or an object with one as ``messages``; what is no message is left out.
    """
    found = answer.get("messages") if isinstance(answer, Mapping) else answer
    items = found if isinstance(found, list) else []
    return [_read(item) for item in items if isinstance(item, Mapping) and "content" in item]


def _read(item: Mapping[str, Any]) -> Message:
    key, agent_id = item.get("id"), item.get("agent_id")
    name = item.get("agent_name", item.get("name"))
    return Message(
        key=key if isinstance(key, str | int) else json.dumps(item, sort_keys=True),
        agent_id=agent_id if isinstance(agent_id, str) else None,
        name=printable(name) if isinstance(name, str) else "",
        content=printable(" ".join(str(item["content"]).split())),
    )
