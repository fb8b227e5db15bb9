"""Requests to a database, its answers, and the SQL between them; values are JSON texts here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import attrs

from clawblox.engine import shapes


class StoreError(Exception):
    """The database failed; the message states why.

    The failed write may still have taken effect.
    """


class UnfitDatabase(StoreError):  # noqa: N818 - names the condition
    """The database can be reached, but cannot store every text unchanged."""


REMOVED: Final = "null"
"""The JSON text of a removed value."""


@attrs.frozen
class Info:
    """The times, version and tags stored with a value.

    Attributes:
        created_ms: Time of the key's first write, in milliseconds of simulated time.
        updated_ms: Time of the value's write, in milliseconds of simulated time.
        version: The number of writes to the key.
        tags: JSON text with the script's metadata and user ids; empty if it gave none.
    """

    created_ms: int = 0
    updated_ms: int = 0
    version: int = 0
    tags: str = ""


INFO_SHAPE: Final = (shapes.whole, shapes.whole, shapes.whole, shapes.text)


@attrs.frozen
class Row:
    """A value in the database.

    Attributes:
        value: The value as JSON text.
        info: Metadata of the value; all zero if an older engine wrote it.
    """

    value: str
    info: Info = Info()


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
        time_ms: Time of the write, in milliseconds of simulated time.
        tags: JSON text with the script's metadata and user ids; empty if it gave none.
    """

    store: str
    key: str
    value: str
    time_ms: int = 0
    tags: str = ""

    def next_info(self, old: Row | None) -> Info:
        """Return the metadata of the value after this write.

        Args:
            old: The row that the write replaces; None for a new key.
        """
        info = Info() if old is None else old.info
        is_first = info.version == 0 or (old is not None and old.value == REMOVED)
        created_ms = self.time_ms if is_first else info.created_ms
        return Info(created_ms, self.time_ms, info.version + 1, self.tags)


@attrs.frozen
class ReadSorted:
    """Read a page of the values with a score, sorted by score.

    The score of a number is the number itself; that of any other value is its field ``score``.

    Attributes:
        store: Name of the data store.
        ascending: Whether the lowest score comes first.
        limit: Length of the page. An additional value is read to show whether more follow.
        low: The lowest score; None for no limit.
        high: The highest score; None for no limit. With either limit, only numeric scores count.
        after: Score and key of the last value before the page, with None for a score that is not a
            number; None for the first page.
    """

    store: str
    ascending: bool
    limit: int
    low: float | None = None
    high: float | None = None
    after: tuple[float | None, str] | None = None


Request: TypeAlias = Read | WriteRequest | ReadSorted

Answer: TypeAlias = Row | list[tuple[str, str]] | None
"""Keys with JSON texts for `ReadSorted`, otherwise a row or None.

A read or a removal is answered with the row, or None if there was none. The answer to any other
write has the value `REMOVED` and the info of the new value.
"""


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
            requests: The reads and writes.

        Raises:
            StoreError: The database cannot be reached, or the transaction failed. The next call
                connects again.
        """

    def copier(self) -> Callable[[Path], None] | None:
        """Return a function that copies the current rows to a new file.

        Both may be called on any thread; the function only once.

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
    """The SQL statements, whose first parameters are the world's id and the store's name.

    Attributes:
        read: Selects the value of a key and its info.
        write: Inserts or replaces the value of a key and its info.
        scored: Selects keys and values with a numeric score.
        unscored: Selects keys and values with any other score.
        score: The numeric score.
        key: The key, compared by its bytes.
        parameter: The mark of a parameter.
    """

    read: str
    write: str
    scored: str
    unscored: str
    score: str
    key: str
    parameter: str

    def carry_out(self, connection: _Connection, game_id: str, request: Request) -> Answer:
        """Answer a request; raises the errors of the database."""
        store = (game_id, request.store)
        if isinstance(request, Read):
            return self._read(connection, store, request.key)
        if isinstance(request, WriteRequest):
            old = self._read(connection, store, request.key)
            info = request.next_info(old)
            text = json.dumps(attrs.astuple(info))
            connection.execute(self.write, (*store, request.key, request.value, text))
            return old if request.value == REMOVED else Row(REMOVED, info)
        limit = min(request.limit, _MAX_LIMIT - 1) + 1
        rows: list[Any] = []
        for statement, values in self.select_sorted(request):
            if len(rows) < limit:
                parameters = (*store, *values, limit - len(rows))
                rows += connection.execute(statement, parameters).fetchall()
        return [(str(key), str(value)) for key, value in rows]

    def _read(self, connection: _Connection, store: tuple[str, str], key: str) -> Row | None:
        row = connection.execute(self.read, (*store, key)).fetchone()
        return None if row is None else Row(str(row[0]), _read_info(row[1]))

    def select_sorted(self, request: ReadSorted) -> Iterator[tuple[str, list[Any]]]:
        """Yield the statements that together select a page, each with its parameters.

        The parameters go between those for the world's id and store's name and the row limit.
        """
        score, key, mark = self.score, self.key, self.parameter
        after, after_key = request.after or (None, None)
        is_behind_scores = request.after is not None and after is None
        if not is_behind_scores:
            way, sign = ("ASC", ">") if request.ascending else ("DESC", "<")
            page: list[tuple[str, list[Any]]] = []
            if request.low is not None:
                page.append((f"{score} >= {mark}", [request.low]))
            if request.high is not None:
                page.append((f"{score} <= {mark}", [request.high]))
            if request.after is not None:
                tie = f"{score} = {mark} AND {key} > {mark}"
                page.append((f"({score} {sign} {mark} OR {tie})", [after, after, after_key]))
            yield self._select(self.scored, page, f"{score} {way}, {key}")
        if request.low is None and request.high is None:
            rest = [(f"{key} > {mark}", [after_key])] if is_behind_scores else []
            yield self._select(self.unscored, rest, key)

    def _select(
        self, rows: str, page: Sequence[tuple[str, list[Any]]], order: str
    ) -> tuple[str, list[Any]]:
        where = "".join(f" AND {condition}" for condition, _ in page)
        statement = f"{rows}{where} ORDER BY {order} LIMIT {self.parameter}"
        return statement, [value for _, values in page for value in values]


def _read_info(text: Any) -> Info:
    """Return the info in a column; another program may have stored invalid data."""
    try:
        values = json.loads(text) if text else ()
        shapes.check_shape(values, INFO_SHAPE, "the info of a value")
    except (ValueError, TypeError, RecursionError):
        return Info()
    return Info(*values)
