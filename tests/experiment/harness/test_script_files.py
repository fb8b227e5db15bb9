"""Directories and archives of the public generation scripts, sound, damaged and hostile."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox import CheckpointError, ConfigError, save_checkpoint
from clawblox.experiment.harness.script_files import (
    RecordedOptions,
    find_resume_point,
    read_chain,
    read_options,
)
from clawblox.experiment.layout import table_path
from tests.experiment.harness import scripts

PAIR = ("Eko", "Moa")


@pytest.fixture
def chain_dir(tmp_path: Path) -> Path:
    scripts.begin(tmp_path / "exp")
    return tmp_path / "exp"


def refusal(chain_dir: Path, agents: int = 1) -> str:
    with pytest.raises(ConfigError) as caught:
        read_chain(chain_dir, agents=agents)
    return str(caught.value)


def test_all_generations_are_imported_with_their_workspaces(chain_dir: Path) -> None:
    for generation in (1, 2):
        scripts.complete(chain_dir, generation, agents=PAIR)
    chain = read_chain(chain_dir, agents=2)
    assert [generation.number for generation in chain.generations] == [1, 2]
    assert chain.run_prefix == "exp"
    assert chain.tmux_prefix == "clawblox-gen-python"
    rows = chain.generations[1].data["rows"]
    assert [row["workspace_out"] for row in rows] == [
        f"runs/exp-g002/agents/{display}-rexp-g002-w0-a{index}/workspace"
        for index, display in enumerate(PAIR)
    ]
    assert {row["duration_seconds"] for row in rows} == {"1800"}


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_table_lines_may_end_in_lf_or_crlf(chain_dir: Path, end: str) -> None:
    scripts.complete(chain_dir, 1)
    table = table_path(chain_dir)
    table.write_bytes(table.read_bytes().replace(b"\r\n", end.encode()))
    assert len(read_chain(chain_dir, agents=1).generations) == 1


def test_the_next_run_is_named_as_the_scripts_name_it(chain_dir: Path) -> None:
    run_id = "exp-g001-r20260622T185925Z"
    scripts.complete(chain_dir, 1, run_id=run_id)
    assert read_chain(chain_dir, agents=1).run_prefix == run_id
    assert scripts.resume(chain_dir, 1).run_prefix == run_id


def test_a_moved_directory_can_be_continued(chain_dir: Path, tmp_path: Path) -> None:
    scripts.complete(chain_dir, 1)
    moved = chain_dir.rename(tmp_path / "moved")
    (row,) = read_chain(moved, agents=1).generations[0].rows
    assert (moved / row["workspace_out"] / "SOUL.md").is_file()


def test_workspaces_of_earlier_generations_may_be_gone(chain_dir: Path) -> None:
    (first,) = scripts.complete(chain_dir, 1)
    scripts.complete(chain_dir, 2)
    (first / "SOUL.md").unlink()
    first.rmdir()
    assert read_chain(chain_dir, agents=1).generations[0].rows[0]["workspace_out"] == str(first)


def test_the_latest_complete_run_of_a_generation_counts(chain_dir: Path) -> None:
    for run_id in ("exp-g001", "exp-g001-rS"):
        scripts.complete(chain_dir, 1, agents=PAIR, run_id=run_id)
    with pytest.raises(scripts.Refused):
        scripts.resume(chain_dir, 2)
    scripts.complete(chain_dir, 1, agents=PAIR[:1], run_id="exp-g001-rT")  # killed in between
    (generation,) = read_chain(chain_dir, agents=2).generations
    assert [row["run_id"] for row in generation.rows] == ["exp-g001-rS"] * 2


def test_the_latest_row_of_an_earlier_generation_counts(chain_dir: Path) -> None:
    for generation, run_id in ((1, "exp-g001"), (1, "exp-g001-rS"), (2, "exp-g001-rS-g002")):
        scripts.complete(chain_dir, generation, run_id=run_id)
    rows = [generation.rows for generation in read_chain(chain_dir, agents=1).generations]
    assert [row["run_id"] for (row,) in rows] == ["exp-g001-rS", "exp-g001-rS-g002"]


# -- directories without a start point ----------------------------------------------------------


def test_a_directory_without_a_table_is_refused(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refusal(tmp_path)


def test_a_table_without_a_complete_generation_is_refused(chain_dir: Path) -> None:
    text = refusal(chain_dir)
    assert "no generation is complete" in text
    assert "continue from an archive" in text


@pytest.mark.parametrize("agents", [1, 3])
def test_another_number_of_agents_is_refused(chain_dir: Path, agents: int) -> None:
    scripts.complete(chain_dir, 1, agents=PAIR)
    assert f"must have a row for each of {agents} agents" in refusal(chain_dir, agents)


def test_a_last_generation_with_rows_of_incomplete_runs_is_refused(chain_dir: Path) -> None:
    scripts.complete(chain_dir, 1, agents=PAIR[:1])
    scripts.complete(chain_dir, 1, agents=PAIR[:1])
    assert "not for the indexes 0, 0" in refusal(chain_dir, 2)
    assert "not for the indexes 0, 0" in refusal(chain_dir, 1)
    scripts.complete(chain_dir, 1, run_id="exp-g001-rS", changed={"agent_index": 1})
    assert "not for the indexes 0, 0, 1" in refusal(chain_dir, 2)


def test_a_missing_workspace_is_refused(chain_dir: Path) -> None:
    (workspace,) = scripts.complete(chain_dir, 1)
    workspace.rename(workspace.with_name("elsewhere"))
    assert "the workspace of agent 0 must be a directory below" in refusal(chain_dir)


# -- hostile tables -----------------------------------------------------------------------------


def test_a_workspace_that_is_a_link_is_refused(chain_dir: Path, tmp_path: Path) -> None:
    (workspace,) = scripts.complete(chain_dir, 1)
    workspace.rename(tmp_path / "elsewhere")
    workspace.symlink_to(tmp_path / "elsewhere")
    assert "links are not followed" in refusal(chain_dir)


def test_a_workspace_behind_a_link_is_refused(chain_dir: Path, tmp_path: Path) -> None:
    (workspace,) = scripts.complete(chain_dir, 1)
    workspace.parent.rename(tmp_path / "elsewhere")
    workspace.parent.symlink_to(tmp_path / "elsewhere")
    assert "links are not followed" in refusal(chain_dir)


@pytest.mark.parametrize("path", ["/etc", "runs/../..", "runs/../../elsewhere", "."])
def test_a_workspace_outside_of_the_runs_is_refused(
    chain_dir: Path, tmp_path: Path, path: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    scripts.complete(chain_dir, 1, changed={"workspace_out": path, "agent_name": "Eko"})
    assert "must be a directory below" in refusal(chain_dir)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("generation", "0"),
        ("generation", "-1"),
        ("generation", "1e3"),
        ("generation", "9" * 100),
        ("agent_index", "-1"),
        ("agent_index", "first"),
        ("agent_name", "../../etc"),
        ("agent_name", ".."),
        ("run_id", ""),
        ("run_id", "a" * 300),
        ("run_id", "\x1b[2J"),
        ("tmux_session", "a b"),
        ("template_in", "x" * 10_000),
        ("workspace_out", ""),
        ("start_utc", "yesterday"),
        ("end_utc", ""),
        ("duration_seconds", "0"),
        ("duration_seconds", "30m"),
    ],
)
def test_a_bad_value_is_refused_by_its_column(chain_dir: Path, column: str, value: str) -> None:
    scripts.complete(chain_dir, 1, changed={column: value})
    text = refusal(chain_dir)
    assert text.startswith(f"{column}: must be ")
    assert "generation_chain.csv:2" in text
    assert len(text) < 1000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must have the columns"),
        (b"generation,run_id\n1,exp-g001\n", "must have the columns"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (bytes(range(128)), "must have the columns"),
    ],
)
def test_file_other_than_a_table_is_refused(chain_dir: Path, content: bytes, message: str) -> None:
    table_path(chain_dir).write_bytes(content)
    assert message in refusal(chain_dir)


def test_a_short_row_is_refused(chain_dir: Path) -> None:
    with table_path(chain_dir).open("a") as file:
        file.write("1,0,Eko\n")
    assert refusal(chain_dir).startswith("run_id: must be a name")


def test_a_huge_field_is_refused(chain_dir: Path) -> None:
    with table_path(chain_dir).open("a") as file:
        file.write(f'"{"1" * (csv.field_size_limit() + 1)}"\n')
    assert "not CSV: field larger than field limit" in refusal(chain_dir)


def test_a_zero_character_is_refused(chain_dir: Path) -> None:
    scripts.complete(chain_dir, 1, changed={"workspace_out": "a\0b"})
    assert "workspace_out: must be a path" in refusal(chain_dir)


def test_a_huge_table_is_refused_before_it_is_read(chain_dir: Path) -> None:
    os.truncate(table_path(chain_dir), 1 << 40)
    assert "is larger than" in refusal(chain_dir)


def test_a_table_that_is_a_link_or_a_pipe_is_refused(chain_dir: Path, tmp_path: Path) -> None:
    table = table_path(chain_dir)
    table.rename(tmp_path / "table")
    table.symlink_to(tmp_path / "table")
    assert "is a symbolic link" in refusal(chain_dir)
    table.unlink()
    os.mkfifo(table)
    assert "is not a regular file" in refusal(chain_dir)


# -- archives -----------------------------------------------------------------------------------


def archive(tmp_path: Path, *names: str, **metadata: Any) -> Path:
    agents = {}
    for name in names:
        (tmp_path / name / "workspace").mkdir(parents=True)
        scripts.begin_conversation(tmp_path / name)
        agents[name] = tmp_path / name
    return save_checkpoint(
        tmp_path / "gen002-t000900.ckpt",
        agents=agents,
        metadata=metadata,
    )


def test_an_archive_has_its_generation_and_its_agents_in_order(tmp_path: Path) -> None:
    names = [f"Agent{index}-rexp-g002-w0-a{index}" for index in range(11)]
    path = archive(tmp_path, *sorted(names), generation=2, elapsed_seconds=900, agents_per_world=11)
    point = find_resume_point(path, agents=11)
    assert (point.generation, point.elapsed_s, point.driver) == (2, 900, "claude")
    assert list(point.agents) == names


def test_archive_without_facts_starts_the_first_generation(tmp_path: Path) -> None:
    point = find_resume_point(archive(tmp_path, "Eko"), agents=1)
    assert (point.generation, point.elapsed_s) == (1, 0)


def test_an_archive_with_other_agents_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, "Eko-a0", "Moa-a1")
    with pytest.raises(ConfigError, match="agents: must be 2 as in the archive, not 1"):
        find_resume_point(path, agents=1)


def test_an_archive_that_lacks_agents_of_its_world_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, "Eko-a0", agents_per_world=2)
    for agents in (1, 2):
        with pytest.raises(
            ConfigError, match="agents: must be 2 in the archive, as recorded there, not 1"
        ):
            find_resume_point(path, agents=agents)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("generation", 0),
        ("generation", "2"),
        ("generation", True),
        ("elapsed_seconds", -1),
        ("elapsed_seconds", [900]),
        ("agents_per_world", None),
    ],
)
def test_bad_facts_of_an_archive_are_refused(tmp_path: Path, key: str, value: object) -> None:
    path = archive(tmp_path, "Eko-a0", **{key: value})
    with pytest.raises(ConfigError, match=rf"^{key}: must be \d or more, not "):
        find_resume_point(path, agents=1)


def test_file_other_than_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gen001-t000900.ckpt"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(CheckpointError):
        find_resume_point(path, agents=1)


# -- options ------------------------------------------------------------------------------------


def keep_archive(chain_dir: Path, tmp_path: Path, run_id: str, name: str, **metadata: Any) -> Path:
    place = chain_dir / "runs" / run_id / "checkpoints"
    place.mkdir(parents=True, exist_ok=True)
    return archive(tmp_path, "Eko-a0", **metadata).rename(place / name)


def test_the_options_of_a_chain_are_in_its_table_and_its_latest_archive(
    chain_dir: Path, tmp_path: Path
) -> None:
    scripts.complete(chain_dir, 1)
    scripts.complete(chain_dir, 2, changed={"duration_seconds": 90})
    facts = {"model": "m-2", "generation_duration": 60}
    latest = keep_archive(chain_dir, tmp_path / "b", "exp-g002", "gen002-t000900.ckpt", **facts)
    keep_archive(chain_dir, tmp_path / "a", "exp-g001", "gen001-t001800.ckpt", model="m-1")
    chain = read_chain(chain_dir, agents=1)
    expected = RecordedOptions(driver="claude", model="m-2", duration_s=90.0)
    assert read_options(chain_dir, chain, None) == expected
    assert read_options(chain_dir, chain, latest) == attrs.evolve(expected, duration_s=60.0)
    assert read_options(chain_dir, None, latest) == attrs.evolve(expected, duration_s=60.0)
    latest.write_bytes(b"PK")
    assert read_options(chain_dir, chain, None).model == "m-1"


def test_the_driver_of_a_chain_without_archives_is_known_from_its_agents(chain_dir: Path) -> None:
    (workspace,) = scripts.complete(chain_dir, 1)
    chain = read_chain(chain_dir, agents=1)
    assert read_options(chain_dir, chain, None) == RecordedOptions(duration_s=1800.0)
    (workspace.parent / "codex_session_id.txt").touch()
    assert read_options(chain_dir, chain, None).driver == "codex"


@pytest.mark.parametrize(
    "facts", [{"model": 3, "generation_duration": "x"}, {"generation_duration": float(10**30)}]
)
def test_invalid_options_in_an_archive_are_ignored(
    chain_dir: Path, tmp_path: Path, facts: dict[str, Any]
) -> None:
    path = keep_archive(chain_dir, tmp_path / "a", "exp-g001", "gen001-t000900.ckpt", **facts)
    assert read_options(chain_dir, None, path) == RecordedOptions(driver="claude")


def test_options_are_not_read_through_links(chain_dir: Path, tmp_path: Path) -> None:
    scripts.complete(chain_dir, 1)
    (tmp_path / "elsewhere").mkdir()
    keep_archive(tmp_path, tmp_path / "elsewhere", "exp", "gen001-t000900.ckpt", model="m")
    (chain_dir / "runs" / "exp-g009").symlink_to(tmp_path / "runs" / "exp")
    assert read_options(chain_dir, read_chain(chain_dir, agents=1), None).model is None
