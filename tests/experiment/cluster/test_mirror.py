"""The copies of growing files become equal to the originals, and nothing else is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.experiment.cluster import mirror as module
from clawblox.experiment.cluster.chunks import TransferError
from clawblox.experiment.cluster.mirror import (
    MAX_FILE_BYTES,
    POLL_BYTES,
    FileGrowth,
    Mirror,
    read_growth,
)
from clawblox.system.regular_files import FoundFile

LOG = "agents/a-w0-a0/logs/agent.log"
NAMES = (LOG, "agents/a-w0-a0/events.jsonl", "logs/w.log", "logs/w.log.index")


class Sides:
    """A run directory on a node and its copy."""

    def __init__(self, parent: Path) -> None:
        self.node, self.driver = parent / "node", parent / "driver"
        self.node.mkdir()
        self.driver.mkdir()
        self.now = 0.0
        self.mirror = Mirror(self.driver, lambda: self.now)

    def write(self, name: str, data: bytes) -> Path:
        path = self.node / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        return path

    def poll(self, limit: int = POLL_BYTES) -> list[FileGrowth]:
        growths = read_growth(self.node, self.mirror.marks, limit)
        self.mirror.apply(growths)
        return growths

    def poll_all(self) -> None:
        for _ in range(100):
            if not self.poll():
                return
        raise AssertionError("the copies never become equal")

    def contents(self, root: Path) -> dict[str, bytes]:
        files = (path for path in root.rglob("*") if path.is_file())
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}

    def require_equal(self) -> None:
        self.poll_all()
        assert self.contents(self.driver) == self.contents(self.node)


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


EDITS = st.tuples(
    st.sampled_from(["append", "cut", "rewrite", "overwrite", "replace", "rotate", "poll"]),
    st.sampled_from(NAMES),
    st.binary(max_size=20),
)


def edit(path: Path, what: str, data: bytes) -> None:
    content = path.read_bytes()
    if what == "cut":
        os.truncate(path, min(len(content), len(data)))
    elif what == "rewrite":
        path.write_bytes(data)
    elif what == "overwrite":
        path.write_bytes(data + content[len(data) :])
    elif what == "replace":
        (path.parent.parent / "new").write_bytes(data)
        (path.parent.parent / "new").rename(path)
    elif what == "rotate" and path.name == "agent.log":
        path.rename(path.with_name(f"agent.log.1.0-{len(data)}"))
        path.touch()


@given(st.lists(EDITS, max_size=40), st.integers(4, 100))
def test_the_copies_become_equal_after_any_interleaving(
    edits: list[tuple[str, str, bytes]], limit: int
) -> None:
    with TemporaryDirectory() as directory:
        sides = Sides(Path(directory))
        for what, name, data in edits:
            path = sides.write(name, data if what == "append" else b"")
            edit(path, what, data)
            if what == "poll":
                sides.poll(limit)
        sides.require_equal()


def test_only_mirrored_files_are_copied(sides: Sides) -> None:
    mirrored = {
        "agents/a/usage.json", "recordings/recording-0000.jsonl.zst", "agents/a/logs/agent.log",
        "agents/a/logs/agent.log.1.0-77", "agents/b/events.jsonl", "logs/w-pane.log",
    }  # fmt: skip
    others = {
        "manifest.json", ".clawblox/instances/records.jsonl", "agents/a/workspace/logs/x.log",
        "agents/a/workspace/events.jsonl", "checkpoints/a.ckpt", "logs/deep/er.log",
        "logs/.w.log.1-2.3f.partial", "agents/a/logs/.agent.log.index.1-2.3f.partial",
    }  # fmt: skip
    for name in mirrored | others:
        sides.write(name, b"content")
    sides.poll_all()
    assert sides.contents(sides.driver).keys() == mirrored


def test_an_empty_file_is_copied(sides: Sides) -> None:
    sides.write(LOG, b"")
    sides.require_equal()


def test_only_new_bytes_are_sent(sides: Sides) -> None:
    sides.write(LOG, b"0123456789" * 1000)
    sides.poll_all()
    sides.write(LOG, b"more")
    assert [(growth.offset, growth.data) for growth in sides.poll()] == [(10_000, b"more")]
    assert sides.poll() == []


def test_a_log_that_grows_after_being_trimmed_is_sent_again(sides: Sides) -> None:
    """Trim as ``logs.trim_file`` does; the file grows beyond its old size before the next poll."""
    path = sides.write(LOG, bytes(range(256)) * 100)
    sides.poll_all()
    path.write_bytes(path.read_bytes()[12_345:] + b"x" * 20_000)
    sides.require_equal()


@pytest.mark.parametrize("offset", [0, 4095, 5904, 9999])
def test_a_change_at_either_end_of_the_bytes_already_read_is_noticed(
    sides: Sides, offset: int
) -> None:
    path = sides.write(LOG, bytes(10_000))
    sides.poll_all()
    content = bytearray(20_000)
    content[offset] = 1
    path.write_bytes(content)
    sides.require_equal()


def test_a_file_replaced_by_a_longer_file_is_sent_again(sides: Sides) -> None:
    path = sides.write(LOG, bytes(10_000))
    sides.poll_all()
    new = sides.node / "new"
    new.write_bytes(bytes(5000) + b"1" + bytes(10_000))  # the same at both ends
    new.rename(path)
    sides.poll_all()
    assert (sides.driver / LOG).read_bytes() == path.read_bytes()


def test_a_file_that_changes_while_it_is_read_is_sent_again(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sides.write(LOG, b"a" * 10)
    sides.poll_all()
    sides.write(LOG, b"b" * 10)
    reads = 0

    def pread(*arguments: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads == 3:  # its old bytes have been compared
            path.write_bytes(b"c" * 30)
        return os_pread(*arguments)

    os_pread = os.pread
    monkeypatch.setattr(os, "pread", pread)
    assert sides.poll()[0].offset == 10
    sides.require_equal()


def test_a_chatty_log_does_not_starve_the_others(sides: Sides) -> None:
    names = [f"logs/m{number}.log" for number in range(9)]
    sides.write("logs/a-first.log", b"x" * 5000)
    for name in names:
        sides.write(name, b"event\n")
    sides.write("logs/z-last.log", b"x" * 5000)
    sizes = {growth.name: len(growth.data) for growth in sides.poll(1054)}
    assert {name: sizes.pop(name) for name in names} == dict.fromkeys(names, 6)
    assert sizes == {"logs/a-first.log": 500, "logs/z-last.log": 500}


def test_the_number_of_files_is_limited(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 2)
    for name in "dcb":
        sides.write(f"logs/{name}", b"1")
    sides.poll_all()
    sides.write("logs/a", b"1")
    sides.write("logs/c", b"2")
    sides.poll_all()
    assert sides.contents(sides.driver) == {"logs/b": b"1", "logs/c": b"12"}
    sides.mirror.apply([FileGrowth("logs/a", 0, b"1", b"")])
    assert not (sides.driver / "logs/a").exists()


def test_the_size_of_a_copy_is_limited(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 12)
    sides.write(LOG, b"0123456789")
    sides.poll_all()
    sides.write(LOG, b"0123456789")
    sides.poll_all()
    assert (sides.driver / LOG).read_bytes() == b"012345678901"


def test_the_age_of_the_mirror_is_known(sides: Sides) -> None:
    assert sides.mirror.last_at is None
    for now in (3.0, 5.0):
        sides.now = now
        sides.poll()
        assert sides.mirror.last_at == now


@pytest.mark.parametrize("name", ["logs/link", "logs/pipe", "agents/out/events.jsonl"])
def test_the_node_does_not_follow_links_or_wait_for_pipes(
    sides: Sides, tmp_path: Path, name: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "events.jsonl").write_text("secret")
    for directory in ("logs", "agents"):
        (sides.node / directory).mkdir()
    (sides.node / "agents" / "out").symlink_to(tmp_path / "out")
    (sides.node / "logs" / "link").symlink_to(tmp_path / "out" / "events.jsonl")
    os.mkfifo(sides.node / "logs" / "pipe")
    assert name not in {growth.name for growth in sides.poll()}


def test_a_file_that_becomes_a_link_before_it_is_opened_is_not_read(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("secret")
    (sides.node / "logs").mkdir()
    link = sides.node / "logs" / "w.log"
    link.symlink_to(tmp_path / "secret")
    monkeypatch.setattr(module, "find_files", lambda *_: [FoundFile(link, 6, 0)])
    assert sides.poll() == []


# -- foreign growths -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../logs/x", "agents/../events.jsonl", "agents/./events.jsonl", "agents//events.jsonl",
        "/logs/x", "logs/..", "logs/a/b", "logs", "", "journal.jsonl", "agents/a/workspace/x",
        "logs/a\0b", "logs/\ud800", "logs/" + "a" * 256, ".clawblox/instances/records.jsonl",
    ],
)  # fmt: skip
def test_growth_with_an_unmirrored_name_is_refused(sides: Sides, name: str) -> None:
    with pytest.raises(TransferError):
        sides.mirror.apply([FileGrowth(name, 0, b"x", b"")])
    assert [*sides.driver.rglob("*")] == []
    assert sides.mirror.last_at is None


@pytest.mark.parametrize(
    "growth",
    [
        FileGrowth("logs/x", 4, b"", b""),
        FileGrowth("logs/x", 2, b"", b""),
        FileGrowth("logs/x", -1, b"", b""),
        FileGrowth("logs/new", 3, b"", b""),
        FileGrowth("logs/x", 3, bytes(POLL_BYTES + 1), b""),
        FileGrowth("logs/x", 3, b"", bytes(33)),
    ],
    ids=["later", "earlier", "negative", "new", "too much", "long digest"],
)
def test_growth_with_a_wrong_offset_or_size_is_refused(sides: Sides, growth: FileGrowth) -> None:
    sides.mirror.apply([FileGrowth("logs/x", 0, b"abc", b"1")])
    with pytest.raises(TransferError):
        sides.mirror.apply([growth])
    assert sides.contents(sides.driver) == {"logs/x": b"abc"}


def test_the_total_size_of_a_poll_is_limited(sides: Sides) -> None:
    half = bytes(POLL_BYTES // 2)
    growths = [FileGrowth(f"logs/{name}", 0, half, b"") for name in "abc"]
    sides.mirror.apply(growths[:2])
    with pytest.raises(TransferError, match="too much"):
        sides.mirror.apply(growths)


def test_a_copy_does_not_outgrow_its_limit(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_FILE_BYTES > POLL_BYTES
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 5)
    sides.mirror.apply([FileGrowth("logs/x", 0, b"abc", b"")])
    with pytest.raises(TransferError, match="too much"):
        sides.mirror.apply([FileGrowth("logs/x", 3, b"def", b"")])


def blocked_by_a_link(path: Path, outside: Path) -> None:
    path.unlink()
    path.symlink_to(outside / "file")


def blocked_by_a_hard_link(path: Path, outside: Path) -> None:
    path.unlink()
    path.hardlink_to(outside / "file")


def blocked_by_a_linked_directory(path: Path, outside: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(outside)


def blocked_by_a_directory(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir()


def cut(path: Path, _: Path) -> None:
    os.truncate(path, 1)


def gone(path: Path, _: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "change",
    [
        blocked_by_a_link,
        blocked_by_a_hard_link,
        blocked_by_a_linked_directory,
        blocked_by_a_directory,
        cut,
        gone,
    ],
)
def test_mirror_does_not_write_through_links(
    sides: Sides, tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("file", "agent.log"):
        (outside / name).write_text("mine")
    sides.write(LOG, b"abc")
    sides.write("logs/other", b"abc")
    sides.poll_all()
    change(sides.driver / LOG, outside)
    sides.write(LOG, b"def")
    sides.write("logs/other", b"def")
    for _ in range(4):
        sides.poll()
    assert sides.contents(outside) == {"file": b"mine", "agent.log": b"mine"}
    assert (sides.driver / "logs/other").read_bytes() == b"abcdef"
    if change not in (blocked_by_a_linked_directory, blocked_by_a_directory):
        assert (sides.driver / LOG).read_bytes() == b"abcdef"
        assert not (sides.driver / LOG).is_symlink()
    assert not [name for name in os.listdir(sides.driver) if name.endswith(".partial")]
    if change is blocked_by_a_linked_directory:
        assert (sides.driver / LOG).parent.is_symlink()


def test_pulled_copy_ahead_of_the_mirror_becomes_equal(sides: Sides) -> None:
    sides.write(LOG, b"abc")
    sides.poll_all()
    path = sides.write(LOG, b"def")
    (sides.driver / LOG).write_bytes(path.read_bytes())
    sides.write(LOG, b"ghi")
    sides.require_equal()
