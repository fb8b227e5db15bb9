"""A stand-in for the model APIs of the agent programs, on loopback.

The stand-in answers the Anthropic Messages, OpenAI Responses and OpenAI chat completions APIs with
streams, and keeps the requests. By default it answers with one sentence. :attr:`ModelApi.tool`
makes it request a tool first, :attr:`ModelApi.answer` sets other words, :attr:`ModelApi.fail` makes
it refuse, and :attr:`ModelApi.gate` makes it wait.
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
ERROR = "The stand-in refuses."

INPUT_TOKENS = 11
CACHED_TOKENS = 7
OUTPUT_TOKENS = 5
REASONING_TOKENS = 2
"""Tokens of each answer of the stand-in. Cached tokens are added to the input tokens."""

Request = dict[str, Any]
Tool = tuple[str, dict[str, Any]]
Stream = list[tuple[str, dict[str, Any]]]


@attrs.define
class ModelApi:
    """Requests to the stand-in, and its answers.

    Attributes:
        port: Port of the stand-in.
        requests: The bodies of all requests to a model, in order.
        headers: The headers of each request, with names in lower case.
        tool: Returns name and arguments of the tool to request; None answers in words.
        answer: Returns the words of the answer to a request.
        fail: Returns the status with which to refuse a request; None answers the request.
        gate: Answers wait while this is not set.
    """

    port: int
    requests: list[Request] = attrs.field(factory=list)
    headers: list[dict[str, str]] = attrs.field(factory=list)
    tool: Callable[[Request], Tool | None] = lambda _request: None
    answer: Callable[[Request], str] = lambda _request: ANSWER
    fail: Callable[[Request], int | None] = lambda _request: None
    gate: threading.Event = attrs.field(factory=threading.Event)
    answers: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self) -> str:
        """Return all requests as text."""
        return json.dumps(self.requests)

    def told(self) -> list[str]:
        """Return the user messages of the request with the most messages, in order."""
        return max((user_messages(request) for request in self.requests), key=len, default=[])


def user_messages(request: Request) -> list[str]:
    """Return the texts of the user in a request, in order.

    Blocks that a program adds, all of which start with a tag, are left out.
    """
    messages = request.get("messages") or request.get("input") or []
    texts = []
    for message in messages:
        if message.get("role") != "user":
            continue
        content = message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        texts += [block["text"] for block in blocks if "text" in block]
    return [text for text in texts if not text.startswith("<")]


def system_text(request: Request) -> str:
    """Return the system and developer texts of a request."""
    messages = request.get("messages") or request.get("input") or []
    parts = [message for message in messages if message.get("role") in ("system", "developer")]
    return json.dumps([request.get("system"), request.get("instructions"), parts])


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
        self._answer(200, "application/json", b'{"data": [], "models": []}')

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        stream = next((make for end, make in _STREAMS.items() if path.endswith(end)), None)
        if stream is None:
            self._answer(200, "application/json", b'{"input_tokens": 1}')
            return
        api: ModelApi = self.server.api
        request = json.loads(body)
        api.headers.append({name.lower(): value for name, value in self.headers.items()})
        api.requests.append(request)
        api.gate.wait(60)
        if status := api.fail(request):
            error = {"type": "error", "error": {"type": _ERRORS.get(status), "message": ERROR}}
            self._answer(status, "application/json", json.dumps(error).encode())
            return
        api.answers += 1
        events = stream(request, api.tool(request), api.answer(request), str(api.answers))
        self._answer(200, "text/event-stream", b"".join(_event(*event) for event in events))

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)


_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def _event(name: str, data: dict[str, Any]) -> bytes:
    if name == "[DONE]":
        return b"data: [DONE]\n\n"
    return b"%sdata: %s\n\n" % (
        f"event: {name}\n".encode() if name else b"",
        json.dumps(data).encode(),
    )


def _messages(request: Request, tool: Tool | None, answer: str, number: str) -> Stream:
    usage = {"input_tokens": INPUT_TOKENS, "cache_read_input_tokens": CACHED_TOKENS}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": []}
    message |= {"model": request["model"], "stop_reason": None, "stop_sequence": None}
    if tool:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": tool[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(tool[1])}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": answer}
    stop = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    events = [
        {"type": "message_start", "message": message | {"usage": usage | {"output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": usage | {"output_tokens": OUTPUT_TOKENS}},
        {"type": "message_stop"},
    ]
    return [(each["type"], each) for each in events]


def _responses(_request: Request, tool: Tool | None, answer: str, number: str) -> Stream:
    if tool:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {"name": tool[0], "arguments": json.dumps(tool[1])}
    else:
        text = {"type": "output_text", "text": answer, "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [text]}
    total = INPUT_TOKENS + CACHED_TOKENS
    usage = {
        "input_tokens": total,
        "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "output_tokens": OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
        "total_tokens": total + OUTPUT_TOKENS,
    }
    response = {"id": f"resp_{number}", "object": "response", "output": [item], "usage": usage}
    return [
        ("response.created", {"type": "response.created", "response": {"id": response["id"]}}),
        (
            "response.output_item.done",
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        ),
        ("response.completed", {"type": "response.completed", "response": response}),
    ]


def _chat(request: Request, tool: Tool | None, answer: str, number: str) -> Stream:
    chunk = {"id": f"c{number}", "object": "chat.completion.chunk", "created": 1}
    chunk |= {"model": request["model"]}
    if tool:
        function = {"name": tool[0], "arguments": json.dumps(tool[1])}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        delta: dict[str, Any] = {"role": "assistant", "tool_calls": [call]}
    else:
        delta = {"role": "assistant", "content": answer}
    end = "tool_calls" if tool else "stop"
    total = INPUT_TOKENS + CACHED_TOKENS
    usage = {
        "prompt_tokens": total,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": total + OUTPUT_TOKENS,
    }
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
