"""Workspaces in archives are listed, read and compared; hostile archives cost little."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import zipfile
from pathlib import Path

import attrs
import pytest

from clawblox import save_checkpoint
from clawblox.checkpoint import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointPathError,
)
from clawblox.experiment.record import read_experiment
from clawblox.rundir.manifest import read_manifest
from clawblox.rundir.manifest_updates import checkpoint_update
from clawblox.web import workspaces as module
from clawblox.web.workspaces import (
    ArchivedFile,
    FileChange,
    Save,
    Workspaces,
    find_changes,
    list_generations,
    list_saves,
    pair_agents,
)
from tests.checkpoint import archives
from tests.checkpoint.archives import Member
from tests.checkpoint.repositories import make_upstream
from tests.checkpoint.runs import Run, make_run, update_manifest

V1 = Path(__file__).parent.parent / "golden" / "experiment" / "v1"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


@pytest.fixture
def reader(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path)


def place(directory: Path, content: bytes) -> Path:
    path = directory / "hostile.ckpt"
    path.write_bytes(content)
    return path


def test_the_files_of_a_workspace_are_listed_with_kind_size_mode_and_digest(
    run: Run, reader: Workspaces
) -> None:
    (run.workspace / "sub").mkdir()
    (run.workspace / "sub" / "map.bin").write_bytes(b"map\0")
    (run.workspace / "empty").touch()
    (run.workspace / "sub" / "way").symlink_to("../SOUL.md")
    (run.workspace / ".netrc").write_text("machine a login b\n")
    (workspace,) = reader.read(run.save()).values()
    assert workspace.agent == "rocky"
    assert list(workspace.files) == ["SOUL.md", "empty", "go.sh", "sub/map.bin", "sub/way"]
    assert [file.kind for file in workspace.files.values()] == [
        *("text", "text", "text", "binary", "link")
    ]
    go = workspace.files["go.sh"]
    digest = hashlib.sha256((run.workspace / "go.sh").read_bytes()).hexdigest()
    assert (go.size, go.mode, go.sha256) == (18, 0o700, digest)
    assert workspace.files["sub/way"].target == "../SOUL.md"
    assert list(workspace.excluded) == [".netrc"]
    assert workspace.size == (run.workspace / "SOUL.md").stat().st_size + 18 + 4


def test_a_file_is_read_window_by_window(run: Run, reader: Workspaces) -> None:
    content = random.Random(7).randbytes(300_000).replace(b"\0", b"\n") + b"the end"
    (run.workspace / "big.txt").write_bytes(content)
    path = run.save()
    window = reader.read_window(path, "rocky", "big.txt", max_bytes=50_000)
    pieces = [window.data]
    while window.end < window.size:
        window = reader.read_window(path, "rocky", "big.txt", window.end, 50_000)
        assert window.starts_line
        pieces.append(window.data)
    assert b"".join(pieces) == content
    assert len(pieces) >= 6
    with pytest.raises(LookupError):
        reader.read_window(path, "rocky", "none.txt")


def test_a_file_of_megabytes_has_a_window_at_its_end_but_not_beyond_the_limit(
    run: Run, reader: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.workspace / "one-line").write_bytes(b"x" * (8 << 20))
    path = run.save()
    window = reader.read_window(path, "rocky", "one-line", (8 << 20) - 10)
    assert (window.data, window.starts_line) == (b"x" * 10, False)
    monkeypatch.setattr(module, "_MAX_SKIPPED", 1 << 20)
    with pytest.raises(CheckpointLimitError, match="only the first 1048576 bytes"):
        reader.read_window(path, "rocky", "one-line", 2 << 20)


def test_a_git_repository_is_shown_as_its_work_tree_and_its_plain_files(
    run: Run, reader: Workspaces
) -> None:
    make_upstream(run.workspace / "lib")
    before = run.save("a")
    (run.workspace / "lib" / "top").write_text("five\n")
    workspace = reader.read(before)["rocky"]
    kinds = {path: file.kind for path, file in workspace.files.items()}
    assert kinds["lib/top"] == "text"
    assert kinds["lib/.git/HEAD"] == "git"
    assert "lib/.git/config" not in kinds
    assert all(kind == "git" for path, kind in kinds.items() if path.startswith("lib/.git/"))
    changes = find_changes(workspace, reader.read(run.save("b"))["rocky"])
    assert [change.after.path for change in changes if change.after] == ["lib/top"]
    other = (before, "rocky")
    assert reader.read_text_diff(other, other, "lib/.git/HEAD").reason


def test_what_was_added_removed_and_changed_between_saves_is_found(
    run: Run, reader: Workspaces
) -> None:
    for name in ("same", "image.png", "text.md"):
        (run.workspace / name).write_bytes(name.encode() + b"\0" * (name == "image.png"))
    first = run.save("a")
    (run.workspace / "SOUL.md").unlink()
    (run.workspace / "new.md").symlink_to("text.md")
    (run.workspace / "go.sh").chmod(0o644)
    (run.workspace / "image.png").write_bytes(b"other\0")
    (run.workspace / "text.md").write_bytes(b"text.md\nmore\n")
    second = run.save("b")
    old, new = (reader.read(path)["rocky"].files for path in (first, second))
    names = ["SOUL.md", "go.sh", "image.png", "new.md", "text.md"]
    changes = find_changes(reader.read(first)["rocky"], reader.read(second)["rocky"])
    assert changes == [FileChange(old.get(name), new.get(name)) for name in names]
    assert (changes[0].after, changes[3].before) == (None, None)
    sides = (first, "rocky"), (second, "rocky")
    assert [line.text for line in reader.read_text_diff(*sides, "text.md").lines] == [
        *("", "text.md", "more", "")
    ]
    assert [line.sign for line in reader.read_text_diff(*sides, "SOUL.md").lines][:2] == ["@", "-"]
    assert reader.read_text_diff(*sides, "image.png").reason == "The file is binary."
    assert reader.read_text_diff(*sides, "new.md").reason == "The file is a link."


def test_archives_without_digests_are_compared_by_checksums(
    tmp_path: Path, reader: Workspaces
) -> None:
    name, paths = "agents/rocky/workspace/a", []
    for number, content in enumerate((b"one", b"one", b"two")):
        paths.append(tmp_path / f"{number}.ckpt")
        members = [Member(name, content)]
        if number == 1:
            paths[-1].write_bytes(archives.checkpoint({name: content}))
        else:
            paths[-1].write_bytes(archives.bare_checkpoint(*members))
    one, same, other = (reader.read(path)["rocky"] for path in paths)
    assert find_changes(one, same) == []
    assert len(find_changes(one, other)) == 1


# -- archives of strangers -------------------------------------------------------------------------

IN = "agents/a/workspace/"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (archives.checkpoint({IN + "../../../etc/passwd": b""}), CheckpointPathError),
        (archives.checkpoint({"/etc/passwd": b""}), CheckpointPathError),
        (archives.checkpoint({IN + "a\x1b[2J": b""}), CheckpointPathError),
        (
            archives.checkpoint(
                {IN + "way/x": b""}, symlinks=[{"path": IN + "way", "target": "/etc"}]
            ),
            CheckpointFormatError,
        ),
        (b"PK", CheckpointFormatError),
        (b"", CheckpointFormatError),
    ],
)
def test_an_archive_that_is_not_sound_is_refused(
    tmp_path: Path, reader: Workspaces, content: bytes, error: type[CheckpointError]
) -> None:
    with pytest.raises(error):
        reader.read(place(tmp_path, content))


def test_an_archive_that_is_a_pipe_a_link_or_elsewhere_is_not_opened(
    tmp_path: Path, run: Run
) -> None:
    reader, archive = Workspaces(run.dir), run.save()
    os.mkfifo(run.dir / "pipe.ckpt")
    shutil.copy(archive, tmp_path / "outside.ckpt")
    (run.dir / "link.ckpt").symlink_to("../outside.ckpt")
    for name in ("pipe.ckpt", "link.ckpt", "../outside.ckpt"):
        with pytest.raises(OSError, match="is not"):
            reader.read(run.dir / name)


def test_a_link_of_a_workspace_is_shown_and_never_followed(
    tmp_path: Path, reader: Workspaces
) -> None:
    links = [{"path": IN + "passwd", "target": "/etc/passwd"}]
    path = place(tmp_path, archives.checkpoint({IN + "a": b"a"}, symlinks=links))
    file = reader.read(path)["a"].files["passwd"]
    assert file == ArchivedFile(path="passwd", kind="link", target="/etc/passwd")
    with pytest.raises(LookupError):
        reader.read_window(path, "a", "passwd")


def test_a_bomb_is_decompressed_as_far_as_it_is_shown(
    tmp_path: Path, reader: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = b"\n" * (64 << 20)
    path = place(tmp_path, archives.checkpoint({IN + "bomb": bomb}))
    shown = 0

    def count(*arguments: object) -> object:
        nonlocal shown
        for chunk in module_read(*arguments):
            shown += len(chunk)
            yield chunk

    module_read = module.read_member
    monkeypatch.setattr(module, "read_member", count)
    assert reader.read(path)["a"].files["bomb"].kind == "text"
    assert shown == 0
    assert reader.read_window(path, "a", "bomb").data == b"\n" * (64 << 10)
    assert shown <= 512 << 10
    assert "larger than" in reader.read_text_diff((path, "a"), (path, "a"), "bomb").reason


def test_a_member_that_is_larger_than_it_says_is_refused(
    tmp_path: Path, reader: Workspaces
) -> None:
    member = Member(IN + "a", b"short", packed=archives.deflate(b"x" * (1 << 20)))
    path = place(tmp_path, archives.bare_checkpoint(member))
    reader.read(path)
    with pytest.raises(CheckpointFormatError, match="does not have the recorded size"):
        reader.read_window(path, "a", "a")


def test_damaged_content_is_binary_in_the_list_and_refused_when_read(
    tmp_path: Path, reader: Workspaces
) -> None:
    path = place(tmp_path, archives.bare_checkpoint(Member(IN + "a", b"abc", packed=b"\xff" * 9)))
    assert reader.read(path)["a"].files["a"].kind == "binary"
    with pytest.raises(CheckpointFormatError, match="damaged"):
        reader.read_window(path, "a", "a")


def test_ten_thousand_names_are_listed_and_more_than_the_limit_refused(
    tmp_path: Path, reader: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "many.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", '{"schema_version":1}')
        for number in range(10_000):
            archive.writestr(f"{IN}{number}", b"x")
    assert len(reader.read(path)["a"].files) == 10_000
    limits = module.ARCHIVE_LIMITS.__class__(entries=1000)
    monkeypatch.setattr(module, "ARCHIVE_LIMITS", limits)
    with pytest.raises(CheckpointLimitError):
        Workspaces(tmp_path).read(path)


# -- the cache -------------------------------------------------------------------------------------


def test_a_list_is_read_once_until_the_archive_changes(
    run: Run, reader: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = run.save(), []
    real = module.Archive

    def note(*arguments: object) -> object:
        opened.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "Archive", note)
    for _ in range(3):
        reader.read(path)
        reader.read_window(path, "rocky", "SOUL.md")
    assert len(opened) == 1
    (run.workspace / "new.md").write_text("new")
    run.save(overwrite=True)
    assert "new.md" in reader.read(path)["rocky"].files
    assert len(opened) == 2


def test_the_lists_that_are_remembered_are_bounded(run: Run, tmp_path: Path) -> None:
    reader = Workspaces(tmp_path, max_bytes=5000)
    paths = [run.save(name) for name in "abcd"]
    for path in paths:
        reader.read(path)
    assert len(reader._lists) == 2
    small = Workspaces(tmp_path, max_bytes=0)
    for path in paths:
        small.read(path)
    assert len(small._lists) == 1


# -- which archives --------------------------------------------------------------------------------


def test_the_saves_of_a_run_are_its_archives_each_after_the_one_before(run: Run) -> None:
    first, second = run.save("a"), run.save("b")
    (run.dir / "elsewhere.ckpt").write_bytes(first.read_bytes())
    update_manifest(run, checkpoint_update({"path": str(run.snapshot), "format": "counter-v1"}))
    saves = list_saves(read_manifest(run.dir))
    assert [(save.path, save.parent) for save in saves] == [(first, None), (second, first)]
    assert saves[0].sha256 == hashlib.sha256(first.read_bytes()).hexdigest()
    assert all(save.created_at for save in saves)


def test_each_generation_and_each_branch_comes_from_its_parent(tmp_path: Path) -> None:
    directory = shutil.copytree(V1, tmp_path / "exp")
    saves = list_generations(read_experiment(directory))
    by_place = {(save.chain, save.generation): save for save in saves}
    assert list(by_place) == [
        *((chain, number) for chain in ("r1", "r2") for number in (1, 2, 3)),
        *(("r1-f1-1", 1), ("r1-f1-2", 1)),
    ]
    assert by_place["r1", 1].parent is by_place["r2", 1].parent is None
    assert by_place["r1", 2].parent == by_place["r1", 1].path
    for branch in ("r1-f1-1", "r1-f1-2"):
        parent = by_place[branch, 1].parent
        assert parent is not None
        assert parent.is_relative_to(directory / "chains" / "r1" / "runs")
    assert len({save.path for save in saves}) == len(saves)


def test_an_archive_is_where_its_attempt_was_moved_after_a_failure(tmp_path: Path) -> None:
    record = read_experiment(shutil.copytree(V1, tmp_path / "exp"))
    last = list_generations(record)[0].path
    failed = next(line for line in record.lines if line.type == "failed")
    attempt = last.parent.parent.name
    moved = attrs.evolve(failed, attempt=attempt, data={**failed.data, "moved_to": "away"})
    save = list_generations(attrs.evolve(record, lines=[*record.lines, moved]))[0]
    assert save.path == last.parent.parent.with_name("away") / "checkpoints" / last.name


def test_what_a_generation_changed_of_what_it_was_handed_is_found(tmp_path: Path) -> None:
    directory = shutil.copytree(V1, tmp_path / "exp")
    generations: dict[tuple[str, int], Save] = {
        (save.chain, save.generation): save for save in list_generations(read_experiment(directory))
    }
    before, after = generations["r1", 1], generations["r1", 2]
    for save, text in ((before, "I am.\n"), (after, "I am.\nI was.\n")):
        agent = tmp_path / "agents" / f"rocky-rexp-g{save.generation:03}-w0-a0"
        (agent / "workspace").mkdir(parents=True)
        (agent / "workspace" / "SOUL.md").write_text(text)
        save.path.parent.mkdir(parents=True, exist_ok=True)
        save_checkpoint(save.path, agents={agent.name: agent})
    reader = Workspaces(directory)
    assert after.parent == before.path
    old, new = reader.read(before.path), reader.read(after.path)
    ((heir, ancestor),) = pair_agents(old, new).items()
    assert ancestor is not None
    assert heir != ancestor
    assert [change.after for change in find_changes(old[ancestor], new[heir])] == [
        new[heir].files["SOUL.md"]
    ]
    sides = (before.path, ancestor), (after.path, heir)
    lines = reader.read_text_diff(*sides, "SOUL.md").lines
    assert [(line.sign, line.text) for line in lines if line.sign in "+-"] == [("+", "I was.")]


def test_agents_are_paired_by_name_or_by_their_place_in_the_world() -> None:
    assert pair_agents(["a", "b"], ["b", "c"]) == {"b": "b", "c": None}
    first, second = "x-rexp-g001-w0-a0", "y-rexp-g001-w0-a1"
    assert pair_agents([first, second], ["y-rexp-g002-w0-a1", "z-rexp-g002-w0-a2"]) == {
        "y-rexp-g002-w0-a1": second,
        "z-rexp-g002-w0-a2": None,
    }
