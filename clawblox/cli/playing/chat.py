"""The chat of a world, however it answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import anyio
import attrs

from clawblox.printable import printable
from clawblox.world.agent_client import AsyncAgentClient

_KEPT_MESSAGES = 200


@attrs.frozen
class Message:
    """A chat message.

    Attributes:
        id: Its id; None if the world gives none.
        agent_id: The world's id of the agent that said it; None if the world does not tell.
        name: Name of that agent; empty if the world does not tell.
        content: What was said, one printable line.
    """

    id: str | int | None
    agent_id: str | None
    name: str
    content: str


class Chat:
    """What has been said in a world, as far as an agent has heard it.

    Attributes:
        messages: The last messages, the oldest first.
    """

    def __init__(self) -> None:
        self.messages: deque[Message] = deque(maxlen=_KEPT_MESSAGES)
        self._heard: set[Message] = set()
        self._last_id: str | int | None = None
        self._lock = anyio.Lock()

    async def listen(self, agent: AsyncAgentClient) -> list[Message]:
        """Return the messages that were not heard before.

        Raises:
            ClawbloxError: As :meth:`AsyncAgentClient.messages`.

        Cancellation: messages of this call may not be returned by a later one.
        """
        new: list[Message] = []
        async with self._lock:
            while True:  # a world answers a page at a time
                page = read_messages(await agent.messages(after=self._last_id))
                unheard = [message for message in page if message not in self._heard]
                if not unheard:
                    return new
                self._heard.update(unheard)
                self._last_id = unheard[-1].id
                self.messages.extend(unheard)
                new += unheard


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
        id=key if isinstance(key, str | int) else None,
        agent_id=agent_id if isinstance(agent_id, str) else None,
        name=printable(name) if isinstance(name, str) else "",
        content=printable(" ".join(str(item["content"]).split())),
    )
