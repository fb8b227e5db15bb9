"""Addresses to send: each belongs to the id of a run, not to a server, a key or a directory.

An address is ``#RUN_ID/KIND/NAME/PLACE``, each piece quoted as in a URL: ``#r1/run``,
``#r1/agent/Ada/o12345``, ``#r1/log/w000``, ``#r1/replay/1/t=720``, ``#r1/save/s1.json``. The pages
of any directory that has the run resolve it. This module alone makes and parses addresses.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote, unquote

import attrs

from clawblox.errors import ClawbloxError
from clawblox.rundir.lineage import read_lineage
from clawblox.views.html import Address
from clawblox.web.page import Ask
from clawblox.web.run_history import read_history
from clawblox.web.site import NoSuchPage, RunSummary

_KINDS: Final = {"run": 0, "agent": 1, "log": 1, "replay": 1, "save": 1}
"""Number of names in an address, by its kind."""
_MAX_CHARS: Final = 2000
_OFFSET: Final = re.compile(r"o(\d{1,15})", re.ASCII)


@attrs.frozen
class SharedAddress:
    """An address to send.

    Attributes:
        run_id: Id of the run.
        kind: Kind of the page: ``run``, ``agent``, ``log``, ``replay`` or ``save``.
        name: Which agent, instance, recording (its number) or save (its file name); empty for
            ``run``.
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
        """Return an address that was sent.

        Args:
            text: The address, or any address of a page that contains it after ``#``.

        Raises:
            NoSuchPage: It is not an address to send.
        """
        pieces = [unquote(piece) for piece in text.strip().rpartition("#")[2].split("/")]
        kind = pieces[1] if len(pieces) > 1 else "run"
        names = _KINDS.get(kind, 0)
        rest = pieces[2:]
        if (
            len(text) > _MAX_CHARS
            or kind not in _KINDS
            or not all(pieces)
            or not names <= len(rest) <= names + 1
        ):
            raise NoSuchPage(
                f"{text[:200]!r} is not an address to send: it must be like #RUN_ID/agent/NAME, "
                "as the button “copy link” of a page gives it"
            )
        place = rest[names] if len(rest) > names else ""
        return cls(pieces[0], kind, rest[0] if names else "", place)


def share(run: RunSummary, kind: str = "run", name: str = "") -> str:
    """Return the address to send of a page of a run; empty if the run has no id.

    Args:
        run: The run.
        kind: As in :class:`SharedAddress`.
        name: As in :class:`SharedAddress`.
    """
    return str(SharedAddress(run.run_id, kind, name)) if run.run_id else ""


def find_pages(ask: Ask, text: str) -> Sequence[tuple[RunSummary, Address]]:
    """Return the pages to which an address leads: several if a run directory was copied. Blocks.

    Args:
        ask: Its site is searched.
        text: The address.

    Raises:
        NoSuchPage: It leads nowhere.
    """
    address = SharedAddress.parse(text)
    runs = ask.site.runs()
    owners = [run for run in runs if address.run_id in _latest_ids(run)]
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


def _latest_ids(run: RunSummary) -> set[str]:
    return {status.run_id for status in run.run.instances}


def _all_ids(run: RunSummary) -> set[str]:
    """Return the ids of all runs in a directory, earlier ones included."""
    with contextlib.suppress(ClawbloxError):
        lineage = read_lineage(run.directory)
        return {life.run_id for instance in lineage.instances for life in instance.lives}
    return set()


def _find_in(ask: Ask, run: RunSummary, address: SharedAddress) -> Iterator[Address]:
    kind, name, place = address.kind, address.name, address.place
    offset = _OFFSET.fullmatch(place)
    at = offset[1] if offset else None
    if kind == "run":
        yield ask.links.to("run", run.ident, fragment=place)
    elif kind == "log" and any(status.name == name for status in run.run.instances):
        yield ask.links.to("run", run.ident, "log", name, at=at, fragment=place)
    elif kind == "agent":
        for agent in run.agents:
            if agent.name == name:
                ident = ask.site.identify(agent.dir)
                yield ask.links.to("run", run.ident, "agent", ident, at=at, fragment=place)
    elif kind == "replay":
        if name in map(str, range(1, len(read_history(run).recordings) + 1)):
            yield ask.links.to("run", run.ident, "replay", name, fragment=place)
    elif kind == "save":
        for save in read_history(run).saves:
            if save.path.name == name:
                ident = ask.site.identify(save.path)
                yield ask.links.to("run", run.ident, "save", ident, fragment=place)
