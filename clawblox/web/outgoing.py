"""Removes names of users, hosts and directories, and secrets, from pages that leave this machine.

The finished text of a page is searched for every spelling: escaped as in JSON, quoted as in a URL,
as entities. Only the text between tags and the values of attributes are changed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.secrets import Scanner, known_values
from clawblox.checkpoint.secrets.findings import make_finding
from clawblox.checkpoint.secrets.matching import find_matches
from clawblox.checkpoint.secrets.patterns.known import KnownSecrets, find_anchors, spelling_pattern
from clawblox.checkpoint.secrets.patterns.rules import ESCAPES
from clawblox.checkpoint.secrets.patterns.shapes import SecretMatch
from clawblox.errors import ClawbloxError
from clawblox.printable import printable_name
from clawblox.results import Finding
from clawblox.system.regular_files import open_directory, open_regular
from clawblox.system.trees import TreeWalk

MASK: Final = b"[secret]"
_MIN_NAME: Final = 3
"""Shorter names of users and hosts are only replaced before ``@`` and in paths."""
_MAX_SHOWN: Final = 20
_PIECE: Final = re.compile(rb"<[^<>]*>|[^<]+")
"""A tag or a piece of text."""
_ATTRIBUTE: Final = re.compile(rb' ([\w-]+)="([^"]*)"')
_LEADING: Final = (b"href", b"src", b"action")
_OWN: Final = frozenset(
    b"""charset class colspan content cx cy d height http-equiv lang method points r rel role rx
    scope text-anchor transform type viewBox width x x1 x2 xmlns y y1 y2""".split()
)
"""Attributes whose values are never foreign."""
_COLOURED: Final = (rb"\[m", rb"\[[0-9]m", rb"[0-9];[0-9]m", rb"[0-9][0-9]m")
"""The ends of colour sequences of terminals, which may directly precede a name."""
_ENDS: Final = b"|".join(b"(?<=" + end + b")" for end in (*ESCAPES, *_COLOURED))
_LEFT: Final = rb"(?:(?<![A-Za-z0-9])|" + _ENDS + b")"
_ELLIPSIS: Final = "…".encode()


@attrs.frozen
class _Name:
    """A name to replace: literals (each spelling contains one), a pattern, and the replacement."""

    anchors: Sequence[bytes]
    pattern: re.Pattern[bytes]
    word: bytes


class Names:
    """Replaces the names that identify this machine and its user.

    Args:
        directories: Paths and their replacements.
        users: Names of the user.
        hosts: Names of the host.

    Raises:
        ClawbloxError: A path contains characters that pages show as escapes.
    """

    def __init__(
        self, directories: Mapping[str, str], users: Iterable[str], hosts: Iterable[str]
    ) -> None:
        for path in directories:
            if printable_name(path) != path:
                why = "it has control characters, or bytes that are not UTF-8"
                problem = f"the path {path!r} cannot be replaced in pages: {why}"
                raise ClawbloxError(problem, hint="rename or copy the directory")
        words = {**dict.fromkeys(users, "USER"), **dict.fromkeys(hosts, "HOST")}
        self._names = [
            name
            for spell, names in ((_spell_path, directories), (_spell_word, words))
            for text in sorted(filter(None, names), key=len, reverse=True)
            for name in spell(text, names[text].encode())
        ]

    @classmethod
    def read(cls, root: Path) -> Names:
        """Return the names on this machine. Blocks.

        Args:
            root: The directory whose pages are written; its name is replaced with ``DIR``.
        """
        homes = [str(Path("~").expanduser())]
        users = [os.environ.get(name, "") for name in ("LOGNAME", "USER")]
        with contextlib.suppress(KeyError):
            entry = pwd.getpwuid(os.getuid())
            users.append(entry.pw_name)
            homes.append(entry.pw_dir)
        host = socket.gethostname()
        directories = {path: "~" for home in homes for path in (home, os.path.realpath(home))}
        directories |= dict.fromkeys((str(root.absolute()), os.path.realpath(root)), "DIR")
        return cls(directories, users, {host, host.partition(".")[0]} - {"localhost"})

    def replace(self, page: bytes) -> bytes:
        """Return a page or another text without the names."""
        names = _find_present(self._names, page)

        def clean(piece: bytes) -> bytes:
            for name in _find_present(names, piece):
                piece = name.pattern.sub(name.word, piece)
            return piece

        spans = _find_foreign(page) if names else ()
        return _splice(page, ((start, end, clean(page[start:end])) for start, end in spans))


def _find_present(names: Iterable[_Name], text: bytes) -> Sequence[_Name]:
    folded = text.lower()
    return [name for name in names if any(anchor in folded for anchor in name.anchors)]


def _spell_path(path: str, word: bytes) -> Iterator[_Name]:
    if len(path.rstrip("/")) < _MIN_NAME:
        return
    whole = spelling_pattern(path).pattern + rb"(?![A-Za-z0-9_])"
    first = path.find("/", 1)
    if first >= 0:
        # Some programs name directories after paths: -home-me-project.
        dashed = re.sub(r"[^A-Za-z0-9]", "-", path).encode()
        whole += b"|" + re.escape(dashed) + rb"(?![A-Za-z0-9])"
        yield from _cut(path, first + 2, b"", b"(?=" + _ELLIPSIS + rb"|\Z)", word)
    yield _make_name(find_anchors(path), whole, word)


def _spell_word(name: str, word: bytes) -> Iterator[_Name]:
    right = rb"(?![A-Za-z0-9])" if len(name) >= _MIN_NAME else b"(?=@)"
    yield _make_name(find_anchors(name), _LEFT + spelling_pattern(name).pattern + right, word)
    yield from _cut(name, _MIN_NAME, _LEFT, b"(?=" + _ELLIPSIS + b")", word)


def _cut(name: str, least: int, left: bytes, right: bytes, word: bytes) -> Iterator[_Name]:
    """Yield a pattern for the start of a name at the end of a cut text."""
    starts = [name[:end].encode() for end in range(len(name) - 1, least - 1, -1)]
    if starts:
        pattern = left + b"(?:" + b"|".join(map(re.escape, starts)) + b")" + right
        yield _make_name(starts[-1:], pattern, word)


def _make_name(anchors: Iterable[bytes], pattern: bytes, word: bytes) -> _Name:
    folded = [anchor.lower() for anchor in anchors]
    return _Name(folded, re.compile(pattern, re.IGNORECASE), word)


def _splice(page: bytes, changes: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Replace ranges of a page with other texts; the ranges are in order and may overlap."""
    pieces, at = [], 0
    for start, end, text in changes:
        if max(start, at) < end:
            pieces += [page[at : max(start, at)], text]
            at = end
    return b"".join((*pieces, page[at:]))


def _find_foreign(page: bytes) -> Iterator[tuple[int, int]]:
    for piece in _PIECE.finditer(page):
        if page[piece.start()] != ord("<"):
            yield piece.span()
            continue
        for attribute in _ATTRIBUTE.finditer(page, *piece.span()):
            start, end = attribute.span(2)
            # The address of our own file, whose part after # may be foreign.
            if attribute[1] in _LEADING:
                start = page.find(b"#", start, end) + 1 or end
            if start < end and attribute[1] not in _OWN:
                yield start, end


class Outgoing:
    """Clears pages for other people: masks secrets and replaces names.

    Args:
        root: The directory that the pages show; its name is replaced with ``DIR``.
        agents: The directories of the agents, whose credentials are secrets.
        redact: Whether masked secrets are allowed; otherwise :meth:`check` raises an error.
    """

    def __init__(self, root: Path, agents: Iterable[Path], *, redact: bool) -> None:
        known = known_values(os.environ, agents)
        self._root = root
        self._names = Names.read(root)
        self._known = KnownSecrets(known)
        self._scanner = Scanner(known)
        self._redact = redact
        self._found: dict[str, tuple[Finding, bytes]] = {}
        """The first finding of each secret, and the secret, by fingerprint."""

    def clear(self, name: str, page: bytes) -> bytes:
        """Return a page or another text for other people, with secrets masked.

        Args:
            name: Name of its file.
            page: Its content.
        """
        findings = self._scanner.scan(name, (page,))
        if findings:
            matches = list(find_matches(page, self._known))
            page = _mask(page, matches)
            if self._redact:
                findings = self._scanner.scan(name, (page,))
            secrets = {make_finding(one, name, None, 0).fingerprint: one.secret for one in matches}
            for one in findings:
                self._found.setdefault(one.fingerprint, (one, secrets.get(one.fingerprint, b"")))
        return self._names.replace(page)

    def check(self) -> None:
        """Raise an error if a page contained a secret and ``redact`` is False. Blocks.

        Raises:
            ClawbloxError: A page contained a secret; the message has the source file and line if
                found.
        """
        if not self._found:
            return
        hint = "remove them from the files, or give redact=True, which masks them in the pages"
        if self._redact:
            hint = "these cannot be masked: remove them from the files"
        places = ["the pages contain possible secrets"]
        for finding, secret in [*self._found.values()][:_MAX_SHOWN]:
            page = f"{finding.path}:{finding.line or 1}"
            source = _find_source(self._root, secret) if secret else None
            where = page if source is None else f"{source} (shown by {page})"
            places.append(f"{where}: {finding.rule} {finding.preview}")
        if (more := len(self._found) - _MAX_SHOWN) > 0:
            places.append(f"and {more} more")
        raise ClawbloxError("\n".join(places), hint=hint)


def _mask(page: bytes, matches: Iterable[SecretMatch]) -> bytes:
    """Replace secrets; tags between their lines stay."""
    spans = sorted((match.start, match.end) for match in matches)
    places = itertools.product(_find_foreign(page), spans)
    parts = ((max(start, first), min(end, last)) for (start, end), (first, last) in places)
    return _splice(page, ((first, last, MASK) for first, last in parts))


def _find_source(root: Path, secret: bytes) -> str | None:
    """Return the path and line of a secret in the files below a directory; None if not found."""
    with contextlib.suppress(OSError), TreeWalk(open_directory(root)) as walk:
        for entry in walk:
            with contextlib.suppress(OSError):
                if entry.kind == "directory":
                    walk.enter(entry.name)
                    continue
                with os.fdopen(open_regular(entry.name, dir_fd=walk.fd), "rb") as file:
                    for number, line in enumerate(file, 1):
                        if secret in line:
                            return f"{walk.path_to(entry.name)}:{number}"
    return None
