"""Kimi Code: one process of ``kimi --prompt`` for each turn. Measured with version 2.1.0.

It names its conversation only after a turn has succeeded. Until then, files on disk identify it.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

from clawblox.agents.drivers.driver import (
    AgentSetup,
    Conversation,
    Fork,
    Invocation,
    RecordedFile,
    RecordedUsage,
    Requirement,
    Turn,
)
from clawblox.agents.drivers.known_program import (
    MAX_TRANSCRIPT_BYTES,
    KnownProgramDriver,
    RecordConversation,
    describe_failure,
    may_lack_login,
    real_path,
)
from clawblox.agents.drivers.output import (
    ErrorPatterns,
    Record,
    count_in,
    list_in,
    parse_record,
    record_in,
    report_call,
    report_result,
    report_retry,
    text_in,
)
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import KIMI
from clawblox.agents.programs.kimi import (
    AGENT_NAME,
    MAIN_TRANSCRIPT,
    STATE_FILE,
    bind_record,
    bind_state,
    work_dir_key,
)
from clawblox.agents.values import DriverReport, Usage
from clawblox.concurrency.threads import Interruption
from clawblox.printable import quote_words
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.regular_files import (
    find_files,
    make_directory,
    open_file,
    read_file,
    rewrite_lines,
)
from clawblox.telemetry.own_log import OwnLog

_VARIABLE: Final = re.compile(r"\$(?=\{[A-Za-z_][A-Za-z0-9_]*\})")

QUIET_ENV: Final = {"KIMI_CODE_NO_AUTO_UPDATE": "1", "KIMI_DISABLE_TELEMETRY": "1"}

_KEY: Final = "KIMI_MODEL_API_KEY"
_NAME: Final = "KIMI_MODEL_NAME"

_RETRY_KEYS: Final = ("failed_attempt", "max_attempts", "delay_ms", "status_code", "error_message")
_FAILURE: Final = re.compile(r"error: (failed to run prompt: )?(.*)")
_STATUS: Final = re.compile(r"\bprovider\.\w+: (\d{3})\b")
_ERRORS: Final[ErrorPatterns] = (
    (re.compile(r'Session ".*" not found|created under a different directory'), "resume"),
    (re.compile(r"auth_error|No model configured|no credential|API_KEY is missing|login"), "auth"),
    (re.compile(r"provider\.rate_limit"), "rate_limit"),
    (re.compile(r"provider\.(overloaded|connection_error)"), "overloaded"),
    (re.compile(r"context\.overflow|not_found|config_invalid|unknown option"), "invalid"),
)

_MAX_STATE_BYTES: Final = 64 << 20


class KimiDriver(KnownProgramDriver):
    """Drives Kimi Code. An older program of the same name prints "kimi, version 1.52.0"."""

    program = KIMI
    product = "Kimi Code"
    version = re.compile(r"^(\d+)\.(\d+)\.\d+$", re.MULTILINE)
    oldest = (2, 1)
    install_hint = f"npm install -g {KIMI.package}@latest, with Node 22 or newer"
    modes = (None, "auto", "bypassPermissions")
    """With a prompt, the program has only one mode and never asks; the last is Claude's name."""
    modes_hint = "leave permission_mode out: with a prompt it never asks"
    records_usage = True
    can_branch = True

    def find_problems(self, setup: AgentSetup, env: Mapping[str, str]) -> Iterator[Requirement]:
        """Yield the problems with its login, its model or its workspace."""
        name, key = setup.model or env.get(_NAME), env.get(_KEY)
        if name and not key:
            problem = f"a model is named, but {_KEY} is not set"
            hint = f"set {_KEY} and KIMI_MODEL_BASE_URL"
            yield Requirement(problem=problem, hint=hint, kind="auth")
        elif key and not name:
            problem = f"{_KEY} is set, but no model is named"
            yield Requirement(problem=problem, hint=f"give model=, or set {_NAME}")
        elif not key and not (setup.directory.state / "config.toml").is_file():
            by_hand = f"KIMI_CODE_HOME={quote_words([str(setup.directory.state)])} kimi login"
            hint = f"set {_KEY} and {_NAME}, or log in with {by_hand}"
            yield may_lack_login(f"{_KEY} is not set", hint)

    def prepare(self, setup: AgentSetup, env: Mapping[str, str]) -> None:
        """Write the system prompt, after the program's own. A new conversation keeps it."""
        state = make_private_dir(setup.directory.state)
        # The file is a template. The empty variable in the middle keeps the others from expanding.
        literal = _VARIABLE.sub("$${role_additional}", setup.system_prompt)
        content = f"${{base_prompt}}\n\n{literal}\n".encode(errors="replace")
        publish_bytes(state / "SYSTEM.md", content, durable=False)

    def adopt(self, setup: AgentSetup, conversation_id: str, interruption: Interruption) -> None:
        """Bind the conversation to this workspace: the program refuses other directories."""
        transcript = self.transcripts(setup.directory).get(conversation_id)
        if transcript is None:
            return
        conversation, root = _conversation_dir(transcript), setup.directory.state
        key = work_dir_key(setup.workspace)
        home = f"{real_path(setup, setup.state)}/sessions/{key}/{conversation_id}"
        path = f"{conversation.relative_to(root)}/{STATE_FILE}"
        state = read_file(root, path, max_bytes=_MAX_STATE_BYTES)
        try:
            bound = bind_state(state, cwd=real_path(setup, setup.workspace), home=home)
        except ValueError as error:
            raise OSError(f"{conversation / STATE_FILE}: {error}") from error
        if conversation.parent.name == key and parse_record(state) == parse_record(bound):
            return
        for wire in _find_wires(root, conversation):
            bind = partial(_bind_line, key, interruption)
            rewrite_lines(root, wire, bind, max_bytes=MAX_TRANSCRIPT_BYTES)
        publish_bytes(conversation / STATE_FILE, bound)
        os.close(make_directory(root, f"sessions/{key}"))
        conversation.rename(root / "sessions" / key / conversation_id)

    def branch(self, setup: AgentSetup, branch: Fork, interruption: Interruption) -> None:
        """Give the copied conversation the new id; the transcripts contain no id."""
        transcript = self.transcripts(setup.directory).get(branch.parent_id)
        if transcript is None:
            return
        root, conversation = setup.directory.state, _conversation_dir(transcript)
        path = f"{conversation.relative_to(root)}/{STATE_FILE}"
        state = parse_record(read_file(root, path, max_bytes=_MAX_STATE_BYTES)) or {}
        named = json.dumps({**state, "id": branch.conversation_id}, allow_nan=False).encode()
        publish_bytes(conversation / STATE_FILE, named)
        conversation.rename(conversation.with_name(branch.conversation_id))
        self.adopt(setup, branch.conversation_id, interruption)  # its paths contain the id too

    def transcripts(self, directory: AgentDir) -> Mapping[str, Path]:
        """Return the newest main transcript of each conversation, by id."""
        files = find_files(directory.state, f"sessions/*/*/{MAIN_TRANSCRIPT}")
        return {
            _conversation_dir(file.path).name: file.path
            for file in sorted(files, key=lambda file: file.mtime_ns)
            if KIMI.id_pattern.fullmatch(_conversation_dir(file.path).name)
        }

    def read_usage(
        self, directory: AgentDir, conversation_id: str, recorded: RecordedUsage
    ) -> DriverReport | None:
        """Return the usage of the conversation, from the wire files of all its agents."""
        recorded.begin(conversation_id)
        transcript = self.transcripts(directory).get(conversation_id)
        if transcript is None:
            return None
        return _read_wires(directory.state, _conversation_dir(transcript), recorded)

    def invocation(self, setup: AgentSetup, turn: Turn) -> Invocation:
        """Return the command for a process for this turn. The prompt can only be an argument."""
        argv = (
            *(setup.binary, f"--prompt={turn.prompt}", "--output-format", "stream-json"),
            *(("-r", turn.continued_id) if turn.continued_id else ()),
        )
        env = {
            "KIMI_CODE_HOME": str(setup.state),
            **QUIET_ENV,
            **({_NAME: setup.model} if setup.model else {}),
        }
        return Invocation(argv=argv, env=env)

    def converse(self, setup: AgentSetup, turn: Turn) -> Conversation:
        """Return the conversation with a process started for this turn."""
        return _Lines(turn.continued_id)

    def explain(self, log_lines: Sequence[str]) -> DriverReport | None:
        """Return an ``error`` report if the last lines of a failed process explain the failure."""
        matches = [match for match in map(_FAILURE.match, reversed(log_lines)) if match]
        # The lines include output of its tools, and many tools print errors in this form.
        own = [match for match in matches if match[1]]
        messages = (match[2].strip() for match in (*own, *matches))
        return next((describe_failure(text, _ERRORS, _STATUS) for text in messages), None)


def _bind_line(key: str, interruption: Interruption, line: bytes) -> bytes:
    interruption.check()
    return bind_record(key, line)


def _conversation_dir(transcript: Path) -> Path:
    """Return the conversation's directory, given its main transcript."""
    return transcript.parents[len(Path(MAIN_TRANSCRIPT).parts) - 1]


# -- the conversation --------------------------------------------------------------------------


class _Lines(RecordConversation):
    """Output of a process for its single turn.

    Args:
        conversation_id: The continued conversation; None for a new conversation.
    """

    def __init__(self, conversation_id: str | None) -> None:
        self._conversation_id = conversation_id
        self._version = ""
        self._text = ""

    def read_record(self, record: Record) -> Iterator[DriverReport]:
        match record.get("role"), record.get("type"):
            case "meta", "system.version":
                self._version = text_in(record, "version")
                yield DriverReport("turn.started")
            case "meta", "turn.step.retrying":
                yield report_retry(record, _RETRY_KEYS)
            case "meta", "session.resume_hint" if conversation := text_in(record, "session_id"):
                facts = {"session_id": conversation, "version": self._version}
                yield DriverReport("session.confirmed", {k: v for k, v in facts.items() if v})
                if self._conversation_id in (None, conversation):
                    yield DriverReport("turn.finished", {"ok": True, "text": self._text})
                # Otherwise a program run by the agent may have printed it.
            case "assistant", _:
                if text := text_in(record, "content"):
                    self._text = text
                    yield DriverReport("message", {"role": "assistant", "text": text})
                yield from map(_read_call, list_in(record, "tool_calls"))
            case "tool", _:
                call, content = text_in(record, "tool_call_id"), text_in(record, "content")
                # The program does not report whether the tool failed.
                yield report_result(call, content, is_error=False)


def _read_call(call: Record) -> DriverReport:
    function = record_in(call, "function")
    written = text_in(function, "arguments")
    arguments: Mapping[str, Any] = parse_record(written) or ({"text": written} if written else {})
    return report_call(text_in(call, "id"), text_in(function, "name"), arguments)


_log = OwnLog(__name__)

_MAX_LINE_BYTES: Final = 8 << 20
"""Maximum length of a line, as in the output of a program; longer lines are skipped."""

_MAX_READ_BYTES: Final = 512 << 20
"""Maximum bytes that a call reads from all wire files together; the next call continues."""

_MAX_WIRES: Final = 4096
_USAGE_MARK: Final = b'"usage.record"'


def _find_wires(root: Path, conversation: Path) -> list[str]:
    """Return the wire files of a conversation, as paths below the state directory, ``main`` first.

    Args:
        root: The state directory.
        conversation: The directory of the conversation.
    """
    place = str(conversation.relative_to(root))
    pattern = f"{glob.escape(place)}/agents/*/wire.jsonl"
    wires = [str(file.path.relative_to(root)) for file in find_files(root, pattern)]
    main = f"{place}/{MAIN_TRANSCRIPT}"
    return sorted(filter(_agent_name, wires), key=lambda wire: (wire != main, wire))


def _agent_name(wire: str) -> str | None:
    """Return the agent of a wire file; None if the program does not use such names."""
    name = wire.split("/")[-2]
    return name if re.fullmatch(AGENT_NAME, name) else None


def _read_wires(root: Path, conversation: Path, recorded: RecordedUsage) -> DriverReport | None:
    """Return the usage of a conversation; None if its wire files are unchanged since the last call.

    A wire file that cannot be read is left out, with a warning.

    Args:
        root: The state directory.
        conversation: The directory of the conversation.
        recorded: Read positions in the files.
    """
    left, grown = _MAX_READ_BYTES, {}
    for wire in _find_wires(root, conversation)[:_MAX_WIRES]:
        name = _agent_name(wire) or ""
        file = recorded.files.setdefault(name, RecordedFile())
        before = file.usage
        try:
            left -= _read_on(root, wire, file, left, recorded)
        except OSError as error:
            _log.warning("usage not read", path=str(root / wire), error=str(error))
        if file.usage != before:
            grown[name] = file.usage
    if not grown:
        return None
    total = reduce(Usage.plus, (file.usage for file in recorded.files.values()))
    return DriverReport("usage", {"usage": total, "scope": "recorded", "files": grown})


def _read_on(root: Path, wire: str, file: RecordedFile, left: int, recorded: RecordedUsage) -> int:
    """Continue reading a wire file; return the number of bytes read."""
    with os.fdopen(open_file(root, wire), "rb", buffering=1 << 20) as lines:
        status = os.fstat(lines.fileno())
        if status.st_size > MAX_TRANSCRIPT_BYTES:
            path = str(root / wire)
            if path not in recorded.refused:
                recorded.refused.add(path)
                _log.warning(
                    "usage not read: file too large", path=path, max_bytes=MAX_TRANSCRIPT_BYTES
                )
            return 0
        if status.st_ino != file.inode or status.st_size < file.position:  # it was rewritten
            file.inode, file.position, file.is_within = status.st_ino, 0, False
            file.usage = Usage()
        begin = file.position
        lines.seek(begin)
        while file.position - begin < left and not recorded.interruption.is_set:
            line = lines.readline(_MAX_LINE_BYTES)
            is_whole = line.endswith(b"\n")
            if not is_whole and len(line) < _MAX_LINE_BYTES:
                break  # the program may be writing it
            if is_whole and not file.is_within and _USAGE_MARK in line:
                file.usage = file.usage.plus(_read_count(line))
            file.is_within = not is_whole
            file.position += len(line)
        return file.position - begin


def _read_count(line: bytes) -> Usage:
    """Return the usage of one request to a model."""
    record = parse_record(line) or {}
    if record.get("type") != "usage.record":
        return Usage()
    count = record_in(record, "usage")
    return Usage(
        input_tokens=count_in(count, "inputOther"),
        cached_tokens=count_in(count, "inputCacheRead"),
        cache_write_tokens=count_in(count, "inputCacheCreation"),
        output_tokens=count_in(count, "output"),
    )
