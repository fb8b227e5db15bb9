"""With arbitrary numbers in a program's output, its turn ends and its records are strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

from clawblox.agents.drivers import find_driver
from clawblox.agents.drivers.output import reset_in
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.agents.running.program import FileLine, read_reports
from clawblox.agents.usage import Ledger
from clawblox.agents.values import DriverReport, Usage
from clawblox.foreign_values import MAX_NUMBER, finite_number
from clawblox.system.clock import utc_now
from tests.agents.drivers.support import build_setup, recorded_lines, types

RECORDED = {
    "acp-gemini-new.jsonl": "acp",
    "acp-kimi-new.jsonl": "acp",
    "acp-opencode-new.jsonl": "acp",
    "acp-qwen-new.jsonl": "acp",
    "claude-2.1.197.jsonl": "claude",
    "claude-2.1.330-failures.jsonl": "claude",
    "codex-0.169-first.log": "codex",
    "codex-0.169-refused.log": "codex",
    "kimi-2.1.0-first.log": "kimi",
    "kimi-2.1.0-refused.log": "kimi",
    "opencode-1.18.33-first.log": "opencode",
    "opencode-1.18.33-refused.log": "opencode",
}
NUMBERS = ["NaN", "-Infinity", "1e400", "1e300", "9" * 400, "9" * 5000, "-7", "true", '"7"', "[]"]
MARK = "@number@"
NUMBERED = ("id", "protocolVersion")  # without this, no line is an answer


@pytest.fixture(params=NUMBERS, ids=lambda number: number[:9])
def number(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def marked(value: Any, key: str = "") -> Any:
    """Return a JSON value with a mark in place of each number."""
    if isinstance(value, dict):
        return {name: marked(member, name) for name, member in value.items()}
    if isinstance(value, list):
        return [marked(member) for member in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return MARK if is_number and key not in NUMBERED else value


def with_number(line: bytes, number: str) -> bytes:
    """Return a line of output with another number in place of each of its numbers."""
    try:
        text = json.dumps(marked(json.loads(line)))
    except ValueError:
        return line
    return text.replace(f'"{MARK}"', number).encode()


def read_recorded(name: str, number: str | None) -> list[DriverReport]:
    reading = find_driver(RECORDED[name]).read_along(AgentDir(SANDBOX_WORKSPACE))
    lines = recorded_lines(name)
    said = lines if number is None else [with_number(line, number) for line in lines]
    found = read_reports(reading, [FileLine(0, len(line), line) for line in said], "Eko")
    return [report for _, report in found]


def refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


@pytest.mark.parametrize("name", RECORDED)
def test_a_turn_ends_with_arbitrary_numbers_in_its_report(name: str, number: str) -> None:
    reports = read_recorded(name, number)
    expected = read_recorded(name, None)
    for kind in ("session.confirmed", "turn.finished", "message", "error", "retry"):
        assert types(reports).count(kind) == types(expected).count(kind)
    ledger = Ledger.empty()
    for usage in readings(reports):
        ledger.count(usage, conversation_id="s", version=None, scope="turn")
    assert 0 <= ledger.usage.tokens <= 4 * MAX_NUMBER
    assert finite_number(ledger.usage.cost_usd or 0.0) is not None
    for report in reports:
        if report.type == "retry":
            assert 0.0 <= report.data["delay_s"] <= 24 * 3600


def readings(reports: list[DriverReport]) -> Iterator[Usage]:
    return (report.data["usage"] for report in reports if report.type == "usage")


def test_a_retry_delay_is_at_most_a_day() -> None:
    lines = {
        "claude": '{"type":"system","subtype":"api_retry","retry_delay_ms":%s,"error_status":%s}',
        "kimi": '{"role":"meta","type":"turn.step.retrying","delay_ms":%s,"status_code":%s}',
    }
    for name, line in lines.items():
        for delay, seconds in [("2500", 2.5), ("1e300", 0.0), ("true", 0.0), ("-1", 0.0)]:
            reading = find_driver(name).read_along(AgentDir(SANDBOX_WORKSPACE))
            [retry] = reading.read((line % (delay, "1e300")).encode())
            assert (retry.data["delay_s"], retry.data["status"]) == (seconds, None)


@pytest.mark.parametrize("number", ["9" * 5000, "NaN", "1e400"])
def test_the_settings_of_a_program_are_strict_json(number: str, tmp_path: Path) -> None:
    directory = AgentDir(tmp_path)
    for path in (directory.state, directory.workspace):
        path.mkdir(parents=True)
    place = directory.state / ".claude.json"
    place.write_text('{"theirs": "kept", "count": %s}' % number)  # noqa: UP031 - braces
    find_driver("claude").prepare(build_setup(directory), {})
    written = json.loads(place.read_text(), parse_constant=refuse)
    assert (written["theirs"], written["count"]) == ("kept", None)


PRESENT = int(utc_now().timestamp())
DAY = 24 * 3600


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, "soon", [], {}, -1, 0, 1.5, math.nan, math.inf, 10**400),
        *(PRESENT - 2 * DAY, PRESENT + 31 * DAY, PRESENT * 1000),
    ],
    ids=[f"value{index}" for index in range(14)],  # all all workers must name the tests alike
)
def test_a_limit_whose_end_is_not_plausible_has_no_end(value: object) -> None:
    assert reset_in({"resets_at": value}, "resets_at") is None
    assert reset_in({}, "resets_at") is None


@pytest.mark.parametrize(
    "seconds", [PRESENT - 60, PRESENT, PRESENT + 29 * DAY], ids=["past", "now", "later"]
)
def test_the_end_of_a_limit_is_a_utc_time(seconds: int) -> None:
    assert reset_in({"resets_at": seconds}, "resets_at") == datetime.fromtimestamp(seconds, UTC)
