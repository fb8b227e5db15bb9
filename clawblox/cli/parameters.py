"""Parameters that several commands share, such as run directories and ``--json``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click
import msgspec

from clawblox.cli.experiment_dirs import name_directories, refuse_experiment, require_experiment
from clawblox.cli.field_options import parse_labels, section_option
from clawblox.config.arguments import check_count, check_seconds, check_size
from clawblox.errors import ClawbloxError, ConfigError, UsageError
from clawblox.printable import is_printable
from clawblox.results import Labels
from clawblox.rundir.find_runs import find_runs_below
from clawblox.rundir.listed import is_run_dir
from clawblox.rundir.paths import records_journal
from clawblox.rundir.records import InstanceRecord, check_records
from clawblox.rundir.status import is_ready, select_records
from clawblox.system.clock import parse_since
from clawblox.system.locks import retry
from clawblox.system.port_leases import MAX_LEASES
from clawblox.views.formatting import format_json, shorten_path, suggest

_F = TypeVar("_F", bound=Callable[..., Any])
_Command = TypeVar("_Command", bound=click.Command)
_RECORDS_PATIENCE_S: Final = 3.0
"""Seconds to wait for lost records, which an orchestrator restores within a second."""


def examples(text: str) -> Callable[[_Command], _Command]:
    """Add an epilog of verbatim example lines and paragraphs to the help of a command."""

    def decorate(command: _Command) -> _Command:
        command.epilog = f"\b\nExamples:{text}"
        return command

    return decorate


class _CheckedType(click.types.UnprocessedParamType):
    """A click type whose values the library checks, with the library's error messages.

    Args:
        name: Name of the type; the help shows it in capitals as the placeholder of a value.
        base: The underlying click type.
        check: Returns a value, perhaps converted, or raises ConfigError.
    """

    def __init__(self, name: str, base: click.ParamType[Any], check: Callable[[Any], Any]) -> None:
        self.name = name
        self._base = base
        self._check = check

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - click's own
        """Return the checked value.

        Raises:
            click.BadParameter: The value has another type, or the check refuses it.
        """
        converted = self._base.convert(value, param, ctx)
        try:
            return self._check(converted)
        except ConfigError as error:
            self.fail(error.message, param, ctx)


def _check_path(text: str) -> str:
    if not text:  # as from an unset shell variable
        raise ConfigError("must be a path, not ''; '.' is the current directory")
    return text


def _parse_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"must be a regular expression, not {text!r}: {error}") from error


def _parse_since(text: str) -> str:
    try:
        return parse_since(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def count_type(at_least: int, at_most: int | None = None) -> _CheckedType:
    """Return a type for whole numbers within limits; None means no upper limit."""
    check = partial(check_count, key="", at_least=at_least, at_most=at_most)
    return _CheckedType("n", click.INT, check)


PATH: Final = _CheckedType("path", click.STRING, _check_path)
FILE: Final = _CheckedType("file", click.STRING, _check_path)
DIR: Final = _CheckedType("dir", click.STRING, _check_path)
PATTERN: Final = _CheckedType("regex", click.STRING, _parse_pattern)
SINCE: Final = _CheckedType("time", click.STRING, _parse_since)
SIZE: Final = _CheckedType("size", click.STRING, partial(check_size, key=""))
SECONDS: Final = _CheckedType(
    "seconds", click.FLOAT, partial(check_seconds, key="", may_be_zero=True)
)


def existing_path(text: str) -> Path:
    """Return a typed path.

    Raises:
        ClawbloxError: The path does not exist.
    """
    path = Path(text)
    if not path.exists():
        raise ClawbloxError(f"Path '{text}' does not exist")
    return path


def existing_agent_place(text: str) -> Path:
    """Return a typed directory, of an agent or of a run with one agent.

    Raises:
        ClawbloxError: It does not exist.
        UsageError: It is the directory of an experiment.
    """
    path = existing_path(text)
    refuse_experiment(path)
    return path


def existing_experiment(text: str) -> Path:
    """Return the typed directory of an experiment, absolute.

    Raises:
        ClawbloxError: It does not exist.
        UsageError: The directory contains no experiment.
    """
    directory = existing_path(text).absolute()
    require_experiment(directory)
    return directory


def existing_run_dir(text: str) -> Path:
    """Return a typed run directory.

    Raises:
        ClawbloxError: The directory does not exist, or contains no run.
        UsageError: It is the directory of an experiment.
        OSError: The records of its instances cannot be read.
    """
    path = Path(text)
    if not path.exists():
        raise ClawbloxError(f"Path '{text}' does not exist", hint=_name_runs_below(Path()))
    if not select_records(path, ()):
        refuse_experiment(path)
        if _wait_for_records(path):
            return path
        check_records(path)
        if is_run_dir(path):
            raise ClawbloxError(
                f"'{text}' has a manifest, but no records of its instances",
                hint=f"{suggest('ps', path)} shows what its manifest says",
            )
        raise ClawbloxError(f"Nothing has run in '{text}'", hint=_name_runs_below(path))
    return path


def _wait_for_records(run_dir: Path) -> bool:
    """Wait until the orchestrator of a directory has restored its lost records.

    Returns:
        Whether there are records now; False if no orchestrator is running.

    Raises:
        ClawbloxError: The records were not restored in time.
    """
    from clawblox.rundir.claims import describe_holder, find_owner  # records are rarely lost

    owner = find_owner(run_dir)
    if owner is None:
        return False
    if retry(lambda: select_records(run_dir, ()) or None, _RECORDS_PATIENCE_S) is None:
        raise ClawbloxError(
            f"The records of '{run_dir}' are gone, and an orchestrator runs there: "
            f"{describe_holder(owner)}",
            hint=f"{records_journal(run_dir)} must be a file that it can write; "
            f"to end it with all its instances: kill {owner}",
        )
    return True


def _name_runs_below(directory: Path) -> str:
    """Return a hint with the run directories that may be meant, latest first."""
    runs = find_runs_below(directory.absolute())
    if not runs:
        return "give the run directory; clawblox ps shows running instances"
    return f"give the run directory; there are: {name_directories(runs)}"


filter_option = section_option(
    "--filter",
    "labels",
    section="Instances",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parse_labels,
    help="Only instances with this label; can be repeated.",
)


class Selection(msgspec.Struct, frozen=True):
    """The instances that ``[RUN_DIR] [INSTANCE]... --filter`` select.

    Attributes:
        run_dir: The run directory, absolute.
        typed: The typed names.
        labels: Labels that the instances must have.
    """

    run_dir: Path
    typed: tuple[str, ...]
    labels: Labels

    @property
    def names(self) -> Sequence[str]:
        """Names of the instances; empty means all, including those about to start. Blocks.

        Raises:
            UsageError: There is no instance of one of the names, or none with the labels.
        """
        return [record.name for record in self.records] if self.labels else self.typed

    @property
    def records(self) -> Sequence[InstanceRecord]:
        """Records of the instances. Blocks.

        Raises:
            UsageError: There is no instance of one of the names, or none with the labels.
        """
        return select_records(self.run_dir, self.typed, self.labels)


run_dir_argument = click.argument("run_dir", type=PATH, default=".", metavar="[RUN_DIR]")


def run_dir_arguments(command: _F) -> _F:
    """Add ``[RUN_DIR] [INSTANCE]... --filter`` to a command, as its argument ``chosen``."""

    @wraps(command)
    def select(
        *args: Any, run_dir: str, names: tuple[str, ...], labels: Labels, **options: Any
    ) -> object:
        run = existing_run_dir(run_dir).absolute()
        return command(*args, chosen=Selection(run, names, labels), **options)

    names = click.argument("names", metavar="[INSTANCE]...", nargs=-1)
    return cast("_F", run_dir_argument(names(filter_option(select))))


def run_dir_option(
    text: str, name: str = "run_dir", *, default: str = "runs/<world>-<time>"
) -> Callable[[_F], _F]:
    """Return the option ``--run-dir`` for the directory of new instances."""
    return section_option(
        "--run-dir",
        name,
        section="Files and names",
        type=DIR,
        show_default=default,
        help=text,
    )


def recording_option(text: str) -> Callable[[_F], _F]:
    """Return the option ``--recording`` for the number of a recording of a run."""
    return click.option("--recording", "number", type=count_type(1), help=text)


directory_argument = click.argument("directory", type=PATH, metavar="DIR")

world_argument = click.argument("world", type=PATH, default=".", metavar="[WORLD]")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def show(value: object, text: str, *, as_json: bool) -> None:
    """Print a text, or with ``as_json`` the value that the text describes."""
    click.echo(format_json(value) if as_json else text)


count_option = section_option(
    "-n",
    "--count",
    section="Instances",
    type=count_type(1, MAX_LEASES),
    default=1,
    show_default=True,
    help=f"Number of instances to start, at most {MAX_LEASES}.",
)

CHANNEL_FLAG: Final = "--background-channel"
# The name differs from all likely typos, because click also suggests hidden options.
background_option = click.option(CHANNEL_FLAG, "starter_fd", type=int, hidden=True)
"""Hidden option of commands that can run their orchestrator in the background."""

_FALLBACK_NAME = "player"


def _login_name() -> str:
    """Return the user's login name, the default name of the agent."""
    import getpass  # few commands need it

    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # the container has no entry for the user
        return _FALLBACK_NAME
    return name if name.isprintable() else _FALLBACK_NAME


def _check_agent_name(name: str) -> str:
    if not name.strip() or not is_printable(name):
        raise ConfigError(f"must be a printable text, not {name!r}")
    return name


agent_option = click.option(
    "--as",
    "agent",
    type=_CheckedType("name", click.STRING, _check_agent_name),
    default=_login_name,
    show_default="your login name",
    help="Name of the agent.",
)


def choose_record(run_dir: Path, name: str | None) -> InstanceRecord:
    """Return the record of a ready instance: the named instance, or the only instance. Blocks.

    Raises:
        UsageError: There is no instance of that name, or several are ready and none is named.
        ClawbloxError: The named instance is not ready, or no instance is.
    """
    if name is not None:
        (record,) = select_records(run_dir, [name])
        if not is_ready(record):
            from clawblox.rundir.presence import exited_error, read_presence  # few commands need it

            raise exited_error(run_dir, read_presence(run_dir, record), record.log_start)
        return record
    ready = [record for record in select_records(run_dir, ()) if is_ready(record)]
    if not ready:
        raise ClawbloxError(
            f"Nothing in '{shorten_path(run_dir)}' is ready, so there is nothing to join",
            hint=f"{suggest('ps', run_dir)} shows the instances",
        )
    if len(ready) > 1:
        names = ", ".join(record.name for record in ready)
        raise UsageError(
            f"Several instances in '{shorten_path(run_dir)}' are ready: {names}",
            hint=f"name an instance: {suggest('play', run_dir, ready[0].name)}",
        )
    return ready[0]
