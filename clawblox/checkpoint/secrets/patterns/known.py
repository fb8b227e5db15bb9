"""Secrets that are known by value: collects them, and finds them in every form.

:func:`known_values` reads an environment and the credential files of agents; everything else is
pure. No ``repr`` shows a value.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import attrs

from clawblox import protocol
from clawblox.checkpoint.secrets.patterns.shapes import Match, is_word, occurrences
from clawblox.checkpoint.secrets.patterns.spelling import find_anchors, is_plain, spelling_pattern
from clawblox.system.foreign_files import find_files, open_file

_MIN_CHARACTERS: Final = 12
_TAIL_BYTES: Final = 256
"""Only this many last bytes of a value are searched; keys and tokens share their first bytes."""

_MAX_FILE_BYTES: Final = 4 << 20
_MAX_FILES: Final = 32
_MAX_ENTRIES: Final = 64
"""More than any program keeps; an agent could write more to slow the scan down."""

_CREDENTIAL_FILES: Final = (
    ".credentials.json",
    ".claude.json",
    "auth.json",
    "config.toml",
    "credentials/*.json",
    "credentials/mcp/*.json",
)
_CREDENTIAL_HOMES: Final = (
    "session",
    *(
        f"{home}{state}"
        for home in ("home", "sandbox-home")
        for state in ("", "/.claude", "/.codex", "/.kimi", "/.kimi-code")
    ),
)
# Matches JSON, TOML and damaged files. A name is matched only from its first letter: trying every
# letter of a long word would take quadratic time.
_ENTRY: Final = re.compile(
    r"""(?<![\w.-])([\w.-]+)["']?\s*[:=]\s*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)')"""
)


class KnownValues(dict[str, str]):
    """Secrets by label. Safe in tracebacks: its ``repr`` shows only the number of secrets."""

    def __repr__(self) -> str:
        return f"<{len(self)} known secrets>"

    def __rich_repr__(self) -> Iterator[object]:
        yield len(self)

    def __or__(self, other: Mapping[str, str]) -> KnownValues:  # type: ignore[override]
        return KnownValues({**self, **other})


def known_values(environ: Mapping[str, str], agent_dirs: Iterable[Path]) -> KnownValues:
    """Return the secrets in an environment and in the credential files of agents.

    Args:
        environ: Variables. A variable counts if its name contains key, token, secret, password,
            credential or cookie, and if its value is not a path that exists.
        agent_dirs: Agent directories; programs keep credentials in ``session`` and ``home``.
            Files that cannot be read are skipped.

    Returns:
        Values by label; a label tells where the value comes from.
    """
    values = KnownValues()
    for name, value in environ.items():
        if _is_secret(name, value):
            values[f"env:{name}"] = value
    for agent_dir in agent_dirs:
        for file in islice(_credential_files(agent_dir), _MAX_FILES):
            for name, value in islice(_secrets_in(_read(agent_dir, file)), _MAX_ENTRIES):
                values[f"{agent_dir.name}:{file.name}:{name}"] = value
    return values


def _is_secret(name: str, value: str) -> bool:
    return (
        len(value) >= _MIN_CHARACTERS
        and protocol.SECRET_NAME.search(name) is not None
        and not (value.startswith("/") and "\0" not in value and os.path.lexists(value))
    )


def _credential_files(agent_dir: Path) -> Iterator[Path]:
    """Yield the paths of credential files below the directory of an agent."""
    for home in _CREDENTIAL_HOMES:
        if not (agent_dir / home).is_dir():
            continue
        for pattern in _CREDENTIAL_FILES:
            found = find_files(agent_dir, f"{home}/{pattern}")
            yield from sorted(file.path.relative_to(agent_dir) for file in found)


def _read(agent_dir: Path, path: Path) -> str:
    # The agent owns the directory: the file may be huge, or replaced by a link or a pipe.
    try:
        descriptor = open_file(agent_dir, str(path))
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MAX_FILE_BYTES).decode(errors="replace")


def _secrets_in(text: str) -> Iterator[tuple[str, str]]:
    for entry in _ENTRY.finditer(text):
        name, quoted, literal = entry.groups()
        value = literal if quoted is None else _unquote(quoted)
        # Secrets nearly always contain a digit; names of keys and of credential files do not.
        if _is_secret(name, value) and any(map(str.isdigit, value)):
            yield name, value


def _unquote(quoted: str) -> str:
    try:
        return str(json.loads(f'"{quoted}"'))
    except ValueError:
        return quoted


class KnownSecrets:
    """Finds known secrets in every form.

    Args:
        values: The secrets by label; secrets shorter than 12 characters are ignored.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        long = {value: label for label, value in values.items() if len(value) >= _MIN_CHARACTERS}
        self._labels = {
            value.encode(errors="surrogateescape"): label for value, label in long.items()
        }
        self._in_words: dict[bytes, bytes] = {}
        self._anywhere: dict[bytes, bytes] = {}
        self._escaped: list[_Escaped] = []
        for value in self._labels:
            tail = value[-_TAIL_BYTES:]
            for form in _forms(tail):
                (self._in_words if is_word(form) else self._anywhere)[form] = value
            text = tail.decode(errors="ignore")
            if text and not is_plain(text):
                self._escaped.append(_Escaped(value, find_anchors(text), spelling_pattern(text)))

    def __bool__(self) -> bool:
        return bool(self._labels)

    def digest(self, key: bytes) -> bytes:
        """Return a keyed digest of this set of secrets; without the key it reveals nothing."""
        state = hashlib.blake2b(key=key)
        for value in sorted(self._labels):
            state.update(len(value).to_bytes(8, "big") + value)
        return state.digest()

    def find(self, text: bytes, words: bytes) -> Iterator[Match]:
        """Yield every known secret in a text.

        Args:
            text: The text to search.
            words: Its long words, see :func:`shapes.long_words`.
        """
        for forms, filtered in ((self._in_words, words), (self._anywhere, text)):
            for form, value in forms.items():
                if form in filtered:
                    rule = f"known-value:{self._labels[value]}"
                    for at in occurrences(form, text):
                        end = at + len(form)
                        yield Match(rule=rule, start=at, end=end, secret=value, rank=0)
        for escaped in self._escaped:
            rule = f"known-value:{self._labels[escaped.value]}"
            for start, end in escaped.find(text):
                yield Match(rule=rule, start=start, end=end, secret=escaped.value, rank=0)


@attrs.frozen
class _Escaped:
    """A value with characters that may be escaped.

    Attributes:
        value: The value.
        anchors: Literals; every spelling contains one of them.
        spellings: A pattern that matches every spelling.
    """

    value: bytes = attrs.field(repr=False)
    _anchors: tuple[bytes, ...] = attrs.field(repr=False)
    _spellings: re.Pattern[bytes] = attrs.field(repr=False)

    def find(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and end of each spelling in a text."""
        if any(anchor in text for anchor in self._anchors):
            for spelling in self._spellings.finditer(text):
                yield spelling.span()


def _forms(value: bytes) -> set[bytes]:
    forms = {value, value.hex().encode(), value.hex().upper().encode(), *_base64_forms(value)}
    text = value.decode(errors="replace")
    if text.encode() == value:
        wide = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
        forms.update(text.encode(encoding) for encoding in wide)
    return forms


def _base64_forms(value: bytes) -> Iterator[bytes]:
    # The bytes before the value decide how it is split into groups of three. Characters that it
    # shares with its neighbours are left out.
    for before in range(3):
        bits = (before + len(value)) * 8
        encoded = base64.b64encode(b"\0" * before + value)
        inner = encoded[(before * 8 + 5) // 6 : bits // 6]
        yield inner
        yield inner.translate(bytes.maketrans(b"+/", b"-_"))
