"""Experiments as text: the live table and summary of a single experiment, or a table of several."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.text import Text

from clawblox.columns import Column, format_lines
from clawblox.experiment.reading.overview import ExperimentOverview
from clawblox.experiment.schedule.ports import AgentActivity
from clawblox.experiment.tables.status import RUNNING, ChainStatus, ExperimentStatus
from clawblox.experiment.tables.text_tables import KEPT, KEPT_NOTE
from clawblox.printable import printable, printable_name
from clawblox.system.clock import parse_utc
from clawblox.views.board import (
    STYLES,
    BoardFrame,
    draw_events,
    draw_lines,
    draw_pane,
    draw_title,
    find_place,
    format_rows,
    join_parts,
    share_lines,
    window,
)
from clawblox.views.formatting import (
    count_words,
    format_age,
    format_cost,
    format_count,
    format_rough_seconds,
    shorten_path,
    suggest,
)
from clawblox.views.steering import UNSTEERED, Steering

MAX_COLUMNS: Final = 100
_COUNTS: Final = ("failed", "blocked", "paused", "running", "waiting")
_MAX_REASONS: Final = 5
_REQUEST: Final = "request"
"""Cause of a pause that a person requested."""
_NODE: Final = "node"
"""Cause of a wait for a node, or for the end of a host."""
_MIN_LAST: Final = len("limit until 21:40")
"""Width below which the latest action is left out rather than cut."""
_OLD_MIRROR_S: Final = 5.0
"""Age in seconds from which the age of a mirror is shown; usually it is a second."""
_SCORE: Final = "SCORE"
_DIGITS: Final = re.compile(r"(\d+)")


def render_experiment(status: ExperimentStatus, frame: BoardFrame) -> list[str]:
    """Return the lines of the table of an experiment, coloured unless ``NO_COLOR`` is set.

    Args:
        status: The status of the experiment.
        frame: The parts around the rows. No line is longer than 100 columns.
    """
    width, lines = min(frame.columns, MAX_COLUMNS), frame.lines
    pane = draw_pane(frame.pane, lines)
    events, room = share_lines(frame.event_lines, len(status.chains), lines - len(pane))
    table = _table(status, width, room, frame.steering)
    parts = [*table, Text(""), *draw_events(events), *pane]
    if frame.notice:
        parts.append(join_parts(Text(printable(frame.notice), style="dim")))
    return draw_lines(parts, width, lines)


def describe_status(status: ExperimentStatus, columns: int = MAX_COLUMNS) -> list[str]:
    """Return the status of an experiment as plain lines, with all chains that have started.

    Below the table are the reasons of failures and pauses that do not fit into its columns.

    Args:
        status: The status.
        columns: Maximum length of a line of the table.
    """
    lines = list(_table(status, min(columns, MAX_COLUMNS), None))
    for line in lines:
        line.truncate(columns, overflow="ellipsis")
    table = [line.plain.rstrip() for line in lines]
    needy = [
        chain
        for chain in status.chains
        if chain.state in ("failed", "paused") or _waits_for_reason(chain)
    ]
    unseen = [
        chain
        for chain in sorted(needy, key=_rank)
        if not any(printable(describe_last(chain)) in line for line in table)
    ]
    below = [*_describe_reasons(unseen), *_suggest_failed_score(status)]
    return [*table, *([""] if below else []), *below]


def summarise_experiment(status: ExperimentStatus) -> list[str]:
    """Return how an experiment ended, why chains failed, and the commands for the next steps."""
    failed = [chain for chain in status.chains if chain.state == "failed"]
    money = describe_money(status)
    lines = [describe_counts(status).plain + (f"; {money}." if money else ".")]
    lines += _describe_reasons(failed)
    if resume := suggest_resume(status):
        lines.append(f"resume:   {resume}")
    lines += _suggest_failed_score(status)
    lines.append(f"results:  {suggest('experiment results', status.dir)}")
    return list(map(printable, lines))


def suggest_resume(status: ExperimentStatus) -> str:
    """Return the command that continues an experiment; empty if all work is done."""
    if status.counts.get("committed", 0) >= status.generations:
        return ""
    words = ["--retry-failed"] if status.counts.get("failed") else []
    return suggest("experiment resume", status.dir, *words)


def _suggest_failed_score(status: ExperimentStatus) -> list[str]:
    """Return the command that shows why the first score failed, if any score failed."""
    show = [suggest("experiment show", status.dir, place) for place in status.failed_scores]
    return [f"scores:   {command}" for command in show[:1]]


def describe_waits(status: ExperimentStatus) -> list[str]:
    """Return why chains wait for something other than a resume, a line for each of the first."""
    return _describe_reasons([c for c in status.chains if _waits_for_reason(c)], between=": ")


def _waits_for_reason(chain: ChainStatus) -> bool:
    """Return whether a chain waits for something other than a resume by a person."""
    return chain.state in ("paused", "waiting") and chain.cause not in ("", _REQUEST)


def _describe_reasons(chains: Sequence[ChainStatus], between: str = "  ") -> list[str]:
    """Return why chains have failed or are paused, a line for each of the first."""
    shown, hidden = chains[:_MAX_REASONS], chains[_MAX_REASONS:]
    lines = [printable(f"{chain.name}{between}{describe_last(chain)}") for chain in shown]
    return [*lines, *_describe_hidden(hidden)]


# -- the header ---------------------------------------------------------------------------------


def _table(
    status: ExperimentStatus, columns: int, room: int | None, steering: Steering = UNSTEERED
) -> Iterator[Text]:
    title = " · ".join((status.name, shorten_path(status.dir)))
    right = " · ".join(filter(None, (describe_money(status), describe_time(status))))
    yield draw_title(printable(title), right, columns)
    yield join_parts(describe_counts(status))
    yield Text("")
    chains = [chain for chain in status.chains if steering.shows(chain.name)]
    shown, hidden = _select(chains, room, steering.selected)
    if shown:
        styles = [STYLES.get(chain.state, "") for chain in shown]
        place = find_place([chain.name for chain in shown], steering.selected)
        rows = list(format_rows(chain_columns(shown), columns, styles, place))
        yield from rows
        if _SCORE in rows[0].plain and any(_first_score(c).endswith(KEPT) for c in shown):
            yield join_parts(Text(KEPT_NOTE, style="dim"))
    for line in _describe_hidden(hidden):
        yield join_parts(Text(printable(line), style="dim"))


def describe_money(status: ExperimentStatus) -> str:
    """Return the cost of an experiment and its limit."""
    spent = "cost unknown" if status.spent_usd is None else format_cost(status.spent_usd)
    about = "about " if status.is_estimated and status.spent_usd is not None else ""
    if status.limit_usd is not None:
        return f"{about}{spent} of ${status.limit_usd:g}"
    return f"{about}{spent}" if status.spent_usd else ""


def describe_time(status: ExperimentStatus) -> str:
    """Return how long an experiment has run, and how long it will at least take."""
    gone = f"{format_rough_seconds(status.elapsed_s)} gone" if status.elapsed_s else ""
    rest = f"about {format_rough_seconds(status.forecast_s)} to go" if status.forecast_s else ""
    times = ", ".join(filter(None, (gone, rest)))
    place = "not running" if status.host is None else describe_driver(status.host)
    return times if status.pid is not None else " · ".join(filter(None, (place, times)))


def describe_driver(host: str) -> str:
    """Return words about the machine of an experiment's driver."""
    return f"driver on {printable_name(host)}"


def describe_counts(status: ExperimentStatus) -> Text:
    """Return the number of complete generations, and the states of the others."""
    committed = f"{status.counts.get('committed', 0)} of {status.generations} committed"
    others = [
        Text(f"{status.counts[name]} {name}", style=STYLES.get(name, ""))
        for name in _COUNTS
        if status.counts.get(name)
    ]
    if status.failed_scores:
        text = f"{count_words(len(status.failed_scores), 'score')} failed"
        others.append(Text(text, style=STYLES["failed"]))
    if status.lost:
        nodes = printable(", ".join(status.lost))
        text = f"{sum(status.lost.values())} lost with {nodes}"
        others.append(Text(text, style=STYLES["interrupted"]))
    return Text(" · ").join([Text(committed), *others])


# -- the rows -----------------------------------------------------------------------------------


def chain_rows(status: ExperimentStatus) -> list[str]:
    """Return the names of the chains that have a row, in the order of the table."""
    return [chain.name for chain in _select(status.chains, None)[0]]


def _select(
    chains: Iterable[ChainStatus], room: int | None, selected: str = ""
) -> tuple[list[ChainStatus], list[ChainStatus]]:
    """Return the chains to show, and the others.

    Chains that wait for the start of a generation or for a node are only counted.

    Args:
        chains: The chains.
        room: Maximum number of lines; None for no limit.
        selected: Name of a chain that is always shown.
    """
    ranked = sorted(chains, key=_rank)
    shown = [
        chain
        for chain in ranked
        if chain.state != "waiting" or (chain.attempts and chain.cause != _NODE)
    ]
    if room is not None and len(shown) + (len(shown) < len(ranked)) > room:
        place = find_place([chain.name for chain in shown], selected)
        size = max(0, room - 1)
        shown = shown[:size] if place is None else list(window(shown, place, size))
    return shown, [chain for chain in ranked if chain not in shown]


def _rank(chain: ChainStatus) -> tuple[int, int, list[tuple[int, str]]]:
    """Return the sort key of a chain: chains that need a person come first, then by generation."""
    states = ("failed", "paused", "running", "waiting", "done")
    state = "running" if chain.state in RUNNING else chain.state
    split = filter(None, _DIGITS.split(chain.name))
    parts = [(int(part), "") if part.isdecimal() else (0, part) for part in split]
    return states.index(state), chain.generation, parts


def _describe_hidden(chains: Sequence[ChainStatus]) -> list[str]:
    """Return a line with the number of the chains that are left out; none without chains."""
    if not chains:
        return []
    counts = Counter(map(_describe_wait, chains)).most_common()
    parts = [phrase if len(counts) == 1 else f"{count} {phrase}" for phrase, count in counts]
    return [f"… and {len(chains)} more: {', '.join(parts)}"]


def _describe_wait(chain: ChainStatus) -> str:
    if chain.state == "waiting" and chain.cause == _NODE:
        return f"waiting {chain.reason}"
    if chain.state != "waiting" or chain.attempts or not chain.reason:
        return chain.state
    return f"waiting, {describe_last(chain)}" if chain.cause else f"waiting {chain.reason}"


def chain_columns(chains: Sequence[ChainStatus]) -> list[Column]:
    """Return the columns that a table of chains may have, in the order of the table."""

    def number(heading: str, rank: int, cells: Iterable[str]) -> Column:
        return Column(heading, list(cells), rank, is_number=True)

    def text(heading: str, rank: int, cells: Iterable[str], shortest: int | None = None) -> Column:
        return Column(heading, list(map(printable, cells)), rank, shortest=shortest)

    return [
        Column("CHAIN", [chain.name for chain in chains], 0, shortest=12, cut="middle"),
        number("GEN", 0, (f"{chain.generation}/{chain.generations}" for chain in chains)),
        text("STATE", 0, (chain.state for chain in chains)),
        Column("NODE", list(map(describe_node, chains)), 3, shortest=9, cut="middle"),
        number("ACTIVE", 1, map(_describe_active, chains)),
        number("WORLD", 7, (_format_world_time(chain.world_time) for chain in chains)),
        text("AGENTS", 2, (" ".join(map(_mark, chain.agents)) for chain in chains), shortest=9),
        number("OUTPUT", 3, map(_describe_output, chains)),
        number("$", 6, map(_describe_cost, chains)),
        number("SAVED", 4, (_format_age(chain.last_checkpoint_age_s) for chain in chains)),
        number(_SCORE, 5, map(_first_score, chains)),
        text("LAST", 8, map(describe_last, chains), shortest=_MIN_LAST),
    ]


def describe_node(chain: ChainStatus) -> str:
    """Return the node of a chain, and the age of its mirror if it is old."""
    age_s = chain.mirror_age_s or 0.0
    age = f", {format_rough_seconds(age_s)} ago" if age_s >= _OLD_MIRROR_S else ""
    return chain.node + age


def _describe_active(chain: ChainStatus) -> str:
    duration = format_rough_seconds(chain.duration_s)
    return f"{format_rough_seconds(chain.active_s)} of {duration}"


def _format_world_time(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.0f}s"


def _format_age(seconds: float | None) -> str:
    return "" if seconds is None else format_rough_seconds(seconds)


def _mark(agent: AgentActivity) -> str:
    """Return an agent's name, marked if it has ended, waits for its provider, or is in a turn."""
    mark = "✓" if agent.is_over else "◌" if agent.provider_wait_s else "●"
    return f"{agent.name} {mark}" if agent.is_over or agent.is_working else agent.name


def _describe_output(chain: ChainStatus) -> str:
    return "" if chain.usage is None else format_count(chain.usage.output_tokens)


def _describe_cost(chain: ChainStatus) -> str:
    is_part = chain.usage is not None and chain.usage.missing_costs > 0
    about = "~" if chain.is_estimated else "≥" if is_part else ""
    return f"{about}{chain.cost_usd:.2f}" if chain.cost_usd else ""


def _first_score(chain: ChainStatus) -> str:
    for name, score in chain.scores.items():
        return f"{score:.4g}{KEPT if name in chain.kept_scores else ''}"
    return ""


def describe_last(chain: ChainStatus) -> str:
    """Return why a chain waits, is paused or has failed, or else its latest action."""
    if chain.until is not None and (until := parse_utc(chain.until)) is not None:
        return f"{chain.cause} until {until.astimezone():%H:%M}"
    if chain.state == "waiting" and chain.cause == _NODE:
        return f"waits {chain.reason}"
    if chain.cause:
        tries = f" ({count_words(chain.attempts, 'attempt')})" if chain.state == "failed" else ""
        return f"{chain.cause}: {chain.reason}{tries}"
    waits = [agent.provider_wait_s for agent in chain.agents if not agent.is_over]
    if waits and min(waits) > 0:
        return "waits for model"
    return chain.last or chain.reason


# -- several experiments ------------------------------------------------------------------------


def describe_experiments(experiments: Sequence[ExperimentOverview], width: int | None) -> list[str]:
    """Return a table of experiments in order, followed by the errors of unreadable experiments.

    Args:
        experiments: The experiments.
        width: Maximum width of the table, in characters; None for no limit.
    """
    shown = [one for one in experiments if not one.error]
    progress = [f"{one.committed} of {one.generations}" for one in shown]
    changed = [f"{format_age(one.changed_at)} ago" if one.changed_at else "" for one in shown]
    columns = [
        Column("EXPERIMENT", [one.name for one in shown], 2, shortest=12, cut="middle"),
        Column("DIR", [shorten_path(one.directory) for one in shown], 0, shortest=16, cut="middle"),
        Column("STATUS", list(map(_describe_state, shown)), 0),
        Column("CHAINS", [str(one.chains) for one in shown], 4, is_number=True),
        Column("COMMITTED", progress, 1, is_number=True),
        Column("SPENT", list(map(_describe_spending, shown)), 3, is_number=True),
        Column("CHANGED", changed, 1, is_number=True),
    ]
    table = format_lines(columns, width) if shown else []
    broken = [one for one in experiments if one.error]
    lines = [printable_name(f"{shorten_path(one.directory)}: {one.error}") for one in broken]
    return [*table, *([""] if table and lines else []), *lines]


def _describe_state(experiment: ExperimentOverview) -> str:
    is_both = experiment.failed and experiment.state != "failed"
    state = f"{experiment.state}, {experiment.failed} failed" if is_both else experiment.state
    state = f"smoke run: {state}" if experiment.is_smoke else state
    return state if experiment.host is None else f"{state}, {describe_driver(experiment.host)}"


def _describe_spending(experiment: ExperimentOverview) -> str:
    if experiment.spent_usd is None:
        return "unknown"
    about = "~" if experiment.is_estimated else ""
    return f"{about}{format_cost(experiment.spent_usd)}"
