"""What tests read of a run directory without the code under test."""

import json
from pathlib import Path
from typing import Any


def records_on_disk(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a run directory by name, read as docs/manifest.md tells."""
    text = (run_dir / ".clawblox" / "instances" / "records.jsonl").read_text()
    return {record["name"]: record for record in map(json.loads, text.splitlines())}
