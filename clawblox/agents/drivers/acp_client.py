"""The client side of the Agent Client Protocol, for one process of a program. Pure.

Requests, answers and notifications are JSON-RPC lines. During the setup only one request is pending
at a time; after that, one prompt per turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs

from clawblox.agents.drivers.driver import AgentSetup, Conversation, Turn
from clawblox.agents.drivers.output import (
    ErrorPatterns,
    Record,
    count_in,
    find_error_kind,
    list_in,
    parse_record,
    record_in,
    report_call,
    report_result,
    text_in,
)
from clawblox.agents.values import DriverReport, Usage
from clawblox.errors.agent import ErrorKind
from clawblox.foreign_values import clean_value, encode_line

_METHOD_NOT_FOUND: Final = -32601
_NO_FILES: Final = {"readTextFile": False, "writeTextFile": False}
_INITIALIZE: Final = {
    "protocolVersion": 1,
    "clientCapabilities": {"fs": _NO_FILES, "terminal": False},
    "clientInfo": {"name": "clawblox", "version": "1"},
}

# The program would record an "always"; some programs do so in the workspace.
_ALLOWING: Final = ("allow_once", "allow_always")
_REFUSING: Final = ("reject_once", "reject_always")

_MAX_MESSAGE_CHARS: Final = 1 << 20
"""Maximum characters of a reported message; a longer message is reported in parts."""

_MAX_CALLS: Final = 10_000
"""Maximum number of tool calls remembered in a turn."""

_LIMITS: Final = {"max_tokens": "tokens", "max_turn_requests": "turns"}
ERRORS: Final[ErrorPatterns] = (
    (re.compile(r"session.*not found|unknown session|no previous sessions", re.I), "resume"),
    (re.compile(r"\b40[13]\b|authenti|authoriz|api key|log ?in", re.I), "auth"),
    (re.compile(r"\b429\b|rate.?limit|quota", re.I), "rate_limit"),
    (re.compile(r"\b5\d\d\b|overloaded|unavailable", re.I), "overloaded"),
    (re.compile(r"\b400\b|invalid", re.I), "invalid"),
)

Answer: TypeAlias = Callable[[Record], Iterator[DriverReport]]


@attrs.define
class _PendingCall:
    """A tool call, and whether it was reported."""

    name: str
    is_reported: bool = False


class AcpClient(Conversation):
    """The client side of the protocol: one request at a time, then a prompt for each turn.

    An onlooker may start reading at any line. It recognises the answer to a prompt by its content,
    because it does not know the earlier requests.

    Args:
        setup: The agent.
        turn: The turn for which the process was started.
    """

    def __init__(self, setup: AgentSetup, turn: Turn) -> None:
        self._setup = setup
        self._is_onlooker = turn.is_onlooker
        self._has_read = False
        self._resumed = turn.continued_id
        self._conversation_id: str | None = None
        self._version = ""
        self._outgoing = bytearray()
        self._requests = 0
        self._answers: dict[int, tuple[Answer, Answer]] = {}
        self._replayed = 0
        self._is_ready = False
        self._is_in_turn = False
        self._is_start_pending = False
        self._prompts = [turn.prompt]
        has_preface = setup.system_prompt and not turn.continued_id
        self._preface = [setup.system_prompt] if has_preface else []
        self._pieces: list[str] = []
        self._pieces_kind = ""
        self._pieces_chars = 0
        self._last_text = ""
        self._calls: dict[str, _PendingCall] = {}
        self._ask("initialize", _INITIALIZE, self._initialized)

    def say(self, text: str) -> bool:
        """See :meth:`Conversation.say`."""
        self._prompts.append(text)
        self._next_prompt()
        return True

    def outgoing(self) -> bytes:
        """See :meth:`Conversation.outgoing`."""
        taken = bytes(self._outgoing)
        self._outgoing.clear()
        return taken

    def read(self, line: bytes) -> Sequence[DriverReport]:
        """See :meth:`Conversation.read`."""
        return [*self._report_start(), *self._read(line), *self._report_start()]

    def _report_start(self) -> Iterator[DriverReport]:
        if self._is_start_pending:
            self._is_start_pending = False
            yield DriverReport("turn.started")

    def _read(self, line: bytes) -> Iterator[DriverReport]:
        message = parse_record(line)
        if message is None or message.get("jsonrpc") != "2.0":
            return
        if self._is_onlooker:
            self._join_late(message)
        method = text_in(message, "method")
        if not method:
            yield from self._read_answer(message)
        elif "id" in message:
            yield from self._reply(message)
        elif method == "session/update":
            yield from self._read_update(message)

    # -- messages --

    def _send(self, **message: Any) -> None:
        # Echoed values, such as ids, come from the program.
        self._outgoing += encode_line({"jsonrpc": "2.0", **message})

    def _ask(
        self, method: str, params: Record, answered: Answer, refused: Answer | None = None
    ) -> None:
        self._requests += 1
        self._answers[self._requests] = answered, refused or self._refused
        self._send(id=self._requests, method=method, params=params)

    def _read_answer(self, message: Record) -> Iterator[DriverReport]:
        number = message.get("id")
        if self._is_onlooker:
            number = self._recognise(number, message)
        answers = self._answers.pop(number, None) if type(number) is int else None
        if answers is None:
            return
        answered, refused = answers
        if "error" in message:
            yield from refused(record_in(message, "error"))
        else:
            yield from answered(record_in(message, "result"))

    def _join_late(self, message: Record) -> None:
        """Expect the answer to a prompt, unless these are the first lines of the process."""
        if self._has_read or text_in(message, "method") not in ("", "session/update"):
            return
        self._has_read = True
        if "agentCapabilities" not in record_in(message, "result"):
            self._answers.clear()
            self._is_ready = self._is_in_turn = True

    def _recognise(self, number: object, message: Record) -> object:
        """Return the number of the request that a message answers; None if it is unknown."""
        prompt = next((n for n, (done, _) in self._answers.items() if done == self._answered), 0)
        is_late = "error" in message and number not in self._answers
        if is_late or "stopReason" in record_in(message, "result"):
            self._answers[prompt] = self._answered, self._failed
            return prompt
        return None if number == prompt else number

    def _reply(self, request: Record) -> Iterator[DriverReport]:
        """Answer a request of the program: allow every action, and provide no client features."""
        number = clean_value(request["id"])
        if request["method"] != "session/request_permission":
            error = {"code": _METHOD_NOT_FOUND, "message": "Method not found"}
            self._send(id=number, error=error)
            return
        params = record_in(request, "params")
        yield from self._read_tool(record_in(params, "toolCall"))
        wanted = _ALLOWING if self._setup.permission_mode is None else _REFUSING
        options = reversed(list_in(params, "options"))
        by_kind = {text_in(option, "kind"): option.get("optionId") for option in options}
        chosen = next((by_kind[kind] for kind in wanted if kind in by_kind), None)
        outcome: Record = {"outcome": "cancelled"}
        if chosen is not None:
            outcome = {"outcome": "selected", "optionId": clean_value(chosen)}
        self._send(id=number, result={"outcome": outcome})

    # -- setup --

    def _initialized(self, result: Record) -> Iterator[DriverReport]:
        self._version = text_in(record_in(result, "agentInfo"), "version")
        place = {"cwd": str(self._setup.workspace), "mcpServers": []}
        if self._resumed is None:
            self._ask("session/new", place, self._opened)
        elif record_in(result, "agentCapabilities").get("loadSession") is True:
            self._ask("session/load", {"sessionId": self._resumed, **place}, self._opened)
        else:
            message = "the program cannot continue conversations (loadSession)"
            yield from _give_up({"kind": "resume", "message": message})

    def _opened(self, result: Record) -> Iterator[DriverReport]:
        # Some programs load unknown ids. Only the replayed messages are proof.
        conversation_id = text_in(result, "sessionId") or self._resumed
        if not conversation_id or (self._resumed and not self._replayed):
            message = f"it does not know the conversation {self._resumed}"
            if self._resumed is None:
                message = "it began a conversation without an id"
            yield from _give_up({"kind": "resume", "message": message})
            return
        self._conversation_id = conversation_id
        model = self._setup.model or text_in(record_in(result, "models"), "currentModelId")
        facts = {"session_id": conversation_id, "version": self._version, "model": model}
        yield DriverReport(
            "session.confirmed", {key: value for key, value in facts.items() if value}
        )
        self._choose("model", self._setup.model, result)
        self._choose("mode", self._setup.permission_mode, result)
        mode = text_in(record_in(result, "modes"), "currentModeId")
        if self._resumed and mode and self._setup.permission_mode is None:
            # Gemini still replays after answering the load; this request ends that.
            params = {"sessionId": conversation_id, "modeId": mode}
            self._ask("session/set_mode", params, self._begin, self._begin)
        yield from self._begin(result)

    def _begin(self, _answer: Record) -> Iterator[DriverReport]:
        """Send the first prompt, once all earlier requests are answered."""
        if not self._answers:
            self._is_ready = True
            self._next_prompt()
        return iter(())

    def _choose(self, category: str, value: str | None, result: Record) -> None:
        """Request a model or a mode, in the newer form of the protocol if the program offers it."""
        if value is None:
            return
        conversation = {"sessionId": self._conversation_id}
        for option in list_in(result, "configOptions"):
            if text_in(option, "category") == category:
                params = {**conversation, "configId": clean_value(option.get("id")), "value": value}
                self._ask("session/set_config_option", params, self._begin)
                return
        params = {**conversation, f"{category}Id": value}
        self._ask(f"session/set_{category}", params, self._begin)

    def _refused(self, error: Record) -> Iterator[DriverReport]:
        kind: ErrorKind = "resume" if self._resumed else "model"
        is_open = self._conversation_id is not None  # then a model or a mode was refused
        yield from _give_up(_read_error(error, otherwise="invalid" if is_open else kind))

    # -- turns --

    def _next_prompt(self) -> None:
        if not self._is_ready or self._is_in_turn or not self._prompts:
            return
        self._is_in_turn = self._is_start_pending = True
        texts, self._preface = [*self._preface, self._prompts.pop(0)], []
        prompt = [{"type": "text", "text": text} for text in texts]
        params = {"sessionId": self._conversation_id, "prompt": prompt}
        self._ask("session/prompt", params, self._answered, self._failed)

    def _answered(self, result: Record) -> Iterator[DriverReport]:
        yield from self._flush()
        quota = record_in(record_in(record_in(result, "_meta"), "quota"), "token_count")
        if usage := _read_usage(record_in(result, "usage")) or _read_quota(quota):
            yield usage
        reason = text_in(result, "stopReason")
        if reason in _LIMITS:
            message = f"the program ended the turn: {reason}"
            yield DriverReport("limit", {"kind": _LIMITS[reason], "message": message})
        elif reason != "end_turn":
            message = f"the program ended the turn: {reason or 'no reason'}"
            yield DriverReport("error", {"kind": "model", "message": message})
        yield from self._end_turn(ok=reason == "end_turn")

    def _failed(self, error: Record) -> Iterator[DriverReport]:
        yield from self._flush()
        yield DriverReport("error", _read_error(error))
        yield from self._end_turn(ok=False)

    def _end_turn(self, *, ok: bool) -> Iterator[DriverReport]:
        yield DriverReport("turn.finished", {"ok": ok, "text": self._last_text})
        self._last_text = ""
        self._calls.clear()
        self._is_in_turn = False
        self._next_prompt()

    # -- updates during a turn --

    def _read_update(self, message: Record) -> Iterator[DriverReport]:
        update = record_in(record_in(message, "params"), "update")
        kind = text_in(update, "sessionUpdate")
        if not self._is_ready:
            self._replayed += kind == "user_message_chunk"
            return
        if kind in _CHUNKS:
            yield from self._read_chunk(_CHUNKS[kind], update)
        elif kind in ("tool_call", "tool_call_update"):
            yield from self._read_tool(update)

    def _read_tool(self, update: Record) -> Iterator[DriverReport]:
        """Yield a call once its arguments are known, and its result."""
        yield from self._flush()
        number, status = text_in(update, "toolCallId"), text_in(update, "status")
        call = self._find_call(number, text_in(update, "title") or text_in(update, "kind"))
        arguments = record_in(update, "rawInput")
        has_ended = status in ("completed", "failed")
        if not call.is_reported and (arguments or has_ended):
            call.is_reported = True
            yield report_call(number, call.name, arguments)
        if has_ended:
            contents = (record_in(item, "content") for item in list_in(update, "content"))
            texts = filter(None, (text_in(content, "text") for content in contents))
            yield report_result(number, "\n".join(texts), is_error=status == "failed")

    def _find_call(self, number: str, name: str) -> _PendingCall:
        """Return the call with this number, creating it if needed; drop the oldest at the limit."""
        if number not in self._calls and len(self._calls) >= _MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        return self._calls.setdefault(number, _PendingCall(name))

    def _read_chunk(self, kind: str, update: Record) -> Iterator[DriverReport]:
        if kind != self._pieces_kind or self._pieces_chars >= _MAX_MESSAGE_CHARS:
            yield from self._flush()
        self._pieces_kind = kind
        if text := text_in(record_in(update, "content"), "text"):
            self._pieces.append(text)
            self._pieces_chars += len(text)
        if usage := _read_usage(record_in(record_in(update, "_meta"), "usage")):
            yield usage

    def _flush(self) -> Iterator[DriverReport]:
        """Yield the text collected so far."""
        kind, text = self._pieces_kind, "".join(self._pieces)
        self._pieces_kind, self._pieces_chars, self._pieces = "", 0, []
        if text and kind == "message":
            self._last_text = text
            yield DriverReport("message", {"role": "assistant", "text": text})
        elif text:
            yield DriverReport("reasoning", {"text": text})


_CHUNKS: Final = {"agent_message_chunk": "message", "agent_thought_chunk": "reasoning"}


def _read_error(error: Record, *, otherwise: ErrorKind = "model") -> Record:
    details = text_in(record_in(error, "data"), "details")
    message = ": ".join(filter(None, (text_in(error, "message"), details))) or "it failed"
    return {"kind": find_error_kind(ERRORS, message) or otherwise, "message": message}


def _give_up(error: Record) -> Iterator[DriverReport]:
    """Yield the error that prevents the first turn; the program does not exit by itself."""
    yield DriverReport("error", error)
    yield DriverReport("turn.finished", {"ok": False, "text": error["message"]})


def _read_usage(usage: Record) -> DriverReport | None:
    """Return a reading of the tokens of one turn, or of one request in it."""
    if not usage:
        return None
    given, written = count_in(usage, "inputTokens"), count_in(usage, "cachedWriteTokens")
    cached, answer = count_in(usage, "cachedReadTokens"), count_in(usage, "outputTokens")
    # Some programs also count cached tokens as input; their total then shows the overlap.
    if given + cached + written + answer > count_in(usage, "totalTokens"):
        given = max(0, given - cached - written)
    counted = Usage(
        input_tokens=given,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=answer,
        reasoning_tokens=count_in(usage, "thoughtTokens"),
    )
    return DriverReport("usage", {"usage": counted, "scope": "turn"})


def _read_quota(count: Record) -> DriverReport | None:
    """Return Gemini's own reading of the tokens of one turn."""
    if not count:
        return None
    given, answer = count_in(count, "input_tokens"), count_in(count, "output_tokens")
    counted = Usage(input_tokens=given, output_tokens=answer)
    return DriverReport("usage", {"usage": counted, "scope": "turn"})
