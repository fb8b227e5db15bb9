"""Listing, reading and comparing workspaces in archives, with bounded cost for hostile archives."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.checkpoint import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointPathError,
)
from clawblox.web import saved as module
from clawblox.web.files import decode
from clawblox.web.saved import (
    FileChange,
    Workspace,
    diff_texts,
    find_changes,
    opened_workspaces,
    pair_agents,
)
from tests.checkpoint import archives
from tests.checkpoint.archives import Member
from tests.checkpoint.repositories import make_upstream
from tests.checkpoint.runs import Run, make_run

TEXTS = st.lists(st.sampled_from([b"a", b"b", b"c", b"", b"\xff"]), max_size=30).map(b"\n".join)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


def list_workspaces(root: Path, archive: Path) -> Mapping[str, Workspace]:
    with opened_workspaces(root, archive) as workspaces:
        return workspaces


def read_file(root: Path, archive: Path, agent: str, path: str) -> bytes:
    with opened_workspaces(root, archive) as workspaces:
        return workspaces[agent][path].read()


def place(directory: Path, content: bytes) -> Path:
    path = directory / "hostile.ckpt"
    path.write_bytes(content)
    return path


def test_the_files_of_a_workspace_are_listed_with_size_and_digest(run: Run) -> None:
    (run.workspace / "sub").mkdir()
    (run.workspace / "sub" / "map.bin").write_bytes(b"map\0")
    (run.workspace / "empty").touch()
    (run.workspace / "sub" / "way").symlink_to("../SOUL.md")
    files = list_workspaces(run.dir, run.save())["rocky"]
    assert list(files) == ["SOUL.md", "empty", "go.sh", "sub/map.bin", "sub/way"]
    go = files["go.sh"]
    digest = hashlib.sha256((run.workspace / "go.sh").read_bytes()).hexdigest()
    assert (go.size, go.sha256) == (18, digest)
    assert (files["sub/way"].target, files["sub/way"].size) == ("../SOUL.md", 0)


def test_workspace_file_is_read_up_to_a_mebibyte(run: Run) -> None:
    content = random.Random(7).randbytes(300_000) + b"the end"
    (run.workspace / "own.bin").write_bytes(content)
    (run.workspace / "big.txt").write_bytes(b"x" * (8 << 20))
    path = run.save()
    assert read_file(run.dir, path, "rocky", "own.bin") == content
    assert read_file(run.dir, path, "rocky", "big.txt") == b"x" * (1 << 20)
    with pytest.raises(LookupError):
        read_file(run.dir, path, "rocky", "none.txt")


def test_a_git_repository_is_shown_as_its_work_tree(run: Run) -> None:
    make_upstream(run.workspace / "lib")
    before = list_workspaces(run.dir, run.save("a"))["rocky"]
    (run.workspace / "lib" / "top").write_text("five\n")
    assert "lib/top" in before
    assert not [path for path in before if path.startswith("lib/.git/")]
    changes = find_changes(before, list_workspaces(run.dir, run.save("b"))["rocky"])
    assert [change.path for change in changes] == ["lib/top"]


def test_added_removed_and_changed_files_between_saves_are_found(run: Run) -> None:
    for name in ("same", "image.png", "text.md"):
        (run.workspace / name).write_bytes(name.encode() + b"\0" * (name == "image.png"))
    first = run.save("a")
    (run.workspace / "SOUL.md").unlink()
    (run.workspace / "new.md").symlink_to("text.md")
    (run.workspace / "go.sh").chmod(0o644)
    (run.workspace / "image.png").write_bytes(b"other\0")
    (run.workspace / "text.md").write_bytes(b"text.md\nmore\n")
    old, new = (list_workspaces(run.dir, path)["rocky"] for path in (first, run.save("b")))
    changes = find_changes(old, new)
    names = ["SOUL.md", "go.sh", "image.png", "new.md", "text.md"]
    assert changes == [FileChange(name, old.get(name), new.get(name)) for name in names]
    assert [change.kind for change in changes] == [
        *("removed", "changed", "changed", "added", "changed")
    ]


def test_archives_without_digests_are_compared_by_checksums(tmp_path: Path) -> None:
    name, paths = "agents/rocky/workspace/a", []
    for number, content in enumerate((b"one", b"one", b"two")):
        paths.append(tmp_path / f"{number}.ckpt")
        members = [Member(name, content)]
        if number == 1:
            paths[-1].write_bytes(archives.checkpoint({name: content}))
        else:
            paths[-1].write_bytes(archives.bare_checkpoint(*members))
    one, same, other = (list_workspaces(tmp_path, path)["rocky"] for path in paths)
    assert find_changes(one, same) == []
    assert len(find_changes(one, other)) == 1


# -- foreign archives -----------------------------------------------------------------------------

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
def test_damaged_archive_is_refused(
    tmp_path: Path, content: bytes, error: type[CheckpointError]
) -> None:
    with pytest.raises(error):
        list_workspaces(tmp_path, place(tmp_path, content))


def test_an_archive_that_is_a_pipe_a_link_or_elsewhere_is_not_opened(
    tmp_path: Path, run: Run
) -> None:
    archive = run.save()
    os.mkfifo(run.dir / "pipe.ckpt")
    shutil.copy(archive, tmp_path / "outside.ckpt")
    (run.dir / "link.ckpt").symlink_to("../outside.ckpt")
    for name in ("pipe.ckpt", "link.ckpt", "../outside.ckpt"):
        with pytest.raises(CheckpointError, match="it cannot be read"):
            list_workspaces(run.dir, run.dir / name)


def test_a_link_of_a_workspace_is_shown_and_never_followed(tmp_path: Path) -> None:
    links = [{"path": IN + "passwd", "target": "/etc/passwd"}]
    path = place(tmp_path, archives.checkpoint({IN + "a": b"a"}, symlinks=links))
    assert list_workspaces(tmp_path, path)["a"]["passwd"].target == "/etc/passwd"
    assert read_file(tmp_path, path, "a", "passwd") == b"/etc/passwd"


def test_decompression_bomb_is_only_decompressed_up_to_the_read_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert list_workspaces(tmp_path, path)["a"]["bomb"].size == len(bomb)
    assert shown == 0
    assert read_file(tmp_path, path, "a", "bomb") == b"\n" * (1 << 20)
    assert shown <= 2 << 20


def test_member_larger_than_its_header_is_refused(tmp_path: Path) -> None:
    member = Member(IN + "a", b"short", packed=archives.deflate(b"x" * (1 << 20)))
    path = place(tmp_path, archives.bare_checkpoint(member))
    list_workspaces(tmp_path, path)
    with pytest.raises(CheckpointFormatError, match="does not have the recorded size"):
        read_file(tmp_path, path, "a", "a")


def test_damaged_content_is_listed_and_refused_when_read(tmp_path: Path) -> None:
    path = place(tmp_path, archives.bare_checkpoint(Member(IN + "a", b"abc", packed=b"\xff" * 9)))
    assert "a" in list_workspaces(tmp_path, path)["a"]
    with pytest.raises(CheckpointFormatError, match="damaged"):
        read_file(tmp_path, path, "a", "a")


def test_ten_thousand_names_are_listed_and_more_than_the_limit_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "many.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", '{"schema_version":1}')
        for number in range(10_000):
            archive.writestr(f"{IN}{number}", b"x")
    assert len(list_workspaces(tmp_path, path)["a"]) == 10_000
    limits = module.ARCHIVE_LIMITS.__class__(entries=1000)
    monkeypatch.setattr(module, "ARCHIVE_LIMITS", limits)
    with pytest.raises(CheckpointLimitError):
        list_workspaces(tmp_path, path)


# -- differences ----------------------------------------------------------------------------------


def test_agents_are_paired_by_name_or_by_their_place_in_the_world() -> None:
    assert pair_agents(["a", "b"], ["b", "c"]) == {"b": "b", "c": None}
    first, second = "x-rexp-g001-w0-a0", "y-rexp-g001-w0-a1"
    assert pair_agents([first, second], ["y-rexp-g002-w0-a1", "z-rexp-g002-w0-a2"]) == {
        "y-rexp-g002-w0-a1": second,
        "z-rexp-g002-w0-a2": None,
    }


@given(TEXTS, TEXTS)
def test_difference_transforms_one_text_into_the_other(before: bytes, after: bytes) -> None:
    ours, theirs = ([decode(line) for line in text.split(b"\n")] for text in (before, after))
    made, taken, lines = list[str](), 0, diff_texts(before, after)
    assert (lines == []) == (before == after)
    for line in lines:
        sign, text = line[0], line[2:]
        if sign == "@":
            kept = int(text.removeprefix("line ")) - 1 - len(made)
            made += ours[taken : taken + kept]
            taken += kept
        else:
            made += [text] if sign in " +" else []
            if sign in " -":
                assert ours[taken] == text
                taken += 1
    assert made + ours[taken:] == theirs


@given(TEXTS, TEXTS)
def test_only_lines_near_a_difference_are_in_it(before: bytes, after: bytes) -> None:
    lines = diff_texts(before, after)
    for number, line in enumerate(lines):
        if line[0] == " ":
            assert any(near[0] in "+-" for near in lines[max(number - 3, 0) : number + 4])


def test_equal_lines_at_both_ends_are_not_compared() -> None:
    lines = [b"line %d" % number for number in range(20_000)]
    changed = [*lines]
    changed[10_000] = b"other"
    assert diff_texts(b"\n".join(lines), b"\n".join(changed)) == [
        "@ line 9998",
        *(f"  line {number}" for number in (9997, 9998, 9999)),
        "- line 10000",
        "+ other",
        *(f"  line {number}" for number in (10_001, 10_002, 10_003)),
    ]


def test_too_many_different_lines_are_not_compared() -> None:
    before = b"\n".join(b"a%d" % number for number in range(1500))
    (note,) = diff_texts(before, before.replace(b"a", b"b"))
    assert note == "@ More than 1000 lines would have to be compared."


def test_binary_and_large_files_are_not_compared() -> None:
    for text in (b"a\0", b"a" * (1 << 20)):
        assert diff_texts(text, b"b") == ["@ It is not text, or it is too large to be compared."]


def test_the_lines_of_a_difference_and_their_lengths_are_bounded() -> None:
    numbers = range(1, 1001)
    lines = diff_texts(b"", b"\n".join(b"%d" % number * 900 for number in numbers))
    assert len(lines) == 1002
    assert max(map(len, lines)) == 2002
    assert diff_texts(b"a" * 3000, b"a" * 2999 + b"b")[1:] == [
        f"{sign} {'a' * 2000}" for sign in "-+"
    ]
