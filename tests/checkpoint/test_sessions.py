"""Conversations: what belongs to one, where it goes elsewhere, whether a turn is under way."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from pathlib import Path

import attrs
import pytest
import zstandard

from clawblox.checkpoint.sessions import FORMATS, Placement, format_of_backend
from clawblox.checkpoint.sessions.claude import project_slug
from clawblox.checkpoint.sessions.kimi import work_dir_key
from clawblox.errors import CheckpointError, CheckpointFormatError, ConfigError
from tests.checkpoint.agents import (
    BACKENDS,
    SECRET_FILES,
    BuiltAgent,
    archived_content,
    build_agent,
    codex_records,
    find_conversation,
    kimi_records,
    lines,
    pieces,
    relative_files,
    restore_session,
)

CLAUDE_ID = "c0e128cf-2dc1-4bb3-9e54-08cdc2359ffb"
KIMI_ID = f"session_{CLAUDE_ID}"


def session_id_of(backend: str) -> str:
    return KIMI_ID if backend == "kimi" else CLAUDE_ID


def collect(agent: BuiltAgent):
    return format_of_backend(agent.backend).collect(agent.dir)


def archived(agent: BuiltAgent) -> dict[str, bytes]:
    return archived_content(collect(agent).sources)


def restored(members: dict[str, bytes], agent: BuiltAgent, agent_dir: Path) -> Path:
    form = format_of_backend(agent.backend)
    restore_session(members, form, agent.session_id, agent_dir)
    return agent_dir


# Round trips


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_conversation_is_found_by_its_id_in_a_new_home_at_a_new_path(tmp_path, backend):
    agent = build_agent(tmp_path / "old" / "rocky", backend)
    members = archived(agent)
    content = agent.transcript.read_bytes()
    shutil.rmtree(tmp_path / "old")
    new = restored(members, agent, tmp_path / "elsewhere" / "run2" / "rocky")
    found = find_conversation(new, backend, agent.session_id)
    if backend != "kimi":
        assert found.read_bytes() == content
    assert b"MELON" in found.read_bytes()
    assert (new / f"{backend}_session_id.txt").read_text().strip() == agent.session_id
    assert (new / "world_session.txt").read_bytes() == b"sess-0123456789\n"
    assert (new / "runtime" / "system_prompt.md").read_bytes() == b"You live in a world.\n"
    assert (new / "logs" / "agent.log").read_bytes() == b'{"type":"system"}\n'


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_restored_can_be_saved_and_restored_again(tmp_path, backend):
    agent = build_agent(tmp_path / "old" / "rocky", backend)
    members = archived(agent)
    new = restored(members, agent, tmp_path / "new" / "rocky")
    again = archived(attrs.evolve(agent, dir=new))
    assert again == members


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_the_recorded_session_and_its_sub_agents_are_collected(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    session = collect(agent)
    collected = {source.path for source in session.sources}
    records = {
        agent.dir / name
        for name in (
            f"{backend}_session_id.txt",
            "world_session.txt",
            "runtime/system_prompt.md",
            "logs/agent.log",
        )
    }
    assert collected == {*agent.family, *records}
    assert session.id == agent.session_id


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_but_the_conversation_of_the_session_is_told(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    together = b"".join(archived(agent).values())
    assert b"MELON" in together
    for never in (b"SECRET", b"NEVER", b"export A=b", b"machine a login b"):
        assert never not in together


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_in_the_archive_do_not_tell_where_the_agent_worked(tmp_path, backend):
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


def test_records_that_are_not_there_are_not_missed(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude")
    (agent.dir / "world_session.txt").unlink()
    (agent.dir / "runtime" / "system_prompt.md").unlink()
    (agent.dir / "runtime" / "system_prompt.md").symlink_to("/etc/passwd")
    names_ = {source.name for source in collect(agent).sources}
    assert "record/world_session.txt" not in names_
    assert "record/runtime/system_prompt.md" not in names_
    assert "record/claude_session_id.txt" in names_


# Kimi's paths and permissions


def test_kimi_keeps_no_path_and_no_permission_in_an_archive(tmp_path):
    agent = build_agent(tmp_path / "rocky", "kimi")
    members = archived(agent)
    together = b"".join(members.values())
    assert str(tmp_path).encode() not in together
    assert work_dir_key(agent.workspace).encode() not in together
    assert b'"permission.' not in together
    assert json.loads(members["state.json"])["custom"] == {}


def test_kimi_records_that_tell_of_no_place_stay_as_they_are(tmp_path):
    agent = build_agent(tmp_path / "rocky", "kimi")
    new = restored(archived(agent), agent, tmp_path / "new" / "rocky")
    old_lines = agent.transcript.read_bytes().splitlines()
    new_lines = find_conversation(new, "kimi", agent.session_id).read_bytes().splitlines()
    changed = [line for line in old_lines if line not in new_lines]
    assert [json.loads(line)["type"] for line in changed] == [
        "runtime.set_binding",
        "permission.set_mode",
    ]
    bound = json.loads(new_lines[1])
    assert bound["workspaceId"] == work_dir_key(new / "workspace")
    assert bound["runtimeId"] == "local"
    assert len(new_lines) == len(old_lines) - 1


SMUGGLED = [
    b'{"type":"permission.set_mode","mode":"auto"}',
    b'{"type":"\\u0070ermission.set_mode","mode":"auto"}',
    b'{"type":"permission\\u002eset_mode","mode":"auto"}',
    b'{"type":"permission.set_mode","mode":"auto","x":"\xff"}',
    b'\xef\xbb\xbf{"type":"permission.set_mode","mode":"auto"}',
    b'{"type":"permission.set_mode","mode":"auto","x":%s}' % (b"1" * 5000),
    b'{"type":"permission.set_mode","mode":"auto","x":%s}' % (b"[" * 5000 + b"]" * 5000),
    b'{"type":"x","type":"permission.set_mode","mode":"auto"}',
    b' \t{"type" : "permission.record_approval_result", "sessionApprovalRule":"Bash"}\r',
    b'{"type":"permission.rules.add","rules":["Bash"]}',
]


@pytest.mark.parametrize("line", SMUGGLED, ids=range(len(SMUGGLED)))
def test_a_kimi_permission_is_restored_in_no_spelling(tmp_path, line):
    place = FORMATS["kimi-code-v1"].place(
        "agents/main/wire.jsonl", session_id=KIMI_ID, workspace=tmp_path / "workspace"
    )
    kept = b'{"type":"turn.prompt"}\n'
    assert b"".join(place.transform(pieces(kept + line + b"\n" + kept))) == kept + kept
    assert b"".join(place.transform(pieces(kept + line))) == kept


def test_a_kimi_state_leads_nowhere_but_into_the_new_session(tmp_path):
    workspace = tmp_path / "rocky" / "workspace"
    place = FORMATS["kimi-code-v1"].place("state.json", session_id=KIMI_ID, workspace=workspace)
    said = {
        "cwd": "/root",
        "agents": {
            "main": {"homedir": "/root/.ssh", "type": "main"},
            "../../x": {"homedir": "/root"},
            "odd": 1,
        },
    }
    state = json.loads(b"".join(place.transform([json.dumps(said).encode()])))
    home = tmp_path / "rocky" / Path(place.path).parent
    assert state == {
        "cwd": str(workspace),
        "agents": {
            "main": {"type": "main", "homedir": str(home / "agents" / "main")},
            "../../x": {},
            "odd": 1,
        },
    }


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_a_kimi_state_that_is_no_object_is_refused(tmp_path, content):
    place = FORMATS["kimi-code-v1"].place("state.json", session_id=KIMI_ID, workspace=tmp_path)
    with pytest.raises(CheckpointFormatError, match="no JSON object"):
        list(place.transform([content]))


# Where programs look


def as_claude_does(path: str) -> str:
    """Return the project directory by another way: on strings of one unit each."""
    units = [path.encode("utf-16-be")[i : i + 2] for i in range(0, 2 * utf16_length(path), 2)]
    slug = "".join(
        unit[1:].decode() if unit[0] == 0 and unit[1:].isalnum() else "-" for unit in units
    )
    if len(units) <= 200:
        return slug
    value = 0
    for unit in units:
        value = (value << 5) - value + int.from_bytes(unit, "big")
        value = (value + 2**31) % 2**32 - 2**31
    digits, value = "", abs(value)
    while value:
        digits, value = "0123456789abcdefghijklmnopqrstuvwxyz"[value % 36] + digits, value // 36
    return f"{slug[:200]}-{digits}"


def utf16_length(path: str) -> int:
    return len(path.encode("utf-16-be")) // 2


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        ("/home/me/run.1/rocky_2/workspace", "-home-me-run-1-rocky-2-workspace"),
        ("/tmp/h\u00e9llo/\u4e16\u754c", "-tmp-h-llo---"),
        ("/tmp/\U0001f41f/x", "-tmp----x"),
        # Printed by node, from the program's own function.
        ("/" + "a" * 250, "-" + "a" * 199 + "-feo44x"),
        ("/" + "\U0001f41f" * 120, "-" * 200 + "-rzlf4x"),
    ],
)
def test_the_project_directory_is_named_as_claude_names_it(path, slug):
    assert project_slug(Path(path)) == slug == as_claude_does(path)


def test_a_long_path_is_told_apart_by_a_hash_of_all_of_it():
    path = "/" + "/".join(["directory"] * 30)
    assert project_slug(Path(path)) == as_claude_does(path)
    assert project_slug(Path(path + "s")) == as_claude_does(path + "s")
    assert project_slug(Path(path)) != project_slug(Path(path + "s"))


@pytest.mark.parametrize("count", range(195, 206))
def test_the_length_from_which_a_path_is_hashed_is_the_same(count):
    path = "/" + "x" * (count - 1)
    assert project_slug(Path(path)) == as_claude_does(path)


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        ("/tmp/workspace", "workspace"),
        ("/tmp/My Work.2", "my-work.2"),
        ("/tmp/\u4e16\u754c", "workspace"),
        ("/tmp/-a-", "a"),
        ("/tmp/" + "x" * 39 + " yz", "x" * 39),
        ("/", "workspace"),
    ],
)
def test_the_bucket_is_named_as_kimi_names_it(path, slug):
    prefix, _, digest = work_dir_key(Path(path)).rpartition("_")
    assert prefix == f"wd_{slug}"
    assert len(digest) == 12


def test_a_workspace_behind_a_link_is_placed_by_where_it_really_is(tmp_path):
    (tmp_path / "real" / "workspace").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    for backend in ("claude", "kimi"):
        form = format_of_backend(backend)
        places = {
            form.place(
                form.transcript,
                session_id=session_id_of(backend),
                workspace=tmp_path / way / "workspace",
            ).path
            for way in ("real", "link")
        }
        assert len(places) == 1


def test_a_session_of_a_workspace_that_had_another_path_is_found(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude", worked_in=Path("/workspace"))
    assert agent.transcript.parent.name == "-workspace"
    names_ = {source.name for source in collect(agent).sources}
    assert {"transcript.jsonl", "memory/MEMORY.md", "tool-results/toolu_0.txt"} <= names_
    new = restored(archived(agent), agent, tmp_path / "new")
    assert find_conversation(new, "claude", agent.session_id)


def test_the_session_of_the_workspace_itself_wins(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude")
    for other in ("--first", "-workspace", "zlast"):
        copy = agent.transcript.parents[1] / other / agent.transcript.name
        copy.parent.mkdir()
        copy.write_bytes(b'{"type":"user"}\n')
    assert archived(agent)["transcript.jsonl"] == agent.transcript.read_bytes()
    agent.transcript.unlink()
    with pytest.raises(CheckpointError, match="3 transcripts for"):
        collect(agent)


# Codex


def test_codex_threads_follow_the_chain_of_their_parents(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    assert len(agent.family) == 3
    child = agent.family[1]
    child.unlink()
    found = {source.path for source in collect(agent).sources}
    assert agent.family[0] in found
    assert agent.family[2] not in found


def test_codex_threads_are_followed_by_the_older_record_too(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    for path in agent.family[1:]:
        first, _, rest = path.read_bytes().partition(b"\n")
        meta = json.loads(first)
        del meta["payload"]["parent_thread_id"]
        path.write_bytes(lines(meta) + rest)
    assert {*agent.family} <= {source.path for source in collect(agent).sources}


def test_codex_threads_that_are_their_own_ancestors_do_not_hold_us_up(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex")
    thread = agent.strangers[0].stem[-36:]
    agent.strangers[0].write_bytes(codex_records(thread, "/", "SECRET", False, thread))
    agent.transcript.write_bytes(codex_records(agent.session_id, "/", "M", False, thread))
    assert agent.strangers[0] not in {source.path for source in collect(agent).sources}


@pytest.mark.parametrize(
    "first", [b"", b"x" * 10, b"[]\n", b'{"type":"session_meta"}\n', b"\xff\n"]
)
def test_a_rollout_that_says_nothing_is_nobodys_child(tmp_path, first):
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
    assert not collect(agent).mid_turn


def test_a_plain_rollout_wins_over_its_compressed_double(tmp_path, no_decoder):
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


def test_a_compressed_rollout_is_cut_after_its_last_line(tmp_path, decoder):
    agent = build_agent(tmp_path / "rocky", "codex")
    plain = archived(agent)
    agent.transcript.write_bytes(agent.transcript.read_bytes() + b'{"type":"ev')
    compress(agent.transcript)
    assert archived(agent) == plain


@pytest.mark.parametrize("content", [b"", b"\n", b'{"type":"session_meta"}'])
def test_a_compressed_rollout_without_a_complete_record_is_an_error(tmp_path, decoder, content):
    agent = build_agent(tmp_path / "rocky", "codex")
    agent.transcript.write_bytes(content)
    compress(agent.transcript)
    with pytest.raises(CheckpointError, match="no complete record"):
        archived(agent)


# Turns

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
def test_it_is_known_whether_a_turn_is_under_way(tmp_path, backend, mid_turn):
    agent = build_agent(tmp_path / "rocky", backend, mid_turn=mid_turn)
    assert collect(agent).mid_turn is mid_turn
    assert format_of_backend(backend).is_mid_turn(agent.dir) is mid_turn


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("tail", [b'{"type":"us', b"\x00\xff", FOREIGN], ids=range(3))
def test_torn_and_foreign_records_do_not_decide_about_a_turn(tmp_path, backend, tail):
    for mid_turn in (False, True):
        agent = build_agent(tmp_path / str(mid_turn) / "rocky", backend, mid_turn=mid_turn)
        with agent.transcript.open("ab") as file:
            file.write(tail)
        assert collect(agent).mid_turn is mid_turn


def test_a_tool_that_claude_has_asked_for_is_within_the_turn(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude", mid_turn=True)
    *until_called, result = agent.transcript.read_bytes().splitlines(keepends=True)
    assert b"tool_result" in result
    agent.transcript.write_bytes(b"".join(until_called))
    assert collect(agent).mid_turn


def test_a_sub_agent_of_claude_does_not_decide_about_the_turn(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude", mid_turn=True)
    aside = {"type": "assistant", "isSidechain": True, "message": {"stop_reason": "end_turn"}}
    with agent.transcript.open("ab") as file:
        file.write(lines(aside))
    assert collect(agent).mid_turn


def test_the_last_record_is_found_behind_very_long_ones(tmp_path):
    agent = build_agent(tmp_path / "rocky", "codex", mid_turn=True)
    long = {"type": "response_item", "payload": {"output": "x" * 300_000}}
    with agent.transcript.open("ab") as file:
        file.write(lines(long, {"type": "event_msg", "payload": {"type": "task_complete"}}))
        file.write(lines(long, long))
    assert not collect(agent).mid_turn


# What is refused


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_recorded_session_without_a_transcript_is_an_error(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    agent.transcript.unlink()
    with pytest.raises(CheckpointError, match=f"no transcript for {agent.session_id}") as caught:
        collect(agent)
    assert "workspace_only" in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_transcript_that_is_a_link_is_none(tmp_path, backend):
    agent = build_agent(tmp_path / "rocky", backend)
    agent.transcript.rename(tmp_path / "moved")
    agent.transcript.symlink_to(tmp_path / "moved")
    with pytest.raises(CheckpointError, match="no transcript for"):
        collect(agent)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"type":"user"}', b"not json\n"])
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
@pytest.mark.parametrize("recorded", BAD_IDS)
def test_a_recorded_id_that_is_none_is_an_error(tmp_path, backend, recorded):
    agent = build_agent(tmp_path / "rocky", backend)
    path = agent.dir / f"{backend}_session_id.txt"
    path.write_bytes(recorded.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match="session id") as caught:
        collect(agent)
    assert caught.value.path == path
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


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
    with pytest.raises(CheckpointError, match=f"no session of {backend} is recorded"):
        collect(agent)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("session_id", BAD_IDS)
def test_an_archive_cannot_name_a_session_that_leads_elsewhere(tmp_path, backend, session_id):
    form = format_of_backend(backend)
    with pytest.raises(CheckpointFormatError, match="no session id"):
        form.place("record/world_session.txt", session_id=session_id, workspace=tmp_path)


HOSTILE_NAMES = [
    "settings.json",
    ".credentials.json",
    "transcript.jsonl.bak",
    "transcript.jsonl/x",
    "subagents/agent-a.sh",
    "subagents/../../../settings.jsonl",
    "memory/../../../../CLAUDE.md",
    "memory/a/b/c/d/e.md",
    "memory/.md/../x.md",
    "projects/x/y.jsonl",
    "tasks/1.lock",
    "tasks/../1.json",
    "sessions/2026/11/20/rollout-2026-11-20T15-30-16-nobody.jsonl",
    f"sessions/2026/11/20/rollout-2026-11-20T15-30-16-{CLAUDE_ID}.jsonl.zst",
    f"sessions/2026/11/../rollout-1-{CLAUDE_ID}.jsonl",
    "config.toml",
    "auth.json",
    "agents/../wire.jsonl",
    "agents/main/cron/1.json",
    "agents/main/plans/../../../x.md",
    "agents/main/plans/...md/x.md",
    "record/logs/agent.log/x",
    "record/home/.bashrc",
    "record/../settings.json",
    "record",
    "",
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*HOSTILE_NAMES, *sum(SECRET_FILES.values(), ())])
def test_what_no_session_has_is_placed_nowhere(tmp_path, backend, name):
    form = format_of_backend(backend)
    session_id = session_id_of(backend)
    assert form.place(name, session_id=session_id, workspace=tmp_path / "workspace") is None


def test_the_record_of_another_driver_is_placed_nowhere(tmp_path):
    form = FORMATS["codex-v1"]
    name = "record/claude_session_id.txt"
    assert form.place(name, session_id=CLAUDE_ID, workspace=tmp_path) is None


def test_what_a_session_has_is_placed_where_its_program_looks(tmp_path):
    workspace = tmp_path / "workspace"
    slug = project_slug(workspace)
    project = f"session/projects/{slug}"
    expected = {
        "transcript.jsonl": f"{project}/{CLAUDE_ID}.jsonl",
        "subagents/agent-a1.jsonl": f"{project}/{CLAUDE_ID}/subagents/agent-a1.jsonl",
        "tool-results/t_0.txt": f"{project}/{CLAUDE_ID}/tool-results/t_0.txt",
        "memory/a/b.md": f"{project}/memory/a/b.md",
        "tasks/12.json": f"session/tasks/{CLAUDE_ID}/12.json",
        "record/logs/agent.log": "logs/agent.log",
    }
    form = FORMATS["claude-code-v1"]
    assert {
        name: form.place(name, session_id=CLAUDE_ID, workspace=workspace) for name in expected
    } == {name: Placement(path=path) for name, path in expected.items()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_recorded_id_must_be_the_one_of_the_metadata(tmp_path, backend):
    session_id = session_id_of(backend)
    place = format_of_backend(backend).place(
        f"record/{backend}_session_id.txt", session_id=session_id, workspace=tmp_path
    )
    assert place.path == f"{backend}_session_id.txt"
    for recorded in (session_id, f"{session_id}\n"):
        assert b"".join(place.transform([recorded.encode()])) == recorded.encode()
    for other in ("--dangerously-skip-permissions", "", f"{session_id} -x"):
        with pytest.raises(CheckpointFormatError, match="another than the metadata's"):
            list(place.transform([other.encode()]))


def test_placing_needs_no_directory_to_be_there(tmp_path):
    workspace = tmp_path / "not" / "yet" / "workspace"
    place = FORMATS["claude-code-v1"].place(
        "transcript.jsonl", session_id=CLAUDE_ID, workspace=workspace
    )
    assert place.path == f"session/projects/{project_slug(workspace)}/{CLAUDE_ID}.jsonl"
    assert relative_files(tmp_path) == set()


def test_an_unknown_driver_is_refused():
    with pytest.raises(ConfigError, match="claude, codex, kimi"):
        format_of_backend("gemini")


def test_formats_are_known_by_their_names():
    assert list(FORMATS) == ["claude-code-v1", "codex-v1", "kimi-code-v1"]
    assert all(FORMATS[form.name] is form for form in FORMATS.values())
    assert [format_of_backend(backend).backend for backend in BACKENDS] == list(BACKENDS)


def test_a_record_longer_than_memory_should_hold_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("clawblox.checkpoint.sessions.transcripts._MAX_LINE", 100_000)
    form = FORMATS["kimi-code-v1"]
    place = form.place("agents/main/wire.jsonl", session_id=KIMI_ID, workspace=tmp_path)
    wire = kimi_records("wd_x", "MELON", False)
    assert list(place.transform([wire]))
    with pytest.raises(CheckpointFormatError, match="larger than 100000 bytes"):
        list(place.transform([b"x" * 60_000, b"y" * 60_000]))
    state = form.place("state.json", session_id=KIMI_ID, workspace=tmp_path)
    with pytest.raises(CheckpointFormatError, match="larger than 100000 bytes"):
        list(state.transform([b"x" * 60_000, b"y" * 60_000]))
