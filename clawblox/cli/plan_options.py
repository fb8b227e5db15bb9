"""Fields of plans set on the command line: ``--set limits.worlds=8``, ``--score MODULE:FUNC``."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from clawblox.config.toml_text import read_toml_text
from clawblox.errors import ConfigError
from clawblox.experiment.plan import Plan
from clawblox.experiment.plan.plan_file import locate_fault
from clawblox.experiment.schedule.score_functions import load_function


def parse_settings(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, Any]:
    """Parse values given as ``PATH=VALUE``, by dotted path; a click callback."""
    for text in texts:
        if not text.partition("=")[1]:
            raise click.BadParameter(f"must be PATH=VALUE, not {text!r}", ctx, param)
    pairs = (text.split("=", 1) for text in texts)
    return {path.strip(): _parse_value(value.strip()) for path, value in pairs}


def _parse_value(text: str) -> Any:  # noqa: ANN401 - any value of TOML
    """Parse a TOML value; text that is not TOML is the value itself."""
    try:
        values = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return values["value"] if len(values) == 1 else text


def apply_score(plan: Plan, text: str | None) -> Plan:
    """Return a plan with the function of ``--score``, after importing it. Blocks.

    Args:
        plan: The plan.
        text: The value of the option; None leaves the plan unchanged.

    Raises:
        ConfigError: The function cannot be imported.
    """
    if text is None:
        return plan
    load_function(text, "--score")
    return plan.but(score=text)


def add_cluster(settings: Mapping[str, Any], address: str | None) -> Mapping[str, Any]:
    """Return settings with the value of ``--cluster`` added.

    Args:
        settings: The values of ``--set``, by dotted path.
        address: The value of the option: an address, or ``none`` or an empty text for this machine;
            None adds no value.
    """
    if address is None:
        return settings
    is_here = address in ("", "none")
    return {**settings, **({"cluster": False} if is_here else {"cluster.address": address})}


cluster_option = click.option(
    "--cluster",
    "address",
    metavar="ADDRESS",
    show_default="the plan's",
    help="Run the attempts on the nodes of this Ray cluster: auto, or host:port. The value is "
    "stored in the plan; none runs the attempts on this machine.",
)
score_option = click.option(
    "--score",
    metavar="MODULE:FUNC",
    show_default="the plan's",
    help="Score each generation at its end with this function, such as scores:cubes for cubes in "
    "scores.py, in the current directory. The value is stored in the plan.",
)
settings_option = click.option(
    "--set",
    "settings",
    metavar="PATH=VALUE",
    multiple=True,
    callback=parse_settings,
    help="Set a field of the plan, such as limits.worlds=8 or agents.*.model=MODEL; can be "
    "repeated.",
)


@contextlib.contextmanager
def naming_lines(plan_file: str | None, settings: Collection[str]) -> Iterator[None]:
    """Add the file and the line to errors that the block raises about the content of a plan."""
    try:
        yield
    except ConfigError as error:
        if plan_file is None or error.key in settings:
            raise
        path = Path(plan_file)
        raise locate_fault(error, read_toml_text(path), path) from error
