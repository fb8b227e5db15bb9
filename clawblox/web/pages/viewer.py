"""The page that says what a world's own viewer runs, before it is started, and where it is then."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from clawblox.errors import ClawbloxError
from clawblox.printable import printable
from clawblox.views.html import Markup, element, join, link
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pages.replay import Replay, crumbs, find_replay
from clawblox.web.pieces import code, facts, state_mark
from clawblox.web.recorded_world import find_world
from clawblox.web.site import NoSuchPage
from clawblox.web.viewers import RunningViewer
from clawblox.world.viewer import ViewerCommand


def make_page(ask: Ask, ident: str, number: str) -> Page:
    """Return the page."""
    replay = find_replay(ask, ident, number)
    viewer = find_viewer(ask, replay)
    running = None if ask.viewers is None else ask.viewers.find(ident, number)
    above = (*crumbs(ask, replay.run), (f"replay {number}", replay.address(ask)))
    body = join(_draw(ask, replay, viewer, running))
    return Page(
        "The world's own viewer", above, (Part("viewer", body),), is_live=running is not None
    )


def find_viewer(ask: Ask, replay: Replay) -> ViewerCommand:
    """Return the command of the viewer of a recording's world. Blocks.

    Raises:
        NoSuchPage: The world has none, or is not there; or this server starts none.
    """
    if ask.viewers is None:
        raise NoSuchPage("Nothing can be started from here.")
    try:
        with ask.site.recordings.opened(replay.found, replay.run.directory) as recording:
            digest = recording.start.get("world_files")  # a viewer gets nothing but a recording
    except ClawbloxError as error:
        raise NoSuchPage(error.headline) from error
    world = find_world(replay.found, replay.run.directory, digest)
    if world.viewer is None:
        raise NoSuchPage(world.problem or "The world has no [replay] command in its world.toml.")
    return world.viewer


def _draw(
    ask: Ask, replay: Replay, viewer: ViewerCommand, running: RunningViewer | None
) -> Iterator[Markup]:
    words = viewer.fill(replay.found.path, None)
    if running is not None:
        yield element("p", state_mark(running.state), " ", running.why)
        if running.state == "running" and viewer.has_port:
            address = link(running.address, replay.address(ask, "viewer", "open"))
            yield element("p", "It was given the address ", address)
        yield element("pre", running.text) if running.text else join(())
        words = running.words or words
    if running is None or running.state != "running":
        yield element(
            "p",
            "This starts a program on this machine, with your rights: the command [replay] of the "
            "world that made the recording. It ends when clawblox app ends.",
        )
    where = code(printable(str(viewer.cwd)))
    yield facts((("Command", code(printable(shlex.join(words)))), ("In the directory", where)))
    if running is None or running.state != "running":
        button = element("button", "Start this program", type="submit")
        to = replay.address(ask, "viewer")
        yield element("form", button, method="post", action=to, class_="row")
