"""After any failure at any moment, an archive is complete or absent, and others are kept."""

from __future__ import annotations

import contextlib
import errno
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from clawblox.checkpoint import verify_checkpoint
from clawblox.errors import CheckpointError, CheckpointSecretError
from clawblox.system.files import digest_file
from tests.checkpoint.faults import Dies, Disk, Fails, FallsShort, FaultFS, crash_states
from tests.checkpoint.runs import Run, check_archives, contents, fake_token, make_run
from tests.support.resources import open_fds

FAULTS = [
    pytest.param(Fails(errno.EIO), False, id="EIO", marks=pytest.mark.thorough),
    pytest.param(Fails(errno.ENOSPC), False, id="ENOSPC", marks=pytest.mark.thorough),
    pytest.param(Fails(errno.ENOSPC), True, id="ENOSPC-from-then-on"),
    pytest.param(FallsShort(), False, id="short", marks=pytest.mark.thorough),
    pytest.param(FallsShort(), True, id="short-from-then-on"),
]


def count_calls(run: Run, save: Callable[[], object]) -> int:
    with FaultFS(run.dir) as disk:
        save()
    return len(disk.calls)


def check_manifest(run: Run, name: str) -> None:
    """Check that the manifest lists the archive only if it exists, with its digest."""
    path = f"checkpoints/{name}.ckpt"
    entries = [entry for entry in run.entries() if entry["path"] == path]
    if entries:
        assert entries[0]["sha256"] == digest_file(run.archive(name))


@pytest.mark.thorough
@pytest.mark.parametrize(("fault", "stays"), FAULTS)
def test_a_failing_call_loses_no_archive_and_leaves_no_file(
    tmp_path: Path, fault: Fails | FallsShort, stays: bool
):
    run = make_run(tmp_path)
    before = digest_file(run.save("previous"))
    fds = open_fds()
    has_returned = 0
    for at in range(count_calls(run, lambda: run.save("counted")) + 1):
        returned = None
        name = f"new-{at}"
        with FaultFS(run.dir, at, fault, stays) as disk, contextlib.suppress(CheckpointError):
            returned = run.save(name)
        assert returned or disk.has_struck
        check_archives(run)
        check_manifest(run, name)
        assert digest_file(run.archive("previous")) == before
        assert open_fds() == fds
        if not stays and disk.calls[at : at + 1] != ["unlink"]:
            assert run.partials() == []
        if returned:
            has_returned += 1
            assert returned.exists()
        run.archive(name).unlink(missing_ok=True)
        for path in run.partials():
            path.unlink()
    assert not disk.has_struck, "there were more calls than were tried"
    assert has_returned


@pytest.mark.parametrize("overwrite", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_kill_at_any_call_loses_no_archive(tmp_path: Path, overwrite: bool):
    run = make_run(tmp_path)
    before = digest_file(run.save("previous"))
    name = "previous" if overwrite else "new-0"
    at = 0
    while (status := in_child(partial(save_and_die, run, name, at, overwrite))) != 0:
        assert status == 137
        check_archives(run)
        assert run.archive("previous").exists()
        if not overwrite:
            check_manifest(run, name)
            assert digest_file(run.archive("previous")) == before
            run.archive(name).unlink(missing_ok=True)
            name = f"new-{at + 1}"
        at += 1
    assert at > 10
    assert run.partials() == []


def save_and_die(run: Run, name: str, at: int, overwrite: bool) -> None:
    with FaultFS(run.dir, at, Dies()):
        run.save(name, overwrite=overwrite)


def in_child(function: Callable[[], object]) -> int:
    """Run a function in a fork; return its exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads do not affect the child
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_failed_fsync_is_never_tried_again(tmp_path: Path):
    run = make_run(tmp_path, manifest=False)
    run.save("previous")
    with FaultFS(run.dir) as disk:
        run.save("counted")
    for at in [place for place, call in enumerate(disk.calls) if call == "fsync"]:
        with FaultFS(run.dir, at, Fails(errno.EIO)) as failing, pytest.raises(CheckpointError):
            run.save("new")
        assert "fsync" not in failing.calls[at + 1 :]
        run.archive("new").unlink(missing_ok=True)


def test_content_is_synced_before_it_is_read_again(tmp_path: Path):
    run = make_run(tmp_path, manifest=False)
    with FaultFS(run.dir) as disk:
        run.save("new")
    changes = ("pwrite", "ftruncate", "fsync", "pread")
    partial = [call for call in disk.calls if call in changes]
    written = [at for at, call in enumerate(partial) if call == "pwrite"]
    # The members; then the metadata, the directory and the end.
    assert [partial[at + 1] for at in written].count("fsync") == 1
    last = written[-1]
    assert partial[last + 1 : last + 4] == ["ftruncate", "fsync", "pread"]


def test_an_archive_that_may_not_be_durable_is_reported_as_complete(tmp_path: Path):
    run = make_run(tmp_path, manifest=False)
    run.save("previous")
    with FaultFS(run.dir) as disk:
        run.save("counted")
    last = len(disk.calls) - 1 - disk.calls[::-1].index("fsync")
    failing = FaultFS(run.dir, last, Fails(errno.EIO))
    with failing, pytest.raises(CheckpointError, match="complete, but a power loss may erase it"):
        run.save("new")
    assert verify_checkpoint(run.archive("new")).is_verified
    assert run.partials() == []


@pytest.mark.thorough
def test_a_refused_secret_is_in_no_file_after_any_failure(tmp_path: Path):
    run = make_run(tmp_path)
    token = fake_token()
    (run.workspace / "notes.txt").write_text(f"token: {token}\n")
    at = 0
    while True:
        with FaultFS(run.dir, at, Fails(errno.EIO)) as disk, pytest.raises(CheckpointError) as told:
            run.save("new")
        assert run.archives() == []
        holding = [path for path, data in contents(run.dir) if data and token.encode() in data]
        assert holding == ["agents/rocky/workspace/notes.txt"]
        assert token not in f"{told.value!s} {told.value!r}"
        for path in run.partials():
            path.unlink()
        if not disk.has_struck:
            break
        at += 1
    assert isinstance(told.value, CheckpointSecretError)
    assert at > 10


# ----------------------------------------------------------------------------- power loss


def note_save(run: Run, name: str, *, overwrite: bool) -> tuple[FaultFS, Disk, dict[str, int]]:
    """Save, and return the changes of the disk, and its earlier files."""
    before = {str(path): path.read_bytes() for path in run.archives()}
    inodes = {path: os.stat(path).st_ino for path in before}
    with FaultFS(run.dir) as disk:
        run.save(name, overwrite=overwrite)
    return disk, before, inodes


def violations(
    disk: FaultFS, before: Disk, inodes: dict[str, int], new: Path, directory: Path
) -> list[str]:
    """Return the broken guarantees on the possible disks after a power loss."""
    found: list[str] = []
    judged: dict[bytes, bool] = {}
    copy = directory / "copy.ckpt"

    def loads(content: bytes) -> bool:
        if content not in judged:
            copy.write_bytes(content)
            try:
                judged[content] = verify_checkpoint(copy).is_verified
            except CheckpointError:
                judged[content] = False
        return judged[content]

    for is_over, state in crash_states(disk.trace, before, inodes):
        archives = {path: data for path, data in state.items() if path.endswith(".ckpt")}
        broken = [path for path, data in archives.items() if not loads(data)]
        found += [f"{path} does not load" for path in broken]
        found += [f"{path} is gone" for path in before if path not in archives]
        if is_over and str(new) not in archives:
            found.append("the archive that was saved is gone")
    return found


def without(disk: FaultFS, kind: str) -> FaultFS:
    return FaultFS(disk.root, trace=[event for event in disk.trace if event.kind != kind])


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_power_loss_at_any_moment_leaves_complete_archives(tmp_path: Path, overwrite: bool):
    run = make_run(tmp_path, manifest=False)
    run.save("previous")
    new = run.archive("previous" if overwrite else "new")
    noted = note_save(run, new.stem, overwrite=overwrite)
    assert violations(*noted, new, tmp_path) == []


def test_a_directory_created_by_a_save_survives_a_power_loss(tmp_path: Path):
    run = make_run(tmp_path, manifest=False)
    noted = note_save(run, "deep/er/new", overwrite=False)
    assert violations(*noted, run.archive("deep/er/new"), tmp_path) == []


@pytest.mark.parametrize("kind", ["sync", "sync directory"])
def test_the_model_of_a_power_loss_detects_a_missing_fsync(tmp_path: Path, kind: str):
    run = make_run(tmp_path, manifest=False)
    run.save("previous")
    disk, before, inodes = note_save(run, "new", overwrite=False)
    assert violations(without(disk, kind), before, inodes, run.archive("new"), tmp_path)
