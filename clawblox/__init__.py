"""clawblox: start, watch, snapshot, stop and resume interactive worlds, exactly.

Public names are imported when they are first used (PEP 562), so that ``import clawblox``
costs nothing that the caller does not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawblox.agents.async_agent import AsyncAgent
    from clawblox.agents.prompts import AUTO_CONTINUE, default_system_prompt
    from clawblox.agents.sync_agent import Agent
    from clawblox.agents.usage import Budget
    from clawblox.agents.values import AgentEvent, AgentResult, StartedAgent, Usage
    from clawblox.checkpoint import (
        async_load_checkpoint,
        async_read_metadata,
        async_save_checkpoint,
        load_checkpoint,
        read_metadata,
        save_checkpoint,
    )
    from clawblox.concurrency.batch import Batch, Outcome
    from clawblox.config.options import InstanceSpec
    from clawblox.errors import (
        ActionRefusedError,
        AgentError,
        AgentExitedError,
        AgentResumeError,
        AgentSetupError,
        AgentStallError,
        AgentStartError,
        BatchError,
        CheckpointError,
        CheckpointFormatError,
        CheckpointLimitError,
        CheckpointPathError,
        CheckpointSecretError,
        CheckpointVersionError,
        ClawbloxError,
        ConfigError,
        ControlError,
        FetchError,
        JournalLostError,
        ManifestError,
        OrchestratorSuspendedError,
        PlanChangedError,
        PortInUseError,
        RecordingError,
        RunLockedError,
        SnapshotError,
        SnapshotRefusedError,
        UsageError,
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
    from clawblox.experiment import (
        AgentSpec,
        AsyncCheckpointer,
        Checkpointer,
        Experiment,
        ExperimentEvent,
        ExperimentStatus,
        GenerationEnd,
        LiveGeneration,
        Plan,
        Results,
        Row,
        RunOutcome,
        WorldSpec,
        read_experiment,
    )
    from clawblox.protocol import ScriptErrors, TickRate
    from clawblox.results import (
        Access,
        LoadedCheckpoint,
        LogLine,
        ProcessExit,
        SavedCheckpoint,
        SavedSnapshot,
        StartedWorld,
        StopResult,
        WorldEvent,
    )
    from clawblox.rundir.lineage import InstanceLineage, Lineage, read_lineage
    from clawblox.rundir.manifest import Manifest, read_manifest, read_runs
    from clawblox.telemetry.metrics import Metrics
    from clawblox.world.agent_client import AsyncAgentClient
    from clawblox.world.async_world import AsyncWorld
    from clawblox.world.instance_calls import AsyncStartedInstance
    from clawblox.world.sync_world import AgentClient, StartedInstance, World

__version__ = "0.1.0"

_HOMES = {  # of all public names but the errors
    "clawblox.agents.async_agent": ("AsyncAgent",),
    "clawblox.agents.prompts": ("AUTO_CONTINUE", "default_system_prompt"),
    "clawblox.agents.sync_agent": ("Agent",),
    "clawblox.agents.usage": ("Budget",),
    "clawblox.agents.values": ("AgentEvent", "AgentResult", "StartedAgent", "Usage"),
    "clawblox.world.agent_client": ("AsyncAgentClient",),
    "clawblox.world.async_world": ("AsyncWorld",),
    "clawblox.world.instance_calls": ("AsyncStartedInstance",),
    "clawblox.checkpoint": (
        "async_load_checkpoint",
        "async_read_metadata",
        "async_save_checkpoint",
        "load_checkpoint",
        "read_metadata",
        "save_checkpoint",
    ),
    "clawblox.world.sync_world": ("AgentClient", "StartedInstance", "World"),
    "clawblox.rundir.lineage": ("InstanceLineage", "Lineage", "read_lineage"),
    "clawblox.rundir.manifest": ("Manifest", "read_manifest", "read_runs"),
    "clawblox.telemetry.metrics": ("Metrics",),
    "clawblox.concurrency.batch": ("Batch", "Outcome"),
    "clawblox.config.options": ("InstanceSpec",),
    "clawblox.results": (
        "Access",
        "LoadedCheckpoint",
        "LogLine",
        "SavedCheckpoint",
        "SavedSnapshot",
        "StartedWorld",
        "StopResult",
        "WorldEvent",
        "ProcessExit",
    ),
    "clawblox.experiment": (
        "AgentSpec",
        "AsyncCheckpointer",
        "Checkpointer",
        "Experiment",
        "ExperimentEvent",
        "ExperimentStatus",
        "GenerationEnd",
        "LiveGeneration",
        "Plan",
        "Results",
        "Row",
        "RunOutcome",
        "WorldSpec",
        "read_experiment",
    ),
    "clawblox.protocol": ("ScriptErrors", "TickRate"),
}
__all__ = [  # noqa: PLE0604, RUF100 - a test holds this list against the table
    "AUTO_CONTINUE",
    "Access",
    "ActionRefusedError",
    "Agent",
    "AgentClient",
    "AgentError",
    "AgentEvent",
    "AgentExitedError",
    "AgentResult",
    "AgentResumeError",
    "AgentSetupError",
    "AgentSpec",
    "AgentStallError",
    "AgentStartError",
    "AsyncAgent",
    "AsyncAgentClient",
    "AsyncCheckpointer",
    "AsyncStartedInstance",
    "AsyncWorld",
    "Batch",
    "BatchError",
    "Budget",
    "CheckpointError",
    "CheckpointFormatError",
    "CheckpointLimitError",
    "CheckpointPathError",
    "CheckpointSecretError",
    "CheckpointVersionError",
    "Checkpointer",
    "ClawbloxError",
    "ConfigError",
    "ControlError",
    "Experiment",
    "ExperimentEvent",
    "ExperimentStatus",
    "FetchError",
    "GenerationEnd",
    "InstanceLineage",
    "InstanceSpec",
    "JournalLostError",
    "Lineage",
    "LiveGeneration",
    "LoadedCheckpoint",
    "LogLine",
    "Manifest",
    "ManifestError",
    "Metrics",
    "OrchestratorSuspendedError",
    "Outcome",
    "Plan",
    "PlanChangedError",
    "PortInUseError",
    "ProcessExit",
    "RecordingError",
    "Results",
    "Row",
    "RunLockedError",
    "RunOutcome",
    "SavedCheckpoint",
    "SavedSnapshot",
    "ScriptErrors",
    "SnapshotError",
    "SnapshotRefusedError",
    "StartedAgent",
    "StartedInstance",
    "StartedWorld",
    "StopResult",
    "TickRate",
    "Usage",
    "UsageError",
    "World",
    "WorldCallError",
    "WorldCommandError",
    "WorldError",
    "WorldEvent",
    "WorldExitedBeforeReadyError",
    "WorldExitedError",
    "WorldIdentityError",
    "WorldReadyTimeoutError",
    "WorldSessionError",
    "WorldSpec",
    "WorldStartError",
    "WorldStopError",
    "__version__",
    "async_load_checkpoint",
    "async_read_metadata",
    "async_save_checkpoint",
    "default_system_prompt",
    "load_checkpoint",
    "read_experiment",
    "read_lineage",
    "read_manifest",
    "read_metadata",
    "read_runs",
    "save_checkpoint",
]


_HOME_OF = {name: "clawblox.errors" for name in __all__ if name.endswith("Error")} | {
    name: module for module, names in _HOMES.items() for name in names
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
