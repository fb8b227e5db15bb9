"""Every driver can read the output of its program without talking to the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox.agents.drivers import DRIVERS, find_driver
from clawblox.agents.layout import AgentDir
from tests.agents.drivers.support import NEW_ID


@pytest.mark.parametrize("name", DRIVERS)
@pytest.mark.parametrize("conversation_id", [None, NEW_ID])
def test_a_driver_reads_output_without_starting_its_program(
    tmp_path: Path, name: str, conversation_id: str | None
) -> None:
    conversation = find_driver(name).read_along(AgentDir(tmp_path), conversation_id)
    for line in (b"words", b'{"type": "unknown"}', b""):
        conversation.read(line)
    assert list(tmp_path.iterdir()) == []


def test_protocol_answers_are_recognised_from_any_line(tmp_path: Path) -> None:
    usage = {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12}
    answer = {"stopReason": "end_turn", "usage": usage}
    lines = [
        {"id": 1, "result": {"agentCapabilities": {}, "protocolVersion": 1}},
        {"id": 2, "result": {"sessionId": "s1"}},
        {"id": 3, "result": {}},  # a model was chosen
        {"id": 4, "result": answer},
        {"id": 5, "result": answer},
        {"id": 6, "error": {"code": 1, "message": "429"}},
    ]
    for first in range(5):
        reading = find_driver("acp").read_along(AgentDir(tmp_path))
        said = [json.dumps({"jsonrpc": "2.0", **line}).encode() for line in lines[first:]]
        reports = [report for line in said for report in reading.read(line)]
        kinds = [report.type for report in reports if report.type != "turn.started"]
        turns = min(2, 5 - first)
        opening = ["session.confirmed"] * (first == 0)
        finished = ["usage", "turn.finished"] * turns + ["error", "turn.finished"]
        assert kinds == [*opening, *finished]
