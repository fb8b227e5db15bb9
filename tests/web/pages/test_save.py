"""The page of a save: facts, descendants, workspaces, and changes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from clawblox import save_checkpoint
from clawblox.experiment.reading.record import read_experiment
from clawblox.rundir.manifest import manifest_path
from clawblox.web.site import NoSuchPage, Site
from tests.checkpoint import archives
from tests.support.lineages import run_of, save_of, write_manifest, write_run
from tests.web.drawing import draw, make
from tests.web.families import find_run, moved, save_agent, saves_of

V1 = Path(__file__).parents[2] / "golden" / "experiment" / "v1"
HOSTILE = "<script>alert(1)</script>"


def part(text: str, name: str) -> str:
    """Return a part of a page without markup; empty if the part is missing."""
    found = re.search(rf'<section id="{name}".*?</section>', text, re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", found[0]).split()) if found else ""


@pytest.mark.parametrize("is_moved", [False, True])
def test_save_page_lists_its_descendants_even_in_moved_runs(
    family: Path, tmp_path: Path, is_moved: bool
) -> None:
    first, second = "first", "second"
    if is_moved:
        first, second = "old/one", "two"
        family = moved(family, tmp_path / "lab", ("first", first), ("second", second))
    site = Site(family)
    *_, (oldest, path) = saves_of(site, first, "alpha")
    text = draw(site, oldest)
    assert f"{first} w000 started" in part(text, "starts")
    assert f'href="/run/{find_run(site, first).ident}"' in text
    assert "second" not in part(text, "starts")
    facts = part(text, "summary")
    assert "Kind snapshot" in facts
    assert "Instance alpha" in facts
    assert re.search(r"Simulated time \d+\.\d s", facts)
    assert f"clawblox fork {family}/{first} {path}" in part(text, "commands")
    ((middle, _),) = saves_of(site, first, "w000")
    assert f"{second} w001 started" in part(draw(site, middle), "starts")


def test_save_is_compared_with_its_predecessor_or_origin(
    family: Path,
) -> None:
    site = Site(family)
    (_, _), (_, before) = saves_of(site, "first", "alpha")
    latest = draw(site, saves_of(site, "first", "alpha")[0][0])
    assert f"Changes since the previous save: {before.name}" in part(latest, "since-0")
    assert "The world documents differ in" in part(latest, "since-0")
    forked = draw(site, saves_of(site, "first", "w000")[0][0])
    assert before.name in part(forked, "since-0")
    ((page, _),) = saves_of(site, "second", "w001")
    text = draw(site, page)
    assert part(text, "since-0").endswith("The world documents are equal.")
    assert f'href="/{saves_of(site, "first", "w000")[0][0]}"' in text


def test_page_of_a_missing_save_has_the_facts_of_the_manifest(family: Path, tmp_path: Path) -> None:
    site = Site(moved(family, tmp_path / "lab", ("first", "first")))
    (page, path), (oldest, _) = saves_of(site, "first", "alpha")
    path.unlink()
    text = draw(site, page)
    assert f"{path.name}: it cannot be read: No such file" in part(text, "summary")
    assert "Instance alpha" in part(text, "summary")
    assert f"{path.name}: it cannot be read: No such file" in part(text, "holds")
    assert f"{path.name}: it cannot be read: No such file" in part(text, "since-0")
    assert "cannot be read" not in part(draw(site, oldest), "summary")


# -- workspaces ------------------------------------------------------------------------------------


def archive_site(tmp_path: Path) -> tuple[Site, list[str]]:
    """Return a site with two archives of an agent, and their pages, latest last."""
    run = write_run(tmp_path / "lab" / "run", {"w000": {"run": run_of("w000")}})
    save_agent(run, "a", "I am.\nI look.\n", old="1")
    (run / "agents" / "rocky" / "workspace" / "old").unlink()
    save_agent(run, "b", f"I am.\n{HOSTILE}\n", new="2")
    site = Site(tmp_path / "lab")
    pages = {path.name: page for page, path in saves_of(site, "run", "")}
    return site, [pages["a.ckpt"], pages["b.ckpt"]]


def test_the_workspace_of_each_agent_is_shown_as_files(tmp_path: Path) -> None:
    site, (first, _) = archive_site(tmp_path)
    text = draw(site, first)
    assert "rocky 2 files, 15 B" in part(text, "workspaces")
    assert "SOUL.md 14 B" in part(text, "workspaces")
    assert f'href="/{first}/file?agent=rocky&amp;file=SOUL.md"' in text
    shown = draw(site, f"{first}/file", agent="rocky", file="SOUL.md")
    assert "<pre>I am.\nI look.\n</pre>" in shown
    assert "clawblox ckpt inspect" in part(text, "commands")


def test_files_that_were_added_removed_and_changed_are_listed_with_their_lines(
    tmp_path: Path,
) -> None:
    site, (first, second) = archive_site(tmp_path)
    assert part(draw(site, first), "since-0") == ""
    text = draw(site, second)
    changes = part(text, "since-0")
    assert "1 changed, 1 added, 1 removed" in changes
    assert "+ new added, 1 B" in changes
    assert "- old removed, 1 B" in changes
    assert "- I look." in changes
    assert HOSTILE not in text
    assert '<span class="good">+ &lt;script&gt;alert(1)&lt;/script&gt;\n</span>' in text


def test_long_file_is_cut_and_binary_file_not_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "lab" / "run", {"w000": {"run": run_of("w000")}})
    save_agent(run, "a", "".join(f"line {number}\n" for number in range(30_000)), map="a\0b")
    site = Site(tmp_path / "lab")
    ((page, _),) = saves_of(site, "run", "")
    shown = draw(site, f"{page}/file", agent="rocky", file="SOUL.md")
    assert "<pre>line 0\nline 1\n" in shown
    assert "… and 57 kB more" in shown
    assert "This is not a text file." in draw(site, f"{page}/file", agent="rocky", file="map")


def test_addresses_open_only_files_listed_in_the_archive(tmp_path: Path) -> None:
    site, (page, _) = archive_site(tmp_path)
    for path in ("../../../etc/passwd", "/etc/passwd", "", "SOUL.md\0", "\udc80"):
        with pytest.raises(NoSuchPage, match="no such file"):
            make(site, f"{page}/file", agent="rocky", file=path)
    with pytest.raises(NoSuchPage, match="no such file"):
        make(site, f"{page}/file", agent="..", file="SOUL.md")
    run = page.split("/")[1]
    for address in (f"run/{run}/save/0123456789", "run/0123456789/save/0123456789"):
        with pytest.raises(NoSuchPage):
            make(site, address)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("no zip", b"PK\x03\x04" + b"\0" * 100),
        ("nothing", b""),
        ("other names", archives.checkpoint({"agents/../../x": b"x"})),
        ("deep", b"[" * 1_000_000),
        ("a link", None),
    ],
)
def test_a_hostile_archive_is_named_and_not_shown(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    run = write_run(tmp_path / "lab" / "run", {"w000": {"run": run_of("w000")}})
    path = run / "checkpoints" / "x.ckpt"
    path.parent.mkdir()
    if content is None:
        path.symlink_to(secret)
    else:
        path.write_bytes(content)
    entry = {"path": "checkpoints/x.ckpt", "format": "clawblox-ckpt-v1", "created_at": HOSTILE}
    outside = {"path": str(secret), "format": "clawblox-ckpt-v1", "created_at": "2026"}
    write_manifest(
        run,
        {"instances": [{"name": "w000", "dir": "worlds/w000"}], "checkpoints": [entry, outside]},
    )
    site = Site(tmp_path / "lab")
    pages = saves_of(site, "run", "")
    assert {path.name for _, path in pages} == {"x.ckpt", "secret"}
    for page, _ in pages:
        text = draw(site, page)
        assert "Kind archive" in part(text, "summary"), name
        assert "the secret" not in text
        assert HOSTILE not in text
        assert part(text, "holds") != "World document"
        with pytest.raises(NoSuchPage):
            make(site, f"{page}/file", agent="rocky", file="SOUL.md")


def test_a_snapshot_elsewhere_or_behind_a_link_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"time": 1, "key": "the secret"}')
    entries = [save_of("w000", 1, path=str(secret)), save_of("w000", 2)]
    document = {"run": run_of("w000"), "checkpoints": entries}
    run = write_run(tmp_path / "lab" / "run", {"w000": document})
    link = run / "worlds" / "w000" / "checkpoints" / "w000-2.json"
    link.parent.mkdir()
    link.symlink_to(secret)
    site = Site(tmp_path / "lab")
    pages = saves_of(site, "run", "w000")
    assert [path.name for _, path in pages] == ["w000-2.json", "secret.json"]
    for page, _ in pages:
        text = draw(site, page)
        assert "the secret" not in text
        assert "is not below" in part(text, "holds")


# -- generations -----------------------------------------------------------------------------------


def test_handed_down_saves_of_generations_and_branches_are_compared(tmp_path: Path) -> None:
    directory = shutil.copytree(V1, tmp_path / "lab" / "exp")
    rows = read_experiment(directory).results().rows()
    saves = {(row.chain, row.generation): directory / row.checkpoint for row in rows}
    texts = {("r1", 1): "I am.\n", ("r1", 2): "I am.\nI was.\n", ("r1-f1-1", 1): "I fork.\n"}
    parent = next(directory / row.forked_from for row in rows if row.chain == "r1-f1-1")
    wanted = {saves[place]: text for place, text in texts.items()}
    wanted.setdefault(parent, "I am the parent.\n")
    for path, text in wanted.items():
        run = path.parent.parent
        if not manifest_path(run).exists():
            write_manifest(run, {"run": run_of("w000")})
        agent = tmp_path / "agents" / run.name / f"rocky-r{run.name}-w0-a0"
        (agent / "workspace").mkdir(parents=True, exist_ok=True)
        (agent / "workspace" / "SOUL.md").write_text(text)
        save_checkpoint(path, agents={agent.name: agent})
    site = Site(tmp_path / "lab")

    def page(path: Path) -> str:
        name = str(path.parent.parent.relative_to(site.root))
        return next(page for page, other in saves_of(site, name, "") if other == path)

    before, after = saves["r1", 1], saves["r1", 2]
    changes = part(draw(site, page(after)), "since-0")
    assert f"Changes since the previous generation: {before.name}" in changes
    assert "+ I was." in changes
    assert "(there rocky-r" in changes
    assert "the generation after" in part(draw(site, page(before)), "starts")
    branch = part(draw(site, page(saves["r1-f1-1", 1])), "since-0")
    assert f"Changes since the parent of the branch: {parent.name}" in branch
    assert "+ I fork." in branch


def test_archives_within_a_second_are_kept_in_order(tmp_path: Path) -> None:
    run = write_run(tmp_path / "lab" / "run", {"w000": {"run": run_of("w000")}})
    entry = {"format": "clawblox-ckpt-v1", "created_at": "2026-06-22T18:00:00Z"}
    listed = [{**entry, "path": f"checkpoints/{name}.ckpt"} for name in "bac"]
    document = {"instances": [{"name": "w000", "dir": "worlds/w000"}], "checkpoints": listed}
    write_manifest(run, document)
    site = Site(tmp_path / "lab")
    pages = {path.name: page for page, path in saves_of(site, "run", "")}
    for name, before in (("a", "b"), ("c", "a")):
        changes = part(draw(site, pages[f"{name}.ckpt"]), "since-0")
        assert f"Changes since the previous save: {before}.ckpt" in changes
    assert part(draw(site, pages["b.ckpt"]), "since-0") == ""


def test_page_of_a_branch_from_a_missing_save_has_a_note(tmp_path: Path) -> None:
    document = {"run": run_of("w000", ("w009", 3)), "checkpoints": [save_of("w000", 5)]}
    write_run(tmp_path / "lab" / "run", {"w000": document})
    site = Site(tmp_path / "lab")
    ((page, _),) = saves_of(site, "run", "w000")
    text = draw(site, page)
    assert "w000-5.json: it cannot be read" in part(text, "summary")
    assert "No run below here started from it." in part(text, "starts")
    assert "w009-3.json: it cannot be read" in part(text, "since-0")
