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
    └── WorldError                        something about one instance
        ├── WorldStartError
        │   ├── WorldCommandError         the command cannot be executed
        │   ├── PortInUseError
        │   ├── WorldExitedBeforeReady
        │   │   └── SnapshotRefusedError  it exited while it restored a snapshot
        │   ├── WorldReadyTimeout (TimeoutError)
        │   └── WorldIdentityError        a stranger answers on the world's port
        ├── WorldExitedError              it died after it had been ready
        ├── WorldCallError                it answered a call with something unusable
        │   └── WorldSessionError         it answered with another session
        ├── SnapshotError
        └── WorldStopError                a process survived the whole stop ladder

An error is raised with a message and optional fields, nothing else is required, so every
one of them pickles. The fields stand in the message too: the text alone is enough to find
the fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawblox.results import Finding, WorldExit

_SHOWN_FINDINGS = 20

__all__ = [
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
    "WorldExitedBeforeReady",
    "WorldExitedError",
    "WorldIdentityError",
    "WorldReadyTimeout",
    "WorldSessionError",
    "WorldStartError",
    "WorldStopError",
]


_MAX_FAILURES = 10


class ClawbloxError(Exception):
    """Base of everything that clawblox raises on purpose.

    Args:
        message: What went wrong, in one sentence.
        hint: What to do about it.
    """

    exit_code = 1
    """Exit status of the command line when this error ends it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def details(self) -> list[str]:
        """Return the lines that follow the message: fields of the error, one a line."""
        return []

    def __str__(self) -> str:
        lines = [self.message, *(f"  {line}" for line in self.details())]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class ConfigError(ClawbloxError, ValueError):
    """A ``world.toml``, or a value given in its place, is wrong.

    Args:
        message: What is wrong and what would be right.
        path: The file, when the value came from one.
        key: Dotted key, for example ``run.command``.
        value: The offending value.
        line: Line in ``path``, counted from 1.
        hint: What to do about it.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        key: str | None = None,
        value: object = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.key = key
        self.value = value
        self.line = line

    def details(self) -> list[str]:
        """Name file with line, key and value."""
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        return [
            *([f"file: {where}"] if self.path else []),
            *([f"key: {self.key}"] if self.key else []),
            *([f"value: {_short_repr(self.value)}"] if self.value is not None else []),
        ]


class UsageError(ClawbloxError, RuntimeError):
    """A call that cannot work now: not started, already closed, ambiguous instance."""

    exit_code = 2


class FetchError(ClawbloxError, OSError):
    """A world folder could not be downloaded.

    Args:
        message: What failed.
        url: The address that was asked.
        status: HTTP status of the answer, when there was one.
        hint: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        url: str | None = None,
        status: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.url = url
        self.status = status

    def details(self) -> list[str]:
        """Name the address and the status."""
        return [
            *([f"url: {self.url}"] if self.url else []),
            *([f"status: {self.status}"] if self.status else []),
        ]


class ManifestError(ClawbloxError):
    """The run manifest cannot be read or written.

    Args:
        message: What failed.
        path: The manifest.
        hint: What to do about it.
    """

    def __init__(self, message: str, *, path: Path | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path

    def details(self) -> list[str]:
        """Name the file."""
        return [f"file: {self.path}"] if self.path else []


class RunLockedError(ClawbloxError):
    """Another orchestrator holds this instance of the run directory.

    Args:
        message: Which instance, and who holds it.
        path: The lock file.
        pid: Process of the holder, when it could be read.
        hint: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        pid: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.pid = pid

    def details(self) -> list[str]:
        """Name the lock file and its holder."""
        return [
            *([f"lock: {self.path}"] if self.path else []),
            *([f"pid: {self.pid}"] if self.pid else []),
        ]


class BatchError(ClawbloxError):
    """An operation on many instances failed for some of them.

    Args:
        message: What failed, and for how many.
        failed: The errors by name of the instance, the first cause first.
        hint: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        failed: Mapping[str, Exception] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.failed = dict(failed or {})

    @classmethod
    def of(cls, failed: Mapping[str, Exception], total: int) -> BatchError:
        """Return the error of a batch of ``total`` instances, caused by its first failure."""
        error = cls(f"{len(failed)} of {total} instances failed", failed=failed)
        error.__cause__ = next(iter(failed.values()))
        return error

    def details(self) -> list[str]:
        """Name each instance with the first line of its error."""
        lines = [
            f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            for name, error in self.failed.items()
        ]
        more = len(lines) - _MAX_FAILURES
        return [*lines[:_MAX_FAILURES], *([f"and {more} more"] if more > 0 else [])]


class ControlError(ClawbloxError):
    """An orchestrator refused a request of another process, or went away meanwhile.

    Args:
        message: What failed; the orchestrator's own words when it answered.
        path: The control socket.
        error_type: Class of the error in the orchestrator; None when it did not answer.
        error_details: The lines that follow that error's message.
        hint: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        error_type: str | None = None,
        error_details: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.error_type = error_type
        self.error_details = tuple(error_details)

    def details(self) -> list[str]:
        """Name the error in the orchestrator with its details, and the socket."""
        return [
            *([f"error: {self.error_type}"] if self.error_type else []),
            *self.error_details,
            *([f"socket: {self.path}"] if self.path else []),
        ]


class OrchestratorSuspendedError(ControlError):
    """An orchestrator cannot answer, since SIGSTOP or Ctrl-Z stopped it; fields of ControlError."""


class CheckpointError(ClawbloxError):
    """A ``.ckpt`` archive cannot be made, or cannot be loaded where it should be.

    Args:
        message: What went wrong.
        path: The archive, or the file or directory that is in the way.
        entry: Name of the member of the archive, as it stands there; shown escaped and cut.
        hint: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        entry: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.entry = entry

    def details(self) -> list[str]:
        """Name the member and the archive."""
        return [
            *([f"entry: {_safe_repr(self.entry)}"] if self.entry is not None else []),
            *([f"file: {self.path}"] if self.path else []),
        ]


class CheckpointSecretError(CheckpointError):
    """An archive would have carried a secret, or something that cannot be searched for one.

    Nothing was written. The secret itself is nowhere in this error.

    Args:
        message: What was refused.
        findings: Each place, with its rule, fingerprint and a redacted preview.
        **fields: The fields of :class:`CheckpointError`.
    """

    def __init__(self, message: str, *, findings: Sequence[Finding] = (), **fields: object) -> None:
        super().__init__(message, **fields)  # type: ignore[arg-type]
        self.findings = tuple(findings)

    def details(self) -> list[str]:
        """Say where, a finding a line, after the fields of every checkpoint error."""
        shown = [str(finding) for finding in self.findings[:_SHOWN_FINDINGS]]
        rest = len(self.findings) - len(shown)
        return [*super().details(), *shown, *([f"and {rest} more"] if rest else [])]


class CheckpointFormatError(CheckpointError, ValueError):
    """A file is no archive of the kind that clawblox writes; nothing of it was kept."""


class CheckpointPathError(CheckpointFormatError):
    """A member's name is not in canonical form, or leads out of the archive's own directories."""


class CheckpointLimitError(CheckpointFormatError):
    """An archive is larger, or has more members, than its reader allows."""


class CheckpointVersionError(CheckpointFormatError):
    """An archive was written by a newer clawblox."""


class WorldError(ClawbloxError):
    """Something went wrong with one instance of a world.

    Args:
        message: What went wrong, in one sentence.
        instance: Name of the instance.
        world_dir: Directory with the ``world.toml``.
        command_file: Script that reruns the launch.
        log_file: Output of the world's processes.
        url: Address of the instance, once it has one.
        port: Its port, once it has one.
        phase: What was being done, for example ``probing``.
        elapsed_s: Seconds since the operation began.
        exit: How the process ended, when it did.
        log_lines: The last lines of the log, secrets masked.
        hint: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        instance: str | None = None,
        world_dir: Path | None = None,
        command_file: Path | None = None,
        log_file: Path | None = None,
        url: str | None = None,
        port: int | None = None,
        phase: str | None = None,
        elapsed_s: float | None = None,
        exit: WorldExit | None = None,  # noqa: A002 - the word of the domain
        log_lines: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.instance = instance
        self.world_dir = world_dir
        self.command_file = command_file
        self.log_file = log_file
        self.url = url
        self.port = port
        self.phase = phase
        self.elapsed_s = elapsed_s
        self.exit = exit
        self.log_lines = log_lines

    def locate(self, **fields: object) -> None:
        """Fill in the fields that are not known yet; used by whoever knows the instance."""
        for name, value in fields.items():
            if not getattr(self, name):
                setattr(self, name, value)

    def details(self) -> list[str]:
        """Name every field that is known, the log's last lines at the end."""
        named = {
            "instance": self.instance,
            "world directory": self.world_dir,
            "command_file": self.command_file,
            "log_file": self.log_file,
            "url": self.url,
            "port": self.port if self.url is None else None,
            "phase": self.phase,
            "elapsed": None if self.elapsed_s is None else f"{self.elapsed_s:.2f} s",
            "exit": self.exit,
        }
        lines = [f"{name}: {value}" for name, value in named.items() if value is not None]
        if self.log_lines:
            lines.append("last log lines:")
            lines.extend(f"  | {line}" for line in self.log_lines)
        return lines


class WorldStartError(WorldError):
    """The instance did not become ready; nothing of it is left."""


class WorldCommandError(WorldStartError):
    """The world's command cannot be executed: not found, not executable, bad format."""


class PortInUseError(WorldStartError):
    """The port that was asked for belongs to another process."""


class WorldExitedBeforeReady(WorldStartError):  # noqa: N818 - says the condition
    """The world's process ended before the world was ready."""


class SnapshotRefusedError(WorldExitedBeforeReady):
    """The world's process ended while it should have restored a snapshot."""


class WorldReadyTimeout(WorldStartError, TimeoutError):  # noqa: N818 - says the condition
    """The world lived but was not ready within its time."""


class WorldIdentityError(WorldStartError):
    """Somebody else answers on the port of this instance."""


class WorldExitedError(WorldError):
    """The instance has ended; a call to it cannot succeed any more."""


class WorldCallError(WorldError):
    """The instance answered a call with something unusable, or not at all.

    Args:
        message: What went wrong.
        status: HTTP status of the answer, when there was one.
        body_start: The first characters of the body, secrets masked.
        **fields: The fields of :class:`WorldError`.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        body_start: str = "",
        **fields: object,
    ) -> None:
        super().__init__(message, **fields)  # type: ignore[arg-type]
        self.status = status
        self.body_start = body_start

    def details(self) -> list[str]:
        """Add status and body to the fields of the instance."""
        return [
            *([f"status: {self.status}"] if self.status is not None else []),
            *([f"body: {_short_repr(self.body_start)}"] if self.body_start else []),
            *super().details(),
        ]


class WorldSessionError(WorldCallError):
    """The world did not give the recorded session back."""


class SnapshotError(WorldError):
    """A snapshot could not be taken; no file and no manifest entry was left.

    Args:
        message: What went wrong.
        phase: ``connect``, ``headers``, ``body``, ``verify`` or ``publish``.
        bytes: Body bytes received until then.
        status: HTTP status of the answer, when there was one.
        **fields: The other fields of :class:`WorldError`.
    """

    def __init__(
        self,
        message: str,
        *,
        phase: str | None = None,
        bytes: int = 0,  # noqa: A002 - the documented field
        status: int | None = None,
        **fields: object,
    ) -> None:
        super().__init__(message, phase=phase, **fields)  # type: ignore[arg-type]
        self.bytes = bytes
        self.status = status

    def details(self) -> list[str]:
        """Add status and bytes received to the fields of the instance."""
        return [
            *([f"status: {self.status}"] if self.status is not None else []),
            f"bytes received: {self.bytes}",
            *super().details(),
        ]


class WorldStopError(WorldError):
    """A marked process survived every rung of the stop ladder."""


def _short_repr(value: object, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _safe_repr(name: str, limit: int = 60) -> str:
    # A stranger chose the name: what it holds must not reach a terminal as it is.
    text = ascii(name)
    return text if len(text) <= limit else text[: limit - 3] + "..."
