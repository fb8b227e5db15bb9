"""The lists of a manifest: identity of entries, and rules for removing them. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from clawblox.foreign_values import MAX_NUMBER, finite_number

ManifestEntry: TypeAlias = Mapping[str, Any]
"""One object of the document: a run, an agent, a recording, a checkpoint."""

Combine: TypeAlias = Callable[[ManifestEntry, ManifestEntry], ManifestEntry]
"""Combines an old and a new entry with the same identity."""

_Keys: TypeAlias = dict[str, str]


class EntryList:
    """A list of the document without duplicates.

    Args:
        entries: The current list.
        field: The key of an entry's path.
        root: Base of relative paths.
    """

    def __init__(self, entries: Iterable[ManifestEntry], field: str, root: Path) -> None:
        self._field = field
        self._root = f"{root}/"
        self._has_ids = field == "dir"
        self._entries = list(entries)
        self._keys = [self._find_keys(entry) for entry in self._entries]
        self._places: dict[tuple[str, str], list[int]] = {}
        for place, keys in enumerate(self._keys):
            for key in keys.items():
                self._places.setdefault(key, []).append(place)
        self._gone: set[int] = set()

    def put(self, new: ManifestEntry, combine: Combine) -> None:
        """Combine ``new`` with the entries of the same identity, or append it.

        Several entries can have the same identity: an agent first known by its directory, then by
        id.
        """
        keys = self._find_keys(new)
        if not keys and new in self._entries:
            return
        at = len(self._entries)
        name = _name_in_world(new)
        while (place := self._find(keys, name)) is not None:
            old = self._entries[place]
            new = combine(old, new)
            keys = self._find_keys(new)
            if self._field in keys and keys[self._field] == self._keys[place].get(self._field):
                # The program that wrote the entry looks it up by its own spelling of the path.
                new = {**new, self._field: old[self._field]}
            self._gone.add(place)
            at = min(at, place)
        # A world may have written any value; clawblox's own entries may have empty labels.
        self._set(at, combine({}, new) if keys else new, keys)

    def listed(self) -> list[ManifestEntry]:
        """Return the entries in order."""
        return [entry for place, entry in enumerate(self._entries) if place not in self._gone]

    def _set(self, place: int, entry: ManifestEntry, keys: _Keys) -> None:
        self._entries[place : place + 1] = [entry]
        self._keys[place : place + 1] = [keys]
        self._gone.discard(place)
        for key in keys.items():
            self._places.setdefault(key, []).append(place)

    def _find(self, keys: _Keys, name: str | None) -> int | None:
        for key in keys.items():
            for place in self._places.get(key, ()):
                if place not in self._gone and self._may_be(place, keys, name):
                    return place
        return None

    def _may_be(self, place: int, keys: _Keys, name: str | None) -> bool:
        """Return whether an entry may be the same agent as another entry with a common key.

        Two agents may have used the same directory, but not the same id. However, a restored world
        reuses the ids that it issued after the save.
        """
        ids = {keys.get("id"), self._keys[place].get("id")} - {None}
        names = {name, _name_in_world(self._entries[place])} - {None}
        return len(ids) < 2 and len(names) < 2

    def _find_keys(self, entry: object) -> _Keys:
        """Return the keys of an entry: the agent's id if known, and the path."""
        # This dominates the cost of a merge, so avoid `root / path` and isinstance with Mapping.
        keys: _Keys = {}
        if isinstance(entry, dict):
            if self._has_ids and is_filled(entry.get("id")):
                keys["id"] = entry["id"]
            path = entry.get(self._field)
            if isinstance(path, str) and path:
                keys[self._field] = os.path.normpath(path if path[0] == "/" else self._root + path)
        return keys


def overlay(old: ManifestEntry, new: ManifestEntry) -> dict[str, Any]:
    """Combine two entries of the same identity; the new values win."""
    merged = {**old, **new}
    if merged.get("labels") == {}:  # empty, but they replace those of an earlier start
        del merged["labels"]
    if "sha256" in new and "removed_at" not in new:  # saved again at the path of a removed file
        merged.pop("removed_at", None)
    return merged


def fill(old: ManifestEntry, new: ManifestEntry) -> ManifestEntry:
    """Combine two entries of the same identity; the old values win."""
    return {**new, **old}


def _name_in_world(entry: object) -> str | None:
    """Return the name of an agent that is identified by the world's id, else None."""
    if not isinstance(entry, dict) or "world_agent_id" not in entry:
        return None
    name = entry.get("name") if entry.get("id") == entry["world_agent_id"] else None
    return name if isinstance(name, str) else None


def without_left(entries: Iterable[Any], left: Iterable[ManifestEntry]) -> list[Any]:
    """Return agents without those whose session is over.

    Args:
        entries: The agents; a world may have written any value.
        left: Id and name of each agent that has left. An entry with a directory stays.
    """
    gone = {(entry["id"], entry["name"]) for entry in left}
    return [
        entry
        for entry in entries
        if not isinstance(entry, dict)
        or "dir" in entry
        or not is_filled(entry.get("id"))
        or (entry["id"], _name_in_world(entry)) not in gone
    ]


def note_uses(
    entries: Iterable[Any],
    root: Path,
    forked: Container[str],
    retired: Mapping[str, str],
    document: ManifestEntry,
) -> list[Any]:
    """Return checkpoints without retired autosaves, with forked checkpoints marked.

    Args:
        entries: The checkpoints; a world may have written any value.
        root: Base of relative paths.
        forked: Absolute paths of the checkpoints that runs started from.
        retired: Removal times of the files of autosaves, by absolute path.
        document: The document, which may name the checkpoints.
    """
    names: frozenset[str] | None = None
    left: list[Any] = []
    for entry in entries:
        path = normal(entry["path"], root) if is_placed(entry, "path") else ""
        if path in forked:
            entry = {**entry, "forked": True}
        if path in retired:
            if entry.get("autosave") is True and not entry.get("forked"):
                names = _find_names(document, root) if names is None else names
                if names.isdisjoint((path, entry["path"], os.path.basename(path))):  # noqa: PTH119
                    continue
            entry = {**entry, "removed_at": retired[path]}
        left.append(entry)
    return left


def _find_names(document: ManifestEntry, root: Path) -> frozenset[str]:
    """Return the checkpoint paths named by restarts, the run and labels, and all labels."""
    run, names = document.get("run") or {}, set[str]()
    for entry in (run, *(document.get("restarts") or ())):
        if is_placed(entry, "resume_from"):
            names.add(normal(entry["resume_from"], root))
    for entry in (run, *(document.get("instances") or ())):
        labels = entry.get("labels") if isinstance(entry, dict) else None
        if isinstance(labels, dict):
            names.update(label for label in labels.values() if isinstance(label, str))
    return frozenset(names)


def normal(path: str, root: Path) -> str:
    """Return the normalised absolute path of a path in the document."""
    return os.path.normpath(path if path[0] == "/" else f"{root}/{path}")


def objects_in(entries: Iterable[object]) -> Iterator[ManifestEntry]:
    """Yield the entries that are objects; a world may have written other values."""
    return (entry for entry in entries if isinstance(entry, dict))


def read_text(entry: ManifestEntry, key: str) -> str | None:
    """Return a string of an entry; None if it is missing, empty or cannot be a path."""
    value = entry.get(key)
    return value if isinstance(value, str) and value and is_printable(value) else None


def is_printable(text: str) -> bool:
    """Return whether a text can be a path and can be printed."""
    try:
        return "\0" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False


def read_number(entry: ManifestEntry, key: str) -> float | None:
    """Return a number of an entry; None if missing, too large or not a number."""
    return finite_number(entry.get(key), low=-MAX_NUMBER)


def is_placed(entry: object, field: str) -> bool:
    """Return whether an entry has a path."""
    return isinstance(entry, dict) and is_filled(entry.get(field))


def is_filled(value: object) -> bool:
    """Return whether a value is a non-empty string."""
    return isinstance(value, str) and value != ""
