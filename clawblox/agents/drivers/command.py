"""Any program, started with a template of its command line: one process per turn.

The table is passed as the agent's ``command=``:

- ``start``: the words that begin a conversation. The first word is the program.
- ``resume``: the words that continue a conversation; without it, a conversation cannot be
continued.
- ``session``: regular expression whose single group matches the id in a line of the program's
  output. Without it, clawblox chooses the id and cannot verify a resume, so ``resume`` requires it.
- ``prompt``: ``argument`` (``{prompt}`` in the words) or ``stdin``.

In the words, ``{prompt}``, ``{session}`` (a new id in ``start``), ``{system_prompt_file}``,
``{workspace}`` and ``{model}`` are replaced.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.drivers.driver import (
    AgentSetup,
    Continue,
    Conversation,
    Driver,
    Invocation,
    Requirement,
    Turn,
)
from clawblox.agents.programs import Program
from clawblox.agents.values import DriverReport
from clawblox.config.arguments import mismatch
from clawblox.errors import AgentResumeError, ConfigError
from clawblox.spelling import nearest_name, suggest_nearest

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_NAMES: Final = frozenset({"prompt", "session", "system_prompt_file", "workspace", "model"})
_KEYS: Final = frozenset({"start", "resume", "session", "prompt"})
_PROMPT_WAYS: Final = ("argument", "stdin")

CONVERSATION_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,199}")
"""Allowed ids; they become words of a command line and parts of paths."""


def _suggest_table(given: object) -> str | None:
    """Return a hint that shows a program's words as a table."""
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not words:
        return None
    program, *others = map(str, words)
    program = f".{os.sep}{Path(program).name}" if os.sep in program else program
    start = json.dumps([program, *others, "{prompt}"], ensure_ascii=False)
    return f'write {{"start": {start}}}'


@attrs.frozen(kw_only=True)
class CommandTable:
    """A caller's command table, checked.

    Attributes:
        start: The words that begin a conversation.
        resume: The words that continue a conversation; None if it cannot be continued.
        session: Matches the id of the conversation in a line of output; None if clawblox chose
            the id.
        by_stdin: Whether the prompt is passed on standard input.
    """

    start: tuple[str, ...]
    resume: tuple[str, ...] | None
    session: re.Pattern[str] | None
    by_stdin: bool

    @classmethod
    def parse(cls, given: object) -> CommandTable:
        """Parse a caller's ``command=``.

        Raises:
            ConfigError: The table is invalid; the error names the key and the valid values.
        """
        if not isinstance(given, Mapping):
            expected = 'a table such as {"start": ["my-agent", "{prompt}"]}'
            raise mismatch("command", expected, given, hint=_suggest_table(given))
        for key in given:
            if key not in _KEYS:
                hint = suggest_nearest(str(key), _KEYS)
                known = f"one of {', '.join(sorted(_KEYS))}"
                raise mismatch(f"command.{key}", known, key, hint=hint)
        way = given.get("prompt", "argument")
        if way not in _PROMPT_WAYS:
            raise mismatch("command.prompt", " or ".join(_PROMPT_WAYS), way)
        by_stdin = way == "stdin"
        resume = given.get("resume")
        return cls(
            start=_check_template(given.get("start"), "command.start", by_stdin=by_stdin),
            resume=None if resume is None else _check_resume(given, by_stdin=by_stdin),
            session=_check_pattern(given.get("session")),
            by_stdin=by_stdin,
        )


def check_words(given: object, key: str) -> tuple[str, ...]:
    """Return the words of a command line.

    Raises:
        ConfigError: The value is not a list of strings without NUL, or is empty.
    """
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    words = tuple(given) if isinstance(given, Sequence) and is_list else ()
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        expected = 'the words of a command line, such as ["my-agent", "--quiet"]'
        raise mismatch(key, expected, given)
    if not words[0]:
        raise ConfigError(
            "must begin with the name of the program, not with an empty word", key=key, value=given
        )
    return words


def _check_template(given: object, key: str, *, by_stdin: bool) -> tuple[str, ...]:
    words = check_words(given, key)
    used = {name for word in words for name in _PLACEHOLDER.findall(word)}
    for name in sorted(used - _NAMES):
        likely = nearest_name(name, _NAMES)
        if likely:  # other braces may belong to the program's own syntax
            known = ", ".join(f"{{{placeholder}}}" for placeholder in sorted(_NAMES))
            hint = f"did you mean {{{likely}}}?"
            raise ConfigError(
                f"must have placeholders among {known}, not {{{name}}}",
                key=key,
                value=given,
                hint=hint,
            )
    if by_stdin and "prompt" in used:
        message = 'must not have {prompt}, because "prompt" is "stdin"'
        raise ConfigError(message, key=key, value=given)
    if not by_stdin and "prompt" not in used:
        hint = 'add "{prompt}", or "prompt": "stdin" to the table'
        raise ConfigError(
            "must have {prompt}, otherwise the program never gets its prompt",
            key=key,
            value=given,
            hint=hint,
        )
    return words


def _check_resume(given: Mapping[Any, Any], *, by_stdin: bool) -> tuple[str, ...]:
    key = "command.resume"
    words = _check_template(given["resume"], key, by_stdin=by_stdin)
    if not any("{session}" in word for word in words):
        message = "must have {session}: a conversation is continued by its id, never as the latest"
        raise ConfigError(message, key=key, value=given["resume"])
    if words[0] != next(iter(given["start"])):
        raise ConfigError(
            f"must begin with the same program as start, not {words[0]!r}", key=key, value=words[0]
        )
    if given.get("session") is None:
        message = 'must come with "session": nothing else proves that the conversation is continued'
        hint = 'add "session": a regular expression whose single group matches the printed id'
        raise ConfigError(message, key=key, value=given["resume"], hint=hint)
    return words


def _check_pattern(given: object) -> re.Pattern[str] | None:
    if given is None:
        return None
    key = "command.session"
    try:
        pattern = re.compile(given if isinstance(given, str) else "")
    except re.error as error:
        raise ConfigError(f"must be a regular expression: {error}", key=key, value=given) from None
    if pattern.groups != 1:
        expected = r"a regular expression with one group, the id, such as 'session: (\S+)'"
        raise mismatch(key, expected, given)
    return pattern


class CommandDriver(Driver):
    """Drives any program with a template; pass its keys with ``env=``."""

    program = Program(driver="command", id_pattern=CONVERSATION_ID, reads_prompts=False)

    def name_binary(self, binary: str | None, command: object) -> str:
        """Return the program for a caller's ``binary=`` or ``command=``.

        Raises:
            ConfigError: ``command`` is not a valid table.
        """
        table = CommandTable.parse(command)
        return binary or table.start[0]

    def can_continue(self, command: object) -> bool:
        """Return whether the table has ``resume``; see :meth:`Driver.can_continue`."""
        return CommandTable.parse(command).resume is not None

    def version_argv(self, binary: str) -> tuple[str, ...]:
        """Return an empty command: the program's version command is unknown."""
        return ()

    def check(self, setup: AgentSetup, env: Mapping[str, str], version: str) -> list[Requirement]:
        """Require a model if the command contains ``{model}``."""
        table = CommandTable.parse(setup.command)
        words = " ".join((*table.start, *(table.resume or ())))
        if "{model}" not in words or setup.model is not None:
            return []
        problem = "the command has {model}, and the agent has no model"
        return [Requirement(problem=problem, hint="give the agent a model=")]

    def prepare(self, setup: AgentSetup, env: Mapping[str, str]) -> None:
        """Do nothing: the program's questions are unknown."""

    def invocation(self, setup: AgentSetup, turn: Turn) -> Invocation:
        """Return the command for a process for this turn.

        Raises:
            AgentResumeError: The turn continues a conversation, and ``resume`` is missing.
        """
        table = CommandTable.parse(setup.command)
        template = table.resume if isinstance(turn.start, Continue) else table.start
        if template is None:
            raise AgentResumeError(
                "its command cannot continue a conversation",
                hint='add "resume" and "session" to command=',
            )
        values = {
            "prompt": turn.prompt,
            "session": turn.start.conversation_id,
            "system_prompt_file": str(setup.runtime / "system_prompt.md"),
            "workspace": str(setup.workspace),
            "model": setup.model or "",
        }
        return Invocation(
            argv=(setup.binary, *_fill(template[1:], values)),
            input=turn.prompt.encode(errors="replace") if table.by_stdin else b"",
        )

    def converse(self, setup: AgentSetup, turn: Turn) -> Conversation:
        """Return the conversation with a process started for this turn."""
        return _Output(CommandTable.parse(setup.command), turn)


def _fill(words: Iterable[str], values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), word) for word in words
    )


class _Output(Conversation):
    """Output of a process that works on one prompt and prints the id of its conversation."""

    def __init__(self, table: CommandTable, turn: Turn) -> None:
        self._pattern = table.session
        self._own_id = turn.start.conversation_id
        self._conversation_id: str | None = None

    def read(self, line: bytes) -> Sequence[DriverReport]:
        text = line.decode(errors="replace").rstrip()
        conversation_id = self._find_id(text)
        reports = [DriverReport("message", {"role": "assistant", "text": text})] if text else []
        if conversation_id is None or conversation_id == self._conversation_id:
            return reports
        is_first, self._conversation_id = self._conversation_id is None, conversation_id
        confirmed = DriverReport("session.confirmed", {"session_id": conversation_id})
        return [confirmed, *([DriverReport("turn.started")] if is_first else []), *reports]

    def _find_id(self, text: str) -> str | None:
        if self._pattern is None:
            return self._own_id
        match = self._pattern.search(text)
        printed = match[1] if match else None
        return printed if printed and CONVERSATION_ID.fullmatch(printed) else None
