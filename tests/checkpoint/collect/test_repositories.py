"""Repositories of real git work after a load like before the save."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from clawblox.checkpoint import load_checkpoint, save_checkpoint
from clawblox.checkpoint.collect import repositories
from clawblox.checkpoint.collect.git_config import write_config
from clawblox.checkpoint.model import Repository
from clawblox.checkpoint.names import _MAX_DEPTH as MAX_DEPTH
from tests.checkpoint.repositories import ask, commit, git, make_upstream, serve
from tests.support.sampling import sampled, usually

pytestmark = pytest.mark.needs("git")

URL = "https://example.org/up.git"


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """Create an agent directory with an empty workspace."""
    (tmp_path / "old" / "workspace").mkdir(parents=True)
    return tmp_path / "old"


@pytest.fixture
def workspace(agent: Path) -> Path:
    return agent / "workspace"


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    directory = make_upstream(tmp_path / "served" / "up.git")
    git(directory, "config", "uploadpack.allowFilter", "true")  # the only filter of file clones
    return directory


Travel = Callable[[], dict[str, Any]]


@pytest.fixture
def travel(agent: Path, tmp_path: Path) -> Travel:
    """Return a function that saves the agent and returns the result of loading it elsewhere."""

    def _travel() -> dict[str, Any]:
        archive = save_checkpoint(tmp_path / "a.ckpt", agents={"a": agent})
        return load_checkpoint(archive, tmp_path / "new")

    return _travel


def moved(loaded: Mapping[str, Any]) -> Path:
    return loaded["agents"]["a"] / "workspace"


def reasons(loaded: Mapping[str, Any]) -> dict[str, str]:
    """Return the reasons for excluded entries of the workspace."""
    excluded = loaded["metadata"]["excluded"]
    return {item["path"].removeprefix("agents/a/workspace/"): item["reason"] for item in excluded}


def assert_same(old: Path, new: Path, repository: str, *more: str) -> dict[str, tuple[int, str]]:
    before, after = ask(old / repository, old, *more), ask(new / repository, new, *more)
    assert after == before
    assert all(status == 0 for status, _ in before.values()), before
    return before


def read_settings(repository: Path) -> list[str]:
    listed = git(repository, "config", "--local", "--list")
    return [line for line in listed.splitlines() if not line.startswith("core.")]


def test_git_accepts_the_new_configuration(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(write_config(Repository(path=".git")))
    listed = git(tmp_path, "config", "--file", "config", "--list")
    assert listed.splitlines() == [
        "core.repositoryformatversion=0",
        "core.filemode=true",
        "core.bare=false",
        "core.logallrefupdates=true",
    ]


@pytest.mark.parametrize("hash_name", ["sha1", "sha256"])
@pytest.mark.parametrize("is_packed", usually([False, True], True))
def test_a_restored_repository_works(
    workspace: Path, travel: Travel, hash_name: str, is_packed: bool
) -> None:
    make_upstream(workspace / "repo", f"--object-format={hash_name}")
    git(workspace / "repo", "branch", "other", "HEAD~1")
    if is_packed:
        git(workspace / "repo", "gc", "-q")
    loaded = travel()
    assert_same(workspace, moved(loaded), "repo")
    assert not (moved(loaded) / "repo" / ".git" / "hooks").exists()
    assert loaded["git_hosts"] == {}
    assert loaded["metadata"]["repositories"] == []


def test_a_restored_split_index_works(workspace: Path, travel: Travel) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "update-index", "--split-index")
    assert_same(workspace, moved(travel()), "repo")


def test_a_restored_shallow_clone_works(workspace: Path, upstream: Path, travel: Travel) -> None:
    git(workspace, "clone", "-q", "--depth", "2", upstream.as_uri(), "repo")
    assert_same(workspace, moved(travel()), "repo")


# Partial clones


@pytest.mark.thorough
@pytest.mark.needs("openssl")
@pytest.mark.parametrize("is_old_style", [False, True])
def test_git_fetches_missing_objects_of_a_partial_clone_after_a_load(
    workspace: Path, upstream: Path, travel: Travel, tmp_path: Path, is_old_style: bool
) -> None:
    with serve(upstream.parent, tmp_path) as (address, requests):
        git(workspace, "clone", "-q", "--filter=blob:none", f"{address}/up.git", "repo")
        if is_old_style:
            git(workspace / "repo", "config", "--unset", "remote.origin.promisor")
            git(workspace / "repo", "config", "extensions.partialClone", "origin")
        git(workspace / "repo", "config", "remote.origin.uploadpack", "evil")
        loaded = travel()
        requests.clear()
        assert git(moved(loaded) / "repo", "show", "HEAD~2:a/x") == "one\n"
        assert requests
        git(workspace / "repo", "config", "--unset", "remote.origin.uploadpack")
        assert_same(workspace, moved(loaded), "repo", "show HEAD~1:a/x")
    host = address.removeprefix("https://")
    assert loaded["git_hosts"] == {"a": {"repo/.git": [host]}}
    promised = [
        f"remote.origin.url={address}/up.git",
        "remote.origin.promisor=true",
        "remote.origin.partialclonefilter=blob:none",
    ]
    extension = ["extensions.partialclone=origin"] if is_old_style else []
    assert read_settings(moved(loaded) / "repo") == extension + promised


@pytest.mark.parametrize(
    "url",
    [
        None,
        "ssh://git@example.org/up.git",
        "git@example.org:up.git",
        "git://example.org/up.git",
        "http://example.org/up.git",
        "ext::sh -c evil",
        "https://user@example.org/up.git",
        "https://user:word@example.org/up.git",
        "https://example.org/up.git?private=1",
        "https://example.org/up.git#x",
        "https://exa%0ample.org/up.git",
        "https://example.org/up%0a.git",
        "https://-example.org/up.git",
        "https://example.org",
        "https:///up.git",
    ],
)
def test_an_address_that_is_not_plain_https_is_named_and_not_kept(
    workspace: Path, upstream: Path, travel: Travel, url: str | None
) -> None:
    git(workspace, "clone", "-q", "--filter=blob:none", upstream.as_uri(), "repo")
    git(workspace / "repo", "config", "extensions.partialClone", "origin")
    if url is not None:
        config = workspace / "repo" / ".git" / "config"
        config.write_text(config.read_text().replace(upstream.as_uri(), f'"{url}"'))
    loaded = travel()
    assert read_settings(moved(loaded) / "repo") == PARTIAL_WITHOUT_ADDRESS
    assert loaded["git_hosts"] == {}
    assert reasons(loaded)["repo/.git/config"] == (
        "the address of a remote with missing objects is not plain https, so git cannot fetch them"
    )
    assert git(moved(loaded) / "repo", "fsck") == ""


PARTIAL_WITHOUT_ADDRESS = [
    "extensions.partialclone=origin",
    "remote.origin.promisor=true",
    "remote.origin.partialclonefilter=blob:none",
]


def test_a_partial_clone_without_an_address_does_not_look_damaged(
    workspace: Path, upstream: Path, travel: Travel
) -> None:
    git(workspace, "clone", "-q", "--filter=blob:none", upstream.as_uri(), "repo")
    new = moved(travel()) / "repo"
    assert git(new, "fsck") == git(new, "status", "--porcelain") == ""
    with pytest.raises(AssertionError, match="could not fetch"):
        git(new, "show", "HEAD~1:a/x")
    git(new, "remote", "set-url", "origin", upstream.as_uri())
    assert_same(workspace, new.parent, "repo")


def test_a_partial_clone_without_its_remote_stays_a_partial_clone(
    workspace: Path, upstream: Path, travel: Travel
) -> None:
    git(workspace, "clone", "-q", "--filter=blob:none", upstream.as_uri(), "repo")
    git(workspace / "repo", "config", "extensions.partialClone", "origin")
    git(workspace / "repo", "config", "--remove-section", "remote.origin")
    new = moved(travel())
    assert git(new / "repo", "fsck") == git(workspace / "repo", "fsck") == ""


def test_a_remote_with_an_invalid_name_does_not_affect_other_settings(
    workspace: Path, upstream: Path, travel: Travel
) -> None:
    git(workspace, "clone", "-q", "--filter=blob:none", upstream.as_uri(), "repo")
    git(workspace / "repo", "config", "remote.origin.url", URL)
    git(workspace / "repo", "config", "remote.my remote.url", URL)
    git(workspace / "repo", "config", "remote.my remote.promisor", "true")
    git(workspace / "repo", "sparse-checkout", "set", "a")
    loaded = travel()
    assert loaded["git_hosts"] == {"a": {"repo/.git": ["example.org"]}}
    assert "repo/.git/config" in reasons(loaded)
    assert git(moved(loaded) / "repo", "sparse-checkout", "list") == "a\n"


@pytest.mark.parametrize("is_plain_first", [True, False])
def test_of_several_addresses_the_fetch_address_counts(
    workspace: Path, upstream: Path, travel: Travel, is_plain_first: bool
) -> None:
    git(workspace, "clone", "-q", "--filter=blob:none", upstream.as_uri(), "repo")
    if is_plain_first:
        git(workspace / "repo", "config", "--unset", "remote.origin.url")
        git(workspace / "repo", "config", "--add", "remote.origin.url", URL)
        git(workspace / "repo", "config", "--add", "remote.origin.url", upstream.as_uri())
    else:
        git(workspace / "repo", "config", "--add", "remote.origin.url", URL)
    assert bool(travel()["git_hosts"]) is is_plain_first


def test_an_unknown_filter_is_not_kept(workspace: Path, upstream: Path, travel: Travel) -> None:
    git(workspace, "clone", "-q", "--filter=tree:0", upstream.as_uri(), "repo")
    git(workspace / "repo", "config", "remote.origin.url", URL)
    git(workspace / "repo", "config", "remote.origin.partialclonefilter", "sparse:path=x")
    loaded = travel()
    origin = [f"remote.origin.url={URL}", "remote.origin.promisor=true"]
    assert read_settings(moved(loaded) / "repo") == origin


def test_other_settings_of_a_repository_are_not_archived(
    workspace: Path, upstream: Path, travel: Travel
) -> None:
    git(workspace, "clone", "-q", "--filter=blob:none", upstream.as_uri(), "repo")
    evil = {
        "core.fsmonitor": "evil",
        "core.sshCommand": "evil",
        "core.hooksPath": "evil",
        "include.path": "evil",
        "remote.origin.proxy": "evil",
        "remote.origin.vcs": "evil",
        "remote.plain.url": URL,
        "submodule.x.update": "!evil",
        "submodule.x.url": "ext::evil",
        "filter.lfs.smudge": "evil",
        "url.ext::evil.insteadOf": "https:",
    }
    git(workspace / "repo", "config", "remote.origin.url", URL)
    for key, value in evil.items():
        git(workspace / "repo", "config", key, value)
    loaded = travel()
    assert read_settings(moved(loaded) / "repo") == [
        f"remote.origin.url={URL}",
        "remote.origin.promisor=true",
        "remote.origin.partialclonefilter=blob:none",
        "submodule.x.active=true",
    ]
    assert b"evil" not in (moved(loaded) / "repo" / ".git" / "config").read_bytes()


# Sparse checkouts


@pytest.mark.parametrize(
    "options",
    sampled(
        [["--cone", "--sparse-index", "a"], ["--no-cone", "/a/", "/top"], ["--cone", "a"]], every=3
    ),
)
def test_a_sparse_checkout_stays_sparse(
    workspace: Path, travel: Travel, options: list[str]
) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "sparse-checkout", "set", *options)
    loaded = travel()
    said = assert_same(workspace, moved(loaded), "repo", "sparse-checkout list")
    assert any("S b/c/y" in text or "--sparse-index" in options for _, text in said.values())
    assert not (moved(loaded) / "repo" / "b").exists()


def test_settings_of_a_sparse_checkout_in_the_main_configuration_count(
    workspace: Path, travel: Travel
) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "sparse-checkout", "set", "a")
    own = workspace / "repo" / ".git" / "config.worktree"
    config = workspace / "repo" / ".git" / "config"
    config.write_text(config.read_text().replace("worktreeConfig = true", "") + own.read_text())
    own.unlink()
    assert_same(workspace, moved(travel()), "repo", "sparse-checkout list")


@pytest.mark.thorough
def test_each_worktree_keeps_its_own_sparse_checkout(workspace: Path, travel: Travel) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "sparse-checkout", "set", "a")
    git(workspace / "repo", "worktree", "add", "-q", "../wt", "HEAD~1")
    git(workspace / "wt", "sparse-checkout", "set", "b")
    git(workspace / "repo", "worktree", "add", "-q", "../whole", "HEAD~2")
    git(workspace / "whole", "sparse-checkout", "disable")
    new = moved(travel())
    for name in ("repo", "wt"):
        assert_same(workspace, new, name, "sparse-checkout list")
    assert git(new / "whole", "status", "--porcelain") == ""
    assert (new / "whole" / "b" / "c" / "y").exists()


# Worktrees


def test_worktrees_in_the_workspace_are_connected_again(workspace: Path, travel: Travel) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "worktree", "add", "-q", "-b", "topic", "../deep/wt", "HEAD~1")
    git(workspace / "repo", "worktree", "add", "-q", "--detach", "inner", "HEAD~1")
    git(workspace / "repo", "worktree", "lock", "--reason", "in use", "inner")
    (workspace / "deep" / "wt" / "top").write_text("changed\n")
    git(workspace / "deep" / "wt", "stash")
    (workspace / "deep" / "wt" / "new").write_text("new\n")
    git(workspace / "deep" / "wt", "add", "new")
    git(workspace / "repo", "config", "core.fsmonitor", "evil")
    git(workspace / "repo", "config", "--unset", "core.fsmonitor")
    loaded = travel()
    new = moved(loaded)
    for name in ("repo", "repo/inner"):
        said = assert_same(workspace, new, name)
        assert "WORKSPACE/deep/wt" in said["4 worktree list --porcelain"][1]
        assert "locked in use" in said["4 worktree list --porcelain"][1]
    for question in ("status --porcelain=v2 --branch", "log", "fsck", "stash list", "show"):
        words = question.split()
        assert git(new / "deep" / "wt", *words) == git(workspace / "deep" / "wt", *words)
    commit(new / "deep" / "wt", more="x")
    git(new / "repo", "worktree", "remove", "../deep/wt")
    assert "repo/inner/.git" not in reasons(loaded)
    assert (new / "repo/inner/.git").read_text() == "gitdir: ../.git/worktrees/inner\n"


def test_a_worktree_outside_of_the_workspace_is_named_and_not_rebuilt(
    workspace: Path, travel: Travel, tmp_path: Path
) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "worktree", "add", "-q", "-b", "topic", str(tmp_path / "wt"))
    git(workspace / "repo", "worktree", "add", "-q", "../gone")
    shutil.rmtree(workspace / "gone")
    loaded = travel()
    for name in ("wt", "gone"):
        why = reasons(loaded)[f"repo/.git/worktrees/{name}"]
        assert why == "its worktree is not in the archive"
    assert not (moved(loaded) / "repo/.git/worktrees").exists()
    git(moved(loaded) / "repo", "checkout", "-q", "topic")
    assert git(moved(loaded) / "repo", "worktree", "list").count("\n") == 1


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_worktree_of_a_repository_outside_is_named_and_not_rebuilt(
    workspace: Path, travel: Travel, tmp_path: Path, is_relative: bool
) -> None:
    make_upstream(tmp_path / "repo")
    git(tmp_path / "repo", "worktree", "add", "-q", str(workspace / "wt"))
    if is_relative:
        (workspace / "wt" / ".git").write_text("gitdir: ../../../repo/.git/worktrees/wt\n")
        git(workspace / "wt", "status")
    loaded = travel()
    assert reasons(loaded) == {"wt/.git": "its repository is outside of the workspace"}
    assert not (moved(loaded) / "wt" / ".git").exists()
    assert (moved(loaded) / "wt" / "top").read_text() == "three\n"


def test_a_worktree_created_in_a_sandbox_keeps_its_sandbox_path(
    workspace: Path, travel: Travel
) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "worktree", "add", "-q", "../wt", "HEAD~1")
    (workspace / "wt" / ".git").write_text("gitdir: /workspace/repo/.git/worktrees/wt\n")
    (workspace / "repo/.git/worktrees/wt/gitdir").write_text("/workspace/wt/.git\n")
    new = moved(travel())
    assert (new / "repo/.git/worktrees/wt/gitdir").read_text() == "/workspace/wt/.git\n"
    assert (new / "wt" / ".git").read_text() == "gitdir: ../repo/.git/worktrees/wt\n"
    assert git(new / "wt", "status", "--porcelain") == ""


def test_a_worktree_in_an_unsandboxed_workspace_gets_its_new_path(
    workspace: Path, travel: Travel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repositories, "SANDBOX_WORKSPACE", workspace)
    make_upstream(workspace / "repo")
    git(workspace / "repo", "worktree", "add", "-q", "../wt", "HEAD~1")
    new = moved(travel())
    assert (new / "repo/.git/worktrees/wt/gitdir").read_text() == f"{new}/wt/.git\n"


# Submodules


def add_submodule(repository: Path, upstream: Path, path: str) -> None:
    git(repository, "submodule", "--quiet", "add", upstream.as_uri(), path)
    git(repository, "commit", "-q", "-m", f"add {path}")


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a repository with nested submodules."""
    place = tmp_path_factory.mktemp("nested")
    upstream = make_upstream(place / "up.git")
    middle = make_upstream(place / "middle")
    add_submodule(middle, upstream, "libs/inner")
    outer = make_upstream(place / "outer")
    add_submodule(outer, middle, "libs/middle")
    add_submodule(outer, upstream, "refs")  # its name is also used inside git directories
    commit(outer, top="last\n")
    return outer


def test_submodules_are_connected_again(workspace: Path, nested: Path, travel: Travel) -> None:
    git(workspace, "clone", "-q", "--recurse-submodules", nested.as_uri(), "repo")
    loaded = travel()
    new = moved(loaded)
    said = assert_same(workspace, new, "repo", "submodule summary")
    assert said["8 submodule status --recursive"][1].count("\n") == 2
    for name in ("libs/middle", "libs/middle/libs/inner", "refs"):
        assert_same(workspace, new, f"repo/{name}")
        commit(new / "repo" / name, more="x")
    pointer = new / "repo/libs/middle/libs/inner/.git"
    target = "../../../../.git/modules/libs/middle/modules/libs/inner"
    assert pointer.read_text() == f"gitdir: {target}\n"
    out = reasons(loaded)
    assert out["repo/.git/modules/refs/hooks"] == "not part of a repository's content"
    assert not [path for path in out if path.endswith(("/.git", ".sample"))]


@pytest.mark.thorough
def test_submodules_that_are_not_checked_out_remain_so(
    workspace: Path, nested: Path, travel: Travel
) -> None:
    git(workspace, "clone", "-q", nested.as_uri(), "repo")
    git(workspace / "repo", "submodule", "--quiet", "init", "refs")
    git(workspace / "repo", "submodule", "--quiet", "update", "--init", "libs/middle")
    git(workspace / "repo", "submodule", "--quiet", "deinit", "libs/middle")
    git(workspace / "repo", "config", "submodule.off.url", URL)
    git(workspace / "repo", "config", "submodule.off.active", "false")
    new = moved(travel())
    said = assert_same(workspace, new, "repo")
    assert said["8 submodule status --recursive"][1].startswith("-")
    assert read_settings(new / "repo") == ["submodule.refs.active=true"]
    git(new / "repo", "submodule", "--quiet", "update", "--init", "libs/middle")
    assert (new / "repo/libs/middle/top").exists()


@pytest.mark.thorough
def test_a_sparse_submodule_with_a_worktree_works(
    workspace: Path, upstream: Path, travel: Travel
) -> None:
    make_upstream(workspace / "repo")
    add_submodule(workspace / "repo", upstream, "lib")
    git(workspace / "repo/lib", "worktree", "add", "-q", str(workspace / "wt"), "HEAD~1")
    git(workspace / "repo/lib", "sparse-checkout", "set", "a")
    new = moved(travel())
    for name in ("repo", "repo/lib", "wt"):
        assert_same(workspace, new, name)


@pytest.mark.thorough
def test_a_submodule_with_a_git_directory_of_its_own_works(
    workspace: Path, upstream: Path, travel: Travel
) -> None:
    make_upstream(workspace / "repo")
    git(workspace, "clone", "-q", upstream.as_uri(), "repo/lib")
    git(workspace / "repo", "submodule", "--quiet", "add", upstream.as_uri(), "./lib")
    git(workspace / "repo", "commit", "-q", "-m", "lib")
    commit(workspace / "repo", top="x")
    assert (workspace / "repo/lib/.git").is_dir()
    assert_same(workspace, moved(travel()), "repo")


@pytest.mark.thorough
def test_worktrees_of_submodules_and_submodules_of_worktrees_work(
    workspace: Path, nested: Path, travel: Travel
) -> None:
    git(workspace, "clone", "-q", "--recurse-submodules", nested.as_uri(), "repo")
    git(workspace / "repo/libs/middle", "worktree", "add", "-q", str(workspace / "m"), "HEAD~1")
    git(workspace / "repo", "worktree", "add", "-q", "../wt", "HEAD~1")
    git(workspace / "wt", "submodule", "--quiet", "update", "--init", "refs")
    new = moved(travel())
    for name in ("repo/libs/middle", "m", "wt/refs"):
        assert_same(workspace, new, name)
    words = ("submodule", "status")
    assert git(new / "wt", *words) == git(workspace / "wt", *words)


@pytest.mark.thorough
def test_a_second_directory_of_a_submodule_is_named_and_not_rebuilt(
    workspace: Path, nested: Path, travel: Travel
) -> None:
    git(workspace, "clone", "-q", "--recurse-submodules", nested.as_uri(), "repo")
    shutil.copytree(workspace / "repo/refs", workspace / "repo/aaa")
    loaded = travel()
    assert reasons(loaded)["repo/aaa/.git"] == "would lead to configuration elsewhere"
    assert_same(workspace, moved(loaded), "repo/refs")


# Odd and hostile workspaces


def test_a_workspace_that_is_itself_a_worktree_of_a_repository_in_it_works(
    workspace: Path, travel: Travel
) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "worktree", "add", "-q", "../wt", "HEAD~1")
    for path in (workspace / "wt").iterdir():
        path.rename(workspace / path.name)
    (workspace / "wt").rmdir()
    git(workspace / "repo", "worktree", "repair", "..")
    new = moved(travel())
    assert (new / ".git").read_text() == "gitdir: repo/.git/worktrees/wt\n"
    assert_same(workspace, new, "")


@pytest.mark.parametrize(
    "common", sampled(["../../../../elsewhere/.git", "/etc", ".", "", "../../refs"], every=4)
)
def test_a_worktree_with_another_common_directory_is_not_rebuilt(
    workspace: Path, travel: Travel, common: str
) -> None:
    make_upstream(workspace / "repo")
    make_upstream(workspace / "elsewhere")
    git(workspace / "repo", "worktree", "add", "-q", "../wt", "HEAD~1")
    (workspace / "repo/.git/worktrees/wt/commondir").write_text(f"{common}\n")
    loaded = travel()
    assert reasons(loaded)["repo/.git/worktrees/wt"] == "its worktree is not in the archive"
    assert not (moved(loaded) / "wt/.git").exists()
    assert not (moved(loaded) / "repo/.git/worktrees").exists()


@pytest.mark.parametrize(
    "pointer",
    sampled(
        [
            "../repo/.git",
            "../repo/.git/refs",
            "../repo/.git/hooks",
            "../store.git",
            "../repo/.git/modules/none",
            "../repo/.git/worktrees/wt/../../",
        ],
        every=6,
    ),
)
def test_a_file_that_leads_to_another_place_in_the_workspace_is_not_rebuilt(
    workspace: Path, travel: Travel, pointer: str
) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "worktree", "add", "-q", "../wt", "HEAD~1")
    git(workspace, "init", "-q", "--bare", "store.git")
    (workspace / "other").mkdir()
    (workspace / "other/.git").write_text(f"gitdir: {pointer}\n")
    loaded = travel()
    assert reasons(loaded)["other/.git"] == "would lead to configuration elsewhere"
    assert not (moved(loaded) / "other/.git").exists()
    assert_same(workspace, moved(loaded), "wt")


def test_odd_files_in_place_of_git_files_do_not_prevent_a_save(
    workspace: Path, travel: Travel, tmp_path: Path
) -> None:
    promisor = b'[remote "o"]\n\tpromisor = true\n\turl = https://a/b\n'
    (tmp_path / "config").write_bytes(promisor)
    names = ("piped", "linked", "large", "directory")
    for name in names:
        make_upstream(workspace / name)
        (workspace / name / ".git" / "config").unlink()
        (workspace / f"wt-{name}").mkdir()
    os.mkfifo(workspace / "piped" / ".git" / "config")
    (workspace / "linked" / ".git" / "config").symlink_to(tmp_path / "config")
    (workspace / "large" / ".git" / "config").write_bytes(promisor + b"#" * (1 << 20))
    (workspace / "directory" / ".git" / "config").mkdir()
    os.mkfifo(workspace / "wt-piped" / ".git")
    (workspace / "wt-linked" / ".git").symlink_to("../linked/.git")
    (workspace / "wt-large" / ".git").write_bytes(b"gitdir: ../large/.git" + b"\n" * 10_000)
    (workspace / "wt-directory" / ".git").write_bytes(b"gitdir: \xff\0\n")
    loaded = travel()
    assert loaded["metadata"]["repositories"] == []
    for name in names:
        assert git(moved(loaded) / name, "log", "--format=%s").count("\n") == 3
        assert not (moved(loaded) / f"wt-{name}" / ".git").exists()


@pytest.mark.thorough
def test_the_settings_of_all_repositories_together_are_bounded(
    workspace: Path, travel: Travel
) -> None:
    config = "".join(f'[remote "r{number}"]\n\tpromisor\n' for number in range(40_000)).encode()
    for number in range(10):
        git_dir = workspace / f"r{number}" / ".git"
        git_dir.mkdir(parents=True)
        (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
        (git_dir / "config").write_bytes(config[: 1 << 20])
    loaded = travel()
    assert len(loaded["metadata"]["repositories"]) == 4
    why = [reasons(loaded)[f"r{number}/.git/config"] for number in range(10)]
    assert why.count("is too large to be read, alone or with others in the workspace") == 6


def test_a_worktrees_own_settings_override_those_of_its_repository(
    workspace: Path, travel: Travel
) -> None:
    make_upstream(workspace / "repo")
    git(workspace / "repo", "worktree", "add", "-q", "../wt")
    git(workspace / "repo", "sparse-checkout", "set", "a")
    git(workspace / "repo", "config", "index.sparse", "true")
    git(workspace / "wt", "config", "--worktree", "index.sparse", "false")
    new = moved(travel())
    for name, flag in {"repo": "true", "wt": "false"}.items():
        assert git(workspace / name, "config", "--bool", "index.sparse") == f"{flag}\n"
        assert git(new / name, "config", "--bool", "index.sparse") == f"{flag}\n"


@pytest.mark.thorough
def test_forbidden_names_in_excluded_directories_are_ignored(
    workspace: Path, nested: Path, travel: Travel
) -> None:
    git(workspace, "clone", "-q", "--recurse-submodules", nested.as_uri(), "repo")
    os.makedirs(os.fsencode(workspace / "repo/.git/modules/refs/hooks") + b"/\xff")
    assert "repo/.git/modules/refs/hooks" in reasons(travel())


def test_a_directory_that_only_resembles_a_git_directory_is_left_out_however_spelled(
    workspace: Path, travel: Travel
) -> None:
    make_upstream(workspace / "repo")
    parts = ("MODULES/x/objects", "modules/x/objects", "modul\uff45s/x/objects", "worktrees/x/logs")
    for part in parts:
        (workspace / "repo/.git" / part).mkdir(parents=True)
        (workspace / "repo/.git" / part / "y").write_text("")
    loaded = travel()
    assert {f"repo/.git/{part.split('/')[0]}" for part in parts} <= reasons(loaded).keys()
    assert not list((moved(loaded) / "repo/.git").rglob("y"))


@pytest.mark.thorough
def test_a_worktree_at_the_maximum_depth_does_not_prevent_a_save(
    workspace: Path, travel: Travel
) -> None:
    make_upstream(workspace / "repo")
    depth = MAX_DEPTH - len(("agents", "a", "workspace"))
    worktrees = {"fits": ["d"] * (depth - 1), "deep": ["e"] * depth}
    for name, parts in worktrees.items():
        place = workspace.joinpath(*parts)
        git(workspace / "repo", "worktree", "add", "-q", "--no-checkout", str(place))
        (workspace / "repo/.git/worktrees" / parts[0]).rename(
            workspace / "repo/.git/worktrees" / name
        )
        place.joinpath(".git").write_text(f"gitdir: {workspace}/repo/.git/worktrees/{name}\n")
    loaded = travel()
    assert {Path(each["path"]).name for each in loaded["metadata"]["repositories"]} == {"fits"}
    assert "repo/.git/worktrees/deep" in reasons(loaded)


@pytest.mark.parametrize(
    "name",
    usually(['a "repo"', "back\\slash", "line\nbreak", "tab\t", "cr\r", " . "], "line\nbreak"),
)
def test_repositories_with_odd_paths_are_connected_again(
    workspace: Path, nested: Path, travel: Travel, name: str
) -> None:
    git(workspace, "clone", "-q", "--recurse-submodules", nested.as_uri(), name)
    git(workspace / name, "worktree", "add", "-q", f"../wt {name}", "HEAD~1")
    git(workspace / name, "sparse-checkout", "set", "libs")
    git(workspace / name, "worktree", "add", "-q", f"deep/{name}", "HEAD~1")
    new = moved(travel())
    for path in (name, f"{name}/libs/middle", f"wt {name}", f"{name}/deep/{name}"):
        assert_same(workspace, new, path)


@pytest.mark.parametrize("is_sparse", usually([False, True], True))
def test_a_git_directory_without_a_work_tree_of_its_own_works(
    workspace: Path, upstream: Path, travel: Travel, is_sparse: bool
) -> None:
    git(workspace, "clone", "-q", "--bare", upstream.as_uri(), "repo/.git")
    for name in ("main", "other"):
        git(workspace / "repo", "worktree", "add", "-q", "-b", f"{name}2", name)
    if is_sparse:
        git(workspace / "repo/main", "sparse-checkout", "set", "a")
    new = moved(travel())
    for name in ("main", "other"):
        assert_same(workspace, new, f"repo/{name}")
