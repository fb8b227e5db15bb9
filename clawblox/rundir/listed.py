"""Instances named in a manifest, for run directories without records.

These are runs of older versions, archives without ``.clawblox/instances``, and runs of programs
that only write a manifest. The instances can only be shown, not stopped or resumed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from clawblox.foreign_values import clean_value
from clawblox.rundir.manifest import Manifest, manifest_path, try_read_manifest
from clawblox.rundir.manifest_entries import ManifestEntry, objects_in, read_text
from clawblox.rundir.paths import STATE_DIR_NAME, run_dir_candidates
from clawblox.rundir.records import MEMBERS_DIR, InstanceRecord, has_records, read_located
from clawblox.system.clock import parse_utc

_EndState: TypeAlias = Literal["exited", "failed", "interrupted"]
_STATES: Final[Mapping[str, _EndState]] = {
    "complete": "exited",
    "failed": "failed",
    "interrupted": "interrupted",
}
"""The states of instances without a record, by the status of their run."""
_UNKNOWN: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("world", "world_dir", "host", "base_path", "url", "control"), ""),
    **dict.fromkeys(("boot_id", "cookie", "command_file"), ""),
    **dict.fromkeys(("port", "pid", "start_time", "log_start", "orchestrator_pid"), 0),
    **dict.fromkeys(("index", "exit")),
    "is_detached": False,
}
"""Members of a record that manifests do not contain."""


def is_run_dir(directory: Path) -> bool:
    """Return whether a directory has records, or a manifest and is not part of a run. Blocks."""
    if has_records(directory):
        return True
    if not os.path.isfile(manifest_path(directory)):  # noqa: PTH113 - no error for a closed one
        return False
    is_member = directory.parent.name == MEMBERS_DIR
    return not (is_member and any(map(is_run_dir, run_dir_candidates(directory)[2:])))


def read_listed(run_dir: Path) -> list[InstanceRecord]:
    """Return the records of a run directory, or records made from its manifest. Blocks.

    Records made from a manifest describe instances that have ended or whose state is unknown.

    Args:
        run_dir: The run directory; it may have been moved.

    Raises:
        ManifestError: A later version of clawblox has written the records.
    """
    return read_located(run_dir) or _make_records(Path(os.path.realpath(run_dir)))


def list_instances(manifest: Manifest) -> dict[str, Path]:
    """Return the directories of the instances in the manifest of a run, by instance name."""
    listed: dict[str, Path] = {}
    for entry in objects_in(manifest.instances):
        name, directory = read_text(entry, "name"), read_text(entry, "dir")
        if name and directory:
            listed.setdefault(name, Path(os.path.normpath(manifest.resolve(directory))))
    for entry in objects_in(manifest.checkpoints):
        if name := read_text(entry, "instance"):
            listed.setdefault(name, manifest.state_root)
    return listed


def state_in(run: ManifestEntry) -> _EndState | None:
    """Return the state of an instance from the ``run`` section of its manifest; None if unknown."""
    return _STATES.get(read_text(run, "status") or "")


def clean_labels(labels: object) -> Mapping[str, Any]:
    """Return the labels that can be shown; a world may have written others."""
    cleaned = clean_value(labels) if isinstance(labels, Mapping) else {}
    return {key: value for key, value in cleaned.items() if isinstance(value, str | int | float)}


def _make_records(run_dir: Path) -> list[InstanceRecord]:
    if not manifest_path(run_dir).is_file():
        return []
    top = try_read_manifest(run_dir)
    listed = list_instances(top) or {run_dir.name: run_dir}
    return [
        _make_record(name, directory, top if directory == run_dir else try_read_manifest(directory))
        for name, directory in sorted(listed.items())
    ]


def _make_record(name: str, directory: Path, manifest: Manifest) -> InstanceRecord:
    run, run_id = manifest.run, read_text(manifest.run, "id") or ""
    logs = [place / "logs" / f"{name}.log" for place in (directory, directory / STATE_DIR_NAME)]
    origin = read_text(run, "resume_from")
    ids = [read_text(entry, "run_id") or "" for entry in objects_in(manifest.restarts)]
    return InstanceRecord(
        **_UNKNOWN,
        name=name,
        state=state_in(run) or "unknown",
        instance_dir=str(directory),
        log_file=str(next(filter(os.path.isfile, logs), logs[0])),
        started_at=_read_time(run, "started_at") or "",
        ended_at=_read_time(run, "ended_at"),
        resume_path=origin and str(manifest.resolve(origin)),
        restarts=sum(other in ("", run_id) for other in ids),
        run_id=run_id,
        options={"labels": clean_labels(run.get("labels")), "reseed": run.get("seed")},
        stopped_on_purpose=True,
    )


def _read_time(run: ManifestEntry, key: str) -> str | None:
    text = read_text(run, key)
    return text if parse_utc(text) is not None else None
