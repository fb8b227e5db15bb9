"""The chat of a world: a bounded history with simulation times."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

import attrs

from clawblox.server.sessions import Session

__all__ = ["MAX_CONTENT", "MAX_HISTORY", "Chat", "ChatMessage"]

MAX_CONTENT: Final = 500
"""Maximum length of a message, in characters."""
MAX_HISTORY: Final = 10_000
"""Number of messages that a world keeps; older ones are dropped, so memory stays bounded."""

_ID = re.compile(r"m([0-9]{1,15})")


@attrs.frozen
class ChatMessage:
    """One message.

    Attributes:
        id: ``m1``, ``m2``, … in the order of posting.
        agent_id: Id of the author.
        agent_name: Name of the author at that time.
        content: The text.
        created_at: Simulation time, in seconds.
    """

    id: str = attrs.field(validator=attrs.validators.matches_re(_ID))
    agent_id: str = attrs.field(validator=attrs.validators.instance_of(str))
    agent_name: str = attrs.field(validator=attrs.validators.instance_of(str))
    content: str = attrs.field(validator=attrs.validators.instance_of(str))
    created_at: float = attrs.field(validator=attrs.validators.instance_of((int, float)))

    @property
    def number(self) -> int:
        """Position in the order of posting, counted from 1."""
        return int(self.id[1:])


class Chat:
    """The chat history of a world.

    Args:
        messages: Earlier messages, oldest first.
        posted: Number of messages ever posted.
    """

    def __init__(self, messages: Iterable[ChatMessage] = (), posted: int = 0) -> None:
        self._messages = deque(messages, maxlen=MAX_HISTORY)
        self._posted = posted

    def post(self, author: Session, content: str, time: float) -> ChatMessage:
        """Add a message at simulation time ``time``."""
        self._posted += 1
        message = ChatMessage(f"m{self._posted}", author.agent_id, author.name, content, time)
        self._messages.append(message)
        return message

    def latest(self, limit: int) -> list[ChatMessage]:
        """Return the last ``limit`` messages, oldest first."""
        return list(islice(self._messages, max(0, len(self._messages) - limit), None))

    def after(self, cursor: str, limit: int) -> list[ChatMessage]:
        """Return the first ``limit`` messages after ``cursor``, oldest first.

        Args:
            cursor: A message id, or a simulation time in seconds. With an id no message is
                missed; with a time, messages posted later at that same time are.
            limit: Maximum number of messages.

        Raises:
            ValueError: ``cursor`` is neither a message id nor a number.
        """
        if match := _ID.fullmatch(cursor):
            number = int(match[1])
            later = (message for message in self._messages if message.number > number)
        else:
            time = float(cursor)
            later = (message for message in self._messages if message.created_at > time)
        return list(islice(later, limit))

    def document(self) -> dict[str, object]:
        """Return the JSON object that a snapshot holds of it."""
        return {
            "posted": self._posted,
            "messages": [attrs.asdict(message) for message in self._messages],
        }
