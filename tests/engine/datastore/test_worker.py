"""The worker's thread, the durability of its answers, and the location of the rows."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from clawblox.engine.datastore import worker as worker_module
from clawblox.engine.datastore.sqlite import SqliteStore
from clawblox.engine.datastore.store import (
    Answer,
    Info,
    Read,
    Request,
    Row,
    StoreError,
    WriteRequest,
)
from clawblox.engine.datastore.worker import Worker
from clawblox.engine.runner import Backend, open_store, read_game_id

GAME = "8f0b1a3c-0000-4000-8000-000000000001"

WRITER = """
import sys
from pathlib import Path
from clawblox.engine.datastore.sqlite import SqliteStore
from clawblox.engine.datastore.store import WriteRequest
from clawblox.engine.datastore.worker import Worker

worker, number = Worker(SqliteStore(Path(sys.argv[1]))), 0
while True:
    number += 1
    requests = [WriteRequest("s", f"{number} {part}", str(number)) for part in "ab"]
    answers = worker.submit("game", requests).wait()
    assert [answer.value for answer in answers] == ["null", "null"]
    print(number, flush=True)
"""


def test_acknowledged_writes_survive_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        acknowledged = 0
        while acknowledged < 50:
            acknowledged = int(process.stdout.readline())
        process.kill()
        acknowledged = int(([str(acknowledged), *process.stdout])[-1])
    store = SqliteStore(path)
    keys = [(number, part) for number in range(1, acknowledged + 2) for part in "ab"]
    answers = store.execute("game", [Read("s", f"{number} {part}") for number, part in keys])
    store.close()
    values = [answer.value for answer in answers[:-2] if isinstance(answer, Row)]
    assert values == [str(number) for number, _ in keys[:-2]]
    assert answers[-1] == answers[-2], "half of a transaction was kept"


class StuckStore:
    """A database that answers when it is released."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.closed = False

    def execute(self, game_id: str, requests: Sequence[Request]) -> list[Answer | StoreError]:
        self.free.wait()
        return [None for _ in requests]

    def close(self) -> None:
        self.closed = True


def test_wait_for_the_database_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "MAX_WAIT_S", 0.01)
    store = StuckStore()
    worker = Worker(store)
    assert not worker.is_late
    batch = worker.submit(GAME, [WriteRequest("s", "k", "1"), Read("s", "k")])
    answers = batch.wait()
    assert [str(answer) for answer in answers] == ["no answer within 0.01 s"] * 2
    assert worker.is_late
    store.free.set()
    worker.close()
    assert not worker.is_late
    assert store.closed


def test_unexpected_failure_is_returned_as_the_answer() -> None:
    class Broken(StuckStore):
        def execute(self, game_id: str, requests: Sequence[Request]) -> list[Answer | StoreError]:
            raise RuntimeError("out of order")

    worker = Worker(Broken())
    for _ in range(2):
        (answer,) = worker.submit(GAME, [Read("s", "k")]).wait()
        assert isinstance(answer, StoreError)
        assert "out of order" in str(answer)
    worker.close()


def test_closing_carries_out_the_submitted_batches(tmp_path: Path) -> None:
    worker = Worker(SqliteStore(tmp_path / "rows.db"))
    batches = [worker.submit(GAME, [WriteRequest("s", str(at), "1")]) for at in range(20)]
    worker.close()
    assert all(batch.is_done for batch in batches)
    store = SqliteStore(tmp_path / "rows.db")
    assert store.execute(GAME, [Read("s", "19")]) == [Row("1", Info(version=1))]
    store.close()


def test_sqlite_file_is_in_the_state_directory_and_named_after_the_port(tmp_path: Path) -> None:
    store = open_store(Backend.SQLITE, tmp_path, 8080)
    assert store is not None
    store.execute(GAME, [WriteRequest("s", "k", "1")])
    assert (tmp_path / ".clawblox" / "local-8080.db").is_file()
    store.close()


@pytest.mark.thorough
def test_sqlite_does_not_import_the_client_of_postgres(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from clawblox.engine import runner; "
        "runner.open_store(runner.Backend.SQLITE, Path(sys.argv[1]), 1); "
        "assert 'psycopg' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_backend_none_has_no_store(tmp_path: Path) -> None:
    assert open_store(Backend.NONE, tmp_path, 8080) is None


def test_postgres_backend_requires_database_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(ValueError, match="DATABASE_URL: must be set"):
        open_store(Backend.POSTGRES, tmp_path, 8080)
    monkeypatch.setenv("DATABASE_URL", "postgresql://x")
    assert open_store(Backend.POSTGRES, tmp_path, 8080)


def test_game_id_is_created_only_once(tmp_path: Path) -> None:
    made = read_game_id(tmp_path)
    assert read_game_id(tmp_path) == made
    assert (tmp_path / ".clawblox" / "game_id").read_text() == f"{made}\n"
    assert len(list((tmp_path / ".clawblox").iterdir())) == 1


def test_invalid_game_id_is_named_in_the_error(tmp_path: Path) -> None:
    read_game_id(tmp_path)
    (tmp_path / ".clawblox" / "game_id").write_text("mine")
    with pytest.raises(ValueError, match=r"game_id: must be a UUID, not 'mine'"):
        read_game_id(tmp_path)
