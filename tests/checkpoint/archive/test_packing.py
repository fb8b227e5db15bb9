"""Packing in threads and copying from earlier archives do not change an archive."""

from __future__ import annotations

import os
import random
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from clawblox.checkpoint import (
    Allowance,
    CheckpointError,
    CheckpointFormatError,
    CheckpointSecretError,
    load_checkpoint,
    read_metadata,
    verify_checkpoint,
)
from clawblox.checkpoint.archive import packing, writer
from clawblox.checkpoint.archive.earlier import (
    EarlierArchives,
    Packed,
    earlier_members,
)
from clawblox.checkpoint.archive.intake import CHUNK_BYTES
from clawblox.checkpoint.archive.layout import DEFLATED, STORED
from clawblox.checkpoint.archive.reader import Archive, ArchiveMember, packed_sha256
from clawblox.checkpoint.archive.writer import ArchiveWriter
from clawblox.checkpoint.model import Source
from tests.checkpoint.runs import Run, contents, fake_token, make_run

TEXT = b"a line of text that is the same again and again\n"


@pytest.fixture(autouse=True)
def fresh_memory() -> Iterator[None]:
    earlier_members.clear()
    yield
    earlier_members.clear()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path, manifest=False)


def fill(run: Run, files: int, size: int) -> None:
    """Write files of text and of noise."""
    for number in range(files):
        noise = random.Random(number).randbytes(size)
        text = (b"%d " % number + TEXT) * (size // len(TEXT))
        (run.workspace / f"f{number:03}").write_bytes(text if number % 2 else noise)


def packed_members(path: Path) -> list[tuple[str, int, int, bytes]]:
    """Return the members of an archive without its metadata."""
    with Archive.open(path) as archive:
        return [
            (
                entry.name,
                entry.method,
                entry.size,
                packed_sha256(archive.fd, path, archive.member(entry)),
            )
            for entry in archive.entries[1:]
        ]


@pytest.fixture
def deflated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list with an element for each deflater that packs a member."""
    made: list[int] = []
    real = packing.new_deflater

    def counted() -> object:
        made.append(1)
        return real()

    monkeypatch.setattr(packing, "new_deflater", counted)
    return made


# ------------------------------------------------------------------------------- in threads


@pytest.fixture
def pool_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let small saves use threads; return the names of the packing threads."""
    names: set[str] = set()
    real = writer.pack_small

    def noted(source: Source, earlier: EarlierArchives) -> Packed | None:
        names.add(threading.current_thread().name)
        return real(source, earlier)

    monkeypatch.setattr(writer, "pack_small", noted)
    monkeypatch.setattr(writer, "_FEW_BYTES", 0)
    return names


def test_threads_do_not_change_the_order_or_the_bytes_of_members(
    run: Run, pool_threads: set[str], monkeypatch: pytest.MonkeyPatch
):
    fill(run, 60, 20_000)
    (run.workspace / "f020").write_bytes(TEXT * CHUNK_BYTES)  # a large file between small files
    monkeypatch.setattr(writer, "_AHEAD_BYTES", 100_000)
    in_threads = packed_members(run.save("threads"))
    assert any(name.startswith("clawblox-pack") for name in pool_threads)
    earlier_members.clear()
    monkeypatch.setattr(writer, "_FEW_BYTES", 1 << 40)
    pool_threads.clear()
    assert packed_members(run.save("alone")) == in_threads
    assert pool_threads == {threading.main_thread().name}
    names = [name for name, *_ in in_threads]
    assert names == ["world.snapshot", *sorted(names[1:])]


def test_the_amount_packed_ahead_is_limited(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "_FEW_BYTES", 0)
    monkeypatch.setattr(writer, "_AHEAD_BYTES", 50_000)
    submitted: list[int] = []
    submit = writer.ThreadPoolExecutor.submit

    def counted(pool: writer.ThreadPoolExecutor, *args: object) -> object:
        submitted.append(1)
        return submit(pool, *args)

    monkeypatch.setattr(writer.ThreadPoolExecutor, "submit", counted)
    path = run.workspace / "SOUL.md"
    source = Source(name="x", path=path, open=lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    with EarlierArchives() as earlier:
        outcomes = writer.pack_ahead([(source, 10_000)] * 100, earlier)
        for taken in range(10):
            _, outcome = next(outcomes)
            assert outcome() is not None
            assert len(submitted) == taken + 6
        outcomes.close()  # waits for the threads


def test_a_file_that_grew_since_the_plan_is_archived_completely(run: Run, pool_threads: set[str]):
    path = run.workspace / "grown"
    path.write_bytes(TEXT)
    (run.workspace / "other").write_bytes(TEXT)
    real = writer.pack_ahead

    def grow(sources: object, earlier: EarlierArchives) -> object:
        path.write_bytes(TEXT * CHUNK_BYTES)
        return real(sources, earlier)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clawblox.checkpoint.archive.writer.pack_ahead", grow)
        saved = run.save()
    told = read_metadata(saved)["files"]["agents/rocky/workspace/grown"]
    assert told["size"] == len(TEXT) * CHUNK_BYTES
    assert verify_checkpoint(saved).is_verified


def test_a_file_that_is_no_longer_small_is_packed_by_the_writer(run: Run):
    path = run.workspace / "grown"
    path.write_bytes(b"x" * (CHUNK_BYTES + 1))
    source = Source(name="x", path=path, open=lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    with EarlierArchives() as earlier:
        assert packing.pack_small(source, earlier) is None


def test_missing_or_unreadable_files_are_also_recorded_from_threads(
    run: Run, pool_threads: set[str], monkeypatch: pytest.MonkeyPatch
):
    fill(run, 4, 1000)
    errors = {"f001": FileNotFoundError(2, "gone"), "f002": PermissionError(13, "no")}

    def failing(source: Source) -> Source:
        def open_() -> int:
            if error := errors.get(source.path.name):
                raise error
            return source.open()

        return attrs.evolve(source, open=open_)

    real = ArchiveWriter.add_all
    monkeypatch.setattr(
        ArchiveWriter,
        "add_all",
        lambda writer, sources, on_lost: real(
            writer, [(failing(source), size) for source, size in sources], on_lost
        ),
    )
    told = read_metadata(run.save(on_unarchivable="record"))
    assert {each["path"].rpartition("/")[2]: each["reason"] for each in told["excluded"]} == {
        "f001": "vanished",
        "f002": "unreadable",
    }
    with pytest.raises(CheckpointError, match="not permitted to read"):
        run.save("refused")
    assert not run.archive("refused").exists()


def test_a_save_ended_by_its_progress_hook_leaves_no_thread(run: Run, pool_threads: set[str]):
    fill(run, 40, 20_000)

    def end(done: int, total: int) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        run.save(progress=end)
    assert run.archives() == []
    assert not [each for each in threading.enumerate() if each.name.startswith("clawblox-pack")]


def test_a_save_continues_if_no_thread_can_be_started(
    run: Run, pool_threads: set[str], monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    fill(run, 10, 1000)
    monkeypatch.setattr(writer.ThreadPoolExecutor, "submit", refuse)
    assert verify_checkpoint(run.save()).is_verified
    assert pool_threads == {threading.main_thread().name}


# ------------------------------------------------------------------------------ compressors


def test_other_programs_decompress_the_content(run: Run):
    content = b"".join(b"%d is a number\n" % number for number in range(100_000))
    (run.workspace / "large").write_bytes(content)
    (run.workspace / "small").write_bytes(content[:5000])
    with zipfile.ZipFile(run.save()) as archive:
        assert archive.testzip() is None
        assert archive.read("agents/rocky/workspace/large") == content
        assert archive.getinfo("agents/rocky/workspace/small").compress_size < 3000


class Growing:
    """A deflater that enlarges everything except a sample."""

    def __init__(self) -> None:
        self.size = 0

    def compress(self, data: bytes, /) -> bytes:
        self.size += len(data)
        return b""

    def flush(self) -> bytes:
        return b"x" * (self.size + 1)


def test_content_that_would_grow_is_stored(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packing, "new_deflater", Growing)
    (run.workspace / "small").write_bytes(TEXT * 50)
    (run.workspace / "large").write_bytes(TEXT * CHUNK_BYTES)
    assert {method for _, method, *_ in packed_members(run.save())} == {STORED}


def test_content_that_does_not_shrink_is_stored(run: Run):
    fill(run, 2, 50_000)
    (run.workspace / "begins-well").write_bytes(TEXT + random.Random(1).randbytes(200_000))
    methods = {name.rpartition("/")[2]: method for name, method, *_ in packed_members(run.save())}
    assert methods["f000"] == STORED
    assert methods["f001"] == DEFLATED


# ---------------------------------------------------------------------------------- copies


def test_unchanged_content_is_copied_from_an_earlier_archive(
    run: Run, deflated: list[int], tmp_path: Path
):
    fill(run, 10, 20_000)
    (run.workspace / "large").write_bytes(TEXT * CHUNK_BYTES)
    first = run.save("first")
    assert len(deflated) > 6
    deflated.clear()
    second = run.save("second")
    assert deflated == []
    assert packed_members(second) == packed_members(first)
    assert verify_checkpoint(second).is_verified
    (run.workspace / "f001").write_bytes(TEXT * 99)
    run.save("third")
    assert deflated == [1]


def spoil_bytes(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 50):
        data[at] ^= 0xFF
    path.write_bytes(data)


def replace_by_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "spoil",
    [
        spoil_bytes,
        Path.unlink,
        replace_by_link,
        replace_by_fifo,
        lambda path: os.truncate(path, 100),
        lambda path: path.write_bytes(b""),
        lambda path: path.chmod(0) or spoil_bytes(path),
    ],
    ids=["bytes", "gone", "link", "fifo", "short", "empty", "private"],
)
def test_a_modified_earlier_archive_does_not_affect_a_save(
    run: Run, deflated: list[int], spoil: Callable[[Path], object]
):
    fill(run, 6, 20_000)
    (run.workspace / "large").write_bytes(TEXT * CHUNK_BYTES)
    before = packed_members(run.save("first"))
    deflated.clear()
    spoil(run.archive("first"))
    assert packed_members(run.save("second")) == before
    assert deflated
    assert verify_checkpoint(run.archive("second")).is_verified


def test_a_secret_planted_in_an_earlier_archive_is_not_copied(run: Run):
    noise = random.Random(3).randbytes(20_000)
    (run.workspace / "noise").write_bytes(noise)
    first = run.save("first")
    token = fake_token().encode()
    data = bytearray(first.read_bytes())
    at = data.index(noise)
    data[at + 100 : at + 100 + len(token)] = token
    first.write_bytes(data)
    second = run.save("second")
    assert token not in second.read_bytes()
    assert noise in second.read_bytes()


def test_a_copy_that_is_damaged_while_it_is_written_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    noise = random.Random(3).randbytes(20_000)
    (run.workspace / "noise").write_bytes(noise)
    run.save("first")
    add_all = ArchiveWriter.add_all

    def damage(writer: ArchiveWriter, *args: object) -> None:
        add_all(writer, *args)
        fd = writer._fd
        at = os.pread(fd, os.fstat(fd).st_size, 0).index(noise)
        os.pwrite(fd, b"damaged", at + 1000)

    monkeypatch.setattr(ArchiveWriter, "add_all", damage)
    with pytest.raises(CheckpointFormatError):
        run.save("second")
    assert [path.name for path in run.archives()] == ["first.ckpt"]


def test_members_of_an_unpublished_archive_are_not_copied(
    run: Run, deflated: list[int], monkeypatch: pytest.MonkeyPatch
):
    fill(run, 4, 20_000)
    (run.workspace / "notes.txt").write_text(fake_token())
    with pytest.raises(CheckpointSecretError):
        run.save("refused")
    assert earlier_members.values() == []
    (run.workspace / "notes.txt").unlink()
    deflated.clear()
    run.save("second")
    assert deflated


def test_an_archive_that_replaces_its_source_of_copies_is_complete(run: Run, deflated: list[int]):
    fill(run, 4, 20_000)
    before = packed_members(run.save("a"))
    deflated.clear()
    for _ in range(2):
        assert packed_members(run.save("a", overwrite=True)) == before
    assert deflated == []


# --------------------------------------------------------------------------- clean content


def test_content_that_was_clean_is_searched_again_for_a_new_secret(run: Run):
    secret = "correct-horse-battery-7"
    (run.workspace / "diary").write_text(f"I was told {secret}, whatever that is.\n")
    run.save("first")
    run.save("second")
    with pytest.raises(CheckpointSecretError) as told:
        run.save("third", known_secrets=[secret])
    assert [each.path for each in told.value.findings] == ["agents/rocky/workspace/diary"]
    assert not run.archive("third").exists()


def test_content_with_an_allowed_finding_is_not_remembered_as_clean(run: Run):
    (run.workspace / "notes.txt").write_text(fake_token())
    with pytest.raises(CheckpointSecretError) as told:
        run.save("refused")
    [finding] = told.value.findings
    allowance = Allowance(
        path=finding.path, rule=finding.rule, fingerprint=finding.fingerprint, reason="a test"
    )
    for name in ("first", "second"):
        allowed = read_metadata(run.save(name, allow=[allowance]))["secret_scan"]["allowed"]
        assert [each["fingerprint"] for each in allowed] == [finding.fingerprint]
    with pytest.raises(CheckpointSecretError):
        run.save("third")


def test_the_path_of_a_file_with_clean_content_is_searched(run: Run):
    fill(run, 2, 1000)
    run.save("first")
    (run.workspace / "f000").rename(run.workspace / fake_token())
    with pytest.raises(CheckpointSecretError) as told:
        run.save("second")
    places = [each.path.rpartition("/")[0] for each in told.value.findings]
    assert "agents/rocky/workspace" in places


def test_a_second_archive_has_the_same_scan_summary_as_the_first(run: Run):
    fill(run, 4, 20_000)
    (run.workspace / "packed.gz").write_bytes(zlib.compress(TEXT * 100, wbits=31))
    scans = [read_metadata(run.save(name))["secret_scan"] for name in ("first", "second")]
    assert scans[0] == scans[1]
    assert scans[0]["decoded_containers"] == 1
    assert scans[0]["files"] == 9


def test_a_changed_file_with_unchanged_size_and_time_is_read(run: Run):
    path = run.workspace / "notes.txt"
    token = fake_token()
    path.write_text("x" * len(token))
    os.utime(path, ns=(1, 1))
    run.save("first")
    path.write_text(token)
    os.utime(path, ns=(1, 1))
    with pytest.raises(CheckpointSecretError):
        run.save("second")


def test_a_copied_member_is_loaded_unchanged(run: Run, tmp_path: Path):
    fill(run, 6, 20_000)
    run.save("first")
    loaded = load_checkpoint(run.save("second"), tmp_path / "new")
    workspace = loaded["agents"]["rocky"] / "workspace"
    assert dict(contents(workspace)) == dict(contents(run.workspace))


def test_a_complete_archive_with_other_members_than_those_examined_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    fill(run, 4, 1000)
    examined: list[list[ArchiveMember]] = []
    members = ArchiveWriter.members

    def fewer(writer: ArchiveWriter) -> list[ArchiveMember]:
        assert members.fget is not None
        examined.append(members.fget(writer))
        return examined[-1] if len(examined) == 1 else examined[-1][:-1]

    monkeypatch.setattr(ArchiveWriter, "members", property(fewer))
    with pytest.raises(CheckpointFormatError, match="does not have the members"):
        run.save()
    assert len(examined) == 2
    assert run.archives() == []
