"""Codex's threads and its compressed rollouts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import attrs
import pytest
import zstandard

from clawblox.checkpoint.collect.conversations import find_format
from clawblox.errors import CheckpointError
from tests.checkpoint.agents import BuiltAgent, build_agent, codex_id, codex_records, lines
from tests.checkpoint.collect.conversations.support import archived, collect, restored


def test_codex_threads_follow_the_chain_of_their_parents(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    assert len(agent.family) == 3
    child = agent.family[1]
    child.unlink()
    collected = {source.path for source in collect(agent).sources}
    assert agent.family[0] in collected
    assert agent.family[2] not in collected


def test_codex_threads_are_followed_in_the_older_record_format(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    for path in agent.family[1:]:
        first, _, rest = path.read_bytes().partition(b"\n")
        meta = json.loads(first)
        del meta["payload"]["parent_thread_id"]
        path.write_bytes(lines(meta) + rest)
    assert {*agent.family} <= {source.path for source in collect(agent).sources}


def test_codex_threads_that_are_their_own_ancestors_end_the_search(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    thread = agent.strangers[0].stem[-36:]
    agent.strangers[0].write_bytes(codex_records(thread, "/", "SECRET", False, thread))
    agent.transcript.write_bytes(codex_records(agent.conversation_id, "/", "M", False, thread))
    assert agent.strangers[0] not in {source.path for source in collect(agent).sources}


# Threads in several rollouts


def continue_rollout(path: Path, thread: str, base: str | None, *, mid_turn: bool = False) -> Path:
    """Write a rollout that continues another, like Codex after a revert or a fork."""
    first, _, rest = codex_records(thread, "/", "PEAR", mid_turn).partition(b"\n")
    meta = json.loads(first)
    if base is not None:
        position = {"thread_id": base, "end_ordinal_exclusive": 2, "end_byte_offset": 99}
        meta["payload"] |= {"history_mode": "paginated", "history_base": position}
    path.write_bytes(lines(meta) + rest)
    return path


def revert(agent: BuiltAgent, rollout: str, base: str, *, mid_turn: bool = False) -> Path:
    """Write a second rollout of the agent's own thread."""
    path = agent.transcript.with_name(f"{agent.transcript.stem}_{rollout}.jsonl")
    return continue_rollout(path, agent.conversation_id, base, mid_turn=mid_turn)


def test_every_rollout_of_a_thread_is_collected(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    second = revert(agent, codex_id(8), agent.conversation_id)
    third = revert(agent, codex_id(9), read_codex_id(second))
    other = agent.strangers[0]
    stranger = other.with_name(f"{other.stem}_{codex_id(7)}.jsonl")
    continue_rollout(stranger, other.stem[-36:], other.stem[-36:])
    collected = {source.path for source in collect(agent).sources}
    assert {*agent.family, second, third} <= collected
    assert not {other, stranger} & collected


def test_the_children_of_a_thread_are_found_with_several_rollouts(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    child = agent.family[1]
    second = child.with_name(f"{child.stem}_{codex_id(9)}.jsonl")
    continue_rollout(second, child.stem[-36:], child.stem[-36:])  # without the parent's name
    assert {*agent.family, second} <= {source.path for source in collect(agent).sources}


@pytest.mark.parametrize("mid_turn", [False, True])
def test_the_newest_rollout_of_a_thread_determines_its_turn(tmp_path, mid_turn):
    agent = build_agent(tmp_path / "rocky", "codex", mid_turn=not mid_turn)
    second = revert(agent, codex_id(9), agent.conversation_id, mid_turn=mid_turn)
    os.utime(second, (0, 0))  # Codex goes by the name
    assert collect(agent).state.mid_turn is mid_turn
    assert find_format("codex").is_mid_turn(agent.dir) is mid_turn


def test_all_rollouts_of_a_thread_are_restored_and_saved_again(tmp_path):
    agent = build_agent(tmp_path / "old" / "rocky", "codex")
    revert(agent, codex_id(9), agent.conversation_id)
    members = archived(agent)
    assert sum(agent.conversation_id in name for name in members) == 2
    new = restored(members, agent, tmp_path / "new" / "rocky")
    assert archived(attrs.evolve(agent, dir=new)) == members


def test_the_history_of_a_forked_thread_is_collected(tmp_path, decoder):
    agent = build_agent(tmp_path / "rocky", "codex")
    source, middle = agent.strangers[1], codex_id(0)
    reverted = source.with_name(f"{source.stem}_{middle}.jsonl")
    continue_rollout(reverted, source.stem[-36:], source.stem[-36:])
    continue_rollout(agent.transcript, agent.conversation_id, middle)
    compress(source)
    names_ = {source.name for source in collect(agent).sources}
    assert {f"sessions/2026/11/20/{path.name}" for path in (source, reverted)} <= names_


def test_a_rollout_whose_history_is_missing_is_an_error_that_names_it(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    missing = codex_id(0)
    continue_rollout(agent.transcript, agent.conversation_id, missing)
    with pytest.raises(CheckpointError, match="is missing") as caught:
        collect(agent)
    assert missing in str(caught.value)
    assert agent.transcript.name in str(caught.value)


def test_a_missing_history_that_codex_does_not_need_is_ignored(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    newest = agent.transcript.with_name(f"{agent.transcript.stem}_{codex_id(9)}.jsonl")
    continue_rollout(newest, agent.conversation_id, None)
    continue_rollout(agent.transcript, agent.conversation_id, codex_id(0))
    child = agent.family[1]
    first, _, rest = child.read_bytes().partition(b"\n")
    meta = json.loads(first)
    meta["payload"]["history_base"] = {"thread_id": codex_id(0)}
    child.write_bytes(lines(meta) + rest)
    assert {*agent.family, newest} <= {source.path for source in collect(agent).sources}


def test_the_history_in_an_archived_thread_is_restored_to_its_place(tmp_path):
    agent = build_agent(tmp_path / "old" / "rocky", "codex")
    source, aside = agent.strangers[1], agent.dir / "session" / "archived_sessions"
    aside.mkdir()
    source = source.rename(aside / source.name)
    continue_rollout(agent.transcript, agent.conversation_id, source.stem[-36:])
    new = restored(archived(agent), agent, tmp_path / "new" / "rocky")
    [path] = (new / "session" / "archived_sessions").iterdir()
    assert path.read_bytes() == source.read_bytes()


def test_an_archived_thread_is_not_a_conversation(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    aside = agent.dir / "session" / "archived_sessions"
    aside.mkdir()
    for stranger in agent.strangers[:2]:
        stranger.rename(aside / stranger.name)
    assert {*find_format("codex").list_ids(agent.dir)} == {agent.conversation_id}
    agent.transcript.rename(aside / agent.transcript.name)  # Codex refuses to resume it
    with pytest.raises(CheckpointError, match="no transcript"):
        collect(agent)


@pytest.mark.parametrize("base", [7, [], {"thread_id": 7}, {"thread_id": None}, None])
def test_an_invalid_history_reference_is_ignored(tmp_path, base):
    agent = build_agent(tmp_path / "rocky", "codex")
    first, _, rest = agent.transcript.read_bytes().partition(b"\n")
    meta = json.loads(first)
    meta["payload"]["history_base"] = base
    agent.transcript.write_bytes(lines(meta) + rest)
    assert {*agent.family} <= {source.path for source in collect(agent).sources}


def test_rollouts_that_refer_to_each_other_end_the_search(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    second = revert(agent, codex_id(9), agent.conversation_id)
    continue_rollout(agent.transcript, agent.conversation_id, read_codex_id(second))
    assert {agent.transcript, second} <= {source.path for source in collect(agent).sources}


def read_codex_id(rollout: Path) -> str:
    return rollout.stem[-36:]


@pytest.mark.parametrize(
    "first", [b"", b"x" * 10, b"[]\n", b'{"type":"session_meta"}\n', b"\xff\n"]
)
def test_a_rollout_without_a_first_record_has_no_parent(tmp_path, first):
    agent = build_agent(tmp_path / "rocky", "codex")
    agent.strangers[0].write_bytes(first)
    assert agent.strangers[0] not in {source.path for source in collect(agent).sources}


# Compressed rollouts


@pytest.fixture(params=["package", "standard"])
def decoder(request, monkeypatch):
    """Use either decoder; Python has its own since 3.14."""
    if request.param == "standard":
        pytest.importorskip("compression.zstd")
    else:
        monkeypatch.setitem(sys.modules, "compression.zstd", None)


@pytest.fixture
def no_decoder(monkeypatch):
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)


def compress(path: Path, *, keep: bool = False) -> None:
    packed = zstandard.ZstdCompressor().compress(path.read_bytes())
    path.with_name(f"{path.name}.zst").write_bytes(packed)
    if not keep:
        path.unlink()


def test_a_compressed_rollout_is_stored_uncompressed(tmp_path, decoder):
    agent = build_agent(tmp_path / "rocky", "codex")
    plain = archived(agent)
    for path in agent.family:
        compress(path)
    assert archived(agent) == plain
    assert not collect(agent).state.mid_turn


def test_an_uncompressed_rollout_wins_over_its_compressed_copy(tmp_path, no_decoder):
    agent = build_agent(tmp_path / "rocky", "codex")
    plain = archived(agent)
    for path in agent.family:
        compress(path, keep=True)
    assert archived(agent) == plain


def test_a_compressed_rollout_that_cannot_be_read_is_an_error(tmp_path, no_decoder):
    agent = build_agent(tmp_path / "rocky", "codex")
    compress(agent.transcript)
    with pytest.raises(CheckpointError, match="cannot scan"):
        collect(agent)


def test_a_compressed_rollout_of_an_older_thread_need_not_be_read(tmp_path, no_decoder):
    agent = build_agent(tmp_path / "rocky", "codex")
    younger, older = agent.strangers[:2]
    compress(older)
    assert agent.transcript in {source.path for source in collect(agent).sources}
    compress(younger)
    with pytest.raises(CheckpointError, match="cannot scan") as caught:
        collect(agent)
    assert caught.value.path == younger.with_name(f"{younger.name}.zst")


@pytest.mark.thorough
@pytest.mark.parametrize("broken", [slice(0, -1), slice(0, 60), slice(1, None), slice(0, 0)])
@pytest.mark.parametrize("which", [0, 1])
def test_a_broken_compressed_rollout_is_an_error(tmp_path, decoder, broken, which):
    agent = build_agent(tmp_path / "rocky", "codex")
    compress(agent.family[which])
    packed = agent.family[which].with_name(f"{agent.family[which].name}.zst")
    packed.write_bytes(packed.read_bytes()[broken])
    with pytest.raises(CheckpointError, match="cannot be decompressed") as caught:
        archived(agent)
    assert caught.value.path == packed


@pytest.mark.parametrize("end", [(None, b'{"type":"ev'), (-1, b"")], ids=["torn", "no newline"])
def test_a_compressed_rollout_ends_with_its_last_complete_record(tmp_path, decoder, end):
    agent = build_agent(tmp_path / "rocky", "codex")
    plain = archived(agent)
    agent.transcript.write_bytes(agent.transcript.read_bytes()[: end[0]] + end[1])
    compress(agent.transcript)
    assert archived(agent) == plain


@pytest.mark.parametrize("content", [b"", b"\n", b'{"type":"session_meta"'])
def test_a_compressed_rollout_without_a_complete_record_is_an_error(tmp_path, decoder, content):
    agent = build_agent(tmp_path / "rocky", "codex")
    agent.transcript.write_bytes(content)
    compress(agent.transcript)
    with pytest.raises(CheckpointError, match="no complete record"):
        archived(agent)
