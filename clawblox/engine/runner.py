"""The program of an engine world: ``python -m clawblox.engine DIR``, with the server's flags.

It also chooses the database of a world, and the id under which the world stores its rows.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import attrs

from clawblox.engine.datastore.sqlite import SqliteStore
from clawblox.engine.datastore.store import Store, StoreError, UnfitDatabase
from clawblox.engine.errors import SettingsError
from clawblox.engine.script_watch import (
    CHANGED_ENV,
    NextStart,
    ScriptWatch,
    keep_from_children,
    plan_next_start,
)
from clawblox.engine.settings import EngineSettings
from clawblox.engine.settings import read_settings as read_world
from clawblox.engine.watchdog.client import Watchdog
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.extras import install_command
from clawblox.luau import run_deep
from clawblox.protocol import DATASTORE_ENV
from clawblox.server import Settings, StopSignals, read_settings, serve_with

STATE_DIRECTORY: Final = ".clawblox"
"""Subdirectory of a world's directory for files of its runs."""
DATABASE_URL: Final = "DATABASE_URL"
"""Environment variable that names the Postgres database."""
_GAME_ID: Final = "game_id"

_log = logging.getLogger("clawblox.engine")


class Backend(StrEnum):
    """Location of the rows of data stores."""

    SQLITE = "sqlite"
    """The file that ``WORLD_DATASTORE_PATH`` names, else ``.clawblox/local-<port>.db``."""
    POSTGRES = "postgres"
    """The database that ``DATABASE_URL`` names."""
    NONE = "none"
    """No database: scripts that use data stores get an error."""


def main(argv: Sequence[str] | None = None) -> None:
    """Serve the world of a directory until SIGTERM or SIGINT.

    The whole event loop runs on a thread with a deep stack, to avoid a thread per script call.

    Args:
        argv: The flags, without the program's name; None for those of the process.

    Raises:
        SystemExit: Status 2 if a file of the world, a flag or an environment variable is invalid,
            70 if the scripts do not load, otherwise the status of `clawblox.server.serve`.
    """
    flags = argparse.Namespace()
    changed = os.environ.pop(CHANGED_ENV, "")
    environment = dict(os.environ)
    os.environ["RAYON_NUM_THREADS"] = "1"  # makes rapier step on this thread
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # keeps NumPy, loaded by rapier, from starting threads
    settings = read_settings(argv, os.environ, _make_parser(), flags)
    with StopSignals() as signals, Watchdog() as watchdog:
        run_deep(lambda: _serve(flags, settings, signals, watchdog, environment, changed))


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m clawblox.engine",
        description="Serve a world made of Luau scripts.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="directory with the world.toml [the current one]",
    )
    parser.add_argument(
        "--datastore",
        type=Backend,
        choices=list(Backend),
        default=Backend.SQLITE,
        help="database for the rows of data stores [%(default)s]",
    )
    parser.add_argument(
        "--logical-restore",
        action="store_true",
        help="restore positions and velocities if the exact state of the physics cannot be "
        "restored; the world then continues slightly differently",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="restart when a script changes; keep the state if only the document has changed",
    )
    return parser


def _serve(
    flags: argparse.Namespace,
    settings: Settings,
    signals: StopSignals,
    watchdog: Watchdog,
    environment: Mapping[str, str],
    changed: str,
) -> None:
    console = Console()
    announce = console.announce
    try:
        files = _read_files(flags)
        world = EngineWorld(
            files,
            console,
            store=open_store(flags.datastore, files.directory, settings.port),
            logical_restore=flags.logical_restore,
            watchdog=watchdog,
            changed=changed,
        )
        watchdog.start(cpu_s=files.watchdog_cpu_s, memory_bytes=files.watchdog_memory_bytes)
    except (SettingsError, OSError, ValueError) as error:
        when = f" after {changed} changed" if changed else ""
        _fail(f"cannot load the world{when}: {error}")
    announce(f"Starting {files.name} (max {files.max_players} players)")
    announce(f"Script: {files.main}")
    if settings.resume_path is not None:
        settings = attrs.evolve(settings, resume_path=files.directory / settings.resume_path)
    watch = ScriptWatch(files, partial(_check, flags.directory), announce) if flags.watch else None
    keep_from_children(settings.resume_path)
    next_start: NextStart | None = None
    gc.freeze()  # excludes modules and the world's objects, which stay, from collections
    gc.enable()
    try:
        served = serve_with(settings, world, signals, watch.wait if watch else None)
        if watch is not None and watch.changed and not signals.has_received:
            next_start = plan_next_start(served, watch, environment, announce)
    finally:
        if next_start is None or not next_start.keeps_state:
            world.close()
    if next_start is not None:
        watchdog.close()
        next_start.begin()


def _read_files(flags: argparse.Namespace) -> EngineSettings:
    files = read_world(flags.directory)
    if flags.datastore is Backend.NONE:  # only needed for rows
        return files
    return attrs.evolve(files, game_id=read_game_id(files.directory))


def _check(directory: Path, changed: Sequence[str]) -> str:
    """Return the content hash of the current files, if they are valid.

    Raises:
        ValueError: A setting is invalid, or a script does not compile.
    """
    world = EngineWorld(read_world(directory))
    world.check_scripts(changed)
    return world.content_hash()


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"python -m clawblox.engine: {message}\n")
    raise SystemExit(2)


def open_store(backend: Backend, world: Path, port: int) -> Store | None:
    """Return the database of a world, or None for `Backend.NONE`. Blocks.

    A file is opened on first use, and so is a connection if the Postgres server is not running yet.

    Args:
        backend: Location of the rows.
        world: The world's directory.
        port: The port on which the world runs.

    Raises:
        ValueError: Postgres is requested without ``DATABASE_URL``, psycopg is missing, or the
            database cannot store every text.
    """
    if backend is Backend.NONE:
        return None
    if backend is Backend.SQLITE:
        own = os.environ.get(DATASTORE_ENV)
        return SqliteStore(Path(own) if own else world / STATE_DIRECTORY / f"local-{port}.db")
    url = os.environ.get(DATABASE_URL)
    if not url:
        raise ValueError(
            f"{DATABASE_URL}: must be set for data stores on Postgres, for example to"
            " postgresql://user@host/database; or choose sqlite or none"
        )
    try:
        from clawblox.engine.datastore.postgres import PostgresStore
    except ImportError as error:
        raise ValueError(
            f"data stores on Postgres need psycopg, but it cannot be imported ({error}):"
            f" {install_command('postgres')}"
        ) from error
    store = PostgresStore(url)
    try:
        store.check()
    except UnfitDatabase as error:
        raise ValueError(f"{DATABASE_URL}: {error}") from error
    except StoreError as error:
        _log.warning("the Postgres server of the data stores cannot be reached yet: %s", error)
    return store


def read_game_id(world: Path) -> str:
    """Return the id of a world's rows from ``<world>/.clawblox/game_id``; create it if missing.

    Simultaneous starts get the same id.

    Raises:
        OSError: The file can be neither read nor written.
        ValueError: The file contains no id.
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
            f"{path}: must be a UUID, not {text[:80]!r}: restore it, or delete the file to begin"
            " with empty data stores"
        ) from None
