"""Checkpoints: archives of a world's and its agents' state (``.ckpt``).

- ``api``: the documented functions, and their async twins.
- ``save``: one save, from a request to a complete and registered archive.
- ``load``: from an archive to files in a run directory.
- ``audit``: verifying, comparing and repairing archives that exist.
- ``archive``: the archive as a file.
- ``collect``: what of an agent travels.
- ``secrets``: finding secrets before they leave.
- ``document``: ``metadata.json`` as a save writes it.
- ``world_document``: the world's snapshot in an archive.
- ``request``: what a caller wants in an archive, checked first.
- ``refusals``: why a save is refused.
- ``tokens``: tokens of worlds that run, which must not travel.
- ``names``: what a member of an archive may be called.
- ``progress``: how far a save or a check is.
- ``zstd``: decompressing Zstandard.
- ``model``: frozen values.
"""

from __future__ import annotations

from clawblox.checkpoint.api import (
    async_load_checkpoint,
    async_read_metadata,
    async_save_checkpoint,
    load_checkpoint,
    read_metadata,
    save_checkpoint,
)
from clawblox.checkpoint.audit.compare import Difference, diff_checkpoints
from clawblox.checkpoint.audit.repair import Repair, repair_checkpoints
from clawblox.checkpoint.audit.verify import (
    Scan,
    Verification,
    scan_checkpoint,
    verify_checkpoint,
)
from clawblox.checkpoint.model import Allowance, Limits
from clawblox.errors import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointPathError,
    CheckpointSecretError,
    CheckpointVersionError,
)
from clawblox.results import Finding

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
