"""Values as text for people: durations, sizes, exits, paths, tables."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from clawblox.columns import Column, format_lines
from clawblox.foreign_values import clean_value
from clawblox.printable import printable, quote_words
from clawblox.results import Labels, ProcessExit, describe_end, format_label
from clawblox.system.amounts import scale
from clawblox.system.clock import utc_now

_STEPS = (1, 2, 5, 10, 20)
_LEAST_STEP, _MOST_STEP = 1e-9, 1e12
"""Limits of the distance between ticks; realistic times and scores stay within them."""
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def format_json(value: object) -> str:
    """Return a value as the indented JSON that ``--json`` prints; paths become text.

    Numbers that JSON cannot represent, which a world may have written, become null.
    """
    try:
        return json.dumps(value, indent=2, default=_plain, allow_nan=False)
    except ValueError:
        return json.dumps(clean_value(value), indent=2)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def format_seconds(seconds: float | None) -> str:
    """Return a duration as ``0.4s``, ``42s``, ``3m12s``, ``2h05m`` or ``3d04h``.

    Args:
        seconds: The duration; None gives an empty text.
    """
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for unit, name, part, part_name in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "m"),
        (_MINUTE_S, "m", 1, "s"),
    ):
        if whole >= unit:
            return f"{whole // unit}{name}{whole % unit // part:02}{part_name}"
    return f"{whole}s"


def format_node(node: str, differs: str) -> str:
    """Return the node of an attempt, and how it differs from the previous node; may be empty.

    Args:
        node: The node; empty for this machine.
        differs: How the machine differs from the previous one; empty if it does not.
    """
    return ", on another ".join(filter(None, (node, differs)))


def format_rough_seconds(seconds: float) -> str:
    """Return a duration as ``42s``, ``12m``, ``2h05m`` or ``3d``: rounded down, zeros left out."""
    unit = _MINUTE_S if seconds >= _MINUTE_S else 1
    return re.sub(r"(?<=[dhm])00[hms]$|\.0(?=s)", "", format_seconds(float(seconds // unit * unit)))


def count_words(number: int, noun: str) -> str:
    """Return ``1 save``, ``2 saves``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_age(at: str | None) -> str:
    """Return the time since a UTC time, as a duration; ``?`` if the time is malformed.

    Args:
        at: The time, as in manifests and records; None gives an empty text.
    """
    if at is None:
        return ""
    try:
        age = utc_now() - datetime.fromisoformat(at)
    except (TypeError, ValueError):  # written by a world or another program
        return "?"
    return format_seconds(float(max(0, int(age.total_seconds())))).replace(".0s", "s")


def format_count(number: int) -> str:
    """Return a large number as ``950``, ``9.5k``, ``44k`` or ``1.2M``; 0 gives an empty text."""
    return scale(number, ("", "k", "M", "G"), "") if number else ""


def format_cost(usd: float | None) -> str:
    """Return a cost as ``$0.42`` or ``$0.0042``; None gives an empty text."""
    if usd is None:
        return ""
    return f"${usd:.2f}" if usd >= 0.01 or not usd else f"${usd:.2g}"


def round_ticks(begin: float, end: float, most: int) -> list[tuple[float, str]]:
    """Return round positions on an axis, evenly spaced, each with its text.

    Args:
        begin: Start of the axis.
        end: End of the axis.
        most: Maximum number of positions, at least 2.
    """
    wanted = (end - begin) / (most - 1)
    if not _LEAST_STEP < wanted < _MOST_STEP:
        return [(begin, f"{begin:g}")]
    power = 10.0 ** math.floor(math.log10(wanted))
    step = next(power * unit for unit in _STEPS if power * unit >= wanted * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(begin / step), math.floor(end / step)
    ticks = [number * step for number in range(first, min(last, first + most - 1) + 1)]
    return [(tick, f"{tick:.{digits}f}") for tick in ticks]


def describe_life(state: str, exit_: ProcessExit | None, halt: str | None = None) -> str:
    """Return the state of an instance with its end: ``exited 1``, ``halted: no room``.

    Args:
        state: The state.
        exit_: The exit of its process; None if the process has not ended or the exit is unknown.
        halt: Reason of its halt; None if it did not halt, or to leave out the reason.
    """
    if state == "halted":
        return state if halt is None else printable(describe_end(exit_, halt))
    if exit_ is None:
        return state
    return f"{state} {exit_.signal or ('?' if exit_.status is None else exit_.status)}"


def suggest(command: str, run_dir: Path, *words: str) -> str:
    """Return a command line to paste, with a command and a directory, quoted for a shell.

    Args:
        command: The command, ``resume`` or ``experiment resume`` for example.
        run_dir: The directory of a run or an experiment.
        words: Further arguments.
    """
    return quote_words(("clawblox", *command.split(), path_word(run_dir), *words))


def path_word(path: Path) -> str:
    """Return a path as an argument of a command, relative if possible and never like an option."""
    text = shorten_path(path)
    return f"./{text}" if text.startswith("-") else text


def shorten_path(path: Path) -> str:
    """Return a path as text, relative to the current directory if inside."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def format_labels(labels: Labels) -> str:
    """Return labels in the form of the command line: ``model=fable-5 seed=3``."""
    return " ".join(f"{name}={format_label(value)}" for name, value in labels.items())


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows in aligned columns below their headings; empty columns are left out."""
    texts = zip(headings, *rows, strict=True)
    columns = [Column(heading, cells, rank=1) for heading, *cells in texts]
    return "\n".join(format_lines(columns, None))


def format_facts(facts: Mapping[str, str]) -> str:
    """Return named facts, a line for each; empty facts are left out."""
    shown = {name: fact for name, fact in facts.items() if fact}
    width = max(map(len, shown))
    return "\n".join(f"{name:{width}}  {fact}" for name, fact in shown.items())
