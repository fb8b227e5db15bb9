"""The base class of all errors, and errors that concern no archive, instance or agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from clawblox.printable import join_choices, printable_lines

if TYPE_CHECKING:
    from pathlib import Path

    from clawblox.results import PlanChange


VALUE_CHARS = 200
"""Maximum length of a value in the text of an error."""

_SHOWN_FAILURES = 10


def shorten(text: str, limit: int) -> str:
    """Return ``text``, cut to ``limit`` characters."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


class ClawbloxError(Exception):
    """Base class of all exceptions that clawblox raises intentionally.

    Args:
        message: Description of the problem, in one sentence.
        hint: How to solve the problem.

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
        """The subject of the error, such as a file or an argument; None if the message names it."""
        return None

    @property
    def headline(self) -> str:
        """The first line of the text: subject and message."""
        return self.message if self.subject is None else f"{self.subject}: {self.message}"

    def details(self) -> list[str]:
        """Return the lines after the headline: fields of the error, one per line."""
        return []

    def __str__(self) -> str:
        lines = [self.headline, *(f"  {line}" for line in self.details())]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        # Output of programs and worlds in the text must not look like one of clawblox's own lines.
        return "\n".join(printable_lines(line).replace("\n", "\n      ") for line in lines)


class ConfigError(ClawbloxError, ValueError):
    """A ``world.toml`` or an argument is invalid.

    Args:
        message: The fault, and a valid value; shown after the key.
        path: The file, when the value came from one.
        key: Dotted key, for example ``run.command``, or name of the argument.
        value: The invalid value.
        line: Line in ``path``, counted from 1.
        hint: How to solve the problem.
        others: Further faults.
    """

    exit_code = 2
    show: Callable[[object], str] = staticmethod(repr)
    """Returns the value as text, in Python's syntax or in that of the file."""
    expected: str | None = None
    """The valid values, if the message names only them and the value; else None."""

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        key: str | None = None,
        value: object = None,
        line: int | None = None,
        hint: str | None = None,
        others: Sequence[ConfigError] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.key = key
        self.value = value
        self.line = line
        self.others = tuple(others)

    def but(self, **changes: Any) -> Self:
        """Return a copy of the error with some arguments replaced."""
        import copy  # few errors are changed

        error = copy.copy(self)
        vars(error).update(changes)
        return error

    @property
    def subject(self) -> str | None:
        """The key, or the place in the file if there is no key."""
        return self.key or self._place

    def details(self) -> list[str]:
        """Return file and line, the value unless the headline contains it, and other faults."""
        value = self.show(self.value)
        is_shown = self.value is None or self.message.endswith(f", not {value}")
        return [
            *([f"file: {self._place}"] if self.key and self._place else []),
            *([] if is_shown else [f"value: {shorten(value, VALUE_CHARS)}"]),
            *(f"also: {self._describe(fault)}" for fault in self.others),
        ]

    def _describe(self, fault: ConfigError) -> str:
        """Return a further fault as one line; the file is named only if it differs."""
        is_here = fault.path in (None, self.path)
        before = f"line {fault.line}: " if is_here and fault.line else ""
        after = "" if is_here or fault.key is None else f" ({fault._place})"
        return f"{before}{fault.headline}{after}" + (f" ({fault.hint})" if fault.hint else "")

    @property
    def _place(self) -> str | None:
        if self.path is None:
            return None
        return f"{self.path}:{self.line}" if self.line else str(self.path)


class UsageError(ClawbloxError, RuntimeError):
    """A call that is not possible now: not started, already closed, ambiguous instance."""

    exit_code = 2


class FetchError(ClawbloxError, OSError):
    """A world folder could not be downloaded.

    Args:
        message: Description of the failure.
        url: The requested address.
        status: HTTP status of the answer, if there was one.
        hint: How to solve the problem.
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
        """Return the status."""
        return [f"status: {self.status}"] if self.status else []


class ManifestError(ClawbloxError):
    """A manifest, or the records of a run directory, cannot be read or written.

    Args:
        message: Description of the failure.
        path: The file.
        hint: How to solve the problem.
    """

    def __init__(self, message: str, *, path: Path | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path

    @property
    def subject(self) -> str | None:
        """The file."""
        return str(self.path) if self.path else None


class RecordingError(ClawbloxError, ValueError):
    """A recording cannot be read.

    Args:
        message: The fault.
        path: The file.
        offset: Position in the file, in bytes from the start.
        hint: How to solve the problem.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.offset = offset

    @property
    def subject(self) -> str | None:
        """The file."""
        return str(self.path) if self.path else None

    def details(self) -> list[str]:
        """Return the offset."""
        return [] if self.offset is None else [f"offset: {self.offset}"]


class RunLockedError(ClawbloxError):
    """Another orchestrator owns this instance of the run directory.

    Args:
        message: The instance, and its owner.
        path: The lock file.
        pid: Process of the owner, if known.
        hint: How to solve the problem.
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
        """Return the lock file and its owner."""
        return [
            *([f"lock: {self.path}"] if self.path else []),
            *([f"pid: {self.pid}"] if self.pid else []),
        ]


class BatchError(ClawbloxError):
    """An operation on many instances failed for some.

    Args:
        message: The failed operation, and the number of failed instances.
        failed: The errors by instance name, the first cause first.
        hint: How to solve the problem.
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
        """Return the error for a batch of ``total`` instances, caused by its first failure."""
        error = cls(f"{len(failed)} of {total} instances failed", failed=failed)
        error.__cause__ = next(iter(failed.values()))
        return error

    def details(self) -> list[str]:
        """Return each instance with the first line of its error, then lines of the first log."""
        lines = [_describe_failure(name, error) for name, error in self.failed.items()]
        more = len(lines) - _SHOWN_FAILURES
        return [
            *lines[:_SHOWN_FAILURES],
            *([f"and {more} more"] if more > 0 else []),
            *next(filter(None, map(_quote_log, self.failed.items())), ()),
        ]


class ControlError(ClawbloxError):
    """An orchestrator refused a request of another process, or ended during the request.

    Args:
        message: Description of the failure; the orchestrator's message if it answered.
        subject: Subject of the error in the orchestrator, if it has one.
        path: The control socket.
        error_type: Class of the error in the orchestrator; None if it did not answer.
        error_details: The lines after the headline of that error.
        hint: How to solve the problem.
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
        """Subject of the error in the orchestrator."""
        return self._subject

    def details(self) -> list[str]:
        """Return the error in the orchestrator with its details, and the socket."""
        return [
            *([f"error: {self.error_type}"] if self.error_type else []),
            *self.error_details,
            *([f"socket: {self.path}"] if self.path else []),
        ]


class OrchestratorSuspendedError(ControlError):
    """SIGSTOP or Ctrl-Z stopped an orchestrator, so it cannot answer; fields as in ControlError."""


def _quote_log(failure: tuple[str, Exception]) -> list[str]:
    name, error = failure
    quoted: Sequence[str] = getattr(error, "log_lines", ())
    return [f"last log lines of {name}:", *(f"  | {line}" for line in quoted)] if quoted else []


def _describe_failure(name: str, error: Exception) -> str:
    line = (str(error).splitlines() or [""])[0].removeprefix(f"{name}: ")
    return f"{name}: {type(error).__name__}: {line}"


class PlanChangedError(ClawbloxError):
    """A plan differs from the plan with which its experiment was started.

    Args:
        message: The difference, and the number of changed fields.
        changes: The changed fields.
        hint: How to solve the problem.
    """

    exit_code = 2

    def __init__(
        self, message: str, *, changes: Sequence[PlanChange] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.changes = tuple(changes)

    def details(self) -> list[str]:
        """Return each field with its old and its new value, and the ways to continue."""
        return [
            *(f"{change.field}: {_describe(change)}" for change in self.changes),
            *_list_ways(self.changes),
        ]


class JournalLostError(ClawbloxError, OSError):
    """Another program has changed the journal of an experiment while the experiment ran.

    Args:
        message: The change.
        journal: The journal.
        kept: The file with the history of the session; None if it could not be written.
        hint: How to continue.
    """

    def __init__(
        self,
        message: str,
        *,
        journal: Path | None = None,
        kept: Path | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.journal = journal
        self.kept = kept

    def details(self) -> list[str]:
        """Return the journal, and the file with the history of the session."""
        return [
            *([f"journal: {self.journal}"] if self.journal else []),
            *([f"kept: {self.kept}"] if self.kept else []),
        ]


def _describe(change: PlanChange) -> str:
    old, new = (_show(value) for value in (change.old, change.new))
    return f"was {old}, is {new}"


def _show(value: object) -> str:
    return "not set" if value is None else shorten(repr(value), VALUE_CHARS)


def _list_ways(changes: Sequence[PlanChange]) -> list[str]:
    amended = dict.fromkeys(c.accept_as for c in changes if c.kind == "amendment")
    never = [change.field for change in changes if change.kind == "never"]
    accept = " ".join(f"--accept {name}" for name in amended)
    return [
        *([f"accept for later generations: {accept}"] if amended else []),
        *(
            [f"to change {join_choices(never)}: start another experiment (--name NEW), or fork"]
            if never
            else []
        ),
    ]
