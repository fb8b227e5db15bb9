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

Only the message is required to raise one, and every one of them pickles. Its text begins with
what it is about and what went wrong, the headline; the fields follow, one a line, and the hint
comes last. So the text alone is enough to find the fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawblox.results import Finding, WorldExit

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

_SHOWN_FAILURES = 10
_SHOWN_FINDINGS = 20
_VALUE_CHARS = 200
_ENTRY_CHARS = 60


class ClawbloxError(Exception):
    """Base of everything that clawblox raises on purpose.

    Args:
        message: What went wrong, in one sentence.
        hint: What to do about it.

    Attributes:
        exit_code: Exit status of the command line when this error ends it.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def subject(self) -> str | None:
        """What the error is about, a file or an argument; None when the message says it."""
        return None

    @property
    def headline(self) -> str:
        """The first line of the text: subject and message."""
        return self.message if self.subject is None else f"{self.subject}: {self.message}"

    def details(self) -> list[str]:
        """Return the lines that follow the headline: fields of the error, one a line."""
        return []

    def __str__(self) -> str:
        lines = [self.headline, *(f"  {line}" for line in self.details())]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class ConfigError(ClawbloxError, ValueError):
    """A ``world.toml``, or an argument, is wrong.

    Args:
        message: What is wrong and what would be right; it is read after the key.
        path: The file, when the value came from one.
        key: Dotted key, for example ``run.command``, or name of the argument.
        value: The wrong value.
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

    @property
    def subject(self) -> str | None:
        """The key; without one, the place in the file."""
        return self.key or self._place

    def details(self) -> list[str]:
        """Name the file with its line, and the value, unless the headline does."""
        value = repr(self.value)
        is_shown = self.value is None or self.message.endswith(f", not {value}")
        return [
            *([f"file: {self._place}"] if self.key and self._place else []),
            *([] if is_shown else [f"value: {_shorten(value, _VALUE_CHARS)}"]),
        ]

    @property
    def _place(self) -> str | None:
        if self.path is None:
            return None
        return f"{self.path}:{self.line}" if self.line else str(self.path)


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

    @property
    def subject(self) -> str | None:
        """The address."""
        return self.url

    def details(self) -> list[str]:
        """Name the status."""
        return [f"status: {self.status}"] if self.status else []


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

    @property
    def subject(self) -> str | None:
        """The manifest."""
        return str(self.path) if self.path else None


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
        lines = [_describe_failure(name, error) for name, error in self.failed.items()]
        more = len(lines) - _SHOWN_FAILURES
        return [*lines[:_SHOWN_FAILURES], *([f"and {more} more"] if more > 0 else [])]


class ControlError(ClawbloxError):
    """An orchestrator refused a request of another process, or went away meanwhile.

    Args:
        message: What failed; the orchestrator's own words when it answered.
        subject: What the error in the orchestrator is about, when it names that.
        path: The control socket.
        error_type: Class of the error in the orchestrator; None when it did not answer.
        error_details: The lines that follow that headline.
        hint: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        subject: str | None = None,
        path: Path | None = None,
        error_type: str | None = None,
        error_details: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self._subject = subject
        self.path = path
        self.error_type = error_type
        self.error_details = tuple(error_details)

    @property
    def subject(self) -> str | None:
        """What the error in the orchestrator is about."""
        return self._subject

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

    @property
    def subject(self) -> str | None:
        """The archive, or what is in its way."""
        return str(self.path) if self.path else None

    def details(self) -> list[str]:
        """Name the member."""
        # A stranger chose the name: it must not reach a terminal as it is.
        entry = None if self.entry is None else _shorten(ascii(self.entry), _ENTRY_CHARS)
        return [] if entry is None else [f"entry: {entry}"]


class CheckpointSecretError(CheckpointError):
    """An archive would have carried a secret, or a file that cannot be searched for one.

    Nothing was written. The error does not contain the secret itself.

    Args:
        message: What was refused.
        findings: Each place, with its rule, fingerprint and a redacted preview.
        **fields: The fields of :class:`CheckpointError`.
    """

    def __init__(self, message: str, *, findings: Sequence[Finding] = (), **fields: object) -> None:
        super().__init__(message, **fields)  # type: ignore[arg-type]
        self.findings = tuple(findings)

    def details(self) -> list[str]:
        """Add a line for each finding to the fields of every checkpoint error."""
        shown = [str(finding) for finding in self.findings[:_SHOWN_FINDINGS]]
        rest = len(self.findings) - len(shown)
        return [*super().details(), *shown, *([f"and {rest} more"] if rest else [])]


class CheckpointFormatError(CheckpointError, ValueError):
    """A file is not an archive that clawblox wrote; none of it was kept."""


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

    @property
    def subject(self) -> str | None:
        """The instance."""
        return self.instance

    def locate(self, **fields: object) -> None:
        """Fill in the fields that are not known yet; called where the instance is known."""
        for name, value in fields.items():
            if not getattr(self, name):
                setattr(self, name, value)

    def details(self) -> list[str]:
        """Return the log's last lines, then the table of every other field that is known."""
        facts = {
            **self.own_facts(),
            "world directory": self.world_dir,
            "command_file": self.command_file,
            "log_file": self.log_file,
            "url": self.url,
            "port": self.port if self.url is None else None,
            "phase": self.phase,
            "elapsed": None if self.elapsed_s is None else f"{self.elapsed_s:.2f} s",
            "exit": self.exit,
        }
        return [
            *(["last log lines:"] if self.log_lines else []),
            *(f"  | {line}" for line in self.log_lines),
            *(f"{name}: {value}" for name, value in facts.items() if value is not None),
        ]

    def own_facts(self) -> dict[str, object]:
        """Return the fields that only this kind of error has, by their names in the text."""
        return {}


class WorldStartError(WorldError):
    """The instance did not become ready; nothing of it is left."""


class WorldCommandError(WorldStartError):
    """The world's command cannot be executed: not found, not executable, bad format."""


class PortInUseError(WorldStartError):
    """The requested port belongs to another process."""


class WorldExitedBeforeReady(WorldStartError):  # noqa: N818 - says the condition
    """The world's process ended before the world was ready."""


class SnapshotRefusedError(WorldExitedBeforeReady):
    """The world's process ended while it was restoring a snapshot."""


class WorldReadyTimeout(WorldStartError, TimeoutError):  # noqa: N818 - says the condition
    """The world did not become ready in time."""


class WorldIdentityError(WorldStartError):
    """Another process answers on the port of this instance."""


class WorldExitedError(WorldError):
    """The instance has ended; no call to it can succeed."""


class WorldCallError(WorldError):
    """The instance gave no usable answer to a call.

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

    def own_facts(self) -> dict[str, object]:
        """Return the status and the start of the body."""
        body = _shorten(repr(self.body_start), _VALUE_CHARS) if self.body_start else None
        return {"status": self.status, "body": body}


class WorldSessionError(WorldCallError):
    """The world answered with another session than the recorded one."""


class SnapshotError(WorldError):
    """A snapshot could not be taken; it left no file and no manifest entry.

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

    def own_facts(self) -> dict[str, object]:
        """Return the status and the bytes received."""
        return {"status": self.status, "bytes received": self.bytes}


class WorldStopError(WorldError):
    """A marked process survived every rung of the stop ladder."""


def _describe_failure(name: str, error: Exception) -> str:
    line = (str(error).splitlines() or [""])[0].removeprefix(f"{name}: ")
    return f"{name}: {type(error).__name__}: {line}"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
