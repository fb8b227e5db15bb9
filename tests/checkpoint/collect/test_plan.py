"""The files of all agents that an archive contains."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from clawblox.checkpoint import names
from clawblox.checkpoint.collect import plan as tiers
from clawblox.checkpoint.model import AgentState, WorkspaceLink
from clawblox.errors import CheckpointError, ConfigError
from clawblox.results import Excluded
from tests.checkpoint.agents import BACKENDS, build_agent


def plan(*agents, backend=None, workspace_only=False):
    by_name = {agent.dir.name: agent.dir for agent in agents}
    return tiers.plan(by_name, backend=backend, workspace_only=workspace_only)


def members(planned) -> set[str]:
    found = [source.name for source in planned.sources]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.fixture
def agent(tmp_path):
    return build_agent(tmp_path / "rocky", "claude")


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_tiers_of_an_agent_are_planned(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend, mid_turn=True)
    planned = plan(agent, backend=backend)
    assert "agents/rocky/workspace/SOUL.md" in members(planned)
    assert f"agents/rocky/session/record/{backend}_session_id.txt" in members(planned)
    assert planned.agents == {
        "rocky": AgentState(
            backend=backend,
            session_format=f"{backend}-v1" if backend == "codex" else f"{backend}-code-v1",
            session_id=agent.conversation_id,
            state_dir="session",
            mid_turn=True,
        )
    }
    assert all(names.is_name(name) for name in members(planned))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_driver_of_an_agent_is_recognised_by_its_recorded_id(tmp_path, backend):
    known = build_agent(tmp_path / "rocky", backend)
    silent = build_agent(tmp_path / "pebble", "claude")
    (silent.dir / "claude_session_id.txt").unlink()
    planned = plan(known, silent)
    assert planned.agents["rocky"].backend == backend
    assert planned.agents["pebble"] == AgentState()
    assert not any(name.startswith("agents/pebble/session/") for name in members(planned))
    assert "agents/pebble/workspace/SOUL.md" in members(planned)


def test_two_recorded_drivers_of_one_agent_need_an_explicit_choice(agent):
    shutil.copy(agent.dir / "claude_session_id.txt", agent.dir / "codex_session_id.txt")
    with pytest.raises(CheckpointError, match="several drivers") as caught:
        plan(agent)
    assert "backend=" in str(caught.value)
    assert plan(agent, backend="claude").agents["rocky"].session_id == agent.conversation_id


def test_an_agent_of_a_given_driver_must_have_a_conversation(agent):
    with pytest.raises(CheckpointError, match="no conversation of codex is recorded"):
        plan(agent, backend="codex")
    agent.transcript.unlink()
    for backend in ("claude", None):
        with pytest.raises(CheckpointError, match="no transcript for"):
            plan(agent, backend=backend)


@pytest.mark.parametrize("backend", [None, "claude", "codex"])
def test_a_workspace_alone_needs_no_conversation(agent, backend):
    shutil.rmtree(agent.dir / "session")
    planned = plan(agent, backend=backend, workspace_only=True)
    assert members(planned) == {"agents/rocky/workspace/SOUL.md"}
    assert planned.agents == {"rocky": AgentState()}


def test_an_unknown_driver_is_refused(agent):
    with pytest.raises(ConfigError, match="backend: must be one of"):
        plan(agent, backend="gemini")


def test_excluded_entries_are_listed_once_with_their_reason(agent):
    for name in (".venv/lib/a.py", ".venv/lib/b.py", ".git/hooks/x", ".git/HEAD", ".mcp.json"):
        (agent.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (agent.workspace / name).write_bytes(b"x")
    os.mkfifo(agent.workspace / "pipe")
    planned = plan(agent, workspace_only=True)
    assert [entry for entry in planned.excluded if "/workspace/" in entry.path] == [
        Excluded(
            path="agents/rocky/workspace/.git/hooks", reason="not part of a repository's content"
        ),
        Excluded(
            path="agents/rocky/workspace/.mcp.json", reason="grants capabilities or runs by itself"
        ),
        Excluded(path="agents/rocky/workspace/.venv", reason="can be rebuilt"),
        Excluded(path="agents/rocky/workspace/pipe", reason="a pipe"),
    ]
    assert "agents/rocky/workspace/.git/HEAD" in members(planned)


def test_files_that_git_would_run_in_a_bare_repository_are_excluded(agent):
    mirror = agent.dir / "workspace" / "mirror"
    for name in ("HEAD", "config", "objects/ab/01", "hooks/post-receive"):
        (mirror / name).parent.mkdir(parents=True, exist_ok=True)
        (mirror / name).write_bytes(b"x")
    (mirror / "modules").mkdir()
    (mirror / "commondir").symlink_to("objects")
    planned = plan(agent)
    prefix = "agents/rocky/workspace/mirror/"
    kept = {name.removeprefix(prefix) for name in members(planned) if name.startswith(prefix)}
    assert kept == {"HEAD", "objects/ab/01"}
    assert not any(name.startswith(prefix) for name in planned.directories)
    assert not any(link.path.startswith(prefix) for link in planned.links)
    excluded = {each.path.removeprefix(prefix) for each in planned.excluded}
    assert excluded >= {"config", "hooks", "modules", "commondir"}


def test_links_and_empty_directories_are_recorded(agent):
    (agent.workspace / "link").symlink_to("../../../etc/passwd")
    (agent.workspace / "notes" / "later").mkdir(parents=True)
    planned = plan(agent)
    assert planned.links == [
        WorkspaceLink(path="agents/rocky/workspace/link", target="../../../etc/passwd")
    ]
    assert planned.directories == ["agents/rocky/workspace/notes/later"]


def test_names_that_no_archive_can_contain_are_reported_unchanged(agent):
    for name in (b"caf\xe9", b"two\nlines \xff", b"colon:", b"l" * 255):
        Path(os.fsdecode(os.fsencode(agent.workspace) + b"/" + name)).write_bytes(b"")
    planned = plan(agent)
    assert planned.unarchivable == [
        f"agents/rocky/workspace/{name}" for name in ("caf\udce9", "two\nlines \udcff")
    ]
    assert f"agents/rocky/workspace/{'l' * 255}" in members(planned)
    assert "agents/rocky/workspace/colon:" in members(planned)


def test_only_paths_that_cannot_be_names_have_neutral_names_in_an_archive(agent):
    for name in ("colon:", "plain", "a.", "odd\n/below", ".renamed/0"):
        (agent.workspace / name).parent.mkdir(exist_ok=True)
        (agent.workspace / name).write_bytes(b"")
    planned = plan(agent, workspace_only=True)
    assert {source.name.split("/", 3)[3]: source.member for source in planned.sources} == {
        ".renamed/0": "agents/rocky/workspace/.renamed/0",
        "SOUL.md": "agents/rocky/workspace/SOUL.md",
        "a.": "agents/rocky/workspace/.renamed/1",
        "colon:": "agents/rocky/workspace/.renamed/2",
        "odd\n/below": "agents/rocky/workspace/.renamed/3",
        "plain": "agents/rocky/workspace/plain",
    }


def test_a_planned_file_is_read_in_its_state_at_opening(agent):
    planned = plan(agent)
    [source] = [each for each in planned.sources if each.name.endswith("/SOUL.md")]
    (agent.workspace / "SOUL.md").write_bytes(b"I am another.\n")
    with os.fdopen(source.open(), "rb") as file:
        assert file.read() == b"I am another.\n"
    assert source.path == agent.workspace / "SOUL.md"
    assert not source.whole_lines
    (agent.workspace / "SOUL.md").unlink()
    (agent.workspace / "SOUL.md").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic link"):
        source.open()


def test_only_transcripts_and_logs_are_cut_after_their_last_line(agent):
    (agent.workspace / "events.jsonl").write_bytes(b"{}")
    cut = {source.name for source in plan(agent).sources if source.whole_lines}
    assert cut == {
        "agents/rocky/session/transcript.jsonl",
        "agents/rocky/session/subagents/agent-a1b2c3.jsonl",
        "agents/rocky/session/record/logs/agent.log",
    }


@pytest.mark.parametrize("instead", ["nothing", "a file", "a link"])
def test_a_file_in_place_of_a_workspace_is_an_error_that_names_it(agent, instead):
    shutil.move(agent.workspace, agent.dir / "moved")
    if instead == "a file":
        agent.workspace.write_bytes(b"")
    elif instead == "a link":
        agent.workspace.symlink_to("moved")
    with pytest.raises(CheckpointError, match="workspace of rocky cannot be read") as caught:
        plan(agent)
    assert caught.value.path == agent.workspace


def test_agents_are_idle_when_no_conversation_is_in_a_turn(tmp_path):
    agents = [
        build_agent(tmp_path / backend, backend, mid_turn=backend == "codex")
        for backend in BACKENDS
    ]
    by_name = {agent.dir.name: agent.dir for agent in agents}
    assert not tiers.is_idle(by_name, None)
    del by_name["codex"]
    assert tiers.is_idle(by_name, None)
    assert tiers.is_idle({}, "claude")


@pytest.mark.parametrize("backend", [None, "claude", "codex"])
def test_an_agent_without_a_conversation_is_idle(agent, backend):
    agent.transcript.unlink()
    assert tiers.is_idle({"rocky": agent.dir}, backend)


def test_planning_leaves_no_descriptor_open_and_no_file_changed(agent):
    def state():
        return sorted(
            (str(path), path.lstat().st_mtime_ns, path.lstat().st_size)
            for path in agent.dir.rglob("*")
        )

    before, descriptors = state(), set(os.listdir("/proc/self/fd"))
    plan(agent)
    tiers.is_idle({"rocky": agent.dir}, None)
    assert state() == before
    assert set(os.listdir("/proc/self/fd")) == descriptors
