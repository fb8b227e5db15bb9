"""A stand-in for the model APIs of the three agent programs, on loopback.

It answers the Anthropic Messages, OpenAI Responses and OpenAI chat completions APIs with
streams, and keeps what it was asked. It knows one sentence; :attr:`ModelApi.tool` makes it ask
for one use of a tool first.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

ANSWER = "I have noted that."

Stream = list[tuple[str, dict[str, Any]]]


@attrs.define
class ModelApi:
    """What the stand-in was asked, and how it answers."""

    port: int
    requests: list[dict[str, Any]] = attrs.field(factory=list)
    tool: Callable[[dict[str, Any]], tuple[str, dict[str, Any]] | None] = lambda _request: None
    gate: threading.Event = attrs.field(factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self) -> str:
        """Return all that it was asked, as text."""
        return json.dumps(self.requests)


@contextlib.contextmanager
def model_api() -> Iterator[ModelApi]:
    """Serve until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = False
    api = ModelApi(port=server.server_address[1])
    api.gate.set()
    server.api = api
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield api
    finally:
        api.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("application/json", b'{"data": [], "models": []}')

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        stream = next((make for end, make in _STREAMS.items() if path.endswith(end)), None)
        if stream is None:
            self._answer("application/json", b'{"input_tokens": 1}')
            return
        request = json.loads(body)
        self.server.api.requests.append(request)
        self.server.api.gate.wait(60)
        events = stream(request, self.server.api.tool(request))
        self._answer("text/event-stream", b"".join(_event(*event) for event in events))

    def _answer(self, kind: str, body: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)


def _event(name: str, data: dict[str, Any]) -> bytes:
    if name == "[DONE]":
        return b"data: [DONE]\n\n"
    return b"%sdata: %s\n\n" % (
        f"event: {name}\n".encode() if name else b"",
        json.dumps(data).encode(),
    )


def _messages(request: dict[str, Any], tool: tuple[str, dict[str, Any]] | None) -> Stream:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_0", "type": "message", "role": "assistant", "content": []}
    message |= {"model": request["model"], "stop_reason": None, "stop_sequence": None}
    if tool:
        block = {"type": "tool_use", "id": "toolu_0", "name": tool[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(tool[1])}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": ANSWER}
    stop = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    events = [
        {"type": "message_start", "message": message | {"usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    ]
    return [(each["type"], each) for each in events]


def _responses(_request: dict[str, Any], tool: tuple[str, dict[str, Any]] | None) -> Stream:
    if tool:
        item = {"type": "function_call", "id": "fc_0", "call_id": "call_0", "name": tool[0]}
        item |= {"arguments": json.dumps(tool[1])}
    else:
        text = {"type": "output_text", "text": ANSWER, "annotations": []}
        item = {"type": "message", "id": "msg_0", "role": "assistant", "content": [text]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": None, "output_tokens_details": None}
    response = {"id": "resp_0", "object": "response", "output": [item], "usage": usage}
    return [
        ("response.created", {"type": "response.created", "response": {"id": "resp_0"}}),
        (
            "response.output_item.done",
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        ),
        ("response.completed", {"type": "response.completed", "response": response}),
    ]


def _chat(request: dict[str, Any], tool: tuple[str, dict[str, Any]] | None) -> Stream:
    chunk = {"id": "c0", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
    if tool:
        function = {"name": tool[0], "arguments": json.dumps(tool[1])}
        call = {"index": 0, "id": "call_0", "type": "function", "function": function}
        delta: dict[str, Any] = {"role": "assistant", "tool_calls": [call]}
    else:
        delta = {"role": "assistant", "content": ANSWER}
    end = "tool_calls" if tool else "stop"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [
        ("", chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}),
        ("", chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]}),
        ("", chunk | {"choices": [], "usage": usage}),
        ("[DONE]", {}),
    ]


_STREAMS = {
    "/messages": _messages,
    "/responses": _responses,
    "/chat/completions": _chat,
}
