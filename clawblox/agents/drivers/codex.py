"""Codex: one process of ``codex exec`` for each turn, with its prompt on standard input.

Measured with versions 0.128 and 0.169.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from clawblox.agents.drivers.driver import (
    AgentSetup,
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
    describe_failure,
    join_parts,
    may_lack_login,
    real_path,
)
from clawblox.agents.drivers.output import (
    ErrorPatterns,
    Record,
    count_in,
    number_in,
    parse_record,
    record_in,
    report_call,
    report_result,
    reset_in,
    text_in,
)
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import CODEX
from clawblox.agents.programs.program import rollout_id, thread_id
from clawblox.agents.values import DriverReport, Usage
from clawblox.concurrency.threads import Interruption
from clawblox.errors import AgentResumeError
from clawblox.printable import quote_words
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.foreign_database import copy_database, remove_database
from clawblox.system.regular_files import find_files, open_file, rewrite_lines
from clawblox.system.trees import discard_tree

_EVERYTHING: Final = "--dangerously-bypass-approvals-and-sandbox"
_MODES: Final = {
    **dict.fromkeys((None, "bypassPermissions", "danger-full-access"), (_EVERYTHING,)),
    "workspace-write": ("--sandbox", "workspace-write"),
    "read-only": ("--sandbox", "read-only"),
}
"""Options by permission mode; Claude's name for all permissions is accepted too."""

_BASE_URL: Final = "https://api.openai.com/v1"
_KEYS: Final = ("CODEX_API_KEY", "OPENAI_API_KEY")
_INDEX: Final = "state_*.sqlite"
_ROLLOUT_TAIL_BYTES: Final = 256 * 1024
_IDS: Final = ("id", "session_id")
"""Members of the first record of a rollout that name its thread."""

_ALL: Final = 100.0
"""Percentage at which an allowance is used up."""

_RETRY: Final = re.compile(
    r"Reconnecting\.\.\. (?:(\d{1,9})/(\d{1,9})|waiting for network) ?\(?(.*?)\)?"
)
_STATUS: Final = re.compile(r"\bstatus:? (\d{3})\b")
_ERRORS: Final[ErrorPatterns] = (
    (re.compile(r"no rollout found|thread/resume failed"), "resume"),
    (re.compile(r"Missing environment variable|not logged in|refresh token", re.I), "auth"),
    (re.compile(r"usage limit|quota", re.I), "limit"),
    (
        re.compile(r"high demand|overloaded|at capacity|stream disconnected|Connection"),
        "overloaded",
    ),
    (re.compile(r"^\{|context window|invalid_request|^error: ", re.I), "invalid"),
)


_TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "command_execution": ("command",),
    "file_change": ("changes",),
    "mcp_tool_call": ("server", "arguments"),
    "collab_tool_call": ("receiver_thread_ids", "prompt"),
    "web_search": ("query",),
}
"""Types of items that are tool calls, and the members that are their arguments."""


class CodexDriver(KnownProgramDriver):
    """Drives Codex."""

    program = CODEX
    product = "Codex"
    version = re.compile(r"codex-cli (\d+)\.(\d+)")
    oldest = (0, 128)
    install_hint = f"npm install -g {CODEX.package}@latest"
    needs_version = False
    can_branch = True
    errors = _ERRORS
    modes = _MODES
    modes_hint = f"set permission_mode to one of {', '.join(filter(None, _MODES))}"

    def find_problems(self, setup: AgentSetup, env: Mapping[str, str]) -> Iterator[Requirement]:
        """Yield the problems with its login, its model or its workspace."""
        login = setup.directory.state / "auth.json"
        if not any(map(env.get, _KEYS)) and not login.is_file():
            home = quote_words([str(login.parent)])
            hint = f"set {_KEYS[0]}, or log in with CODEX_HOME={home} codex login"
            yield may_lack_login(f"none of {', '.join(_KEYS)} is set", hint)

    def prepare(self, setup: AgentSetup, env: Mapping[str, str]) -> None:
        """Write the program's settings, and remove its copy of itself."""
        state = make_private_dir(setup.directory.state)
        settings = "\n".join(_settings(setup, env)) + "\n"
        publish_bytes(state / "config.toml", settings.encode(errors="replace"), durable=False)
        discard_tree(state / "packages")

    def adopt(self, setup: AgentSetup, conversation_id: str, interruption: Interruption) -> None:
        """Remove the index of rollouts if it points to another directory.

        The program would continue to write to the rollouts there. Without an index, it builds one
        from the rollouts that it finds.
        """
        directory = setup.directory
        transcript = self.transcripts(directory).get(conversation_id)
        if transcript is None:
            return
        own = setup.state / transcript.relative_to(directory.state)
        for index in find_files(directory.state, _INDEX):
            place = _indexed_place(directory, index.path.name, conversation_id)
            if place not in (str(own), os.path.realpath(own)):
                remove_database(directory.state, index.path.name)

    def branch(self, setup: AgentSetup, branch: Fork, interruption: Interruption) -> None:
        """Give the copied rollouts the new id; a fork by the program would refer to the old id."""
        root = setup.directory.state
        threads = _find_threads(setup.directory)
        rollouts = [path for path, thread in threads.items() if thread == branch.parent_id]
        if not rollouts:
            return
        for index in find_files(root, _INDEX):
            remove_database(root, index.path.name)
        # An interrupted call may have renamed some.
        thread = (branch.parent_id, branch.conversation_id)
        own = frozenset(
            rollout_id(str(path.relative_to(root))) for path in threads if threads[path] in thread
        )
        rename = partial(_rename_thread, branch, own, interruption)
        for path in rollouts:
            rewrite_lines(root, str(path.relative_to(root)), rename, max_bytes=MAX_TRANSCRIPT_BYTES)
        for path in reversed(rollouts):  # the program refuses the newest rollout alone
            path.rename(path.with_name(path.name.replace(branch.parent_id, branch.conversation_id)))

    def transcripts(self, directory: AgentDir) -> Mapping[str, Path]:
        """Return the newest rollout of each thread, by id."""
        return {thread: path for path, thread in _find_threads(directory).items()}

    def find_reset(self, directory: AgentDir, conversation_id: str) -> datetime | None:
        """Return the time at which the last used-up allowance of the thread is renewed."""
        rollout = self.transcripts(directory).get(conversation_id)
        if rollout is None:
            return None
        root = directory.state
        with os.fdopen(open_file(root, str(rollout.relative_to(root))), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _ROLLOUT_TAIL_BYTES))
            lines = file.read(_ROLLOUT_TAIL_BYTES).splitlines()
        limits = next(filter(None, map(_read_allowances, reversed(lines))), {})
        windows = [record_in(limits, name) for name in ("primary", "secondary")]
        used_up = [
            window for window in windows if (number_in(window, "used_percent") or 0.0) >= _ALL
        ]
        resets = [reset_in(window, "resets_at") for window in used_up]
        return max((reset for reset in resets if reset is not None), default=None)

    def invocation(self, setup: AgentSetup, turn: Turn) -> Invocation:
        """Return the command and input for a process for this turn."""
        argv = (
            *(setup.binary, "exec", "--json", "--skip-git-repo-check"),
            *_MODES.get(setup.permission_mode, ()),  # the check refuses any other mode
            *(("--model", setup.model) if setup.model else ()),
            *(("resume", turn.continued_id) if turn.continued_id else ()),
            "-",
        )
        return Invocation(
            argv=argv,
            env={"CODEX_HOME": str(setup.state)},
            input=turn.prompt.encode(errors="replace"),
        )

    def converse(self, setup: AgentSetup, turn: Turn) -> Conversation:
        """Return the conversation with a process started for this turn."""
        return _Events()

    def explain_record(self, record: Record) -> DriverReport | None:
        """Return an ``error`` report if a line of JSON explains a failure."""
        message = _failure_message(record)
        return describe_failure(message, _ERRORS, _STATUS) if message else None


def _find_threads(directory: AgentDir) -> Mapping[Path, str]:
    """Return the thread of each rollout; the newest rollout of a thread comes last."""
    files = find_files(directory.state, "sessions/*/*/*/rollout-*.jsonl")
    paths = sorted(file.path for file in files)
    threads = {path: thread_id(str(path.relative_to(directory.state))) for path in paths}
    return {path: thread for path, thread in threads.items() if thread}


def _read_allowances(line: bytes) -> Record:
    """Return the limits in a line of a rollout; empty if there are none."""
    record = parse_record(line) if b"rate_limits" in line else None
    payload = record_in(record or {}, "payload")
    return record_in(payload, "rate_limits") if payload.get("type") == "token_count" else {}


def _rename_thread(
    branch: Fork, own: frozenset[str | None], interruption: Interruption, line: bytes
) -> bytes:
    """Return a line of a rollout, with the new id in place of the thread's own ids.

    Args:
        branch: The branch.
        own: The ids of all rollouts of the thread.
        interruption: Ends the work.
        line: The line, with its newline.

    Raises:
        AgentResumeError: The history of the thread starts in another thread.
    """
    interruption.check()
    record = parse_record(line) if b"session_meta" in line else None
    if record is None or record.get("type") != "session_meta":
        return line
    thread = record_in(record, "payload")
    base = record_in(thread, "history_base")
    if base and base.get("thread_id") not in own:
        raise AgentResumeError(
            f"thread {branch.parent_id} is itself a fork that refers to another rollout",
            hint="let the agent begin a new conversation, and branch that",
        )
    if thread.get("id") != branch.parent_id:
        return line
    renamed = dict(thread)
    renamed.update((name, branch.conversation_id) for name in _IDS if name in thread)
    if base.get("thread_id") == branch.parent_id:  # the thread's first rollout has its id
        renamed["history_base"] = {**base, "thread_id": branch.conversation_id}
    return json.dumps({**record, "payload": renamed}).encode() + b"\n"


def _settings(setup: AgentSetup, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of ``config.toml``."""
    # Applies to a new conversation; the program keeps the instructions with it.
    yield f"developer_instructions = {_quote(setup.system_prompt)}"
    yield "check_for_update_on_startup = false"
    base_url, key = env.get("OPENAI_BASE_URL"), next(filter(env.get, _KEYS), None)
    if base_url or key == "OPENAI_API_KEY":  # the program ignores both variables
        yield 'model_provider = "custom"'
        yield "[model_providers.custom]"
        yield 'name = "OpenAI"'
        yield f"base_url = {_quote(base_url or _BASE_URL)}"
        yield 'wire_api = "responses"'
        if key:
            yield f"env_key = {_quote(key)}"
    yield "[analytics]"
    yield "enabled = false"
    # Settings, hooks and MCP servers in the workspace's .codex have no effect.
    yield f"[projects.{_quote(real_path(setup, setup.workspace))}]"
    yield 'trust_level = "untrusted"'


def _quote(text: str) -> str:
    """Return text as a TOML string, which differs from JSON in one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _indexed_place(directory: AgentDir, index: str, conversation_id: str) -> str | None:
    """Return the path of a rollout according to an index; None if the index does not list it."""
    query = "SELECT rollout_path FROM threads WHERE id = ?"
    try:
        with copy_database(directory.state, index, scratch=directory.path) as database:
            rows = database.read(query, conversation_id) if database else []
    except OSError:
        return None
    return str(rows[0][0]) if rows else None


class _Events(RecordConversation):
    """Output of a process for its single turn."""

    def __init__(self) -> None:
        self._called: set[str] = set()
        self._text = ""

    def read_record(self, record: Record) -> Iterator[DriverReport]:
        match record.get("type"):
            case "thread.started" if thread := text_in(record, "thread_id"):
                yield DriverReport("session.confirmed", {"session_id": thread})
            case "turn.started":
                yield DriverReport("turn.started")
            case "item.started":
                yield from self._read_call(record_in(record, "item"))
            case "item.completed":
                yield from self._read_item(record_in(record, "item"))
            case "error" if retry := _RETRY.fullmatch(text_in(record, "message")):
                yield _describe_retry(retry)
            case "turn.completed":
                usage = _read_usage(record_in(record, "usage"))
                yield DriverReport("usage", {"usage": usage, "scope": "session"})
                yield DriverReport("turn.finished", {"ok": True, "text": self._text})
            case "turn.failed":
                yield describe_failure(_failure_message(record), _ERRORS, _STATUS)
                yield DriverReport("turn.finished", {"ok": False, "text": self._text})

    def _read_item(self, item: Record) -> Iterator[DriverReport]:
        match item.get("type"):
            case "agent_message":
                self._text = text_in(item, "text")
                yield DriverReport("message", {"role": "assistant", "text": self._text})
            case "reasoning":
                yield DriverReport("reasoning", {"text": text_in(item, "text")})
            case _:
                yield from self._read_call(item)
                yield from _read_return(item)

    def _read_call(self, item: Record) -> Iterator[DriverReport]:
        """Yield each tool call once; the program reports some calls only after they have ended."""
        kind, call = text_in(item, "type"), text_in(item, "id")
        if kind in _TOOLS and call not in self._called:
            self._called.add(call)
            arguments = {key: item[key] for key in _TOOLS[kind] if key in item}
            yield report_call(call, text_in(item, "tool") or kind, arguments)


def _read_return(item: Record) -> Iterator[DriverReport]:
    if item.get("type") not in _TOOLS:
        return
    content = text_in(item, "aggregated_output") or text_in(record_in(item, "error"), "message")
    content = content or join_parts(record_in(item, "result"))
    is_error = item.get("status") in ("failed", "declined")
    yield report_result(text_in(item, "id"), content, is_error=is_error)


def _read_usage(usage: Record) -> Usage:
    """Return the usage of the whole thread, whose input tokens include cached tokens."""
    cached = count_in(usage, "cached_input_tokens")
    written = count_in(usage, "cache_write_input_tokens")
    return Usage(
        input_tokens=max(0, count_in(usage, "input_tokens") - cached - written),
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=count_in(usage, "output_tokens"),
        reasoning_tokens=count_in(usage, "reasoning_output_tokens"),
    )


def _describe_retry(match: re.Match[str]) -> DriverReport:
    attempt, most, error = match.groups()
    status = _STATUS.search(error)
    data = {
        "attempt": int(attempt or 0),
        "max_attempts": int(most or 0),
        "delay_s": 0.0,
        "status": int(status[1]) if status else None,
        "error": error,
    }
    return DriverReport("retry", data)


def _failure_message(record: Record) -> str:
    """Return the reason for a failed turn or program; empty if the record reports no failure."""
    match record.get("type"):
        case "turn.failed":
            return text_in(record_in(record, "error"), "message") or "the turn failed"
        case "error":
            return text_in(record, "message")
    return ""
