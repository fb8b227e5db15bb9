"""What manifests tell about a run: lineage, saves, archives, recordings. Read again on changes."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.errors import ClawbloxError
from clawblox.rundir.lineage import Lineage, read_lineage
from clawblox.rundir.lives import Origin
from clawblox.rundir.manifest import Manifest, manifest_path, read_manifest
from clawblox.rundir.manifest_entries import objects_in, read_number, read_text
from clawblox.rundir.paths import file_stamp
from clawblox.rundir.recordings import FoundRecording, find_recordings
from clawblox.rundir.records import PathMover, path_mover
from clawblox.rundir.saves import LineageSave
from clawblox.web.site import RunSummary

_KEPT: Final = 4096
"""Number of runs whose history stays in memory."""


@attrs.frozen
class RunHistory:
    """What the manifests of a run tell.

    Attributes:
        lineage: Its lineage.
        saves: Its snapshots and archives, the latest first. An archive is of no instance, so its
            ``instance`` is empty.
        recordings: Its recordings in the order of their numbers, which count from 1.
        origins: The archives and snapshots of other or earlier runs from which it began.
        problem: Why a part is missing; empty if none is.
    """

    lineage: Lineage
    saves: Sequence[LineageSave]
    recordings: Sequence[FoundRecording]
    origins: Sequence[Origin]
    problem: str = ""


def read_history(run: RunSummary) -> RunHistory:
    """Return the history of a run. Blocks."""
    places = [run.directory, *(status.instance_dir for status in run.run.instances)]
    homes = tuple(dict.fromkeys(places))
    manifests = (file_stamp(manifest_path(home)) for home in homes)
    states = ((status.name, status.state) for status in run.run.instances)
    return _read(run.directory, homes, (*manifests, *states))


@functools.lru_cache(maxsize=_KEPT)
def _read(run_dir: Path, homes: Sequence[Path], _stamp: tuple[object, ...]) -> RunHistory:
    lineage, recordings, problems = Lineage(run_dir, ()), [], []
    try:
        lineage = read_lineage(run_dir)
    except ClawbloxError as error:
        problems.append(error.headline)
    with contextlib.suppress(ClawbloxError):  # there is no manifest until an instance is up
        recordings = [*find_recordings(run_dir)]
    move = path_mover(Path(os.path.realpath(run_dir)))
    saves = {save.path: save for instance in lineage.instances for save in instance.saves}
    origins = []
    for home in homes:
        with contextlib.suppress(ClawbloxError):  # among the problems of the lineage
            manifest = read_manifest(home)
            saves = {**{save.path: save for save in _list_archives(manifest, move)}, **saves}
            if (archive := read_text(manifest.run, "resume_archive")) is not None:
                origins.append(Origin(move(_normal(manifest, archive))))
    parents = [
        instance.parent
        for instance in lineage.instances
        if instance.parent is not None and instance.parent.instance in (None, instance.name)
    ]
    return RunHistory(
        lineage,
        sorted(saves.values(), key=lambda save: save.created_at or "", reverse=True),
        recordings,
        tuple({origin.path: origin for origin in origins or parents}.values()),
        "; ".join([*problems, *lineage.problems]),
    )


def _list_archives(manifest: Manifest, move: PathMover) -> Iterator[LineageSave]:
    for entry in objects_in(manifest.checkpoints):
        path = read_text(entry, "path")
        if path is not None and read_text(entry, "instance") is None:
            size = read_number(entry, "size_bytes")
            yield LineageSave(
                instance="",
                run_id=read_text(entry, "run_id") or "",
                path=move(_normal(manifest, path)),
                time=read_number(entry, "time"),
                created_at=read_text(entry, "created_at"),
                size_bytes=None if size is None else int(size),
                sha256=read_text(entry, "sha256"),
                removed_at=read_text(entry, "removed_at"),
                is_autosave=False,
            )


def _normal(manifest: Manifest, path: str) -> Path:
    return Path(os.path.normpath(manifest.resolve(path)))
