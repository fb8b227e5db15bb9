"""Script errors that do not halt a world, and their visibility."""

from __future__ import annotations

from unittest.mock import PropertyMock

import pytest

from clawblox.server import Clock, ScriptErrors, Settings
from tests.server.conftest import TOKEN
from tests.server.tally import Tally

pytestmark = pytest.mark.anyio

OPERATOR = {"X-Operator-Token": TOKEN}
ERRORS = ScriptErrors(3, "main.lua:20: attempt to index nil with 'HumanoidRootPart'")


@pytest.fixture(params=Clock)
def settings(request):
    return Settings(operator_token=TOKEN.encode(), clock=request.param)


async def test_an_operator_is_shown_script_errors_and_an_agent_is_not(client, monkeypatch):
    monkeypatch.setattr(Tally, "script_errors", PropertyMock(return_value=ERRORS))
    session = (await client.post("/join?name=Rocky")).json()["session"]
    shown = (await client.get("/health", headers=OPERATOR)).json()
    assert shown == {"status": "ok", "errors": 3, "last_error": ERRORS.last}
    for headers in ({}, {"X-Session": session}, {"X-Operator-Token": "guessed"}):
        answer = await client.get("/health", headers=headers)
        assert answer.content == b'{"status":"ok"}'
    for path in ("/observe", "/api.md", "/chat/messages"):
        answer = await client.get(path, headers={"X-Session": session})
        assert "error" not in answer.text


async def test_a_world_without_script_errors_answers_as_before(client):
    answer = await client.get("/health", headers=OPERATOR)
    assert answer.content == b'{"status":"ok"}'
