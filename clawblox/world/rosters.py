"""The agents that joined an instance, their sessions, and the sessions lost in a restore.

A snapshot is opaque, but it cannot contain a session that was issued after it was taken. So after a
restore, only these sessions are checked; a world could notice checks of the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from clawblox.errors import ActionRefusedError, WorldSessionError
from clawblox.protocol import JoinAnswer
from clawblox.results import Access
from clawblox.rundir.manifest_entries import ManifestEntry
from clawblox.world.access import Actor, WorldMember, join_answer

LOST_HINT = "the instance was restarted from a state without this session; join again"


@attrs.define(eq=False)
class Seat:
    """A session that an agent has in an instance.

    Attributes:
        member: The agent.
        session: The session.
        agent_id: The world's id of the agent; None if the world gave none.
        answer: The world's answer when the agent joined.
        joined_at: Time of the loop's clock at which the world had issued the session; minus
            infinity if the session is older than this orchestrator.
        headers: Headers of the requests of the agent's proxy, which change with the session; None
            if the caller has the session.
        loss: The answer with which the world rejected the session; None if it has not.
    """

    member: WorldMember
    session: str
    agent_id: str | None
    answer: JoinAnswer = attrs.field(repr=False)
    joined_at: float
    headers: dict[str, str] | None = attrs.field(default=None, repr=False)
    loss: str | None = None

    @property
    def actor(self) -> Actor:
        """The agent as recordings identify it."""
        return Actor(self.session, self.agent_id, self.member.name)

    @property
    def entry(self) -> ManifestEntry | None:
        """Key of the agent's manifest entry; None for an agent with a directory or no id."""
        is_plain = self.member.dir is None and self.agent_id is not None
        return {"id": self.agent_id, "name": self.member.name} if is_plain else None


class Roster:
    """The sessions of one run of an instance, restarts included."""

    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}
        self._lost: dict[str, Seat] = {}
        self._over: dict[str, list[Seat]] = {}
        self._saved_at: dict[Path, float] = {}

    @property
    def sessions(self) -> Collection[str]:
        """The current sessions of agents."""
        return self._seats.keys()

    @property
    def agent_ids(self) -> Collection[str | None]:
        """The world's ids of the agents with sessions."""
        return [seat.agent_id for seat in self._seats.values()]

    def players_before(self, moment: float) -> list[tuple[str, JoinAnswer]]:
        """Return name and join answer of each plain name that joined before a moment, in order."""
        seats = sorted(self._seats.values(), key=lambda seat: seat.joined_at)
        return [
            (seat.member.name, seat.answer)
            for seat in seats
            if seat.member.dir is None and seat.joined_at <= moment
        ]

    def require_free(self, session: str, name: str) -> None:
        """Check that a session does not belong to an agent of another name.

        Raises:
            WorldSessionError: Another agent has the session, or had it before it was lost.
        """
        seat = self._seats.get(session) or self._lost.get(session)
        if seat is not None and seat.member.name != name:
            raise WorldSessionError(
                f"the session of {name} belongs to {seat.member.name} in this instance",
                hint="each agent needs a session of its own; join without a session",
            )

    def require_kept(self, session: str, name: str) -> None:
        """Check that a session was not lost.

        Raises:
            ActionRefusedError: The session was lost, or another agent has it now.
        """
        if (seat := self._lost.get(session)) is not None:
            reason = f": {seat.loss}" if seat.loss else ""
            message = f"the session of {seat.member.name} was lost in a restart{reason}"
            raise ActionRefusedError(message, status=401, text=seat.loss or "", hint=LOST_HINT)
        if (seat := self._seats.get(session)) is not None and seat.member.name != name:
            raise ActionRefusedError(
                f"the session of {name} belongs to {seat.member.name} now",
                status=401,
                hint=LOST_HINT,
            )

    def has_lost(self, session: str, name: str) -> bool:
        """Return whether a session of an agent was lost."""
        seat = self._lost.get(session)
        return seat is not None and seat.member.name == name

    def add(self, seat: Seat) -> list[ManifestEntry]:
        """Note that an agent has joined.

        Returns:
            The obsolete manifest entries of the agent, which had left before or lost its session.
        """
        name = seat.member.name
        known = self._seats.get(seat.session)
        if known is not None:
            seat.joined_at = known.joined_at
        lost = [seat for seat in self._lost.values() if seat.member.name == name]
        for seat in lost:
            del self._lost[seat.session]
        self._seats[seat.session] = seat
        over = [*self._over.pop(name, ()), *lost]
        return [seat.entry for seat in over if seat.entry is not None]

    def find(self, session: str) -> Seat | None:
        """Return the seat that has a session, or None."""
        return self._seats.get(session)

    def release(self, directory: Path) -> None:
        """Forget the sessions of the agent's proxy, given the agent's directory."""
        self._seats = {
            session: seat
            for session, seat in self._seats.items()
            if seat.headers is None or seat.member.dir != directory
        }

    def leave(self, session: str) -> None:
        """Note that an agent has left."""
        if (seat := self._seats.pop(session, None)) is not None and seat.entry is not None:
            self._over.setdefault(seat.member.name, []).append(seat)

    def lose(self, seat: Seat, answer: str) -> None:
        """Note a session as lost, with the world's answer."""
        self._seats.pop(seat.session, None)
        seat.loss = answer
        self._lost[seat.session] = seat

    def note_save(self, path: Path, begun_at: float, kept: Collection[Path]) -> None:
        """Note when a save started, and forget saves that can no longer be restored.

        Args:
            path: File of the save.
            begun_at: Time of the loop's clock before the world was asked for the save.
            kept: The files that a restart may restore.
        """
        self._saved_at = {file: self._saved_at[file] for file in kept if file in self._saved_at}
        self._saved_at[path] = begun_at

    def saved_at(self, path: Path | None) -> float:
        """Return when a save started; minus infinity if it is older than this orchestrator."""
        return -math.inf if path is None else self._saved_at.get(path, -math.inf)

    def find_uncertain(self, restored: Path | None) -> list[Seat]:
        """Return the sessions that a world restored from a save may not know.

        Args:
            restored: The save; None if the world started fresh.
        """
        seats = list(self._seats.values())
        if restored is None:
            return seats
        saved_at = self.saved_at(restored)
        return [seat for seat in seats if seat.joined_at > saved_at]


def make_seat(member: WorldMember, access: Access, joined_at: float) -> Seat:
    """Return the seat of an agent that has joined."""
    return Seat(
        member,
        access.session,
        access.agent_id if isinstance(access.agent_id, str) else None,
        join_answer(access),
        joined_at,
        dict(access.headers) if member.driver is not None else None,
    )


def live_headers(roster: Roster, access: Access) -> Mapping[str, str]:
    """Return the headers for the proxy of an agent, which change with the session."""
    seat = roster.find(access.session)
    return access.headers if seat is None or seat.headers is None else seat.headers
