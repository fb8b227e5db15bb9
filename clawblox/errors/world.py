"""Errors of one instance of a world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawblox.errors.general import VALUE_CHARS, ClawbloxError, shorten

if TYPE_CHECKING:
    from pathlib import Path

    from clawblox.results import ProcessExit


class WorldError(ClawbloxError):
    """An error of one instance of a world.

    Args:
        message: Description of the problem, in one sentence.
        instance: Name of the instance.
        world_dir: Directory with the ``world.toml``.
        command_file: Script that repeats the launch.
        log_file: Output of the world's processes.
        url: Address of the instance; None before it has one.
        port: Port of the instance; None before it has one.
        phase: The phase of the operation, for example ``probing``.
        elapsed_s: Seconds since the start of the operation.
        exit: Exit of the process; None if it has not ended.
        log_lines: The last lines of the log, with secrets masked.
        hint: How to solve the problem.
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
        exit: ProcessExit | None = None,  # noqa: A002 - the word of the domain
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
        """Set the fields that are still unset; called once the instance is known."""
        for name, value in fields.items():
            if not getattr(self, name):
                setattr(self, name, value)

    def details(self) -> list[str]:
        """Return the log's last lines, then all other known fields."""
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
        """Return the fields specific to this class, by their names in the text."""
        return {}


class WorldStartError(WorldError):
    """The instance did not become ready; all its processes have ended."""


class WorldCommandError(WorldStartError):
    """The world's command cannot be executed: not found, not executable, bad format."""


class PortInUseError(WorldStartError):
    """The requested port belongs to another process."""


class WorldExitedBeforeReadyError(WorldStartError):
    """The world's process ended before the world was ready."""


class SnapshotRefusedError(WorldExitedBeforeReadyError):
    """The world's process ended while it was restoring a snapshot."""


class WorldReadyTimeoutError(WorldStartError, TimeoutError):
    """The world did not become ready in time."""


class WorldIdentityError(WorldStartError):
    """Another process answers on the port of this instance."""


class WorldExitedError(WorldError):
    """The instance has ended, so calls to it fail."""


class WorldCallError(WorldError):
    """The instance gave no usable answer to a call.

    Args:
        message: Description of the problem.
        status: HTTP status of the answer, if there was one.
        body_start: The first characters of the body, with secrets masked.
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
        body = shorten(repr(self.body_start), VALUE_CHARS) if self.body_start else None
        return {"status": self.status, "body": body}


class ActionRefusedError(WorldCallError):
    """The world refused an agent's action, with a 4xx status.

    Args:
        message: The refused action, and the start of ``text``.
        text: The world's answer, at most 4000 characters.
        **fields: The fields of :class:`WorldCallError`.
    """

    def __init__(self, message: str, *, text: str = "", **fields: object) -> None:
        super().__init__(message, **fields)  # type: ignore[arg-type]
        self.text = text

    def own_facts(self) -> dict[str, object]:
        """Return the status, and the text unless the message contains it."""
        is_shown = not self.text or self.text in self.message
        text = None if is_shown else shorten(repr(self.text), VALUE_CHARS)
        return {**super().own_facts(), "text": text}


class WorldSessionError(WorldCallError):
    """The world answered with a session other than the recorded one."""


class SnapshotError(WorldError):
    """A snapshot could not be taken; it left neither a file nor a manifest entry.

    Args:
        message: Description of the problem.
        phase: ``connect``, ``headers``, ``body``, ``verify`` or ``publish``.
        bytes: Body bytes received so far.
        status: HTTP status of the answer, if there was one.
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
