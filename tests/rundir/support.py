"""Reads run directories without the code under test, and writes records."""

import json
import os
from pathlib import Path
from typing import Any

from clawblox.rundir.paths import records_dir
from clawblox.rundir.records import InstanceRecord, write_records
from clawblox.system.files import make_private_dir
from clawblox.system.process_tree import boot_id, read_start_time


def records_on_disk(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a run directory by name, read as docs/manifest.md describes."""
    text = (run_dir / ".clawblox" / "instances" / "records.jsonl").read_text()
    return {record["name"]: record for record in map(json.loads, text.splitlines())}


def make_record(run_dir: Path, pid: int, **fields: Any) -> InstanceRecord:
    """Write and return the record of an instance with the process ``pid``, or 0.

    The orchestrator is this process unless ``fields`` override it.
    """
    texts = ("base_path", "command_file", "log_file", "started_at", "control")
    known: dict[str, Any] = {
        **dict.fromkeys(texts, ""),
        **dict.fromkeys(("index", "ended_at", "resume_path", "exit"), None),
        **dict.fromkeys(("log_start", "restarts"), 0),
        "name": "w000",
        "state": "ready",
        "world": "counter",
        "world_dir": str(run_dir),
        "instance_dir": str(run_dir),
        "host": "127.0.0.1",
        "port": 20001,
        "url": "http://127.0.0.1:20001",
        "pid": pid,
        "start_time": read_start_time(pid) if pid else 0,
        "boot_id": boot_id(),
        "cookie": "a",
        "is_detached": False,
        "orchestrator_pid": os.getpid(),
    }
    record = InstanceRecord(**{**known, **fields})
    make_private_dir(records_dir(run_dir))
    write_records(run_dir, record)
    return record
