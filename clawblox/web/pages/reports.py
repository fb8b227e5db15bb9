"""The pages of the reports of ``clawblox check`` and ``clawblox verify``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from clawblox.conformance.kept_check import read_check
from clawblox.conformance.report import Report
from clawblox.errors import ClawbloxError
from clawblox.replay.kept_verification import read_verification
from clawblox.replay.results import VerifiedRun
from clawblox.views.check_page import draw_report
from clawblox.views.html import Child, Markup, element, join, link
from clawblox.views.verified_runs import describe_replay, format_attempts, sum_up
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import lines, moment, table
from clawblox.web.site import NoSuchPage
from clawblox.world.kept_reports import KeptReport

_MAX_FILES: Final = 5
_MAX_REPORTS: Final = 500
_NONE: Final = "There are no reports here; clawblox check and clawblox verify write them."

_Kept: TypeAlias = KeptReport[Report] | KeptReport[VerifiedRun]


def make_page(ask: Ask) -> Page:
    """Return the list of all reports."""
    rows: list[Sequence[Child]] = []
    for directory in ask.site.judged():
        name = ask.site.name(directory)
        to = ask.links.to("check", ask.site.identify(directory))
        try:
            rows += ((link(name, to), *_describe(kept)) for kept in _read(directory))
        except ClawbloxError as error:
            rows.append((name, "", error.headline, None))
    body = table("Reports", ("Of", "Command", "Result", "Made"), rows[:_MAX_REPORTS])
    if not rows:
        body = element("p", _NONE)
    return Page("Reports", ask.crumbs(), (Part("reports", body),))


def make_report_page(ask: Ask, ident: str) -> Page:
    """Return the reports of one world, run or experiment."""
    directory = ask.site.find(ask.site.judged(), Path, ident, "world, run or experiment")
    parts = [Part(_kind(kept), _draw(kept)) for kept in _read(directory)]
    if not parts:
        raise NoSuchPage(_NONE)
    crumbs = *ask.crumbs(), ("Reports", ask.links.to("reports"))
    return Page(ask.site.name(directory), crumbs, parts)


def _read(directory: Path) -> Iterator[_Kept]:
    yield from filter(None, (read_check(directory), read_verification(directory)))


def _kind(kept: _Kept) -> str:
    return "check" if isinstance(kept.report, Report) else "verify"


def _describe(kept: _Kept) -> tuple[str, str, Markup | None]:
    """Return the kind, result and time of a report."""
    report = kept.report
    result = report.verdict.sentence if isinstance(report, Report) else sum_up(report)
    return _kind(kept), result, moment(kept.made_at)


def _draw(kept: _Kept) -> Markup:
    report, changes = kept.report, kept.find_changes()
    words, kind = "The checked files have not changed since.", "muted"
    if changes is None:
        words, kind = "It is unknown whether its files have changed since.", "old"
    elif changes:
        more = f" and {len(changes) - _MAX_FILES} more" if len(changes) > _MAX_FILES else ""
        words, kind = f"Out of date: {', '.join(changes[:_MAX_FILES])}{more} changed since.", "old"
    by = f" by clawblox {kept.clawblox}; a report is not signed"
    made = element("p", "made ", moment(kept.made_at), by, class_="muted")
    head = element("p", words, class_=kind), made
    if isinstance(report, Report):
        return join((*head, draw_report(report)))
    replays = lines(describe_replay(replay) for replay in report.replays)
    attempts = element("pre", format_attempts(report))
    return join((*head, element("h2", sum_up(report)), replays, attempts))
