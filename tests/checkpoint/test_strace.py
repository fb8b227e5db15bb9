"""Saves with real failures of system calls, and on a full disk."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.system.files import digest_file
from tests.checkpoint.runs import Run, check_archives, make_run
from tests.support.sampling import sampled
from tests.support.waiting import HANG_S

ROOT = Path(__file__).parents[2]
SAVES = 8


@functools.cache
def can_run(*command: str) -> bool:
    """Return whether a program is installed and works here."""
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run([*command, "true"], capture_output=True, timeout=HANG_S).returncode == 0


def run_program(*command: str) -> subprocess.CompletedProcess[str]:
    bytecode = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": ""}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **bytecode}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, cwd=ROOT
    )


def save_under(run: Run, inject: str) -> tuple[list[Path], list[str], int]:
    """Save with failing calls; return the saved archives, the refusals and the exit status."""
    call = inject.partition(":")[0]
    tracing = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    program = [sys.executable, "-m", "tests.checkpoint.saver", str(run.dir), str(SAVES)]
    done = run_program(*tracing, "-e", f"inject={inject}", *program)
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    returned = [Path(rest) for word, rest in lines if word == "returned"]
    refused = [rest for word, rest in lines if word == "refused"]
    assert done.returncode <= 0 or not done.stderr, done.stderr
    return returned, refused, done.returncode


needs_tracing = pytest.mark.skipif("not can_run('strace', '-qq', '-o', '/dev/null')")
needs_namespaces = pytest.mark.skipif("not can_run('unshare', '-rm')")


@pytest.mark.thorough
@pytest.mark.needs("strace")
@needs_tracing
@pytest.mark.parametrize(
    "inject",
    sampled(
        [
            "pwrite64:error=EIO:when=1+13",
            "pwrite64:error=ENOSPC:when=3+17",
            "pwrite64:retval=5:when=1",  # short writes: of the snapshot,
            "pwrite64:retval=5:when=2+19",  # of headers
            "fsync:error=EIO:when=1+8",
            "link,linkat:error=ENOSPC:when=1+2",
        ],
        3,
    ),
)
def test_calls_failed_by_the_kernel_lose_no_archive(tmp_path: Path, inject: str):
    run = make_run(tmp_path)
    before = digest_file(run.save("previous"))
    returned, refused, status = save_under(run, inject)
    assert status == 0
    assert len(returned) + len(refused) == SAVES
    assert refused
    assert returned
    assert set(returned) <= set(run.archives())
    check_archives(run)
    assert digest_file(run.archive("previous")) == before
    assert run.partials() == []


@pytest.mark.needs("strace")
@needs_tracing
@pytest.mark.thorough  # the default run kills a save at every call in test_crash
@pytest.mark.parametrize("inject", ["pwrite64:signal=KILL:when=27", "fsync:signal=KILL:when=10"])
def test_a_kill_during_a_call_loses_no_archive(tmp_path: Path, inject: str):
    run = make_run(tmp_path)
    before = digest_file(run.save("previous"))
    returned, _, status = save_under(run, inject)
    assert status == -9
    assert 0 < len(returned) < SAVES
    assert set(returned) <= set(run.archives())
    check_archives(run)
    assert digest_file(run.archive("previous")) == before
    run.save("next")
    assert run.partials() == []


FULL_DISK = """
import pathlib, random, sys
from clawblox.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
disk, agent = map(pathlib.Path, sys.argv[1:])
previous = save_checkpoint(disk / "checkpoints" / "previous.ckpt", agents={"rocky": agent})
(agent / "workspace" / "large.bin").write_bytes(random.Random(1).randbytes(2 << 20))
for overwrite in False, True:
    path = previous if overwrite else previous.with_name("new.ckpt")
    try:
        save_checkpoint(path, agents={"rocky": agent}, overwrite=overwrite)
    except CheckpointError as error:
        print(error.message)
print(sorted(path.name for path in previous.parent.iterdir()))
print(load_checkpoint(previous, agent.parent / "loaded")["verified"])
"""


@pytest.mark.thorough
@needs_namespaces
def test_a_full_disk_loses_no_archive(tmp_path: Path):
    run = make_run(tmp_path, manifest=False)
    (tmp_path / "disk").mkdir()
    mounted = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
    arguments = (str(tmp_path / "disk"), sys.executable, FULL_DISK, str(run.agent))
    done = run_program("unshare", "-rm", "sh", "-c", mounted, "sh", *arguments)
    refused = "the checkpoint cannot be saved: No space left on device"
    assert done.stdout.splitlines() == [refused, refused, "['previous.ckpt']", "True"], done.stderr
