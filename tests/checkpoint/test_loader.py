"""A load restores all members to their places, or changes no file."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import structlog

from clawblox.agents.programs.program import project_slug
from clawblox.checkpoint import load_checkpoint
from clawblox.checkpoint.collect import plan as tiers
from clawblox.checkpoint.collect.conversations import find_format
from clawblox.checkpoint.collect.git_config import write_config
from clawblox.checkpoint.load import staging
from clawblox.checkpoint.load.load import load
from clawblox.checkpoint.model import Limits, Repository
from clawblox.checkpoint.options import LoadOptions
from clawblox.errors import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointPathError,
)
from clawblox.system import files
from clawblox.views.archives import describe_loaded, describe_next_steps
from tests.checkpoint.archives import (
    EXECUTABLE,
    Member,
    archive,
    bare_checkpoint,
    checkpoint,
    describe,
    described,
    metadata_member,
    tree_of,
)
from tests.checkpoint.collect.test_policy import CAPABILITIES, CREDENTIALS, REPOSITORY
from tests.checkpoint.repositories import git, make_upstream

WORKSPACE = "agents/a/workspace/"
FRESH_CONFIG = write_config(Repository(path=".git"))
CONTENTS = {
    "world.snapshot": b'{"format": "x"}',
    "agents/a/workspace/notes.txt": b"notes",
    "agents/a/workspace/src/deep/empty": b"",
    "agents/b/workspace/ü.txt": b"other",
}
SESSION_ID = "0190c6a0-1111-4222-8333-444455556666"
CLAUDE = {"backend": "claude", "session_format": "claude-code-v1", "session_id": SESSION_ID}


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "around" / "run"


@pytest.fixture
def existing(run_dir):
    """Create a run directory with the files of a run."""
    for name in ("runtime", "recordings", "logs", "agents/other/workspace"):
        (run_dir / name).mkdir(parents=True)
    (run_dir / "logs" / "world.log").write_bytes(b"log")
    return run_dir


@pytest.fixture
def load_bytes(tmp_path):
    def _load(data, run_dir, **options):
        path = tmp_path / "a.ckpt"
        path.write_bytes(data)
        return load_checkpoint(path, run_dir, **{"limits": Limits(), **options})

    return _load


@pytest.fixture
def refuse(load_bytes, tmp_path):
    """Return a check that a load is refused, names the existing path, and changes no file."""

    def check(run_dir, error=CheckpointError, *, data=None, place=None, reason=None, **options):
        around = tmp_path / "around"
        before = tree_of(around)
        with pytest.raises(error, match=reason) as refused:
            load_bytes(data or checkpoint(CONTENTS), run_dir, **options)
        assert tree_of(around) == before
        if place is not None:
            assert refused.value.path == place
        return refused.value

    return check


def files_of(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def never(done, total):
    pytest.fail("content was read before it was seen that something is in the way")


def modes_of(directory):
    return {stat.S_IMODE(path.lstat().st_mode) for path in directory.rglob("*")}


@pytest.mark.parametrize("kind", ["missing", "missing with its parents", "empty", "existing"])
def test_all_members_are_restored_to_their_places(load_bytes, run_dir, kind):
    if kind == "missing with its parents":
        run_dir = run_dir / "of" / "some" / "name"
    elif kind == "empty":
        run_dir.mkdir(parents=True)
    elif kind == "existing":
        (run_dir / "agents" / "other").mkdir(parents=True)
    loaded = load_bytes(checkpoint(CONTENTS, generation=3), run_dir)
    assert loaded["world_snapshot"] == run_dir / "world.snapshot"
    assert loaded["agents"] == {name: run_dir / "agents" / name for name in "ab"}
    assert loaded["metadata"]["generation"] == 3
    assert loaded["excluded"] == []
    assert loaded["verified"] is True
    assert files_of(run_dir) == CONTENTS
    assert sorted(os.listdir(run_dir)) == ["agents", "world.snapshot"]
    assert modes_of(loaded["agents"]["a"]) == {0o600, 0o700}


def test_a_relative_path_is_loaded_to_an_absolute_one(load_bytes):
    loaded = load_bytes(checkpoint(CONTENTS), Path("somewhere/../run"))
    assert loaded["agents"]["a"] == Path.cwd() / "run" / "agents" / "a"
    for path in sorted(Path("run").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    Path("run").rmdir()


def test_other_contents_of_a_run_directory_are_kept(load_bytes, existing):
    before = tree_of(existing / "logs"), tree_of(existing / "agents" / "other")
    load_bytes(checkpoint(CONTENTS), existing)
    assert before == (tree_of(existing / "logs"), tree_of(existing / "agents" / "other"))
    assert {*os.listdir(existing)} == {"runtime", "recordings", "logs", "agents", "world.snapshot"}
    assert {*os.listdir(existing / "agents")} == {"a", "b", "other"}


def test_an_archive_without_digests_loads_and_is_reported_as_unverified(load_bytes, run_dir):
    members = [Member(name, content) for name, content in CONTENTS.items()]
    loaded = load_bytes(bare_checkpoint(*members, agents=["a"]), run_dir)
    assert loaded["verified"] is False
    assert files_of(run_dir) == CONTENTS
    assert list(loaded["agents"]) == ["a", "b"]


def test_an_agent_without_files_gets_a_workspace(load_bytes, run_dir):
    loaded = load_bytes(bare_checkpoint(agents={"lonely": {}}), run_dir)
    assert (loaded["agents"]["lonely"] / "workspace").is_dir()
    assert loaded["world_snapshot"] is None


def test_an_empty_archive_makes_an_empty_run_directory(load_bytes, run_dir):
    load_bytes(bare_checkpoint(), run_dir)
    assert list(run_dir.iterdir()) == []


def test_permissions_and_times_are_restored_within_bounds(load_bytes, run_dir):
    times = {"then": 10**18 + 1, "before": -(10**30), "after": 10**30}
    names = {name: f"{WORKSPACE}{name}" for name in times}
    document = describe({})
    document["files"] = {
        names[name]: described(b"x", mode=0o700, mtime_ns=mtime) for name, mtime in times.items()
    }
    members = [Member(names[name], b"x", fields={"external": EXECUTABLE}) for name in times]
    old = os.umask(0o277)
    try:
        loaded = load_bytes(archive(metadata_member(document), *members), run_dir)
    finally:
        os.umask(old)
    found = {name: (loaded["agents"]["a"] / "workspace" / name).stat() for name in times}
    assert found["then"].st_mtime_ns == times["then"]
    assert found["before"].st_mtime_ns == 0
    assert found["after"].st_mtime_ns > times["then"]
    assert {stat.S_IMODE(status.st_mode) for status in found.values()} == {0o700}


# Existing paths


@pytest.mark.parametrize("name", ["world.snapshot", "agents/a", "agents/b"])
@pytest.mark.parametrize("kind", ["file", "directory", "link", "dangling link"])
def test_an_existing_path_is_named_and_kept(refuse, existing, name, kind):
    place = existing / name
    if kind == "file":
        place.write_bytes(b"mine")
    elif kind == "directory":
        place.mkdir()
    else:
        place.symlink_to(existing.parent if kind == "link" else "nowhere")
    refuse(existing, place=place, reason="already exists", progress=never)


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_a_planted_agents_directory_is_refused(refuse, run_dir, kind):
    run_dir.mkdir(parents=True)
    outside = run_dir.parent / "outside"
    outside.mkdir()
    if kind == "file":
        (run_dir / "agents").write_bytes(b"")
    else:
        (run_dir / "agents").symlink_to(outside if kind == "link" else "nowhere")
    refuse(run_dir, place=run_dir / "agents", reason="in the way")


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "endless link"])
def test_a_path_that_cannot_be_a_run_directory_is_refused(refuse, run_dir, kind):
    outside = run_dir.parent / "outside"
    outside.mkdir(parents=True)
    targets = {"link": outside, "dangling link": "nowhere", "endless link": "run"}
    if kind == "file":
        run_dir.write_bytes(b"")
    else:
        run_dir.symlink_to(targets[kind])
    refuse(run_dir, place=run_dir, reason="in the way")


@pytest.mark.parametrize("target", [None, "nowhere", "parent"])
def test_a_parent_that_is_not_a_directory_is_refused(refuse, run_dir, target):
    run_dir.parent.mkdir()
    parent = run_dir.parent / "parent"
    parent.write_bytes(b"") if target is None else parent.symlink_to(target)
    refuse(parent / "run")


def test_a_parent_may_be_a_link(load_bytes, run_dir, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "around").symlink_to("real")
    loaded = load_bytes(checkpoint(CONTENTS), run_dir)
    assert loaded["agents"]["a"] == tmp_path / "real" / "run" / "agents" / "a"
    assert files_of(tmp_path / "real" / "run") == CONTENTS


def test_a_path_that_appears_during_a_load_is_not_replaced(load_bytes, existing):
    def appear(_done, _total):
        (existing / "agents" / "b").mkdir(exist_ok=True)

    with pytest.raises(CheckpointError, match="already exists") as refused:
        load_bytes(checkpoint(CONTENTS), existing, progress=appear)
    assert refused.value.path == existing / "agents" / "b"
    assert sorted(os.listdir(existing / "agents")) == ["b", "other"]
    assert not (existing / "world.snapshot").exists()
    assert not list(existing.glob(".*"))


def test_a_run_directory_that_appears_during_a_load_is_not_replaced(load_bytes, run_dir):
    run_dir.parent.mkdir()

    def appear(_done, _total):
        run_dir.mkdir(exist_ok=True)

    with pytest.raises(CheckpointError, match="already exists"):
        load_bytes(checkpoint(CONTENTS), run_dir, progress=appear)
    assert os.listdir(run_dir.parent) == ["run"]
    assert os.listdir(run_dir) == []


def test_a_link_planted_during_a_load_is_not_followed(load_bytes, run_dir):
    run_dir.mkdir(parents=True)
    outside = run_dir.parent / "outside"
    outside.mkdir()

    def plant(_done, _total):
        if not (run_dir / "agents").is_symlink():
            (run_dir / "agents").symlink_to(outside)

    with pytest.raises(CheckpointError, match="in the way"):
        load_bytes(checkpoint(CONTENTS), run_dir, progress=plant)
    assert os.listdir(outside) == []
    assert os.listdir(run_dir) == ["agents"]


# Failures


@pytest.mark.parametrize("kind", ["missing", "existing"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(5, "mine"), ValueError])
def test_an_exception_from_progress_ends_the_load(refuse, run_dir, kind, error):
    run_dir.parent.mkdir()
    if kind == "existing":
        run_dir.mkdir()

    def end(done, total):
        assert total == sum(map(len, CONTENTS.values()))
        if done > 15:
            raise error

    refuse(run_dir, error if isinstance(error, type) else type(error), progress=end)


@pytest.mark.parametrize("failing", range(3))
def test_published_paths_are_withdrawn_if_a_later_move_fails(
    refuse, existing, monkeypatch, failing
):
    rename, calls = staging.rename_new, []

    def fail(*names, **places):
        calls.append(names)
        if len(calls) == failing + 1:
            raise OSError(28, "No space left on device")
        rename(*names, **places)

    monkeypatch.setattr(staging, "rename_new", fail)
    refuse(existing, reason="No space left")
    assert len(calls) == 2 * failing + 1


@pytest.mark.parametrize("name", ["sync_file_system", "write_all"])
def test_a_disk_error_fails_the_load(refuse, existing, run_dir, monkeypatch, name):
    def fail(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staging, name, fail)
    refuse(existing, reason="No space left")
    refuse(run_dir / "missing", reason="No space left")


def test_a_directory_that_cannot_be_synced_fails_the_load(refuse, existing, monkeypatch):
    def fail(_fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    refuse(existing, reason="Input/output error")


@pytest.mark.parametrize("kind", ["missing", "existing"])
def test_an_archive_larger_than_the_free_space_is_refused_before_writing(
    refuse, run_dir, monkeypatch, kind
):
    run_dir.mkdir(parents=True)
    total = sum(map(len, CONTENTS.values()))
    disk = os.statvfs(run_dir)
    free = [*disk]
    free[0] = free[1] = 1
    free[4] = total + 1
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(free))
    monkeypatch.setattr(os, "mkdir", None)
    target = run_dir if kind == "existing" else run_dir / "missing"
    refuse(target, CheckpointLimitError, reason=f"{total} bytes")


@pytest.mark.thorough
def test_the_partial_directory_of_a_killed_load_is_removed_by_the_next_load(
    load_bytes, existing, tmp_path
):
    path = tmp_path / "a.ckpt"
    path.write_bytes(checkpoint(CONTENTS))
    program = (
        "import os, signal, sys, pathlib\n"
        "from clawblox.checkpoint import Limits, load_checkpoint\n"
        "def die(done, total):\n"
        "    if done > 15: os.kill(os.getpid(), signal.SIGKILL)\n"
        "load_checkpoint(*map(pathlib.Path, sys.argv[1:]), limits=Limits(), progress=die)\n"
    )
    for target, base in (existing, existing), (existing / "new", existing):
        killed = subprocess.run([sys.executable, "-c", program, path, target])
        assert killed.returncode == -signal.SIGKILL
        (left,) = base.glob(".load.*.partial")
        assert stat.S_IMODE(left.stat().st_mode) == 0o700
        assert not (existing / "world.snapshot").exists()
        assert not (existing / "new").exists()
        load_bytes(checkpoint(CONTENTS), base / f"other-{target.name}")
        assert not left.exists()


def test_the_partial_directory_of_a_running_load_is_not_removed(load_bytes, existing):
    inner = []

    def load_another(_done, _total):
        if not inner:
            inner.append(True)
            load_bytes(checkpoint(CONTENTS), existing / "new")

    load_bytes(checkpoint(CONTENTS), existing, progress=load_another)
    assert files_of(existing / "new") == CONTENTS
    assert (existing / "world.snapshot").exists()


def test_a_load_works_on_file_systems_without_newer_calls(load_bytes, existing, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "_libc", lambda _name: None)
    monkeypatch.setattr(os, "sync", lambda: synced.append(True))
    load_bytes(checkpoint(CONTENTS), existing)
    assert synced
    assert files_of(existing / "agents" / "a") == {
        "workspace/notes.txt": b"notes",
        "workspace/src/deep/empty": b"",
    }
    with pytest.raises(CheckpointError, match="already exists"):
        load_bytes(checkpoint(CONTENTS), existing)


def test_a_path_that_appears_is_not_replaced_without_newer_calls(load_bytes, existing, monkeypatch):
    monkeypatch.setattr(files, "_libc", lambda _name: None)
    monkeypatch.setattr(os, "sync", lambda: (existing / "world.snapshot").write_bytes(b"mine"))
    with pytest.raises(CheckpointError, match="already exists"):
        load_bytes(checkpoint(CONTENTS), existing)
    assert (existing / "world.snapshot").read_bytes() == b"mine"
    assert os.listdir(existing / "agents") == ["other"]


@pytest.mark.parametrize(
    "names",
    [
        ("Notes.txt", "notes.txt"),
        ("d/x", "D/y"),
        ("d", "D/y"),
        ("straße", "STRASSE"),
    ],
)
def test_names_that_the_file_system_treats_as_equal_are_refused(
    refuse, existing, load_bytes, monkeypatch, names
):
    data = checkpoint({f"{WORKSPACE}{name}": b"x" for name in names})
    load_bytes(data, existing / "apart")
    real = {"open": os.open, "mkdir": os.mkdir}

    def folded(name, call):
        def wrapper(path, *args, dir_fd=None, **options):
            if dir_fd is not None:
                path = path.casefold()
            return real[name](path, *args, dir_fd=dir_fd, **options)

        monkeypatch.setattr(call, name, wrapper)

    folded("open", os)
    folded("mkdir", os)
    error = refuse(existing, CheckpointPathError, data=data, reason="collides")
    assert error.entry is not None


# Exclusions


LEFT_OUT = {
    ".mcp.json": b"{}",
    ".CLAUDE/Settings.local.json": b"{}",
    "sub/.claude/hooks/x.sh": b"",
    ".codex/config.toml": b"",
    ".claude/.credentials.json": b"{}",
    ".venv/bin/python": b"",
    ".git/config": b"[core]\n\tfsmonitor = evil\n",
    ".git/hooks/post-checkout": b"evil",
    ".ssh/id_rsa": b"a key",
    ".env": b"CODEX_HOME=./codex",
    ".npmrc": b"",
    ".envrc": b"evil",
    ".vscode/tasks.json": b"{}",
    ".gemini/settings.json": b"{}",
    ".cursor/mcp.json": b"{}",
    "sub/.devcontainer/devcontainer.json": b"{}",
    ".docker/config.json": b"{}",
    "sitecustomize.py": b"evil",
}


def test_capabilities_and_credentials_are_left_out_and_listed(load_bytes, run_dir):
    kept = {"notes.txt": b"x", ".claude/notes.md": b"y", ".git/HEAD": b"ref: refs/heads/main\n"}
    files = {f"{WORKSPACE}{name}": content for name, content in {**LEFT_OUT, **kept}.items()}
    loaded = load_bytes(checkpoint(files), run_dir)
    assert {item["path"] for item in loaded["excluded"]} == {f"{WORKSPACE}{n}" for n in LEFT_OUT}
    assert all(item["reason"] for item in loaded["excluded"])
    workspace = loaded["agents"]["a"] / "workspace"
    assert files_of(workspace) == {**kept, ".git/config": FRESH_CONFIG}


def test_files_that_a_save_never_writes_are_never_restored(load_bytes, run_dir, tmp_path):
    names = [*CREDENTIALS, *CAPABILITIES, *REPOSITORY]
    agent = tmp_path / "saved"
    for name in names:
        (agent / "workspace" / name).parent.mkdir(parents=True, exist_ok=True)
        (agent / "workspace" / name).write_bytes(b"")
    planned = tiers.plan({"a": agent}, backend=None, workspace_only=True)
    assert planned.sources == []
    left_out = [excluded.path for excluded in planned.excluded]
    members = {f"{WORKSPACE}{name}" for name in names}
    assert all(any(f"{name}/".startswith(f"{out}/") for out in left_out) for name in members)
    loaded = load_bytes(checkpoint(dict.fromkeys(members, b"")), run_dir)
    assert {item["path"] for item in loaded["excluded"]} == members
    assert files_of(loaded["agents"]["a"] / "workspace") == {}


def test_links_and_directories_with_excluded_names_are_not_restored(load_bytes, run_dir):
    names = (".vscode", ".ssh", ".gemini", ".config", "sub/.env")
    links = [{"path": f"{WORKSPACE}{name}", "target": "notes"} for name in names]
    directories = [f"{WORKSPACE}deep/{name}" for name in (".vscode", ".ssh", ".config/gh")]
    members = {f"{WORKSPACE}notes/x": b""}
    loaded = load_bytes(checkpoint(members, symlinks=links, directories=directories), run_dir)
    left_out = {item["path"] for item in loaded["excluded"]}
    assert left_out == {*(link["path"] for link in links), *directories}


def test_a_nested_repository_gets_a_harmless_configuration(load_bytes, run_dir):
    names = [f"{WORKSPACE}deep/repo/.git/{name}" for name in ("HEAD", "config")]
    loaded = load_bytes(checkpoint(dict.fromkeys(names, b"[core]\n\tpager = evil\n")), run_dir)
    config = loaded["agents"]["a"] / "workspace" / "deep" / "repo" / ".git" / "config"
    assert config.read_bytes() == FRESH_CONFIG


def test_a_repository_with_sha256_names_is_recognised_by_its_objects(load_bytes, run_dir):
    names = {"HEAD": b"ref: refs/heads/main\n", f"objects/ab/{'c' * 62}": b""}
    members = {f"{WORKSPACE}.git/{name}": content for name, content in names.items()}
    loaded = load_bytes(checkpoint({**members, f"{WORKSPACE}other/.git/HEAD": b"x"}), run_dir)
    workspace = loaded["agents"]["a"] / "workspace"
    assert b'objectformat = "sha256"' in (workspace / ".git" / "config").read_bytes()
    assert b"sha256" not in (workspace / "other" / ".git" / "config").read_bytes()


GIT = f"{WORKSPACE}repo/.git"
HEAD = b"ref: refs/heads/main\n"
REPOSITORY_FILES = {
    f"{GIT}/HEAD": HEAD,
    f"{GIT}/modules/lib/HEAD": HEAD,
    f"{GIT}/worktrees/wt/HEAD": HEAD,
}
PROMISOR = {"name": "origin", "url": "https://example.org:8443/x.git", "filter": "blob:none"}


def recorded(path: str, **keys: object) -> dict[str, object]:
    return {"path": f"{GIT}{path}", **keys}


def load_repositories(load_bytes, run_dir, *entries, files=REPOSITORY_FILES, **keys):
    keys = {"schema_version": 2, "repositories": list(entries), **keys}
    return load_bytes(checkpoint(files, **keys), run_dir)


def test_recorded_settings_become_new_files_of_git(load_bytes, run_dir):
    loaded = load_repositories(
        load_bytes,
        run_dir,
        recorded("", promisors=[PROMISOR], partial_clone="origin", submodules=["a b/lib"]),
        recorded("/modules/lib", git_file=f"{WORKSPACE}repo/a b/lib/.git"),
        recorded("/worktrees/wt", git_file=f"{WORKSPACE}wt/.git", sparse_checkout=True),
    )
    assert loaded["excluded"] == []
    workspace = loaded["agents"]["a"] / "workspace"
    texts = {name: content.decode() for name, content in files_of(workspace).items()}
    core = "\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
    assert {name: text for name, text in texts.items() if not name.endswith("HEAD")} == {
        "repo/.git/config": "[core]\n\trepositoryformatversion = 1\n"
        + core
        + '[extensions]\n\tpartialclone = "origin"\n\tworktreeconfig = true\n'
        '[remote "origin"]\n\turl = "https://example.org:8443/x.git"\n\tpromisor = true\n'
        '\tpartialclonefilter = "blob:none"\n[submodule "a b/lib"]\n\tactive = true\n',
        "repo/.git/modules/lib/config": "[core]\n\trepositoryformatversion = 0\n"
        + core
        + '\tworktree = "../../../a b/lib"\n',
        "repo/a b/lib/.git": "gitdir: ../../.git/modules/lib\n",
        "repo/.git/worktrees/wt/commondir": "../..\n",
        "repo/.git/worktrees/wt/gitdir": f"{workspace}/wt/.git\n",
        "repo/.git/worktrees/wt/config.worktree": "[core]\n\tsparsecheckout = true\n",
        "wt/.git": "gitdir: ../repo/.git/worktrees/wt\n",
    }


def test_a_run_directory_that_will_be_renamed_names_its_final_place(run_dir, tmp_path):
    worktree = recorded("/worktrees/wt", git_file=f"{WORKSPACE}wt/.git")
    data = checkpoint(REPOSITORY_FILES, schema_version=2, repositories=[worktree])
    (tmp_path / "a.ckpt").write_bytes(data)
    options = LoadOptions(path=tmp_path / "a.ckpt", run_dir=run_dir)
    load(options, final_dir=tmp_path / "final")
    gitdir = run_dir / f"{GIT}/worktrees/wt/gitdir"
    assert gitdir.read_text() == f"{tmp_path}/final/{WORKSPACE}wt/.git\n"


def test_a_load_reports_the_hosts_from_which_git_will_fetch(load_bytes, run_dir):
    with structlog.testing.capture_logs() as logs:
        loaded = load_repositories(load_bytes, run_dir, recorded("", promisors=[PROMISOR]))
    assert loaded["git_hosts"] == {"a": {"repo/.git": ["example.org:8443"]}}
    [warning] = [log for log in logs if log["event"] == "git will contact hosts"]
    assert warning["log_level"] == "warning"
    assert (warning["agent"], warning["hosts"]) == ("a", ["example.org:8443"])
    told = describe_loaded(loaded).splitlines()[0]
    assert told == ("git will contact example.org:8443 for objects that repo/.git of a lacks")


def test_without_a_record_a_worktree_is_left_out_and_a_submodule_stays_separate(
    load_bytes, run_dir
):
    inner = f"{GIT}/worktrees/wt/modules/lib/HEAD"
    files = {**REPOSITORY_FILES, inner: HEAD}
    loaded = load_repositories(load_bytes, run_dir, files=files)
    assert files_of(loaded["agents"]["a"] / "workspace") == {
        "repo/.git/HEAD": HEAD,
        "repo/.git/config": FRESH_CONFIG,
        "repo/.git/modules/lib/HEAD": HEAD,
        "repo/.git/modules/lib/config": FRESH_CONFIG,
    }
    left_out = {item["path"] for item in loaded["excluded"]}
    assert left_out == {f"{GIT}/worktrees/wt/HEAD", inner}


def test_repositories_is_the_callers_own_key_in_schema_1(load_bytes, run_dir):
    settings = [recorded("", promisors=[PROMISOR])]
    loaded = load_repositories(load_bytes, run_dir, *settings, schema_version=1)
    assert loaded["git_hosts"] == {}
    assert (loaded["agents"]["a"] / "workspace/repo/.git/config").read_bytes() == FRESH_CONFIG


IMPOSSIBLE = [
    {"path": f"{WORKSPACE}other/.git"},
    {"path": f"{WORKSPACE}repo"},
    {"path": f"{GIT}/refs"},
    {"path": f"{GIT}/modules"},
    {"path": f"{GIT}/modules/lib/refs"},
    {"path": f"{GIT}/HEAD"},
    {"path": f"{WORKSPACE}bare.git"},
    {"path": f"{WORKSPACE}repo/.GIT"},
    {"path": f"{WORKSPACE}node_modules/x/.git"},
    {"path": "agents/b/workspace/repo/.git"},
    {"path": "agents/a/session/.git"},
    {"path": GIT, "git_file": f"{WORKSPACE}wt/.git"},
    {"path": f"{GIT}/worktrees/wt"},
    {"path": f"{GIT}/worktrees/wt", "git_file": "agents/b/workspace/wt/.git"},
    {"path": f"{GIT}/worktrees/wt", "git_file": f"{WORKSPACE}wt/git"},
    {"path": f"{GIT}/worktrees/wt", "git_file": f"{WORKSPACE}wt/.GIT"},
    {"path": f"{GIT}/worktrees/wt", "git_file": f"{WORKSPACE}wt/.bashrc"},
    {"path": f"{GIT}/worktrees/wt", "git_file": f"{GIT}/refs/.git"},
    {"path": f"{GIT}/worktrees/wt", "git_file": f"{GIT}/objects/x/.git"},
    {"path": f"{GIT}/worktrees/wt", "git_file": f"{WORKSPACE}.claude/hooks/.git"},
    {"path": f"{GIT}/modules/lib", "git_file": f"{WORKSPACE}.ssh/.git"},
]


@pytest.mark.parametrize("entry", IMPOSSIBLE, ids=str)
def test_settings_that_belong_to_no_repository_are_listed_and_not_restored(
    load_bytes, run_dir, entry
):
    odd = (f"{WORKSPACE}bare.git/HEAD", f"{WORKSPACE}repo/.GIT/HEAD", "agents/b/workspace/x")
    odd = (*odd, f"{WORKSPACE}node_modules/x/.git/HEAD", f"{GIT}/modules/lib/refs/HEAD")
    entry = {"promisors": [PROMISOR], "sparse_checkout": True, **entry}
    files = {**dict.fromkeys(odd, HEAD), **REPOSITORY_FILES}
    loaded = load_repositories(load_bytes, run_dir, entry, files=files)
    why = {item["path"]: item["reason"] for item in loaded["excluded"]}
    assert why[entry["path"]] == "settings of a repository that the archive does not have"
    assert loaded["git_hosts"] == {}
    written = {name: content for name, content in files_of(run_dir).items() if content != HEAD}
    configs = [f"agents/a/workspace/repo/.git/{name}config" for name in ("", "modules/lib/")]
    assert written == dict.fromkeys(configs, FRESH_CONFIG)


WORKTREE_FILE = {"path": f"{GIT}/worktrees/wt", "git_file": f"{WORKSPACE}wt/.git"}
COLLISIONS = {
    "a file": ({f"{WORKSPACE}wt/.git": b""}, [WORKTREE_FILE], {}),
    "a repository": ({f"{WORKSPACE}wt/.git/HEAD": HEAD}, [WORKTREE_FILE], {}),
    "a file above it": ({f"{WORKSPACE}wt": b""}, [WORKTREE_FILE], {}),
    "a link above it": (
        {},
        [WORKTREE_FILE],
        {"symlinks": [{"path": f"{WORKSPACE}wt", "target": "repo"}]},
    ),
    "a link": (
        {},
        [WORKTREE_FILE],
        {"symlinks": [{"path": f"{WORKSPACE}wt/.git", "target": "../repo"}]},
    ),
    "a directory": ({}, [WORKTREE_FILE], {"directories": [f"{WORKSPACE}wt/.git"]}),
    "the same file": (
        {},
        [WORKTREE_FILE, {**WORKTREE_FILE, "path": f"{GIT}/modules/lib"}],
        {},
    ),
    "the same repository": (
        {},
        [WORKTREE_FILE, {**WORKTREE_FILE, "git_file": f"{WORKSPACE}wt2/.git"}],
        {},
    ),
}


@pytest.mark.parametrize("where", COLLISIONS)
def test_a_git_file_never_replaces_another_entry(refuse, existing, where):
    files, entries, keys = COLLISIONS[where]
    document = {"schema_version": 2, "repositories": entries, **keys}
    data = checkpoint({**REPOSITORY_FILES, **files}, **document)
    refuse(existing, CheckpointFormatError, data=data)


@pytest.mark.needs("git")
@pytest.mark.parametrize("as_link", [False, True])
@pytest.mark.parametrize("place", ["", ".git/refs/x/", ".git/modules/lib/refs/", ".git/refs/.git/"])
def test_a_directory_that_poses_as_a_repository_runs_no_commands(
    load_bytes, run_dir, tmp_path, as_link, place
):
    ran = tmp_path / "ran"
    config = f'[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = "touch {ran}; false"\n'
    names = {
        "HEAD": HEAD,
        "settings" if as_link else "config": config.encode(),
    }
    companions = [f"{WORKSPACE}{place}{name}" for name in ("objects", "refs")]
    links = [{"path": f"{WORKSPACE}{place}config", "target": "settings"}] if as_link else []
    members = {f"{WORKSPACE}{place}{name}": content for name, content in names.items()}
    if place:
        heads = (".git/HEAD", ".git/modules/lib/HEAD")
        members |= {f"{WORKSPACE}{head}": HEAD for head in heads}
    loaded = load_bytes(checkpoint(members, symlinks=links, directories=companions), run_dir)
    assert [each["path"] for each in loaded["excluded"]] == [f"{WORKSPACE}{place}config"]
    status = ["git", "-C", str(loaded["agents"]["a"] / "workspace" / place), "status"]
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/none"}
    subprocess.run(status, env=env, capture_output=True, check=False)
    assert not ran.exists()


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    ("link", "target", "file"),
    [
        (".git/objects", "../store", "store/info/alternates"),
        (".git/objects/info", "../../store", "store/alternates"),
        (".git/objects/info/alternates", "../../../store", "store"),
        (".git/modules/lib/objects", "../../../store", "store/info/alternates"),
    ],
)
def test_objects_of_another_repository_are_not_read_by_git(
    load_bytes, run_dir, tmp_path, link, target, file
):
    other = make_upstream(tmp_path / "other")
    commit = git(other, "rev-parse", "HEAD").encode()
    heads = [f"{WORKSPACE}{name}HEAD" for name in (".git/", ".git/modules/lib/")]
    members = dict.fromkeys(heads, commit)
    members[f"{WORKSPACE}{file}"] = os.fsencode(other / ".git/objects")
    links = [{"path": f"{WORKSPACE}{link}", "target": target}]
    directories = [f"{head.removesuffix('HEAD')}refs" for head in heads]
    loaded = load_bytes(checkpoint(members, symlinks=links, directories=directories), run_dir)
    assert [each["path"] for each in loaded["excluded"]] == [f"{WORKSPACE}{link}"]
    for head in heads:
        git_dir = (run_dir / head).parent
        (git_dir / "objects").mkdir(exist_ok=True)
        with pytest.raises(AssertionError):
            git(git_dir, "--git-dir=.", "log")


def test_harmless_links_and_empty_directories_are_restored(load_bytes, run_dir):
    links = {
        "link": "notes.txt",
        "deep/link": "../notes.txt",
        "deep/dangling": "nowhere",
        "deep/up": "..",
    }
    harmful = {
        "absolute": "/etc/passwd",
        "out": "../../b",
        "deep/out": "../../x",
        "chained": "deep/up/../../../etc",
        ".claude": "notes",
        "sub/.git": "../other",
        ".mcp.json": "notes.txt",
        ".venv/bin/python": "x",
        "empty": "",
    }
    document = {
        "symlinks": [
            {"path": f"{WORKSPACE}{path}", "target": target}
            for path, target in (harmful | links).items()
        ]
        + [{"path": "agents/a/session/link", "target": "x"}],
        "directories": [
            f"{WORKSPACE}{path}" for path in ("bare", "deep", "deep/bare", "node_modules/x")
        ],
    }
    loaded = load_bytes(checkpoint({f"{WORKSPACE}notes.txt": b"x"}, **document), run_dir)
    workspace = loaded["agents"]["a"] / "workspace"
    found = {str(p.relative_to(workspace)): p for p in workspace.rglob("*")}
    assert {n: os.readlink(p) for n, p in found.items() if p.is_symlink()} == links
    assert {n for n, p in found.items() if p.is_dir() and not p.is_symlink()} == {
        "bare",
        "deep",
        "deep/bare",
    }
    out = {f"{WORKSPACE}{name}" for name in (*harmful, "node_modules/x")}
    assert {item["path"] for item in loaded["excluded"]} == {*out, "agents/a/session/link"}


def test_links_never_combine_to_lead_outside(load_bytes, run_dir):
    # Each seems to stay inside; through the first, the second would lead to the root.
    links = {"p/q/r": "../..", "escape": "p/q/r/../../../etc"}
    document = {
        "symlinks": [{"path": f"{WORKSPACE}{p}", "target": t} for p, t in links.items()],
    }
    loaded = load_bytes(checkpoint({}, agents={"a": {}}, **document), run_dir)
    assert [item["path"] for item in loaded["excluded"]] == [f"{WORKSPACE}escape"]


# Sessions


def claude_files(**more):
    transcript = {"agents/a/session/transcript.jsonl": b'{"type": "user"}\n'}
    return {**transcript, **{f"agents/a/session/{n}": c for n, c in more.items()}}


def test_a_conversation_is_restored_where_its_program_reads_it(load_bytes, run_dir):
    files = claude_files(**{"memory/notes.md": b"m", "claude_session_id.txt": SESSION_ID.encode()})
    data = checkpoint(files, agents={"a": CLAUDE}, session_format="claude-code-v1")
    agent = load_bytes(data, run_dir)["agents"]["a"]
    project = agent / "session" / "projects" / project_slug(str(agent / "workspace"))
    assert (project / f"{SESSION_ID}.jsonl").read_bytes() == b'{"type": "user"}\n'
    assert (project / "memory" / "notes.md").read_bytes() == b"m"


def test_files_that_no_conversation_has_are_left_out_and_listed(load_bytes, run_dir):
    more = {"settings.json": b"{}", ".credentials.json": b"{}", "projects/x/y.jsonl": b""}
    loaded = load_bytes(checkpoint(claude_files(**more), agents={"a": CLAUDE}), run_dir)
    left_out = {item["path"] for item in loaded["excluded"]}
    assert left_out == {f"agents/a/session/{name}" for name in more}
    project = f"session/projects/{project_slug(str(run_dir / 'agents/a/workspace'))}"
    assert set(files_of(loaded["agents"]["a"])) == {
        f"{project}/{SESSION_ID}.jsonl",
        "claude_session_id.txt",
    }


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"agents": ["a"]},
        {"agents": {"a": {}}, "session_format": "claude-code-v1"},
        {"agents": {"a": {**CLAUDE, "session_format": "unknown-v9"}}},
        {"agents": {"a": {**CLAUDE, "session_id": None}}},
    ],
)
def test_a_conversation_of_an_unknown_format_is_left_out_and_listed(load_bytes, run_dir, keys):
    loaded = load_bytes(checkpoint(claude_files(), **keys), run_dir)
    assert [item["path"] for item in loaded["excluded"]] == ["agents/a/session/transcript.jsonl"]
    assert files_of(loaded["agents"]["a"]) == {}


# The layout in the public description: files named as in the state directory


PRINTED = {"agents": ["a"], "session_format": "claude-code-v1"}
SLUG = "-home-somebody-runs-r001-agents-a-workspace"


def printed_files(*names, session_id=SESSION_ID):
    known = {
        f"agents/a/session/projects/{SLUG}/{session_id}.jsonl": b'{"type": "user"}\n',
        WORKSPACE + "SOUL.md": b"curious",
        "world.snapshot": b"{}",
    }
    return {**known, **{f"agents/a/session/{name}": b"more" for name in names}}


@pytest.mark.parametrize(
    "agents", [["a"], {"a": {}}, {"a": {**CLAUDE, "state_dir": None}}, {"a": CLAUDE}]
)
@pytest.mark.parametrize("is_bare", [True, False])
def test_a_conversation_in_the_printed_layout_is_restored(load_bytes, run_dir, agents, is_bare):
    files = printed_files(
        f"projects/{SLUG}/{SESSION_ID}/subagents/agent-1a.jsonl", f"projects/{SLUG}/memory/m.md"
    )
    keys = {**PRINTED, "agents": agents}
    members = [Member(name, content) for name, content in files.items()]
    data = bare_checkpoint(*members, **keys) if is_bare else checkpoint(files, **keys)
    loaded = load_bytes(data, run_dir)
    assert (loaded["excluded"], loaded["lost_sessions"]) == ([], {})
    agent = loaded["agents"]["a"]
    project = f"session/projects/{project_slug(str(agent / 'workspace'))}"
    assert set(files_of(agent)) == {
        "workspace/SOUL.md",
        "claude_session_id.txt",
        f"{project}/{SESSION_ID}.jsonl",
        f"{project}/{SESSION_ID}/subagents/agent-1a.jsonl",
        f"{project}/memory/m.md",
    }
    assert find_format("claude").collect(agent)[0].session_id == SESSION_ID
    assert f"--resume {SESSION_ID}" in describe_next_steps(loaded, run_dir, None)


def test_an_id_file_of_the_printed_layout_must_have_the_id(load_bytes, refuse, run_dir):
    record = "agents/a/session/record/claude_session_id.txt"
    wrong = {**printed_files(), record: b"another"}
    refuse(
        run_dir, CheckpointFormatError, data=checkpoint(wrong, **PRINTED), reason="conversation id"
    )
    right = {**printed_files(), record: SESSION_ID.encode()}
    loaded = load_bytes(checkpoint(right, **PRINTED), run_dir)
    assert loaded["excluded"] == []


OTHER_ID = SESSION_ID[:-1] + "0"


@pytest.mark.parametrize(
    ("files", "agents", "reason"),
    [
        (printed_files(f"projects/{SLUG}/{OTHER_ID}.jsonl"), ["a"], "2 transcripts"),
        (printed_files(f"projects/-other/{SESSION_ID}.jsonl"), ["a"], "2 transcripts"),
        (printed_files(session_id="newest"), ["a"], "no transcript with a valid id"),
        (printed_files(session_id=f"{SESSION_ID}x"), ["a"], "no transcript with a valid id"),
        (
            printed_files(),
            {"a": {**CLAUDE, "session_id": OTHER_ID}},
            "does not belong to the recorded conversation",
        ),
        (
            printed_files(),
            {"a": {"session_format": "unknown-v9"}},
            "no conversation of a known format",
        ),
        (printed_files(), {"a": {"session_format": "codex-v1"}}, "no id of the conversation"),
    ],
)
def test_a_conversation_that_is_left_out_is_reported_with_its_reason(
    load_bytes, run_dir, files, agents, reason
):
    data = checkpoint(files, agents=agents, session_format="claude-code-v1")
    with structlog.testing.capture_logs() as logs:
        loaded = load_bytes(data, run_dir)
    (entry,) = logs
    assert entry["agent"] == "a"
    assert reason in entry["reason"]
    assert loaded["lost_sessions"] == {"a": entry["reason"]}
    first, *_ = describe_loaded(loaded).splitlines()
    assert first.startswith("The conversation of a was left out: ")
    assert reason in first
    assert set(files_of(loaded["agents"]["a"])) == {"workspace/SOUL.md"}


def test_files_that_no_conversation_has_are_left_out_in_the_printed_layout(load_bytes, run_dir):
    more = (
        *("settings.json", ".credentials.json", "transcript.md", "memory/m.md"),
        *(f"projects/{SLUG}/settings.json", f"projects/{SLUG}/{SESSION_ID}/x.sh"),
        *("projects/-other/memory/m.md", f"tasks/{OTHER_ID}/1.json", "shell/x"),
    )
    loaded = load_bytes(checkpoint(printed_files(*more), **PRINTED), run_dir)
    assert {item["path"] for item in loaded["excluded"]} == {f"agents/a/session/{n}" for n in more}
    assert len(files_of(loaded["agents"]["a"])) == 3


@pytest.mark.parametrize("state_dir", ["..", "workspace", "/tmp", "home", "home/.claude/.."])
def test_a_path_outside_the_state_of_a_program_is_refused(refuse, run_dir, state_dir):
    data = checkpoint(claude_files(), agents={"a": {**CLAUDE, "state_dir": state_dir}})
    refuse(run_dir, CheckpointFormatError, data=data, reason="not a state directory of claude")


@pytest.mark.parametrize("session_id", ["../../../../evil", "", "x/y", "..", SESSION_ID + "\n"])
def test_a_text_that_is_not_a_conversation_id_is_refused(refuse, run_dir, session_id):
    data = checkpoint(claude_files(), agents={"a": {**CLAUDE, "session_id": session_id}})
    refuse(run_dir, CheckpointFormatError, data=data)


@pytest.mark.thorough
def test_a_large_member_takes_little_memory(load_bytes, run_dir):
    data = bare_checkpoint(Member(f"{WORKSPACE}large", bytes(32 << 20)))
    tracemalloc.start()
    try:
        loaded = load_bytes(data, run_dir)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert (loaded["agents"]["a"] / "workspace" / "large").stat().st_size == 32 << 20
