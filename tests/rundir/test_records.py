"""Instance records on disk: claims of names and runs, validity, and closing of records."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawblox import ProcessExit, RunLockedError
from clawblox.rundir import records
from clawblox.rundir.claims import Claim, RunClaim, claim_name, claim_run, free_names
from clawblox.rundir.records import (
    InstanceRecord,
    close_stale_records,
    read_record,
    read_records,
    read_running,
    write_records,
)
from clawblox.system.process_tree import boot_id, command_line, read_start_time
from tests.rundir.support import records_on_disk
from tests.support.processes import is_alive
from tests.support.waiting import HANG_S, wait_until

HOLD = """
import sys
from pathlib import Path
from clawblox.rundir.claims import claim_name
claim = claim_name(Path(sys.argv[1]), sys.argv[2])
print(claim.name, flush=True)
sys.stdin.read()
"""

HOLD_RUN = """
import os, sys
from pathlib import Path
from clawblox.rundir.claims import claim_run
claim = claim_run(Path(sys.argv[1]))
print("claimed", flush=True)
sys.stdin.readline()
claim.release()
print("released", flush=True)
sys.stdin.read()
"""


def record_of(name: str, **changes: Any) -> InstanceRecord:
    """Return the record of an instance whose process is gone unless ``changes`` override it."""
    record = InstanceRecord(
        name=name,
        state="ready",
        world="counter",
        world_dir="/worlds/counter",
        instance_dir="/run/worlds/w000",
        index=0,
        host="127.0.0.1",
        port=20001,
        base_path="",
        url="http://127.0.0.1:20001",
        pid=2**22 + 1,
        start_time=1,
        boot_id=boot_id(),
        cookie="c00c1e",
        command_file="/run/start.sh",
        log_file="/run/world.log",
        log_start=0,
        started_at="2026-06-22T18:59:25Z",
        ended_at=None,
        resume_path=None,
        is_detached=False,
        orchestrator_pid=1,
        control="1-0",
        restarts=2,
        exit=None,
    )
    return msgspec.structs.replace(record, **changes)


def instances_of(run: Path) -> Path:
    return run / ".clawblox" / "instances"


def journal_path(run: Path) -> Path:
    return instances_of(run) / "records.jsonl"


def written(run: Path, *names: str, **changes: Any) -> list[InstanceRecord]:
    """Write records like their orchestrators."""
    instances_of(run).mkdir(parents=True, exist_ok=True)
    found = [record_of(name, **changes) for name in names]
    for record in found:
        write_records(run, record)
    return found


@pytest.fixture
def alive() -> Iterator[dict[str, Any]]:
    """Yield the fields of a record whose process is alive."""
    with subprocess.Popen(["sleep", "60"]) as process:
        # Its descriptors close, for which Popen waits, before its output can be read.
        wait_until(lambda: command_line(process.pid) == "sleep 60", what="the exec")
        yield {"pid": process.pid, "start_time": read_start_time(process.pid)}
        process.kill()


@contextlib.contextmanager
def held_elsewhere(run: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(run), name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == name
        yield process
        process.kill()


@contextlib.contextmanager
def released(*claims: Claim) -> Iterator[list[str]]:
    try:
        yield [claim.name for claim in claims]
    finally:
        for claim in claims:
            claim.release()


# ----------------------------------------------------------------------------------- names


def test_the_first_free_name_is_claimed_by_default(tmp_path: Path) -> None:
    claims = [claim_name(tmp_path, name) for name in (None, "w001", None, "left")]
    with released(*claims) as names:
        assert names == ["w000", "w001", "w002", "left"]
        claims[0].release()
        with released(claim_name(tmp_path, None)) as again:
            assert again == ["w000"]
        with released(claim_name(tmp_path, None, taken={"w000", "w003"})) as other:
            assert other == ["w004"]
    assert list(instances_of(tmp_path).iterdir()) == []


def test_a_released_name_is_free_again(tmp_path: Path) -> None:
    first = claim_name(tmp_path, "one")
    first.release()
    second = claim_name(tmp_path, "one")
    first.release()
    with pytest.raises(RunLockedError):
        claim_name(tmp_path, "one")
    second.release()


def test_the_directories_of_the_records_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        claim_name(tmp_path / "run", "one").release()
    finally:
        os.umask(before)
    made = [tmp_path / "run", tmp_path / "run" / ".clawblox", instances_of(tmp_path / "run")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3


def test_a_name_that_another_process_has_claimed_is_refused_with_its_pid(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path, "w000") as holder:
        with pytest.raises(RunLockedError) as caught:
            claim_name(tmp_path, "w000")
        assert caught.value.pid == holder.pid
        assert caught.value.path == instances_of(tmp_path) / "w000.lock"
        assert f"held by pid {holder.pid} ({sys.executable} -c" in str(caught.value)
        with released(claim_name(tmp_path, None)) as names:
            assert names == ["w001"]
        holder.kill()
        holder.wait()
        with released(claim_name(tmp_path, None)) as names:
            assert names == ["w000"]


def test_a_running_instance_without_an_owner_keeps_its_name(
    tmp_path: Path, alive: dict[str, Any]
) -> None:
    written(tmp_path, "w000", is_detached=True, **alive)
    with pytest.raises(RunLockedError) as caught:
        claim_name(tmp_path, "w000")
    assert caught.value.pid == alive["pid"]
    assert f"held by pid {alive['pid']} (sleep 60)" in str(caught.value)
    with released(claim_name(tmp_path, None)) as names:
        assert names == ["w001"]


def test_only_one_process_can_attach_to_a_running_instance(
    tmp_path: Path, alive: dict[str, Any]
) -> None:
    written(tmp_path, "w000", is_detached=True, **alive)
    with released(claim_name(tmp_path, "w000", may_be_alive=True)) as names:
        assert names == ["w000"]
        with pytest.raises(RunLockedError) as caught:
            claim_name(tmp_path, "w000", may_be_alive=True)
        assert caught.value.pid == os.getpid()


@pytest.mark.parametrize("state", ["starting", "ready", "exited", "failed"])
def test_the_name_of_an_instance_that_is_gone_is_free(tmp_path: Path, state: str) -> None:
    written(tmp_path, "w000", state=state)
    with released(claim_name(tmp_path, None)) as names:
        assert names == ["w000"]


def test_free_names_skip_taken_names_and_names_of_earlier_instances(
    tmp_path: Path, alive: dict[str, Any]
) -> None:
    written(tmp_path, "w000", state="exited")
    written(tmp_path, "w002", **alive)

    def first_three(*taken: str, reuse: bool) -> list[str]:
        return list(itertools.islice(free_names(tmp_path, taken, reuse=reuse), 3))

    assert first_three(reuse=True) == ["w000", "w001", "w003"]
    assert first_three(reuse=False) == ["w001", "w003", "w004"]
    assert first_three("w000", "w003", reuse=True) == ["w001", "w004", "w005"]


def test_a_claimed_name_without_a_record_is_in_use(tmp_path: Path) -> None:
    written(tmp_path, "w001", state="exited")
    with held_elsewhere(tmp_path, "w001"), released(claim_name(tmp_path, "w002")):
        names = free_names(tmp_path, (), reuse=True)
        assert list(itertools.islice(names, 2)) == ["w000", "w003"]
    assert next(free_names(tmp_path, ["w000"], reuse=True)) == "w001"


def test_names_continue_beyond_three_digits(tmp_path: Path) -> None:
    taken = [f"w{number:03}" for number in range(1000)]
    assert next(free_names(tmp_path, taken, reuse=True)) == "w1000"


# ------------------------------------------------------------------------------------ runs


@contextlib.contextmanager
def run_held_elsewhere(run: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD_RUN, str(run)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert read_output_line(process) == "claimed"
        yield process
        process.kill()


def read_output_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextlib.contextmanager
def run_claimed(run: Path, count: int = 1) -> Iterator[list[RunClaim]]:
    claims = [claim_run(run) for _ in range(count)]
    try:
        yield claims
    finally:
        for claim in claims:
            claim.release()


def is_free(run: Path) -> bool:
    """Return whether another process could claim a run directory."""
    code = "import sys, pathlib; from clawblox.rundir.claims import *; claim_run(pathlib.Path('.'))"
    result = subprocess.run([sys.executable, "-c", code], cwd=run, capture_output=True, text=True)
    assert result.returncode == 0 or "RunLockedError" in result.stderr
    return result.returncode == 0


def test_a_run_that_another_process_has_claimed_is_refused_with_its_pid(tmp_path: Path) -> None:
    with run_held_elsewhere(tmp_path) as holder:
        with pytest.raises(RunLockedError) as caught:
            claim_run(tmp_path)
        assert caught.value.pid == holder.pid
        assert caught.value.path == tmp_path / ".clawblox" / "run.lock"
        text = str(caught.value)
        assert f"held by pid {holder.pid} ({sys.executable} -c" in text
        assert f"on {socket.gethostname()} since 2" in text
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert read_output_line(holder) == "released"
        with run_claimed(tmp_path):
            pass


@pytest.mark.thorough
def test_the_claim_of_a_killed_process_ends_with_it(tmp_path: Path) -> None:
    with run_held_elsewhere(tmp_path) as holder:
        holder.kill()
        holder.wait()
        with run_claimed(tmp_path):
            assert not is_free(tmp_path)


def test_a_lock_without_a_readable_owner_is_refused(tmp_path: Path) -> None:
    with run_held_elsewhere(tmp_path):
        (tmp_path / ".clawblox" / "run.lock").write_text("")
        with pytest.raises(RunLockedError, match="is held by another process"):
            claim_run(tmp_path)


@pytest.mark.thorough
def test_the_claims_of_a_process_on_a_run_are_shared_until_the_last_is_released(
    tmp_path: Path,
) -> None:
    with run_claimed(tmp_path, 2) as (one, other):
        one.release()
        one.release()
        assert not is_free(tmp_path)
        other.release()
        assert not (tmp_path / ".clawblox" / "run.lock").exists()
        assert is_free(tmp_path)
    with run_claimed(tmp_path):
        assert not is_free(tmp_path)


@pytest.mark.thorough
def test_other_runs_can_be_claimed_concurrently(tmp_path: Path) -> None:
    with run_held_elsewhere(tmp_path / "one"), run_claimed(tmp_path / "other", 2):
        assert is_free(tmp_path)


def test_many_threads_claim_and_release_the_same_run(tmp_path: Path) -> None:
    failures: list[Exception] = []

    def claim_again_and_again() -> None:
        try:
            for _ in range(50):
                claim_run(tmp_path).release()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=claim_again_and_again) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert is_free(tmp_path)


FORK = """
import os, pathlib, socket
from clawblox.errors import RunLockedError
from clawblox.system.locks import lock_file
from clawblox.rundir.claims import claim_run
run = pathlib.Path(".")
inherited = claim_run(run)
ours, childs = socket.socketpair()
child = os.fork()
if child == 0:
    try:
        claim_run(run)
    except RunLockedError:
        childs.send(b"refused")
    assert childs.recv(8) == b"released"
    own = claim_run(run)
    inherited.release()
    assert lock_file(run / ".clawblox" / "run.lock") is None
    own.release()
    os._exit(7)
assert ours.recv(8) == b"refused"
inherited.release()
ours.send(b"released")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.thorough
def test_a_forked_child_does_not_share_the_claims_of_its_parent(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK], cwd=tmp_path, check=True, timeout=HANG_S)
    assert is_free(tmp_path)


def test_chosen_names_are_known_throughout_the_process(tmp_path: Path) -> None:
    with run_claimed(tmp_path, 2) as (one, other):
        with one.naming() as planned:
            planned |= {"w000", "w001"}
        with other.naming() as planned:
            assert planned == {"w000", "w001"}
        one.forget(["w001", "never"])
        with other.naming() as planned:
            assert planned == {"w000"}


def test_names_are_chosen_by_one_thread_at_a_time(tmp_path: Path) -> None:
    inside: list[str] = []

    def choose(claim: RunClaim) -> None:
        with claim.naming():
            inside.append("the other")

    with run_claimed(tmp_path, 2) as (one, other):
        thread = threading.Thread(target=choose, args=(other,))
        with one.naming():
            thread.start()
            thread.join(0.05)
            inside.append("one")
        thread.join()
    assert inside == ["one", "the other"]


# --------------------------------------------------------------------------------- records


def test_a_record_is_read_back_unchanged(tmp_path: Path) -> None:
    changes = {"exit": ProcessExit(signal="SIGKILL"), "resume_path": "/s.json", "world": 'ü "x"'}
    (one,) = written(tmp_path, "one", **changes)
    (other,) = written(tmp_path, "left.2", exit=ProcessExit(status=3))
    assert read_records(tmp_path) == [other, one]
    assert read_record(tmp_path, "one") == one
    assert stat.S_IMODE(journal_path(tmp_path).stat().st_mode) == 0o600
    assert records_on_disk(tmp_path)["one"]["exit"] == {"status": None, "signal": "SIGKILL"}


def test_a_record_with_values_unsupported_by_json_is_written(tmp_path: Path) -> None:
    written(tmp_path, "w001", halt="the \ud800 value", exit=ProcessExit(status=10**18))
    record = read_record(tmp_path, "w001")
    assert record is not None
    assert record.halt == "the \ufffd value"


def test_instances_with_a_live_process_are_running(tmp_path: Path, alive: dict[str, Any]) -> None:
    written(tmp_path, "w000", state="ready")
    (living,) = written(tmp_path, "w001", state="starting", **alive)
    assert read_running(tmp_path) == [living]


def test_a_directory_without_runs_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path / "missing") == []
    assert next(free_names(tmp_path / "missing", (), reuse=False)) == "w000"
    assert read_record(tmp_path / "missing", "one") is None
    assert not close_stale_records(tmp_path / "missing")


UNREADABLE = {
    "empty": b"",
    "cut short": b'{"name": "w000", "sta',
    "no JSON": b"\x00\x01",
    "no UTF-8": b'{"name": "\xff"}',
    "no object": b"[]",
    "of another version": b'{"name": "w000", "version": 2}',
    "of another type": b'{"name": 5}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("end", [b"\n", b""], ids=["whole", "torn"])
def test_a_line_that_is_not_a_record_is_skipped(tmp_path: Path, content: bytes, end: bytes) -> None:
    (first,) = written(tmp_path, "w001", state="exited")
    with journal_path(tmp_path).open("ab") as file:
        file.write(content + end)
    assert read_records(tmp_path) == [first]
    (second,) = written(tmp_path, "w002", state="exited")
    assert read_records(tmp_path) == [first, second]
    assert read_record(tmp_path, "w000") is None
    assert not close_stale_records(tmp_path)
    with released(claim_name(tmp_path, "w000")) as names:
        assert names == ["w000"]


@pytest.mark.parametrize(
    "line", [b'{"name": "w000", "version": 2}', b'{"name": "w000", "port": "x"}']
)
def test_a_name_whose_last_line_is_of_another_version_has_no_record(
    tmp_path: Path, line: bytes
) -> None:
    _, kept = written(tmp_path, "w000", "w001")
    with journal_path(tmp_path).open("ab") as file:
        file.write(line + b"\n")
    assert read_records(tmp_path) == [kept]
    assert read_record(tmp_path, "w000") is None
    (again,) = written(tmp_path, "w000")
    assert read_records(tmp_path) == [again, kept]


@pytest.mark.parametrize("damage", ["unlink", "mkdir", "chmod"])
def test_a_journal_that_cannot_be_read_has_no_records(tmp_path: Path, damage: str) -> None:
    written(tmp_path, "w000")
    assert len(read_records(tmp_path)) == 1
    if damage == "chmod":
        if os.geteuid() == 0:
            pytest.skip("root reads every file")
        journal_path(tmp_path).chmod(0)
    else:
        journal_path(tmp_path).unlink()
    if damage == "mkdir":
        journal_path(tmp_path).mkdir()
    assert read_records(tmp_path) == []
    assert read_record(tmp_path, "w000") is None


def test_options_are_recorded_unchanged(tmp_path: Path) -> None:
    options = {"restart": "fresh", "max_restarts": 3, "window": 60.0, "resume": None}
    (record,) = written(tmp_path, "w000", options=options)
    assert read_record(tmp_path, "w000") == record
    assert records_on_disk(tmp_path)["w000"]["options"] == options
    assert hash(record) == hash(read_record(tmp_path, "w000"))


def test_an_instance_is_alive_while_its_process_is_the_same(alive: dict[str, Any]) -> None:
    record = record_of("w000", **alive)
    assert record.is_alive
    assert not msgspec.structs.replace(record, start_time=record.start_time + 1).is_alive
    assert not msgspec.structs.replace(record, boot_id="another").is_alive
    assert not msgspec.structs.replace(record, pid=0).is_alive
    os.kill(record.pid, 9)
    wait_until(lambda: not is_alive(record.pid))
    assert not record.is_alive  # a zombie


# --------------------------------------------------------------------------- stale records


def test_records_of_instances_without_an_end_are_closed(
    tmp_path: Path, alive: dict[str, Any]
) -> None:
    written(tmp_path, "starting", state="starting", pid=0)
    written(tmp_path, "ready", state="ready")
    kept = [
        *written(tmp_path, "alive", **alive),
        *written(tmp_path, "exited", state="exited"),
        *written(tmp_path, "failed", state="failed"),
    ]
    closed = close_stale_records(tmp_path)
    assert closed == [record_of("ready"), record_of("starting", state="starting", pid=0)]
    after = {record.name: record for record in read_records(tmp_path)}
    assert [after[record.name] for record in kept] == kept
    for name in ("starting", "ready"):
        assert after[name].ended_at is not None
        assert after[name] == record_of(
            name, state="interrupted", ended_at=after[name].ended_at, pid=after[name].pid
        )
    assert close_stale_records(tmp_path) == []
    assert not list(instances_of(tmp_path).glob("*.lock"))


def test_an_instance_of_another_orchestrator_is_not_closed(tmp_path: Path) -> None:
    (record,) = written(tmp_path, "w000", state="starting", pid=0)
    with held_elsewhere(tmp_path, "w000"):
        assert not close_stale_records(tmp_path)
    assert read_records(tmp_path) == [record]


def test_a_record_that_changed_since_the_check_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "w000")
    take_lock = records.lock_file

    def write_first(path: Path) -> int | None:
        written(tmp_path, "w000", state="exited", port=20002)
        return take_lock(path)

    monkeypatch.setattr(records, "lock_file", write_first)
    assert not close_stale_records(tmp_path)
    assert read_records(tmp_path) == [record_of("w000", state="exited", port=20002)]
    assert not list(instances_of(tmp_path).glob("*.lock"))


def test_a_failed_write_of_a_record_releases_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (record,) = written(tmp_path, "w000")
    with monkeypatch.context() as patch:
        patch.setattr(records, "append_line", fail)
        with pytest.raises(OSError, match="No space left"):
            close_stale_records(tmp_path)
    assert read_records(tmp_path) == [record]
    claim_name(tmp_path, "w000").release()
