"""The public names, and the modules that define them."""

from clawblox.checkpoint.api import async_load_checkpoint as async_load_checkpoint
from clawblox.checkpoint.api import async_read_metadata as async_read_metadata
from clawblox.checkpoint.api import async_save_checkpoint as async_save_checkpoint
from clawblox.checkpoint.api import load_checkpoint as load_checkpoint
from clawblox.checkpoint.api import read_metadata as read_metadata
from clawblox.checkpoint.api import save_checkpoint as save_checkpoint
from clawblox.checkpoint.audit.repair import Repair as Repair
from clawblox.checkpoint.audit.repair import repair_checkpoints as repair_checkpoints
from clawblox.checkpoint.audit.verify import Difference as Difference
from clawblox.checkpoint.audit.verify import Scan as Scan
from clawblox.checkpoint.audit.verify import Verification as Verification
from clawblox.checkpoint.audit.verify import diff_checkpoints as diff_checkpoints
from clawblox.checkpoint.audit.verify import scan_checkpoint as scan_checkpoint
from clawblox.checkpoint.audit.verify import verify_checkpoint as verify_checkpoint
from clawblox.checkpoint.model import Allowance as Allowance
from clawblox.checkpoint.model import Limits as Limits
from clawblox.errors import CheckpointError as CheckpointError
from clawblox.errors import CheckpointFormatError as CheckpointFormatError
from clawblox.errors import CheckpointLimitError as CheckpointLimitError
from clawblox.errors import CheckpointPathError as CheckpointPathError
from clawblox.errors import CheckpointSecretError as CheckpointSecretError
from clawblox.errors import CheckpointVersionError as CheckpointVersionError
from clawblox.results import Finding as Finding
