"""The page of a run: why it is as it is, what it cost, where it comes from, how to go on."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from clawblox.agents.drivers import find_driver
from clawblox.agents.drivers.reading import open_reading
from clawblox.agents.layout import AgentDir
from clawblox.agents.narration import Line, narrate
from clawblox.agents.status import AgentStatus
from clawblox.agents.values import sum_usage
from clawblox.results import describe_end
from clawblox.rundir.lineage import InstanceLineage
from clawblox.rundir.lives import Origin
from clawblox.rundir.status import OVER, InstanceStatus
from clawblox.system.amounts import format_bytes
from clawblox.views.formatting import (
    count_words,
    format_cost,
    format_count,
    format_labels,
    format_seconds,
    path_word,
    suggest,
)
from clawblox.views.html import Child, Markup, element, join, link
from clawblox.views.lineage_svg import LineageLinks, draw_lineage
from clawblox.web.files import opened_below, read_before
from clawblox.web.origins import RunSave
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import (
    Cell,
    code,
    comparison,
    cost,
    count,
    facts,
    lines,
    moment,
    state_mark,
    table,
)
from clawblox.web.run_history import RunHistory, read_history
from clawblox.web.run_logs import opened_log, read_last_line
from clawblox.web.shared_address import share
from clawblox.web.site import RunSummary
from clawblox.web.subjects import list_subjects

_T = TypeVar("_T")

_MAX_WHY: Final = 5
"""Number of sentences of a kind that say why a run is as it is."""
_MAX_ROWS: Final = 100
_MAX_DRAWN: Final = 60
"""Number of instances whose lineage is still a picture that people can read."""
_MAX_LOGS: Final = 20
_MAX_EVENTS: Final = 20
_NOW_BYTES: Final = 1 << 16
_NOW_CHARS: Final = 300


def make_page(ask: Ask, ident: str) -> Page:
    """Return the page of a run."""
    run = ask.site.find_run(ident)
    history = read_history(run)
    parts = {
        "why": lines(_explain(ask, run, history)),
        "facts": _draw_facts(ask, run, history),
        "how": _draw_commands(run, history),
        "agents": _draw_agents(ask, run),
        "instances": _draw_instances(ask, run),
        "lineage": _draw_lineage(ask, run, history),
        "saves": _draw_saves(ask, run, history),
        "recordings": _draw_recordings(ask, run, history),
        "compare": _section("Compare", comparison(ask.links, [*list_subjects(ask, [run])])),
        "events": _draw_events(ask, run),
    }
    return Page(
        run.name,
        ((ask.site.root.name, ask.links.to()),),
        [Part(name, body) for name, body in parts.items()],
        is_live=run.is_live,
        share=share(run),
    )


def _section(heading: str, *body: Child) -> Markup:
    return join((element("h2", heading), *body))


def _listing(
    name: str, headings: str, rows: Sequence[Sequence[Cell | Child]], total: int, *more: Child
) -> Markup:
    """Return a section with a table; nothing without rows.

    Args:
        name: Its heading.
        headings: Those of the columns, between commas.
        rows: The rows.
        total: How many there would be, were all shown.
        *more: What follows.
    """
    if not rows:
        return join(())
    hidden = total - len(rows)
    note = element("p", f"{hidden} more are not shown", class_="muted") if hidden else None
    return _section(name, table(name, headings.split(","), rows), note, *more)


def _say(*pieces: Child) -> Markup:
    return join(pieces)


# -- why it is so ----------------------------------------------------------------------------------


def _explain(ask: Ask, run: RunSummary, history: RunHistory) -> Iterator[Markup]:
    """Yield sentences: what is bad first."""
    statuses = run.run.instances
    bad = [status for status in statuses if status.has_died]
    yield from _first(bad, lambda status: _explain_death(ask, run, status), "died as well")
    back = [one for one in history.lineage.instances if _has_come_back(run, one)]
    yield from _first(back, _explain_return, "came back as well")
    over = [agent for agent in run.agents if agent.is_over]
    over.sort(key=lambda agent: agent.state not in ("failed", "interrupted"))
    yield from _first(over, _explain_agent, "have ended as well")
    if run.run.interrupted:
        names = ", ".join(run.run.interrupted[:_MAX_WHY])
        more = len(run.run.interrupted) - _MAX_WHY
        yield _say(
            "A resume would bring back ",
            element("b", names),
            f" and {more} more" if more > 0 else None,
            _describe_saves(run),
        )
    well: Counter[tuple[str, str]] = Counter()
    for status in statuses:
        if not status.has_died:
            end = describe_end(status.exit, status.halt) if status.state in OVER else ""
            well[status.state, end or ""] += 1
    for (state, end), number in well.items():
        words = count_words(number, "instance")
        yield join((state_mark(state), f": {words}", f", {end}" if end else None))
    working = Counter(agent.state for agent in run.agents if not agent.is_over)
    for agent_state, number in working.items():
        yield join((state_mark(agent_state), f": {count_words(number, 'agent')}"))
    if not statuses and not run.agents:
        yield element("span", "Nothing has run here.", class_="muted")
    if history.problem:
        yield element("span", f"Not all can be read: {history.problem[:500]}", class_="warning")


def _first(found: Sequence[_T], explain: Callable[[_T], Markup], rest: str) -> Iterator[Markup]:
    yield from map(explain, found[:_MAX_WHY])
    if len(found) > _MAX_WHY:
        yield element("span", f"{len(found) - _MAX_WHY} more {rest}", class_="muted")


def _explain_death(ask: Ask, run: RunSummary, status: InstanceStatus) -> Markup:
    ends = {"interrupted": "its orchestrator is gone", "failed": "it was never ready"}
    end = (describe_end(status.exit, status.halt) or ends.get(status.state, ""))[:_NOW_CHARS]
    last = read_last_line(ask.site, run, status)
    log = ask.links.to("run", run.ident, "log", status.name)
    return _say(
        state_mark(status.state, is_bad=True),
        " ",
        element("b", status.name),
        f": {end}" if end else None,
        *((" · ", moment(status.ended_at)) if status.ended_at else ()),
        " · ",
        link("log", log),
        element("pre", last[:_NOW_CHARS]) if last else None,
    )


def _has_come_back(run: RunSummary, instance: InstanceLineage) -> bool:
    states = {status.name: status.state for status in run.run.instances}
    is_up = states.get(instance.name, "exited") not in OVER
    return is_up and len(instance.lives) > 1 and instance.lives[-2].has_died


def _explain_return(instance: InstanceLineage) -> Markup:
    before, latest = instance.lives[-2:]
    return _say(
        element("span", "◐ ", class_="warning"),
        element("b", instance.name),
        f" died: {before.exit}" if before.exit else " died",
        "; came back ",
        moment(latest.begun_at),
        f", {count_words(instance.restarts, 'restart')}",
    )


def _explain_agent(agent: AgentStatus) -> Markup:
    return _say(
        state_mark(agent.state),
        " ",
        element("b", agent.name),
        f" after turn {agent.turn}" if agent.turn else None,
        f": {agent.reason[:_NOW_CHARS]}" if agent.reason else None,
        " · ",
        moment(agent.time),
    )


def _describe_saves(run: RunSummary) -> str:
    wanted = set(run.run.interrupted)
    statuses = [status for status in run.run.instances if status.name in wanted]
    saved = [status for status in statuses if status.saved_path is not None]
    if not saved:
        return ", fresh: there is no save"
    path, time = saved[0].saved_path, saved[0].sim_time
    if len(statuses) > 1 or path is None:
        return f", {len(saved)} from their last saves"
    return f" from {path.name}" + ("" if time is None else f" at {time:.1f} s")


# -- facts -----------------------------------------------------------------------------------------


def _draw_facts(ask: Ask, run: RunSummary, history: RunHistory) -> Markup:
    own = sum_usage(agent.own_usage for agent in run.agents)
    inherited = sum_usage(agent.inherited for agent in run.agents)
    statuses = run.run.instances
    labels = sorted({format_labels(status.labels) for status in statuses if status.labels})
    unknown = "not reported" if run.agents else "no agents"
    return facts(
        (
            ("Cost", format_cost(own.cost_usd) or unknown),
            ("Tokens", _with_note(format_count(own.tokens), inherited.tokens)),
            ("Turns", format_count(own.turns)),
            ("Came from", join(draw_origins(ask, run, history), ", ") if statuses else None),
            ("Experiment", _draw_part(ask, run)),
            ("Started", moment(min((status.started_at for status in statuses), default=""))),
            ("Latest", moment(run.latest)),
            ("Labels", "; ".join(labels[:_MAX_WHY])[:_NOW_CHARS]),
            ("Run id", run.run_id),
        )
    )


def _with_note(own: str, inherited: int) -> Child:
    if not inherited:
        return own
    note = element("small", f" {format_count(inherited)} inherited", class_="muted")
    return join((own or "0", note))


def draw_origins(ask: Ask, run: RunSummary, history: RunHistory) -> Iterator[Child]:
    """Yield the saves of other runs that it began from."""
    for origin in history.origins[:3]:
        yield _draw_origin(ask, run, origin)
    if len(history.origins) > 3:
        yield f"{len(history.origins) - 3} more"
    if not history.origins:
        yield "a fresh start"


def _draw_origin(ask: Ask, this: RunSummary, origin: Origin) -> Markup:
    at = "" if origin.time is None else f" at {origin.time:.1f} s"
    run = _find_owner(ask, origin)
    if run is None:
        return join((origin.path.name, at, element("small", " not below here", class_="muted")))
    save = ask.links.to("run", run.ident, "save", ask.site.identify(origin.path))
    page = link(run.name, ask.links.to("run", run.ident)) if run is not this else "an earlier run"
    return join((link(origin.path.name, save), at, " of ", page))


def _find_owner(ask: Ask, origin: Origin) -> RunSummary | None:
    """Return the run in whose directory a save is, or else one that has the same save."""
    runs = ask.site.runs()
    around = [run for run in runs if origin.path.is_relative_to(run.directory)]
    if around:
        return max(around, key=lambda run: len(run.directory.parts))
    same = (
        run
        for run in runs
        if origin.sha256
        and any(status.saved_sha256 == origin.sha256 for status in run.run.instances)
    )
    return next(same, None)


def _draw_part(ask: Ask, run: RunSummary) -> Markup | None:
    part = run.part
    if part is None:
        return None
    to = ask.links.to("experiment", ask.site.identify(part.experiment))
    words = " ".join(filter(None, (part.chain, part.attempt)))
    return join((link(part.experiment.name, to), f" {words}" if words else None))


# -- how to go on ----------------------------------------------------------------------------------


def _draw_commands(run: RunSummary, history: RunHistory) -> Markup:
    rows = [
        element("div", element("dt", words), element("dd", code(command)))
        for words, command in _suggest(run, history)
    ]
    return _section("How to go on", element("dl", *rows, class_="commands"))


def _suggest(run: RunSummary, history: RunHistory) -> Iterator[tuple[str, str]]:
    directory, statuses = run.directory, run.run.instances
    live = [status for status in statuses if status.state not in OVER]
    if run.part is not None:
        yield "Continue the experiment", suggest("experiment resume", run.part.experiment)
    elif run.run.interrupted:
        yield "Resume it", suggest("resume", directory)
    if live:
        name = [live[0].name] if len(live) > 1 else []
        yield "Play in it", suggest("play", directory, *name)
    saved = [status for status in statuses if status.saved_path is not None or status in live]
    if saved:
        yield "Fork it", suggest("fork", directory, saved[0].name)
    archive = next((save for save in history.saves if not save.instance), None)
    if archive is not None and statuses:
        words = ("--resume", path_word(archive.path))
        yield "Continue its latest archive", suggest("run", statuses[0].world_dir, *words)
    if statuses:
        more = ["--follow"] if live else []
        yield "Read its logs", suggest("logs", directory, *more)
    number = ["--recording", str(len(history.recordings))] if len(history.recordings) > 1 else []
    if history.recordings:
        yield "Replay it", suggest("replay", directory, *number)
        yield "Verify its recordings", suggest("verify", directory)


# -- agents and instances --------------------------------------------------------------------------


def _draw_agents(ask: Ask, run: RunSummary) -> Markup:
    headings = "Agent,State,Why,Turn,Tokens,Cost,Inherited,Now,Latest"
    rows = [
        (
            link(agent.name, ask.links.to("run", run.ident, "agent", ask.site.identify(agent.dir))),
            state_mark(agent.state),
            agent.reason[:_NOW_CHARS],
            Cell(str(agent.turn or ""), is_number=True),
            count(agent.own_usage.tokens),
            cost(agent.own_usage.cost_usd),
            count(agent.inherited.tokens),
            _find_now(ask, agent) if place < _MAX_LOGS else None,
            moment(agent.time),
        )
        for place, agent in enumerate(run.agents[:_MAX_ROWS])
    ]
    return _listing("Agents", headings, rows, len(run.agents))


def _find_now(ask: Ask, agent: AgentStatus) -> str:
    """Return the last call or words of an agent."""
    directory = AgentDir(agent.dir)
    with contextlib.suppress(OSError), opened_below(ask.site.root, directory.log_file) as fd:
        window = read_before(fd, 1 << 62, _NOW_BYTES)
        found: list[Line] = []
        # A driver reads what a program wrote: whatever that is, the page must not fail.
        with contextlib.suppress(Exception):
            reading = open_reading(find_driver(agent.driver), directory, joined_version="")
            for text in window.data.split(b"\n")[0 if window.starts_line else 1 :]:
                for report in reading.read(text):
                    if report.type in ("message", "tool.called"):
                        found += narrate(report.type, report.data)
        return found[-1].text.removeprefix("| ")[:_NOW_CHARS] if found else ""
    return ""


def _draw_instances(ask: Ask, run: RunSummary) -> Markup:
    headings = "Instance,State,World,Started,Ended,Ran,Restarts,Sim time,Last save,Address,Log"
    statuses = sorted(run.run.instances, key=lambda status: (not status.has_died, status.name))
    rows = [_draw_instance(ask, run, status) for status in statuses[:_MAX_ROWS]]
    waiting = f"{run.run.waiting} more wait for their start" if run.run.waiting else None
    return _listing("Instances", headings, rows, len(statuses), waiting)


def _draw_instance(ask: Ask, run: RunSummary, status: InstanceStatus) -> Sequence[Cell | Child]:
    is_over = status.state in OVER
    return (
        status.name,
        state_mark(status.state, is_bad=status.has_died),
        status.world,
        moment(status.started_at),
        moment(status.ended_at),
        format_seconds(status.uptime_s) if is_over else None,
        Cell(str(status.restarts or ""), is_number=True),
        Cell("" if status.sim_time is None else f"{status.sim_time:.1f}", is_number=True),
        moment(status.saved_at),
        None if is_over else status.url,
        link("log", ask.links.to("run", run.ident, "log", status.name)),
    )


# -- lineage, saves, recordings, events ------------------------------------------------------------


def _draw_lineage(ask: Ask, run: RunSummary, history: RunHistory) -> Markup:
    number = len(history.lineage.instances)
    if not number:
        return join(())
    if number > _MAX_DRAWN:
        words = f"{number} instances are too many to draw here: "
        return _section("Lineage", element("p", words, code(suggest("lineage", run.directory))))
    saves = {save.path: save for save in history.saves}
    links = LineageLinks(
        save=lambda save: (
            RunSave(run, saves[save.path]).address(ask) if save.path in saves else None
        )
    )
    picture = draw_lineage(history.lineage, title=run.name, links=links).part()
    return _section("Lineage", element("div", picture, class_="scroll", tabindex="0"))


def _draw_saves(ask: Ask, run: RunSummary, history: RunHistory) -> Markup:
    rows = [
        (
            link(
                save.path.name, ask.links.to("run", run.ident, "save", ask.site.identify(save.path))
            ),
            ("archive" if not save.instance else "autosave" if save.is_autosave else "snapshot")
            + (", removed" if save.removed_at else ""),
            save.instance,
            Cell("" if save.time is None else f"{save.time:.1f}", is_number=True),
            Cell(format_bytes(save.size_bytes), is_number=True, sort=str(save.size_bytes or 0)),
            moment(save.created_at),
            (save.sha256 or "")[:12],
        )
        for save in history.saves[:_MAX_ROWS]
    ]
    headings = "Save,Kind,Instance,Sim time,Size,Saved,SHA-256"
    return _listing("Saves", headings, rows, len(history.saves))


def _draw_recordings(ask: Ask, run: RunSummary, history: RunHistory) -> Markup:
    rows = [
        (
            link(recording.path.name, ask.links.to("run", run.ident, "replay", str(number))),
            recording.instance,
            Cell(format_bytes(recording.size_bytes), is_number=True),
            "" if recording.size_bytes is not None else "not finished",
        )
        for number, recording in enumerate(history.recordings[:_MAX_ROWS], 1)
    ]
    headings = "Recording,Instance,Size,State"
    return _listing("Recordings", headings, rows, len(history.recordings))


def _draw_events(ask: Ask, run: RunSummary) -> Markup:
    """Return the latest starts, ends and restarts by the indexes of the logs."""
    found = []
    for status in run.run.instances[:_MAX_LOGS]:
        with contextlib.suppress(OSError), opened_log(ask.site, run, status) as log:
            found += [(note.at or "", status.name, note, log.moved) for note in log.notes]
    found.sort(key=lambda event: event[0], reverse=True)
    rows = [
        (
            moment(at),
            name,
            link(
                (note.text or note.event)[:_NOW_CHARS],
                ask.links.to("run", run.ident, "log", name, before=note.size + moved),
            ),
        )
        for at, name, note, moved in found[:_MAX_EVENTS]
    ]
    left = len(run.run.instances) - _MAX_LOGS
    note = f"Those of {left} more instances are not among them" if left > 0 else None
    return _listing("Latest events", "Time,Instance,Event", rows, len(found), note)
