"""Codex's threads and its compressed rollouts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import zstandard

from clawblox.errors import CheckpointError
from tests.checkpoint.agents import build_agent, codex_records, lines
from tests.checkpoint.sessions.support import archived, collect


def test_codex_threads_follow_the_chain_of_their_parents(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    assert len(agent.family) == 3
    child = agent.family[1]
    child.unlink()
    collected = {source.path for source in collect(agent).sources}
    assert agent.family[0] in collected
    assert agent.family[2] not in collected


def test_codex_threads_are_followed_by_the_older_record_format_too(tmp_path):
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
    agent.transcript.write_bytes(codex_records(agent.session_id, "/", "M", False, thread))
    assert agent.strangers[0] not in {source.path for source in collect(agent).sources}


@pytest.mark.parametrize(
    "first", [b"", b"x" * 10, b"[]\n", b'{"type":"session_meta"}\n', b"\xff\n"]
)
def test_a_rollout_without_a_first_record_has_no_parent(tmp_path, first):
    agent = build_agent(tmp_path / "rocky", "codex")
    agent.strangers[0].write_bytes(first)
    assert agent.strangers[0] not in {source.path for source in collect(agent).sources}


@pytest.fixture(params=["package", "standard"])
def decoder(request, monkeypatch):
    """Either of the two; Python has its own from 3.14 on."""
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


def test_a_compressed_rollout_is_stored_plain(tmp_path, decoder):
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


def test_a_compressed_rollout_of_an_older_session_need_not_be_read(tmp_path, no_decoder):
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
