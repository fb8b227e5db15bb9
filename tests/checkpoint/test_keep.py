"""Files that programs run automatically are archived only if a caller names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox import load_checkpoint, save_checkpoint
from clawblox.errors import CheckpointSecretError, ConfigError
from tests.checkpoint.secrets.fakes import fake

RUN = {".helix/languages.toml", "irbrc", "sub/.jj/repo/config.toml"}
OWN = {"notes.md"}


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    for name in (*RUN, *OWN, ".env"):
        path = tmp_path / "eko" / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text\n")
    return tmp_path / "eko"


def excluded(loaded: dict[str, Any]) -> set[str]:
    return {entry["path"].removeprefix("agents/eko/workspace/") for entry in loaded["excluded"]}


def restored(loaded: dict[str, Any]) -> set[str]:
    workspace = loaded["agents"]["eko"] / "workspace"
    return {str(path.relative_to(workspace)) for path in workspace.rglob("*") if path.is_file()}


def test_a_file_that_is_not_kept_is_listed_and_the_rest_is_restored(
    tmp_path: Path, agent: Path
) -> None:
    archive = save_checkpoint(tmp_path / "a.ckpt", agents={"eko": agent})
    loaded = load_checkpoint(archive, tmp_path / "run")
    assert restored(loaded) == OWN
    assert loaded["metadata"]["excluded"]
    listed = {entry["path"] for entry in loaded["metadata"]["excluded"]}
    names = (".helix", "irbrc", "sub/.jj/repo/config.toml", ".env")
    assert listed >= {f"agents/eko/workspace/{name}" for name in names}


def test_a_named_file_is_archived_and_restored_if_the_load_names_it(
    tmp_path: Path, agent: Path
) -> None:
    keep = [".helix/", "irbrc", "sub/.jj/repo/config.toml", ".env"]
    archive = save_checkpoint(tmp_path / "a.ckpt", agents={"eko": agent}, keep=keep)
    assert restored(load_checkpoint(archive, tmp_path / "kept", keep=keep)) == RUN | OWN
    stranger = load_checkpoint(archive, tmp_path / "run")
    assert restored(stranger) == OWN
    assert excluded(stranger) >= RUN


@pytest.mark.parametrize("keep", ["irbrc", [""], ["/etc/x"], ["../x"], ["a//b"], ["."], [7]])
def test_a_wrong_path_is_named(tmp_path: Path, agent: Path, keep: Any) -> None:
    with pytest.raises(ConfigError, match=r"^keep: "):
        save_checkpoint(tmp_path / "a.ckpt", agents={"eko": agent}, keep=keep)
    with pytest.raises(ConfigError, match=r"^keep: "):
        load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run", keep=keep)


@pytest.mark.parametrize("kind", ["", "/curl", "/ssh"])
def test_a_password_in_a_history_refuses_the_archive(
    tmp_path: Path, agent: Path, kind: str
) -> None:
    history = agent / "workspace" / "notes" / "shell_history.txt"
    history.parent.mkdir()
    history.write_text(f"ls\n{fake(f'command-password{kind}')}\nmake test\n")
    with pytest.raises(CheckpointSecretError) as caught:
        save_checkpoint(tmp_path / "a.ckpt", agents={"eko": agent})
    assert [finding.rule for finding in caught.value.findings] == ["command-password"]
