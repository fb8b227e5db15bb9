"""Searching in helper processes gives the same findings, even if the processes die."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox.checkpoint import (
    Allowance,
    CheckpointFormatError,
    CheckpointSecretError,
    read_metadata,
    scan_checkpoint,
    verify_checkpoint,
)
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.archive.writer import ArchiveWriter
from clawblox.checkpoint.audit import examine
from clawblox.checkpoint.audit.examine import EXAMINER_NAME, Examiner
from clawblox.checkpoint.secrets import Scanner
from clawblox.checkpoint.secrets.content import content_verdicts, verdicts
from clawblox.system import helper
from tests.checkpoint.runs import Run, fake_token, make_run
from tests.support.processes import command_line, descendants, is_alive
from tests.support.sampling import usually
from tests.support.waiting import HANG_S, wait_until

SECRET = "correct-horse-battery-7"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path, manifest=False)
    for number in range(80):
        (run.workspace / f"f{number:03}").write_bytes(random.Random(number).randbytes(3000))
    (run.workspace / "packed.gz").write_bytes(zlib.compress(b"some text\n" * 100, wbits=31))
    (run.workspace / "large").write_bytes(b"a line of text\n" * 150_000)
    return run


def forget() -> None:
    """Clear the caches, so that content is searched again."""
    for memory in (verdicts, content_verdicts):
        memory.clear()


@pytest.fixture
def examiners(monkeypatch: pytest.MonkeyPatch) -> list[Examiner]:
    """Let every search use examiners; return the started examiners."""
    begun: list[Examiner] = []

    def begin(known: dict[str, str]) -> Examiner:
        begun.append(Examiner(known))
        return begun[-1]

    monkeypatch.setattr(examine, "Examiner", begin)
    monkeypatch.setattr(examine, "_MUCH_BYTES", 1)
    monkeypatch.setattr(examine, "_cores", lambda: 2)
    forget()
    return begun


@pytest.fixture
def searched_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list with the content searched in this process."""
    names: list[str] = []
    scan = Scanner.scan

    def noted(scanner: Scanner, path: str, *args: object, **options: object) -> object:
        names.append(path.rpartition("/")[2])
        return scan(scanner, path, *args, **options)

    monkeypatch.setattr(Scanner, "scan", noted)
    return names


def save_alone(run: Run, name: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examine, "_MUCH_BYTES", 1 << 60)
        saved = run.save(name)
    forget()
    return saved


@pytest.mark.thorough
def test_examiners_report_the_same_as_a_search_in_this_process(
    run: Run, examiners: list[Examiner], searched_here: list[str]
):
    alone = save_alone(run, "alone")
    searched_here.clear()
    together = run.save("together")
    assert len(examiners) == 2
    # The lists of excluded entries, then the metadata without and with the summary of the scan.
    assert searched_here == ["", "", *["metadata.json"] * 2]
    assert not any(is_alive(each.pid) for each in examiners)
    scans = [read_metadata(path)["secret_scan"] for path in (alone, together)]
    assert scans[0] == scans[1]
    assert scans[1]["decoded_containers"] == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cores", "running", "begun"), [(1, 0, 0), (2, 1, 1), (2, 2, 0), (8, 3, 2)]
)
def test_there_are_never_more_examiners_than_cores(
    run: Run,
    examiners: list[Examiner],
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    running: int,
    begun: int,
):
    count = helper.count_helpers
    monkeypatch.setattr(examine, "count_helpers", lambda name: running + count(name))
    monkeypatch.setattr(examine, "_cores", lambda: cores)
    assert verify_checkpoint(run.save()).is_verified
    assert len(examiners) == begun
    assert count(EXAMINER_NAME) == 0


@pytest.mark.thorough
def test_content_searched_by_examiners_is_remembered_as_clean(run: Run, examiners: list[Examiner]):
    run.save("first")
    examiners.clear()
    run.save("second")
    # Only the metadata is new, too late for processes to boot.
    assert examiners == []


@pytest.mark.thorough
def test_an_existing_archive_is_searched_by_examiners(
    run: Run, examiners: list[Examiner], searched_here: list[str]
):
    path = run.save()
    forget()
    searched_here.clear()
    examiners.clear()
    found = scan_checkpoint(path)
    assert len(examiners) == 2
    assert searched_here == []
    assert found.findings == ()
    assert found.summary["files"] == len(read_metadata(path)["files"]) + 1


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["large", "packed.gz"])
def test_an_examiner_reports_a_secret_as_this_process_does(
    run: Run, examiners: list[Examiner], place: str
):
    path = run.workspace / place
    content = path.read_bytes()
    if place == "packed.gz":
        path.write_bytes(zlib.compress(f"key {fake_token()}\n".encode() * 2, wbits=31))
    else:
        path.write_bytes(content + f"\nkey {fake_token()}\n".encode() + content)
    findings = []
    for much in (1, 1 << 60):
        forget()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(examine, "_MUCH_BYTES", much)
            with pytest.raises(CheckpointSecretError) as told:
                run.save(f"much-{much}")
        findings.append(told.value.findings)
    assert findings[0] == findings[1]
    assert len(examiners) == 2
    allow = [
        Allowance(path=each.path, rule=each.rule, fingerprint=each.fingerprint, reason="a test")
        for each in findings[0]
    ]
    forget()
    scan = read_metadata(run.save("allowed", allow=allow))["secret_scan"]
    assert len(scan["allowed"]) == len(allow)


@pytest.mark.thorough
def test_a_secret_that_is_known_by_value_is_found_by_examiners(run: Run, examiners: list[Examiner]):
    (run.workspace / "diary").write_text(f"I was told {SECRET}, whatever that is.\n")
    with pytest.raises(CheckpointSecretError):
        run.save(known_secrets=[SECRET, "\udc80 a value of odd bytes 1"])
    assert len(examiners) == 2


@pytest.mark.thorough
def test_no_process_shows_a_secret(run: Run, examiners: list[Examiner]):
    shown: list[str] = []

    def look(done: int, total: int) -> None:
        for each in filter(lambda each: each.open_bytes, examiners):
            shown.append(command_line(each.pid))
            shown.append(Path(f"/proc/{each.pid}/environ").read_text())

    run.save(known_secrets=[SECRET], progress=look)
    assert any(EXAMINER_NAME in each for each in shown)
    assert not any(SECRET in each for each in shown)


# -------------------------------------------------------------------------------- failures


def kill_first(begun: list[Examiner]) -> None:
    kill_all(begun[:1])


def kill_all(begun: list[Examiner]) -> None:
    for each in begun:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_first, pytest.param(kill_all, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("when", usually(["booting", "at work"], "at work"))
def test_a_killed_examiner_does_not_change_the_result(
    run: Run,
    examiners: list[Examiner],
    monkeypatch: pytest.MonkeyPatch,
    kill: Callable[[list[Examiner]], None],
    when: str,
):
    alone = save_alone(run, "alone")
    name = "open" if when == "booting" else "receive"
    real = getattr(Examiner, name)
    killed: list[int] = []

    def kill_then(each: Examiner, *args: object) -> object:
        if not killed and len(examiners) == 2:
            killed.append(1)
            kill(examiners)
        return real(each, *args)

    monkeypatch.setattr(Examiner, name, kill_then)
    scan = read_metadata(run.save("killed"))["secret_scan"]
    assert killed
    assert scan == read_metadata(alone)["secret_scan"]
    assert verify_checkpoint(run.archive("killed")).is_verified


def test_a_killed_examiner_hides_no_secret(
    run: Run, examiners: list[Examiner], monkeypatch: pytest.MonkeyPatch
):
    (run.workspace / "notes.txt").write_text(fake_token())
    receive = Examiner.receive

    def kill_then(each: Examiner) -> object:
        kill_all(examiners)
        return receive(each)

    monkeypatch.setattr(Examiner, "receive", kill_then)
    with pytest.raises(CheckpointSecretError) as told:
        run.save()
    assert [each.path.rpartition("/")[2] for each in told.value.findings] == ["notes.txt"]


@pytest.mark.thorough
@pytest.mark.parametrize("spawned", [0, 1])
def test_without_a_new_process_this_process_does_the_search(
    run: Run, examiners: list[Examiner], monkeypatch: pytest.MonkeyPatch, spawned: int
):
    left = [1] * spawned
    spawn = helper._spawn

    def refuse(*args: object) -> int:
        if not left:
            raise OSError(11, "Resource temporarily unavailable")
        left.pop()
        return spawn(*args)

    monkeypatch.setattr(helper, "_spawn", refuse)
    (run.workspace / "notes.txt").write_text(fake_token())
    with pytest.raises(CheckpointSecretError):
        run.save("refused")
    (run.workspace / "notes.txt").unlink()
    assert verify_checkpoint(run.save()).is_verified
    assert len(examiners) <= spawned


@pytest.mark.thorough
def test_a_member_that_is_damaged_is_refused(
    run: Run, examiners: list[Examiner], monkeypatch: pytest.MonkeyPatch
):
    noise = (run.workspace / "f079").read_bytes()
    add_all = ArchiveWriter.add_all

    def damage(writer: ArchiveWriter, *args: object) -> None:
        add_all(writer, *args)
        fd = writer._fd
        at = os.pread(fd, os.fstat(fd).st_size, 0).index(noise)
        os.pwrite(fd, b"damaged", at + 1000)

    monkeypatch.setattr(ArchiveWriter, "add_all", damage)
    with pytest.raises(CheckpointFormatError) as told:
        run.save()
    assert told.value.entry == "agents/rocky/workspace/f079"
    assert len(examiners) == 2
    assert run.archives() == []


@pytest.mark.thorough
def test_a_hook_that_raises_ends_the_examiners(run: Run, examiners: list[Examiner]):
    calls = 0

    def end(done: int, total: int) -> None:
        nonlocal calls
        if any(each.open_bytes for each in examiners):
            calls += 1
            if calls == 3:
                raise KeyError

    with pytest.raises(KeyError):
        run.save(progress=end)
    assert len(examiners) == 2
    assert not any(is_alive(each.pid) for each in examiners)
    assert run.archives() == []


def test_the_hook_is_called_while_the_examiners_boot(
    run: Run, examiners: list[Examiner], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(examine, "_readable", lambda _descriptors: [])  # no answer ever arrives
    calls = 0

    def end(done: int, total: int) -> None:
        nonlocal calls
        calls += len(examiners) == 2 and any(each.open_bytes for each in examiners)
        if calls == 3:
            raise KeyError

    ended: list[bool] = []

    def save() -> None:
        with pytest.raises(KeyError):
            run.save(progress=end)
        ended.append(True)

    thread = threading.Thread(target=save, daemon=True)
    thread.start()
    thread.join(HANG_S)
    assert ended


@pytest.mark.thorough
def test_progress_never_decreases_and_reaches_the_total(run: Run, examiners: list[Examiner]):
    told: list[tuple[int, int]] = []
    run.save(progress=lambda done, total: told.append((done, total)))
    done = [each for each, _ in told]
    assert done == sorted(done)
    assert told[-1][0] == told[-1][1]


ORCHESTRATOR = """
import os, sys
from clawblox.checkpoint.audit.examine import Examiner
begun = Examiner({})
if sys.argv[1] == "fork" and os.fork() == 0:
    sys.stdin.read()  # a child that lives on
    os._exit(0)
print(begun.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("forks", ["alone", "fork"])
def test_an_examiner_ends_with_its_orchestrator(forks: str):
    command = [sys.executable, "-c", ORCHESTRATOR, forks]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert is_alive(pid)
        assert pid in descendants(program.pid)
        program.kill()
        wait_until(lambda: not is_alive(pid), what="the end of the examiner")


def test_an_examiner_sees_only_the_members_that_it_is_given(run: Run):
    (run.workspace / "notes.txt").write_text(fake_token())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clawblox.checkpoint.save._Save._refuse", lambda *_: None)
        path = run.save()
    begun = Examiner({})
    try:
        with Archive.open(path) as archive:
            members = {place: archive.member(entry) for place, entry in enumerate(archive.entries)}
            begun.open(archive.fd)
            begun.assign(members)
            answers = {}
            while begun.open_bytes:
                answer = begun.receive_answer()
                answers[answer.place] = answer
    finally:
        begun.end()
    answers.pop(None, None)  # a report of progress
    doubtful = [place for place, answer in answers.items() if answer.containers is None]
    assert [members[place].entry.name for place in doubtful] == ["agents/rocky/workspace/notes.txt"]
