"""The page of a save: time, content, descendants, files of workspaces, and changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from clawblox.differences import ABSENT, ValueDifference, find_differences
from clawblox.errors import CheckpointError
from clawblox.rundir.listed_saves import LineageSave
from clawblox.rundir.lives import Origin
from clawblox.system.amounts import format_bytes
from clawblox.views.formatting import count_words, path_word, suggest
from clawblox.views.html import Child, Markup, element, join, link
from clawblox.views.observations import format_inline
from clawblox.web.files import MAX_WINDOW_BYTES, decode
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pages.run import bytes_cell, describe_kind
from clawblox.web.pieces import (
    Columns,
    and_more,
    code,
    commands,
    facts,
    listing,
    moment,
    section,
    tree,
)
from clawblox.web.run_history import (
    Origins,
    RunSave,
    StartFromSave,
    find_before,
    find_save,
    list_handed_down,
)
from clawblox.web.saved import (
    ArchivedFile,
    FileChange,
    Workspace,
    diff_texts,
    find_changes,
    opened_save,
    opened_workspaces,
    pair_agents,
    read_world,
)
from clawblox.web.site import NoSuchPage

_MAX_ROWS: Final = 200
_MAX_DIFFS: Final = 20
_MAX_OPEN: Final = 2
_MAX_OPEN_PATHS: Final = 40
_MAX_CHARS: Final = 120
_SIGNS: Final = {"added": ("+", "good"), "removed": ("-", "bad"), "changed": ("~", "warning")}
_LINE_CLASSES: Final = {"+": "good", "-": "bad", "@": "muted"}


def make_page(ask: Ask, run_ident: str, ident: str) -> Page:
    """Return the page of a snapshot or an archive."""
    found = find_save(ask.site, run_ident, ident)
    origins = Origins(ask.site.runs())
    befores = find_before(ask.site, origins, found).items()
    changes = (_draw_changes(ask, found.save, *before, origins) for before in befores)
    sections = [
        ("summary", _draw_facts(ask, found)),
        ("commands", _draw_commands(found)),
        ("starts", _draw_starts(ask, found, origins)),
        ("workspaces", () if found.save.instance else _draw_workspaces(ask, found)),
        *((f"since-{number}", body) for number, body in enumerate(changes)),
        ("holds", _draw_world(ask, found)),
    ]
    parts = [Part(name, join(explained(body))) for name, body in sections]
    return Page(found.save.path.name, ask.crumbs(found.run), parts)


def explained(body: Iterable[Child]) -> Iterator[Child]:
    """Yield parts of a page, and finally the reason if a file cannot be shown."""
    try:
        yield from body
    except CheckpointError as error:
        path = error.path.name if error.path else "The save"
        yield element("p", f"{path}: {error.message}.", class_="muted")


def _draw_facts(ask: Ask, found: RunSave) -> Iterator[Markup]:
    run, save = found.run, found.save
    yield facts(
        (
            ("Kind", describe_kind(save)),
            ("Simulated time", "" if save.time is None else f"{save.time:.1f} s"),
            ("Saved", moment(save.created_at)),
            ("Removed", moment(save.removed_at)),
            ("Size", format_bytes(save.size_bytes)),
            ("Run", link(run.name, ask.links.to("run", run.ident))),
            ("Instance", save.instance),
            ("SHA-256", code(save.sha256) if save.sha256 else None),
        )
    )
    with opened_save(ask.site.root, save.path):
        pass  # otherwise the page shows the reason


def _draw_commands(found: RunSave) -> Iterator[Markup]:
    path, run = found.save.path, found.run
    suggested = {"Fork it": suggest("fork", run.directory, path_word(path))}
    if not found.save.instance:
        words = ("inspect", "verify")
        suggested = {f"{word.title()} it": suggest(f"ckpt {word}", path) for word in words}
    suggested["Continue from it"] = found.command
    yield element("h2", "To continue")
    yield commands(suggested)


def _draw_starts(ask: Ask, found: RunSave, origins: Origins) -> Iterator[Child]:
    path, site = found.save.path, ask.site
    starts = [one for one in origins.starts if one.source and one.source.save.path == path]
    heirs = {run_dir for run_dir, source, _ in list_handed_down(site, found.run) if source == path}
    heirs -= {start.run.directory for start in starts}
    runs = (run for run in site.runs() if run.directory in heirs)
    starts += [
        StartFromSave(run, "", Origin(path), found, "the generation after", None) for run in runs
    ]
    columns: Columns[StartFromSave] = {
        "Run": lambda one: link(one.run.name, ask.links.to("run", one.run.ident)),
        "Instance": lambda one: one.instance,
        "How": lambda one: one.how,
        "When": lambda one: moment(one.at),
    }
    nothing = "No run below here started from it."
    yield section("Runs that started from it", starts, columns, most=_MAX_ROWS, nothing=nothing)


# -- content ---------------------------------------------------------------------------------------


def _draw_world(ask: Ask, found: RunSave) -> Iterator[Child]:
    yield element("h2", "World document")
    yield tree("world", read_world(ask.site.root, found.save.path))


def _draw_workspaces(ask: Ask, found: RunSave) -> Iterator[Child]:
    columns: Columns[tuple[str, str, ArchivedFile]] = {
        "File": lambda one: link(one[1], found.address(ask, "file", agent=one[0], file=one[1])),
        "Kind": lambda one: f"link to {one[2].target}" if one[2].target else "",
        "Size": lambda one: bytes_cell(one[2].size),
        "SHA-256": lambda one: (one[2].sha256 or "")[:12],
    }
    yield element("h2", "Workspaces")
    with opened_workspaces(ask.site.root, found.save.path) as workspaces:
        for agent, files in [*workspaces.items()][:_MAX_ROWS]:
            size = format_bytes(sum(file.size for file in files.values()))
            yield element("h3", agent)
            yield element("p", f"{count_words(len(files), 'file')}, {size}", class_="muted")
            rows = [(agent, path, file) for path, file in files.items()]
            yield listing(f"Workspace of {agent}", rows, columns, most=_MAX_ROWS)


# -- changes ---------------------------------------------------------------------------------------


def _draw_changes(
    ask: Ask, save: LineageSave, before: Path, words: str, origins: Origins
) -> Iterator[Child]:
    root, name, to = ask.site.root, before.name, origins.address(ask, before)
    yield element("h2", f"Changes since {words}: ", link(name, to) if to else name)
    if not save.instance:
        with opened_workspaces(root, before) as old, opened_workspaces(root, save.path) as new:
            yield from _draw_changed_files(old, new)
    yield element("h3", "World document")
    worlds = (read_world(root, path) for path in (before, save.path))
    yield draw_differences(*worlds, names=("Before", "After"))


def _draw_changed_files(
    old: Mapping[str, Workspace], new: Mapping[str, Workspace]
) -> Iterator[Child]:
    pairs, diffs = pair_agents(old, new), 0
    for name, other in [*pairs.items()][:_MAX_ROWS]:
        changes = find_changes(old[other] if other else {}, new[name])
        whose = f" (there {other})" if other and other != name else "" if other else " (new)"
        yield element("h3", f"Workspace of {name}{whose}")
        kinds = Counter(change.kind for change in changes)
        counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        yield element("p", counts or "No file has changed.", class_="muted")
        for change in changes[:_MAX_ROWS]:
            lines: Sequence[str] = ()
            if change.before and change.after and diffs < _MAX_DIFFS:
                diffs += 1
                lines = diff_texts(change.before.read(), change.after.read())
            yield _draw_change(change, lines, is_open=diffs <= _MAX_OPEN)
        yield and_more(len(changes) - _MAX_ROWS)
    for name in sorted(set(old) - set(pairs.values())):
        yield element("p", f"The agent {name} is no longer there.", class_="muted")


def _draw_change(change: FileChange, lines: Sequence[str], *, is_open: bool) -> Markup:
    sizes = [format_bytes(file.size) for file in (change.before, change.after) if file]
    sign, name = _SIGNS[change.kind]
    path = element("b", f"{sign} {change.path}", class_=name)
    head = join((path, f" {change.kind}, {' → '.join(sizes)}"))
    shown = [element("span", f"{line}\n", class_=_LINE_CLASSES.get(line[0])) for line in lines]
    if not shown:
        return element("p", head)
    body = element("pre", *shown, class_="diff")
    return element("details", element("summary", head), body, open="" if is_open else None)


def draw_differences(before: Any, after: Any, *, names: tuple[str, str]) -> Markup:  # noqa: ANN401
    """Return the differences of two world documents as a table of paths."""
    found = find_differences(before, after)
    if not found:
        return element("p", "The world documents are equal.", class_="muted")
    columns: Columns[ValueDifference] = {
        "Path": lambda one: one.path or "the whole",
        names[0]: lambda one: _show(one)[0],
        names[1]: lambda one: _show(one)[1],
    }
    return element(
        "details",
        element("summary", f"The world documents differ in {count_words(len(found), 'path')}."),
        listing("Paths that differ", found, columns, most=_MAX_ROWS),
        open="" if len(found) <= _MAX_OPEN_PATHS else None,
    )


def _show(one: ValueDifference) -> Sequence[str]:
    """Return both values as text, with numbers rounded unless that hides the difference."""
    sides = (one.before, one.after)
    texts = ["—" if side is ABSENT else format_inline(side, max_chars=_MAX_CHARS) for side in sides]
    return texts if texts[0] != texts[1] else [repr(side)[:_MAX_CHARS] for side in sides]


# -- a file ----------------------------------------------------------------------------------------


def make_file_page(ask: Ask, run_ident: str, ident: str) -> Page:
    """Return the page of a file of a workspace."""
    found = find_save(ask.site, run_ident, ident)
    archive, agent, path = found.save.path, ask.query.get("agent", ""), ask.query.get("file", "")
    try:
        with opened_workspaces(ask.site.root, archive) as workspaces:
            file = workspaces[agent][path]
            data = file.read()
    except (LookupError, CheckpointError) as error:
        raise NoSuchPage(f"{archive.name} has no such file: {error}") from error
    words = element("p", f"Workspace of {agent}, {format_bytes(file.size)}")
    body, rest = element("pre", decode(data[:MAX_WINDOW_BYTES])), file.size - MAX_WINDOW_BYTES
    more = f"… and {format_bytes(rest)} more" if rest > 0 else None
    if b"\0" in data:
        body, more = join(()), "This is not a text file."
    note = element("p", more, class_="muted") if more else None
    crumbs = (*ask.crumbs(found.run), (archive.name, found.address(ask)))
    return Page(path, crumbs, (Part("content", join((words, body, note))),))
