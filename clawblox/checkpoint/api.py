"""Saving and loading checkpoints: the documented functions, and their async twins.

The twins run the same code in a worker thread; a cancellation ends it through its progress hook.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from clawblox.checkpoint.archive import reader
from clawblox.checkpoint.load import load as loader
from clawblox.checkpoint.model import Allowance, Limits
from clawblox.checkpoint.progress import Report
from clawblox.checkpoint.request import OnUnarchivable, check_request, checked_secrets
from clawblox.checkpoint.save import save
from clawblox.concurrency.threads import run_blocking, run_interruptible
from clawblox.config.arguments import check_path, check_read_path

__all__ = [
    "DEFAULT_IDLE_WAIT_S",
    "async_load_checkpoint",
    "async_read_metadata",
    "async_save_checkpoint",
    "load_checkpoint",
    "read_metadata",
    "run_with_progress",
    "save_checkpoint",
]

DEFAULT_IDLE_WAIT_S = 2.0
"""So long a save waits for an idle moment of its agents when nobody says otherwise."""

_T = TypeVar("_T")


def save_checkpoint(
    path: str | os.PathLike[str],
    world_snapshot: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    agents: Mapping[str, str | os.PathLike[str]] | None = None,
    backend: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    workspace_only: bool = False,  # noqa: FBT001, FBT002, RUF100 - the documented signature
    *,
    known_secrets: Iterable[str] = (),
    allow: Iterable[Allowance] = (),
    idle_wait: float = DEFAULT_IDLE_WAIT_S,
    on_unarchivable: OnUnarchivable = "raise",
    overwrite: bool = False,
    progress: Report | None = None,
) -> Path:
    """Make one archive of a world's document and its agents' state. Blocks.

    The archive is complete or absent at every instant, and another that is there already stays
    until the new one is complete. When its directory lies in a run, the run's manifest names it.

    Args:
        path: The archive, ``*.ckpt``; its directory is made when it is missing.
        world_snapshot: The world's document: its path, or what ``save`` returned, whose digest is
            then checked. It travels as it is. None leaves it out.
        agents: The agents' directories by name.
        backend: The driver of all agents, ``claude`` for instance; None asks each directory.
        metadata: JSON values that go to the top level of ``metadata.json``.
        workspace_only: Leave the conversations out; the right choice for what is shared.
        known_secrets: Secrets to look for, besides the tokens of the worlds that run, those in
            this process's environment and those in the agents' homes.
        allow: Findings that are no secrets, besides those in ``secret-allow.json`` of the run.
        idle_wait: Seconds to wait for a moment in which no agent is in the middle of a turn.
        on_unarchivable: What becomes of files and directories that may not be read or whose names
            cannot stand in an archive: ``raise`` refuses the archive, ``record`` lists them as
            excluded.
        overwrite: Replace an archive of that name.
        progress: Called with bytes done and bytes in all (0 and 0 while it waits for an idle
            moment); what it raises ends the save.

    Returns:
        ``path``.

    Raises:
        ConfigError: An argument cannot be.
        CheckpointSecretError: The archive would have carried a secret; there is none.
        CheckpointError: It cannot be made, and nothing is left of it; or it is complete, and
            perhaps not durable, or not in the manifest, as the message says.
    """
    known_secrets = checked_secrets(known_secrets)
    request = check_request(
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
        overwrite=overwrite,
    )
    save(request, progress)
    return Path(path)


def load_checkpoint(
    path: str | os.PathLike[str],
    run_dir: str | os.PathLike[str],
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    progress: Report | None = None,
) -> dict[str, Any]:
    """Put the state in an archive into a run directory. Blocks.

    Args:
        path: The archive.
        run_dir: Where it goes; the directory may hold other things, and a refused load leaves
            it exactly as it was.
        limits: How large the archive may be.
        progress: Called with bytes done and bytes in all; what it raises ends the load.

    Returns:
        ``world_snapshot``, the document's path or None; ``agents``, the agents' directories by
        name; ``metadata``; ``excluded``, what was not put there, each with ``path`` and
        ``reason``; ``verified``, whether the archive names the digest of every member.

    Raises:
        CheckpointFormatError: It is no sound archive.
        CheckpointError: It cannot be read, or something is in its way in ``run_dir``.
        ConfigError: One of the paths is none.
    """
    archive, target = check_read_path(path, "path"), check_path(run_dir, "run_dir")
    return loader.load(archive, target, limits=limits, progress=progress)


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return ``metadata.json`` of an archive; nothing is extracted. Blocks.

    Raises:
        CheckpointFormatError: It is no sound archive.
        CheckpointError: It cannot be read.
        ConfigError: The path is none.
    """
    return reader.read_metadata(check_read_path(path, "path"))


async def async_save_checkpoint(
    path: str | os.PathLike[str],
    world_snapshot: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    agents: Mapping[str, str | os.PathLike[str]] | None = None,
    backend: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    workspace_only: bool = False,  # noqa: FBT001, FBT002, RUF100 - as its twin
    *,
    known_secrets: Iterable[str] = (),
    allow: Iterable[Allowance] = (),
    idle_wait: float = DEFAULT_IDLE_WAIT_S,
    on_unarchivable: OnUnarchivable = "raise",
    overwrite: bool = False,
    progress: Report | None = None,
) -> Path:
    """Do as :func:`save_checkpoint` does; ``progress`` is called in a worker thread.

    Cancellation: nothing of the archive is left; one that was being published by then is
    complete and registered.
    """
    known_secrets = checked_secrets(known_secrets)
    return await run_with_progress(
        lambda hook: save_checkpoint(
            path,
            world_snapshot,
            agents,
            backend,
            metadata,
            workspace_only,
            known_secrets=known_secrets,
            allow=allow,
            idle_wait=idle_wait,
            on_unarchivable=on_unarchivable,
            overwrite=overwrite,
            progress=hook,
        ),
        progress,
    )


async def async_load_checkpoint(
    path: str | os.PathLike[str],
    run_dir: str | os.PathLike[str],
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    progress: Report | None = None,
) -> dict[str, Any]:
    """Do as :func:`load_checkpoint` does; ``progress`` is called in a worker thread.

    Cancellation: the run directory is as it was; or all of the archive is in it, when that was
    being put in its place by then.
    """
    return await run_with_progress(
        lambda hook: load_checkpoint(path, run_dir, limits=limits, progress=hook), progress
    )


async def async_read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Do as :func:`read_metadata` does.

    Cancellation: waits for it; nothing is changed anyhow.
    """
    return await run_blocking(read_metadata, path)


class _Interrupted(Exception):  # noqa: N818 - says the condition; it never leaves this module
    """The caller was cancelled."""


async def run_with_progress(function: Callable[[Report], _T], report: Report | None) -> _T:
    """Run ``function(hook)`` in a worker thread; a cancellation makes the hook raise.

    Args:
        function: What blocks; it calls the hook with bytes done and bytes in all.
        report: Takes what the hook is called with, in the worker thread.

    Raises:
        Exception: What ``function`` raises.

    Cancellation: waits for the function, which ends as soon as it calls the hook.
    """
    is_cancelled = threading.Event()

    def hook(done: int, total: int) -> None:
        if is_cancelled.is_set():
            raise _Interrupted
        if report is not None:
            report(done, total)

    return await run_interruptible(partial(function, hook), is_cancelled.set)
