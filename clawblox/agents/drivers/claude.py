"""Claude Code: one process that reads user messages on standard input, as JSON lines.

Measured with versions 2.1.197 to 2.1.330. A ``result`` ends a turn. The program also starts turns
by itself, for example when a background task reports. Such a turn answers one of our messages only
if the program read the message during the turn and asked the model.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.drivers.driver import (
    AgentSetup,
    Begin,
    Continue,
    Conversation,
    Fork,
    Invocation,
    Requirement,
    Turn,
)
from clawblox.agents.drivers.known_program import (
    MAX_TRANSCRIPT_BYTES,
    KnownProgramDriver,
    RecordConversation,
    join_parts,
    may_lack_login,
    real_path,
)
from clawblox.agents.drivers.output import (
    KIND_BY_STATUS,
    ErrorPatterns,
    Record,
    count_in,
    find_error_kind,
    list_in,
    number_in,
    record_in,
    report_call,
    report_error,
    report_limit,
    report_result,
    report_retry,
    reset_in,
    status_in,
    text_in,
)
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import CLAUDE
from clawblox.agents.programs.program import project_slug
from clawblox.agents.values import DriverReport, Usage, UsageScope
from clawblox.concurrency.threads import Interruption
from clawblox.errors.agent import ErrorKind
from clawblox.foreign_values import parse_document, whole_number
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.regular_files import (
    find_files,
    read_file,
    rewrite_lines,
)
from clawblox.system.trees import merge_directory

_STREAM: Final = (
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
)
_POLICY: Final = ("--setting-sources", "user", "--strict-mcp-config")
"""Options that disable settings, hooks and MCP servers in the agent's workspace."""

_QUIET_ENV: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}
_STATE_FILE: Final = ".claude.json"
_MAX_STATE_BYTES: Final = 64 << 20
_SANDBOX_FILE: Final = "claude_sandbox_settings.json"
_SANDBOX: Final = {
    "enabled": True,
    "failIfUnavailable": True,
    "allowUnsandboxedCommands": False,
    "autoAllowBashIfSandboxed": True,
}
_SETTINGS: Final = {
    "cleanupPeriodDays": 36_500,  # by default it deletes conversations after a month
    "skipDangerousModePermissionPrompt": True,
}

_COST_OF_CONVERSATION_SINCE: Final = (2, 1, 277)
"""First version whose ``total_cost_usd`` is per conversation; before, it is per process."""

_SYNTHETIC: Final = "<synthetic>"
"""Name of the model in messages that the program writes itself."""

_HUMAN: Final = "human"
"""Origin of a message from a person; our messages usually have no origin."""

_UNKNOWN: Final = "unknown"
"""Origin of an unexplained turn in which the model was not asked."""

_KEY: Final = "ANTHROPIC_API_KEY"
_TOKEN: Final = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105 - a name, not a token
_BARE_LOGINS: Final = (_KEY, "ANTHROPIC_AUTH_TOKEN")
_LOGINS: Final = (*_BARE_LOGINS, _TOKEN)
_CLOUDS: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")

_KINDS: Final[Mapping[int, ErrorKind]] = {**KIND_BY_STATUS, 404: "model"}
_KIND_BY_WORD: Final[Mapping[str, ErrorKind]] = {
    "authentication_failed": "auth",
    "oauth_org_not_allowed": "auth",
    "billing_error": "limit",
    "rate_limit": "rate_limit",
    "overloaded": "overloaded",
    "server_error": "overloaded",
    "invalid_request": "invalid",
}
_RETRY_KEYS: Final = ("attempt", "max_retries", "retry_delay_ms", "error_status", "error")
_LIMITS: Final = {"error_max_turns": "turns", "error_max_budget_usd": "usd"}
_ERRORS: Final[ErrorPatterns] = (
    (re.compile(r"No conversation found|is already in use|Failed to resume session"), "resume"),
    (re.compile(r"hit your [\w ]{0,20}limit|usage limit|Credit balance", re.I), "limit"),
    (re.compile(r"Not logged in|Invalid API key|OAuth token|/login|authenticat", re.I), "auth"),
    (re.compile(r"cannot be used with root|^error: |sandbox.* (unavailable|required)"), "invalid"),
)


class ClaudeDriver(KnownProgramDriver):
    """Drives Claude Code."""

    program = CLAUDE
    product = "Claude Code"
    version = re.compile(r"(\d+)\.(\d+)\.(\d+)")
    oldest = (2, 1, 0)
    install_hint = (
        f"npm install -g {CLAUDE.package}@latest, with Node 22 or newer: "
        "with Node 20, npm installs 2.1.197 without a warning"
    )
    needs_version = False
    can_branch = True
    reports_cost = True
    errors = _ERRORS

    def find_problems(self, setup: AgentSetup, env: Mapping[str, str]) -> Iterator[Requirement]:
        """Yield the problems with its login, its model or its workspace."""
        logins = _BARE_LOGINS if setup.is_bare else _LOGINS
        if any(map(env.get, (*_CLOUDS, *logins))):
            return
        hint = f"set {_KEY}, or set {_TOKEN} to what 'claude setup-token' prints"
        if setup.is_bare:
            hint = f"set {_KEY}; with bare=True the program does not read {_TOKEN}"
        yield may_lack_login(f"none of {', '.join(logins)} is set", hint)

    def prepare(self, setup: AgentSetup, env: Mapping[str, str]) -> None:
        """Write the program's settings, with answers to all its questions on screen."""
        directory = setup.directory
        make_private_dir(directory.state)
        state, workspace = _read_state(directory.state), real_path(setup, setup.workspace)
        projects = record_in(state, "projects")
        trusted = {**record_in(projects, workspace), "hasTrustDialogAccepted": True}
        answers = {
            **state,
            "hasCompletedOnboarding": True,
            "bypassPermissionsModeAccepted": True,
            "projects": {**projects, workspace: trusted},
        }
        _write_object(directory.state / _STATE_FILE, answers)
        _write_object(directory.state / "settings.json", _SETTINGS)
        if setup.native_sandbox is not None:
            make_private_dir(directory.runtime)
            sandbox = {"sandbox": {**_SANDBOX, **setup.native_sandbox}}
            _write_object(directory.runtime / _SANDBOX_FILE, sandbox)

    def adopt(self, setup: AgentSetup, conversation_id: str, interruption: Interruption) -> None:
        """Move the conversation's whole project to the directory for this workspace."""
        transcript = self.transcripts(setup.directory).get(conversation_id)
        slug = project_slug(real_path(setup, setup.workspace))
        if transcript is not None and transcript.parent.name != slug:
            old = f"projects/{transcript.parent.name}"
            merge_directory(setup.directory.state, old, f"projects/{slug}")

    def branch(self, setup: AgentSetup, branch: Fork, interruption: Interruption) -> None:
        """Point the copied project and tasks to this agent; the program does the branching.

        Otherwise the conversation would refer to the memory and the tool results in the original
        agent's directory.
        """
        directory, root = setup.directory, setup.directory.state
        parent = self.transcripts(directory).get(branch.parent_id)
        if parent is None:
            return
        if (root / "tasks" / branch.parent_id).is_dir():
            merge_directory(root, f"tasks/{branch.parent_id}", f"tasks/{branch.conversation_id}")
        if setup.workspace != directory.workspace:  # both see the paths of the sandbox
            return
        places = {
            json.dumps(str(branch.origin))[1:-1]: json.dumps(str(directory.path))[1:-1],
            project_slug(os.path.realpath(AgentDir(branch.origin).workspace)): parent.parent.name,
        }
        pattern = re.compile(rf"({'|'.join(map(re.escape, places))})(?![\w.-])".encode())

        def move(line: bytes) -> bytes:
            interruption.check()
            return pattern.sub(lambda found: places[found[1].decode()].encode(), line)

        rewrite_lines(root, str(parent.relative_to(root)), move, max_bytes=MAX_TRANSCRIPT_BYTES)

    def transcripts(self, directory: AgentDir) -> Mapping[str, Path]:
        """Return the newest main transcript of each conversation, by id."""
        files = find_files(directory.state, "projects/*/*.jsonl")
        return {
            file.path.stem: file.path
            for file in sorted(files, key=lambda file: file.mtime_ns)
            if CLAUDE.id_pattern.fullmatch(file.path.stem)
        }

    def invocation(self, setup: AgentSetup, turn: Turn) -> Invocation:
        """Return the command for a process for this turn."""
        match turn.start:
            case Begin(conversation_id):
                conversation: tuple[str, ...] = ("--session-id", conversation_id)
            case Continue(conversation_id):
                conversation = ("--resume", conversation_id)
            case Fork(parent_id, new_id):
                conversation = ("--resume", parent_id, "--fork-session", "--session-id", new_id)
        prompt_file = str(setup.runtime / "system_prompt.md")
        sandbox_file = str(setup.runtime / _SANDBOX_FILE)
        argv = (
            setup.binary,
            *_STREAM,
            *conversation,
            # The program does not keep the system prompt with the conversation.
            *(("--append-system-prompt-file", prompt_file) if setup.system_prompt else ()),
            *(("--model", setup.model) if setup.model else ()),
            *("--permission-mode", setup.permission_mode or "bypassPermissions"),
            *_POLICY,
            *(("--bare",) if setup.is_bare else ()),
            *(() if setup.native_sandbox is None else ("--settings", sandbox_file)),
        )
        env = {
            "CLAUDE_CONFIG_DIR": str(setup.state),
            **_QUIET_ENV,
            # Without it, root may not skip permissions; any other value is refused.
            **({"IS_SANDBOX": "1"} if setup.is_root else {}),
        }
        return Invocation(argv=argv, env=env, has_stdin=True)

    def converse(self, setup: AgentSetup, turn: Turn) -> Conversation:
        """Return the conversation with a process started for this turn."""
        loop = _MessageLoop(
            names_messages=not turn.is_onlooker, is_resumed=turn.continued_id is not None
        )
        if turn.joined_version is not None:
            loop.join(turn.continued_id, turn.joined_version)
        loop.say(turn.prompt)
        return loop

    def cost_scope(self, version: str) -> UsageScope | None:
        """Return the scope of ``total_cost_usd``; see :meth:`Driver.cost_scope`."""
        numbers = self.parse_version(version)
        if not numbers:
            return "cumulative"
        return "session" if numbers >= _COST_OF_CONVERSATION_SINCE else "process"

    def explain_record(self, record: Record) -> DriverReport | None:
        """Return an ``error`` report if a line of JSON explains a failure."""
        is_failure = record.get("type") == "result" and record.get("is_error")
        return _read_failure(record, "") if is_failure else None


# -- the private home --------------------------------------------------------------------------


def _read_state(directory: Path) -> Record:
    """Return the state that the program has written; empty if it is unreadable."""
    try:
        state = parse_document(read_file(directory, _STATE_FILE, max_bytes=_MAX_STATE_BYTES))
        _encode_object(state)
    except (OSError, ValueError, RecursionError):  # it may be nested too deeply to be written
        return {}
    return state if isinstance(state, dict) else {}


def _write_object(path: Path, content: Mapping[str, Any]) -> None:
    publish_bytes(path, _encode_object(content), durable=False)


def _encode_object(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


# -- the conversation --------------------------------------------------------------------------


@attrs.define(eq=False, kw_only=True)
class _MessageLoop(RecordConversation):
    """A process that takes one user message after another.

    Args:
        names_messages: Whether messages get ids; newer versions then report when they read a
            message.
        is_resumed: Whether the process continues a conversation.
    """

    _names_messages: bool
    _is_loading: bool = attrs.field(alias="is_resumed")
    _outgoing: bytes = attrs.field(default=b"", init=False)
    _conversation_id: str | None = attrs.field(default=None, init=False)
    _version: str = attrs.field(default="", init=False)
    _error_word: str = attrs.field(default="", init=False)
    _has_output: bool = attrs.field(default=False, init=False)
    _has_begun: bool = attrs.field(default=False, init=False)
    _is_queued: bool = attrs.field(default=False, init=False)

    def join(self, conversation_id: str | None, version: str) -> None:
        """Start reading in the middle of the output of a process, after its conversation's id."""
        self._conversation_id, self._version = conversation_id, version

    @property
    def has_unread_message(self) -> bool:
        return self._is_queued

    def say(self, text: str) -> bool:
        message = {"type": "user", "message": {"role": "user", "content": text}}
        # The program drops a message whose id it has seen before.
        named = {**message, "uuid": str(uuid.uuid4())} if self._names_messages else message
        self._has_begun = False
        self._outgoing += json.dumps(named).encode() + b"\n"
        return True

    def outgoing(self) -> bytes:
        taken, self._outgoing = self._outgoing, b""
        return taken

    def read_record(self, record: Record) -> Iterator[DriverReport]:
        if record.get("parent_tool_use_id") is not None:
            return  # output of a sub-agent is ignored
        kind = record.get("type")
        self._has_output = self._has_output or kind in ("assistant", "user")
        if kind == "assistant" and record_in(record, "message").get("model") != _SYNTHETIC:
            self._is_loading = False
        match kind:
            case "command_lifecycle":
                self._read_progress(text_in(record, "state"))
            case "system" if record.get("subtype") == "api_retry":
                yield report_retry(record, _RETRY_KEYS)
            case "system" if record.get("subtype") == "init":
                yield from self._read_init(record)
            case "assistant" if error := text_in(record, "error"):
                self._error_word = error  # the result record repeats its message
            case "assistant":
                yield from _read_answer(record_in(record, "message"))
            case "user":
                yield from _read_user(record)
            case "rate_limit_event":
                yield from _read_rate_limit(record)
            case "result":
                yield from self._read_result(record)

    def _read_progress(self, state: str) -> None:
        """Note the progress of our latest message; only our messages have ids."""
        if state == "queued":
            self._is_queued = True
        elif state == "started":
            self._is_queued, self._has_begun = False, True

    def _read_init(self, record: Record) -> Iterator[DriverReport]:
        """Yield the reports in the first record of a turn."""
        conversation_id = text_in(record, "session_id")
        if not conversation_id:
            return
        self._error_word = ""
        if conversation_id != self._conversation_id:
            self._conversation_id = conversation_id
            version, model = text_in(record, "claude_code_version"), text_in(record, "model")
            self._version = version
            facts = {"session_id": conversation_id, "version": version, "model": model}
            yield DriverReport("session.confirmed", {k: v for k, v in facts.items() if v})
        yield DriverReport("turn.started")

    def _read_result(self, record: Record) -> Iterator[DriverReport]:
        is_empty = whole_number(record.get("num_turns")) == 0  # the model was not asked
        origin = self._find_origin(record, is_empty=is_empty)
        if self._conversation_id is None and not origin:
            # The record names the requested id even if that is unknown.
            yield self._read_failure(record)
            return
        scopes = {"scope": "turn", "cost_scope": ClaudeDriver().cost_scope(self._version)}
        yield DriverReport("usage", {"usage": _read_usage(record), **scopes})
        failed = _has_failed(record)
        if failed:
            yield self._read_failure(record)
        end = {"ok": not failed, "text": text_in(record, "result")}
        if origin:
            may_answer = origin == _UNKNOWN or not is_empty
            end |= {"origin": origin, "may_answer": may_answer}
        yield DriverReport("turn.finished", end)
        self._has_output = False
        if not origin:
            self._has_begun = self._is_queued = self._is_loading = False

    def _find_origin(self, record: Record, *, is_empty: bool) -> str:
        """Return the origin of a turn without a message of ours; '' if the turn answers one."""
        origin = text_in(record, "origin") or text_in(record_in(record, "origin"), "kind")
        if origin and origin != _HUMAN:
            # The program may have read our message within this turn, and asked the model about it.
            return "" if self._has_begun and not is_empty else origin
        is_answer = origin or self._has_begun or self._has_output or _has_failed(record)
        return _UNKNOWN if not is_answer and is_empty else ""

    def _read_failure(self, record: Record) -> DriverReport:
        failure = _read_failure(record, self._error_word)
        is_unexplained = failure.data["kind"] == "model" and failure.data.get("status") is None
        if is_unexplained and self._is_loading and not self._error_word:
            # The program could not read its transcript and did not ask the model.
            return report_error(failure.data["message"], "resume")
        return failure


def _has_failed(record: Record) -> bool:
    """Return whether a turn failed; its subtype may still be ``success``."""
    return bool(record.get("is_error")) or record.get("subtype") != "success"


def _read_answer(message: Record) -> Iterator[DriverReport]:
    for block in list_in(message, "content"):
        match block.get("type"):
            case "text" if text := text_in(block, "text"):
                yield DriverReport("message", {"role": "assistant", "text": text})
            case "thinking" if text := text_in(block, "thinking"):
                yield DriverReport("reasoning", {"text": text})
            case "tool_use":
                name, arguments = text_in(block, "name"), record_in(block, "input")
                yield report_call(text_in(block, "id"), name, arguments)


def _read_user(record: Record) -> Iterator[DriverReport]:
    message = record_in(record, "message")
    if text := text_in(message, "content"):
        yield DriverReport("message", {"role": "user", "text": text})
    for block in list_in(message, "content"):
        match block.get("type"):
            case "text" if text := text_in(block, "text"):
                yield DriverReport("message", {"role": "user", "text": text})
            case "tool_result":
                call, is_error = text_in(block, "tool_use_id"), block.get("is_error") is True
                content = text_in(block, "content") or join_parts(block)
                yield report_result(call, content, is_error=is_error)


def _read_rate_limit(record: Record) -> Iterator[DriverReport]:
    info = record_in(record, "rate_limit_info")
    if info.get("status") == "rejected":
        kind = text_in(info, "rateLimitType") or "rate_limit"
        yield report_limit(kind, "the usage limit is reached", reset_in(info, "resetsAt"))


def _read_usage(record: Record) -> Usage:
    usage = record_in(record, "usage")
    return Usage(
        input_tokens=count_in(usage, "input_tokens"),
        cached_tokens=count_in(usage, "cache_read_input_tokens"),
        cache_write_tokens=count_in(usage, "cache_creation_input_tokens"),
        output_tokens=count_in(usage, "output_tokens"),
        reasoning_tokens=count_in(record_in(usage, "output_tokens_details"), "thinking_tokens"),
        cost_usd=number_in(record, "total_cost_usd"),
    )


def _read_failure(record: Record, error_word: str) -> DriverReport:
    """Return the reason for a failed result; its subtype may still be ``success``."""
    errors = record.get("errors")
    listed = [text for text in errors if isinstance(text, str)] if isinstance(errors, list) else []
    subtype, status = text_in(record, "subtype"), status_in(record, "api_error_status")
    message = text_in(record, "result") or "; ".join(listed) or subtype or "it failed"
    if subtype in _LIMITS:
        return report_limit(_LIMITS[subtype], message)
    kind = find_error_kind(_ERRORS, message) or _KIND_BY_WORD.get(error_word, "model")
    return report_error(message, kind, status, _KINDS)
