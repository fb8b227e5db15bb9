"""Every exception that clawblox raises.

::

    ClawbloxError
    ├── ConfigError (ValueError)          world.toml or an argument is wrong
    ├── UsageError (RuntimeError)         a call that cannot work in this order
    ├── FetchError (OSError)              a world folder could not be downloaded
    ├── ManifestError                     the run manifest cannot be read or written
    ├── RunLockedError                    another orchestrator holds this instance or run
    ├── BatchError                        an operation failed for some of many instances
    ├── ControlError                      an orchestrator refused a request, or went away
    │   └── OrchestratorSuspendedError    it was stopped by SIGSTOP or Ctrl-Z, and cannot answer
    ├── CheckpointError                   an archive cannot be made, or not be loaded there
    │   ├── CheckpointSecretError         it would have carried a secret
    │   └── CheckpointFormatError (ValueError)
    │       ├── CheckpointPathError       an entry's name could harm a reader
    │       ├── CheckpointLimitError      it is larger than a reader allows
    │       └── CheckpointVersionError    it was written by a newer clawblox
    ├── AgentError                        something about one agent
    │   ├── AgentSetupError               its program cannot be used here
    │   ├── AgentStartError               its program did not start
    │   ├── AgentResumeError              its conversation cannot be continued exactly
    │   ├── AgentExitedError              its program ended by itself
    │   └── AgentStallError               its program has been silent for too long
    └── WorldError                        something about one instance
        ├── WorldStartError
        │   ├── WorldCommandError         the command cannot be executed
        │   ├── PortInUseError
        │   ├── WorldExitedBeforeReadyError
        │   │   └── SnapshotRefusedError  it exited while it restored a snapshot
        │   ├── WorldReadyTimeoutError (TimeoutError)
        │   └── WorldIdentityError        a stranger answers on the world's port
        ├── WorldExitedError              it died after it had been ready
        ├── WorldCallError                it answered a call with something unusable
        │   ├── ActionRefusedError        it refused what an agent asked for
        │   └── WorldSessionError         it answered with another session
        ├── SnapshotError
        └── WorldStopError                a process survived the whole stop ladder

Only the message is required to raise one, and every one of them pickles. Its text begins with
what it is about and what went wrong, the headline; the fields follow, one a line, and the hint
comes last. So the text alone is enough to find the fault.

- ``general``: the base, and errors of arguments, manifests and requests.
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
    ManifestError,
    OrchestratorSuspendedError,
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
    "ManifestError",
    "OrchestratorSuspendedError",
    "PortInUseError",
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
