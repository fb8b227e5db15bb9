"""The sessions of a world, and the source of their ids."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

import attrs

MAX_ENDED: Final = 1000
"""Number of ended sessions that a world remembers; the oldest are forgotten first."""

_TEXT = attrs.validators.instance_of(str)


@attrs.frozen
class AgentSession:
    """An agent's place in the world.

    Attributes:
        session: The secret that the agent sends as ``X-Session``.
        agent_id: The agent's public id.
        name: The agent's public name.
    """

    session: str = attrs.field(validator=_TEXT, repr=False)
    agent_id: str = attrs.field(validator=_TEXT)
    name: str = attrs.field(validator=_TEXT)


class IdSource:
    """Issues ids that agents cannot guess.

    An id is a keyed digest of a counter. Without the key it looks random. Key and counter are in
    the snapshot, so a restored world issues the same agent ids as the original would have.

    A session id also depends on the nonce, never part of a snapshot or an answer: worlds that were
    restored from the same snapshot issue different session ids. Otherwise an agent that joined such
    a world would know the secret of an agent that joins another.

    Args:
        nonce: Secret of this launch; None for a new secret.
    """

    def __init__(self, nonce: bytes | None = None) -> None:
        self._nonce = secrets.token_bytes(32) if nonce is None else nonce
        self._key = secrets.token_bytes(32)
        self._issued = 0

    def issue(self) -> tuple[str, str]:
        """Return a new session id and a new agent id, both shaped like a random UUID."""
        self._issued += 1
        return self._uuid("session", self._nonce), self._uuid("agent")

    def document(self) -> dict[str, object]:
        """Return its JSON object in a snapshot."""
        return {"key": self._key.hex(), "issued": self._issued}

    def restore(self, key: bytes, issued: int) -> None:
        """Continue the sequence of a snapshot.

        Args:
            key: The secret key of the world that was saved.
            issued: Number of id pairs issued with this key before.
        """
        self._key, self._issued = key, issued

    def _uuid(self, kind: str, nonce: bytes = b"") -> str:
        message = f"{kind}/{self._issued}".encode() + nonce
        digest = hmac.digest(self._key, message, "sha256")
        return str(UUID(bytes=digest[:16], version=4))


class Sessions:
    """The sessions of a world, in the order in which they joined, and those that it has ended.

    Args:
        sessions: The sessions.
        ended: Ids of sessions that the world has ended, oldest first.
    """

    def __init__(self, sessions: Iterable[AgentSession] = (), ended: Iterable[str] = ()) -> None:
        self._by_id = {session.session: session for session in sessions}
        self._ended = dict.fromkeys(ended)

    def __iter__(self) -> Iterator[AgentSession]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def ended(self) -> list[str]:
        """Ids of the sessions that the world has ended, oldest first."""
        return list(self._ended)

    def find(self, session_id: str) -> AgentSession | None:
        """Return the session with this id; None if it is not in the world."""
        return self._by_id.get(session_id)

    def find_agent(self, agent_id: str) -> AgentSession | None:
        """Return the session of an agent; None if it is not in the world."""
        return next((session for session in self if session.agent_id == agent_id), None)

    def has_ended(self, session_id: str) -> bool:
        """Return whether the world has ended this session."""
        return session_id in self._ended

    def add(self, session: AgentSession) -> None:
        """Add a session."""
        self._by_id[session.session] = session

    def remove(self, session: AgentSession) -> None:
        """Remove a session; its id is never valid again.

        Raises:
            KeyError: The session is not in the world.
        """
        del self._by_id[session.session]

    def end(self, session: AgentSession) -> None:
        """Remove a session and remember that the world has ended it.

        Raises:
            KeyError: The session is not in the world.
        """
        self.remove(session)
        self._ended[session.session] = None
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
