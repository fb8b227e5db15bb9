"""The stand-in for ACP programs behaves like them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.standins import ANSWER
from tests.agents.standins.running import StandIn
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.thorough


class Client:
    """A client that allows everything by default."""

    def __init__(self, process: subprocess.Popen[str], workspace: Path) -> None:
        self.process = process
        self.place = {"cwd": str(workspace), "mcpServers": []}
        self.updates: list[dict[str, Any]] = []
        self.requests = 0
        self.choice = "approve_once"

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer to a request; answer the program's requests in the meantime."""
        assert self.process.stdout is not None
        self.requests += 1
        self.send(id=self.requests, method=method, params=params)
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("method") == "session/update":
                self.updates.append(message["params"]["update"])
            elif message.get("method") == "session/request_permission":
                outcome = {"outcome": "selected", "optionId": self.choice}
                self.send(id=message["id"], result={"outcome": outcome})
            elif message["id"] == self.requests:
                return message
        raise AssertionError("it ended")

    def new(self) -> str:
        return self.ask("session/new", **self.place)["result"]["sessionId"]

    def prompt(self, session: str, text: str) -> dict[str, Any]:
        prompt = [{"type": "text", "text": text}]
        return self.ask("session/prompt", sessionId=session, prompt=prompt)

    def load(self, session: str) -> dict[str, Any]:
        return self.ask("session/load", sessionId=session, **self.place)

    def texts(self, kind: str) -> list[str]:
        return [
            update["content"]["text"] for update in self.updates if update["sessionUpdate"] == kind
        ]


@pytest.fixture(params=["acp", "kimi"])
def standin(request: pytest.FixtureRequest, tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, request.param)


@pytest.fixture
def client(standin: StandIn) -> Iterator[Client]:
    arguments = ["acp"] if standin.program == "kimi" else []
    with standin.started(*arguments, stdin=subprocess.PIPE) as process:
        yield Client(process, standin.workspace)


def test_a_conversation_is_started_continued_and_loaded(client: Client) -> None:
    hello = client.ask("initialize", protocolVersion=1, clientCapabilities={})["result"]
    assert hello["agentCapabilities"]["loadSession"] is True
    session = client.new()
    assert client.prompt(session, "one")["result"] == {"stopReason": "end_turn"}
    assert client.texts("agent_message_chunk") == [ANSWER]
    client.updates.clear()
    assert "result" in client.load(session)
    assert client.texts("user_message_chunk") == ["one"]


def test_the_program_ends_with_its_input(client: Client) -> None:
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert client.process.wait(HANG_S) == 0


def test_permission_for_a_tool_is_requested(client: Client, standin: StandIn) -> None:
    session = client.new()
    client.prompt(session, "RUN touch done")
    assert (standin.workspace / "done").exists()
    client.choice = "reject"
    client.prompt(session, "RUN touch never")
    assert not (standin.workspace / "never").exists()
    client.ask("session/set_mode", sessionId=session, modeId="yolo")
    client.prompt(session, "RUN touch unasked")
    assert (standin.workspace / "unasked").exists()


def test_an_unknown_request_is_refused(client: Client, standin: StandIn) -> None:
    assert client.ask("nonsense")["error"]["code"] == -32601
    assert client.load("session_x")["error"]["code"] == -32602
    standin.misbehave(loads_unknown=True)
    assert "result" in client.load("session_x")
    assert client.texts("user_message_chunk") == []


@pytest.mark.parametrize(("status", "code"), [(401, -32000), (500, -32603)])
def test_an_error_of_the_model_is_the_answer(
    client: Client, standin: StandIn, status: int, code: int
) -> None:
    session = client.new()
    standin.misbehave(api_error=status)
    assert client.prompt(session, "x")["error"]["code"] == code
    standin.misbehave()
    assert "result" in client.prompt(session, "y")
