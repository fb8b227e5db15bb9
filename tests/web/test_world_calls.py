"""Requests to the world among tool calls, and the changes in their answers."""

from __future__ import annotations

import json

import pytest

from clawblox.web.world_calls import Observed, WorldCall, read_world_call

URL = "http://127.0.0.1:2378"
STEER = json.dumps({"type": "Steer", "data": {"direction": [0.5, -1]}})
SHOWN = 'Steer {"direction": [0.5, -1]}'


@pytest.mark.parametrize(
    ("command", "verb", "words"),
    [
        (f"curl -s {URL}/observe", "looks", ""),
        (f"curl -s '{URL}/observe' | python3 -m json.tool", "looks", ""),
        (f"curl {URL}/api.md", "reads", "api.md"),
        (f"curl -s {URL}/chat/messages?since=3", "listens", ""),
        (f"curl -X POST {URL}/input -d '{STEER}'", "acts", SHOWN),
        (f"curl -d '{STEER}' \\\n  {URL}/input", "acts", SHOWN),
        (f"curl $CLAWBLOX_WORLD_URL/input -d '{STEER}'", "acts", SHOWN),
        (f'curl {URL}/input -d \'{{"type": "Jump"}}\'', "acts", "Jump"),
        (f"curl {URL}/input -d 'no <json>'", "acts", "no <json>"),
        (f"curl {URL}/input -d @body.json", "acts", ""),
        (f'curl {URL}/chat -d \'{{"content": "a; b && c"}}\'', "says", "a; b && c"),
    ],
)
def test_single_world_request_is_described_by_its_action(
    command: str, verb: str, words: str
) -> None:
    assert read_world_call({"command": command}, URL) == WorldCall(verb, words)
    assert read_world_call({"cmd": ["bash", "-lc", command]}, URL) == WorldCall(verb, words)


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        f"curl {URL}/observe && curl {URL}/observe",
        f"curl {URL}/observe {URL}/observe",
        f"curl {URL}/observe; rm -rf notes",
        f"for i in 1 2; do curl {URL}/observe; done",
        f"curl $(cat address) {URL}/observe",
        f"curl {URL}9/observe",
        "curl http://example.com/observe",
        f"curl http://example.com/?x={URL}/observe",
        f"curl {URL}/snapshot",
        f"curl {URL}",
    ],
)
def test_other_commands_are_not_world_calls(command: str) -> None:
    assert read_world_call({"command": command}, URL) is None


def test_calls_are_not_world_calls_without_an_address() -> None:
    assert read_world_call({"command": "curl /observe"}, "") is None
    assert read_world_call({"command": {"x": 1}}, URL) is None
    assert read_world_call({}, URL) is None


def test_tools_for_requests_are_understood() -> None:
    assert read_world_call({"url": f"{URL}/observe"}, URL) == WorldCall("looks")
    body = {"type": "Steer", "data": {"direction": [0.5, -1]}}
    given = {"url": f"{URL}/input", "method": "POST", "body": body}
    assert read_world_call(given, URL) == WorldCall("acts", SHOWN)


def test_long_words_are_cut() -> None:
    long = read_world_call({"command": f"curl {URL}/chat -d '{'x' * 5000}'"}, URL)
    assert long is not None
    assert len(long.words) < 400
    assert read_world_call({"command": f"curl {URL}/chat -d '{'x' * 10**7}'"}, URL) is None


def test_answer_is_described_by_its_changes_with_names_for_ids() -> None:
    ada = {"id": "a1b2-c3", "name": "Ada", "score": 0, "position": [1, 2]}
    before = {"tick": 0, "time": 23, "player": ada, "ball": {"last": None}}
    after = {
        **before,
        "tick": 15,
        "time": 23.25,
        "player": {**ada, "score": 1, "position": [1, 3]},
        "ball": {"last": "a1b2-c3"},
    }
    observed = Observed()
    assert observed.describe(json.dumps(before)).startswith("{tick: 0, time: 23")
    assert observed.describe(f"200 {json.dumps(after)}") == (
        'time 23 → 23.25 · player.score 0 → 1 · ball.last null → "Ada" · '
        "player.position [1, 2] → [1, 3]"
    )
    assert observed.describe(json.dumps(after)) == "no changes"


def test_objects_of_lists_are_named() -> None:
    def seen(score: int) -> str:
        return json.dumps({"time": score, "others": [{"id": "b-7", "name": "Bo", "score": score}]})

    observed = Observed()
    observed.describe(seen(0))
    assert observed.describe(seen(4)) == "time 0 → 4 · others[Bo].score 0 → 4"


def test_other_answers_keep_the_last_observation() -> None:
    observed = Observed()
    observed.describe('{"time": 1}')
    assert observed.describe('{"error": "no such input"}') == '{error: "no such input"}'
    assert observed.describe("<html>") == ""
    assert observed.describe("{" * 100_000) == ""
    assert observed.describe('{"time": 2}') == "time 1 → 2"


def test_many_changes_are_counted() -> None:
    observed = Observed()
    observed.describe(json.dumps({"time": 0, **{f"n{i}": 0 for i in range(100)}}))
    words = observed.describe(json.dumps({"time": 1, **{f"n{i}": 1 for i in range(100)}}))
    assert words.endswith(" · and 93 more")
    assert len(words) < 1000
