"""The thread that uses a database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from clawblox.engine.datastore.store import Answer, Request, Store, StoreError

MAX_WAIT_S: Final = 1.0
"""Time for which a tick waits for the database before its requests fail, in seconds."""


class RequestBatch:
    """The requests of a tick, and their answers.

    Args:
        game_id: The world to which the rows belong.
        requests: The reads and writes.
    """

    def __init__(self, game_id: str, requests: Sequence[Request]) -> None:
        self.game_id = game_id
        self.requests = requests
        self._answers: list[Answer | StoreError] = []
        self._done = threading.Event()

    @property
    def is_done(self) -> bool:
        """True once the database has answered or failed."""
        return self._done.is_set()

    def carry_out(self, store: Store) -> None:
        """Send the requests to the database and store its answers."""
        try:
            self._answers = store.execute(self.game_id, self.requests)
        except StoreError as error:
            self._answers = [error] * len(self.requests)
        except Exception as error:  # noqa: BLE001 - the tick must get an answer
            self._answers = [StoreError(repr(error))] * len(self.requests)
        finally:
            self._done.set()

    def wait(self) -> list[Answer | StoreError]:
        """Return an answer for each request, after at most `MAX_WAIT_S`."""
        if self._done.wait(MAX_WAIT_S):
            return self._answers
        return [StoreError(f"no answer within {MAX_WAIT_S:g} s")] * len(self.requests)


class Worker:
    """A thread that carries out batches in order; it starts with the first batch.

    Args:
        store: The database.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: SimpleQueue[RequestBatch | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: RequestBatch | None = None

    def submit(self, game_id: str, requests: Sequence[Request]) -> RequestBatch:
        """Queue requests for the thread, in order, without waiting."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="data stores", daemon=True)
            self._thread.start()
        self._last = RequestBatch(game_id, requests)
        self._queue.put(self._last)
        return self._last

    @property
    def is_late(self) -> bool:
        """True while the database has not answered the last batch."""
        return self._last is not None and not self._last.is_done

    @property
    def is_shared(self) -> bool:
        """True if other worlds may use the database."""
        return self._store.is_shared

    def copier(self) -> Callable[[Path], None] | None:
        """Return a function that copies the current rows; see `Store.copier`."""
        return self._store.copier()

    def close(self) -> None:
        """Carry out the submitted batches, close the database and end the thread.

        Waits for the database, possibly for seconds.
        """
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            batch.carry_out(self._store)
        self._store.close()
