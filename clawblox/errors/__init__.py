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

Every error needs only a message and can be pickled. The text starts with the headline, which names
the subject and the problem; the fields follow, one per line, and the hint comes last. So the text
alone is enough to find the cause.

- ``general``: the base class, and errors of arguments, requests, manifests and journals.
- ``world``: errors of one instance.
- ``checkpoint``: errors of archives.
- ``agent``: errors of one agent.
"""

from __future__ import annotations

from clawblox.errors.agent import AgentError as AgentError
from clawblox.errors.agent import AgentExitedError as AgentExitedError
from clawblox.errors.agent import AgentResumeError as AgentResumeError
from clawblox.errors.agent import AgentSetupError as AgentSetupError
from clawblox.errors.agent import AgentStallError as AgentStallError
from clawblox.errors.agent import AgentStartError as AgentStartError
from clawblox.errors.checkpoint import CheckpointError as CheckpointError
from clawblox.errors.checkpoint import CheckpointFormatError as CheckpointFormatError
from clawblox.errors.checkpoint import CheckpointLimitError as CheckpointLimitError
from clawblox.errors.checkpoint import CheckpointPathError as CheckpointPathError
from clawblox.errors.checkpoint import CheckpointSecretError as CheckpointSecretError
from clawblox.errors.checkpoint import CheckpointVersionError as CheckpointVersionError
from clawblox.errors.general import BatchError as BatchError
from clawblox.errors.general import ClawbloxError as ClawbloxError
from clawblox.errors.general import ConfigError as ConfigError
from clawblox.errors.general import ControlError as ControlError
from clawblox.errors.general import FetchError as FetchError
from clawblox.errors.general import JournalLostError as JournalLostError
from clawblox.errors.general import ManifestError as ManifestError
from clawblox.errors.general import OrchestratorSuspendedError as OrchestratorSuspendedError
from clawblox.errors.general import PlanChangedError as PlanChangedError
from clawblox.errors.general import RecordingError as RecordingError
from clawblox.errors.general import RunLockedError as RunLockedError
from clawblox.errors.general import UsageError as UsageError
from clawblox.errors.world import ActionRefusedError as ActionRefusedError
from clawblox.errors.world import PortInUseError as PortInUseError
from clawblox.errors.world import SnapshotError as SnapshotError
from clawblox.errors.world import SnapshotRefusedError as SnapshotRefusedError
from clawblox.errors.world import WorldCallError as WorldCallError
from clawblox.errors.world import WorldCommandError as WorldCommandError
from clawblox.errors.world import WorldError as WorldError
from clawblox.errors.world import WorldExitedBeforeReadyError as WorldExitedBeforeReadyError
from clawblox.errors.world import WorldExitedError as WorldExitedError
from clawblox.errors.world import WorldIdentityError as WorldIdentityError
from clawblox.errors.world import WorldReadyTimeoutError as WorldReadyTimeoutError
from clawblox.errors.world import WorldSessionError as WorldSessionError
from clawblox.errors.world import WorldStartError as WorldStartError
from clawblox.errors.world import WorldStopError as WorldStopError
