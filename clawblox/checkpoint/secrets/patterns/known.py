"""Collects secrets that are known by value, and finds them in every form.

:func:`known_values` reads an environment and the credential files of agents; all else is pure. A
``repr`` never shows a value.
"""

from __future__ import annotations

import base64
import hashlib
import html.entities
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import attrs

from clawblox import protocol
from clawblox.checkpoint.secrets.patterns.shapes import SecretMatch, is_word, occurrences
from clawblox.system.regular_files import find_files, open_file

_PLAIN: Final = re.compile(r"[A-Za-z0-9]+")
_UNESCAPED: Final = re.compile(r"[A-Za-z0-9_.~-]*")
_MIN_ANCHOR: Final = 3
_BACKSLASHES: Final = rb"\\{0,32}"
"""Pattern of backslashes, which double with every level of quoting; 32 allow five levels."""

_LETTERS: Final = {
    "\a": b"a", "\b": b"b", "\t": b"t", "\n": b"n", "\v": b"v", "\f": b"f", "\r": b"r",
}  # fmt: skip
_NAMES: Final = {
    meaning: name.encode()
    for name, meaning in html.entities.html5.items()
    if len(meaning) == 1 and name.endswith(";")
}


def is_plain(value: str) -> bool:
    """Return whether a value consists of characters that are not usually escaped."""
    return _UNESCAPED.fullmatch(value) is not None


def find_anchors(value: str) -> tuple[bytes, ...]:
    """Return literals of which every spelling of a value contains at least one."""
    plain = max(_PLAIN.findall(value), key=len, default="")
    if len(plain) >= _MIN_ANCHOR:
        return (plain.encode(),)
    char = max(value)
    utf8, codes = char.encode(), _hexadecimal(_utf16(char)[:1], 4)
    numbers = (
        b"%d" % ord(char),
        *_cases(b"%x" % ord(char)),
        *_hexadecimal([utf8[0]], 2),
        b"%03o" % utf8[0],
    )
    named = (_NAMES[char],) if char in _NAMES else ()
    return (utf8, char.encode("latin-1", errors="ignore") or utf8, *codes, *numbers, *named)


def spelling_pattern(value: str) -> re.Pattern[bytes]:
    """Return a pattern that matches every spelling of a value."""
    return re.compile(b"".join(b"(?:" + b"|".join(_spellings(char)) + b")" for char in value))


def _spellings(char: str) -> Iterator[bytes]:
    utf8, code = char.encode(), ord(char)
    if _PLAIN.fullmatch(char):
        yield utf8
        return
    yield _BACKSLASHES + re.escape(utf8)
    if 0x80 <= code < 0x100:
        yield re.escape(bytes((code,)))  # Latin-1
    if char in _LETTERS:
        yield rb"\\" + _BACKSLASHES + _LETTERS[char]
    if char == "\n":
        yield rb"\r\n|\\" + _BACKSLASHES + rb"r\\" + _BACKSLASHES + b"n"
    yield _numbered(rb"\\" + _BACKSLASHES + b"u", _utf16(char), b"%04x")
    yield _numbered(rb"\\" + _BACKSLASHES + b"x", utf8, b"%02x")
    if 0x80 <= code < 0x100:
        yield _numbered(rb"\\" + _BACKSLASHES + b"x", [code], b"%02x")
    yield _numbered(rb"\\" + _BACKSLASHES, utf8, b"%03o")
    yield rb"\\" + _BACKSLASHES + b"(?:U|u\\{)0{0,6}(?i:%x)}?" % code
    yield _numbered(b"%(?:25){0,4}", utf8, b"%02x")
    yield _numbered(b"=", utf8, b"%02x")
    ampersand = b"&(?:amp;){0,4}"
    yield ampersand + b"#(?:0{0,6}%d|[xX]0{0,6}(?i:%x));?" % (code, code)
    if char in _NAMES:
        yield ampersand + _NAMES[char]
    if char == " ":
        yield rb"\+"


def _numbered(prefix: bytes, units: Sequence[int], form: bytes) -> bytes:
    return b"".join(prefix + b"(?i:" + form % unit + b")" for unit in units)


def _utf16(char: str) -> Sequence[int]:
    units = char.encode("utf-16-be")
    return [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]


def _hexadecimal(units: Sequence[int], digits: int) -> tuple[bytes, ...]:
    return _cases(b"%0*x" % (digits, units[0]))


def _cases(number: bytes) -> tuple[bytes, bytes]:
    return number.lower(), number.upper()


_MIN_CHARACTERS: Final = 12
_TAIL_BYTES: Final = 256
"""Number of last bytes of a value that are searched; keys and tokens share their first bytes."""

_MAX_FILE_BYTES: Final = 4 << 20
_MAX_FILES: Final = 32
_MAX_ENTRIES: Final = 64
"""Maximum number of secrets in a file; an agent could write more to slow the scan down."""

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
# Matches JSON, TOML and damaged files. A name is matched only from its first letter, because trying
# every letter of a long word would take quadratic time.
_ENTRY: Final = re.compile(
    r"""(?<![\w.-])([\w.-]+)["']?\s*[:=]\s*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)')"""
)


class KnownValues(dict[str, str]):
    """Secrets by label. Safe in tracebacks: the ``repr`` shows only the number of secrets."""

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
            credential or cookie, and its value is not an existing path.
        agent_dirs: Agent directories; programs keep credentials in ``session`` and ``home``.
            Files that cannot be read are skipped.

    Returns:
        Values by label; a label names the source of the value.
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
    """Yield the paths of credential files in an agent's directory."""
    for home in _CREDENTIAL_HOMES:
        if not (agent_dir / home).is_dir():
            continue
        for pattern in _CREDENTIAL_FILES:
            found = find_files(agent_dir, f"{home}/{pattern}")
            yield from sorted(file.path.relative_to(agent_dir) for file in found)


def _read(agent_dir: Path, path: Path) -> str:
    # The agent owns the directory: the file may be huge, a link or a pipe.
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
        # Nearly all secrets contain a digit; names of keys and of credential files do not.
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
        """Return a keyed digest of this set of secrets, which is useless without the key."""
        state = hashlib.blake2b(key=key)
        for value in sorted(self._labels):
            state.update(len(value).to_bytes(8, "big") + value)
        return state.digest()

    def find(self, text: bytes, words: bytes) -> Iterator[SecretMatch]:
        """Yield every known secret in a text.

        Args:
            text: The text to search.
            words: Its long words; see :func:`shapes.long_words`.
        """
        for forms, filtered in ((self._in_words, words), (self._anywhere, text)):
            for form, value in forms.items():
                if form in filtered:
                    rule = f"known-value:{self._labels[value]}"
                    for at in occurrences(form, text):
                        end = at + len(form)
                        yield SecretMatch(rule=rule, start=at, end=end, secret=value, rank=0)
        for escaped in self._escaped:
            rule = f"known-value:{self._labels[escaped.value]}"
            for start, end in escaped.find(text):
                yield SecretMatch(rule=rule, start=start, end=end, secret=escaped.value, rank=0)


@attrs.frozen
class _Escaped:
    """A value with characters that may be escaped.

    Attributes:
        value: The value.
        anchors: Literals; every spelling contains one.
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
    # The bytes before the value determine its split into groups of three. Characters shared with
    # its neighbours are left out.
    for before in range(3):
        bits = (before + len(value)) * 8
        encoded = base64.b64encode(b"\0" * before + value)
        inner = encoded[(before * 8 + 5) // 6 : bits // 6]
        yield inner
        yield inner.translate(bytes.maketrans(b"+/", b"-_"))
