"""Saving and loading checkpoints: the documented functions, and their async twins."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import attrs

from clawblox.checkpoint.archive import reader
from clawblox.checkpoint.load import load as loader
from clawblox.checkpoint.model import Allowance, Limits
from clawblox.checkpoint.options import (
    ArchiveOptions,
    LoadOptions,
    OnUnarchivable,
    check_secrets,
)
from clawblox.checkpoint.save import write_archive
from clawblox.concurrency.progress import ProgressLike, Report, run_with_progress
from clawblox.concurrency.threads import run_blocking
from clawblox.config.agent_arguments import Agents
from clawblox.config.arguments import check_progress, check_read_path
from clawblox.config.options import (
    DEFAULT_IDLE_WAIT_S,
    DEFAULT_MAX_FILE_BYTES,
    DEFAULT_MAX_TOTAL_BYTES,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")


def save_checkpoint(
    path: str | os.PathLike[str],
    world_snapshot: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    agents: Agents | None = None,
    backend: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    workspace_only: bool = False,  # noqa: FBT001, FBT002, RUF100 - the documented signature
    *,
    known_secrets: Iterable[str] = (),
    allow: Iterable[Allowance] = (),
    idle_wait: float = DEFAULT_IDLE_WAIT_S,
    on_unarchivable: OnUnarchivable = "raise",
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
    max_total_bytes: int = DEFAULT_MAX_TOTAL_BYTES,
    overwrite: bool = False,
    keep: Iterable[str] = (),
    progress: ProgressLike = False,
) -> Path:
    """Save a world's snapshot and its agents' state in an archive. Blocks.

    The archive is complete or absent at every instant, and an older archive of that name stays
    until the new archive is complete. If the directory is inside a run, the archive is listed in
    the run's manifest.

    Args:
        path: The archive, ``*.ckpt``; its directory is created if missing.
        world_snapshot: The world's snapshot: its path, or the result of ``save``, whose digest is
            then checked. It is stored unchanged. None leaves it out.
        agents: The agents, or their directories by name; None for no agents.
        backend: The driver of all agents, such as ``claude``; None reads it from each directory.
        metadata: JSON values for the top level of ``metadata.json``; None adds none.
        workspace_only: Whether to leave out the conversations; the right choice for archives that
            are shared.
        known_secrets: Secrets to search for, in addition to the tokens of live worlds, the secrets
            in this process's environment and those in the agents' homes.
        allow: Findings that are not secrets, in addition to ``secret-allow.json`` of the run.
        idle_wait: Seconds to wait for a moment in which no agent is in the middle of a turn.
        on_unarchivable: How to treat files and directories that this process may not read, whose
            names cannot be in an archive, or that are too large: ``raise`` refuses the archive,
            ``record`` lists them as excluded.
        max_file_bytes: Limit for the apparent size of an agent's file, in bytes. A larger file is
            not read.
        max_total_bytes: Limit for the apparent size of all these files together, in bytes. The
            largest files are left out until the rest fits.
        overwrite: Whether to replace an archive of that name.
        keep: Paths below workspaces to archive even though programs execute or follow them
            automatically, such as ``.helix/config.toml``; a directory includes everything in it.
            Credentials are never archived.
        progress: True shows the progress on standard error, in a terminal or a notebook. A function
            is called with the bytes done and the total (0 and 0 during the wait for an idle
            moment), perhaps in another thread; an exception from it ends the call. False does
            neither.

    Returns:
        ``path``.

    Raises:
        ConfigError: An argument is wrong.
        CheckpointSecretError: The archive would have contained a secret; no archive was created.
        CheckpointError: The archive cannot be created, and its partial file was removed; or it is
            complete, but perhaps not durable or not in the manifest, as the message states.
    """
    known_secrets = check_secrets(known_secrets)  # a traceback may show the locals
    write_archive(
        ArchiveOptions(
            path=path,
            world_snapshot=world_snapshot,
            agents=agents,
            backend=backend,
            metadata=metadata,
            workspace_only=workspace_only,
            known_secrets=known_secrets,
            allow=allow,
            idle_wait=idle_wait,
            on_unarchivable=on_unarchivable,
            max_file_bytes=max_file_bytes,
            max_total_bytes=max_total_bytes,
            overwrite=overwrite,
            keep=keep,
            progress=progress,
        )
    )
    return Path(path)


def load_checkpoint(
    path: str | os.PathLike[str],
    run_dir: str | os.PathLike[str],
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    keep: Iterable[str] = (),
    progress: ProgressLike = False,
) -> dict[str, Any]:
    """Restore the state in an archive to a run directory. Blocks.

    Args:
        path: The archive.
        run_dir: Directory to restore to; it may have other contents. A refused load leaves it
            unchanged.
        limits: Limits for the size of the archive.
        keep: Paths below workspaces to restore even though programs execute or follow them
            automatically, such as ``.helix/config.toml``; a directory includes everything in it.
        progress: True shows the progress on standard error, in a terminal or a notebook. A function
            is called with the bytes done and the total, perhaps in another thread; an exception
            from it ends the call. False does neither.

    Returns:
        ``world_snapshot``, the snapshot's path or None; ``agents``, the agents' directories by
        name; ``metadata``; ``excluded``, the entries that were not restored, each with ``path`` and
        ``reason``; ``lost_sessions``, the reasons for omitted conversations, by agent name;
        ``git_hosts``, the hosts that git will contact for objects missing in partial clones, by
        agent name and git directory; ``verified``, whether the archive records the digest of every
        member.

    Raises:
        CheckpointFormatError: The archive is not sound.
        CheckpointError: The archive cannot be read, or ``run_dir`` already contains one of its
            entries.
        ConfigError: An argument is wrong.
    """
    options = LoadOptions(path=path, run_dir=run_dir, limits=limits, keep=keep, progress=progress)
    return loader.load(options).result


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return ``metadata.json`` of an archive without extracting files. Blocks.

    Args:
        path: The archive.

    Raises:
        CheckpointFormatError: The archive is not sound.
        CheckpointError: The archive cannot be read.
        ConfigError: ``path`` is not a path.
    """
    return reader.read_metadata(check_read_path(path, "path"))


def _async_twin(
    function: Callable[_P, _T], *, verb: str, cancellation: str
) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Return the async twin of a function; its name has the prefix ``async_``.

    Args:
        function: A blocking function with the keyword ``progress``.
        verb: The action, for a line of progress: ``Saving``.
        cancellation: Documentation of the effect of a cancelled call.
    """

    @functools.wraps(function)
    async def twin(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        call = _ArchiveCall(function, args, kwargs)
        del args, kwargs  # a traceback may print locals, which may be secrets
        return await run_with_progress(call.run, call.progress, verb)

    first, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n")
    twin.__doc__ = "\n\n".join(
        (
            first.removesuffix(" Blocks."),
            "A function as ``progress`` is called in a worker thread.",
            rest.strip(),
            f"Cancellation: {cancellation}",
        )
    )
    twin.__name__ = f"async_{function.__name__}"
    twin.__qualname__ = twin.__name__
    return twin


@attrs.frozen
class _ArchiveCall:
    _function: Callable[..., Any]
    _args: tuple[Any, ...] = attrs.field(repr=False)
    _kwargs: dict[str, Any] = attrs.field(repr=False)

    @property
    def progress(self) -> ProgressLike:
        return check_progress(self._kwargs.get("progress", False), "progress")

    def run(self, hook: Report) -> Any:  # noqa: ANN401 - the function's result
        return self._function(*self._args, **{**self._kwargs, "progress": hook})


async_save_checkpoint = _async_twin(
    save_checkpoint,
    verb="Saving",
    cancellation="removes the partial archive; if it was already being published, it is\n"
    "    complete and registered.",
)

async_load_checkpoint = _async_twin(
    load_checkpoint,
    verb="Loading",
    cancellation="leaves the run directory unchanged; if the state was already being moved\n"
    "    into place, all of it is there.",
)


async def async_read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return ``metadata.json`` like :func:`read_metadata`.

    Args:
        path: The archive.

    Raises:
        CheckpointFormatError: The archive is not sound.
        CheckpointError: The archive cannot be read.
        ConfigError: ``path`` is not a path.

    Cancellation: waits until the file is read; has no other effect.
    """
    return await run_blocking(read_metadata, path)
