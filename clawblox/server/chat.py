"""The chat of a world: a bounded history with simulation times."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import attrs

from clawblox.server.sessions import AgentSession

MAX_CONTENT: Final = 500
"""Maximum length of a message, in characters."""
MAX_HISTORY: Final = 10_000
"""Number of messages that a world keeps; older messages are dropped, so memory stays bounded."""

_ID = re.compile(r"m([0-9]{1,15})")
_TEXT = attrs.validators.instance_of(str)


@attrs.frozen
class ChatMessage:
    """A chat message.

    Attributes:
        id: ``m1``, ``m2``, … in the order of posting.
        agent_id: Id of the author.
        agent_name: Name of the author at that time.
        content: The text.
        created_at: Simulation time, in seconds.
        media_url: Address of a recording of the message; None if it has none.
        audience: Ids of the agents that heard it; None if everyone did.
    """

    id: str = attrs.field(validator=attrs.validators.matches_re(_ID))
    agent_id: str = attrs.field(validator=_TEXT)
    agent_name: str = attrs.field(validator=_TEXT)
    content: str = attrs.field(validator=_TEXT)
    created_at: float = attrs.field(validator=attrs.validators.instance_of((int, float)))
    media_url: str | None = attrs.field(default=None, validator=attrs.validators.optional(_TEXT))
    audience: Sequence[str] | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(
            attrs.validators.deep_iterable(_TEXT, attrs.validators.instance_of((list, tuple)))
        ),
    )

    @property
    def number(self) -> int:
        """Position in the order of posting, counted from 1."""
        return int(self.id[1:])

    def is_heard_by(self, agent_id: str | None) -> bool:
        """Return whether an agent heard it; None means a listener without a session."""
        return self.audience is None or agent_id == self.agent_id or agent_id in self.audience

    def document(self) -> dict[str, Any]:
        """Return its JSON object in a snapshot and a recording."""
        return attrs.asdict(self, filter=lambda _, value: value is not None)

    def answer(self) -> dict[str, Any]:
        """Return the JSON object for agents, without the audience."""
        document = self.document()
        document.pop("audience", None)
        return document


class Chat:
    """The chat history of a world.

    Args:
        messages: Earlier messages, oldest first.
        posted: Number of messages ever posted.
    """

    def __init__(self, messages: Iterable[ChatMessage] = (), posted: int = 0) -> None:
        self._messages = deque(messages, maxlen=MAX_HISTORY)
        self._posted = posted

    def post(
        self,
        author: AgentSession,
        content: str,
        time: float,
        media_url: str | None = None,
        audience: Sequence[str] | None = None,
    ) -> ChatMessage:
        """Add a message at simulation time ``time``."""
        self._posted += 1
        message = ChatMessage(
            f"m{self._posted}", author.agent_id, author.name, content, time, media_url, audience
        )
        self._messages.append(message)
        return message

    def latest(self, limit: int, listener: str | None = None) -> list[ChatMessage]:
        """Return the last ``limit`` messages that a listener heard, oldest first."""
        heard = (item for item in reversed(self._messages) if item.is_heard_by(listener))
        return list(islice(heard, limit))[::-1]

    def after(self, cursor: str, limit: int, listener: str | None = None) -> list[ChatMessage]:
        """Return the first ``limit`` messages after ``cursor`` that a listener heard, oldest first.

        Args:
            cursor: A message id, or a simulation time in seconds. With an id no message is
                missed; with a time, messages posted later at that same time are.
            limit: Maximum number of messages.
            listener: Id of an agent; None means a listener without a session.

        Raises:
            ValueError: ``cursor`` is neither a message id nor a number.
        """
        if match := _ID.fullmatch(cursor):
            number = int(match[1])
            later = (message for message in self._messages if message.number > number)
        else:
            time = float(cursor)
            later = (message for message in self._messages if message.created_at > time)
        return list(islice((item for item in later if item.is_heard_by(listener)), limit))

    def document(self) -> dict[str, object]:
        """Return its JSON object in a snapshot."""
        return {
            "posted": self._posted,
            "messages": [message.document() for message in self._messages],
        }
