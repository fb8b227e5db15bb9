"""Workspaces of new attempts: inherited and excluded files."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from clawblox import ConfigError
from clawblox.agents.layout import AgentDir
from clawblox.config.world_toml import read_world_config
from clawblox.experiment.live import workspaces
from clawblox.experiment.live.run_directories import making_run
from clawblox.experiment.live.workspaces import digest_workspaces, fill_workspace
from clawblox.system.trees import MAX_DEPTH
from tests.checkpoint.repositories import ask, git, make_upstream
from tests.support.deep import make_deep

ATTEMPT = "exp-g002"
AGENT = "Eko-rexp-g002-w0-a0"


def write(root: Path, *names: str, text: str = "text") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


class Place:
    """An experiment with a world, a template and the workspace of a previous generation."""

    def __init__(self, path: Path) -> None:
        self.chain = path / "experiments" / "exp"
        self.world = path / "worlds" / "panda"
        self.template = path / "template"
        self.previous = path / "previous"
        self.left_out: list[str] = []
        for directory in (self.template, self.previous):
            directory.mkdir()
        self.configure("")

    def configure(self, agent: str) -> None:
        text = f'name = "panda"\n[run]\ncommand = ["true"]\n[agent]\n{agent}\n'
        write(self.world, "world.toml", text=text)

    def fill(self, source: Path | None, **options: Any) -> Path:
        with making_run(self.chain, ATTEMPT) as partial:
            target = AgentDir(partial / "agents" / AGENT).workspace
            options = {"is_inherited": False, "experiment_dir": self.chain, **options}
            options = {"final": self.workspace, **options}
            self.left_out = fill_workspace(target, source, read_world_config(self.world), **options)
        return self.workspace

    def inherit(self) -> Path:
        return self.fill(self.previous, is_inherited=True)

    def begin(self) -> Path:
        return self.fill(self.template)

    @property
    def run(self) -> Path:
        return self.chain / "runs" / ATTEMPT

    @property
    def workspace(self) -> Path:
        return self.run / "agents" / AGENT / "workspace"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def content(root: Path) -> set[str]:
    """Return the files and links below a directory, except for those of the world."""
    paths = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    return {path for path in paths if not path.startswith("world/")}


# -- copied files -------------------------------------------------------------------------------


def test_a_workspace_has_the_files_of_its_template_and_the_world(place: Place) -> None:
    write(place.template, "SOUL.md", "notes/a.md")
    workspace = place.begin()
    assert content(workspace) == {"SOUL.md", "notes/a.md"}
    assert (workspace / "world" / "world.toml").is_file()


def test_agent_may_start_with_only_the_files_of_the_world(place: Place) -> None:
    assert [path.name for path in place.fill(None).iterdir()] == ["world"]


def test_equal_workspaces_have_equal_digests(place: Place) -> None:
    write(place.template, "SOUL.md")
    place.begin()
    other = place.run / "agents" / "Moa-a1" / "workspace"
    shutil.copytree(place.workspace, other)
    digests = digest_workspaces(place.run)
    assert list(digests) == [AGENT, "Moa-a1"]
    assert len(set(digests.values())) == 1
    write(other, "MIND.md")
    assert len(set(digest_workspaces(place.run).values())) == 2


@pytest.mark.parametrize("get", [Place.begin, Place.inherit])
def test_caches_are_not_copied(place: Place, get: Callable[[Place], Path]) -> None:
    for root in (place.template, place.previous):
        write(root, "a.py", "a.pyc", ".venv/bin/python", "b/__pycache__/b.py", ".pytest_cache/v")
    assert content(get(place)) == {"a.py"}


def test_permissions_are_kept(place: Place) -> None:
    write(place.previous, "run.sh")
    (place.previous / "run.sh").chmod(0o755)
    assert (place.inherit() / "run.sh").stat().st_mode & 0o777 == 0o755


def test_a_template_may_be_named_by_a_link(place: Place, tmp_path: Path) -> None:
    write(place.template, "SOUL.md")
    (tmp_path / "link").symlink_to(place.template)
    place.template = tmp_path / "link"
    assert content(place.begin()) == {"SOUL.md"}


def test_a_missing_template_is_named(place: Place) -> None:
    place.template.rmdir()
    with pytest.raises(ConfigError, match="template: must be an existing directory, not '/"):
        place.begin()
    assert list((place.chain / "runs").iterdir()) == []


# -- sizes --------------------------------------------------------------------------------------


def make_sparse(path: Path, size: int = 8 << 40) -> None:
    path.touch()
    os.truncate(path, size)


def test_file_that_is_too_large_is_omitted_and_listed(place: Place) -> None:
    write(place.previous, "notes.md")
    make_sparse(place.previous / "big")
    os.mkfifo(place.previous / "pipe")
    assert content(place.inherit()) == {"notes.md"}
    assert place.left_out[0] == "big is too large"
    assert list(digest_workspaces(place.run)) == [AGENT]


def test_largest_files_of_an_oversized_workspace_are_omitted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "_ARCHIVED", workspaces._Limits(1000, 1500))
    for name, size in {"a": 900, "b": 800, "c": 700, "d": 1001}.items():
        make_sparse(place.previous / name, size)
    assert content(place.inherit()) == {"b", "c"}
    assert place.left_out == ["a is too large", "d is too large"]


def test_a_file_of_the_world_that_is_too_large_is_not_copied(place: Place) -> None:
    make_sparse(place.world / "big")
    workspace = place.inherit()
    assert not (workspace / "world" / "big").exists()
    assert place.left_out == ["big is too large"]


def test_list_of_omitted_entries_is_short_and_long_names_are_cut(place: Place) -> None:
    for number in range(12):
        make_sparse(place.previous / f"{number}{'n' * 240}")
    place.inherit()
    assert len(place.left_out) == 10
    assert {len(entry) for entry in place.left_out} == {200}


def test_digest_of_a_workspace_can_be_cancelled(place: Place) -> None:
    make_sparse(place.template / "large", 1 << 33)
    place.begin()

    def check() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        digest_workspaces(place.run, check)


# -- the world ----------------------------------------------------------------------------------


def test_the_world_is_copied_without_results_and_caches(place: Place) -> None:
    write(
        place.world,
        "main.py",
        "lib/a.py",
        "lib/a.pyc",
        "__pycache__/main.py",
        "results/exp/runs/a",
        "lib/results/b",
        ".clawblox/manifest.json",
        "experiments/other/journal.jsonl",
        ".env",
    )
    world = place.begin() / "world"
    assert content(world) == {"world.toml", "main.py", "lib/a.py"}


def test_an_experiment_within_its_world_is_not_copied_into_itself(place: Place) -> None:
    home = place.world / "studies" / "exp"
    write(place.world, "studies/README.md", "studies/exp/journal.jsonl")
    place.chain = home / "chains" / "r1"
    assert content(place.fill(None, experiment_dir=home) / "world") == {
        "world.toml",
        "studies/README.md",
    }


def test_the_world_replaces_only_the_files_that_it_contains(place: Place) -> None:
    write(place.world, "main.py", "data/map.json", text="new")
    write(place.previous, "world/main.py", "world/mine.py", "world/data/notes.md", text="old")
    workspace = place.inherit()
    assert (workspace / "world" / "main.py").read_text() == "new"
    assert content(workspace / "world") == {
        "world.toml",
        "main.py",
        "mine.py",
        "data/map.json",
        "data/notes.md",
    }


@pytest.mark.parametrize("name", ["world", "world/data"])
def test_the_world_replaces_files_links_and_directories_with_its_names(
    place: Place, name: str
) -> None:
    write(place.world, "data/map.json", text="new")
    write(place.previous, "notes/map.json", text="old")
    (place.previous / name).parent.mkdir(exist_ok=True)
    (place.previous / name).symlink_to(
        os.path.relpath(place.previous / "notes", (place.previous / name).parent)
    )
    workspace = place.inherit()
    assert not (workspace / name).is_symlink()
    assert (workspace / "world" / "data" / "map.json").read_text() == "new"
    assert (workspace / "notes" / "map.json").read_text() == "old"


def test_a_directory_in_place_of_a_file_of_the_world_is_left_out(place: Place) -> None:
    place.configure('server_source = "server/main.py"')
    write(place.world, "server/main.py")
    write(place.previous, "server.py/mine", "world/world.toml/mine")
    workspace = place.inherit()
    assert (workspace / "server.py").read_text() == "text"
    assert (workspace / "world" / "world.toml").is_file()


def test_world_can_withhold_its_source(place: Place) -> None:
    place.configure("source_workspace = false")
    assert not (place.begin() / "world").exists()


def test_the_servers_source_may_be_outside_of_the_world(place: Place) -> None:
    place.configure('server_source = "../../server.py"')
    write(place.world.parents[1], "server.py", text="serve()")
    assert (place.begin() / "server.py").read_text() == "serve()"


def test_a_missing_source_of_the_server_is_named(place: Place) -> None:
    place.configure('server_source = "missing.py"')
    with pytest.raises(ConfigError, match=r"agent\.server_source: must be a readable file, not"):
        place.begin()


def test_copy_of_a_read_only_world_is_writable(place: Place) -> None:
    write(place.world, "lib/a.py")
    (place.world / "lib").chmod(0o555)
    workspace = place.begin()
    (place.world / "lib").chmod(0o755)
    assert (workspace / "world" / "lib").stat().st_mode & 0o777 == 0o755


# -- hostile workspaces -------------------------------------------------------------------------

LINKS = {
    "absolute": "/etc/passwd",
    "escape": "../../../etc/passwd",
    "hidden/escape": "a/../../../etc/passwd",
    "own": "{previous}/SOUL.md",
    "chain": "absolute",
    "sub/inner": "../SOUL.md",
    "loop": "loop",
    "out": "..",
    "back": "back\\slash",
}


def test_only_links_that_stay_inside_are_inherited(place: Place) -> None:
    write(place.previous, "SOUL.md")
    for name, link in LINKS.items():
        (place.previous / name).parent.mkdir(exist_ok=True)
        (place.previous / name).symlink_to(link.format(previous=place.previous))
    workspace = place.inherit()
    kept = {name for name in content(workspace) if (workspace / name).is_symlink()}
    assert kept == {"sub/inner", "chain", "loop", "back"}
    assert (workspace / "sub" / "inner").read_text() == "text"
    assert not (workspace / "chain").exists(), "it would lead to a host file"


def test_a_link_in_a_template_that_leads_out_is_reported(place: Place) -> None:
    (place.template / "passwd").symlink_to("/etc/passwd")
    with structlog.testing.capture_logs() as logs:
        assert content(place.begin()) == set()
    assert logs[0]["entries"] == ["passwd is a link to '/etc/passwd'"]


def test_pipes_and_sockets_are_omitted_without_blocking(place: Place) -> None:
    write(place.previous, "SOUL.md")
    os.mkfifo(place.previous / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place.previous / "socket"))
        assert content(place.inherit()) == {"SOUL.md"}


OBEYED = (
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/hooks/stop.sh",
    ".mcp.json",
    ".codex/config.toml",
    ".gemini/settings.json",
    "sub/.mcp.json",
    ".vscode/tasks.json",
    ".git/hooks/post-checkout",
    "bare.git/hooks/post-checkout",
    ".env",
)
TEXTS = (".claude/skills/fly/SKILL.md", "AGENTS.md", "CLAUDE.md", "notes: day 1.md", "SOUL.md")


def test_settings_that_programs_execute_automatically_are_not_inherited(place: Place) -> None:
    write(place.previous, *OBEYED, *TEXTS)
    assert content(place.inherit()) == set(TEXTS)


def test_template_files_are_all_copied(place: Place) -> None:
    write(place.template, *OBEYED, *TEXTS)
    assert content(place.begin()) == {*OBEYED, *TEXTS}


@pytest.mark.needs("git")
def test_an_inherited_repository_works_without_its_old_configuration(place: Place) -> None:
    git(place.previous, "init", "--quiet")
    git(place.previous, "config", "core.pager", "touch /tmp/owned")
    write(place.previous, "SOUL.md")
    git(place.previous, "add", ".")
    git(place.previous, "commit", "--quiet", "--message", "Remember")
    workspace = place.inherit()
    assert git(workspace, "log", "--format=%s") == "Remember\n"
    assert git(workspace, "status", "--short", "--", "SOUL.md") == ""
    assert "pager" not in (workspace / ".git" / "config").read_text()


@pytest.mark.thorough
@pytest.mark.needs("git")
def test_an_inherited_worktree_replaces_no_repository_of_the_world(place: Place) -> None:
    make_upstream(place.world)
    make_upstream(place.previous / "repo")
    git(place.previous / "repo", "worktree", "add", "--quiet", "../world", "HEAD~1")
    workspace = place.inherit()
    assert (workspace / "world" / ".git").is_dir()
    assert git(workspace / "world", "status", "--porcelain", "top") == ""


@pytest.mark.thorough
@pytest.mark.needs("git")
def test_inherited_worktrees_submodules_and_sparse_checkouts_work(
    place: Place, tmp_path: Path
) -> None:
    library = make_upstream(tmp_path / "library")
    repository = make_upstream(place.previous / "repo")
    git(repository, "submodule", "--quiet", "add", library.as_uri(), "lib")
    git(repository, "commit", "--quiet", "--message", "library")
    git(repository, "sparse-checkout", "set", "a")
    git(repository, "worktree", "add", "--quiet", "../wt", "HEAD~1")
    workspace = place.inherit()
    for name in ("repo", "repo/lib", "wt"):
        before = ask(place.previous / name, place.previous)
        assert ask(workspace / name, workspace) == before, name


def test_too_deep_tree_is_cut_and_the_rest_is_inherited(place: Place) -> None:
    write(place.previous, "SOUL.md")
    make_deep(place.previous, "d")
    depths = [len(path.parts) for path in (place.inherit() / "d").rglob("*")]
    assert "SOUL.md" in content(place.workspace)
    assert len(depths) == MAX_DEPTH - 1
    assert place.left_out == [f"{'d/' * MAX_DEPTH}d cannot be in an archive"[:197] + "..."]


def test_a_workspace_that_became_a_link_is_not_inherited(place: Place, tmp_path: Path) -> None:
    write(tmp_path, "elsewhere/secret")
    place.previous.rmdir()
    place.previous.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="workspace: must be an existing directory"):
        place.inherit()
