"""The format of recordings: records on tracks, collected in blocks with a header each. Pure.

A block is a skippable frame of Zstandard (RFC 8878, section 3.1.2), the header, and a frame with
its records, one JSON object a line. A reader skips from header to header; for other programs, the
file is a compressed file of JSON lines.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeVar

import attrs

from clawblox.extras import install_command
from clawblox.foreign_values import finite_number, parse_document, whole_number
from clawblox.zstd import Zstandard, find_zstandard

SUFFIX: Final = ".jsonl.zst"
ORCHESTRATOR_WRITER: Final = "clawblox"
"""The ``writer`` in recordings of the inputs and observations of agents."""
KIT_WRITER: Final = "clawblox.server"
"""The ``writer`` in recordings of worlds on the kit, including those on the engine."""

MAGIC: Final = 0x184D2A5B
"""First four bytes of a header, as a little-endian number; the last digit is our choice."""
PREFIX: Final = struct.Struct("<II")
"""The magic number, and the length of the header in bytes."""

BLOCK_RECORDS: Final = 50
"""Maximum number of records in a block."""
MAX_HEADER_BYTES: Final = 1024
MAX_BLOCK_BYTES: Final = 32 << 20
"""Maximum content of a block in bytes, and thus the maximum length of a record."""
MAX_START_BYTES: Final = 256 << 20
"""Maximum content of the first block, whose only record has a snapshot."""
MAX_START_MEMBERS: Final = 1 << 22
"""Maximum number of JSON values in the first record."""

_UTC: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
MAX_TIME_S: Final = 1e300
"""Maximum simulation time of a record, in seconds; its negative is the minimum."""
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_T = TypeVar("_T")


class Track(StrEnum):
    """The subject of a record; a block has records of one track."""

    INPUTS = "inputs"
    """Everything that entered the world, in the order in which it was applied."""
    OBSERVATIONS = "observations"
    """Observations of agents."""
    FRAMES = "frames"
    """Views of a spectator, and fingerprints of the state."""


@attrs.frozen
class Moment:
    """The time at which a record was made.

    Attributes:
        tick: Ticks since the start of the world.
        time: Simulation time in seconds.
        utc: Time of the host, like ``2026-06-22T18:59:25.104Z``. Agents must not see it.
    """

    tick: int
    time: float
    utc: str


def format_moment_utc(moment: datetime) -> str:
    """Return a time of the host, in UTC, in the form used in recordings."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def digest_value(value: object) -> str:
    """Return the SHA-256 of a state as used in recordings: of its JSON in ASCII without spaces.

    Raises:
        ValueError: A number is not finite, or the value contains itself.
        TypeError: It is not a JSON value.
    """
    return hashlib.sha256(_ENCODER.encode(value).encode("ascii")).hexdigest()


def digest_history(snapshot: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the parts of a snapshot that a replay must reach again.

    They are the state, the seed, the agents with their names, and the chat. Data of the host and
    waiting inputs are excluded; such inputs are events when they are applied.

    Args:
        snapshot: The snapshot of a save or of a recording; a stranger may have written it.

    Raises:
        ValueError: A number is not finite.
        TypeError: It is not JSON.
    """
    sessions = snapshot.get("sessions")
    agents = [
        (session.get("agent_id"), session.get("name"))
        for session in (sessions if isinstance(sessions, list) else ())
        if isinstance(session, dict)
    ]
    parts = [snapshot.get(key) for key in ("tick", "seed", "state", "chat")]
    return digest_value([*parts, agents])


@attrs.frozen
class Block:
    """Records of a track.

    Attributes:
        track: The track.
        records: Number of records.
        first: When the first of them was made.
        last: When the last of them was made.
        content: The records, each one line of JSON with its newline.
    """

    track: Track
    records: int
    first: Moment
    last: Moment
    content: bytes


@attrs.frozen
class BlockHeader:
    """The header of a block.

    Attributes:
        track: The track of the records.
        records: Number of records.
        first: When the first of them was made.
        last: When the last of them was made.
        compressed: Length in bytes of the frame that follows the header.
        uncompressed: Length in bytes of its content.
    """

    track: Track
    records: int
    first: Moment
    last: Moment
    compressed: int
    uncompressed: int


def encode_block(block: Block, zstandard: Zstandard) -> bytes:
    """Return the bytes of a block in a file."""
    frame = zstandard.compress(block.content)
    header = _ENCODER.encode(
        {
            "track": block.track,
            "records": block.records,
            "ticks": [block.first.tick, block.last.tick],
            "times": [block.first.time, block.last.time],
            "utc": [block.first.utc, block.last.utc],
            "compressed": len(frame),
            "uncompressed": len(block.content),
        }
    ).encode("ascii")
    return PREFIX.pack(MAGIC, len(header)) + header + frame


def parse_header(data: bytes, *, max_content: int = MAX_BLOCK_BYTES) -> BlockHeader:
    """Parse the header of a block, without its prefix.

    Args:
        data: The header, at most ``MAX_HEADER_BYTES`` long.
        max_content: Maximum length of the block's content, in bytes.

    Raises:
        ValueError: It is not the header of a block; the message names the key.
    """
    document = parse_document(data)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    try:
        track = Track(str(document.get("track")))
    except ValueError:
        raise ValueError(f"track: must be one of {', '.join(Track)}") from None
    ticks = _pair(document, "ticks", whole_number)
    times = _pair(document, "times", _read_time)
    utcs = _pair(document, "utc", _read_utc)
    return BlockHeader(
        track,
        _whole(document, "records", BLOCK_RECORDS),
        Moment(ticks[0], times[0], utcs[0]),
        Moment(ticks[1], times[1], utcs[1]),
        # Incompressible content grows a little.
        _whole(document, "compressed", max_content + max_content // 128 + 512),
        _whole(document, "uncompressed", max_content),
    )


def _whole(document: dict[str, Any], key: str, high: int) -> int:
    number = whole_number(document.get(key), low=1, high=high)
    if number is None:
        raise ValueError(f"{key}: must be a whole number from 1 to {high}")
    return number


def _pair(document: dict[str, Any], key: str, read: Callable[[object], _T | None]) -> tuple[_T, _T]:
    values = document.get(key)
    if not isinstance(values, list) or len(values) != 2:  # noqa: PLR2004, RUF100
        raise ValueError(f"{key}: must be a list of two values")
    first, last = read(values[0]), read(values[1])
    if first is None or last is None:
        raise ValueError(f"{key}: has a value of the wrong type")
    return first, last


def read_moment(fields: dict[str, Any]) -> Moment:
    """Return the moment of a record; records of the older format have no UTC time.

    Raises:
        ValueError: A field is missing or of the wrong type; the message names it.
    """
    return Moment(
        _present("tick", whole_number(fields.get("tick"))),
        _present("time", _read_time(fields.get("time"))),
        _present("utc", _read_utc(fields.get("utc", _NO_UTC))),
    )


def _present(key: str, value: _T | None) -> _T:
    if value is None:
        raise ValueError(f"{key}: is missing or of the wrong type")
    return value


_NO_UTC: Final = ""


def _read_time(value: object) -> float | None:
    return finite_number(value, low=-MAX_TIME_S, high=MAX_TIME_S)


def _read_utc(value: object) -> str | None:
    is_utc = isinstance(value, str) and (value == _NO_UTC or _UTC.fullmatch(value))
    return str(value) if is_utc else None


def require_zstandard() -> Zstandard:
    """Return the Zstandard implementation.

    Raises:
        ModuleNotFoundError: It is missing; the message has the command that installs it.
    """
    zstandard = find_zstandard()
    if zstandard is None:
        raise ModuleNotFoundError(
            "No module named 'zstandard', which recordings need: use Python 3.14, or "
            f"{install_command('zstd')}",
            name="zstandard",
        )
    return zstandard
