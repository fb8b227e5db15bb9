"""Reads and writes the few settings of a git repository that a load restores.

``config`` of a repository belongs to an agent and may name commands, so git never reads it here.
This parser is bounded, follows no include, and ignores lines that it does not understand. The
written text contains only escaped paths, and values with strict patterns, defined in ``model``.
Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from clawblox.checkpoint.model import Repository

_HEADER: Final = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"([^"\\]*)")?\]')
_VARIABLE: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*(.*))?")
_VALUE: Final = re.compile(r'(?:"([^"\\]*)"[ \t]*|([^"\\#;]*))(?:[#;].*)?')
_TRUE: Final = frozenset(("true", "yes", "on", "1"))
_FALSE: Final = frozenset(("false", "no", "off", "0", ""))

_Value = str | int | None

_Name = tuple[str, str, str]
"""Section, subsection (may be ``""``) and key of a variable; section and key in lower case."""


@attrs.frozen
class GitConfig:
    """The variables of a configuration file of git."""

    _values: dict[_Name, list[str]]

    @classmethod
    def parse(cls, text: bytes) -> GitConfig:
        """Parse the content of a file, ignoring lines that are not understood."""
        values: dict[_Name, list[str]] = {}
        for name, value in _read_variables(text.decode(errors="replace")):
            values.setdefault(name, []).append(value)
        return cls(values)

    def flag(self, section: str, key: str, subsection: str = "") -> bool | None:
        """Return the value of a boolean; None if the variable is not set, or not a boolean."""
        value = self.values(section, key, subsection)[-1:]
        word = value[0].lower() if value else None
        return True if word in _TRUE else False if word in _FALSE else None

    def values(self, section: str, key: str, subsection: str = "") -> list[str]:
        """Return all values of a variable."""
        return self._values.get((section, subsection, key), [])

    def subsections(self, section: str) -> list[str]:
        """Return the subsections of a section that contain variables, each once."""
        return list(dict.fromkeys(sub for name, sub, _ in self._values if name == section and sub))


def _read_variables(text: str) -> Iterator[tuple[_Name, str]]:
    section, subsection = "", ""
    is_continued = False
    for raw_line in text.removeprefix("\ufeff").split("\n"):
        line = raw_line.strip(" \t\r")
        if is_continued:
            is_continued = line.endswith("\\")
            continue
        if line.startswith("["):
            header = _HEADER.match(line)
            section, subsection = (header[1].lower(), header[2] or "") if header else ("", "")
            line = line[header.end() :].lstrip(" \t") if header else ""
        variable = _VARIABLE.fullmatch(line)
        if variable is None:
            continue
        value = _VALUE.fullmatch("true" if variable[2] is None else variable[2])
        if value is not None:
            yield (section, subsection, variable[1].lower()), (value[1] or value[2] or "").rstrip()
        is_continued = value is None and line.endswith("\\")


def write_config(
    repository: Repository,
    *,
    work_tree: str | None = None,
    is_sha256: bool = False,
    has_worktree_config: bool = False,
) -> bytes:
    """Return a new ``config`` for a git directory; the original is never archived.

    Args:
        repository: Its settings.
        work_tree: Path of its work tree, relative to the git directory; None for the directory
            above a ``.git``.
        is_sha256: Whether the names of its objects are SHA-256 digests.
        has_worktree_config: Whether each worktree has a ``config.worktree``. The main worktree's
            settings are then in its own file, because linked worktrees would follow them in
            ``config``.
    """
    extensions: dict[str, _Value] = {
        "objectformat": "sha256" if is_sha256 else None,
        "partialclone": repository.partial_clone,
        "worktreeconfig": has_worktree_config or None,
    }
    core: dict[str, _Value] = {
        "repositoryformatversion": int(any(extensions.values())),
        "filemode": True,
        "bare": repository.bare and not has_worktree_config,
        "logallrefupdates": True,
        "worktree": None if has_worktree_config else work_tree,
    }
    remotes: dict[str, Mapping[str, _Value]] = {
        f'remote "{each.name}"': {
            "url": each.url,
            "promisor": True,
            "partialclonefilter": each.filter,
        }
        for each in repository.promisors
    }
    submodules = {f'submodule "{name}"': {"active": True} for name in repository.submodules}
    sections = {"core": core, "extensions": extensions, **remotes, **submodules}
    return "".join(itertools.starmap(_section, sections.items())).encode()


def write_worktree_config(repository: Repository, *, work_tree: str | None = None) -> bytes:
    """Return the file ``config.worktree`` of a git directory; empty without such settings.

    Args:
        repository: Its settings.
        work_tree: As for :func:`write_config`; None for a linked worktree.
    """
    core = {
        "bare": repository.bare or None,
        "worktree": work_tree,
        "sparsecheckout": repository.sparse_checkout,
        "sparsecheckoutcone": repository.sparse_checkout_cone,
    }
    index = {"sparse": repository.sparse_index}
    return (_section("core", core) + _section("index", index)).encode()


def _section(header: str, values: Mapping[str, _Value]) -> str:
    """Return a section without the variables that are None; empty if no variable is left."""
    lines = [f"\t{key} = {_word(value)}\n" for key, value in values.items() if value is not None]
    return f"[{header}]\n{''.join(lines)}" if lines else ""


def _word(value: str | int) -> str:
    if not isinstance(value, str):
        return str(value).lower()
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
