"""The files that an experiment reads: digests, copies, and what has changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from clawblox.errors import ConfigError, PlanChangedError
from clawblox.experiment import AgentSpec, Plan
from clawblox.experiment.inputs import Inputs, copy_inputs, digest_inputs, digest_world
from clawblox.experiment.plan.changes import compare, require_acceptable


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the author's directory: a world, prompts and templates."""
    for name in ("world/scripts", "world/results/old", "world/.git", "world/a/__pycache__"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("world.toml", "scripts/main.luau", "results/old/x", ".git/HEAD", "a/b.pyc"):
        (tmp_path / "world" / name).write_text(name)
    for name in ("calm", "wild"):
        (tmp_path / f"{name}.md").write_text(f"Be {name}.")
        (tmp_path / name).mkdir()
        (tmp_path / name / "SOUL.md").write_text(name)
    return tmp_path


def make_plan(home: Path, **fields: Any) -> Plan:
    agent = AgentSpec("claude", template=home / "calm", system_prompt=home / "calm.md")
    return Plan(**{"world": home / "world", "agents": [agent], **fields})


def changed(before: Inputs, after: Inputs) -> dict[str, list[str]]:
    return {one.field: sorted({*one.old, *one.new}) for one in before.compare(after)}


def test_only_the_source_of_a_world_has_digests(home: Path) -> None:
    assert list(digest_world(home / "world")) == ["scripts/main.luau", "world.toml"]


def test_the_directory_of_the_experiment_is_no_source(home: Path) -> None:
    for name in ("experiments/a", "runs/a"):
        (home / "world" / name).mkdir(parents=True)
        (home / "world" / name / "journal.jsonl").write_text("")
    digests = digest_world(home / "world", experiment_dir=home / "world/runs/a")
    assert list(digests) == ["scripts/main.luau", "world.toml"]


def test_changes_are_named(home: Path) -> None:
    plan = make_plan(home)
    before = digest_inputs(plan)
    assert before.compare(digest_inputs(plan)) == ()
    (home / "world/world.toml").write_text("new")
    (home / "world/extra").write_text("new")
    (home / "world/scripts/main.luau").unlink()
    (home / "world/results/old/x").write_text("new")
    (home / "calm.md").write_text("new")
    (home / "calm/SOUL.md").write_text("new")
    assert changed(before, digest_inputs(plan)) == {
        "world": ["world/extra", "world/scripts/main.luau", "world/world.toml"],
        "prompts": ["r1/Eko"],
        "templates": ["r1/Eko"],
    }


def test_changes_must_be_accepted_by_name(home: Path) -> None:
    plan = make_plan(home)
    before = digest_inputs(plan)
    (home / "world/world.toml").write_text("new")
    changes = (*compare(plan, plan), *before.compare(digest_inputs(plan)))
    with pytest.raises(PlanChangedError, match=r"world: was {'world/world.toml': ") as caught:
        require_acceptable(changes)
    assert str(caught.value).endswith("--accept world")
    require_acceptable(changes, ["world"])


def test_digests_survive_json(home: Path) -> None:
    inputs = digest_inputs(make_plan(home))
    assert msgspec.json.decode(msgspec.json.encode(inputs), type=Inputs) == inputs


def test_chains_that_are_added_are_no_change(home: Path) -> None:
    sweep = {"agents.*.system_prompt": [str(home / "calm.md")]}
    longer = {"agents.*.system_prompt": [str(home / "calm.md"), str(home / "wild.md")]}
    before = digest_inputs(make_plan(home, sweep=sweep))
    after = digest_inputs(make_plan(home, sweep=longer, repeats=2))
    assert before.compare(after) == ()
    assert sorted(after.prompts) == ["calm-r1/Eko", "calm-r2/Eko", "wild-r1/Eko", "wild-r2/Eko"]


def test_copies_replace_the_files_of_the_author(home: Path, tmp_path: Path) -> None:
    sweep = {
        "agents.*.template": [str(home / name) for name in ("calm", "wild")],
        "agents.*.system_prompt": [str(home / f"{name}.md") for name in ("calm", "wild")],
    }
    plan = make_plan(home, sweep=sweep)
    copied = copy_inputs(plan, tmp_path / "inputs")
    before = digest_inputs(plan)
    assert digest_inputs(copied) == before
    assert [chain.name for chain in copied.chains()] == [chain.name for chain in plan.chains()]
    assert compare(plan, copied) == ()
    for name in ("calm", "wild"):
        shutil.rmtree(home / name)
        (home / f"{name}.md").unlink()
    assert digest_inputs(copied) == before
    assert copy_inputs(copied, tmp_path / "inputs") == copied
    names = sorted(path.name[17:] for path in (tmp_path / "inputs").iterdir())
    assert names == ["calm", "calm.md", "wild", "wild.md"]


def test_links_in_templates_are_copied_as_links(home: Path, tmp_path: Path) -> None:
    (home / "secret").write_text("hush")
    (home / "calm/link").symlink_to(home / "secret")
    os.mkfifo(home / "calm/pipe")
    copied = copy_inputs(make_plan(home), tmp_path / "inputs")
    template = copied.agents[0].template
    assert template is not None
    assert sorted(os.listdir(template)) == ["SOUL.md", "link"]
    assert (template / "link").readlink() == home / "secret"
    assert digest_inputs(copied) == digest_inputs(make_plan(home))


def test_the_author_may_name_files_by_links(home: Path, tmp_path: Path) -> None:
    (home / "current").symlink_to("calm")
    (home / "current.md").symlink_to("calm.md")
    agent = AgentSpec("claude", template=home / "current", system_prompt=home / "current.md")
    copied = copy_inputs(make_plan(home, agents=[agent]), tmp_path / "inputs")
    assert digest_inputs(copied) == digest_inputs(make_plan(home))


def test_a_copy_that_fails_leaves_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clawblox.experiment.inputs.sync_file_system", fail)
    with pytest.raises(OSError, match="No space"):
        copy_inputs(make_plan(home), tmp_path / "inputs")
    assert [path.name[17:] for path in (tmp_path / "inputs").iterdir()] in ([], ["calm.md"])


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("template", "agents.0.template: must be an existing directory, not "),
        ("system_prompt", "agents.0.system_prompt: must be an existing file, not "),
    ],
)
def test_missing_files_are_named(home: Path, tmp_path: Path, field: str, text: str) -> None:
    plan = make_plan(home)
    plan = plan.but(agents=[plan.agents[0].but(**{field: home / "nope"})])
    with pytest.raises(ConfigError) as caught:
        digest_inputs(plan)
    assert str(caught.value).startswith(text)
    with pytest.raises(ConfigError, match=rf"{field}: must be an existing"):
        copy_inputs(plan, tmp_path / "inputs")


def test_a_missing_world_is_named(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"world.dir: must be an existing directory"):
        digest_inputs(make_plan(home, world=home / "nope"))


def test_a_world_that_is_an_address_has_the_digests_of_its_local_directory(home: Path) -> None:
    plan = make_plan(home, world="https://github.com/someone/worlds/tree/main/panda")
    assert digest_inputs(plan).world == {}
    local = digest_inputs(plan, world_dir=home / "world")
    assert sorted(local.world) == ["panda/scripts/main.luau", "panda/world.toml"]
    assert attrs.evolve(local, world={}) == digest_inputs(plan)
