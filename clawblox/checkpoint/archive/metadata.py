"""Serialises and parses ``metadata.json``, the description of an archive's contents.

The caller's own keys are at the top level, together with the reserved keys. The file may come from
a stranger, so parsing is strict: no ambiguous JSON, and every reserved key in its shape. ``files``
lists size, digest, mode and time of every member, and an archive with it has no other members. An
archive without ``files`` has the same schema and loads too, but cannot be verified.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

from clawblox.checkpoint.archive.layout import Entry
from clawblox.checkpoint.model import SCHEMA_VERSION
from clawblox.checkpoint.names import METADATA_NAME, check_name, is_name
from clawblox.errors import (
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointVersionError,
    ConfigError,
)

_MAX_DEPTH: Final = 100
_MAX_DIGITS: Final = 1000
_MODES: Final = (0o600, 0o700)
_HEXADECIMAL: Final = frozenset("0123456789abcdef")


def serialise_metadata(document: Mapping[str, Any]) -> bytes:
    """Return ``metadata.json`` in UTF-8, keys in their order; equal documents give equal bytes.

    Args:
        document: The whole document; or only a caller's own keys, to check them.

    Raises:
        ConfigError: It contains a value that JSON cannot represent or a reader would refuse.
    """
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = text.encode()
        _load_json(data)
    except (TypeError, ValueError, RecursionError) as error:
        reason = error.message if isinstance(error, CheckpointFormatError) else error
        raise ConfigError(f"the metadata cannot be written as JSON: {reason}") from error
    return data


def parse_metadata(data: bytes, *, max_values: int | None = None) -> dict[str, Any]:
    """Parse ``metadata.json``.

    Args:
        data: The whole member.
        max_values: Maximum number of values in it, because each takes far more memory than its
            text; None sets no limit.

    Raises:
        CheckpointVersionError: It was written by a newer clawblox.
        CheckpointLimitError: It has more values.
        CheckpointFormatError: It is not unambiguous JSON, or a reserved key has a wrong shape.
    """
    if max_values is not None and sum(map(data.count, (b",", b"[", b"{"))) > max_values:
        message = f"metadata.json has more than {max_values} values"
        raise CheckpointLimitError(message, entry=METADATA_NAME)
    document = _load_json(data)
    if not isinstance(document, dict):
        _refuse("is not an object")
    _check_version(document)
    for key, is_right in _SHAPES.items():
        if key in document and not is_right(document[key]):
            _refuse(f"has a value of the wrong shape for {key}")
    for path in _recorded_paths(document):
        check_name(path)
    return document


def compare_members(metadata: Mapping[str, Any], entries: Iterable[Entry]) -> bool:
    """Check that an archive has exactly the members that its metadata lists.

    Args:
        metadata: The result of :func:`parse_metadata`.
        entries: All members of the archive.

    Returns:
        Whether the metadata lists members; False without ``files``, and then nothing is checked.

    Raises:
        CheckpointFormatError: A member is missing or not listed, or its size or mode differs.
    """
    files = metadata.get("files")
    if files is None:
        return False
    members = {entry.name: entry for entry in entries if entry.name != METADATA_NAME}
    for name in members.keys() ^ files.keys():
        where = "in the archive" if name in files else "in the file list of metadata.json"
        raise CheckpointFormatError(f"an entry is missing {where}", entry=name)
    for name, entry in members.items():
        if (entry.size, entry.mode) != (files[name]["size"], files[name]["mode"]):
            message = "size or mode of an entry disagree with the file list of metadata.json"
            raise CheckpointFormatError(message, entry=name)
    return True


def check_tree(metadata: Mapping[str, Any], entries: Iterable[Entry], *, max_paths: int) -> None:
    """Check that members, links and empty directories fit into the same tree.

    Args:
        metadata: The result of :func:`parse_metadata`.
        entries: All members of the archive; their names differ.
        max_paths: Maximum number of paths, and also of the directories above them.

    Raises:
        CheckpointLimitError: There are more.
        CheckpointFormatError: Two of them have the same path, or a path is below a member or a
            link.
    """
    members = {entry.name for entry in entries}
    links = [link["path"] for link in metadata.get("symlinks", ())]
    directories = metadata.get("directories", ())
    leaves = members.union(links)
    paths = leaves.union(directories)
    if len(paths) > max_paths:
        raise CheckpointLimitError(f"the archive has more than {max_paths} paths")
    if len(paths) != len(members) + len(links) + len(directories):
        raise CheckpointFormatError("metadata.json records a path twice", entry=METADATA_NAME)
    parents: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in parents:
            if parent in leaves:
                raise CheckpointFormatError("the parent of an entry is not a directory", entry=path)
            parents.add(parent)
            parent = parent.rpartition("/")[0]
        if len(parents) > max_paths:
            raise CheckpointLimitError(f"the archive has more than {max_paths} directories")


# Unambiguous JSON


def _load_json(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        document = json.loads(
            data.decode(),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_short,
        )
        _check_depth(document)
        if b"\\u" in data:  # only an escape can be half a surrogate pair
            json.dumps(document, ensure_ascii=False).encode()
    except CheckpointFormatError:
        raise
    except UnicodeError:
        _refuse("is not UTF-8")
    except (ValueError, RecursionError) as error:
        _refuse(f"is not JSON: {str(error) or 'too deep'}")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _refuse("has the same key twice in an object")
    return members


def _no_constant(text: str) -> NoReturn:
    _refuse(f"contains {text}, but JSON has no such number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse("contains a number that is too large")
    return value


def _short(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        _refuse(f"contains a number of more than {_MAX_DIGITS} digits")
    return int(text)


def _check_depth(document: object) -> None:
    level: list[Any] = [[document]]
    for _ in range(_MAX_DEPTH + 1):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    _refuse(f"is nested deeper than {_MAX_DEPTH} levels")


# Shapes


def _check_version(document: Mapping[str, Any]) -> None:
    version = document.get("schema_version")
    if type(version) is not int or version < 1:
        _refuse("has no schema_version")
    if version > SCHEMA_VERSION:
        raise CheckpointVersionError(
            f"the archive has schema_version {version}, but this clawblox reads only up to "
            f"{SCHEMA_VERSION}",
            entry=METADATA_NAME,
            hint="load it with the clawblox that wrote it, or a newer version",
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_natural(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and _HEXADECIMAL.issuperset(value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _or_null(is_right: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_right(value)


def _all_of(is_right: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(is_right, value))


def _record(
    required: Mapping[str, Callable[[object], bool]],
    optional: Mapping[str, Callable[[object], bool]] | None = None,
) -> Callable[[object], bool]:
    """Return a check for an object with these keys; further keys are ignored."""
    known = {**required, **(optional or {})}

    def is_right(value: object) -> bool:
        return (
            isinstance(value, dict)
            and required.keys() <= value.keys()
            and all(known[key](value[key]) for key in known.keys() & value.keys())
        )

    return is_right


_is_file: Final = _record(
    {
        "size": _is_natural,
        "sha256": _is_digest,
        "mode": lambda value: type(value) is int and value in _MODES,
        "mtime_ns": lambda value: type(value) is int,
    },
    {"unstable": lambda value: value is True},
)
_is_agent: Final = _record(
    {},
    {
        **dict.fromkeys(
            ("backend", "session_format", "session_id", "state_dir"), _or_null(_is_text)
        ),
        "mid_turn": lambda value: value is None or isinstance(value, bool),
    },
)


def _is_agent_name(value: object) -> bool:
    return isinstance(value, str) and "/" not in value and is_name(f"agents/{value}/workspace/_")


def _are_agents(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_agent_name, value)) and all(map(_is_agent, value.values()))
    return _all_of(_is_agent_name)(value)  # an archive without ``files`` may just name them


def _are_files(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_file, value.values()))


_SHAPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "created_at": _is_text,
    "session_format": _or_null(_is_text),
    "agents": _are_agents,
    "files": _are_files,
    "symlinks": _all_of(_record({"path": _is_text, "target": _is_text})),
    "directories": _all_of(_is_text),
    "excluded": _all_of(_record({"path": _is_text, "reason": _is_text})),
    "secret_scan": _is_object,
    "world": _or_null(_is_object),
    "lineage": _or_null(_is_object),
}


RESERVED_KEYS: Final = frozenset(("schema_version", *_SHAPES))
"""Keys at the top level that this package defines; a caller cannot set them."""


def _recorded_paths(document: Mapping[str, Any]) -> Iterator[str]:
    yield from (link["path"] for link in document.get("symlinks", ()))
    yield from document.get("directories", ())


def _refuse(problem: str) -> NoReturn:
    raise CheckpointFormatError(f"metadata.json {problem}", entry=METADATA_NAME)
