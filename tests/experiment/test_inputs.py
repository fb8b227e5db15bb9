"""The files that an experiment reads: digests, copies and changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawblox.errors import ConfigError, PlanChangedError
from clawblox.experiment import AgentSpec, Plan
from clawblox.experiment.inputs import InputDigests, copy_inputs, digest_inputs, digest_world
from clawblox.experiment.plan.changes import compare, require_acceptable

SOURCE = ("scripts/main.luau", "world.toml")
CACHES = (".venv/bin/python", "a/__pycache__/b", ".pytest_cache/v", "a/b.pyc")
NO_SOURCE = (*CACHES, "results/old/x", "a/results/x", ".clawblox/manifest.json", ".git/HEAD")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the author's directory: a world, prompts and templates."""
    for name in SOURCE + NO_SOURCE:
        (tmp_path / "world" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "world" / name).write_text(name)
    for name in ("calm", "wild"):
        (tmp_path / f"{name}.md").write_text(f"Be {name}.")
        (tmp_path / name).mkdir()
        (tmp_path / name / "SOUL.md").write_text(name)
    return tmp_path


def make_plan(home: Path, **fields: Any) -> Plan:
    agent = AgentSpec("claude", template=home / "calm", system_prompt=home / "calm.md")
    return Plan(**{"world": home / "world", "agents": [agent], **fields})


def changed(before: InputDigests, after: InputDigests) -> dict[str, list[str]]:
    return {one.field: sorted({*one.old, *one.new}) for one in before.compare(after)}


def test_only_the_source_of_a_world_has_digests(home: Path) -> None:
    assert list(digest_world(home / "world")) == list(SOURCE)


def test_a_link_in_a_world_has_the_digest_of_its_target(home: Path) -> None:
    def digest(target: str) -> str:
        link = home / "world" / "map"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        return digest_world(home / "world")["map"]

    assert digest("one") == digest("one") != digest("two")


def test_every_world_of_a_plan_has_digests(home: Path) -> None:
    other = home / "other"
    shutil.copytree(home / "world", other)
    conditions = [{"name": "A"}, {"name": "B", "set": {"world.dir": str(other)}}]
    digests = digest_inputs(make_plan(home, conditions=conditions)).world
    assert list(digests) == [f"{world}/{name}" for world in ("world", "other") for name in SOURCE]


def test_caches_in_a_template_are_neither_copied_nor_a_change(home: Path) -> None:
    plan = make_plan(home)
    before = digest_inputs(plan)
    for name in CACHES:
        (home / "calm" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "calm" / name).write_text("")
    assert digest_inputs(plan) == before
    template = copy_inputs(plan, home / "inputs").agents[0].template
    assert template is not None
    assert [path.name for path in template.rglob("*") if path.is_file()] == ["SOUL.md"]


def test_experiment_directory_is_excluded_from_world_digests(home: Path) -> None:
    for name in ("experiments/a", "runs/a"):
        (home / "world" / name).mkdir(parents=True)
        (home / "world" / name / "journal.jsonl").write_text("")
    digests = digest_world(home / "world", experiment_dir=home / "world/runs/a")
    assert list(digests) == ["scripts/main.luau", "world.toml"]


def test_changed_inputs_are_named(home: Path) -> None:
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
    assert msgspec.json.decode(msgspec.json.encode(inputs), type=InputDigests) == inputs


def test_added_chains_are_not_a_change(home: Path) -> None:
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


def test_changed_files_get_separate_copies(home: Path) -> None:
    plan = make_plan(home)
    copied = [copy_inputs(plan, home / "inputs")]
    (home / "calm.md").write_text("Be calmer.")
    (home / "calm" / "SOUL.md").write_text("calmer")
    copied.append(copy_inputs(plan, home / "inputs"))
    (first, *_), (second, *_) = (copy.agents for copy in copied)
    texts = [agent.system_prompt.read_text() for agent in (first, second)]  # type: ignore[union-attr]
    assert texts == ["Be calm.", "Be calmer."]
    souls = [(agent.template / "SOUL.md").read_text() for agent in (first, second)]  # type: ignore[operator]
    assert souls == ["calm", "calmer"]


def test_partial_copy_of_a_killed_process_is_removed(home: Path) -> None:
    left = home / "inputs" / ".template.999999999-1.abcd1234.partial"
    left.mkdir(parents=True)
    copy_inputs(make_plan(home), home / "inputs")
    assert not left.exists()


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


def test_failed_copy_leaves_no_file(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clawblox.system.files.sync_file_system", fail)
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


def test_a_template_with_a_file_that_is_too_large_is_refused(home: Path, tmp_path: Path) -> None:
    plan = make_plan(home)
    template = plan.agents[0].template
    assert template is not None
    (template / "big").touch()
    os.truncate(template / "big", 8 << 40)
    with pytest.raises(ConfigError, match=r"template: cannot be read: is larger than") as caught:
        digest_inputs(plan)
    assert caught.value.path == template / "big"
    with pytest.raises(ConfigError, match=r"template: cannot be read: is larger than"):
        copy_inputs(plan, tmp_path / "inputs")
    assert not any("template" in name for name in os.listdir(tmp_path / "inputs"))


def test_a_world_with_a_file_that_is_too_large_is_refused(home: Path) -> None:
    (home / "world" / "big").touch()
    os.truncate(home / "world" / "big", 8 << 40)
    with pytest.raises(ConfigError, match=r"world.dir: cannot be read: is larger than"):
        digest_inputs(make_plan(home))


def test_a_missing_world_is_named(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"world.dir: must be an existing directory"):
        digest_inputs(make_plan(home, world=home / "nope"))


def test_a_world_that_is_an_address_has_no_digests(home: Path) -> None:
    plan = make_plan(home, world="https://github.com/someone/worlds/tree/main/panda")
    assert digest_inputs(plan).world == {}
