"""Check for processes of worlds that a dead orchestrator left behind.

The guard ends them; it cannot if it was killed too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clawblox import protocol
from clawblox.cli.doctor.check import Check, CheckResult, ok, warning
from clawblox.rundir.records import InstanceRecord, read_records
from clawblox.system.process_tree import all_processes, read_process, read_variables

_SHOWN = 3


def _look_for_orphans() -> CheckResult:
    found = dict(_find_orphans())
    if not found:
        return ok("none")
    commands = sorted({f"clawblox stop {shlex.quote(run_dir)}" for run_dir in found.values()})
    pids = ", ".join(map(str, list(found)[:_SHOWN]))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return warning(f"pid {pids}{more}: {'; '.join(commands)}")


def _find_orphans() -> Iterator[tuple[int, str]]:
    """Yield processes of instances whose orchestrator is gone, with their run directory."""
    for pid in all_processes():
        variables = read_variables(pid)
        cookie = variables.get(protocol.INSTANCE_ENV)
        manifest = variables.get(protocol.MANIFEST_ENV)
        if cookie and manifest:
            for run_dir in _possible_run_dirs(Path(manifest)):
                if any(_is_orphan(record, cookie) for record in read_records(run_dir)):
                    yield pid, str(run_dir)


def _possible_run_dirs(manifest: Path) -> tuple[Path, ...]:
    """Return the directory of an instance, and that of a run of which it is one of many."""
    instance_dir = manifest.parent.parent
    return instance_dir, instance_dir.parent.parent


def _is_orphan(record: InstanceRecord, cookie: str) -> bool:
    is_its_own = record.cookie == cookie and not record.is_detached
    return is_its_own and read_process(record.orchestrator_pid) is None


ORPHAN_CHECKS: Final = (
    Check(
        "Processes",
        "left behind",
        _look_for_orphans,
        "Worlds go on that no orchestrator watches; they hold their ports and use the processor.",
        "End them with the commands above.",
    ),
)
