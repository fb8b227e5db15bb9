"""Every exception that clawblox raises.

::

    ClawbloxError
    ├── ConfigError (ValueError)          world.toml or an argument is invalid
    ├── UsageError (RuntimeError)         a call that is not possible in this state
    ├── FetchError (OSError)              a world folder could not be downloaded
    ├── ManifestError                     the run manifest cannot be read or written
    ├── RecordingError (ValueError)       a recording cannot be read
    ├── RunLockedError                    another orchestrator owns this instance or run
    ├── BatchError                        an operation failed for some of many instances
    ├── PlanChangedError                  a plan differs from that of its experiment
    ├── JournalLostError (OSError)        another program changed the journal of an experiment
    ├── ControlError                      an orchestrator refused a request, or ended
    │   └── OrchestratorSuspendedError    SIGSTOP or Ctrl-Z stopped it, so it cannot answer
    ├── CheckpointError                   an archive cannot be created or loaded
    │   ├── CheckpointSecretError         it would contain a secret
    │   └── CheckpointFormatError (ValueError)
    │       ├── CheckpointPathError       an entry's name could harm a reader
    │       ├── CheckpointLimitError      it is larger than a reader allows
    │       └── CheckpointVersionError    it was written by a newer clawblox
    ├── AgentError                        an error of one agent
    │   ├── AgentSetupError               its program cannot be used here
    │   ├── AgentStartError               its program did not start
    │   ├── AgentResumeError              its conversation cannot be continued exactly
    │   ├── AgentExitedError              its program ended by itself
    │   └── AgentStallError               its program was silent for too long
    └── WorldError                        an error of one instance
        ├── WorldStartError
        │   ├── WorldCommandError         the command cannot be executed
        │   ├── PortInUseError
        │   ├── WorldExitedBeforeReadyError
        │   │   └── SnapshotRefusedError  it exited while it restored a snapshot
        │   ├── WorldReadyTimeoutError (TimeoutError)
        │   └── WorldIdentityError        another program answers on the world's port
        ├── WorldExitedError              it ended after it had been ready
        ├── WorldCallError                its answer to a call is unusable
        │   ├── ActionRefusedError        it refused an agent's action
        │   └── WorldSessionError         it answered with a different session
        ├── SnapshotError
        └── WorldStopError                a process survived the whole stop ladder

Each needs only a message, and each can be pickled. The text begins with the headline, the subject
and what went wrong; the fields follow, one per line, and the hint comes last. So the text alone is
enough to find the cause.

- ``general``: the base class, and errors of arguments, requests, manifests and journals.
- ``world``: errors of one instance.
- ``checkpoint``: errors of archives.
- ``agent``: errors of one agent.
"""

from __future__ import annotations

from clawblox.errors.agent import (
    AgentError,
    AgentExitedError,
    AgentResumeError,
    AgentSetupError,
    AgentStallError,
    AgentStartError,
)
from clawblox.errors.checkpoint import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointPathError,
    CheckpointSecretError,
    CheckpointVersionError,
)
from clawblox.errors.general import (
    BatchError,
    ClawbloxError,
    ConfigError,
    ControlError,
    FetchError,
    JournalLostError,
    ManifestError,
    OrchestratorSuspendedError,
    PlanChangedError,
    RecordingError,
    RunLockedError,
    UsageError,
)
from clawblox.errors.world import (
    ActionRefusedError,
    PortInUseError,
    SnapshotError,
    SnapshotRefusedError,
    WorldCallError,
    WorldCommandError,
    WorldError,
    WorldExitedBeforeReadyError,
    WorldExitedError,
    WorldIdentityError,
    WorldReadyTimeoutError,
    WorldSessionError,
    WorldStartError,
    WorldStopError,
)

__all__ = [
    "ActionRefusedError",
    "AgentError",
    "AgentExitedError",
    "AgentResumeError",
    "AgentSetupError",
    "AgentStallError",
    "AgentStartError",
    "BatchError",
    "CheckpointError",
    "CheckpointFormatError",
    "CheckpointLimitError",
    "CheckpointPathError",
    "CheckpointSecretError",
    "CheckpointVersionError",
    "ClawbloxError",
    "ConfigError",
    "ControlError",
    "FetchError",
    "JournalLostError",
    "ManifestError",
    "OrchestratorSuspendedError",
    "PlanChangedError",
    "PortInUseError",
    "RecordingError",
    "RunLockedError",
    "SnapshotError",
    "SnapshotRefusedError",
    "UsageError",
    "WorldCallError",
    "WorldCommandError",
    "WorldError",
    "WorldExitedBeforeReadyError",
    "WorldExitedError",
    "WorldIdentityError",
    "WorldReadyTimeoutError",
    "WorldSessionError",
    "WorldStartError",
    "WorldStopError",
]
