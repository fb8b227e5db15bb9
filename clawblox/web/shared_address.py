"""Addresses to share, which depend on the id of a run but not on a server, a key or a directory.

An address is ``#RUN_ID/KIND/NAME/PLACE``, each piece quoted as in a URL: ``#r1/run``,
``#r1/agent/Ada/o12345``, ``#r1/log/w000``, ``#r1/replay/1/t=720``, ``#r1/save/s1.json``. The pages
of any directory with the run resolve such an address. Only this module makes and parses shared
addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote, unquote

import attrs

from clawblox.views.html import PageAddress, element, join, link
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import moment, table
from clawblox.web.run_history import read_history
from clawblox.web.site import NoSuchPage, RunSummary

_KINDS: Final = ("run", "agent", "log", "replay", "save")
_MAX_CHARS: Final = 2000
_OFFSET: Final = re.compile(r"o(\d{1,15})", re.ASCII)


@attrs.frozen
class SharedAddress:
    """An address to share.

    Attributes:
        run_id: Id of the run.
        kind: Kind of the page: ``run``, ``agent``, ``log``, ``replay`` or ``save``.
        name: Name of the agent or instance, number of the recording, or file name of the save;
            empty for ``run``.
        place: The place in the page, such as ``o12345`` for a byte or ``t=720`` for a time; empty
            for none.
    """

    run_id: str
    kind: str = "run"
    name: str = ""
    place: str = ""

    def __str__(self) -> str:
        pieces = [self.run_id, self.kind, self.name, self.place]
        return "#" + "/".join(quote(piece, safe="=,") for piece in pieces if piece)

    @classmethod
    def parse(cls, text: str) -> SharedAddress:
        """Parse a shared address.

        Args:
            text: The address, or any address of a page that contains it after ``#``.

        Raises:
            NoSuchPage: The text is not a shared address.
        """
        pieces = [unquote(piece) for piece in text.strip().rpartition("#")[2].split("/")]
        run_id, kind, *rest = [*pieces, "run"] if len(pieces) == 1 else pieces
        if kind == "run":
            rest = ["", *rest]
        is_known = kind in _KINDS and len(text) <= _MAX_CHARS
        if not is_known or not all(pieces) or len(rest) not in (1, 2):
            raise NoSuchPage(
                f"{text[:200]!r} is not a shared address: it must be like #RUN_ID/agent/NAME, "
                "as copied with “copy link” on a page"
            )
        return cls(run_id, kind, *rest)


def share(run: RunSummary, kind: str = "run", name: str = "") -> str:
    """Return the address to share for a page of a run; empty if the run has no id.

    Args:
        run: The run.
        kind: As in :class:`SharedAddress`.
        name: As in :class:`SharedAddress`.
    """
    return str(SharedAddress(run.run_id, kind, name)) if run.run_id else ""


def find_pages(ask: Ask, text: str) -> Sequence[tuple[RunSummary, PageAddress]]:
    """Return the pages of an address; there are several if a run directory was copied. Blocks.

    Args:
        ask: The request, whose site is searched.
        text: The address.

    Raises:
        NoSuchPage: There is no such page.
    """
    address = SharedAddress.parse(text)
    runs = ask.site.runs()
    owners = [run for run in runs if address.run_id == run.run_id]
    owners = owners or [run for run in runs if address.run_id in _all_ids(run)]
    if not owners:
        raise NoSuchPage(
            f"No run in {ask.site.root} has the id {address.run_id[:200]!r}: "
            "start clawblox app with a directory above the run, or copy the run here"
        )
    found = [(run, page) for run in owners for page in _find_in(ask, run, address)]
    if not found:
        raise NoSuchPage(
            f"{owners[0].name} has no {address.kind} {address.name[:200]!r}: it was removed, or "
            f"this is an earlier copy; open #{quote(address.run_id)}/run to see what it has"
        )
    return found


def make_page(ask: Ask) -> Page:
    """Return a page with a choice of pages; ``address`` is the shared address.

    Raises:
        NoSuchPage: There is no such page.
    """
    text = ask.query.get("address", "")
    pages = find_pages(ask, text)
    why = "Several run directories here have this run. Choose one:" if len(pages) > 1 else "It is:"
    rows = [(link(run.name, to), str(run.directory), moment(run.latest)) for run, to in pages]
    body = element("p", why), table("Runs", ("Run", "Directory", "Latest"), rows)
    return Page(text[:200], ask.crumbs(), (Part("choice", join(body)),))


def _all_ids(run: RunSummary) -> set[str]:
    """Return the ids of all runs in a directory, including earlier runs."""
    instances = read_history(run).lineage.instances
    latest = {status.run_id for status in run.run.instances}
    return latest | {life.run_id for instance in instances for life in instance.lives}


def _find_in(ask: Ask, run: RunSummary, address: SharedAddress) -> Iterator[PageAddress]:
    history, identify = read_history(run), ask.site.identify
    names = {
        "run": [("", "")],
        "log": [(status.name, status.name) for status in run.run.instances],
        "agent": [(agent.name, identify(agent.dir)) for agent in run.agents],
        "replay": [(str(number), str(number)) for number, _ in enumerate(history.recordings, 1)],
        "save": [(save.path.name, identify(save.path)) for save in history.saves],
    }
    offset = _OFFSET.fullmatch(address.place)
    for name, ident in names[address.kind]:
        if name == address.name:
            path = (address.kind, ident) if ident else ()
            at = offset[1] if offset else None
            yield ask.links.to("run", run.ident, *path, at=at, fragment=address.place)
