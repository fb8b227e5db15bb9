"""A save: when and what, what started from it, workspaces as files, and what has changed in it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from clawblox.checkpoint.archive.reader import Archive
from clawblox.errors import CheckpointError
from clawblox.rundir.lives import LifeBeginning
from clawblox.system.amounts import format_bytes
from clawblox.views import archives
from clawblox.views.formatting import count_words, path_word, suggest
from clawblox.views.html import Address, Child, Markup, element, join, link
from clawblox.views.observations import format_inline
from clawblox.web.files import WINDOW_BYTES, opened_below
from clawblox.web.origins import (
    Before,
    Origins,
    RunSave,
    Start,
    find_before,
    find_next_generations,
    find_save,
)
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import Cell, and_more, code, facts, moment, table
from clawblox.web.saved_worlds import draw_documents, explain, read_world
from clawblox.web.site import NoSuchPage
from clawblox.web.text_diff import DiffLine, TextDiff
from clawblox.web.workspaces import (
    ARCHIVE_LIMITS,
    ArchivedFile,
    FileChange,
    Workspace,
    find_changes,
    pair_agents,
)

_MAX_FILES: Final = 500
_MAX_AGENTS: Final = 50
_MAX_CHANGES: Final = 200
_MAX_DIFFS: Final = 20
_MAX_OPEN: Final = 2
_MAX_STARTS: Final = 200
_MAX_KEYS: Final = 100
_MAX_CHARS: Final = 120
_SHOWN: Final = (OSError, CheckpointError)
"""What a file on disk may have against being shown; the page says it."""
_BEGINNINGS: Final[Mapping[LifeBeginning, str]] = {
    "start": "started",
    "policy": "restarted",
    "request": "restarted on request",
    "resume": "resumed",
}


def make_page(ask: Ask, run_ident: str, ident: str) -> Page:
    """Return the page of a snapshot or an archive."""
    found = find_save(ask.site, run_ident, ident)
    origins = Origins(ask.site.runs())
    befores = find_before(ask.site, origins, found)
    workspaces = () if found.save.instance else _draw_workspaces(ask, found)
    parts = [
        Part("summary", _draw_facts(ask, found, befores)),
        Part("commands", _draw_commands(found)),
        Part("starts", _draw_starts(ask, found, origins.started_from(found))),
        Part("workspaces", join(workspaces)),
        *(
            Part(f"since-{number}", _draw_changes(ask, found, before))
            for number, before in enumerate(befores)
        ),
        Part("holds", _section("What it holds", *_draw_content(ask, found))),
    ]
    return Page(found.save.path.name, _crumbs(ask, found), parts)


def _crumbs(ask: Ask, found: RunSave) -> Sequence[tuple[str, Address]]:
    run = found.run
    return (ask.site.root.name, ask.links.to()), (run.name, ask.links.to("run", run.ident))


def _section(heading: str, *body: Child) -> Markup:
    return join((element("h2", heading), *body))


def _draw_facts(ask: Ask, found: RunSave, befores: Sequence[Before]) -> Markup:
    run, save = found.run, found.save
    gone = None
    try:
        with opened_below(ask.site.root, save.path):
            pass
    except FileNotFoundError:
        words = f"removed {save.removed_at}" if save.removed_at else "not there"
        gone = element(
            "p", f"✕ The file is {words}. What manifests say of it remains.", class_="bad"
        )
    except OSError as error:
        gone = element("p", f"✕ {explain(error, save.path)}", class_="bad")
    kind = "archive" if not save.instance else "autosave" if save.is_autosave else "snapshot"
    return join(
        (
            gone,
            facts(
                (
                    ("Kind", kind),
                    ("Simulated time", "" if save.time is None else f"{save.time:.1f} s"),
                    ("Saved", moment(save.created_at)),
                    ("Size", format_bytes(save.size_bytes)),
                    ("Run", link(run.name, ask.links.to("run", run.ident))),
                    ("Instance", save.instance),
                    ("Changes since", join(_link_befores(ask, befores), ", ") if befores else None),
                    ("SHA-256", code(save.sha256) if save.sha256 else None),
                )
            ),
        )
    )


def _link_befores(ask: Ask, befores: Sequence[Before]) -> Iterator[Markup]:
    for before in befores:
        name = before.path.name
        shown = name if before.found is None else link(name, before.found.address(ask))
        yield join((f"{before.words} ", shown))


def _draw_commands(found: RunSave) -> Markup:
    save, statuses = found.save, found.run.run.instances
    commands = []
    if save.instance:
        commands.append(("Fork it", suggest("fork", found.run.directory, path_word(save.path))))
    else:
        commands += [
            ("Inspect it", suggest("ckpt inspect", save.path)),
            ("Verify it", suggest("ckpt verify", save.path)),
        ]
    if statuses:
        again = suggest("run", statuses[0].world_dir, "--resume", path_word(save.path))
        commands.append(("Continue from it", again))
    rows = [element("div", element("dt", name), element("dd", code(it))) for name, it in commands]
    return _section("How to go on", element("dl", *rows, class_="commands"))


def _draw_starts(ask: Ask, found: RunSave, starts: Sequence[Start]) -> Markup:
    rows: list[Sequence[Child]] = [
        (
            link(start.run.name, ask.links.to("run", start.run.ident)),
            start.instance,
            "from the archive" if start.life is None else _BEGINNINGS[start.life.begun_by],
            moment(_find_begin(start)),
        )
        for start in starts[:_MAX_STARTS]
    ]
    forked = {start.run.ident for start in starts}
    rows += [
        (link(run.name, ask.links.to("run", run.ident)), "", "the generation after", None)
        for run in find_next_generations(ask.site, found)
        if run.ident not in forked
    ]
    if not rows:
        return _section("What started from it", element("p", "Nothing below here.", class_="muted"))
    started = table("Starts", ("Run", "Instance", "How", "When"), rows)
    return _section("What started from it", started, and_more(len(starts) - _MAX_STARTS))


def _find_begin(start: Start) -> str | None:
    if start.life is not None:
        return start.life.begun_at
    return min((status.started_at for status in start.run.run.instances), default=None)


# -- what it holds ---------------------------------------------------------------------------------


def _draw_content(ask: Ask, found: RunSave) -> Iterator[Child]:
    if not found.save.instance:
        try:
            with opened_below(ask.site.root, found.save.path) as fd:
                archive = Archive(fd, found.save.path, ARCHIVE_LIMITS)
                words = archives.describe(archive, with_files=False)
                yield element("pre", words, class_="diff plain", tabindex="0")
        except _SHOWN as error:
            yield element("p", explain(error, found.save.path), class_="muted")
            return
    try:
        world = read_world(ask.site.root, found.save.path)
    except _SHOWN as error:
        yield element("p", f"World document: {explain(error, found.save.path)}", class_="muted")
        return
    members = world if isinstance(world, Mapping) else {"": world}
    shown = [*members][:_MAX_KEYS]
    rows = [(key, format_inline(members[key], max_chars=_MAX_CHARS)) for key in shown]
    keys = table("World document", ("Key", "Value"), rows)
    head = element("summary", "World document")
    yield element("details", head, keys, and_more(len(members) - len(rows)))


def _draw_workspaces(ask: Ask, found: RunSave) -> Iterator[Markup]:
    try:
        listed = ask.site.workspaces.read(found.save.path)
    except _SHOWN:  # said below what it holds
        return
    yield element("h2", "Workspaces")
    for workspace in [*listed.values()][:_MAX_AGENTS]:
        files = [file for file in workspace.files.values() if file.kind != "git"]
        git = len(workspace.files) - len(files)
        rows = [_draw_file(ask, found, workspace.agent, file) for file in files[:_MAX_FILES]]
        counts = [count_words(len(files), "file"), format_bytes(workspace.size)]
        counts += [f"{count_words(git, 'file')} of git repositories"] if git else []
        counts += [f"{len(workspace.excluded)} left out"] if workspace.excluded else []
        yield element("h3", workspace.agent)
        yield element("p", ", ".join(counts), class_="muted")
        if rows:
            yield table(
                f"Workspace of {workspace.agent}", ("File", "Kind", "Size", "SHA-256"), rows
            )
        yield join((and_more(len(files) - len(rows)),))


def _draw_file(ask: Ask, found: RunSave, agent: str, file: ArchivedFile) -> Sequence[Cell | Child]:
    is_program = file.kind != "link" and file.mode & 0o100
    kind = f"link to {file.target}" if file.kind == "link" else file.kind
    size = Cell(format_bytes(file.size), is_number=True, sort=str(file.size))
    name: Child = file.path
    if file.kind != "link":
        name = link(file.path, _link_file(ask, found, agent, file.path))
    return name, kind + (", executable" if is_program else ""), size, (file.sha256 or "")[:12]


def _link_file(ask: Ask, found: RunSave, agent: str, path: str, at: int | None = None) -> Address:
    return ask.links.to(*found.place(ask.site), "file", agent=agent, file=path, at=at)


# -- what has changed ------------------------------------------------------------------------------


def _draw_changes(ask: Ask, found: RunSave, before: Before) -> Markup:
    return _section(
        f"Changes since {before.words}",
        element("p", before.path.name, class_="muted"),
        *(() if found.save.instance else _draw_changed_files(ask, found, before)),
        element("h3", "World document"),
        draw_documents(ask.site.root, before.path, found.save.path),
    )


def _draw_changed_files(ask: Ask, found: RunSave, before: Before) -> Iterator[Markup]:
    listed = []
    for archive in (before.path, found.save.path):
        try:
            listed.append(ask.site.workspaces.read(archive))
        except _SHOWN as error:
            yield element("p", explain(error, archive), class_="muted")
            return
    old, new = listed
    diffs = 0
    for name, other in [*pair_agents(old, new).items()][:_MAX_AGENTS]:
        source = old[other] if other else Workspace(agent="", files={}, excluded={}, members={})
        changes = find_changes(source, new[name])
        whose = f" (there {other})" if other and other != name else "" if other else " (new)"
        yield element("h3", f"Workspace of {name}{whose}")
        kinds = Counter(_describe(change) for change in changes)
        words = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        yield element("p", words or "No file has changed.", class_="muted")
        for change in changes[:_MAX_CHANGES]:
            diff = None
            if other and change.before and change.after and diffs < _MAX_DIFFS:
                diffs += 1
                path = change.after.path
                places = (before.path, other), (found.save.path, name)
                with contextlib.suppress(*_SHOWN):
                    diff = ask.site.workspaces.read_text_diff(*places, path)
            yield _draw_change(change, diff, is_open=diffs <= _MAX_OPEN)
        yield join((and_more(len(changes) - _MAX_CHANGES),))
    for name in sorted(set(old) - set(pair_agents(old, new).values())):
        yield element("p", f"The agent {name} is not there any more.", class_="muted")


def _describe(change: FileChange) -> str:
    return "added" if change.before is None else "removed" if change.after is None else "changed"


def _draw_change(change: FileChange, diff: TextDiff | None, *, is_open: bool) -> Markup:
    sizes = [format_bytes(file.size) for file in (change.before, change.after) if file]
    file = change.after or change.before
    kind = _describe(change)
    sign, name = {"added": ("+", "good"), "removed": ("-", "bad")}.get(kind, ("~", "warning"))
    path = file.path if file else ""
    head = join((element("b", f"{sign} {path}", class_=name), f" {kind}, {' → '.join(sizes)}"))
    if diff is None:
        return element("p", head)
    if diff.reason:
        return element("p", head, element("span", f" {diff.reason}", class_="muted"))
    kinds = {"+": "good", "-": "bad", "@": "muted"}
    lines = [
        element("span", f"{_draw_line(line)}\n", class_=kinds.get(line.sign)) for line in diff.lines
    ]
    cut = element("span", "… and more", class_="muted") if diff.is_cut else None
    body = element("pre", *lines, cut, class_="diff")
    return element("details", element("summary", head), body, open="" if is_open else None)


def _draw_line(line: DiffLine) -> str:
    return f"@ line {line.after}" if line.sign == "@" else f"{line.sign} {line.text}"


# -- a file ----------------------------------------------------------------------------------------


def make_file_page(ask: Ask, run_ident: str, ident: str) -> Page:
    """Return the page of a file of a workspace, a window of it."""
    found = find_save(ask.site, run_ident, ident)
    agent, path = ask.query.get("agent", ""), ask.query.get("file", "")
    try:
        file = ask.site.workspaces.read(found.save.path)[agent].files[path]
        window = ask.site.workspaces.read_window(
            found.save.path, agent, path, ask.whole("at") or 0, WINDOW_BYTES
        )
    except LookupError:
        raise NoSuchPage(f"{found.save.path.name} has no such file") from None
    except _SHOWN as error:
        raise NoSuchPage(explain(error, found.save.path)) from error
    more = []
    for words, key, at in (
        ("earlier", "earlier", max(window.start - WINDOW_BYTES, 0) if window.start else None),
        ("later", "later", window.end if window.end < window.size else None),
    ):
        if at is not None:
            to = _link_file(ask, found, agent, path, at)
            more.append(link(words, to, data_key=key))
    shown = facts(
        (
            ("Agent", agent),
            ("Kind", file.kind),
            ("Size", format_bytes(file.size)),
            ("Bytes", f"{window.start} to {window.end}" if more else None),
            ("SHA-256", code(file.sha256) if file.sha256 else None),
        )
    )
    lines = [] if file.kind == "binary" else [f"{text}\n" for _, text in window.lines()]
    body = (
        element("p", "This is not a text.", class_="muted") if not lines else element("pre", *lines)
    )
    parts = (
        Part("facts", shown),
        Part("content", join((element("p", join(more, " · ")) if more else None, body))),
    )
    crumbs = (*_crumbs(ask, found), (found.save.path.name, found.address(ask)))
    return Page(path, crumbs, parts)
