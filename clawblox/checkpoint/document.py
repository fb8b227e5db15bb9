"""``metadata.json`` as a save writes it: what is in the archive, what is not, and where it is from.

Pure. Its strict reading, and how it becomes bytes, is ``metadata``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from clawblox.checkpoint.archive.metadata import serialise_metadata
from clawblox.checkpoint.collect.plan import Plan
from clawblox.checkpoint.model import SCHEMA_VERSION, AgentState, Allowance
from clawblox.results import Excluded

_INT64: Final = 2**63
_LARGEST_FILE: Final = {
    "size": _INT64 - 1,
    "sha256": "f" * 64,
    "mode": 0o700,
    "mtime_ns": -_INT64,
    "unstable": True,
}
_ROOM_BYTES: Final = 4096
"""Room for the numbers of the secret scan."""


@attrs.frozen(kw_only=True)
class Document:
    """What is known of an archive before its members are read.

    Attributes:
        plan: What will be in it.
        created_at: UTC time of the save.
        caller: What the caller says of it, at the top level.
        world: Format and time of the world's document; None without one.
        lineage: The run it is of, and what that one was resumed from.
    """

    plan: Plan
    created_at: str
    caller: Mapping[str, Any]
    world: Mapping[str, Any] | None
    lineage: Mapping[str, str | None]

    def as_bytes(
        self,
        files: Mapping[str, Mapping[str, Any]],
        excluded: Iterable[Excluded],
        secret_scan: Mapping[str, Any],
    ) -> bytes:
        """Return it with what became known since.

        Args:
            files: The members.
            excluded: Files that could not become members.
            secret_scan: The summary of the scan.
        """
        plan = self.plan
        return serialise_metadata(
            {
                "schema_version": SCHEMA_VERSION,
                "created_at": self.created_at,
                "session_format": _shared_format(plan.agents.values()),
                "agents": {name: attrs.asdict(state) for name, state in plan.agents.items()},
                **self.caller,
                "world": self.world,
                "lineage": self.lineage,
                "files": files,
                "symlinks": [attrs.asdict(link) for link in plan.links],
                "directories": list(plan.directories),
                "excluded": [attrs.asdict(place) for place in (*plan.excluded, *excluded)],
                "secret_scan": secret_scan,
            }
        )

    def largest_bytes(self, allow: Iterable[Allowance], secret_scan: Mapping[str, Any]) -> int:
        """Return a size that :meth:`as_bytes` does not exceed.

        A file is listed as a member or as excluded, and as a member it takes more room.

        Args:
            allow: What the scan may let pass, and then has to list.
            secret_scan: What a scan of nothing says.
        """
        files = {source.name: _LARGEST_FILE for source in self.plan.sources}
        listed = serialise_metadata({"allowed": [attrs.asdict(allowance) for allowance in allow]})
        return len(self.as_bytes(files, (), secret_scan)) + 2 * len(listed) + _ROOM_BYTES


def _shared_format(states: Iterable[AgentState]) -> str | None:
    formats = {state.session_format for state in states}
    return formats.pop() if len(formats) == 1 else None
