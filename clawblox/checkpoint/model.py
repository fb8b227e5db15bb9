"""Frozen values of the checkpoint package. They have no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs

SCHEMA_VERSION: Final = 1
"""The newest layout of an archive that this clawblox reads and the one it writes."""

MAX_FILE_BYTES: Final = 4 << 30
"""Default limit for the apparent size of one of the agents' files that is saved."""

MAX_TOTAL_BYTES: Final = 16 << 30
"""Default limit for the apparent size of all of them together."""

Transform = Callable[[Iterable[bytes]], Iterator[bytes]]
"""Rewrites the content of a file on its way, chunk by chunk."""


@attrs.frozen(kw_only=True)
class Link:
    """A symbolic link of a workspace; it is recorded in the metadata, never as a member.

    Attributes:
        path: Its name in the archive.
        target: What it says, as it is.
    """

    path: str
    target: str


@attrs.frozen(kw_only=True)
class Source:
    """A file that is to become a member of an archive.

    Attributes:
        name: Its name in the archive.
        path: Where it is, for messages.
        open: Opens it anew for reading, as a regular file and through no symbolic link, and
            returns the descriptor; raises OSError.
        whole_lines: Whether it is cut after its last newline.
        transform: Rewrites its content; None leaves it as it is.
        max_bytes: Apparent size above which it is not read; None means no limit.
    """

    name: str
    path: Path
    open: Callable[[], int] = attrs.field(repr=False)
    whole_lines: bool = False
    transform: Transform | None = None
    max_bytes: int | None = None


@attrs.frozen(kw_only=True)
class AgentState:
    """What ``metadata.json`` says of one agent.

    Attributes:
        backend: Its driver, ``claude`` for instance; None if it has no session tier.
        session_format: Name of the allowlist, ``claude-code-v1`` for instance; None as above.
        session_id: The recorded id of its conversation; None as above.
        state_dir: Where its program kept its state, relative to the agent's directory, and
            will look for it again; None as above.
        mid_turn: Whether the conversation was cut in the middle of a turn; None as above.
    """

    backend: str | None = None
    session_format: str | None = None
    session_id: str | None = None
    state_dir: str | None = None
    mid_turn: bool | None = None


@attrs.frozen(kw_only=True)
class Allowance:
    """A finding that the operator lets through.

    Attributes:
        path: As the finding says it.
        rule: As the finding says it.
        fingerprint: As the finding says it.
        reason: Why it is no secret; it goes into the metadata.
    """

    path: str
    rule: str
    fingerprint: str
    reason: str


@attrs.frozen(kw_only=True)
class Limits:
    """How large an archive a reader accepts.

    Attributes:
        entries: Members; and directories that they stand in.
        metadata_bytes: Size of ``metadata.json``.
        file_bytes: Size of any other member.
        total_bytes: Size of all members together.
        ratio: How many bytes one compressed byte may become; deflate cannot do more than 1032.
        directory_bytes: Size of the directory of the archive itself, which names every member.
        metadata_values: Values in ``metadata.json``; each takes more memory than its text.
    """

    entries: int = 200_000
    metadata_bytes: int = 64 << 20
    file_bytes: int = 64 << 30
    total_bytes: int = 256 << 30
    ratio: int = 1100
    directory_bytes: int = 64 << 20
    metadata_values: int = 2_000_000
