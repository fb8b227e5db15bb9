"""The wires of Kimi Code: the transcripts of all agents of a session, which it alone writes to.

An agent can put anything in their place. They are read on from where they were read before, line
by line, up to limits, and never through a link. Everything here blocks.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Final

from clawblox.agents.drivers.driver import RecordedFile, RecordedUsage
from clawblox.agents.drivers.output import count_in, parse_record, record_in
from clawblox.agents.programs.kimi import AGENT_NAME, MAIN_TRANSCRIPT
from clawblox.agents.usage import add_usage
from clawblox.agents.values import Report, Usage
from clawblox.system.foreign_files import find_files, open_file
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

MAX_WIRE_BYTES: Final = 4 << 30
"""Apparent size above which a wire is not read."""

_MAX_LINE_BYTES: Final = 8 << 20
"""Longest line that is read, as in the output of a program."""

_MAX_READ_BYTES: Final = 512 << 20
"""Most that one call reads of all wires together; the next one reads on."""

_BUFFER_BYTES: Final = 1 << 20
_MAX_WIRES: Final = 4096
_USAGE_MARK: Final = b'"usage.record"'


def find_wires(root: Path, session: Path) -> list[str]:
    """Return the wires of a session, as paths below the state directory; that of ``main`` first.

    Args:
        root: The state directory.
        session: The directory of the session.
    """
    place = str(session.relative_to(root))
    pattern = f"{glob.escape(place)}/agents/*/wire.jsonl"
    wires = [str(file.path.relative_to(root)) for file in find_files(root, pattern)]
    main = f"{place}/{MAIN_TRANSCRIPT}"
    return sorted(filter(_agent_name, wires), key=lambda wire: (wire != main, wire))


def _agent_name(wire: str) -> str | None:
    """Return the agent that a wire is of; None if the program gives no such name."""
    name = wire.split("/")[-2]
    return name if re.fullmatch(AGENT_NAME, name) else None


def read_wires(root: Path, session: Path, recorded: RecordedUsage) -> Report | None:
    """Return what a session has used, if its wires record more than at the last call.

    A wire that cannot be read is left out, with a warning.

    Args:
        root: The state directory.
        session: The directory of the session.
        recorded: How far they were read.
    """
    left, grown = _MAX_READ_BYTES, {}
    for wire in find_wires(root, session)[:_MAX_WIRES]:
        name = _agent_name(wire) or ""
        file = recorded.files.setdefault(name, RecordedFile())
        before = file.usage
        try:
            left -= _read_on(root, wire, file, left, recorded)
        except OSError as error:
            _log.warning("usage not read", path=str(root / wire), error=str(error))
        if file.usage != before:
            grown[name] = file.usage
    if not grown:
        return None
    total = Usage()
    for file in recorded.files.values():
        total = add_usage(total, file.usage)
    return Report("usage", {"usage": total, "scope": "recorded", "files": grown})


def _read_on(root: Path, wire: str, file: RecordedFile, left: int, recorded: RecordedUsage) -> int:
    """Read on in a wire; return how much was read."""
    with os.fdopen(open_file(root, wire), "rb", buffering=_BUFFER_BYTES) as lines:
        status = os.fstat(lines.fileno())
        if status.st_size > MAX_WIRE_BYTES:
            _refuse(root / wire, recorded)
            return 0
        if status.st_ino != file.inode or status.st_size < file.position:  # it was written anew
            file.inode, file.position, file.is_within = status.st_ino, 0, False
            file.usage = Usage()
        begin = file.position
        lines.seek(begin)
        while file.position - begin < left and not recorded.interruption.is_set:
            line = lines.readline(_MAX_LINE_BYTES)
            is_whole = line.endswith(b"\n")
            if not is_whole and len(line) < _MAX_LINE_BYTES:
                break  # the program may be writing it
            if is_whole and not file.is_within and _USAGE_MARK in line:
                file.usage = add_usage(file.usage, _read_count(line))
            file.is_within = not is_whole
            file.position += len(line)
        return file.position - begin


def _read_count(line: bytes) -> Usage:
    """Return what one request to a model used."""
    record = parse_record(line) or {}
    if record.get("type") != "usage.record":
        return Usage()
    count = record_in(record, "usage")
    return Usage(
        input_tokens=count_in(count, "inputOther"),
        cached_tokens=count_in(count, "inputCacheRead"),
        cache_write_tokens=count_in(count, "inputCacheCreation"),
        output_tokens=count_in(count, "output"),
    )


def _refuse(wire: Path, recorded: RecordedUsage) -> None:
    if str(wire) not in recorded.refused:
        recorded.refused.add(str(wire))
        _log.warning("usage not read: file too large", path=str(wire), max_bytes=MAX_WIRE_BYTES)
