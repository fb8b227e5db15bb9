"""Checkpoints: archives of a world's and its agents' state (``.ckpt``)."""

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
