"""Which database a world uses, and the id under which it stores its rows."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from clawblox.engine.datastore.sqlite import SqliteStore
from clawblox.engine.datastore.store import Store, StoreError, UnfitDatabase
from clawblox.extras import install_command
from clawblox.protocol import DATASTORE_ENV

STATE_DIRECTORY: Final = ".clawblox"
"""Directory within a world's directory for what its runs leave behind."""
DATABASE_URL: Final = "DATABASE_URL"
"""Environment variable that names the Postgres database."""
_GAME_ID: Final = "game_id"

_log = logging.getLogger("clawblox.engine")


class Backend(StrEnum):
    """Where the rows of data stores are."""

    SQLITE = "sqlite"
    """In the file that ``WORLD_DATASTORE_PATH`` names, else in ``.clawblox/local-<port>.db``."""
    POSTGRES = "postgres"
    """In the database that ``DATABASE_URL`` names."""
    NONE = "none"
    """Nowhere: scripts that use data stores get an error."""


def open_store(
    backend: Backend, world: Path, port: int, environment: Mapping[str, str] = os.environ
) -> Store | None:
    """Return the database of a world; None for none. Blocks.

    A file is opened when it is first used, and so is a Postgres server that cannot be reached yet.

    Args:
        backend: Where the rows are.
        world: The world's directory.
        port: The port on which the world runs.
        environment: The environment, for ``WORLD_DATASTORE_PATH`` and ``DATABASE_URL``.

    Raises:
        ValueError: Postgres is asked for without ``DATABASE_URL``, psycopg is missing, or the
            database cannot hold every text.
    """
    if backend is Backend.NONE:
        return None
    if backend is Backend.SQLITE:
        own = environment.get(DATASTORE_ENV)
        return SqliteStore(Path(own) if own else world / STATE_DIRECTORY / f"local-{port}.db")
    url = environment.get(DATABASE_URL)
    if not url:
        raise ValueError(
            f"the data stores are to be on Postgres, but {DATABASE_URL} is not set: set it, for"
            " example to postgresql://user@host/database, or choose sqlite or none"
        )
    try:
        from clawblox.engine.datastore.postgres import PostgresStore
    except ImportError as error:
        raise ValueError(
            f"the data stores are to be on Postgres, but psycopg cannot be imported ({error}):"
            f" {install_command('postgres')}"
        ) from error
    store = PostgresStore(url)
    try:
        store.check()
    except UnfitDatabase as error:
        raise ValueError(f"{DATABASE_URL}: {error}") from error
    except StoreError as error:
        _log.warning("the data stores are on Postgres, which cannot be reached yet: %s", error)
    return store


def read_game_id(world: Path) -> str:
    """Return the id of a world's rows, from ``<world>/.clawblox/game_id``; made once.

    Two starts at the same time get the same id.

    Raises:
        OSError: The file can be neither read nor written.
        ValueError: The file does not hold an id.
    """
    path = world / STATE_DIRECTORY / _GAME_ID
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{_GAME_ID}.{os.getpid()}.new")
    if not path.exists():
        draft.write_text(f"{uuid.uuid4()}\n")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another start was faster
        finally:
            draft.unlink()
    text = path.read_text().strip()
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ValueError(
            f"{path}: {text[:80]!r} is not a UUID: restore it, or delete the file to begin with"
            " empty data stores"
        ) from None
