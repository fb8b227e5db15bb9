"""The world of a command, and its run directory: given, in the enclosing run, or new.

A new directory is ``runs/<world>-<UTC time>`` below the current directory. In a world's source tree
it is below ``.clawblox`` of the world directory, outside the sources. If the command is the world
of another run and uses that run's port, the new directory is below ``.clawblox`` of that run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from clawblox import protocol
from clawblox.cli.experiment_dirs import refuse_experiment, refuse_new_run
from clawblox.cli.parameters import existing_path
from clawblox.cli.terminal.output import note
from clawblox.cli.terminal.reports import configure_logging
from clawblox.config.arguments import is_world_url
from clawblox.errors import ConfigError, UsageError
from clawblox.rundir.paths import state_dir
from clawblox.system.clock import utc_now
from clawblox.system.files import make_private_dir
from clawblox.system.regular_files import open_directory
from clawblox.views.formatting import shorten_path, suggest
from clawblox.world.async_world import AsyncWorld
from clawblox.world_keys import CONFIG_NAME

_RUNS_DIR: Final = "runs"
_INNER_RUNS_DIR: Final = "inner"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_CHARS: Final = 64
_TOKEN_BYTES: Final = 32


@contextlib.contextmanager
def opened_run_dir(
    world: AsyncWorld, given: Path | None, *, place: Path | None = None
) -> Iterator[Path]:
    """Provide a run directory; at the end, remove a new directory that is unused. Blocks.

    Args:
        world: The world.
        given: The requested run directory, absolute; None makes a new directory.
        place: Parent of a new directory; None means the usual place.

    Yields:
        The run directory, absolute.

    Raises:
        ConfigError: A new directory cannot be created.
        UsageError: The requested directory belongs to an experiment.
    """
    if given is not None:
        refuse_new_run(given)
        yield given
        return
    runs = place or _place_for_runs(world.dir)
    was_there = runs.exists()
    run_dir = _make_new(runs, world.name)
    try:
        yield run_dir
    finally:
        _remove_if_unused(run_dir)
        if not was_there:
            with contextlib.suppress(OSError):  # the parent is not empty
                runs.rmdir()


def _remove_if_unused(run_dir: Path) -> None:
    """Remove a run directory that contains no file, because no instance was started."""
    # Imported here because a resume creates no directory.
    from clawblox.system.trees import TreeWalk, remove_tree

    with contextlib.suppress(OSError):
        with TreeWalk(open_directory(run_dir)) as walk:
            for entry in walk:
                if entry.kind != "directory":
                    return
                walk.enter(entry.name)
        remove_tree(run_dir)


def outer_run_dir(environment: Mapping[str, str]) -> Path | None:
    """Return the run directory of the instance to which this process belongs, if any.

    A world may itself be a ``clawblox run``. Its files belong to the run that started it.

    Args:
        environment: The variables of this process.
    """
    manifest = Path(environment.get(protocol.MANIFEST_ENV, "").strip())
    return manifest.parent.parent if manifest.is_absolute() else None


def inner_runs_dir(environment: Mapping[str, str], port: int | None) -> Path | None:
    """Return the parent directory for runs that are the world of another run; None for other runs.

    Such an inner run uses the port of the outer run, which saves, stops and resumes it as its only
    instance. Therefore each start of the inner run gets a new directory.

    Args:
        environment: The variables of this process.
        port: The port of the run.
    """
    outer = outer_run_dir(environment)
    was_given = environment.get(protocol.LEASE_ENV) and environment.get(protocol.PORT_ENV)
    is_inner = outer is not None and bool(was_given) and was_given == str(port)
    return state_dir(outer) / _INNER_RUNS_DIR if outer is not None and is_inner else None


def _make_new(runs: Path, world: str) -> Path:
    stem = _NOT_IN_NAMES.sub("-", world).strip("-.")[:_MAX_NAME_CHARS] or "world"
    stamp = utc_now().strftime("%Y%m%dT%H%M%SZ")
    try:
        make_private_dir(runs)
        for number in itertools.count(1):
            run_dir = runs / "-".join((stem, stamp, *([str(number)] if number > 1 else [])))
            with contextlib.suppress(FileExistsError):
                run_dir.mkdir(mode=0o700)
                return run_dir
    except OSError as error:
        raise ConfigError(
            f"the run directory cannot be made: {error.strerror}",
            path=Path(error.filename) if error.filename else None,
            hint="give --run-dir, a directory in a place that can be written",
        ) from error
    raise AssertionError("unreachable: the numbers do not end")


def _place_for_runs(world_dir: Path) -> Path:
    here, sources = Path(os.path.realpath(".")), Path(os.path.realpath(world_dir))
    if here.is_relative_to(sources):
        return state_dir(sources) / _RUNS_DIR
    return here / _RUNS_DIR


def open_world(source: str) -> AsyncWorld:
    """Return a world with its ``world.toml`` read and, if it is a URL, downloaded. Blocks.

    From this call on, warnings of the library are written to standard error.

    Args:
        source: A directory, or the URL of one in a GitHub repository.

    Raises:
        ClawbloxError: The path does not exist.
        UsageError: The path is an experiment, or looks like the plan of an experiment.
        ConfigError: The directory is not a world, or its ``world.toml`` is wrong.
        FetchError: The world cannot be downloaded.
    """
    if is_world_url(source):
        note(f"Downloading {source}")
    else:
        _require_world(existing_path(source))
    configure_logging()
    world = AsyncWorld(source)
    _ = world.name  # reads world.toml now, to detect mistakes early
    return world


def _require_world(path: Path) -> None:
    if path.is_file() and path.suffix == ".toml" and path.name != CONFIG_NAME:
        raise UsageError(
            f"'{shorten_path(path)}' is a file, not the directory of a world",
            hint=f"if it is the plan of an experiment: {suggest('experiment run', path)}",
        )
    if not (path / CONFIG_NAME).exists():
        refuse_experiment(path, "a world")


def make_tokens() -> dict[str, str]:
    """Return the world's tokens from the environment, or new tokens."""
    return {
        name: os.environ.get(name, "").strip() or secrets.token_urlsafe(_TOKEN_BYTES)
        for name in protocol.SECRET_ENV
    }
