"""What pages that leave this machine must not have: names of user, host and directories, secrets.

Both are sought in the finished text of a page, in every spelling: escaped as in JSON, quoted as in
a URL, as entities. Only the text between tags and the values of attributes are changed.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.secrets import KnownValues, Scanner
from clawblox.checkpoint.secrets.findings import make_finding
from clawblox.checkpoint.secrets.matching import find_matches
from clawblox.checkpoint.secrets.patterns.known import KnownSecrets, find_anchors, spelling_pattern
from clawblox.checkpoint.secrets.patterns.rules import ESCAPES
from clawblox.checkpoint.secrets.patterns.shapes import Match
from clawblox.errors import ClawbloxError
from clawblox.printable import printable_name
from clawblox.results import Finding
from clawblox.system.regular_files import open_directory, open_file
from clawblox.system.trees import TreeWalk

MASK: Final = b"[secret]"
_MIN_NAME: Final = 3
"""Shorter names of user and host are replaced only before ``@`` and in paths."""
_MAX_SHOWN: Final = 20
_MAX_FILES: Final = 20_000
_MAX_FILE_BYTES: Final = 256 << 20
_TAG: Final = re.compile(rb"<[^<>]*>")
_ATTRIBUTE: Final = re.compile(rb' ([\w-]+)="([^"]*)"')
_LEADING: Final = (b"href", b"src", b"action")
_OWN: Final = frozenset(
    b"""charset class colspan content cx cy d height http-equiv lang method points r rel role rx
    scope text-anchor transform type viewBox width x x1 x2 xmlns y y1 y2""".split()
)
"""Attributes whose values are never foreign."""
_COLOURED: Final = (rb"\[m", rb"\[[0-9]m", rb"[0-9];[0-9]m", rb"[0-9][0-9]m")
"""The ends of a terminal's colours, which may directly precede a name."""
_LEFT: Final = (
    rb"(?:(?<![A-Za-z0-9])|"
    + b"|".join(b"(?<=" + end + b")" for end in (*ESCAPES, *_COLOURED))
    + b")"
)
_CUT: Final = b"(?=\xe2\x80\xa6|\\Z)"
"""Where a text that was cut ends: before an ellipsis, or at the end of its element."""


@attrs.frozen
class Identity:
    """The names that tell whose machine this is.

    Attributes:
        directories: Paths, and what replaces each.
        users: Names of the user.
        hosts: Names of the host.
    """

    directories: Mapping[str, str]
    users: Sequence[str]
    hosts: Sequence[str]

    @classmethod
    def read(cls, root: Path) -> Identity:
        """Return the names on this machine. Blocks.

        Args:
            root: The directory whose pages are written; it is replaced by ``DIR``.
        """
        homes, users = [str(Path("~").expanduser())], []
        with contextlib.suppress(KeyError, OSError):
            users.append(getpass.getuser())
        with contextlib.suppress(KeyError):
            entry = pwd.getpwuid(os.getuid())
            users.append(entry.pw_name)
            homes.append(entry.pw_dir)
        host = socket.gethostname()
        directories = {
            **{path: "~" for home in homes for path in (home, os.path.realpath(home))},
            **dict.fromkeys((str(root.absolute()), os.path.realpath(root)), "DIR"),
        }
        hosts = [name for name in (host, host.partition(".")[0]) if name != "localhost"]
        return cls(directories, users, hosts)


@attrs.frozen
class _Name:
    """A name to replace: literals of which each spelling has one, the spellings, what replaces."""

    anchors: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    word: bytes


class Names:
    """Replaces names in pages.

    Args:
        identity: The names.

    Raises:
        ClawbloxError: A path has characters that pages show as escapes.
    """

    def __init__(self, identity: Identity) -> None:
        for path in identity.directories:
            if printable_name(path) != path:
                raise ClawbloxError(
                    f"the path {path!r} cannot be replaced in pages: it has control characters, "
                    "or bytes that are not UTF-8",
                    hint="rename or copy the directory",
                )
        paths = sorted(identity.directories.items(), key=lambda item: -len(item[0]))
        words = [
            *((name, "HOST") for name in sorted(set(identity.hosts), key=len, reverse=True)),
            *((name, "USER") for name in set(identity.users)),
        ]
        self._names = [
            *(found for path, word in paths for found in _spell_path(path, word)),
            *(found for name, word in words if name for found in _spell_word(name, word)),
        ]

    def replace(self, page: bytes) -> bytes:
        """Return a page, or any other text, without the names."""
        folded = page.lower()
        names = [name for name in self._names if any(part in folded for part in name.anchors)]
        if not names:
            return page

        return b"".join(
            _replace(page[start:end], names) if is_foreign else page[start:end]
            for start, end, is_foreign in _split(page)
        )


def _replace(piece: bytes, names: Sequence[_Name]) -> bytes:
    folded = piece.lower()
    for name in names:
        if any(part in folded for part in name.anchors):
            piece = name.pattern.sub(name.word, piece)
            folded = piece.lower()
    return piece


def _spell_path(path: str, word: str) -> Iterator[_Name]:
    if len(path.rstrip("/")) < _MIN_NAME:
        return
    spellings = spelling_pattern(path).pattern + rb"(?![A-Za-z0-9_])"
    yield _make_name(path, spellings, word)
    first = path.find("/", 1)
    if first < 0:
        return
    # Programs name directories after paths: -home-me-project.
    dashed = re.sub(r"[^A-Za-z0-9]", "-", path)
    yield _make_name(path, re.escape(dashed.encode()) + rb"(?![A-Za-z0-9])", word)
    starts = [path[:end] for end in range(len(path) - 1, first + 1, -1)]
    if starts:
        cut = b"|".join(re.escape(start.encode()) for start in starts)
        anchor = starts[-1].encode().lower()
        yield _Name((anchor,), re.compile(b"(?:" + cut + b")" + _CUT, re.IGNORECASE), word.encode())


def _spell_word(name: str, word: str) -> Iterator[_Name]:
    right = rb"(?![A-Za-z0-9])" if len(name) >= _MIN_NAME else b"(?=@)"
    yield _make_name(name, _LEFT + spelling_pattern(name).pattern + right, word)
    starts = [re.escape(name[:end].encode()) for end in range(len(name) - 1, _MIN_NAME - 1, -1)]
    if starts:
        cut = _LEFT + b"(?:" + b"|".join(starts) + b")(?=\xe2\x80\xa6)"
        yield _Name((b"\xe2\x80\xa6",), re.compile(cut, re.IGNORECASE), word.encode())


def _make_name(name: str, pattern: bytes, word: str) -> _Name:
    anchors = tuple(anchor.lower() for anchor in find_anchors(name))
    return _Name(anchors, re.compile(pattern, re.IGNORECASE), word.encode())


def _split(page: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield the pieces of a page in order, and whether each can be foreign text."""
    at = 0
    for start, end in _find_foreign(page):
        if start > at:
            yield at, start, False
        yield start, end, True
        at = end
    yield at, len(page), False


def _find_foreign(page: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    for tag in _TAG.finditer(page):
        if tag.start() > at:
            yield at, tag.start()
        at = tag.end()
        for attribute in _ATTRIBUTE.finditer(page, tag.start(), tag.end()):
            start, end = attribute.span(2)
            if attribute[1] in _LEADING:  # our own file; what follows # may be foreign
                start = page.find(b"#", start, end) + 1 or end
            if start < end and attribute[1] not in _OWN:
                yield start, end
    if at < len(page):
        yield at, len(page)


class Outgoing:
    """Clears pages for others to see: secrets are found or masked, names are replaced.

    Args:
        root: The directory that the pages show.
        identity: The names to replace.
        known: Secrets by a label that may be shown.
        redact: Whether secrets are masked; else :meth:`check` refuses them.
    """

    def __init__(
        self, root: Path, identity: Identity, known: Mapping[str, str], *, redact: bool
    ) -> None:
        self._root = root
        self._names = Names(identity)
        self._known = KnownSecrets(KnownValues(known))
        self._scanner = Scanner(known)
        self._redact = redact
        self._found: dict[str, tuple[Finding, bytes]] = {}
        """By fingerprint: where each secret is found first, and the secret."""

    def clear(self, name: str, page: bytes) -> bytes:
        """Return a page, or any other text, as others may see it.

        Args:
            name: Name of its file.
            page: Its content.
        """
        findings = self._scanner.scan(name, (page,))
        if findings:
            matches = list(find_matches(page, self._known))
            if self._redact:
                page = _mask(page, matches)
                findings = self._scanner.scan(name, (page,))
            secrets = {make_finding(match, name, None, 0).fingerprint: match for match in matches}
            for finding in findings:
                match = secrets.get(finding.fingerprint)
                secret = b"" if match is None else match.secret
                self._found.setdefault(finding.fingerprint, (finding, secret))
        return self._names.replace(page)

    def check(self) -> None:
        """Raise an error if a page had a secret that was not masked. Blocks.

        Raises:
            ClawbloxError: It did; names the file with the secret, where that is found, and line.
        """
        if not self._found:
            return
        places = [self._describe(*found) for found in self._found.values()]
        more = [f"and {len(places) - _MAX_SHOWN} more"] if len(places) > _MAX_SHOWN else []
        raise ClawbloxError(
            "\n".join(["the pages contain what looks like a secret", *places[:_MAX_SHOWN], *more]),
            hint="these cannot be masked: remove them from the files"
            if self._redact
            else "remove them from the files, or give redact=True, which masks them in the pages",
        )

    def _describe(self, finding: Finding, secret: bytes) -> str:
        source = _find_source(self._root, secret) if secret else None
        where = source or f"{finding.path}:{finding.line or 1}"
        page = "" if source is None else f", shown by {finding.path}"
        return f"{where}: {finding.rule} {finding.preview}{page}"


def _mask(page: bytes, matches: Iterable[Match]) -> bytes:
    """Replace secrets; tags between their lines stay."""
    spans = sorted((match.start, match.end) for match in matches)
    pieces, at = [], 0
    for start, end, is_foreign in _split(page):
        for first, last in spans if is_foreign else ():
            begin, stop = max(first, start, at), min(last, end)
            if begin < stop:
                pieces += [page[at:begin], MASK]
                at = stop
    return b"".join((*pieces, page[at:]))


def _find_source(root: Path, secret: bytes) -> str | None:
    """Return the file below a directory that has a secret, and its line; logs come first."""
    for path in sorted(_list_files(root), key=lambda path: (not path.endswith(".log"), path)):
        with (
            contextlib.suppress(OSError),
            os.fdopen(open_file(root, path), "rb") as file,
        ):
            if os.fstat(file.fileno()).st_size > _MAX_FILE_BYTES:
                continue
            for number, line in enumerate(file, 1):
                if secret in line:
                    return f"{path}:{number}"
    return None


def _list_files(root: Path) -> list[str]:
    files: list[str] = []
    with contextlib.suppress(OSError), TreeWalk(open_directory(root)) as walk:
        for entry in walk:
            with contextlib.suppress(OSError):
                if entry.kind == "directory":
                    walk.enter(entry.name)
                elif entry.kind == "file":
                    files.append(walk.path_to(entry.name))
            if len(files) >= _MAX_FILES:
                break
    return files
