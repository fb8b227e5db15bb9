"""Reports that ``clawblox check`` and ``clawblox verify`` have left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from clawblox.conformance.kept_check import read_check
from clawblox.conformance.report import Report
from clawblox.errors import ClawbloxError
from clawblox.printable import printable
from clawblox.replay.kept_verification import read_verification
from clawblox.replay.verified_run import VerifiedRun
from clawblox.views.check_page import draw_report
from clawblox.views.html import Child, Markup, element, join, link
from clawblox.views.verified_attempts import format_attempts
from clawblox.views.verified_runs import describe_replay, sum_up
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import moment, table
from clawblox.web.site import NoSuchPage
from clawblox.world.kept_reports import KeptReport

_MAX_FILES: Final = 5
_MAX_REPORTS: Final = 500

_Kept: TypeAlias = KeptReport[Report] | KeptReport[VerifiedRun]


def make_page(ask: Ask) -> Page:
    """Return the list of all reports."""
    rows: list[tuple[Child, ...]] = []
    for directory in ask.site.judged():
        name = ask.site.name(directory)
        try:
            found = list(_read(directory))
        except ClawbloxError as error:
            rows.append((printable(name), "", printable(error.headline), None))
            continue
        to = ask.links.to("check", ask.site.identify(directory))
        rows += (
            (link(printable(name), to), _kind(kept), printable(_sum_up(kept)), moment(kept.made_at))
            for kept in found
        )
    body = (
        table("Reports", ("Of", "Command", "Result", "Made"), rows[:_MAX_REPORTS])
        if rows
        else element("p", "No report was left here: clawblox check and clawblox verify leave them.")
    )
    return Page("Reports", ((ask.site.root.name, ask.links.to()),), (Part("reports", body),))


def make_report_page(ask: Ask, ident: str) -> Page:
    """Return the reports of one world, run or experiment."""
    directory = next(
        (found for found in ask.site.judged() if ask.site.identify(found) == ident), None
    )
    if directory is None:
        raise NoSuchPage("There is no such world, run or experiment.")
    try:
        found = list(_read(directory))
    except ClawbloxError as error:
        raise NoSuchPage(error.headline) from error
    if not found:
        raise NoSuchPage("No report was left there: clawblox check and clawblox verify leave them.")
    crumbs = (
        (ask.site.root.name, ask.links.to()),
        ("Reports", ask.links.to("reports")),
    )
    parts = [Part(_kind(kept), _draw(kept)) for kept in found]
    return Page(printable(ask.site.name(directory)), crumbs, parts)


def _read(directory: Path) -> Iterator[_Kept]:
    for kept in (read_check(directory), read_verification(directory)):
        if kept is not None:
            yield kept


def _kind(kept: _Kept) -> str:
    return "check" if isinstance(kept.report, Report) else "verify"


def _sum_up(kept: _Kept) -> str:
    report = kept.report
    return report.verdict.sentence if isinstance(report, Report) else sum_up(report)


def _draw(kept: _Kept) -> Markup:
    report = kept.report
    if isinstance(report, Report):
        body = draw_report(report)
    else:
        lines = [element("p", describe_replay(replay)) for replay in report.replays]
        attempts = format_attempts(report)
        body = join((element("h2", sum_up(report)), *lines, element("pre", attempts)))
    return join(
        (
            _draw_changes(kept),
            element(
                "p",
                "made ",
                moment(kept.made_at),
                f" by clawblox {printable(kept.clawblox)}; a report is not signed",
                class_="muted",
            ),
            body,
        )
    )


def _draw_changes(kept: _Kept) -> Markup:
    """Say whether what was judged is still what it was."""
    changes = kept.find_changes()
    if changes is None:
        return element("p", "Whether its files have changed since is not known.", class_="old")
    if not changes:
        return element("p", "The files that were judged have not changed since.", class_="muted")
    shown = ", ".join(printable(name) for name in changes[:_MAX_FILES])
    more = f" and {len(changes) - _MAX_FILES} more" if len(changes) > _MAX_FILES else ""
    return element("p", f"Out of date: {shown}{more} changed since.", class_="old")
