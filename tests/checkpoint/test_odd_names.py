"""Files of a workspace with paths that only Linux allows are kept unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox.checkpoint import (
    Allowance,
    Limits,
    diff_checkpoints,
    load_checkpoint,
    read_metadata,
    scan_checkpoint,
    verify_checkpoint,
)
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.load import staging
from clawblox.errors import CheckpointError, CheckpointPathError, CheckpointSecretError
from clawblox.printable import printable_name
from clawblox.views.archives import (
    archive_fields,
    describe,
    describe_difference,
    describe_findings,
    describe_loaded,
)
from clawblox.views.formatting import format_json
from tests.checkpoint.archives import Member, renamed_checkpoint
from tests.checkpoint.runs import Run, fake_token
from tests.checkpoint.test_names import ODD

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
"""A single emoji with visible joiners."""

HIDDEN = ("\x1b", "\u202e", "\u200d", "\u00ad")


def find_workspace(run_dir: Path) -> Path:
    return run_dir / "agents" / "rocky" / "workspace"


def read_contents(top: Path) -> dict[str, object]:
    """Return the contents and times of files, and the targets of links, below a directory."""
    return {str(path.relative_to(top)): _content(path) for path in top.rglob("*")}


def _content(path: Path) -> object:
    if path.is_symlink():
        return os.readlink(path)
    return (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None


def fill(workspace: Path) -> None:
    """Write files, links and directories with odd names, and some with plain names."""
    for path in (*ODD, "a", "a.", "a ", "A", ".renamed/0", ".renamed/notes"):
        place = workspace / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"content of {path}")
    (workspace / "odd:" / "empty\n").mkdir()
    (workspace / "empty ").mkdir()
    (workspace / "link\\x").symlink_to("odd:/plain")
    (workspace / "link").symlink_to("back\\slash")


def test_every_path_that_linux_allows_is_restored(run: Run, tmp_path: Path):
    fill(run.workspace)
    path = run.save()
    assert read_metadata(path)["excluded"] == []
    assert verify_checkpoint(path).is_verified
    loaded = load_checkpoint(path, tmp_path / "new")
    assert loaded["excluded"] == []
    assert read_contents(find_workspace(tmp_path / "new")) == read_contents(run.workspace)


def test_members_have_names_that_every_program_can_extract(run: Run, tmp_path: Path):
    fill(run.workspace)
    path = run.save()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "extracted")
        metadata = json.loads(archive.read("metadata.json"))
    files = metadata["files"]
    assert all(name.isprintable() and not set(name) & set("\\:") for name in names)
    below = "agents/rocky/workspace/"
    for name, entry in files.items():
        source = run.workspace / entry.get("path", name).removeprefix(below)
        if name.startswith(below):
            assert (tmp_path / "extracted" / name).read_bytes() == source.read_bytes()
    assert {below + odd for odd in ODD} <= {entry.get("path") for entry in files.values()}


@pytest.mark.needs("unzip")
def test_unzip_extracts_members_of_odd_paths(run: Run, tmp_path: Path):
    fill(run.workspace)
    done = subprocess.run(
        ["unzip", "-q", run.save(), "-d", tmp_path / "x"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_equal_workspaces_give_equal_members(run: Run):
    fill(run.workspace)
    first, second = run.save("a"), run.save("b")
    difference = diff_checkpoints(first, second)
    assert not difference.changed
    assert not difference.added
    assert not difference.removed
    files = [read_metadata(path)["files"] for path in (first, second)]
    assert files[0] == files[1]


def test_a_difference_is_reported_by_path_even_if_neutral_names_changed(run: Run):
    for name in ("b:", "c:"):
        (run.workspace / name).write_text(name)
    first = run.save("a")
    (run.workspace / "a:").write_text("new")
    (run.workspace / "b:").unlink()
    (run.workspace / "c:").write_text("changed")
    difference = diff_checkpoints(first, run.save("b"))
    below = "agents/rocky/workspace/"
    assert difference.added == (below + "a:",)
    assert difference.removed == (below + "b:",)
    assert difference.changed == (below + "c:",)


@pytest.mark.parametrize(
    "name",
    [".env\u200d", ".ENV ", ".env.", ".env.\nx", "odd:/.ssh /id", ".cl\u00adaude/settings.json "],
)
def test_an_excluded_name_is_left_out_in_every_spelling_and_listed_unchanged(run: Run, name: str):
    (run.workspace / name).parent.mkdir(parents=True, exist_ok=True)
    (run.workspace / name).write_text("secret")
    metadata = read_metadata(run.save())
    assert not any("secret" in name or "id" in name for name in metadata["files"])
    [excluded] = metadata["excluded"]
    assert printable_name(f"agents/rocky/workspace/{name}").startswith(excluded["path"])


def test_a_kept_path_may_have_an_odd_name(run: Run, tmp_path: Path):
    (run.workspace / ".helix").mkdir()
    (run.workspace / ".helix" / "odd:.toml").write_text("x")
    path = run.save(keep=[".helix/odd:.toml"])
    assert len(load_checkpoint(path, tmp_path / "a")["excluded"]) == 1
    load_checkpoint(path, tmp_path / "b", keep=[".helix/odd:.toml"])
    assert (find_workspace(tmp_path / "b") / ".helix" / "odd:.toml").read_text() == "x"


def test_a_repository_in_an_odd_directory_gets_its_configuration(run: Run, tmp_path: Path):
    git = run.workspace / "pro:ject" / ".git"
    branch = git / "refs" / "heads" / "\U0001f468\u200d\U0001f469"
    branch.parent.mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n\tfsmonitor = evil\n")
    branch.write_text("1" * 40)
    load_checkpoint(run.save(), tmp_path / "new")
    loaded = find_workspace(tmp_path / "new") / "pro:ject" / ".git"
    assert "repositoryformatversion" in (loaded / "config").read_text()
    assert "fsmonitor" not in (loaded / "config").read_text()
    assert (loaded / "refs" / "heads" / branch.name).read_text() == "1" * 40


def test_an_odd_bare_repository_keeps_its_configuration_to_itself(run: Run, tmp_path: Path):
    bare = run.workspace / "mir:ror"
    bare.mkdir()
    for name in ("HEAD", "config"):
        (bare / name).write_text("x")
    load_checkpoint(run.save(), tmp_path / "new")
    loaded = find_workspace(tmp_path / "new") / "mir:ror"
    assert [path.name for path in loaded.iterdir()] == ["HEAD"]


# ------------------------------------------------------------------------------- other systems


def test_paths_that_a_file_system_treats_as_equal_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = os.open

    def folding(path: str | Path, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        return real("odd" if path == "odd." else path, flags, *mode, dir_fd=dir_fd)

    below = "agents/a/workspace/"
    data = renamed_checkpoint({f"{below}.renamed/0": below + "odd."}, Member(below + "odd", b"x"))
    (tmp_path / "a.ckpt").write_bytes(data)
    load_checkpoint(tmp_path / "a.ckpt", tmp_path / "apart")
    monkeypatch.setattr(staging.os, "open", folding)
    with pytest.raises(CheckpointPathError, match="collides with another name"):
        load_checkpoint(tmp_path / "a.ckpt", tmp_path / "folded")
    assert not (tmp_path / "folded").exists()


# ------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize("odd", [":", "\\", "\n", " ", "\u200d", "\u00ad", "\u202e", "\x1b"])
@pytest.mark.parametrize(
    "place", ["{odd}{token}", "{token}{odd}", "{odd}/{token}", "x{odd}/{token}"]
)
def test_a_secret_in_an_odd_name_is_found(run: Run, odd: str, place: str):
    token = fake_token()
    name = place.format(odd=odd, token=token)
    (run.workspace / name).parent.mkdir(exist_ok=True)
    (run.workspace / name).write_text("x")
    with pytest.raises(CheckpointSecretError) as refused:
        run.save()
    [finding] = [each for each in refused.value.findings if each.path != "metadata.json"]
    assert finding.path.startswith("agents/rocky/workspace/")
    assert finding.path.replace("ghp_... (40 bytes)", token).endswith(name)
    assert token not in str(refused.value)
    assert not any(char in str(refused.value) for char in HIDDEN)


@pytest.mark.parametrize("odd", ["\x1b", "\x80", "\u200d", "\u00ad", "\u202e", "\udcff", "\n"])
def test_a_secret_in_an_odd_name_that_is_left_out_is_masked(run: Run, odd: str):
    token = fake_token()
    os.mkfifo(run.workspace / f"{odd}{token}")
    (run.agent / f"{odd}{token}").write_text("x")
    (run.workspace / f"large{odd}{token}").write_text("x" * 2000)
    path = run.save(on_unarchivable="record", max_file_bytes=1000)
    assert token.encode() not in path.read_bytes()
    paths = [entry["path"] for entry in read_metadata(path)["excluded"]]
    assert sum("ghp_... (40 bytes)" in path for path in paths) == 3


def test_a_finding_in_an_odd_file_is_allowed_by_its_path(run: Run):
    name = "odd:\n\u202e"
    (run.workspace / name).write_text(fake_token())
    with pytest.raises(CheckpointSecretError) as refused:
        run.save()
    [finding] = refused.value.findings
    assert finding.path == f"agents/rocky/workspace/{name}"
    allowance = Allowance(
        path=finding.path, rule=finding.rule, fingerprint=finding.fingerprint, reason="a sample"
    )
    path = run.save(allow=[allowance])
    [found] = scan_checkpoint(path).findings
    assert found.path == finding.path
    assert not scan_checkpoint(path, allow=[allowance]).findings
    shown = describe_findings(scan_checkpoint(path))
    assert "odd:\\n\\u202e" in shown
    (run.dir / "secret-allow.json").write_text(json.dumps([_fields(allowance)]))
    run.save("b")


def _fields(allowance: Allowance) -> dict[str, str]:
    return {key: getattr(allowance, key) for key in ("path", "rule", "fingerprint", "reason")}


# --------------------------------------------------------------------------------------- lists


def shown_texts(run: Run, path: Path, new: Path) -> Iterator[str]:
    """Yield everything that the command line shows of an archive with odd paths."""
    with Archive.open(path) as archive:
        yield describe(archive, with_files=True)
        yield format_json(archive_fields(archive))
    loaded = load_checkpoint(path, new)
    yield describe_loaded(loaded)
    yield format_json(loaded)
    (run.workspace / "more:\n\x1b\u202e").write_text("x")
    (run.workspace / "new\nline").unlink()
    yield describe_difference(diff_checkpoints(path, run.save("other")))


def test_no_list_shows_a_hidden_character_or_breaks_a_line(run: Run, tmp_path: Path):
    fill(run.workspace)
    (run.workspace / ".env.\n\u202e\x1b").write_text("x")
    path = run.save()
    texts = [*shown_texts(run, path, tmp_path / "new")]
    for text in texts:
        assert not any(char in text.replace(FAMILY, "") for char in HIDDEN)
        assert not any(line == "line" or line.startswith("line ") for line in text.split("\n"))
    inspected, as_json, _, _, differences = texts
    assert "workspace/new\\nline " in inspected
    assert "workspace/\\u202etxt.exe" in inspected
    assert ".env.\\n\\u202e\\x1b" in inspected
    names = {member["name"] for member in json.loads(as_json)["members"]}
    assert "agents/rocky/workspace/new\nline" in names
    assert "- agents/rocky/workspace/new\\nline" in differences.split("\n")
    assert "+ agents/rocky/workspace/more:\\n\\x1b\\u202e" in differences.split("\n")


def test_what_a_load_leaves_out_is_shown_on_one_line(tmp_path: Path):
    name = "agents/a/workspace/.env.\n\u202e\x1bx"
    (tmp_path / "a.ckpt").write_bytes(renamed_checkpoint({"agents/a/workspace/.renamed/0": name}))
    loaded = load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run")
    assert [entry["path"] for entry in loaded["excluded"]] == [printable_name(name)]
    assert "agents/a/workspace/.env.\\n\\u202e\\x1bx" in describe_loaded(loaded)


def test_no_error_shows_a_hidden_character_or_breaks_a_line(run: Run, tmp_path: Path):
    name = "odd\n\x1b\u202e"
    (run.workspace / name).write_bytes(b"x" * 2000)
    with pytest.raises(CheckpointError, match="exceed the limits") as too_large:
        run.save(max_file_bytes=1000)
    path = run.save()
    with pytest.raises(CheckpointError, match="larger than 1000 bytes") as limited:
        load_checkpoint(path, tmp_path / "new", limits=Limits(file_bytes=1000))
    load_checkpoint(path, tmp_path / name)
    with pytest.raises(CheckpointError, match="already exists") as existing:
        load_checkpoint(path, tmp_path / name)
    for error in (too_large.value, limited.value, existing.value):
        assert not any(char in str(error) for char in HIDDEN)
        assert "odd\n" not in str(error)
