"""What a database is asked and what it answers; values are JSON texts here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import attrs

__all__ = ["Answer", "Read", "ReadSorted", "Request", "Store", "StoreError", "Write"]


class StoreError(Exception):
    """The database failed; the message says why.

    A write that failed with it may have been done nevertheless.
    """


@attrs.frozen
class Read:
    """Read one value.

    Attributes:
        store: Name of the data store.
        key: Key of the value.
    """

    store: str
    key: str


@attrs.frozen
class Write:
    """Write one value.

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


Request: TypeAlias = Read | Write | ReadSorted

Answer: TypeAlias = str | list[tuple[str, str]] | None
"""A JSON text or None for `Read`, None for `Write`, keys with JSON texts for `ReadSorted`."""


class Store(Protocol):
    """A database with the table of all data stores; one thread uses it."""

    def execute(self, game_id: str, requests: Sequence[Request]) -> list[Answer | StoreError]:
        """Answer requests in their order, in one transaction, which is durable on return.

        A request that the database refuses is answered by its error; the others are carried out.

        Args:
            game_id: The world to which the rows belong.
            requests: What to read and write.

        Raises:
            StoreError: The database cannot be reached, or the transaction failed. The next call
                connects again.
        """

    def close(self) -> None:
        """Close the connection; a later call of `execute` opens it again."""
