"""The SQL statements that answer requests; each database has its own texts of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import attrs

from clawblox.engine.datastore.store import Answer, Read, Request, Write

_MAX_LIMIT: Final = 2**63 - 1


class _Cursor(Protocol):
    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class _Connection(Protocol):
    def execute(self, statement: str, values: Sequence[Any], /) -> _Cursor: ...


@attrs.frozen
class Statements:
    """What a database is told; each begins with the world's id and the store's name.

    Attributes:
        read: Selects the value of a key.
        write: Inserts or replaces the value of a key.
        ascending: Selects keys and values with a numeric score, the lowest first, up to a limit.
        descending: The same, the highest first.
        unscored: Selects keys and values whose score is no number, up to a limit.
    """

    read: str
    write: str
    ascending: str
    descending: str
    unscored: str

    def carry_out(self, connection: _Connection, game_id: str, request: Request) -> Answer:
        """Answer one request; the errors are those of the database."""
        store = (game_id, request.store)
        if isinstance(request, Read):
            row = connection.execute(self.read, (*store, request.key)).fetchone()
            return None if row is None else str(row[0])
        if isinstance(request, Write):
            connection.execute(self.write, (*store, request.key, request.value))
            return None
        limit = min(request.limit, _MAX_LIMIT)
        scored = self.ascending if request.ascending else self.descending
        rows = connection.execute(scored, (*store, limit)).fetchall()
        if len(rows) < limit:
            rows += connection.execute(self.unscored, (*store, limit - len(rows))).fetchall()
        return [(str(key), str(value)) for key, value in rows]
