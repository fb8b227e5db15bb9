"""Archives as text. Names and metadata are untrusted and therefore escaped."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from clawblox.agents.programs import STATE_DIR
from clawblox.checkpoint.archive.metadata import RESERVED_KEYS, recorded_repositories
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.audit.repair import Repair
from clawblox.checkpoint.audit.verify import Difference, Scan, Verification
from clawblox.checkpoint.collect.conversations import FORMATS
from clawblox.checkpoint.collect.repositories import promisor_hosts
from clawblox.checkpoint.names import METADATA_NAME, SNAPSHOT_NAME
from clawblox.errors import CheckpointError
from clawblox.printable import printable, printable_name, quote_words
from clawblox.system.amounts import format_bytes
from clawblox.views.formatting import (
    count_words,
    format_facts,
    format_table,
    path_word,
    shorten_path,
)

_ROWS_SHOWN: Final = 20
_DIFFERENCES_SHOWN: Final = 200
_DIGEST_SHOWN: Final = 12
_MOST_BYTES: Final = 1 << 63


def describe(archive: Archive, *, with_files: bool) -> str:
    """Describe an archive by its metadata.

    Args:
        archive: The archive.
        with_files: Whether to list every file as well.

    Raises:
        OSError: The archive no longer exists.
    """
    metadata = archive.metadata
    parts = [
        _describe_facts(archive),
        _describe_agents(archive),
        _describe_contacts(metadata),
        _describe_excluded(metadata.get("excluded") or ()),
        _describe_own_metadata(metadata),
        _describe_files(archive) if with_files else "",
    ]
    return "\n\n".join(filter(None, parts))


def archive_fields(archive: Archive) -> dict[str, Any]:
    """Return path, size, members and metadata of an archive, for JSON.

    Raises:
        OSError: The archive no longer exists.
    """
    return {
        "path": str(archive.path),
        "size_bytes": archive.path.stat().st_size,
        "verified": archive.is_verified,
        "members": [
            {"name": entry.name, "size": entry.size, "compressed_size": entry.compressed_size}
            for entry in archive.entries
        ],
        "metadata": archive.metadata,
    }


def describe_verification(verification: Verification) -> str:
    """Return the line for an intact archive."""
    result = "verified" if verification.is_verified else "intact, but has no digests to verify"
    size = format_bytes(verification.size_bytes)
    return f"{_place(verification.path)}: {result}, {verification.members} members, {size}"


def describe_loaded(loaded: Mapping[str, Any]) -> str:
    """Describe where the state of an archive was extracted."""
    world = loaded["world_snapshot"]
    rows = [("world snapshot", _place(world))] if world else []
    rows += [(f"agent {printable(name)}", _place(path)) for name, path in loaded["agents"].items()]
    lost = [
        f"The conversation of {printable(name)} was left out: {printable(reason)}"
        for name, reason in loaded["lost_sessions"].items()
    ]
    contacts = [
        f"git will contact {printable(', '.join(hosts))} for objects that {printable(path)} of "
        f"{printable(name)} lacks"
        for name, directories in loaded["git_hosts"].items()
        for path, hosts in directories.items()
    ]
    table = format_table(("STATE", "EXTRACTED TO"), rows)
    notes = "\n".join([*lost, *_cut(contacts, _ROWS_SHOWN)])
    parts = [notes, table, _describe_excluded(loaded["excluded"])]
    if not loaded["verified"]:
        parts.append("The archive has no digests, so only checksums were verified.")
    return "\n\n".join(filter(None, parts))


def describe_next_steps(loaded: Mapping[str, Any], run_dir: Path, world_dir: Path | None) -> str:
    """Return the shell commands that continue from an extracted archive.

    Args:
        loaded: The result of ``load_checkpoint``.
        run_dir: The directory into which the state was extracted.
        world_dir: The world; None if unknown.
    """
    lines = []
    if loaded["world_snapshot"]:
        world = "WORLD" if world_dir is None else _word(world_dir)
        snapshot = _word(loaded["world_snapshot"])
        lines.append(f"clawblox run {world} --run-dir {_word(run_dir)} --resume {snapshot}")
        if world_dir is None:
            lines.append("# WORLD is the directory of the world, which is not in the archive")
    states = loaded["metadata"].get("agents")
    for name, directory in loaded["agents"].items():
        state = states.get(name) if isinstance(states, Mapping) else None
        facts = _with_conversation(state or {}, loaded["metadata"], directory)
        lines.append(_describe_agent_start(directory, facts))
    return "\n".join(["To continue:", *(f"  {line}" for line in lines)]) if lines else ""


def _with_conversation(
    state: Mapping[str, Any], metadata: Mapping[str, Any], directory: Path
) -> Mapping[str, Any]:
    """Return the facts of an agent, completed by the conversation in its directory."""
    name = state.get("session_format") or metadata.get("session_format")
    format_ = FORMATS.get(str(name))
    if format_ is None or state.get("session_id") is not None:
        return state
    try:
        conversation_id = format_.recorded_id(directory)
    except CheckpointError:
        return state
    return {**state, "session_format": format_.name, "session_id": conversation_id}


def _describe_agent_start(directory: Path, state: Mapping[str, Any]) -> str:
    workspace = _word(directory / "workspace")
    format_ = FORMATS.get(str(state.get("session_format")))
    conversation_id = str(state.get("session_id"))
    # The metadata of a foreign archive may have any form.
    if format_ is None or not format_.program.id_pattern.fullmatch(conversation_id):
        name = printable(directory.name)
        return f"# {name} has no conversation to resume; its workspace is {workspace}"
    here = directory.absolute()
    home = quote_words([str(here / str(state.get("state_dir") or STATE_DIR))])
    words = [
        f"{format_.program.state_variable}={home}",
        quote_words(format_.resume_words),
        conversation_id,
    ]
    prompt = here / "runtime" / "system_prompt.md"
    if format_.system_prompt_option is not None and prompt.is_file():
        words += [format_.system_prompt_option, f'"$(cat {quote_words([str(prompt)])})"']
    return f"(cd {workspace} && {' '.join(words)})"


def describe_difference(diff: Difference) -> str:
    """Describe the differences of two archives, with a line for each member."""
    lines = [
        *(f"+ {printable_name(name)}" for name in diff.added),
        *(f"- {printable_name(name)}" for name in diff.removed),
        *(f"~ {printable_name(name)}" for name in diff.changed),
        *(f"~ {METADATA_NAME}: {printable(key)}" for key in diff.metadata),
    ]
    counts = f"{len(diff.added)} added, {len(diff.removed)} removed, {len(diff.changed)} changed"
    return "\n".join([*_cut(lines, _DIFFERENCES_SHOWN), f"{counts}, {diff.unchanged} unchanged"])


def describe_findings(scan: Scan) -> str:
    """List the possible secrets in an archive."""
    searched = _describe_scan(scan.summary)
    if not scan.findings:
        return f"{_place(scan.path)}: nothing found; {searched}"
    facts = operator.attrgetter("line", "rule", "fingerprint", "preview")
    rows = [[printable_name(found.path), *map(_text, facts(found))] for found in scan.findings]
    headings = ("FILE", "LINE", "RULE", "FINGERPRINT", "PREVIEW")
    return f"{format_table(headings, rows)}\n\n{count_words(len(rows), 'finding')}; {searched}"


def describe_repair(repair: Repair) -> str:
    """Describe the repair of a run."""
    lines = [
        *(f"registered {_place(path)}" for path in repair.registered),
        *(f"damaged    {_place(path)}: {error.message}" for path, error in repair.refused.items()),
        *(f"missing    {_place(path)}" for path in repair.missing),
    ]
    counts = f"{len(repair.registered)} registered, {repair.intact} already registered"
    return "\n".join([*lines, counts])


def _describe_facts(archive: Archive) -> str:
    metadata = archive.metadata
    facts = {
        "archive": f"{_place(archive.path)}, {format_bytes(archive.path.stat().st_size)}",
        "created": _text(metadata.get("created_at")),
        "world": _describe_world(archive),
        "lineage": _describe_lineage(metadata.get("lineage") or {}),
        "digests": "for every member" if archive.is_verified else "none (not written by clawblox)",
        "secrets": _describe_scan(metadata.get("secret_scan")),
    }
    return format_facts(facts)


def _describe_world(archive: Archive) -> str:
    sizes = [entry.size for entry in archive.entries if entry.name == SNAPSHOT_NAME]
    if not sizes:
        return "no snapshot"
    world = archive.metadata.get("world") or {}
    time = world.get("time")
    parts = [_text(world.get("format")), format_bytes(sizes[0])]
    return ", ".join(filter(None, [*parts, "" if time is None else f"sim time {_text(time)}"]))


def _describe_lineage(lineage: Mapping[str, Any]) -> str:
    facts = {
        "run": lineage.get("run_id"),
        "resumed from": lineage.get("resume_from"),
        "digest": _text(lineage.get("parent_sha256"))[:_DIGEST_SHOWN],
    }
    return ", ".join(f"{key} {_text(fact)}" for key, fact in facts.items() if fact)


def _describe_scan(summary: object) -> str:
    if not isinstance(summary, Mapping):
        return "never searched for secrets"
    allowed = summary.get("allowed")
    parts = [
        f"searched {count_words(_number(summary.get('files')), 'file')}",
        format_bytes(_number(summary.get("bytes"))),
        f"rules {_text(summary.get('ruleset'))}",
        f"{count_words(len(allowed), 'finding')} allowed"
        if isinstance(allowed, list) and allowed
        else "",
    ]
    return ", ".join(filter(None, parts))


def _describe_agents(archive: Archive) -> str:
    agents: Mapping[str, Any] = archive.metadata.get("agents") or {}
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for entry in archive.entries:
        parts = entry.name.split("/", 2)
        if parts[0] == "agents":
            counts[parts[1]] += 1
            sizes[parts[1]] += entry.size
    rows = [
        (
            printable(name),
            *_describe_conversation(agents, name),
            str(counts[name]),
            format_bytes(sizes[name]),
        )
        for name in sorted({*agents, *counts})
    ]
    return format_table(("AGENT", "BACKEND", "SESSION", "", "FILES", "SIZE"), rows) if rows else ""


def _describe_conversation(agents: object, name: str) -> tuple[str, str, str]:
    state = agents.get(name) if isinstance(agents, Mapping) else None
    if not isinstance(state, Mapping):
        return "", "", ""
    backend, conversation_id = (_text(state.get(key)) for key in ("backend", "session_id"))
    return backend, conversation_id, "mid-turn" if state.get("mid_turn") else ""


def _describe_contacts(metadata: Mapping[str, Any]) -> str:
    """List the hosts that git would contact in the repositories of an archive."""
    rows = [
        (printable(repository.path), ", ".join(hosts))
        for repository in recorded_repositories(metadata)
        if (hosts := promisor_hosts(repository))
    ]
    return _first_rows(("PARTIAL CLONE", "GIT CONTACTS"), rows)


def _describe_excluded(excluded: Sequence[Mapping[str, Any]] | tuple[()]) -> str:
    rows = [(printable_name(entry["path"]), _text(entry["reason"])) for entry in excluded]
    return _first_rows(("LEFT OUT", "REASON"), rows)


def _first_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of the first rows; empty without rows."""
    lines = format_table(headings, rows).splitlines() if rows else []
    return "\n".join(_cut(lines, _ROWS_SHOWN + 1))


def _describe_own_metadata(metadata: Mapping[str, Any]) -> str:
    """List the metadata that the caller of the save added."""
    own = {key: value for key, value in metadata.items() if key not in RESERVED_KEYS}
    rows = [(_text(key), _text(value)[:80]) for key, value in own.items()]
    return format_table(("METADATA", "VALUE"), rows) if rows else ""


def _describe_files(archive: Archive) -> str:
    rows = [(printable_name(entry.name), format_bytes(entry.size)) for entry in archive.entries]
    return format_table(("FILE", "SIZE"), rows)


def _cut(lines: Iterable[str], limit: int) -> list[str]:
    shown = list(lines)
    rest = len(shown) - limit
    return shown if rest <= 0 else [*shown[:limit], f"… and {rest} more"]


def _text(value: object) -> str:
    """Return an untrusted value of any type as text that is safe to print."""
    return "" if value is None else printable(str(value))


def _word(path: Path) -> str:
    """Return a path quoted for a shell."""
    return quote_words([path_word(path)])


def _place(path: Path) -> str:
    return printable_name(shorten_path(path))


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < _MOST_BYTES else 0
