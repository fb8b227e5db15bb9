"""An agent without a recorded conversation id is saved if it has exactly one conversation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clawblox.checkpoint import load_checkpoint, read_metadata, save_checkpoint
from clawblox.checkpoint.collect import plan as tiers
from clawblox.checkpoint.collect.conversations import find_format
from clawblox.errors import CheckpointError
from tests.checkpoint.agents import BACKENDS, BuiltAgent, build_agent, find_conversation


def build_unrecorded(directory: Path, backend: str, **options: bool) -> BuiltAgent:
    """Build an agent with a single conversation and without its id."""
    agent = build_agent(directory, backend, **options)
    (agent.dir / f"{backend}_session_id.txt").unlink()
    for stranger in agent.strangers:
        stranger.unlink()
    return agent


@pytest.fixture(params=BACKENDS)
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> BuiltAgent:
    return build_unrecorded(tmp_path / "old" / "rocky", request.param)


@pytest.mark.parametrize("is_given", [True, False])
def test_the_only_conversation_is_saved_and_can_be_resumed_after_a_load(
    agent: BuiltAgent, tmp_path: Path, is_given: bool
) -> None:
    backend = agent.backend if is_given else None
    path = save_checkpoint(tmp_path / "a.ckpt", agents={"rocky": agent.dir}, backend=backend)
    assert read_metadata(path)["agents"]["rocky"]["session_id"] == agent.conversation_id
    shutil.rmtree(tmp_path / "old")
    loaded = load_checkpoint(path, tmp_path / "run")
    new = loaded["agents"]["rocky"]
    assert loaded["excluded"] == []
    assert (new / f"{agent.backend}_session_id.txt").read_text() == f"{agent.conversation_id}\n"
    assert b"MELON" in find_conversation(new, agent.backend, agent.conversation_id).read_bytes()
    again = tiers.plan({"rocky": new}, backend=None, workspace_only=False)
    assert again.agents["rocky"].session_id == agent.conversation_id


def test_the_only_conversation_in_a_home_is_found(agent: BuiltAgent) -> None:
    state_dir = f"home/{find_format(agent.backend).program.home_dir}"
    (agent.dir / "session").rename(agent.dir / state_dir)
    planned = tiers.plan({"rocky": agent.dir}, backend=None, workspace_only=False)
    assert planned.agents["rocky"].session_id == agent.conversation_id
    assert planned.agents["rocky"].state_dir == state_dir


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mid_turn", [True, False])
def test_a_turn_of_the_only_conversation_is_recognised(
    tmp_path: Path, backend: str, mid_turn: bool
) -> None:
    agent = build_unrecorded(tmp_path / "rocky", backend, mid_turn=mid_turn)
    planned = tiers.plan({"rocky": agent.dir}, backend=None, workspace_only=False)
    assert planned.agents["rocky"].mid_turn is mid_turn
    for given in (backend, None):
        assert tiers.is_idle({"rocky": agent.dir}, given) is not mid_turn


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_conversations_without_an_id_are_an_error_with_a_hint(
    tmp_path: Path, backend: str
) -> None:
    agent = build_agent(tmp_path / "rocky", backend)
    (agent.dir / f"{backend}_session_id.txt").unlink()
    count = 2 if backend == "kimi" else 3
    with pytest.raises(CheckpointError, match=f"there are {count} conversations") as caught:
        tiers.plan({"rocky": agent.dir}, backend=backend, workspace_only=False)
    assert caught.value.path == agent.dir / f"{backend}_session_id.txt"
    assert "write the id of one of them to this file" in str(caught.value)
    assert tiers.is_idle({"rocky": agent.dir}, backend)
    planned = tiers.plan({"rocky": agent.dir}, backend=None, workspace_only=False)
    assert planned.agents["rocky"].session_id is None
    reason = f"no conversation id is recorded, and there are {count} conversations"
    assert reason in {entry.reason for entry in planned.excluded}


def test_conversations_of_two_programs_need_an_explicit_driver(tmp_path: Path) -> None:
    agent = build_unrecorded(tmp_path / "rocky", "claude")
    other = build_unrecorded(tmp_path / "other", "codex")
    shutil.copytree(other.dir / "session" / "sessions", agent.dir / "session" / "sessions")
    planned = tiers.plan({"rocky": agent.dir}, backend=None, workspace_only=False)
    assert planned.agents["rocky"].session_id is None
    reason = "no conversation id is recorded, and there are 2 conversations"
    assert reason in {entry.reason for entry in planned.excluded}
    for each in (agent, other):
        planned = tiers.plan({"rocky": agent.dir}, backend=each.backend, workspace_only=False)
        assert planned.agents["rocky"].session_id == each.conversation_id


def test_a_transcript_without_an_id_in_its_name_is_not_a_conversation(agent: BuiltAgent) -> None:
    if agent.backend == "kimi":
        agent.transcript.parents[2].rename(agent.transcript.parents[3] / "session_x")
    else:
        name = agent.transcript.name.replace(agent.conversation_id, "../x".replace("/", "_"))
        agent.transcript.rename(agent.transcript.with_name(name))
    if agent.backend == "codex":
        for path in agent.family[1:]:
            path.unlink()
    with pytest.raises(CheckpointError, match=f"no conversation of {agent.backend} is recorded"):
        tiers.plan({"rocky": agent.dir}, backend=agent.backend, workspace_only=False)


def test_an_unreadable_state_does_not_fail_a_plan_without_a_driver(
    agent: BuiltAgent, tmp_path: Path
) -> None:
    (agent.dir / "session").rename(tmp_path / "moved")
    (agent.dir / "session").symlink_to(tmp_path / "moved")
    planned = tiers.plan({"rocky": agent.dir}, backend=None, workspace_only=False)
    assert planned.agents["rocky"].session_id is None
    (entry,) = (entry for entry in planned.excluded if entry.path == "agents/rocky/session")
    assert entry.reason.startswith("no conversation id is recorded, and ")
