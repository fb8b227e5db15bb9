"""Checkpoints: archives of a world's and its agents' state (``.ckpt``).

Most public names are imported when they are first used (PEP 562), so that the small processes that
examine archives import no more than they need.

- ``api``: the documented functions; ``twins`` makes their async versions.
- ``options``: the options of a save and a load.
- ``save``: a save, from its options to a complete and registered archive.
- ``load``: from an archive to files in a run directory.
- ``audit``: verifying, comparing and repairing archives that exist.
- ``archive``: the archive as a file.
- ``collect``: choosing the files of an agent that go into an archive.
- ``secrets``: finding secrets before they leave.
- ``document``: the contents of ``metadata.json``, and the world's snapshot.
- ``refusals``: the errors of refused saves, and the tokens of live worlds.
- ``names``: the names that a member of an archive may have.
- ``progress``: reporting the progress of a save or a check.
- ``os_errors``: errors of the operating system as checkpoint errors.
- ``recent``: a memory of bounded size.
- ``model``: frozen values.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clawblox.errors import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointPathError,
    CheckpointSecretError,
    CheckpointVersionError,
)
from clawblox.results import Finding

if TYPE_CHECKING:
    from clawblox.checkpoint.api import (
        async_load_checkpoint,
        async_read_metadata,
        async_save_checkpoint,
        load_checkpoint,
        read_metadata,
        save_checkpoint,
    )
    from clawblox.checkpoint.audit.repair import Repair, repair_checkpoints
    from clawblox.checkpoint.audit.verify import (
        Difference,
        Scan,
        Verification,
        diff_checkpoints,
        scan_checkpoint,
        verify_checkpoint,
    )
    from clawblox.checkpoint.model import Allowance, Limits

_HOMES = ("model", "audit.repair", "audit.verify", "api")
"""The modules that define the other public names."""

__all__ = [
    "Allowance",
    "CheckpointError",
    "CheckpointFormatError",
    "CheckpointLimitError",
    "CheckpointPathError",
    "CheckpointSecretError",
    "CheckpointVersionError",
    "Difference",
    "Finding",
    "Limits",
    "Repair",
    "Scan",
    "Verification",
    "async_load_checkpoint",
    "async_read_metadata",
    "async_save_checkpoint",
    "diff_checkpoints",
    "load_checkpoint",
    "read_metadata",
    "repair_checkpoints",
    "save_checkpoint",
    "scan_checkpoint",
    "verify_checkpoint",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    for home in _HOMES if name in __all__ else ():
        names = vars(importlib.import_module(f"{__name__}.{home}"))
        if name in names:
            globals()[name] = names[name]
            return names[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
