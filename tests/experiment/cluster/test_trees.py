"""Directories arrive complete or not at all, and untrusted names cannot leave them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.experiment.cluster import trees
from clawblox.experiment.cluster.chunks import TransferError
from clawblox.experiment.cluster.trees import (
    TreeLimits,
    apply,
    check_name,
    difference,
    list_tree,
    pack,
    unpack,
)
from clawblox.system.trees import MAX_DEPTH

FILE = stat.S_IFREG | 0o644
DIRECTORY = stat.S_IFDIR | 0o755
LINK = stat.S_IFLNK | 0o777


def read_tree(root: Path) -> dict[str, Any]:
    """Return everything that must be transferred."""

    def describe(path: Path) -> tuple[object, ...]:
        status = path.lstat()
        if path.is_symlink():
            return status.st_mode, status.st_mtime_ns, path.readlink()
        return status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else b""

    return {str(path.relative_to(root)): describe(path) for path in root.rglob("*")}


def member(name: bytes, mode: int = FILE, size: int = 0, link: bytes = b"") -> list[Any]:
    return [name, mode, 10**18, size, link]


def write_bundle(file: Path, members: list[list[Any]], contents: bytes = b"") -> Path:
    index = msgspec.msgpack.encode(members)
    file.write_bytes(contents + index + len(index).to_bytes(8))
    return file


def interrupt_at(number: int) -> Callable[[], None]:
    calls = iter(range(number))

    def check() -> None:
        if next(calls, None) is None:
            raise InterruptedError

    return check


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "place"
    directory.mkdir()
    return directory


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


@pytest.fixture
def filled(source: Path) -> Iterator[Path]:
    (source / "deep" / "er").mkdir(parents=True)
    (source / "empty").mkdir(mode=0o711)
    (source / "deep" / "run.sh").write_bytes(bytes(range(256)) * 5000)
    (source / "deep" / "run.sh").chmod(0o751)
    (source / os.fsdecode(b"not utf-8 \xff\n%s")).write_text("odd")
    (source / ("ü" * 120)).touch(mode=0o400)
    (source / "deep" / "er" / "old").write_text("old")
    os.utime(source / "deep" / "er" / "old", ns=(0, -1_500_000_001))
    (source / "out").symlink_to("/etc/passwd")
    (source / "deep" / "dangling").symlink_to(os.fsdecode(b"../\xfe nowhere"))
    (source / "deep" / "er").chmod(0o555)
    yield source
    (source / "deep" / "er").chmod(0o755)


# -- what travels ----------------------------------------------------------------------------------


def test_directory_arrives_unchanged(filled: Path, place: Path, bundle: Path) -> None:
    pack(filled, bundle)
    unpack(bundle, place / "new")
    assert read_tree(place / "new") == read_tree(filled)
    assert [*place.iterdir()] == [place / "new"]
    (place / "new" / "deep" / "er").chmod(0o755)


def test_pipes_sockets_and_set_user_ids_stay_behind(
    source: Path, place: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(source / "pipe")
    monkeypatch.chdir(source)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    (source / "program").touch()
    (source / "program").chmod(0o6755)
    assert list_tree(source).keys() == {"program"}
    pack(source, bundle)
    unpack(bundle, place / "new")
    assert os.listdir(place / "new") == ["program"]
    assert stat.S_IMODE((place / "new" / "program").stat().st_mode) == 0o755


def test_paths_that_are_too_deep_are_omitted(source: Path, place: Path, bundle: Path) -> None:
    deepest = source.joinpath(*["d"] * (MAX_DEPTH + 1))
    deepest.mkdir(parents=True)
    (deepest.parent / "file").touch()
    assert max(name.count("/") for name in list_tree(source)) == MAX_DEPTH - 1
    pack(source, bundle)
    unpack(bundle, place / "new")
    assert len([*(place / "new").rglob("*")]) == MAX_DEPTH


def test_a_larger_directory_is_refused_before_it_is_packed(source: Path) -> None:
    for name in "abc":
        (source / name).write_bytes(bytes(100))
    list_tree(source, TreeLimits(3, 300))
    for limits in (TreeLimits(2, 300), TreeLimits(3, 299)):
        with pytest.raises(TransferError, match="more than"):
            list_tree(source, limits)


def test_unpacking_into_a_directory_with_files_is_refused(
    source: Path, place: Path, bundle: Path
) -> None:
    pack(source, bundle)
    (place / "new").mkdir()
    (place / "new" / "mine").touch()
    with pytest.raises(OSError, match="not empty"):
        unpack(bundle, place / "new")
    assert [*place.rglob("*")] == [place / "new", place / "new" / "mine"]


# -- files that change while they are packed -------------------------------------------------------


def packed(source: Path, bundle: Path, change: Callable[[int], None]) -> dict[str, Any]:
    """Pack a directory that changes at each check, and return the packed contents."""
    calls = iter(range(1000))
    pack(source, bundle, check=lambda: change(next(calls)))
    with TemporaryDirectory() as parent:
        unpack(bundle, Path(parent, "new"))
        return {name: entry[-1] for name, entry in read_tree(Path(parent, "new")).items()}


def test_a_file_that_changes_once_is_read_again(source: Path, bundle: Path) -> None:
    file = source / "file"
    file.write_bytes(b"a" * (3 << 20))

    def change(call: int) -> None:  # 0 is the walk, 1 to 3 the pieces
        if call == 2:
            file.write_bytes(b"b" * (3 << 20))

    assert packed(source, bundle, change) == {"file": b"b" * (3 << 20)}


def test_a_file_that_keeps_changing_is_absent(source: Path, bundle: Path) -> None:
    (source / "changing").write_bytes(b"a")
    (source / "steady").write_bytes(b"b")

    def change(call: int) -> None:
        os.utime(source / "changing", ns=(call, call))

    assert packed(source, bundle, change) == {"steady": b"b"}


def test_a_file_that_keeps_growing_is_cut_at_a_size_it_had(source: Path, bundle: Path) -> None:
    def change(_: int) -> None:
        with (source / "growing").open("ab") as log:
            log.write(b"line\n")

    change(0)
    content = packed(source, bundle, change)["growing"]
    assert content
    assert content == b"line\n" * (len(content) // 5)


def test_a_file_that_keeps_shrinking_is_absent(source: Path, bundle: Path) -> None:
    file = source / "file"
    file.write_bytes(bytes(100))
    change = lambda call: os.truncate(file, 99 - call)  # noqa: E731
    assert packed(source, bundle, change) == {}


@pytest.mark.parametrize("turn", ["gone", "link", "directory"])
def test_replaced_entry_is_absent(source: Path, bundle: Path, turn: str) -> None:
    (source / "b").mkdir()
    (source / "b" / "inner").touch()
    for name in "ac":
        (source / name).touch()

    def change(call: int) -> None:
        if call == 0:  # the names have been read
            (source / "a").unlink()
            (source / "b").rename(source / "moved")
            if turn == "link":
                (source / "b").symlink_to("/")
            if turn == "directory":
                (source / "a").mkdir()

    names = packed(source, bundle, change).keys()
    assert names == {"c", *{"link": ["b"], "directory": ["a"]}.get(turn, [])}


def test_a_file_that_becomes_a_link_before_it_is_opened_is_absent(
    source: Path, place: Path, bundle: Path
) -> None:
    (place / "secret").write_text("secret")
    (source / "file").touch()

    class Names(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            (source / "file").unlink()
            (source / "file").symlink_to(place / "secret")
            return super().__contains__(name)

    pack(source, bundle, Names(["file"]))
    unpack(bundle, place / "new")
    assert [*(place / "new").iterdir()] == []


# -- later pulls -----------------------------------------------------------------------------------


def pull(source: Path, target: Path, bundle: Path, before: dict[str, Any]) -> dict[str, Any]:
    now = list_tree(source)
    changed, gone = difference(before, now)
    pack(source, bundle, changed)
    apply(bundle, target, gone)
    return now


NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
EDITS = st.tuples(
    st.sampled_from(["write", "mkdir", "link", "remove", "chmod", "move", "pull", "touch"]),
    NAMES,
    st.sampled_from(["", "x", "y", "longer", "/", ".."]),
)


def edit(root: Path, what: str, name: str, text: str) -> None:
    path = root / name
    if any(parent.is_symlink() for parent in path.parents):
        return
    if what == "write":
        path.write_text(text)
    elif what == "mkdir":
        path.mkdir()
    elif what == "link":
        path.symlink_to(text or "a")
    elif what == "remove":
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    elif what == "chmod" and not path.is_symlink():
        path.chmod(0o700 + len(text))
    elif what == "touch":
        os.utime(path, ns=(5, 5), follow_symlinks=False)
    elif what == "move":
        path.rename(root / "c")


@given(st.lists(EDITS, max_size=30))
def test_the_result_of_pulls_after_any_edits_equals_a_fresh_copy(
    edits: list[tuple[str, str, str]],
) -> None:
    with TemporaryDirectory() as directory:
        source, target, bundle = (Path(directory, name) for name in ("source", "target", "bundle"))
        source.mkdir()
        pack(source, bundle)
        unpack(bundle, target)
        before = list_tree(source)
        for what, name, text in [*edits, ("pull", "", "")]:
            if what != "pull":
                try:
                    edit(source, what, name, text)
                except OSError:
                    continue  # no such file, or no room for it
                continue
            before = pull(source, target, bundle, before)
            assert read_tree(target) == read_tree(source)
        assert {path.name for path in Path(directory).iterdir()} == {"source", "target", "bundle"}


def test_only_directories_and_changed_files_are_sent_again(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_FRESH_NS", 0)
    before = list_tree(filled)
    (filled / "deep" / "run.sh").write_bytes(b"shorter")
    (filled / "out").unlink()
    (filled / "empty" / "new").touch()
    changed, gone = difference(before, list_tree(filled))
    assert changed == {"deep", "deep/er", "deep/run.sh", "empty", "empty/new"}
    assert gone == ("out",)


def test_a_file_that_may_change_in_the_same_tick_is_sent_again(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "file").touch()
    for fresh_ns, changed in ((0, set()), (3600 * 10**9, {"file"})):
        monkeypatch.setattr(trees, "_FRESH_NS", fresh_ns)
        assert difference(list_tree(source), list_tree(source)) == (changed, ())


def test_a_change_that_keeps_the_modification_time_is_sent(source: Path) -> None:
    file = source / "file"
    file.write_text("aa")
    os.utime(file, ns=(7, 7))
    before = list_tree(source)
    file.write_text("bb")  # perhaps in the same tick of the clock
    os.utime(file, ns=(7, 7))
    assert "file" in difference(before, list_tree(source))[0]


def test_a_read_only_directory_is_changed_and_stays_read_only(
    source: Path, place: Path, bundle: Path
) -> None:
    target = place / "target"
    (source / "d" / "e").mkdir(parents=True)
    (source / "d" / "old").touch()
    pack(source, bundle)
    unpack(bundle, target)
    before = list_tree(source)
    (source / "d" / "old").unlink()
    (source / "d" / "e" / "new").touch()
    for name in ("d/e", "d"):
        (source / name).chmod(0o500)
    for _ in range(2):
        before = pull(source, target, bundle, before)
        assert read_tree(target) == read_tree(source)
    modes = set[int]()  # of the directory while it is changed, since root may change any
    apply(bundle, target, [], check=lambda: modes.add((target / "d").stat().st_mode & 0o777))
    assert 0o700 in modes
    for root in (source, target):
        for name in ("d", "d/e"):
            (root / name).chmod(0o700)


def test_links_of_earlier_pulls_are_not_followed(place: Path, bundle: Path) -> None:
    outside, target = place / "outside", place / "target"
    (outside / "d").mkdir(parents=True)
    (outside / "d" / "file").write_text("mine")
    target.mkdir()
    (target / "link").symlink_to(outside)
    (target / "file").symlink_to(outside / "d" / "file")
    before = read_tree(outside)
    apply(write_bundle(bundle, []), target, ["link/d/file", "link/d", "file/x"])
    with pytest.raises(TransferError):
        apply(write_bundle(bundle, [member(b"link/d/file")]), target, [])
    members = [member(b"file"), member(b"link", DIRECTORY), member(b"link/d", DIRECTORY)]
    apply(write_bundle(bundle, [*members, member(b"link/d/file")]), target, [])
    assert read_tree(outside) == before
    assert (target / "link" / "d" / "file").read_bytes() == b""
    (target / "again").symlink_to(outside)
    apply(write_bundle(bundle, []), target, ["again"])
    assert read_tree(outside) == before
    assert {path.name for path in target.iterdir()} == {"file", "link"}


def test_an_interrupted_pull_leaves_each_file_old_or_new(place: Path, bundle: Path) -> None:
    for number in range(1, 100):
        target = place / str(number)
        target.mkdir()
        for name in "ab":
            (target / name).write_text("old")
        members = [member(b"a", size=2 << 20), member(b"b", size=3)]
        contents = bytes(2 << 20) + b"new"
        write_bundle(bundle, members, contents)
        try:
            apply(bundle, target, [], check=interrupt_at(number))
        except InterruptedError:
            assert (target / "a").read_bytes() in (b"old", bytes(2 << 20))
            assert (target / "b").read_bytes() in (b"old", b"new")
        else:
            break
        assert {path.name for path in place.iterdir()} == {*map(str, range(1, number + 1))}
    assert number == 5
    assert (target / "b").read_bytes() == b"new"


# -- foreign bundles -------------------------------------------------------------------------------

TOP = member(b"d", DIRECTORY)

HOSTILE = {
    "absolute": [member(b"/etc/passwd")],
    "up": [member(b"../up")],
    "up below": [TOP, member(b"d/../../up")],
    "here": [member(b".")],
    "empty": [member(b"", DIRECTORY)],
    "slash": [TOP, member(b"d/")],
    "double slash": [TOP, member(b"d//x")],
    "nul": [member(b"a\0b")],
    "long": [member(b"a" * 256)],
    "long path": [member(b"/".join([b"a" * 250] * 20))],
    "twice": [member(b"a"), member(b"a")],
    "file twice as link": [member(b"a"), member(b"a", LINK, link=b"/")],
    "below a file": [member(b"a"), member(b"a/b")],
    "below a link": [member(b"a", LINK, link=b"/tmp"), member(b"a/b")],
    "directory and then a link": [TOP, member(b"d", LINK, link=b"/tmp"), member(b"d/b")],
    "no directory": [member(b"d/b")],
    "directory later": [member(b"d/b"), TOP],
    "character device": [member(b"a", stat.S_IFCHR | 0o666)],
    "block device": [member(b"a", stat.S_IFBLK | 0o666)],
    "pipe": [member(b"a", stat.S_IFIFO | 0o666)],
    "socket": [member(b"a", stat.S_IFSOCK | 0o666)],
    "no kind": [member(b"a", 0o644)],
    "odd mode": [member(b"a", 1 << 40)],
    "negative mode": [member(b"a", -1)],
    "negative size": [member(b"a", size=-512), member(b"b", size=512)],
    "more than there is": [member(b"a", size=1)],
    "too large": [member(b"a", size=1 << 60)],
    "empty link": [member(b"a", LINK)],
    "nul in a link": [member(b"a", LINK, link=b"a\0b")],
    "long link": [member(b"a", LINK, link=b"a" * 4096)],
    "too many": [member(b"%d" % number) for number in range(1001)],
    "text": [["a", FILE, 0, 0, b""]],
    "short": [[b"a", FILE, 0, 0]],
    "further fields": [[b"a", FILE, 0, 0, b"", b"device"]],
}


@pytest.mark.parametrize("members", [*HOSTILE.values()], ids=[*HOSTILE])
def test_hostile_bundle_leaves_no_files(
    members: list[list[Any]], place: Path, bundle: Path
) -> None:
    write_bundle(bundle, members)
    with pytest.raises(TransferError):
        unpack(bundle, place / "new", TreeLimits(members=1000))
    assert [*place.iterdir()] == []


def test_hostile_names_of_removed_files_are_refused(place: Path, bundle: Path) -> None:
    write_bundle(bundle, [])
    (place / "target").mkdir()
    (place / "target" / "a").touch()
    deep = "/".join(["a"] * (MAX_DEPTH + 1))
    long = "/".join(["a" * 250] * 20)
    for name in ("../target/a", "/etc", "", ".", "..", "a/..", "b\0", "\ud800", deep, long):
        with pytest.raises(TransferError):
            apply(bundle, place / "target", ["a", name])
    assert [*place.rglob("*")] == [place / "target", place / "target" / "a"]


@given(
    name=st.binary(max_size=20) | st.lists(st.sampled_from([b"..", b"a", b"", b"."])).map(b"/".join)
)
def test_hostile_names_cannot_leave_the_directory(name: bytes) -> None:
    with TemporaryDirectory() as directory:
        place = Path(directory, "place")
        place.mkdir()
        parents = [b"/".join(name.split(b"/")[:n]) for n in range(1, len(name.split(b"/")))]
        bundle = Path(directory, "bundle")
        write_bundle(bundle, [*(member(parent, DIRECTORY) for parent in parents), member(name)])
        try:
            unpack(bundle, place / "new")
        except TransferError:
            assert [*place.iterdir()] == []
        else:
            assert os.path.isfile(os.fsencode(place / "new") + b"/" + name)
            assert [*place.iterdir()] == [place / "new"]
        assert {path.name for path in Path(directory).iterdir()} == {"place", "bundle"}


@given(st.text() | st.binary().map(os.fsdecode))
def test_checked_names_stay_below_the_directory(name: str) -> None:
    try:
        check_name(name)
    except TransferError:
        return
    path = os.path.normpath(f"/a/b/{name}")
    assert path == f"/a/b/{name}"
    assert path.startswith("/a/b/")


def test_truncated_bundle_leaves_no_files(place: Path, bundle: Path) -> None:
    write_bundle(bundle, [TOP, member(b"d/a", size=20)], bytes(20))
    whole = bundle.read_bytes()
    for size in range(len(whole)):
        bundle.write_bytes(whole[:size])
        with pytest.raises(TransferError):
            unpack(bundle, place / "new")
        assert [*place.iterdir()] == []
    bundle.write_bytes(whole)
    unpack(bundle, place / "new")


@pytest.mark.parametrize("length", [1 << 62, 100])
def test_an_index_that_is_too_long_is_not_read(length: int, place: Path, bundle: Path) -> None:
    bundle.write_bytes(bytes(50) + length.to_bytes(8))
    with pytest.raises(TransferError, match="index is too long"):
        unpack(bundle, place / "new")


def test_limits_are_checked_before_writing(place: Path, bundle: Path) -> None:
    write_bundle(bundle, [TOP, member(b"d/a", size=20)], bytes(20))
    for limits in (TreeLimits(members=1), TreeLimits(total_bytes=19)):
        with pytest.raises(TransferError, match="more than"):
            unpack(bundle, place / "new", limits)
    unpack(bundle, place / "new", TreeLimits(2, 20))


def test_interrupted_unpacking_leaves_no_files(place: Path, bundle: Path) -> None:
    write_bundle(bundle, [TOP, member(b"d/a", size=20)], bytes(20))
    for number in range(3):
        with pytest.raises(InterruptedError):
            unpack(bundle, place / "new", check=interrupt_at(number))
        assert [*place.iterdir()] == []


def test_an_interrupted_packing_leaves_no_bundle(filled: Path, place: Path) -> None:
    for number in range(8):
        with pytest.raises(InterruptedError):
            pack(filled, place / "bundle", check=interrupt_at(number))
        assert [*place.iterdir()] == []
