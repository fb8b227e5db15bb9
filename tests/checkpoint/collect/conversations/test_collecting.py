"""Files of conversations are collected and restored, and turns in progress recognised."""

from __future__ import annotations

import errno
import json
import os
import shutil

import attrs
import pytest

from clawblox.checkpoint import read_metadata, save_checkpoint
from clawblox.checkpoint.collect.conversations import find_format
from clawblox.errors import CheckpointError
from clawblox.telemetry.log_segments import begin_segment, list_segments
from tests.checkpoint.agents import (
    BACKENDS,
    COMPANIONS,
    LOG,
    build_agent,
    find_conversation,
    lines,
)
from tests.checkpoint.collect.conversations.support import archived, collect, restored

# Round trips


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_conversation_is_found_by_its_id_in_a_new_home_at_a_new_path(tmp_path, backend):
    agent = build_agent(tmp_path / "old" / "rocky", backend)
    members = archived(agent)
    content = agent.transcript.read_bytes()
    shutil.rmtree(tmp_path / "old")
    new = restored(members, agent, tmp_path / "elsewhere" / "run2" / "rocky")
    conversation = find_conversation(new, backend, agent.conversation_id)
    if backend != "kimi":
        assert conversation.read_bytes() == content
    assert b"MELON" in conversation.read_bytes()
    assert (new / f"{backend}_session_id.txt").read_text().strip() == agent.conversation_id
    for name, companion in {**COMPANIONS, "logs/agent.log": LOG}.items():
        assert (new / name).read_bytes() == companion


def test_all_segments_of_a_log_are_restored_with_their_offsets(tmp_path):
    agent = build_agent(tmp_path / "old" / "rocky", "claude")
    log = agent.dir / "logs" / "agent.log"
    for text in ("one\n", "two\n"):
        begin_segment(log, 1)
        log.write_text(text)
    segments = list_segments(log)
    restored_log = restored(archived(agent), agent, tmp_path / "new") / "logs" / "agent.log"
    found = list_segments(restored_log)
    assert [segment[1:] for segment in found] == [segment[1:] for segment in segments]
    assert [s.path.read_bytes() for s in found] == [s.path.read_bytes() for s in segments]


def test_the_archived_usage_is_read_before_the_log(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude")
    usage = agent.dir / "usage.json"
    usage.write_text("before")
    session = collect(agent)
    usage.write_text("after, and longer")  # as the orchestrator may do before the log is read
    [source] = [one for one in session.sources if one.name == "record/usage.json"]
    fd = source.open()
    assert os.read(fd, 100) == b"before"
    os.close(fd)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restored_conversation_can_be_saved_and_restored_again(tmp_path, backend):
    agent = build_agent(tmp_path / "old" / "rocky", backend)
    members = archived(agent)
    new = restored(members, agent, tmp_path / "new" / "rocky")
    again = archived(attrs.evolve(agent, dir=new))
    assert again == members


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_the_recorded_conversation_and_its_sub_agents_are_collected(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    session = collect(agent)
    collected = {source.path for source in session.sources}
    records = {
        agent.dir / name for name in (f"{backend}_session_id.txt", "logs/agent.log", *COMPANIONS)
    }
    assert collected == {*agent.family, *records}
    assert session.state.session_id == agent.conversation_id


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_other_conversation_is_archived(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    together = b"".join(archived(agent).values())
    assert b"MELON" in together
    for never in (b"SECRET", b"NEVER", b"export A=b", b"machine a login b"):
        assert never not in together


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_in_the_archive_do_not_contain_the_workspace_path(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    for source in collect(agent).sources:
        assert "workspace" not in source.name
        assert "projects" not in source.name


def test_a_record_that_cannot_be_read_is_an_error_that_names_it(tmp_path, monkeypatch):
    agent = build_agent(tmp_path / "rocky", "claude")
    real = os.open

    def refusing(path, *args, **options):
        if path == "system_prompt.md":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(CheckpointError, match="Permission denied") as caught:
        collect(agent)
    assert caught.value.path == agent.dir / "runtime" / "system_prompt.md"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_transcript_that_cannot_be_read_is_an_error_that_names_it(tmp_path, backend, monkeypatch):
    agent = build_agent(tmp_path / "rocky", backend)
    real = os.open

    def refusing(path, *args, **options):
        if path == agent.transcript.name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(CheckpointError, match="Permission denied") as caught:
        collect(agent)
    assert caught.value.path == agent.transcript


def test_absent_companion_files_are_left_out(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude")
    (agent.dir / "world_session.txt").unlink()
    (agent.dir / "runtime" / "system_prompt.md").unlink()
    (agent.dir / "runtime" / "system_prompt.md").symlink_to("/etc/passwd")
    names_ = {source.name for source in collect(agent).sources}
    assert "record/world_session.txt" not in names_
    assert "record/runtime/system_prompt.md" not in names_
    assert "record/claude_session_id.txt" in names_


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_file_of_a_conversation_is_archived_as_executable(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    for path in (*agent.dir.rglob("*"),):
        path.chmod(0o700)
    path = save_checkpoint(tmp_path / "a.ckpt", agents={"rocky": agent.dir})
    modes = {name: file["mode"] for name, file in read_metadata(path)["files"].items()}
    assert modes.pop("agents/rocky/workspace/SOUL.md") == 0o700
    assert set(modes.values()) == {0o600}


# Turns

GROWING = (".jsonl", "agent.log")
"""Suffixes of files to which programs append records."""

FOREIGN = b"""{"type":"x"}

[1]
null
{"type":["user"]}
{"type":"event_msg","payload":{"type":["task_started"]}}
{"type":"event_msg","payload":[]}
{"payload":{"type":"task_started"}}
{"message":{"stop_reason":"end_turn"}}
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mid_turn", [False, True])
def test_a_turn_in_progress_is_recognised(tmp_path, backend, mid_turn):
    agent = build_agent(tmp_path / "rocky", backend, mid_turn=mid_turn)
    assert collect(agent).state.mid_turn is mid_turn
    assert find_format(backend).is_mid_turn(agent.dir) is mid_turn


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("tail", [b'{"type":"us', b"\x00\xff", FOREIGN], ids=range(3))
def test_torn_and_foreign_records_do_not_end_a_turn(tmp_path, backend, tail):
    for mid_turn in (False, True):
        agent = build_agent(tmp_path / str(mid_turn) / "rocky", backend, mid_turn=mid_turn)
        with agent.transcript.open("ab") as file:
            file.write(tail)
        assert collect(agent).state.mid_turn is mid_turn


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_last_record_without_a_newline_is_kept_and_gets_one(tmp_path, backend):
    agent = build_agent(tmp_path / "old" / "rocky", backend)
    whole = archived(agent)
    for path in (*agent.family, agent.dir / "logs" / "agent.log"):
        if path.name.endswith(GROWING):
            path.write_bytes(path.read_bytes().rpartition(b"\n")[0])
    cut = archived(agent)
    assert {name for name, content in cut.items() if content != whole[name]} == {
        name for name in whole if name.endswith(GROWING)
    }
    new = restored(cut, agent, tmp_path / "new" / "rocky")
    assert archived(attrs.evolve(agent, dir=new)) == whole


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_incomplete_record_in_an_archive_of_another_writer_is_not_restored(tmp_path, backend):
    agent = build_agent(tmp_path / "old" / "rocky", backend)
    members = archived(agent)
    torn = {
        name: content + b'{"type":"us' if name.endswith(GROWING) else content
        for name, content in members.items()
    }
    assert torn != members
    new = restored(torn, agent, tmp_path / "new" / "rocky")
    grown = [path for path in new.rglob("*") if path.name.endswith(GROWING)]
    assert grown
    assert all(path.read_bytes().endswith(b"}\n") for path in grown)
    assert archived(attrs.evolve(agent, dir=new)) == members


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_last_record_without_a_newline_ends_a_turn(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    *_, last = [
        line
        for line in agent.transcript.read_bytes().splitlines(keepends=True)
        if find_format(backend).ends_turn(json.loads(line)) is not None
    ]
    before = agent.transcript.read_bytes().partition(last)[0]
    agent.transcript.write_bytes(before + last[:-2])
    assert collect(agent).state.mid_turn
    agent.transcript.write_bytes(before + last[:-1])
    assert not collect(agent).state.mid_turn


def test_a_pending_tool_call_of_claude_is_within_the_turn(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude", mid_turn=True)
    *until_called, result = agent.transcript.read_bytes().splitlines(keepends=True)
    assert b"tool_result" in result
    agent.transcript.write_bytes(b"".join(until_called))
    assert collect(agent).state.mid_turn


def test_a_sub_agent_of_claude_does_not_end_the_turn(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude", mid_turn=True)
    aside = {"type": "assistant", "isSidechain": True, "message": {"stop_reason": "end_turn"}}
    with agent.transcript.open("ab") as file:
        file.write(lines(aside))
    assert collect(agent).state.mid_turn


def test_the_last_record_is_found_after_very_long_records(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex", mid_turn=True)
    long = {"type": "response_item", "payload": {"output": "x" * 300_000}}
    with agent.transcript.open("ab") as file:
        file.write(lines(long, {"type": "event_msg", "payload": {"type": "task_complete"}}))
        file.write(lines(long, long))
    assert not collect(agent).state.mid_turn
