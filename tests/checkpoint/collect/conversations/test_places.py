"""The places where programs search for a conversation, and the places of restored files."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.agents.programs.kimi import work_dir_key
from clawblox.agents.programs.program import project_slug
from clawblox.checkpoint.collect.conversations import FORMATS, Placement, find_format
from clawblox.checkpoint.collect.conversations.transcripts import whole_records
from clawblox.errors import CheckpointError, CheckpointFormatError
from tests.checkpoint.agents import (
    BACKENDS,
    SECRET_FILES,
    build_agent,
    find_conversation,
    relative_files,
)
from tests.checkpoint.collect.conversations.support import (
    CLAUDE_ID,
    archived,
    collect,
    conversation_id_for,
    restored,
)

# Places where programs search


def as_claude_does(path: str) -> str:
    """Return the project directory, computed differently: with one string per unit."""
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
def test_the_project_directory_has_the_name_that_claude_uses(path, slug):
    assert project_slug(path) == slug == as_claude_does(path)


def test_a_long_path_ends_in_a_hash_of_the_whole_path():
    path = "/" + "/".join(["directory"] * 30)
    assert project_slug(path) == as_claude_does(path)
    assert project_slug(path + "s") == as_claude_does(path + "s")
    assert project_slug(path) != project_slug(path + "s")


@pytest.mark.parametrize("count", range(195, 206))
def test_a_project_name_is_hashed_from_the_same_length_as_in_claude(count):
    path = "/" + "x" * (count - 1)
    assert project_slug(path) == as_claude_does(path)


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
def test_the_bucket_has_the_name_that_kimi_uses(path, slug):
    prefix, _, digest = work_dir_key(Path(path)).rpartition("_")
    assert prefix == f"wd_{slug}"
    assert len(digest) == 12


def test_a_workspace_behind_a_link_is_placed_by_its_real_path(tmp_path):
    (tmp_path / "real" / "workspace").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    for backend in ("claude", "kimi"):
        form = find_format(backend)
        places = {
            form.place(
                form.transcript,
                conversation_id=conversation_id_for(backend),
                workspace=tmp_path / way / "workspace",
            ).path
            for way in ("real", "link")
        }
        assert len(places) == 1


def test_a_conversation_of_a_moved_workspace_is_found(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude", worked_in=Path("/workspace"))
    assert agent.transcript.parent.name == "-workspace"
    names_ = {source.name for source in collect(agent).sources}
    assert {"transcript.jsonl", "memory/MEMORY.md", "tool-results/toolu_0.txt"} <= names_
    new = restored(archived(agent), agent, tmp_path / "new")
    assert find_conversation(new, "claude", agent.conversation_id)


def test_the_conversation_in_the_bucket_of_the_workspace_wins(tmp_path):
    agent = build_agent(tmp_path / "rocky", "claude")
    for other in ("--first", "-workspace", "zlast"):
        copy = agent.transcript.parents[1] / other / agent.transcript.name
        copy.parent.mkdir()
        copy.write_bytes(b'{"type":"user"}\n')
    assert archived(agent)["transcript.jsonl"] == agent.transcript.read_bytes()
    agent.transcript.unlink()
    with pytest.raises(CheckpointError, match="3 transcripts for"):
        collect(agent)


# Places of restored files

LINES = (".jsonl", "agent.log")

HOSTILE_NAMES = [
    "settings.json",
    ".credentials.json",
    "transcript.jsonl.bak",
    "transcript.jsonl/x",
    "subagents/agent-a.sh",
    "subagents/../../../settings.jsonl",
    "memory/../../../../CLAUDE.md",
    "memory/.env",
    "memory/.git/hooks/post-checkout",
    "memory/a/.claude/settings.json",
    "memory/a/HEAD",
    "memory/a/head",
    "memory/a/session-env/hook.sh",
    "memory/.claude/Session-Env/hook.sh",
    "tool-results/HEAD",
    "tool-results/session-env/hook.sh",
    "tool-results/a/b/c.txt",
    "workflows/scripts/../../x.js",
    "workflows/x.sh",
    "plans/../CLAUDE.md",
    "session-env/x/hook.sh",
    "projects/-workspace/session-env/hook.sh",
    "file-history/x/0@v1",
    "todos/x.json",
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
    f"agents/main/blobs/{'0a' * 31}",
    f"agents/main/blobs/{'0A' * 32}",
    f"agents/main/blobs/x/{'0a' * 32}",
    f"blobs/{'0a' * 32}",
    "agents/main/tasks/1.json",
    "agents/main/tasks/bash-90ntjjmo",
    "agents/main/tasks/bash-90ntjjmo/run.sh",
    "agents/main/tasks/bash-90ntjjmo/../output.log",
    "agents/main/tasks/output.log",
    "agents/main/tool-results/x.txt",
    f"agents/main/tool-results/x/../Grep-{CLAUDE_ID}.txt",
    f"agents/main/tool-results/Grep-{CLAUDE_ID}.sh",
    "agents/main/file-history/0@v1",
    "media/x.png",
    "media/f_1/x.png",
    "media/f_1.png.tmp.1",
    "media/meta/f_1.sh",
    "media-originals/x.png",
    "agents/main/plans/...md/x.md",
    "record/logs/agent.log/x",
    "record/home/.bashrc",
    "record/../settings.json",
    "record",
    "",
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*HOSTILE_NAMES, *sum(SECRET_FILES.values(), ())])
def test_a_name_that_the_format_does_not_allow_is_not_placed(tmp_path, backend, name):
    form = find_format(backend)
    conversation_id = conversation_id_for(backend)
    assert (
        form.place(name, conversation_id=conversation_id, workspace=tmp_path / "workspace") is None
    )


def test_the_id_file_of_another_driver_is_not_placed(tmp_path):
    form = FORMATS["codex-v1"]
    name = "record/claude_session_id.txt"
    assert form.place(name, conversation_id=CLAUDE_ID, workspace=tmp_path) is None


def test_files_of_a_conversation_are_placed_where_the_program_reads_them(tmp_path):
    workspace = tmp_path / "workspace"
    slug = project_slug(str(workspace))
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
        name: form.place(name, conversation_id=CLAUDE_ID, workspace=workspace) for name in expected
    } == {
        name: Placement(path=path, transform=whole_records if path.endswith(LINES) else None)
        for name, path in expected.items()
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_recorded_id_other_than_in_the_metadata_is_refused(tmp_path, backend):
    conversation_id = conversation_id_for(backend)
    place = find_format(backend).place(
        f"record/{backend}_session_id.txt", conversation_id=conversation_id, workspace=tmp_path
    )
    assert place.path == f"{backend}_session_id.txt"
    for recorded in (conversation_id, f"{conversation_id}\n"):
        assert b"".join(place.transform([recorded.encode()])) == recorded.encode()
    for other in ("--dangerously-skip-permissions", "", f"{conversation_id} -x"):
        with pytest.raises(CheckpointFormatError, match="differs from the one in the metadata"):
            list(place.transform([other.encode()]))


def test_placing_does_not_need_existing_directories(tmp_path):
    workspace = tmp_path / "not" / "yet" / "workspace"
    place = FORMATS["claude-code-v1"].place(
        "transcript.jsonl", conversation_id=CLAUDE_ID, workspace=workspace
    )
    assert place.path == f"session/projects/{project_slug(str(workspace))}/{CLAUDE_ID}.jsonl"
    assert relative_files(tmp_path) == set()
