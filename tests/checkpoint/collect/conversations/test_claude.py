"""All files of a Claude Code 2.1.330 conversation that later turns may read are kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clawblox.agents.programs.program import project_slug
from clawblox.checkpoint import load_checkpoint, save_checkpoint
from tests.checkpoint.agents import BuiltAgent, build_agent, lines
from tests.checkpoint.archives import (
    EXECUTABLE,
    Member,
    archive,
    checkpoint,
    described,
    metadata_member,
)
from tests.checkpoint.collect.conversations.support import CLAUDE_ID, archived, collect, restored

RUN = "wf_d014cc2a-414"

KEPT = {
    "{project}/{id}/subagents/agent-acompact-1b_2c.jsonl": lines({"type": "user"}),
    "{project}/{id}/subagents/agent-a-my-friend_1-0123456789abcdef.meta.json": b"{}",
    f"{{project}}/{{id}}/subagents/workflows/{RUN}/agent-aad32da3c0a33732e.jsonl": lines({"a": 1}),
    f"{{project}}/{{id}}/subagents/workflows/{RUN}/agent-aad32da3c0a33732e.meta.json": b"{}",
    f"{{project}}/{{id}}/subagents/workflows/{RUN}/journal.jsonl": lines({"type": "launched"}),
    f"{{project}}/{{id}}/workflows/{RUN}.json": b'{"status":"completed"}',
    f"{{project}}/{{id}}/workflows/scripts/count-sheep-{RUN}.js": b"return 1\n",
    "{project}/{id}/tool-results/" + "mcp-server-tool-" * 9 + "1.txt": b"long",
    "{project}/{id}/tool-results/webfetch-1795941486-x1y2z3.pdf": b"%PDF-1.4",
    "{project}/{id}/tool-results/pdf-2104bded-42f0-41db-bab5-e771475a7945/page-1.jpg": b"jpeg",
    "{project}/{id}/tool-results/Seite ü (1)/page.1": b"page",
    "{project}/{id}/tool-results/records.jsonl": b'{"no": "newline"}',
    "{project}/memory/ünï (1).md": "größer\n".encode(),
    "{project}/memory/a/b/c/d/e/deep.md": b"deep",
    "{project}/memory/table.csv": b"1,2",
    "{project}/memory/diary.jsonl": b'{"no": "newline"}',
    "{project}/memory/trace.log": b"no newline",
    "{project}/memory/README": b"without a suffix",
    "tasks/{id}/.highwatermark": b"2",
}
"""Files by their path in the state directory, with their content."""

LEFT_OUT = (
    *("session-env/{id}/sessionstart-hook-1.sh", "file-history/{id}/5b3314dbaa0f31e4@v1"),
    *("todos/{id}-agent-{id}.json", "shell-snapshots/snapshot-bash-1.sh", "sessions/1.json"),
    *("{project}/{id}/session-env/hook.sh", "{project}/{id}/unknown.txt", "{project}/other.txt"),
    *("{project}/{id}/subagents/run.sh", "{project}/{id}/workflows/scripts/run.sh"),
    *("{project}/memory/.env", "{project}/memory/.git/hooks/post-checkout"),
    *("{project}/memory/.claude/settings.json", "{project}/{id}/tool-results/.envrc"),
    *("{project}/memory/session-env/hook.sh", "{project}/{id}/tool-results/session-env/hook.sh"),
    *("tasks/{id}/.lock", "plans/of-another.md", "agent-memory/reviewer/MEMORY.md"),
)


@pytest.fixture
def agent(tmp_path: Path) -> BuiltAgent:
    return build_agent(tmp_path / "old" / "rocky", "claude")


def state_path(agent: BuiltAgent, name: str) -> Path:
    project = f"projects/{agent.transcript.parent.name}"
    return agent.dir / "session" / name.format(project=project, id=agent.conversation_id)


def write(path: Path, content: bytes = b"NEVER") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", KEPT)
def test_each_part_of_a_conversation_is_restored_unchanged(
    agent: BuiltAgent, tmp_path: Path, name: str
) -> None:
    path = write(state_path(agent, name), KEPT[name])
    assert path in {source.path for source in collect(agent).sources}
    new = restored(archived(agent), agent, tmp_path / "new" / "rocky")
    project = f"projects/{project_slug(str(new / 'workspace'))}"
    place = new / "session" / name.format(project=project, id=agent.conversation_id)
    assert place.read_bytes() == KEPT[name]


def test_the_rest_of_the_state_is_left_out_and_listed(agent: BuiltAgent, tmp_path: Path) -> None:
    for name in KEPT:
        write(state_path(agent, name), KEPT[name])
    left_out = [write(state_path(agent, name)) for name in LEFT_OUT]
    path = save_checkpoint(tmp_path / "a.ckpt", agents={"rocky": agent.dir})
    loaded = load_checkpoint(path, tmp_path / "run")
    listed = [entry["path"] for entry in loaded["metadata"]["excluded"]]
    for each in left_out:
        name = f"agents/rocky/{each.relative_to(agent.dir)}"
        assert [entry for entry in listed if f"{name}/".startswith(f"{entry}/")], name
    restored_files = [each for each in tmp_path.glob("run/**/*") if each.is_file()]
    assert not any(each.read_bytes() == b"NEVER" for each in restored_files)
    assert not any("session-env" in each.parts for each in tmp_path.glob("run/**/*"))


def test_only_plans_of_the_conversation_are_kept(agent: BuiltAgent) -> None:
    plans = state_path(agent, "plans")
    names = ("my-witty-newt", "my-witty-newt-agent-a1b2", "my-witty-newts", "of-another", "My-newt")
    for name in names:
        write(plans / f"{name}.md", name.encode())
    assert not any(name.startswith("plans/") for name in archived(agent))
    with agent.transcript.open("ab") as file:
        file.write(lines({"type": "user", "slug": "my-witty-newt"}, {"type": "last-prompt"}))
    plans_kept = {name for name in archived(agent) if name.startswith("plans/")}
    assert plans_kept == {"plans/my-witty-newt.md", "plans/my-witty-newt-agent-a1b2.md"}


def test_all_plans_are_kept_without_another_conversation(agent: BuiltAgent) -> None:
    write(state_path(agent, "plans") / "My_newt.md", b"swim")
    assert "plans/My_newt.md" not in archived(agent)
    for stranger in agent.strangers:
        stranger.unlink()
    assert "plans/My_newt.md" in archived(agent)


STATE = {"backend": "claude", "session_format": "claude-code-v1", "session_id": CLAUDE_ID}
TRANSCRIPTS = ("transcript.jsonl", f"projects/-old/{CLAUDE_ID}.jsonl")
"""Transcript in the layout of this package, and of other writers."""

SOURCED = (
    *(f"session-env/{CLAUDE_ID}/sessionstart-hook-1.sh", "session-env/environment-start.sh"),
    f"projects/-old/{CLAUDE_ID}/session-env/hook.sh",
    *("projects/-old/session-env/hook.sh", "subagents/session-env/hook.sh"),
    *("workflows/session-env/hook.sh", f"tasks/{CLAUDE_ID}/session-env/hook.sh"),
    *("memory/session-env/hook.sh", "tool-results/session-env/hook.sh"),
)


@pytest.mark.parametrize("transcript", TRANSCRIPTS)
def test_files_that_a_shell_would_source_are_never_extracted(
    tmp_path: Path, transcript: str
) -> None:
    names = (transcript, *SOURCED)
    files = {f"agents/a/session/{name}": b"{}\n" for name in names}
    (tmp_path / "a.ckpt").write_bytes(checkpoint(files, agents={"a": STATE}))
    loaded = load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run")
    assert {entry["path"] for entry in loaded["excluded"]} == {
        f"agents/a/session/{name}" for name in SOURCED
    }
    found = [str(path.relative_to(tmp_path / "run")) for path in tmp_path.glob("run/**/*")]
    assert not any("session-env" in name or name.endswith(".sh") for name in found)


@pytest.mark.parametrize("transcript", TRANSCRIPTS)
def test_no_file_of_a_conversation_is_restored_as_executable(
    tmp_path: Path, transcript: str
) -> None:
    project = transcript.rpartition("transcript.jsonl")[0] or "projects/-old/"
    more = ("memory/run.sh", f"{CLAUDE_ID}/tool-results/run.sh")
    if transcript == "transcript.jsonl":
        project, more = "", ("memory/run.sh", "tool-results/run.sh", "record/logs/agent.log")
    names = [transcript, *(f"{project}{name}" for name in more)]
    members = [f"agents/a/session/{name}" for name in names]
    document = {
        "schema_version": 1,
        "agents": {"a": STATE},
        "files": {name: described(b"x\n", mode=0o700) for name in members},
    }
    data = [Member(name, b"x\n", fields={"external": EXECUTABLE}) for name in members]
    (tmp_path / "a.ckpt").write_bytes(archive(metadata_member(document), *data))
    loaded = load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run")
    assert loaded["excluded"] == []
    found = [path for path in tmp_path.glob("run/**/*") if path.is_file()]
    assert len(found) == len(names) + 1  # the file with the id
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}


@pytest.mark.parametrize("transcript", TRANSCRIPTS)
def test_git_does_not_treat_a_directory_of_a_conversation_as_a_repository(
    tmp_path: Path, transcript: str
) -> None:
    project = transcript.rpartition("transcript.jsonl")[0] or "projects/-old/"
    directory = "memory/r" if transcript == "transcript.jsonl" else f"{project}memory/r"
    settings = b"[core]\n\tbare = true\n[alias]\n\tgreet = !echo obeyed\n"
    repository = {
        "HEAD": b"ref: refs/heads/main\n",
        "config": settings,
        "objects/info/x": b"",
        "refs/heads/x": b"",
    }
    files = {f"{directory}/{name}": content for name, content in repository.items()}
    members = {f"agents/a/session/{name}": data for name, data in files.items()}
    members[f"agents/a/session/{transcript}"] = b"{}\n"
    (tmp_path / "a.ckpt").write_bytes(checkpoint(members, agents={"a": STATE}))
    load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run")
    [restored_config] = tmp_path.glob("run/**/memory/r/config")
    command = ["git", "-c", "safe.directory=*", "greet"]
    result = subprocess.run(command, cwd=restored_config.parent, capture_output=True, check=False)
    assert b"obeyed" not in result.stdout
    assert result.returncode != 0


def test_plans_do_not_hide_a_conversation_in_the_layout_of_another_writer(tmp_path: Path) -> None:
    names = (f"projects/-old/{CLAUDE_ID}.jsonl", "projects/-old/memory/a.md", "plans/my-newt.md")
    files = {f"agents/a/session/{name}": b"{}\n" for name in names}
    (tmp_path / "a.ckpt").write_bytes(checkpoint(files, agents={"a": STATE}))
    loaded = load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run")
    assert loaded["excluded"] == []
    state = tmp_path / "run" / "agents" / "a" / "session"
    project = state / "projects" / project_slug(str(state.with_name("workspace")))
    assert (project / f"{CLAUDE_ID}.jsonl").read_bytes() == b"{}\n"
    assert (project / "memory" / "a.md").is_file()
    assert (state / "plans" / "my-newt.md").is_file()
