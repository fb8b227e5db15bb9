"""The record of an attempt's agents, whose names become paths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox.errors import UsageError
from clawblox.experiment.live.attempt_files import (
    AttemptRecord,
    RecordedAgent,
    read_record,
    write_record,
)


def test_record_is_read_back_unchanged(tmp_path: Path) -> None:
    agent = RecordedAgent(name="Eko-rexp-g001-w0-a0", forked_from="Eko-rexp-g000-w0-a0")
    record = AttemptRecord(agents=(agent,), snapshot="checkpoints/world.json", agents_of="exp-g000")
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record


@pytest.mark.parametrize("member", ["name", "forked_from", "snapshot", "agents_of"])
@pytest.mark.parametrize("value", ["..", "../../outside", "/outside", "a/../../b", ""])
def test_a_record_that_names_a_place_elsewhere_is_refused(
    tmp_path: Path, member: str, value: str
) -> None:
    write_record(tmp_path, AttemptRecord(agents=(RecordedAgent(name="Eko"),)))
    path = tmp_path / ".clawblox" / "attempt.json"
    content = json.loads(path.read_text())
    owner = content if member in ("snapshot", "agents_of") else content["agents"][0]
    owner[member] = value
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"attempt\.json cannot be used"):
        read_record(tmp_path)
