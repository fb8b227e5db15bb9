"""SQLite and Postgres answer the same requests in the same way."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import attrs
import psycopg
import pytest

from clawblox.engine.datastore import sqlite
from clawblox.engine.datastore.postgres import PostgresStore
from clawblox.engine.datastore.sqlite import SqliteStore
from clawblox.engine.datastore.store import (
    REMOVED,
    Info,
    Read,
    ReadSorted,
    Request,
    Row,
    Store,
    StoreError,
    WriteRequest,
)
from clawblox.engine.runner import DATABASE_URL, Backend, open_store
from tests.engine.datastore.postgres_server import PostgresServer, postgres_server
from tests.engine.services.bench import Bench

GAME = "8f0b1a3c-0000-4000-8000-000000000001"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="module", params=["sqlite", "postgres", "postgres in SQL_ASCII"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Return the address of a database, once for the module, or None for SQLite."""
    if request.param == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("server")
    return server.url if request.param == "postgres" else make_database(server, "SQL_ASCII")


def make_database(server: PostgresServer, encoding: str) -> str:
    """Create a database with another encoding and return its address."""
    name = encoding.lower()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
    return server.url.replace("/postgres?", f"/{name}?")


@pytest.fixture
def store(url: str | None, tmp_path: Path) -> Iterator[Store]:
    made = PostgresStore(url) if url else SqliteStore(tmp_path / "new" / "rows.db")
    yield made
    made.close()


def read(store: Store, name: str, key: str, game: str = GAME) -> object:
    (answer,) = store.execute(game, [Read(name, key)])
    assert isinstance(answer, Row | None), answer
    return answer if answer is None else json.loads(answer.value, parse_int=float)


@pytest.mark.thorough
def test_written_values_are_read_back(store: Store) -> None:
    value = {"name": "Ann \N{SNOWMAN}", "list": [1, None, 2.5], "big": 1e300, "empty": {}}
    text = json.dumps(value, ensure_ascii=False)
    assert store.execute(GAME, [WriteRequest("a", "k", text)]) == [Row(REMOVED, Info(version=1))]
    assert read(store, "a", "k") == value
    store.close()
    assert read(store, "a", "k") == value


def test_info_of_a_value_is_kept_until_the_value_is_removed(store: Store) -> None:
    def write(value: str, time_ms: int, tags: str = "") -> WriteRequest:
        return WriteRequest("info", "k", value, time_ms, tags)

    tags = '{"user_ids":["\N{SNOWMAN}"]}'
    first, second = Info(5, 5, 1, tags), Info(5, 9, 2)
    answers = store.execute(GAME, [write("1", 5, tags), Read("info", "k"), write("2", 9)])
    assert answers == [Row(REMOVED, first), Row("1", first), Row(REMOVED, second)]
    requests = [write(REMOVED, 11), write(REMOVED, 12), write("3", 13), Read("info", "k")]
    removed, again = Info(5, 11, 3), Info(13, 13, 5)
    assert store.execute(GAME, requests) == [
        Row("2", second),
        Row(REMOVED, removed),
        Row(REMOVED, again),
        Row("3", again),
    ]


@pytest.mark.parametrize("info", [None, "", "[", "[1, 2]", '[-1, 0, 0, ""]', "[" * 9999, "7"])
def test_info_written_by_another_program_is_ignored(tmp_path: Path, info: object) -> None:
    store = SqliteStore(tmp_path / "rows.db")
    store.execute(GAME, [WriteRequest("s", "k", "1", 5)])
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute("UPDATE data_stores SET info = ?", (info,))
        database.commit()
    assert store.execute(GAME, [Read("s", "k")]) == [Row("1")]
    store.close()


@pytest.mark.thorough
def test_rows_are_identified_by_game_store_and_key(store: Store) -> None:
    store.execute(GAME, [WriteRequest("owner", "k", "1")])
    assert read(store, "owner", "other") is None
    assert read(store, "other", "k") is None
    assert read(store, "owner", "k", "another game") is None


@pytest.mark.thorough
def test_requests_are_carried_out_in_their_order(store: Store) -> None:
    requests = [Read("order", "k"), WriteRequest("order", "k", "1"), Read("order", "k")]
    assert store.execute(GAME, [*requests, WriteRequest("order", "k", "2")]) == [
        None,
        Row(REMOVED, Info(version=1)),
        Row("1", Info(version=1)),
        Row(REMOVED, Info(version=2)),
    ]
    assert read(store, "order", "k") == 2


def written(store: Store, name: str) -> dict[str, object]:
    """Write values with and without scores, and return them."""
    scores = {"ten": 10, "two": 2, "a tie": 10, "half": 0.5, "low": -3, "huge": 1e300}
    others = {"word": {"score": "7"}, "flag": {"score": True}, "Word": {"score": "1"}}
    unscored = {"removed": None, "plain": {"points": 3}, "text": "4", "list": ["score"]}
    rows = {key: {"score": score} for key, score in scores.items()} | {"bare": 2, "no": -2.5}
    rows |= others | unscored
    store.execute(GAME, [WriteRequest(name, key, json.dumps(value)) for key, value in rows.items()])
    return rows


UP = ["low", "no", "half", "bare", "two", "a tie", "ten", "huge"]
DOWN = ["huge", "a tie", "ten", "bare", "two", "half", "no", "low"]
WITHOUT = ["Word", "flag", "word"]


def keys(store: Store, request: ReadSorted) -> list[str]:
    (answer,) = store.execute(GAME, [request])
    assert isinstance(answer, list)
    return [key for key, _ in answer]


@pytest.mark.parametrize("ascending", [True, False])
def test_rows_are_sorted_by_number_then_by_key_with_other_scores_last(
    store: Store, ascending: bool
) -> None:
    name = f"board {ascending}"
    rows = written(store, name)
    expected = [*(UP if ascending else DOWN), *WITHOUT]
    for limit in (0, 1, 6, 8, 10, 10**30):
        (answer,) = store.execute(GAME, [ReadSorted(name, ascending, limit)])
        assert isinstance(answer, list)
        assert [key for key, _ in answer] == expected[: limit + 1]
        assert all(
            json.loads(value, parse_float=float, parse_int=float) == rows[key]
            for key, value in answer
        )


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_pages_contain_every_row_exactly_once(store: Store, ascending: bool, size: int) -> None:
    name = f"pages {ascending} {size}"
    rows = written(store, name)
    expected, found = [*(UP if ascending else DOWN), *WITHOUT], []
    request = ReadSorted(name, ascending, size)
    while request is not None:
        page = keys(store, request)
        found += page[:size]
        request = attrs.evolve(request, after=place(found[-1], rows)) if page[size:] else None
    assert found == expected


def place(key: str, rows: dict[str, object]) -> tuple[float | None, str]:
    value = rows[key]
    score = value["score"] if isinstance(value, dict) else value
    return (None if isinstance(score, str | bool) else score), key


def test_query_with_limits_returns_only_numeric_scores(store: Store) -> None:
    written(store, "limits")
    for low, high, expected in ((0.5, 10.0, UP[2:7]), (10.0, None, UP[5:]), (None, -2.5, UP[:2])):
        assert keys(store, ReadSorted("limits", True, 9, low, high)) == expected
        downwards = ReadSorted("limits", False, 9, low, high)
        assert keys(store, downwards) == [key for key in DOWN if key in expected]
    after = ReadSorted("limits", True, 9, 0.5, 10.0, (2.0, "bare"))
    assert keys(store, after) == ["two", "a tie", "ten"]


def test_both_databases_return_the_same_values_in_the_same_order(store: Store) -> None:
    world = Bench(store).begin()
    world.run(
        """
        local d = DataStoreService:GetDataStore('seen')
        local s = '\\u{2603}'
        d:SetAsync('k', {zebra = 1, b = {true, 'x'}, aa = {}, c = -2.5, big = 1e300, s = s})
        local line = {}
        for key, value in (d:GetAsync('k')) do table.insert(line, `{key}={typeof(value)}`) end
        print(table.concat(line, ' '))
        local value = d:GetAsync('k')
        print(value.b[1], value.b[2], #value.aa, value.c, value.big, value.s)
        """
    )
    world.tick(4)
    assert world.printed() == [
        "aa=table b=table big=number c=number s=string zebra=number",
        "true\tx\t0\t-2.5\t1e+300\t\xe2\x98\x83",
    ]
    world.close()


def test_a_refused_request_does_not_undo_the_others(store: Store) -> None:
    requests = [
        WriteRequest("r", "a", "1"),
        WriteRequest("r", "b", "not json"),
        WriteRequest("r", "c", "3"),
    ]
    answers = store.execute(GAME, requests)
    assert [isinstance(answer, StoreError) for answer in answers] == [False, True, False]
    assert [read(store, "r", key) for key in "abc"] == [1, None, 3]


def test_postgres_ignores_the_client_encoding_of_the_environment(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    store = PostgresStore(server.url)
    store.execute(GAME, [WriteRequest("told", "k", '"\N{SNOWMAN}"')])
    assert read(store, "told", "k") == "\N{SNOWMAN}"
    store.close()


def test_database_that_cannot_store_every_text_is_refused_at_the_start(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_database(server, "LATIN1")
    monkeypatch.setenv(DATABASE_URL, url)
    with pytest.raises(ValueError, match=r"its encoding is LATIN1; .* ENCODING 'UTF8'"):
        open_store(Backend.POSTGRES, tmp_path, 8080)
    with pytest.raises(StoreError, match="LATIN1"):
        PostgresStore(url).execute(GAME, [WriteRequest("a", "k", "1")])


def test_database_unavailable_at_the_start_is_used_once_available(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = tmp_path / "road"
    url = server.url.replace(str(server.directory), str(road))
    monkeypatch.setenv(DATABASE_URL, url)
    store = open_store(Backend.POSTGRES, tmp_path, 8080)
    assert store is not None
    road.symlink_to(server.directory)
    (answer,) = store.execute(GAME, [WriteRequest("late", "k", "1")])
    assert isinstance(answer, Row)
    store.close()


def test_database_is_used_again_after_an_outage(server: PostgresServer, tmp_path: Path) -> None:
    road = tmp_path / "road"
    road.symlink_to(server.directory)
    store = PostgresStore(server.url.replace(str(server.directory), str(road)))
    store.execute(GAME, [WriteRequest("lost", "k", "1")])
    road.unlink()
    with psycopg.connect(server.url) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
    for _ in range(2):
        with pytest.raises(StoreError):
            store.execute(GAME, [Read("lost", "k")])
    road.symlink_to(server.directory)
    assert read(store, "lost", "k") == 1
    store.close()


def test_another_world_cannot_write_between_a_read_and_a_write(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "rows.db")
    store.execute(GAME, [WriteRequest("s", "k", "1")])
    other = sqlite3.connect(tmp_path / "rows.db", timeout=0, isolation_level=None)

    class Interrupted(list[Request]):
        def __iter__(self) -> Iterator[Request]:
            yield self[0]
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("UPDATE data_stores SET value = '9'")
            yield self[1]

    assert store.execute(GAME, Interrupted([Read("s", "k"), WriteRequest("s", "k", "2")])) == [
        Row("1", Info(version=1)),
        Row(REMOVED, Info(version=2)),
    ]
    other.execute("UPDATE data_stores SET value = '3'")
    other.close()
    assert read(store, "s", "k") == 3
    store.close()


def test_file_is_used_once_it_can_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    path.mkdir()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="unable to open database file"):
        store.execute(GAME, [Read("s", "k")])
    path.rmdir()
    assert read(store, "s", "k") is None
    store.close()


def test_file_other_than_a_database_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    path.write_bytes(b"something else" * 100)
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="file is not a database"):
        store.execute(GAME, [Read("s", "k")])


def test_sorted_query_uses_the_score_index(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "rows.db")
    store.execute(GAME, [WriteRequest("s", "k", '{"score":1}')])
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        for ascending, sorts in ((True, 0), (False, 1)):  # descending: only ties are sorted
            request = ReadSorted("s", ascending, 1)
            statement, values = next(sqlite._STATEMENTS.select_sorted(request))
            parameters = (GAME, "s", *values, 1)
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            text = " ".join(row[3] for row in plan)
            assert "data_stores_order" in text
            assert text.count("USE TEMP B-TREE FOR RIGHT PART OF ORDER BY") == sorts
            assert text.count("USE TEMP B-TREE") == sorts
    store.close()


def test_file_of_an_engine_without_plain_scores_is_upgraded(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute(
            "CREATE TABLE data_stores (game_id TEXT NOT NULL, store_name TEXT NOT NULL,"
            " key TEXT NOT NULL, value TEXT NOT NULL, updated_at TEXT NOT NULL,"
            " PRIMARY KEY (game_id, store_name, key))"
        )
        database.execute("CREATE INDEX data_stores_score ON data_stores (game_id, key)")
        row = (GAME, "s", "old", '{"score":5}', "2026-01-01T00:00:00.000Z")
        database.execute("INSERT INTO data_stores VALUES (?, ?, ?, ?, ?)", row)
        database.commit()
    store = SqliteStore(tmp_path / "rows.db")
    store.execute(GAME, [WriteRequest("s", "new", "4")])
    assert store.execute(GAME, [Read("s", "old")]) == [Row('{"score":5}')]
    assert keys(store, ReadSorted("s", True, 9)) == ["new", "old"]
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        names = database.execute("SELECT name FROM sqlite_schema WHERE type = 'index'").fetchall()
    assert "data_stores_score" not in {name for (name,) in names}


def test_postgres_table_of_an_engine_without_plain_scores_is_upgraded(
    server: PostgresServer,
) -> None:
    url = make_database(server, "UTF8")
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE data_stores (game_id text NOT NULL, store_name text NOT NULL,"
            " key text NOT NULL, value jsonb NOT NULL,"
            " updated_at timestamptz NOT NULL DEFAULT now(),"
            " PRIMARY KEY (game_id, store_name, key))"
        )
        connection.execute("CREATE INDEX data_stores_score ON data_stores (game_id, key)")
        row = (GAME, "s", "old", '{"score":5}')
        connection.execute("INSERT INTO data_stores VALUES (%s, %s, %s, %s::jsonb)", row)
    for at in (1, 2):  # the second world finds everything in place
        store = PostgresStore(url)
        store.execute(GAME, [WriteRequest("s", "new", "4", at)])
        assert keys(store, ReadSorted("s", True, 9)) == ["new", "old"]
        assert store.execute(GAME, [Read("s", "new")]) == [Row("4", Info(1, at, at))]
        store.close()
    with psycopg.connect(url) as connection:
        index = connection.execute("SELECT to_regclass('data_stores_score')").fetchone()
    assert index == (None,)


def test_copy_has_the_rows_at_its_creation_despite_later_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "rows.db")
    assert store.copier() is None
    store.execute(GAME, [WriteRequest("a", "k", "1")])
    copy = store.copier()
    assert copy is not None
    store.execute(GAME, [WriteRequest("a", "k", "2"), WriteRequest("a", "new", "3")])
    copy(tmp_path / "copy.db")
    store.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["copy.db", "rows.db"]
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    copied = SqliteStore(tmp_path / "copy.db")
    assert [read(copied, "a", key) for key in ("k", "new")] == [1, None]
    copied.close()


def test_copy_does_not_replace_an_existing_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "rows.db")
    store.execute(GAME, [WriteRequest("a", "k", "1")])
    (tmp_path / "copy.db").write_text("mine")
    copy = store.copier()
    assert copy is not None
    with pytest.raises(StoreError, match="cannot be copied"):
        copy(tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "mine"
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON data_stores BEGIN DELETE FROM data_stores; END",
        "CREATE VIEW t AS SELECT 1",
    ],
)
def test_file_with_triggers_or_views_is_refused(tmp_path: Path, statement: str) -> None:
    store = SqliteStore(tmp_path / "rows.db")
    store.execute(GAME, [WriteRequest("a", "k", "1")])
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute(statement)
    with pytest.raises(StoreError, match=r"the file has the (trigger|view) 't'"):
        store.execute(GAME, [Read("a", "k")])
    with pytest.raises(StoreError, match=r"the file has the (trigger|view) 't'"):
        store.copier()
