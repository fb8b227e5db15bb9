"""Hostile files in the state directory, which the agent writes and the orchestrator reads."""

from __future__ import annotations

import inspect
import json
import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.agents.drivers import find_driver
from clawblox.agents.drivers.driver import AgentSetup, Driver, RecordedUsage
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs.kimi import work_dir_key
from clawblox.agents.programs.program import project_slug
from clawblox.concurrency.threads import Interruption
from tests.agents.drivers.support import within_limit
from tests.support.databases import hot_journal, leave_database

ID = str(uuid.UUID(int=7))
SECRET = "only-the-orchestrator-may-read-this"
IN_SANDBOX = Path("/workspace")


@pytest.fixture
def directory(tmp_path: Path) -> AgentDir:
    directory = AgentDir(tmp_path / "agents" / "Eko")
    for path in (directory.workspace, directory.home, directory.state, directory.runtime):
        path.mkdir(parents=True)
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    return path


def sandboxed(name: str, directory: AgentDir, **more: Any) -> AgentSetup:
    return AgentSetup(
        directory=directory,
        binary=name,
        workspace=IN_SANDBOX,
        home=Path("/home/agent"),
        state=Path("/session"),
        runtime=Path("/runtime"),
        system_prompt="Be kind.",
        **more,
    )


def entries(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


TRANSCRIPTS = {
    "claude": f"projects/-old/{ID}.jsonl",
    "codex": f"sessions/2026/01/02/rollout-2026-01-02T03-04-05-{ID}.jsonl",
    "kimi": f"sessions/wd_old_0123456789ab/{ID}/agents/main/wire.jsonl",
}


@pytest.fixture(params=TRANSCRIPTS)
def driver(request: pytest.FixtureRequest) -> Driver:
    return find_driver(request.param)


def find_transcript(driver: Driver, root: Path) -> Path:
    return root / TRANSCRIPTS[driver.program.driver]


def test_a_link_or_pipe_in_place_of_a_transcript_is_ignored(
    driver: Driver, directory: AgentDir, outside: Path
) -> None:
    place = find_transcript(driver, directory.state)
    real = write(place, "{}\n")
    assert driver.transcripts(directory) == {ID: place}
    real.rename(outside / "transcript")
    place.symlink_to(outside / "transcript")
    assert driver.transcripts(directory) == {}
    place.unlink()
    os.mkfifo(place)
    assert driver.transcripts(directory) == {}


def test_transcripts_behind_a_link_to_another_directory_are_not_found(
    driver: Driver, directory: AgentDir, outside: Path
) -> None:
    place = find_transcript(driver, outside)
    write(place, "{}\n")
    parts = place.relative_to(outside).parts
    for depth in range(1, len(parts)):
        link = directory.state.joinpath(*parts[:depth])
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(outside.joinpath(*parts[:depth]))
        assert driver.transcripts(directory) == {}
        driver.adopt(sandboxed(driver.program.driver, directory), ID, Interruption())
        link.unlink()
        assert place.exists()


def test_reading_usage_never_waits_for_a_pipe(directory: AgentDir) -> None:
    kimi = find_driver("kimi")
    wire = write(find_transcript(kimi, directory.state), "{}\n")
    pipe = wire.parent.parent / "sub" / "wire.jsonl"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    within_limit(lambda: kimi.read_usage(directory, ID, RecordedUsage()), pipe)


def test_settings_behind_a_link_are_not_copied_for_the_agent(
    directory: AgentDir, outside: Path
) -> None:
    claude, place = find_driver("claude"), directory.state / ".claude.json"
    secret = write(outside / "credentials.json", json.dumps({"token": SECRET}))
    place.symlink_to(secret)
    claude.prepare(sandboxed("claude", directory), {})
    assert SECRET not in place.read_text()
    assert not place.is_symlink()
    assert json.loads(secret.read_text()) == {"token": SECRET}


@pytest.mark.parametrize("nesting", [300, 700, 990, 100_000])
def test_deeply_nested_settings_do_not_prevent_a_start(nesting: int, directory: AgentDir) -> None:
    place = write(directory.state / ".claude.json", '{"a":' * nesting + "1" + "}" * nesting)
    find_driver("claude").prepare(sandboxed("claude", directory), {})
    assert json.loads(place.read_text())["hasCompletedOnboarding"] is True


PREPARE = """
import resource, sys
from pathlib import Path
from clawblox.agents.layout import AgentDir
from clawblox.agents.drivers.claude import ClaudeDriver
from clawblox.agents.drivers.driver import AgentSetup
resource.setrlimit(resource.RLIMIT_DATA, (250 << 20, 250 << 20))
here = Path("/")
setup = AgentSetup(
    directory=AgentDir(Path(sys.argv[1])), binary="x", workspace=here, home=here, state=here
)
ClaudeDriver().prepare(setup, {})
"""


@pytest.mark.thorough
def test_settings_of_millions_of_values_take_no_memory(directory: AgentDir) -> None:
    place = directory.state / ".claude.json"
    place.write_bytes(b'{"a":[' + b"[]," * (4 << 20) + b"[]]}")
    subprocess.run([sys.executable, "-c", PREPARE, str(directory.path)], check=True)
    assert "a" not in json.loads(place.read_text())


def nest(path: Path, depth: int) -> None:
    """Create nested directories."""
    path.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        deeper = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)


@pytest.fixture
def recursion_limit() -> Iterator[int]:
    """Let a recursion of a few hundred calls fail, so that few directories suffice."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    yield sys.getrecursionlimit()
    sys.setrecursionlimit(limit)


@pytest.mark.thorough
def test_deeply_nested_directories_do_not_prevent_a_start(
    directory: AgentDir, recursion_limit: int
) -> None:
    slug = project_slug(str(IN_SANDBOX))
    transcript = write(find_transcript(find_driver("claude"), directory.state), "{}\n")
    for place in (transcript.parent, directory.state / "projects" / slug):
        nest(place, recursion_limit)
    nest(directory.state / "packages", recursion_limit)
    find_driver("codex").prepare(sandboxed("codex", directory), {})
    find_driver("claude").adopt(sandboxed("claude", directory), ID, Interruption())
    moved = directory.state / "projects" / slug / f"{ID}.jsonl"
    assert find_driver("claude").transcripts(directory) == {ID: moved}


def test_preparing_never_waits_for_a_pipe(directory: AgentDir) -> None:
    pipe = directory.state / ".claude.json"
    os.mkfifo(pipe)
    within_limit(
        lambda: find_driver("claude").prepare(sandboxed("claude", directory), {}),
        pipe,
    )
    assert pipe.is_file()


def test_a_conversation_is_never_moved_through_a_link(directory: AgentDir, outside: Path) -> None:
    claude, slug = find_driver("claude"), project_slug(str(IN_SANDBOX))
    transcript = write(find_transcript(claude, directory.state), "{}\n")
    write(transcript.parent / "authorized_keys", "the agent's")
    (directory.state / "projects" / slug).symlink_to(outside)
    with pytest.raises(OSError):  # noqa: PT011 - which one is for the system to say
        claude.adopt(sandboxed("claude", directory), ID, Interruption())
    assert entries(outside) == []


def test_side_files_of_a_conversation_are_never_moved_through_a_link(
    directory: AgentDir, outside: Path
) -> None:
    claude, slug = find_driver("claude"), project_slug(str(IN_SANDBOX))
    transcript = write(find_transcript(claude, directory.state), "{}\n")
    write(transcript.parent / "memory" / "authorized_keys", "the agent's")
    project = directory.state / "projects" / slug
    project.mkdir()
    (project / "memory").symlink_to(outside)
    claude.adopt(sandboxed("claude", directory), ID, Interruption())
    assert entries(outside) == []
    assert claude.transcripts(directory) == {ID: project / f"{ID}.jsonl"}


def test_a_kimi_conversation_is_never_rewritten_or_moved_through_a_link(
    directory: AgentDir, outside: Path
) -> None:
    kimi, key = find_driver("kimi"), work_dir_key(IN_SANDBOX)
    wire = write(find_transcript(kimi, directory.state), '{"type":"permission.set_mode"}\n')
    session = wire.parents[2]
    write(session / "state.json", "{}")
    theirs = write(outside / "wire.jsonl", '{"type":"permission.set_mode"}\n')
    (session / "agents" / "sub").symlink_to(outside)
    (directory.state / "sessions" / key).symlink_to(outside)
    with pytest.raises(OSError):  # noqa: PT011 - which one is for the system to say
        kimi.adopt(sandboxed("kimi", directory), ID, Interruption())
    assert theirs.read_text() == '{"type":"permission.set_mode"}\n'
    assert entries(outside) == ["wire.jsonl"]


@pytest.mark.parametrize("what", ["link", "pipe"])
def test_the_state_file_of_a_kimi_conversation_is_never_read_through_a_link(
    what: str, directory: AgentDir, outside: Path
) -> None:
    kimi = find_driver("kimi")
    wire = write(find_transcript(kimi, directory.state), "{}\n")
    state = wire.parents[2] / "state.json"
    if what == "link":
        state.symlink_to(write(outside / "state.json", json.dumps({"token": SECRET})))
    else:
        os.mkfifo(state)
    within_limit(lambda: kimi.adopt(sandboxed("kimi", directory), ID, Interruption()), state)
    assert state.is_symlink() is (what == "link")  # not replaced by a file with this content


DATABASES = {"codex": "state_5.sqlite", "opencode": "data/opencode/opencode.db"}


@pytest.fixture(params=DATABASES)
def place(request: pytest.FixtureRequest, directory: AgentDir) -> Path:
    path = directory.state / DATABASES[request.param]
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def use_database(directory: AgentDir, place: Path) -> None:
    """Make all calls that use a database."""
    name = next(name for name, path in DATABASES.items() if place == directory.state / path)
    driver = find_driver(name)
    if name == "codex":
        write(find_transcript(driver, directory.state), "{}\n")
    driver.transcripts(directory)
    driver.adopt(sandboxed(name, directory), ID if name == "codex" else "ses_1", Interruption())


TABLES = (
    f"CREATE TABLE threads AS SELECT '{ID}' AS id, 'x' AS rollout_path;"
    "CREATE TABLE session AS"
    " SELECT 'ses_1' AS id, NULL AS parent_id, '/old' AS directory, 'old' AS path;"
    "CREATE TABLE message AS SELECT 'ses_1' AS session_id;"
)


def test_a_database_elsewhere_is_not_used(directory: AgentDir, outside: Path, place: Path) -> None:
    target = outside / "target"
    database = sqlite3.connect(target)
    database.executescript(TABLES)
    database.close()
    before = target.read_bytes()
    place.symlink_to(target)
    use_database(directory, place)
    assert target.read_bytes() == before


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_hostile_files_next_to_a_database_are_ignored(
    directory: AgentDir, outside: Path, place: Path, suffix: str
) -> None:
    database = sqlite3.connect(place)
    database.executescript(TABLES)
    database.close()
    beside = Path(f"{place}{suffix}")
    os.mkfifo(beside)
    within_limit(lambda: use_database(directory, place), beside)
    assert not beside.exists()  # removed with the index, or as a stale file
    if suffix == "-journal" and place.exists():
        victim = write(outside / "thesis.tex", "years of work")
        beside.write_bytes(hot_journal(victim, place))
        use_database(directory, place)
        assert victim.read_text() == "years of work"


def test_an_index_that_is_only_in_the_write_ahead_log_is_read(directory: AgentDir) -> None:
    codex = find_driver("codex")
    rollout = write(find_transcript(codex, directory.state), "{}\n")
    place = directory.state / DATABASES["codex"]
    seen = f"/session/{rollout.relative_to(directory.state)}"
    table = f"CREATE TABLE threads AS SELECT '{ID}' AS id, '{seen}' AS rollout_path"
    leave_database(place, table)
    codex.adopt(sandboxed("codex", directory), ID, Interruption())
    assert place.exists()
    elsewhere = attrs.evolve(sandboxed("codex", directory), state=Path("/elsewhere"))
    codex.adopt(elsewhere, ID, Interruption())
    assert list(directory.state.glob("state_*")) == []


def test_a_database_with_an_endless_query_blocks_nothing(directory: AgentDir, place: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
    database = sqlite3.connect(place)
    database.executescript(
        f"CREATE VIEW threads AS {endless} i AS id, i AS rollout_path FROM n;"
        f"CREATE VIEW session AS {endless} i AS id, i AS parent_id, i AS directory FROM n;"
    )
    database.close()
    within_limit(lambda: use_database(directory, place))
