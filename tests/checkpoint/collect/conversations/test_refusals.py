"""Refused conversations, ids and records, with the names in the errors."""

from __future__ import annotations

import os

import pytest

from clawblox.checkpoint.collect.conversations import FORMATS, find_format
from clawblox.errors import CheckpointError, CheckpointFormatError, ConfigError
from tests.checkpoint.agents import BACKENDS, build_agent, kimi_records
from tests.checkpoint.collect.conversations.support import CLAUDE_ID, KIMI_ID, collect
from tests.support.sampling import sampled


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_recorded_conversation_without_a_transcript_is_an_error(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    agent.transcript.unlink()
    with pytest.raises(
        CheckpointError, match=f"no transcript for {agent.conversation_id}"
    ) as caught:
        collect(agent)
    assert "workspace_only" in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_transcript_that_is_a_link_is_ignored(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    agent.transcript.rename(tmp_path / "moved")
    agent.transcript.symlink_to(tmp_path / "moved")
    with pytest.raises(CheckpointError, match="no transcript for"):
        collect(agent)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"type":"user"', b"not json\n"])
def test_a_transcript_without_a_complete_record_is_an_error(tmp_path, backend, content):
    agent = build_agent(tmp_path / "rocky", backend)
    agent.transcript.write_bytes(content)
    with pytest.raises(CheckpointError, match="no complete record") as caught:
        collect(agent)
    assert caught.value.path == agent.transcript


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        *((backend, "session") for backend in BACKENDS),
        ("claude", "session/projects"),
        ("codex", "session/sessions"),
        ("kimi", "session/sessions"),
    ],
)
def test_a_state_directory_that_is_a_link_is_an_error(tmp_path, backend, name):
    agent = build_agent(tmp_path / "rocky", backend)
    (agent.dir / name).rename(tmp_path / "moved")
    (agent.dir / name).symlink_to(tmp_path / "moved")
    with pytest.raises(CheckpointError, match="Not a directory"):
        collect(agent)


BAD_IDS = [
    "",
    "x",
    "../../../../etc/passwd",
    f"../{CLAUDE_ID}",
    f"{CLAUDE_ID}/..",
    f"{CLAUDE_ID}\n{CLAUDE_ID}",
    CLAUDE_ID.upper(),
    f"{CLAUDE_ID}\0",
    f"session_{CLAUDE_ID}/../x",
    "\x1b[2J",
    "\udcff",
    "1" * 100_000,
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("recorded", sampled(BAD_IDS, 2))
def test_a_malformed_recorded_id_is_an_error(tmp_path, backend, recorded):
    agent = build_agent(tmp_path / "rocky", backend)
    path = agent.dir / f"{backend}_session_id.txt"
    path.write_bytes(recorded.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match="conversation id") as caught:
        collect(agent)
    assert caught.value.path == path
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.thorough
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("instead", ["nothing", "a link", "a directory", "a pipe"])
def test_an_id_file_that_cannot_be_read_is_an_error(tmp_path, backend, instead):
    agent = build_agent(tmp_path / "rocky", backend)
    path = agent.dir / f"{backend}_session_id.txt"
    path.rename(tmp_path / "id")
    {
        "nothing": lambda: None,
        "a link": lambda: path.symlink_to(tmp_path / "id"),
        "a directory": path.mkdir,
        "a pipe": lambda: os.mkfifo(path),
    }[instead]()
    with pytest.raises(CheckpointError, match=f"no conversation of {backend} is recorded"):
        collect(agent)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("conversation_id", BAD_IDS)
def test_an_id_in_an_archive_that_leads_elsewhere_is_refused(tmp_path, backend, conversation_id):
    form = find_format(backend)
    with pytest.raises(CheckpointFormatError, match="not a conversation id"):
        form.place("record/world_session.txt", conversation_id=conversation_id, workspace=tmp_path)


def test_an_unknown_driver_is_refused():
    with pytest.raises(ConfigError, match="claude, codex, kimi"):
        find_format("gemini")


def test_formats_are_found_by_name():
    assert list(FORMATS) == ["claude-code-v1", "codex-v1", "kimi-code-v1"]
    assert all(FORMATS[form.name] is form for form in FORMATS.values())
    assert [find_format(backend).backend for backend in BACKENDS] == list(BACKENDS)


def test_a_record_beyond_the_size_limit_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "clawblox.checkpoint.collect.conversations.transcripts.MAX_RECORD_BYTES", 100_000
    )
    form = FORMATS["kimi-code-v1"]
    place = form.place("agents/main/wire.jsonl", conversation_id=KIMI_ID, workspace=tmp_path)
    wire = kimi_records("wd_x", "MELON", False)
    assert list(place.transform([wire]))
    with pytest.raises(CheckpointFormatError, match="larger than 100000 bytes"):
        list(place.transform([b"x" * 60_000, b"y" * 60_000]))
    state = form.place("state.json", conversation_id=KIMI_ID, workspace=tmp_path)
    with pytest.raises(CheckpointFormatError, match="larger than 100000 bytes"):
        list(state.transform([b"x" * 60_000, b"y" * 60_000]))
