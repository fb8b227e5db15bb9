"""The stand-in for Kimi Code behaves like the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox.agents.programs.kimi import work_dir_key
from tests.agents.standins import ANSWER, told
from tests.agents.standins.running import Ended, StandIn

pytestmark = pytest.mark.thorough


KIMI = ["--output-format", "stream-json"]


@pytest.fixture
def kimi(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, "kimi")


def session(ended: Ended) -> str:
    [hint] = ended.of("session.resume_hint")
    return hint["session_id"]


def wires(kimi: StandIn) -> list[Path]:
    return sorted(kimi.state.glob("sessions/*/*/agents/main/wire.jsonl"))


def test_a_turn_has_the_format_of_the_real_program(kimi: StandIn) -> None:
    ended = kimi.run("-p", "RUN echo hello", *KIMI)
    assert ended.status == 0
    shapes = [(record["role"], record.get("type")) for record in ended.records]
    assert shapes == [
        ("meta", "system.version"),
        ("assistant", None),
        ("tool", None),
        ("assistant", None),
        ("meta", "session.resume_hint"),
    ]
    assert ended.records[2]["content"] == "hello\n"
    assert ended.errors == "hello\n", "what its tools print is on standard error too"
    [wire] = wires(kimi)
    folder = wire.parents[2]
    assert folder.name == session(ended)
    assert folder.parent.name == work_dir_key(kimi.workspace)
    assert json.loads((folder / "state.json").read_text())["cwd"] == str(kimi.workspace)


def test_a_continued_conversation_keeps_its_first_system_prompt(kimi: StandIn) -> None:
    (kimi.state / "SYSTEM.md").write_text("S")
    first = kimi.run("-p", "one", *KIMI)
    (kimi.state / "SYSTEM.md").write_text("other")
    again = kimi.run("--prompt=WHO", *KIMI, "-r", session(first))
    assert session(again) == session(first)
    assert told(wires(kimi)[0]) == ["one", "WHO"]
    assert json.loads(again.records[1]["content"]) == {"system": "S", "told": ["one", "WHO"]}


def test_a_conversation_is_on_disk_before_the_output_names_it(kimi: StandIn) -> None:
    kimi.misbehave(crash_at_session={"signal": 9})
    ended = kimi.run("-p", "one", *KIMI)
    assert (ended.status, [record["type"] for record in ended.records]) == (-9, ["system.version"])
    assert told(wires(kimi)[0]) == ["one"]


def test_an_unknown_conversation_is_refused(kimi: StandIn) -> None:
    ended = kimi.run("-p", "x", *KIMI, "-r", "session_x")
    assert (ended.status, len(ended.records)) == (1, 1)
    assert ended.errors.startswith('error: failed to run prompt: Session "session_x" not found.')


def test_a_conversation_of_another_directory_is_refused(kimi: StandIn) -> None:
    first = kimi.run("-p", "one", *KIMI)
    ended = kimi.run("-p", "two", *KIMI, "-r", session(first), cwd=kimi.home)
    assert (ended.status, len(ended.records)) == (1, 1)
    assert "was created under a different directory." in ended.errors


def test_an_empty_transcript_is_refused_and_a_torn_line_is_dropped(kimi: StandIn) -> None:
    first = kimi.run("-p", "one", *KIMI)
    kimi.misbehave(torn={"times": 1})
    assert kimi.run("-p", "two", *KIMI, "-r", session(first)).status == 1
    assert not wires(kimi)[0].read_bytes().endswith(b"\n")
    assert kimi.run("-p", "three", *KIMI, "-r", session(first)).status == 0
    assert told(wires(kimi)[0]) == ["one", "two", "three"]
    wires(kimi)[0].write_bytes(b"")
    ended = kimi.run("-p", "x", *KIMI, "-r", session(first))
    assert (ended.status, len(ended.records)) == (1, 1)
    assert "model.not_configured" in ended.errors


@pytest.mark.parametrize(("status", "attempts"), [(400, 0), (401, 0), (429, 9)])
def test_an_error_of_the_model_is_printed_to_standard_error(
    kimi: StandIn, status: int, attempts: int
) -> None:
    kimi.misbehave(api_error=status)
    ended = kimi.run("-p", "x", *KIMI)
    assert ended.status == 1
    assert f": {status} " in ended.errors
    assert len(ended.of("turn.step.retrying")) == attempts
    assert not ended.of("session.resume_hint")


def test_an_unknown_flag_is_refused(kimi: StandIn) -> None:
    ended = kimi.run("-p", "x", "--frobnicate")
    assert (ended.status, ended.errors) == (1, "error: unknown option '--frobnicate'\n")


def test_another_conversation_is_continued_if_configured(kimi: StandIn) -> None:
    first = kimi.run("-p", "one", *KIMI)
    kimi.misbehave(wrong_id=True)
    assert session(kimi.run("-p", "two", *KIMI, "-r", session(first))) != session(first)


def test_usage_is_only_on_disk(kimi: StandIn) -> None:
    ended = kimi.run("-p", "x", *KIMI)
    assert "usage" not in ended.output
    records = map(json.loads, wires(kimi)[0].read_text().splitlines())
    [used] = [record["usage"] for record in records if record["type"] == "usage.record"]
    assert used["inputOther"] == 11
    assert ended.records[1]["content"] == ANSWER
