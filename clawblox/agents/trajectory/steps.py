"""The steps of a trajectory, built from the history of an agent.

A step of the agent consists of its reasoning, messages and tool calls until a result arrives. Usage
is counted as in the agent's ledger and added to the last step before the report; most programs
report it once per turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any, Final, get_args

import attrs

from clawblox.agents.trajectory.history import HistoryEntry
from clawblox.agents.usage import Ledger
from clawblox.agents.values import EventType, Usage, UsageScope
from clawblox.foreign_values import clean_value

_SCOPES: Final = get_args(UsageScope)


@attrs.define(kw_only=True)
class _Step:
    """A step that may still be extended."""

    source: str
    moment: HistoryEntry | None
    messages: list[str] = attrs.field(factory=list)
    reasoning: list[str] = attrs.field(factory=list)
    calls: list[dict[str, Any]] = attrs.field(factory=list)
    results: list[dict[str, Any]] = attrs.field(factory=list)
    usage: Usage | None = None
    extra: dict[str, Any] = attrs.field(factory=dict)


class UsageCount:
    """Counts the usage in the entries of a history, as the agent's ledger does.

    Args:
        cost_scope: Returns the scope of the costs that a version of the program reports.

    Attributes:
        version: The latest version of the program; None if unknown.
    """

    def __init__(self, cost_scope: Callable[[str], UsageScope | None]) -> None:
        self._cost_scope = cost_scope
        self._ledger = Ledger.empty()
        self.version: str | None = None

    @property
    def usage(self) -> Usage:
        """All usage so far."""
        return self._ledger.usage

    def take(
        self, kind: EventType, data: Mapping[str, Any], conversation_id: str | None
    ) -> Usage | None:
        """Process the next entry; return the usage that it adds, or None."""
        match kind:
            case "session.confirmed" | "process.started":
                self.version = data.get("version") or self.version
                if kind == "process.started":
                    self._ledger.begin_process()
            case "turn.finished" if "origin" not in data:
                self._ledger.end_turn()
            case "usage":
                return self._count(data, conversation_id or "")
        return None

    def _count(self, data: Mapping[str, Any], conversation: str) -> Usage | None:
        usage, cost_scope = data.get("usage"), data.get("cost_scope")
        scope: Any = data.get("scope")
        files = data.get("files")
        if not isinstance(usage, Usage) or scope not in _SCOPES:
            return None
        past_version = self._ledger.find_version(conversation)
        return self._ledger.count(
            usage,
            conversation_id=conversation,
            past_cost_scope=self._cost_scope(past_version),
            version=self.version,
            scope=scope,
            cost_scope=cost_scope if cost_scope in _SCOPES else None,
            files=files if isinstance(files, dict) else None,
        )


class Steps:
    """Builds steps from the entries of a history.

    Args:
        cost_scope: Returns the scope of the costs that a version of the program reports.

    Attributes:
        count: Counts the usage of the whole trajectory.
        model: The latest model; None if unknown.
        oversized: Number of output lines that were too long to keep.
    """

    def __init__(self, cost_scope: Callable[[str], UsageScope | None]) -> None:
        self.count = UsageCount(cost_scope)
        self.model: str | None = None
        self.oversized = 0
        self._steps: list[_Step] = []
        self._current: _Step | None = None
        self._step_by_call: dict[str, _Step] = {}
        self._prompt: str | None = None

    def add_system_prompt(self, text: str) -> None:
        """Add the system prompt as the first step."""
        self._steps.append(_Step(source="system", moment=None, messages=[text]))

    def take(self, moments: Iterable[HistoryEntry]) -> None:
        """Add entries of the history, in order."""
        for moment in moments:
            self._take(moment, moment.report.data)

    def _take(self, moment: HistoryEntry, data: Mapping[str, Any]) -> None:
        added = self.count.take(moment.report.type, data, moment.conversation_id)
        match moment.report.type:
            case "session.confirmed":
                self.model = data.get("model") or self.model
            case "process.started":
                self._current = None
            case "process.exited" if data.get("error"):
                self._take_failure(moment, str(data["error"]))
            case "turn.started":
                self._begin_turn(moment, data)
            case "turn.finished":
                self._current = None
            case "message":
                self._take_message(moment, str(data.get("text") or ""), data.get("role"))
            case "reasoning":
                self._agent_step(moment).reasoning.append(str(data.get("text") or ""))
            case "tool.called":
                self._take_call(moment, data)
            case "tool.returned":
                self._take_result(moment, data)
            case "usage" if added is not None:
                self._take_usage(added)
            case "error" | "limit":
                self._take_failure(moment, str(data.get("message") or ""), data.get("kind"))
            case "oversized":
                self.oversized += 1

    def _take_failure(self, moment: HistoryEntry, text: str, kind: object = None) -> None:
        failures = takewhile(lambda step: step.source == "system", reversed(self._steps))
        if all(step.messages != [text] for step in failures):  # the cost is not reported yet
            self._add("system", moment, text, kind)

    def _add(self, source: str, moment: HistoryEntry, text: str, kind: object = None) -> None:
        self._current = None
        extra = {} if kind is None else {"kind": kind}
        self._steps.append(_Step(source=source, moment=moment, messages=[text], extra=extra))

    def _agent_step(self, moment: HistoryEntry) -> _Step:
        """Return the agent's current step, or a new one."""
        if self._current is None or self._current.results:
            self._current = _Step(source="agent", moment=moment)
            self._steps.append(self._current)
        return self._current

    def _begin_turn(self, moment: HistoryEntry, data: Mapping[str, Any]) -> None:
        self._current = None
        prompt = data.get("prompt")
        if isinstance(prompt, str) and prompt:
            self._prompt = prompt
            self._add("user", moment, prompt)

    def _take_message(self, moment: HistoryEntry, text: str, role: object) -> None:
        if role == "assistant":
            self._agent_step(moment).messages.append(text)
        elif role == "user" and text == self._prompt:
            self._prompt = None  # the program echoes its prompt
        else:
            self._add("user" if role == "user" else "system", moment, text)

    def _take_call(self, moment: HistoryEntry, data: Mapping[str, Any]) -> None:
        step = self._agent_step(moment)
        call_id = str(data.get("id") or f"call-{len(self._steps)}-{len(step.calls) + 1}")
        arguments = data.get("arguments")
        step.calls.append(
            {
                "tool_call_id": call_id,
                "function_name": str(data.get("name") or "unknown"),
                "arguments": arguments if isinstance(arguments, dict) else {"input": arguments},
            }
        )
        self._step_by_call[call_id] = step

    def _take_result(self, moment: HistoryEntry, data: Mapping[str, Any]) -> None:
        call_id = str(data.get("id") or "")
        caller = self._step_by_call.get(call_id)
        content = data.get("content")
        text = content if isinstance(content, str) else json.dumps(clean_value(content))
        result: dict[str, Any] = {"content": text}
        if caller is not None:
            result["source_call_id"] = call_id
        if data.get("is_error"):
            result["extra"] = {"is_error": True}
        (caller or self._current or self._agent_step(moment)).results.append(result)

    def _take_usage(self, added: Usage) -> None:
        step = next((step for step in reversed(self._steps) if step.source == "agent"), None)
        if step is not None:
            step.usage = added if step.usage is None else step.usage.plus(added)
        self._current = None

    def describe(self) -> list[dict[str, Any]]:
        """Return the steps in ATIF."""
        return [_describe(number, step) for number, step in enumerate(self._steps, start=1)]


def _describe(number: int, step: _Step) -> dict[str, Any]:
    moment, extra = step.moment, dict(step.extra)
    if moment is not None and moment.turn:
        extra["turn"] = moment.turn
    if moment is not None and moment.offset is not None:
        extra["raw_offset"] = moment.offset
    described = {
        "step_id": number,
        "source": step.source,
        "timestamp": moment and moment.time,
        "is_copied_context": moment and moment.is_copied,
        "message": "\n".join(step.messages),
        "reasoning_content": "\n\n".join(step.reasoning),
        "tool_calls": step.calls,
        "observation": step.results and {"results": step.results},
        "metrics": step.usage and describe_usage(step.usage),
        "extra": extra,
    }
    return {name: value for name, value in described.items() if value or name == "message"}


def describe_usage(usage: Usage, prefix: str = "") -> dict[str, Any]:
    """Return usage in ATIF, where prompts include cached tokens, and answers include reasoning.

    Args:
        usage: The usage.
        prefix: Prefix of the names.
    """
    extra = {
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    prompt_tokens = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens
    return {
        f"{prefix}prompt_tokens": prompt_tokens,
        f"{prefix}completion_tokens": usage.output_tokens,
        f"{prefix}cached_tokens": usage.cached_tokens,
        **({} if usage.cost_usd is None else {f"{prefix}cost_usd": usage.cost_usd}),
        "extra": extra,
    }
