"""The page of a run: its state and the reasons, its cost, its origin, and commands to continue."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentStatus
from clawblox.agents.trajectory.records import read_records
from clawblox.agents.values import sum_usage
from clawblox.errors import ClawbloxError
from clawblox.results import describe_end
from clawblox.rundir.find_runs import shown_log
from clawblox.rundir.lineage import InstanceLineage
from clawblox.rundir.listed_saves import LineageSave
from clawblox.rundir.recordings import FoundRecording
from clawblox.rundir.status import OVER, InstanceStatus
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import parse_utc, utc_now
from clawblox.team.record import read_team
from clawblox.views.formatting import (
    count_words,
    format_cost,
    format_count,
    format_labels,
    suggest,
)
from clawblox.views.html import Child, Markup, element, join, link, text
from clawblox.web.files import opened_below, read_before
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pages.lineage import draw_picture
from clawblox.web.pieces import (
    Cell,
    Columns,
    clock,
    commands,
    comparison,
    cost,
    count,
    facts,
    lines,
    moment,
    section,
    state_mark,
)
from clawblox.web.run_history import Origins, RunHistory, RunSave, list_subjects, read_history
from clawblox.web.shared_address import share
from clawblox.web.site import RunSummary

_T = TypeVar("_T")
"""Type of the items of a table."""

_MAX_WHY: Final = 5
"""Maximum number of sentences of a kind about the reasons of a run's state."""
_MAX_ROWS: Final = 100
_MAX_DRAWN: Final = 60
"""Maximum number of instances in the picture of a lineage; larger pictures are unreadable."""
_MAX_CHARS: Final = 300
_USED_UP: Final = re.compile(r"budget of \S+ (.+?)s? used up")
"""Reason of a stop because a budget was used up, with the unit of the limit."""
_RAISES: Final = {"turn": "turns", "token": "tokens", "minute": "minutes", "USD": "usd"}
"""Suffixes of the options ``--max-…`` of ``clawblox run`` that raise a limit, by unit."""


def make_page(ask: Ask, ident: str) -> Page:
    """Return the page of a run."""
    run = ask.site.find_run(ident)
    history = read_history(run)
    subjects = [*list_subjects(ask, ask.site.runs())]
    parts = {
        "why": lines(_explain(ask, run, history)),
        "facts": _draw_facts(ask, run, history),
        "how": _section("To continue", lines(_warn(ask, run)), commands(_suggest(run, history))),
        "agents": _draw_agents(ask, run),
        "instances": _draw_instances(ask, run),
        "lineage": _draw_lineage(ask, run, history),
        "saves": _draw_saves(ask, run, history),
        "recordings": _draw_recordings(ask, run, history),
        "compare": _section("Compare", comparison(ask.links, subjects, (run.ident, ""))),
    }
    return Page(
        run.name,
        ask.crumbs(),
        [Part(name, body) for name, body in parts.items()],
        is_live=run.is_live,
        share=share(run),
    )


def _section(heading: str, *body: Child) -> Markup:
    return join((element("h2", heading), *body))


def _format_time(time: float | None) -> str:
    return "" if time is None else f" at {time:.1f} s"


# -- reasons ---------------------------------------------------------------------------------------


def _explain(ask: Ask, run: RunSummary, history: RunHistory) -> Iterator[Markup]:
    """Yield sentences about the reasons of the run's state, problems first."""
    statuses = run.run.instances
    up = {status.name for status in statuses if status.state not in OVER}
    bad = [status for status in statuses if status.has_died]
    back = [one for one in history.lineage.instances if one.name in up and one.restarts]
    over = [agent for agent in run.agents if agent.is_over]
    over.sort(key=lambda agent: agent.state not in ("failed", "interrupted"))
    left = [status for status in statuses if status.name in run.run.interrupted]
    yield from _first(bad, partial(_explain_death, ask, run), "died")
    yield from _first(back, _explain_return, "came back")
    erring = [status for status in statuses if status.script_errors is not None]
    yield from _first(erring, _explain_errors, "had script errors")
    yield from _first(over, _explain_agent, "have ended")
    yield from _first(left, _explain_resume, "would come back")
    counts = Counter(
        [("instance", one.state, _describe_end(one)) for one in statuses if not one.has_died]
        + [("agent", one.state, "") for one in run.agents if not one.is_over]
    )
    for (noun, state, end), number in counts.items():
        words = f": {count_words(number, noun)}{end and f', {end}'}"
        yield join((state_mark(state), words))
    if not statuses and not run.agents:
        yield element("span", "Nothing has run here.", class_="muted")
    if problem := "; ".join(history.lineage.problems)[:_MAX_CHARS]:
        yield element("span", f"Not all can be read: {problem}", class_="warning")


def _first(found: Sequence[_T], explain: Callable[[_T], Markup], rest: str) -> Iterator[Markup]:
    yield from map(explain, found[:_MAX_WHY])
    if len(found) > _MAX_WHY:
        yield element("span", f"{len(found) - _MAX_WHY} more {rest} as well", class_="muted")


def _describe_end(status: InstanceStatus) -> str:
    known = describe_end(status.exit, status.halt) if status.state in OVER else ""
    ends = {"interrupted": "its orchestrator is gone", "failed": "it was never ready"}
    return (known or ends.get(status.state, ""))[:_MAX_CHARS]


def _tell(mark: Markup, name: str, *more: Child) -> Markup:
    return join((mark, " ", element("b", name), *more))


def _explain_death(ask: Ask, run: RunSummary, status: InstanceStatus) -> Markup:
    mark, end = state_mark(status.state, is_bad=True), _describe_end(status)
    when = (" · ", moment(status.ended_at)) if status.ended_at else ()
    log = link("log", ask.links.to("run", run.ident, "log", status.name))
    last = _read_last_line(ask, run, status)
    shown = element("pre", last) if last else None
    return _tell(mark, status.name, end and f": {end}", *when, " · ", log, shown)


def _read_last_line(ask: Ask, run: RunSummary, status: InstanceStatus) -> str:
    """Return the last line with text of a log, shortened; empty if the log cannot be read."""
    log, texts = shown_log(run.directory, status.log_file), list[str]()
    if log is not None:
        with contextlib.suppress(OSError), opened_below(ask.site.root, log) as fd:
            texts = [text.strip() for _, text in read_before(fd).lines()]
    return next(filter(None, reversed(texts)), "")[:_MAX_CHARS]


def _explain_return(instance: InstanceLineage) -> Markup:
    mark = element("span", "◐", class_="warning")
    death = instance.deaths[-1].exit if instance.deaths else None
    back = " came back ", moment(instance.lives[-1].begun_at)
    times = f", {count_words(instance.restarts, 'restart')}"
    return _tell(mark, instance.name, f" died: {death};" if death else None, *back, times)


def _explain_errors(status: InstanceStatus) -> Markup:
    mark = element("span", "!", class_="warning")
    return _tell(mark, status.name, f": {status.script_errors}"[:_MAX_CHARS])


def _explain_agent(agent: AgentStatus) -> Markup:
    turn = f" after turn {agent.turn}" if agent.turn else ""
    words = f"{turn}: {agent.reason[:_MAX_CHARS]}" if agent.reason else turn
    return _tell(state_mark(agent.state), agent.name, words, " · ", moment(agent.time))


def _explain_resume(status: InstanceStatus) -> Markup:
    path, end = status.saved_path, ", fresh: there is no save"
    if path is not None:
        end = f" from {path.name}{_format_time(status.sim_time)}"
    return _tell(text("A resume would restore"), status.name, end)


# -- facts -----------------------------------------------------------------------------------------


def _draw_facts(ask: Ask, run: RunSummary, history: RunHistory) -> Markup:
    statuses, usage = run.run.instances, describe_usage(run)
    labels = sorted({format_labels(status.labels) for status in statuses if status.labels})
    usage["Cost"] = usage["Cost"] or ("not reported" if run.agents else "no agents")
    return facts(
        {
            **usage,
            "Came from": join(draw_origins(ask, run, history), ", ") if statuses else None,
            "Experiment": _draw_part(ask, run),
            "Started": moment(min((status.started_at for status in statuses), default="")),
            "Latest": moment(run.latest),
            "Labels": "; ".join(labels[:_MAX_WHY])[:_MAX_CHARS],
            "Run id": run.run_id,
        }.items()
    )


def describe_usage(run: RunSummary) -> dict[str, str]:
    """Return the usage of the agents of a run, by label."""
    own = sum_usage(agent.own_usage for agent in run.agents)
    inherited = sum_usage(agent.inherited for agent in run.agents)
    return {
        "Cost": format_cost(own.cost_usd),
        "Tokens": format_count(own.tokens),
        "Inherited tokens": format_count(inherited.tokens),
        "Turns": format_count(own.turns),
    }


def draw_origins(ask: Ask, run: RunSummary, history: RunHistory) -> Sequence[Child]:
    """Return the saves of other runs from which a run started."""
    if not history.origins:
        return ["a fresh start"]
    origins, drawn = Origins(ask.site.runs()), list[Child]()
    for origin in history.origins[:_MAX_WHY]:
        name, note = origin.path.name, element("small", " not below here", class_="muted")
        if (found := origins.find(origin)) is not None:
            drawn.append(draw_source(ask, found, is_own=found.run is run))
        else:
            drawn.append(join((name, _format_time(origin.time), note)))
    hidden = len(history.origins) - len(drawn)
    return [*drawn, f"{hidden} more"] if hidden else drawn


def draw_source(ask: Ask, found: RunSave, *, is_own: bool = False) -> Markup:
    """Return a link to a save from which a run started, with the save's run and time.

    Args:
        ask: The request for a page.
        found: The save.
        is_own: Whether an earlier run in the same directory made the save.
    """
    run = link(found.run.name, ask.links.to("run", found.run.ident))
    name, time = link(found.save.path.name, found.address(ask)), _format_time(found.save.time)
    return join((name, " of ", "an earlier run" if is_own else run, time))


def _draw_part(ask: Ask, run: RunSummary) -> Markup | None:
    part = run.part
    if part is None:
        return None
    to = ask.links.to("experiment", ask.site.identify(part.experiment))
    return join((link(part.experiment.name, to), part.chain, part.attempt), " ")


# -- commands to continue --------------------------------------------------------------------------


def _warn(ask: Ask, run: RunSummary) -> Iterator[Markup]:
    """Yield sentences about obstacles that keep agents from continuing."""
    for agent in [agent for agent in run.agents if agent.is_over][:_MAX_WHY]:
        name, ends = element("b", agent.name), _find_limit(ask, agent)
        # Attempts are expected to use up their budgets.
        if run.part is None and _USED_UP.match(agent.reason):
            yield join((name, " has used up its budget: raise it to let the agent continue."))
        elif (end := parse_utc(ends)) and end > utc_now():
            until = clock(ends, is_long=True)
            yield join(("The usage limit that ended ", name, " lasts until ", until, "."))


def _find_limit(ask: Ask, agent: AgentStatus) -> str:
    """Return the end in UTC of the usage limit that an agent reached last; empty if unknown."""
    path, ends = AgentDir(agent.dir).events_file, [""]
    with contextlib.suppress(ClawbloxError, OSError), opened_below(ask.site.root, path) as fd:
        records = read_records(path, read_before(fd).start)
        ends += [str(one.data.get("resets_at")) for one in records if one.type == "limit"]
    return ends[-1] if agent.state == "failed" else ""


def _brings_agent(run: RunSummary) -> bool:
    """Return whether ``clawblox resume`` restores the agent, as for agents of ``clawblox run``."""
    with contextlib.suppress(ClawbloxError):
        team = read_team(run.directory)
        return team is not None and team.command_line is not None
    return False


def _suggest(run: RunSummary, history: RunHistory) -> Mapping[str, str]:
    """Return commands by their purpose; commands that cannot be used now are empty."""
    directory, part, statuses = run.directory, run.part, run.run.instances
    live = [status.name for status in statuses if status.state not in OVER]
    saved = [one.name for one in statuses if one.saved_path is not None or one.name in live]
    saves = [RunSave(run, save) for save in history.saves if not save.removed_at]
    archives = [one for one in saves if not one.save.instance]
    is_alone = saves and not archives  # no archive contains the agents
    which = ["--recording", str(len(history.recordings))] if len(history.recordings) > 1 else []
    follow, is_left = ["--follow"] if live else [], run.run.interrupted and not part
    is_back, alone = _brings_agent(run), ", without agents" if run.agents else ""
    used_up = [match[1] for one in run.agents if (match := _USED_UP.match(one.reason))]
    larger = [f"--max-{_RAISES[unit]}" for unit in used_up if is_back and unit in _RAISES]
    return {
        "Continue the experiment": suggest("experiment resume", part.experiment) if part else "",
        "Raise its budget": suggest("run --resume", directory, larger[0], "N") if larger else "",
        f"Resume it{'' if is_back else alone}": suggest("resume", directory) if is_left else "",
        "Play in it": suggest("play", directory, live[0]) if live else "",
        f"Fork it{alone}": suggest("fork", directory, saved[0]) if saved else "",
        "Continue its latest archive": archives[0].command if archives else "",
        "Continue its world, without agents": saves[0].command if is_alone else "",
        "Read its logs": suggest("logs", directory, *follow) if statuses else "",
        "Draw its lineage": suggest("lineage", directory) if len(statuses) > _MAX_DRAWN else "",
        "Replay it": suggest("replay", directory, *which) if history.recordings else "",
        "Verify its recordings": suggest("verify", directory) if history.recordings else "",
    }


# -- agents and instances --------------------------------------------------------------------------


def _draw_agents(ask: Ask, run: RunSummary) -> Markup:
    to = partial(ask.links.to, "run", run.ident, "agent")
    columns: Columns[AgentStatus] = {
        "Agent": lambda one: link(one.name, to(ask.site.identify(one.dir))),
        "State": lambda one: state_mark(one.state),
        "Why": lambda one: one.reason[:_MAX_CHARS],
        "Turn": lambda one: count(one.turn),
        "Tokens": lambda one: count(one.own_usage.tokens),
        "Cost": lambda one: cost(one.own_usage.cost_usd),
        "Inherited": lambda one: count(one.inherited.tokens),
        "Latest": lambda one: moment(one.time),
    }
    return section("Agents", run.agents, columns, most=_MAX_ROWS)


def _draw_instances(ask: Ask, run: RunSummary) -> Markup:
    to = partial(ask.links.to, "run", run.ident, "log")
    columns: Columns[InstanceStatus] = {
        "Instance": lambda one: one.name,
        "State": lambda one: state_mark(one.state, is_bad=one.has_died),
        "World": lambda one: one.world,
        "Started": lambda one: moment(one.started_at),
        "Ended": lambda one: moment(one.ended_at),
        "Restarts": lambda one: count(one.restarts),
        "Sim time": lambda one: _seconds(one.sim_time),
        "Last save": lambda one: moment(one.saved_at),
        "Log": lambda one: link("log", to(one.name)),
    }
    statuses = sorted(run.run.instances, key=lambda one: (not one.has_died, one.name))
    waiting = f"{run.run.waiting} more wait for their start" if run.run.waiting else None
    return join((section("Instances", statuses, columns, most=_MAX_ROWS), waiting))


def _seconds(time: float | None) -> Cell:
    return Cell("" if time is None else f"{time:.1f}", is_number=True)


def bytes_cell(size: int | None) -> Cell:
    """Return a size as a cell."""
    return Cell(format_bytes(size), is_number=True, sort=str(size or 0))


# -- lineage, saves, recordings --------------------------------------------------------------------


def _draw_lineage(ask: Ask, run: RunSummary, history: RunHistory) -> Markup:
    """Return a picture of the instances, and of the instances of other runs that they came from."""
    if not 0 < len(history.lineage.instances) <= _MAX_DRAWN:
        return join(())
    origins = Origins(ask.site.runs() if history.origins else [run])
    parents = [
        (save.run, one)
        for save in origins.parents[run.ident].values()
        for one in read_history(save.run).lineage.instances
        if one.name == save.save.instance
    ]
    own = [(run, one) for one in history.lineage.instances]
    return _section("Lineage", draw_picture(ask, [*parents, *own], origins, run))


def _draw_saves(ask: Ask, run: RunSummary, history: RunHistory) -> Markup:
    columns: Columns[LineageSave] = {
        "Save": lambda save: link(save.path.name, RunSave(run, save).address(ask)),
        "Kind": describe_kind,
        "Instance": lambda save: save.instance,
        "Sim time": lambda save: _seconds(save.time),
        "Size": lambda save: bytes_cell(save.size_bytes),
        "Saved": lambda save: moment(save.created_at),
    }
    return section("Saves", history.saves, columns, most=_MAX_ROWS)


def describe_kind(save: LineageSave) -> str:
    """Return the kind of a save, and whether it was removed."""
    kind = "archive" if not save.instance else "autosave" if save.is_autosave else "snapshot"
    return f"{kind}, removed" if save.removed_at else kind


def _draw_recordings(ask: Ask, run: RunSummary, history: RunHistory) -> Markup:
    to = partial(ask.links.to, "run", run.ident, "replay")
    columns: Columns[tuple[int, FoundRecording]] = {
        "Recording": lambda one: link(one[1].path.name, to(str(one[0]))),
        "Instance": lambda one: one[1].instance,
        "Size": lambda one: (
            bytes_cell(one[1].size_bytes) if one[1].size_bytes else "cut off, or still written"
        ),
    }
    return section("Recordings", [*enumerate(history.recordings, 1)], columns, most=_MAX_ROWS)
