"""Each entry of an agent's directory is in its archive or listed as excluded."""

from __future__ import annotations

import base64
import errno
import os
import socket
from collections import Counter
from pathlib import Path

import pytest

from clawblox.checkpoint import read_metadata, save_checkpoint
from clawblox.checkpoint.collect import plan as tiers
from clawblox.printable import printable_name
from clawblox.results import Excluded
from tests.checkpoint.agents import BACKENDS, BuiltAgent, build_agent
from tests.checkpoint.runs import fake_token

NOT_A_PART = "not a part of a conversation that is archived"
BESIDE = "not in the workspace"
PREFIX = "agents/rocky/"


@pytest.fixture(params=BACKENDS)
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> BuiltAgent:
    return build_agent(tmp_path / "rocky", request.param)


@pytest.fixture
def claude(tmp_path: Path) -> BuiltAgent:
    return build_agent(tmp_path / "rocky", "claude")


def plan(agent: BuiltAgent, **options: object) -> tiers.ArchivePlan:
    given = {"backend": None, "workspace_only": False, **options}
    return tiers.plan({"rocky": agent.dir}, **given)


def left_out(planned: tiers.ArchivePlan) -> dict[str, str]:
    """Return the reasons by path, below the agent's directory."""
    assert all(entry.path.startswith(PREFIX) for entry in planned.excluded)
    fields = [entry.fields() for entry in planned.excluded]
    reasons = {entry["path"].removeprefix(PREFIX): entry["reason"] for entry in fields}
    assert len(reasons) == len(planned.excluded)
    return reasons


@pytest.mark.parametrize("kind", ["session", "workspace only", "no conversation"])
def test_every_entry_is_archived_or_listed_exactly_once(agent: BuiltAgent, kind: str) -> None:
    for name in ("notes.txt", "home/.cache/x/y", "runtime/start.sh", "session/plugins/a/b.json"):
        (agent.dir / name).parent.mkdir(parents=True, exist_ok=True)
        (agent.dir / name).write_bytes(b"x")
    (agent.dir / "session" / "empty").mkdir()
    if kind == "no conversation":
        (agent.dir / f"{agent.backend}_session_id.txt").unlink()
    planned = plan(agent, workspace_only=kind == "workspace only")
    archived = {str(source.path.relative_to(agent.dir)) for source in planned.sources}
    listed = left_out(planned)
    for path in agent.dir.rglob("*"):
        name = str(path.relative_to(agent.dir))
        covering = [entry for entry in listed if f"{name}/".startswith(f"{entry}/")]
        if path.is_dir():
            is_a_way = any(each.startswith(f"{name}/") for each in {*archived, *listed})
            assert len(covering) <= 1
            assert covering or is_a_way, name
        else:
            assert len(covering) + (name in archived) == 1, name


def test_a_directory_without_archived_files_is_one_entry(claude: BuiltAgent) -> None:
    listed = left_out(plan(claude))
    project = str(claude.transcript.parent.relative_to(claude.dir))
    (other,) = (path for path in listed if path.startswith(f"{project}/") and "jsonl" not in path)
    assert (claude.dir / other).is_dir()
    assert listed == {
        "home": BESIDE,
        **{f"session/{name}": NOT_A_PART for name in (".claude.json", ".credentials.json")},
        **{f"session/{name}": NOT_A_PART for name in ("file-history", "history.jsonl")},
        **{f"session/{name}": NOT_A_PART for name in ("session-env", "settings.json")},
        "session/projects/-elsewhere": NOT_A_PART,
        other: NOT_A_PART,
        f"{other}.jsonl": NOT_A_PART,
        f"{project}/{claude.conversation_id}/subagents/agent-a1.jsonl.bak": NOT_A_PART,
        f"session/tasks/{claude.conversation_id}/.lock": NOT_A_PART,
        f"session/tasks/{Path(other).name}": NOT_A_PART,
    }


def test_a_save_of_workspaces_lists_all_other_entries(claude: BuiltAgent) -> None:
    assert left_out(plan(claude, workspace_only=True)) == {
        "home": BESIDE,
        "session": "only workspaces are archived",
        **dict.fromkeys(("claude_session_id.txt", "logs", "runtime", "usage.json"), BESIDE),
        **dict.fromkeys(("world_access.json", "world_session.txt"), BESIDE),
    }


def test_the_home_that_contains_the_conversation_is_listed_in_detail(claude: BuiltAgent) -> None:
    (claude.dir / "session").rename(claude.dir / "home" / ".claude")
    listed = left_out(plan(claude))
    assert listed["home/.netrc"] == BESIDE
    assert listed["home/.claude/settings.json"] == NOT_A_PART
    assert "home" not in listed


@pytest.mark.parametrize("name", ["two\nlines.md", "bell\a.md", "colon:.md", "end.", "\u202e.md"])
def test_a_part_of_a_conversation_that_no_archive_can_name_is_listed(
    claude: BuiltAgent, name: str
) -> None:
    memory = claude.transcript.parent / "memory"
    (memory / name).write_bytes(b"NEVER")
    planned = plan(claude)
    shown = printable_name(name)
    path = f"{memory.relative_to(claude.dir)}/{shown}"
    assert left_out(planned)[path] == "its name is not allowed in an archive"
    assert memory / name not in {source.path for source in planned.sources}


def test_a_name_of_any_bytes_is_listed_as_ascii(claude: BuiltAgent) -> None:
    for parent in (claude.dir, claude.transcript.parent / "memory"):
        Path(os.fsdecode(os.fsencode(parent) + b"/\xff\x1b[2J")).write_bytes(b"")
    listed = left_out(plan(claude))
    assert listed["\\udcff\\x1b[2J"] == BESIDE
    memory = (claude.transcript.parent / "memory").relative_to(claude.dir)
    assert f"{memory}/\\udcff\\x1b[2J" in listed


def test_links_pipes_and_sockets_are_listed_and_not_followed(
    claude: BuiltAgent, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"")
    memory = claude.transcript.parent / "memory"
    for parent in (claude.dir, memory):
        (parent / "link").symlink_to(tmp_path / "outside")
        os.mkfifo(parent / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(claude.dir / "control.sock"))
    planned = plan(claude)
    names = {"link", "pipe", *(f"{memory.relative_to(claude.dir)}/{n}" for n in ("link", "pipe"))}
    listed = left_out(planned)
    assert listed.keys() >= {*names, "control.sock"}
    assert not any("secret" in path for path in listed)


def test_a_directory_without_read_permission_is_listed(
    claude: BuiltAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse(monkeypatch, "-elsewhere", "home")
    listed = left_out(plan(claude))
    assert listed["session/projects/-elsewhere"] == NOT_A_PART
    assert listed["home"] == BESIDE


@pytest.mark.parametrize("name", ["memory", "people", "subagents", "projects"])
def test_a_directory_without_read_permission_is_an_error_if_the_conversation_needs_it(
    claude: BuiltAgent, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _refuse(monkeypatch, name)
    with pytest.raises(tiers.CheckpointError, match="Permission denied"):
        plan(claude)


def _refuse(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make opening directories with these names fail."""
    real = os.open

    def refusing(path: str, *args: object, **options: object) -> int:
        if path in names:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refusing)


def test_the_number_of_listed_entries_is_limited_with_the_programs_entries_first(
    claude: BuiltAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (claude.dir / "a").touch()
    whole = plan(claude, workspace_only=True).excluded
    assert whole[0].path == "agents/rocky/session"
    monkeypatch.setattr(tiers, "_MAX_LISTED", 3)
    *listed, last = plan(claude, workspace_only=True).excluded
    assert listed == whole[:3]
    reason = f"{len(whole) - 3} further entries are not listed"
    assert last == Excluded(path="agents/rocky", reason=reason)


def test_the_reason_explains_why_a_conversation_is_not_archived(claude: BuiltAgent) -> None:
    (claude.dir / "claude_session_id.txt").unlink()
    reason = "no conversation id is recorded, and there are 3 conversations"
    assert left_out(plan(claude))["session"] == reason
    for path in claude.transcript.parents[1].glob("*/*.jsonl"):
        path.unlink()
    reason = "no conversation id is recorded, and there are no conversations"
    assert left_out(plan(claude))["session"] == reason


def test_a_name_with_a_secret_is_listed_without_it_and_saved(claude: BuiltAgent) -> None:
    token = fake_token()
    for parent in (claude.dir, claude.transcript.parent / "memory"):
        (parent / f"a-{token}" / "b").mkdir(parents=True)
    (claude.workspace / f".env.{token}").write_bytes(b"")
    encoded = base64.b64encode(f"key {token}".encode()).decode()
    (claude.dir / f"encoded {encoded}").write_bytes(b"")
    path = save_checkpoint(claude.dir.parent / "a.ckpt", agents={"rocky": claude.dir})
    paths = [entry["path"] for entry in read_metadata(path)["excluded"]]
    assert token.encode() not in path.read_bytes()
    assert not any(token in each for each in paths)
    assert f"{PREFIX}a-ghp_... (40 bytes)" in paths
    assert f"{PREFIX}workspace/.env.ghp_... (40 bytes)" in paths
    assert PREFIX.removesuffix("/") in paths
    assert not any(encoded in each for each in paths)


def test_files_of_a_conversation_are_listed_by_their_path_on_disk(claude: BuiltAgent) -> None:
    memory = claude.transcript.parent / "memory" / "MEMORY.md"
    memory.write_bytes(b"x" * 100_000)
    path = save_checkpoint(
        claude.dir.parent / "a.ckpt",
        agents={"rocky": claude.dir},
        max_file_bytes=50_000,
        on_unarchivable="record",
    )
    reasons = Counter(
        entry["reason"]
        for entry in read_metadata(path)["excluded"]
        if entry["path"] == PREFIX + str(memory.relative_to(claude.dir))
    )
    assert reasons == {"too large": 1}
