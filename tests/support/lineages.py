"""Run directories that are written without a run, for the tests of lineages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from clawblox.rundir.manifest import manifest_path

MANY: dict[str, Any] = {"schema_version": 1}


def write_manifest(directory: Path, document: object) -> None:
    path = manifest_path(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def write_run(run: Path, instances: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write the manifests of a run directory with many instances."""
    entries = [{"name": name, "dir": f"worlds/{name}"} for name in instances]
    write_manifest(run, {"schema_version": 1, "instances": entries})
    for name, document in instances.items():
        write_manifest(run / "worlds" / name, document)
    return run


def save_of(name: str, number: int, time: float | None = None, **more: Any) -> dict[str, Any]:
    """Return the entry of save ``number`` of an instance, made in that second of a minute."""
    return {
        "instance": name,
        "path": f"checkpoints/{name}-{number}.json",
        "time": float(number) if time is None else time,
        "created_at": f"2026-06-22T18:{number // 60:02}:{number % 60:02}Z",
        "size_bytes": 1000 + number,
        "sha256": f"digest of {name}-{number}",
        "run_id": f"{name}-run",
        **more,
    }


def run_of(name: str, parent: tuple[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """Return the section ``run`` of an instance, forked from a save of another or fresh."""
    run = {"id": f"{name}-run", "status": "complete", "started_at": "2026-06-22T18:00:00Z", **more}
    if parent is not None:
        run["resume_from"] = f"../{parent[0]}/checkpoints/{parent[0]}-{parent[1]}.json"
        run["parent_sha256"] = f"digest of {parent[0]}-{parent[1]}"
    return run


def make_restart(
    name: str, at: int, source: int | None, *, by: str | None = None, **more: Any
) -> dict[str, Any]:
    """Return the entry of a restart at a second, from a save of the instance or fresh."""
    path = None if source is None else f"checkpoints/{name}-{source}.json"
    entry = {
        "number": 1,
        "at": f"2026-06-22T18:00:{at:02}Z",
        "exit": "killed by SIGKILL",
        "resume_from": path,
        "run_id": f"{name}-run",
        "by": by,
        **more,
    }
    return {key: value for key, value in entry.items() if value is not None}


# ------------------------------------------------------------------------ any manifest at all

NAMES = ("w000", "w001", "w010", "<b>&", "a\u202eb")
"""Names in hand-edited manifests; the last two are invalid."""

_texts = st.sampled_from(
    [
        *NAMES,
        *(f"checkpoints/{name}-{number}.json" for name in NAMES[:3] for number in range(3)),
        *(f"../{name}/checkpoints/{name}-1.json" for name in NAMES[:3]),
        *(f"worlds/{name}" for name in NAMES),
        "2026-06-22T18:00:01Z", "2026-06-22", "9999-12-31T23:59:59-23:59", "0001-01-01",
        "policy", "resume", "request", "running", "failed", "complete",
        "", ".", "/", "\0", "\ud800", "\ufffe", "x" * 300, "é\n\x1b[31m", "../../..",
    ]
)  # fmt: skip
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400),
    st.integers(0, 9),
    st.floats(),
    _texts,
)
_values = st.one_of(
    _scalars, st.lists(_scalars, max_size=2), st.dictionaries(_texts, _scalars, max_size=2)
)
_KEYS = (
    "name", "dir", "instance", "path", "time", "created_at", "size_bytes", "sha256", "run_id",
    "removed_at", "number", "at", "exit", "resume_from", "parent_sha256", "by", "labels", "id",
    "status", "started_at", "ended_at",
)  # fmt: skip
_numbers = st.one_of(st.none(), st.integers(0, 3))
_odd = st.dictionaries(st.sampled_from(_KEYS), _values, max_size=2)
_entries = st.one_of(
    st.dictionaries(st.sampled_from(_KEYS), _values),
    _values,
    st.builds(
        lambda entry, odd: {**entry, **odd},
        st.one_of(
            st.builds(save_of, st.sampled_from(NAMES), st.integers(0, 3), st.integers(-5, 5)),
            st.builds(make_restart, st.sampled_from(NAMES), st.integers(0, 3), _numbers),
        ),
        _odd,
    ),
)
_runs = st.one_of(
    _values,
    st.dictionaries(st.sampled_from(_KEYS), _values),
    st.builds(run_of, st.sampled_from(NAMES), st.tuples(st.sampled_from(NAMES), st.integers(0, 3))),
)
_lists = st.one_of(st.lists(_entries, max_size=6), st.lists(_entries, max_size=6), _values)

manifests = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "run": _runs,
            "instances": _lists,
            "checkpoints": _lists,
            "restarts": _lists,
            "schema_version": st.sampled_from([1, 1, 1, 2, None]),
        },
    ),
    st.fixed_dictionaries(
        {"run": _runs, "checkpoints": st.lists(_entries), "restarts": st.lists(_entries)}
    ),
    _values,
)
"""Documents that a world or a person may have written as a manifest."""

listings = st.one_of(
    manifests,
    st.just({"instances": [{"name": name, "dir": f"worlds/{name}"} for name in NAMES[:3]]}),
)
"""Such documents for the run directory; many of them list its instances."""
