"""opencode: one process of ``opencode run`` for each turn, with its prompt on standard input.

Measured with version 1.18.33. All conversations are in one database; archives do not include it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

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
    KnownProgramDriver,
    RecordConversation,
    real_path,
)
from clawblox.agents.drivers.output import (
    Record,
    count_in,
    number_in,
    record_in,
    report_call,
    report_error,
    report_result,
    status_in,
    text_in,
)
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import OPENCODE
from clawblox.agents.values import DriverReport, Usage
from clawblox.concurrency.threads import Interruption
from clawblox.errors.agent import ErrorKind
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.foreign_database import DatabaseCopy, copy_database

_DATABASE: Final = "data/opencode/opencode.db"
_LOGIN_FILE: Final = Path("data/opencode/auth.json")
_SETTINGS_FILE: Final = "opencode.json"
XDG_ENV: Final = {
    "XDG_DATA_HOME": "data",
    "XDG_CONFIG_HOME": "config",
    "XDG_STATE_HOME": "state",
    "XDG_CACHE_HOME": "cache",
}
_QUIET_ENV: Final = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_PURE": "1",
}
_PLUGINS: Final = (".opencode/plugin", ".opencode/plugins")
"""Directories of the workspace whose plugins the program always runs."""

_KEYS: Final = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "opencode": "OPENCODE_API_KEY",
}
"""Environment variable with the key of each known provider."""

_CONVERSATIONS: Final = (
    "SELECT id, (SELECT count(*) FROM message WHERE session_id = session.id) FROM session"
    " WHERE parent_id IS NULL"
)

_CONTINUED: Final = ("tool-calls", "unknown")
"""Reasons of finished steps after which the program asks the model again."""

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_FAILURE: Final = re.compile(r"Error: (.*)")
_KIND_BY_NAME: Final[Mapping[str, ErrorKind]] = {
    "ProviderAuthError": "auth",
    "ContextOverflowError": "invalid",
    "ProviderModelNotFoundError": "invalid",
}


class OpencodeDriver(KnownProgramDriver):
    """Drives opencode."""

    program = OPENCODE
    product = "opencode"
    version = re.compile(r"^(\d+)\.(\d+)\.\d+$", re.MULTILINE)
    oldest = (1, 18)
    install_hint = f"npm install -g {OPENCODE.package}@latest"
    modes = (None, "allow", "bypassPermissions")
    modes_hint = "leave permission_mode out: there is no person to give permissions"
    can_branch = True
    reports_cost = True
    keeps_system_prompt = False

    def find_problems(self, setup: AgentSetup, env: Mapping[str, str]) -> Iterator[Requirement]:
        """Yield the problems with its login, its model or its workspace."""
        provider, slash, _ = (setup.model or "").partition("/")
        key = _KEYS.get(provider)
        if setup.model and not slash:
            yield Requirement(
                problem=f"the model {setup.model!r} does not name its provider",
                hint=f"give model= as provider/model, for example openai/{setup.model}",
            )
        elif key and not env.get(key) and not (setup.directory.state / _LOGIN_FILE).is_file():
            problem = f"it is not logged in: {key} is not set"
            yield Requirement(problem=problem, hint=f"set {key}", kind="auth")
        for name in _PLUGINS:
            plugins = setup.directory.workspace / name
            if plugins.exists():
                yield Requirement(
                    problem=f"it would run the plugins in {plugins}",
                    hint="remove them: the workspace must not choose what the program runs",
                )

    def prepare(self, setup: AgentSetup, env: Mapping[str, str]) -> None:
        """Write the program's settings."""
        state = make_private_dir(setup.directory.state)
        settings = json.dumps(_settings(setup, env), indent=2).encode() + b"\n"
        publish_bytes(state / _SETTINGS_FILE, settings, durable=False)

    def adopt(self, setup: AgentSetup, conversation_id: str, interruption: Interruption) -> None:
        """Record this workspace for the conversation: the program hangs with any other.

        Raises:
            OSError: The database cannot be written.
        """
        workspace = real_path(setup, setup.workspace)
        directory = setup.directory
        with copy_database(directory.state, _DATABASE, scratch=directory.path) as database:
            if database is not None:
                _move_conversations(database, conversation_id, workspace)

    def transcripts(self, directory: AgentDir) -> Mapping[str, Path]:
        """Return the database for each conversation in it, without those of sub-agents."""
        return dict.fromkeys(self.progress(directory), directory.state / _DATABASE)

    def progress(self, directory: AgentDir) -> Mapping[str, int]:
        """Return the number of messages of each conversation, without those of sub-agents."""
        with copy_database(directory.state, _DATABASE, scratch=directory.path) as database:
            rows = database.read(_CONVERSATIONS) if database else []
        is_id = OPENCODE.id_pattern.fullmatch
        return {str(id_): int(count or 0) for id_, count in rows if is_id(str(id_))}

    def invocation(self, setup: AgentSetup, turn: Turn) -> Invocation:
        """Return the command and input for a process for this turn."""
        match turn.start:
            case Begin():  # with a title, the program does not ask the model for one
                conversation: tuple[str, ...] = ("--title", "agent")
            case Continue(conversation_id):
                conversation = ("--session", conversation_id)
            case Fork(parent_id):
                conversation = ("--session", parent_id, "--fork")
        argv = (
            *(setup.binary, "run", "--format", "json", "--thinking"),
            *(("--model", setup.model) if setup.model else ()),
            *conversation,
        )
        homes = {name: str(setup.state / place) for name, place in XDG_ENV.items()}
        settings = {"OPENCODE_CONFIG": str(setup.state / _SETTINGS_FILE)}
        return Invocation(
            argv=argv,
            env={**homes, **settings, **_QUIET_ENV},
            input=turn.prompt.encode(errors="replace"),
        )

    def converse(self, setup: AgentSetup, turn: Turn) -> Conversation:
        """Return the conversation with a process started for this turn."""
        return _Events()

    def explain_text(self, line: str) -> DriverReport | None:
        """Return an ``error`` report if a line of text explains a failure."""
        failure = _FAILURE.search(_ESCAPES.sub("", line))
        if failure is None:
            return None
        kind: ErrorKind = "resume" if "Session not found" in failure[1] else "invalid"
        return report_error(failure[1], kind)

    def explain_record(self, record: Record) -> DriverReport | None:
        """Return an ``error`` report if a line of JSON explains a failure."""
        is_failure = record.get("type") == "error"
        return _describe_failure(record_in(record, "error")) if is_failure else None


# -- the private home --------------------------------------------------------------------------


def _settings(setup: AgentSetup, env: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
        "instructions": [str(setup.runtime / "system_prompt.md")] if setup.system_prompt else [],
    }
    provider, _, model = (setup.model or "").partition("/")
    base_url = env.get(f"{provider.upper()}_BASE_URL" if provider in _KEYS else "OPENAI_BASE_URL")
    if provider and base_url:
        options = {"baseURL": base_url}
        known: dict[str, Any] = {"options": options}
        if provider not in _KEYS:
            options["apiKey"] = "{env:OPENAI_API_KEY}"
            known |= {"npm": "@ai-sdk/openai-compatible", "name": provider}
        settings["provider"] = {provider: {**known, "models": {model: {}}}}
    return settings


def _move_conversations(database: DatabaseCopy, conversation_id: str, workspace: str) -> None:
    """Record a new directory for a conversation and all others with the same directory."""
    rows = database.read("SELECT directory FROM session WHERE id = ?", conversation_id)
    directory = rows[0][0] if rows else workspace
    if isinstance(directory, str) and directory != workspace:
        moved = (workspace, directory)
        paths = [place.lstrip("/") for place in moved]
        database.replace(
            [
                ("UPDATE session SET directory = ? WHERE directory = ?", moved),
                ("UPDATE session SET path = ? WHERE path = ?", paths),
            ]
        )


# -- the conversation --------------------------------------------------------------------------


class _Events(RecordConversation):
    """Output of a process for its single turn."""

    def __init__(self) -> None:
        self._conversation_id = ""
        self._text = ""

    def read_record(self, record: Record) -> Iterator[DriverReport]:
        conversation = text_in(record, "sessionID")
        if not conversation:
            return
        if conversation != self._conversation_id:
            self._conversation_id = conversation
            yield DriverReport("session.confirmed", {"session_id": conversation})
            yield DriverReport("turn.started")
        part = record_in(record, "part")
        match record.get("type"):
            case "text":
                self._text = text_in(part, "text")
                yield DriverReport("message", {"role": "assistant", "text": self._text})
            case "reasoning":
                yield DriverReport("reasoning", {"text": text_in(part, "text")})
            case "tool_use":
                yield from _read_tool(part)
            case "step_finish":
                yield DriverReport("usage", {"usage": _read_usage(part), "scope": "turn"})
                if part.get("reason") not in _CONTINUED:
                    yield DriverReport("turn.finished", {"ok": True, "text": self._text})
            case "error":
                yield _describe_failure(record_in(record, "error"))
                yield DriverReport("turn.finished", {"ok": False, "text": self._text})


def _read_tool(part: Record) -> Iterator[DriverReport]:
    """Yield a tool call; the program reports it only after its end."""
    call, state = text_in(part, "callID"), record_in(part, "state")
    yield report_call(call, text_in(part, "tool"), record_in(state, "input"))
    content = text_in(state, "output") or text_in(state, "error")
    yield report_result(call, content, is_error=state.get("status") == "error")


def _read_usage(part: Record) -> Usage:
    """Return the usage of one request to the model. A cost of 0 means that the price is unknown."""
    tokens = record_in(part, "tokens")
    cache = record_in(tokens, "cache")
    reasoning = count_in(tokens, "reasoning")
    return Usage(
        input_tokens=count_in(tokens, "input"),
        cached_tokens=count_in(cache, "read"),
        cache_write_tokens=count_in(cache, "write"),
        output_tokens=count_in(tokens, "output") + reasoning,
        reasoning_tokens=reasoning,
        cost_usd=number_in(part, "cost") or None,
    )


def _describe_failure(error: Record) -> DriverReport:
    data = record_in(error, "data")
    name, status = text_in(error, "name"), status_in(data, "statusCode")
    message = text_in(data, "message") or name or "it failed"
    return report_error(message, _KIND_BY_NAME.get(name, "model"), status)
