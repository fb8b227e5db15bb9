"""Serialises and parses ``metadata.json``, the description of an archive's contents.

The caller's own keys are at the top level, together with the reserved keys. The file may come from
a stranger, so parsing is strict: it refuses ambiguous JSON and reserved keys of another shape.
``files`` lists size, digest, mode and time of every member; other members are then refused. An
archive without ``files`` has the same schema and can be loaded, but not verified.

Since schema 2, a file whose path is not allowed as a member's name has a neutral name, and ``path``
in its entry of ``files``. Paths of links and directories may also be such paths.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NoReturn, TypeAlias, cast

import attrs
import msgspec

from clawblox.checkpoint.archive.layout import ArchiveEntry
from clawblox.checkpoint.model import SCHEMA_VERSION, AgentState, Repository, Source, WorkspaceLink
from clawblox.checkpoint.names import (
    METADATA_NAME,
    check_name,
    check_path,
    is_name,
    is_neutral_directory,
    is_reserved,
    names_itself,
    neutral_agent,
    split_name,
)
from clawblox.errors import (
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointPathError,
    CheckpointVersionError,
    ConfigError,
)
from clawblox.typed_values import converter

_PATHS_SINCE: Final = 2
"""First schema in which members may have neutral names."""
_MAX_DEPTH: Final = 100
_MAX_DIGITS: Final = 1000


def serialise_metadata(document: Mapping[str, Any]) -> bytes:
    """Return ``metadata.json`` in UTF-8, with the keys in their order; the result is deterministic.

    Args:
        document: The whole document, or only a caller's own keys to check them.

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


def path_field(source: Source) -> dict[str, str]:
    """Return the field ``path`` of an entry in ``files``; empty if it is the member's name."""
    return {} if source.neutral_name is None else {"path": source.name}


def parse_metadata(data: bytes, *, max_values: int | None = None) -> dict[str, Any]:
    """Parse ``metadata.json``.

    Args:
        data: The whole member.
        max_values: Maximum number of values, because each takes far more memory than its text; None
            sets no limit.

    Raises:
        CheckpointVersionError: A newer clawblox wrote the file.
        CheckpointLimitError: The file has more values.
        CheckpointFormatError: The file is not unambiguous JSON, or a reserved key has a wrong
            shape.
    """
    if max_values is not None and sum(map(data.count, (b",", b"[", b"{"))) > max_values:
        message = f"metadata.json has more than {max_values} values"
        raise CheckpointLimitError(message, entry=METADATA_NAME)
    document = _load_json(data)
    if not isinstance(document, dict):
        _refuse("is not an object")
    _check_version(document)
    for key, convert in _CONVERTERS[document["schema_version"]].items():
        if key in document and not _has_shape(convert, document[key]):
            _refuse(f"has a value of the wrong shape for {key}")
    if not all(map(_is_agent_name, document.get("agents", ()))):
        _refuse("has a value of the wrong shape for agents")
    links = (link["path"] for link in document.get("symlinks", ()))
    check = check_name if document["schema_version"] < _PATHS_SINCE else check_path
    for path in (*links, *document.get("directories", ())):
        check(path)
    for repository in recorded_repositories(document):
        for name in filter(None, (repository.path, repository.git_file)):
            check_path(name)
    return document


def recorded_repositories(metadata: Mapping[str, Any]) -> list[Repository]:
    """Return the settings of git repositories in an archive.

    Args:
        metadata: The result of :func:`parse_metadata`.
    """
    convert = _CONVERTERS[metadata.get("schema_version", 1)].get("repositories")
    if convert is None:  # ``repositories`` is the caller's own key
        return []
    return cast("list[Repository]", convert(metadata.get("repositories", [])))


def compare_members(metadata: Mapping[str, Any], entries: Iterable[ArchiveEntry]) -> bool:
    """Check that an archive contains exactly the members listed in its metadata.

    Args:
        metadata: The result of :func:`parse_metadata`.
        entries: All members of the archive.

    Returns:
        Whether the metadata lists members; False without ``files``, when no check is possible.

    Raises:
        CheckpointFormatError: A member is missing or not listed, or its size or mode differs.
    """
    files = metadata.get("files")
    if files is None:
        return False
    members = {entry.member: entry for entry in entries if entry.member != METADATA_NAME}
    for name in members.keys() ^ files.keys():
        where = "in the archive" if name in files else "in the file list of metadata.json"
        raise CheckpointFormatError(f"an entry is missing {where}", entry=name)
    for name, entry in members.items():
        if (entry.size, entry.mode) != (files[name]["size"], files[name]["mode"]):
            message = "size or mode of an entry disagree with the file list of metadata.json"
            raise CheckpointFormatError(message, entry=name)
    return True


def restore_paths(
    metadata: Mapping[str, Any], entries: Iterable[ArchiveEntry]
) -> Iterator[ArchiveEntry]:
    """Yield the members of an archive, named by their paths.

    Args:
        metadata: The result of :func:`parse_metadata`.
        entries: All members, named as in the zip file.

    Raises:
        CheckpointPathError: A neutral name has no path, a path outside the agent's workspace, or a
            path that is allowed as a name; or another name has a path.
    """
    if metadata["schema_version"] < _PATHS_SINCE:
        yield from entries
        return
    files = metadata.get("files", {})
    for entry in entries:
        path = files.get(entry.member, {}).get("path")
        if (path is None) is is_reserved(entry.member):
            message = "a neutral name needs a path in metadata.json, and no other name may have one"
            raise CheckpointPathError(message, entry=entry.member)
        yield entry if path is None else attrs.evolve(entry, name=_check_renamed(path, entry))


def _check_renamed(path: str, entry: ArchiveEntry) -> str:
    check_path(path)
    split, agent = split_name(path), neutral_agent(entry.member)
    if agent is None or split is None or split[:2] != (agent, "workspace"):
        message = "a neutral name stands for a path outside of its agent's workspace"
        raise CheckpointPathError(message, entry=path)
    if names_itself(path):
        message = "a neutral name stands for a path that is itself a valid name"
        raise CheckpointPathError(message, entry=path)
    return path


def own_directories(metadata: Mapping[str, Any], directories: Iterable[str]) -> Iterator[str]:
    """Yield the directories with entries, except directories of neutral names.

    Args:
        metadata: The result of :func:`parse_metadata`.
        directories: Paths of all directories with entries.
    """
    has_paths = metadata["schema_version"] >= _PATHS_SINCE
    return (path for path in directories if not (has_paths and is_neutral_directory(path)))


def check_tree(
    metadata: Mapping[str, Any],
    entries: Collection[ArchiveEntry],
    entered: Collection[str] = (),
    *,
    max_paths: int,
) -> None:
    """Check that members, links, directories and ``.git`` files fit into one tree.

    Args:
        metadata: The result of :func:`parse_metadata`.
        entries: All members of the archive, named by their paths.
        entered: Paths of directories with entries of their own, each once.
        max_paths: Maximum number of paths, and also of their parent directories.

    Raises:
        CheckpointLimitError: There are more paths or directories.
        CheckpointFormatError: Two entries have the same path, or a path is below a member or a
            link.
    """
    links = [link["path"] for link in metadata.get("symlinks", ())]
    directories = metadata.get("directories", ())
    repositories = recorded_repositories(metadata)
    git_files = [each.git_file for each in repositories if each.git_file is not None]
    leaves = {entry.name for entry in entries}.union(links, git_files)
    paths = leaves.union(directories)
    count = len(entries) + len(links) + len(git_files) + len(directories)
    if len(paths) != count or len({each.path for each in repositories}) != len(repositories):
        raise CheckpointFormatError("metadata.json records a path twice", entry=METADATA_NAME)
    for path in leaves.intersection(entered):
        raise CheckpointFormatError("an entry is a file and a directory", entry=path)
    paths.update(entered)
    if len(paths) > max_paths:
        raise CheckpointLimitError(f"the archive has more than {max_paths} paths")
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
            object_pairs_hook=_build_unique,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite,
            parse_int=_parse_short,
        )
        _check_depth(document)
        if b"\\u" in data:  # only an escape can be a lone surrogate
            json.dumps(document, ensure_ascii=False).encode()
    except CheckpointFormatError:
        raise
    except UnicodeError:
        _refuse("is not UTF-8")
    except (ValueError, RecursionError) as error:
        _refuse(f"is not JSON: {str(error) or 'too deep'}")
    return document


def _build_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _refuse("has the same key twice in an object")
    return members


def _refuse_constant(text: str) -> NoReturn:
    _refuse(f"contains {text}, but JSON has no such number")


def _parse_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse("contains a number that is too large")
    return value


def _parse_short(text: str) -> int:
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


class _File(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    mode: Literal[0o600, 0o700]
    mtime_ns: int
    unstable: bool = True

    def __post_init__(self) -> None:
        if not self.unstable:
            raise ValueError("the key is missing in the entry of a stable file")


class _Excluded(msgspec.Struct):
    path: str
    reason: str


_Convert: TypeAlias = Callable[[object], object]


class _RenamedFile(_File):
    path: str = ""


_SHAPES: Final[Mapping[int, Mapping[str, Any]]] = {
    1: {
        "created_at": str,
        "session_format": str | None,
        "agents": dict[str, AgentState]
        | list[str],  # an archive without ``files`` may list only the names
        "files": dict[str, _File],
        "symlinks": list[WorkspaceLink],
        "directories": list[str],
        "excluded": list[_Excluded],
        "secret_scan": dict[str, Any],
        "world": dict[str, Any] | None,
        "lineage": dict[str, Any] | None,
    },
    _PATHS_SINCE: {"files": dict[str, _RenamedFile], "repositories": list[Repository]},
}
"""Types of the reserved keys, by the schema that introduced the type.

Other keys of their objects are ignored.
"""


_CONVERTERS: Final[Mapping[int, Mapping[str, _Convert]]] = {
    version: {
        key: converter(shape)
        for since, shapes in _SHAPES.items()
        if since <= version
        for key, shape in shapes.items()
    }
    for version in range(1, SCHEMA_VERSION + 1)
}


def _has_shape(convert: _Convert, value: object) -> bool:
    try:
        convert(value)
    except msgspec.ValidationError:
        return False
    return True


def _is_agent_name(name: str) -> bool:
    return "/" not in name and is_name(f"agents/{name}/workspace/_")


RESERVED_KEYS: Final = frozenset(("schema_version", *itertools.chain(*_SHAPES.values())))
"""Keys at the top level that this package defines; a caller cannot set them."""


def _refuse(problem: str) -> NoReturn:
    raise CheckpointFormatError(f"metadata.json {problem}", entry=METADATA_NAME)
