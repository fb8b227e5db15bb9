"""Requests to a database, its answers, and the SQL between them; values are JSON texts here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import attrs


class StoreError(Exception):
    """The database failed; the message states why.

    A write that failed with it may have been done nevertheless.
    """


class UnfitDatabase(StoreError):  # noqa: N818 - names the condition
    """The database can be reached, but cannot keep rows as it gets them."""


@attrs.frozen
class Read:
    """Read a value.

    Attributes:
        store: Name of the data store.
        key: Key of the value.
    """

    store: str
    key: str


@attrs.frozen
class WriteRequest:
    """Write a value.

    Attributes:
        store: Name of the data store.
        key: Key of the value.
        value: The value as JSON text.
    """

    store: str
    key: str
    value: str


@attrs.frozen
class ReadSorted:
    """Read the values that have a ``score``, by score.

    Attributes:
        store: Name of the data store.
        ascending: Whether the lowest score comes first.
        limit: Maximum number of values.
    """

    store: str
    ascending: bool
    limit: int


Request: TypeAlias = Read | WriteRequest | ReadSorted

Answer: TypeAlias = str | list[tuple[str, str]] | None
"""A JSON text or None for `Read`, None for `WriteRequest`, keys with texts for `ReadSorted`."""


class Store(Protocol):
    """A database with the table of all data stores, used by a single thread.

    Attributes:
        is_shared: Whether other worlds may use it.
    """

    is_shared: bool

    def execute(self, game_id: str, requests: Sequence[Request]) -> list[Answer | StoreError]:
        """Answer requests in order, in one transaction that is durable on return.

        A request that the database refuses is answered with its error; the others are carried out.

        Args:
            game_id: The world to which the rows belong.
            requests: What to read and write.

        Raises:
            StoreError: The database cannot be reached, or the transaction failed. The next call
                connects again.
        """

    def copier(self) -> Callable[[Path], None] | None:
        """Return a function that copies the rows as they are now to a new file.

        Both may be called on a thread other than the one that executes; the function only once.

        Returns:
            None if the rows are not in a file, as in a shared database.

        Raises:
            StoreError: The database cannot be read. The function raises the same error.
        """

    def close(self) -> None:
        """Close the connection; a later call of `execute` opens it again."""


_MAX_LIMIT: Final = 2**63 - 1


class _Cursor(Protocol):
    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class _Connection(Protocol):
    def execute(self, statement: str, values: Sequence[Any], /) -> _Cursor: ...


@attrs.frozen
class Statements:
    """The SQL statements; the first parameters are the world's id and the store's name.

    Attributes:
        read: Selects the value of a key.
        write: Inserts or replaces the value of a key.
        ascending: Selects keys and values with a numeric score, the lowest first, up to a limit.
        descending: The same, the highest first.
        unscored: Selects keys and values without a numeric score, up to a limit.
    """

    read: str
    write: str
    ascending: str
    descending: str
    unscored: str

    def carry_out(self, connection: _Connection, game_id: str, request: Request) -> Answer:
        """Answer a request; raises the errors of the database."""
        store = (game_id, request.store)
        if isinstance(request, Read):
            row = connection.execute(self.read, (*store, request.key)).fetchone()
            return None if row is None else str(row[0])
        if isinstance(request, WriteRequest):
            connection.execute(self.write, (*store, request.key, request.value))
            return None
        limit = min(request.limit, _MAX_LIMIT)
        scored = self.ascending if request.ascending else self.descending
        rows = connection.execute(scored, (*store, limit)).fetchall()
        if len(rows) < limit:
            rows += connection.execute(self.unscored, (*store, limit - len(rows))).fetchall()
        return [(str(key), str(value)) for key, value in rows]
