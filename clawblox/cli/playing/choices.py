"""What ``play`` and ``act`` have in common: the name of the agent, and the instance it joins."""

from __future__ import annotations

import getpass
from pathlib import Path

import click

from clawblox.cli.tables.formatting import shorten_path, suggest
from clawblox.errors import ClawbloxError, UsageError
from clawblox.rundir.presence import exited_error, look
from clawblox.rundir.records import InstanceRecord
from clawblox.rundir.status import is_ready, select_records

_FALLBACK_NAME = "player"


def login_name() -> str:
    """Return the user's login name, the agent's by default."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container without an entry for the user
        return _FALLBACK_NAME
    return name if name.isprintable() else _FALLBACK_NAME


def _check_name(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    if value is None:
        return login_name()
    if not value.strip() or not value.isprintable():
        raise click.BadParameter(f"must be a printable text, not {value!r}", ctx, param)
    return value


agent_option = click.option(
    "--as",
    "agent",
    metavar="NAME",
    callback=_check_name,
    show_default="your login name",
    help="Name of the agent.",
)


def choose_record(run_dir: Path, name: str | None) -> InstanceRecord:
    """Return the record of an instance that serves: the named one, or the only one. Blocks.

    Raises:
        UsageError: There is no instance of that name, or several serve and none is named.
        ClawbloxError: It does not serve, or none does.
    """
    if name is not None:
        (record,) = select_records(run_dir, [name])
        if not is_ready(record):
            raise exited_error(look(run_dir, record), record.log_start)
        return record
    ready = [record for record in select_records(run_dir, ()) if is_ready(record)]
    if not ready:
        raise ClawbloxError(
            f"Nothing in '{shorten_path(run_dir)}' is ready, so there is nothing to join",
            hint=f"{suggest('ps', run_dir)} shows what runs there",
        )
    if len(ready) > 1:
        names = ", ".join(record.name for record in ready)
        raise UsageError(
            f"Several instances in '{shorten_path(run_dir)}' are ready: {names}",
            hint=f"name one of them: {suggest('play', run_dir, ready[0].name)}",
        )
    return ready[0]
