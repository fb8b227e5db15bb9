"""Data stores in Postgres; the only module that uses psycopg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import psycopg

from clawblox.engine.datastore.store import Answer, Request, Statements, StoreError, UnfitDatabase

_PROBE: Final = '"\N{LATIN SMALL LETTER E WITH ACUTE}\N{SNOWMAN}\N{GRINNING FACE}"'
"""A JSON text with characters of two, three and four bytes."""
_SCHEMA_LOCK: Final = 0x636C6177626C6F78
_SCORE: Final = (
    "CASE WHEN jsonb_typeof(value) = 'number' THEN value::double precision"
    " WHEN jsonb_typeof(value -> 'score') = 'number'"
    " THEN (value -> 'score')::double precision END"
)
_SCHEMA: Final = (
    # Creating the table in two worlds at the same time fails, even with IF NOT EXISTS.
    f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})",
    (
        "CREATE TABLE IF NOT EXISTS data_stores ("
        "game_id text NOT NULL, store_name text NOT NULL, key text NOT NULL, value jsonb NOT NULL,"
        " updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (game_id, store_name, key))"
    ),
    "DROP INDEX IF EXISTS data_stores_score",  # from engines without plain number scores
    (
        "CREATE INDEX IF NOT EXISTS data_stores_order"
        f' ON data_stores (game_id, store_name, ({_SCORE}), key COLLATE "C")'
    ),
)
_HAS_INFO: Final = (  # adding a column IF NOT EXISTS would wait for all other worlds each time
    "SELECT 1 FROM pg_attribute"
    " WHERE attrelid = 'data_stores'::regclass AND attname = 'info' AND NOT attisdropped"
)
_ROWS: Final = "SELECT key, value::text FROM data_stores WHERE game_id = %s AND store_name = %s"
_STATEMENTS: Final = Statements(
    read=(
        "SELECT value::text, info FROM data_stores"
        " WHERE game_id = %s AND store_name = %s AND key = %s"
    ),
    write=(
        "INSERT INTO data_stores (game_id, store_name, key, value, info, updated_at)"
        " VALUES (%s, %s, %s, %s::jsonb, %s, now()) ON CONFLICT (game_id, store_name, key)"
        " DO UPDATE SET value = excluded.value, info = excluded.info,"
        " updated_at = excluded.updated_at"
    ),
    scored=f"{_ROWS} AND ({_SCORE}) IS NOT NULL",
    unscored=f"{_ROWS} AND ({_SCORE}) IS NULL AND value -> 'score' IS NOT NULL",
    score=f"({_SCORE})",
    key='key COLLATE "C"',
    parameter="%s",
)


class PostgresStore:
    """Data stores in a Postgres database that worlds on several machines may share.

    Args:
        url: The database, as ``DATABASE_URL`` names it.
    """

    is_shared = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None

    def check(self) -> None:
        """Connect, and check that the database can store any text.

        Raises:
            UnfitDatabase: The database cannot store some texts.
            StoreError: The database cannot be reached.
        """
        self.execute("", ())

    def execute(self, game_id: str, requests: Sequence[Request]) -> list[Answer | StoreError]:
        """Answer requests; see `Store.execute`."""
        try:
            connection = self._connect()
            with connection.transaction():
                return [_answer(connection, game_id, request) for request in requests]
        except StoreError:
            self.close()
            raise
        except (psycopg.Error, OSError) as error:
            self.close()
            raise StoreError(_reason(error)) from error

    def copier(self) -> None:
        """Return None, since shared rows belong to no single world."""
        return

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> psycopg.Connection:
        if self._connection is None:
            connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=5,
                options="-c lock_timeout=5s",
                client_encoding="UTF8",  # otherwise SQL_ASCII databases return bytes
            )
            self._connection = connection
            _check_encoding(connection)
            with connection.transaction():
                for statement in _SCHEMA:
                    connection.execute(statement)
                if connection.execute(_HAS_INFO).fetchone() is None:
                    connection.execute("ALTER TABLE data_stores ADD COLUMN info text")
        return self._connection


def _check_encoding(connection: psycopg.Connection) -> None:
    """Check that the database returns every text unchanged."""
    try:
        row = connection.execute("SELECT %s::jsonb::text", (_PROBE,)).fetchone()
        is_fit = row == (_PROBE,)
    except (psycopg.DataError, psycopg.NotSupportedError):
        is_fit = False
    if not is_fit:
        encoding = connection.info.parameter_status("server_encoding")
        raise UnfitDatabase(
            f"the database cannot store every text: its encoding is {encoding}; make one with"
            " CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )


def _answer(connection: psycopg.Connection, game_id: str, request: Request) -> Answer | StoreError:
    try:
        with (
            connection.transaction()
        ):  # a savepoint: a refused request does not roll back the others
            return _STATEMENTS.carry_out(connection, game_id, request)
    except (
        psycopg.Error,
        UnicodeError,
    ) as error:  # another program may have stored arbitrary bytes
        if connection.closed:
            raise
        return StoreError(_reason(error))


def _reason(error: Exception) -> str:
    """Return the first line of an error's text; later lines name files of the server."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
