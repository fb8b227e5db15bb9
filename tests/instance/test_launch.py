"""Plans of one or many starts: names, directories, and overridden options."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.config.options import InstanceSpec, ManyOptions, StartOptions
from clawblox.config.world_toml import WorldConfig, read_world_config
from clawblox.errors import ConfigError
from clawblox.instance.launch import Launch, plan_attach, plan_launch, plan_many
from clawblox.rundir.paths import files_dir
from clawblox.rundir.snapshot_files import find_parent
from tests.rundir.test_records import record_of
from tests.support.worlds import make_world

MANIFEST = Path("/run/.clawblox/manifest.json")


@pytest.fixture
def config(tmp_path: Path) -> WorldConfig:
    return read_world_config(make_world(tmp_path, toml_extra="reseed = true"))


def planned(config: WorldConfig, **changes: Any) -> Launch:
    """Return the launch of a plain start, except for ``changes``."""
    return plan_launch(config, StartOptions(**changes))


def planned_many(
    config: WorldConfig,
    specs: int | list[InstanceSpec],
    taken: int = 0,
    run_dir: Path = Path("/run"),
    **changes: Any,
) -> list[Launch]:
    """Return the launches of many instances; the first ``taken`` numbered names are in use."""
    names = (f"w{number:03}" for number in itertools.count(taken))
    given = [InstanceSpec()] * specs if isinstance(specs, int) else specs
    return plan_many(config, run_dir, ManyOptions(**changes), given, names)


# ---------------------------------------------------------------------------------------- one


def test_single_instance_has_its_files_in_the_run_directory(config: WorldConfig) -> None:
    launch = planned(config, run_dir="/run", record=True)
    assert launch.run_dir == launch.instance_dir == launch.files_dir == Path("/run")
    assert launch.record_dir == Path("/run/recordings")
    assert (launch.index, launch.options.name) == (None, None)


def test_files_in_the_world_directory_are_in_a_hidden_folder(config: WorldConfig) -> None:
    launch = planned(config)
    assert launch.run_dir == launch.instance_dir == config.dir
    assert launch.files_dir == config.dir / ".clawblox"
    (one,) = planned_many(config, 1, run_dir=config.dir)
    assert one.run_dir == config.dir
    assert one.instance_dir == one.files_dir == config.dir / ".clawblox/worlds/w000"
    assert files_dir(config.dir, Path("/elsewhere")) == Path("/elsewhere")


def test_different_spellings_of_a_run_directory_give_the_same_path(
    config: WorldConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    monkeypatch.chdir(tmp_path)
    for spelled in ("real", "link", "./real/.", "real/../link", tmp_path / "link"):
        assert planned(config, run_dir=spelled).run_dir == real
        assert planned(config, record_dir=f"{spelled}/recordings").run_dir == real
    (tmp_path / "world").symlink_to(config.dir)
    assert planned(config, run_dir="world").files_dir == config.dir / ".clawblox"


def test_world_path_that_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    directory = make_world(tmp_path).rename(tmp_path / os.fsdecode(b"w\xff"))
    config = read_world_config(directory)
    with pytest.raises(ConfigError, match="UTF-8") as caught:
        planned(config)
    assert caught.value.key == "dir"


SEEDS: list[tuple[Any, bool]] = [
    *((seed, True) for seed in (0, 1, 2**64 - 1)),
    *((seed, False) for seed in (-1, 2**64, 1.0, "7", True)),
]


@pytest.mark.parametrize(("seed", "is_good"), SEEDS)
def test_a_seed_is_a_whole_number_of_64_bits(config: WorldConfig, seed: Any, is_good: bool) -> None:
    if is_good:
        assert planned_many(config, 1, reseed=seed)[0].options.reseed == seed
    else:
        with pytest.raises(ConfigError, match=r"0 to 2\*\*64 - 1") as caught:
            planned_many(config, 1, reseed=seed)
        assert caught.value.key == "reseed"


def test_a_world_without_reseeding_refuses_a_seed(tmp_path: Path) -> None:
    config = read_world_config(make_world(tmp_path))
    with pytest.raises(ConfigError, match="does not support reseeding") as caught:
        planned_many(config, 1, reseed=1)
    assert (caught.value.key, caught.value.path) == ("run.reseed", config.dir / "world.toml")


def test_attaching_plans_the_launch_from_the_record(config: WorldConfig) -> None:
    record = record_of("w007", resume_path="/s.json", base_path="/x")
    launch = plan_attach(config, Path("/run"), record)
    assert (launch.run_dir, launch.instance_dir) == (Path("/run"), Path(record.instance_dir))
    options = launch.options
    assert (options.name, options.port, options.base_path) == ("w007", 20001, "/x")
    assert launch.resume_path == Path("/s.json")
    assert (options.detach, options.restart) == (True, "never")


# --------------------------------------------------------------------------------------- many


def test_many_instances_have_numbered_names_and_directories(config: WorldConfig) -> None:
    launches = planned_many(config, 3, taken=2, record=True)
    assert [one.options.name for one in launches] == ["w002", "w003", "w004"]
    assert [one.index for one in launches] == [2, 3, 4]
    assert {one.run_dir for one in launches} == {Path("/run")}
    assert [one.instance_dir for one in launches] == [
        Path("/run/worlds") / name for name in ("w002", "w003", "w004")
    ]
    assert [one.record_dir for one in launches] == [
        one.instance_dir / "recordings" for one in launches
    ]
    assert {one.options.port for one in launches} == {None}


def test_given_names_are_kept_and_not_generated_again(config: WorldConfig) -> None:
    specs = [InstanceSpec(), InstanceSpec(name="w000"), InstanceSpec(name="left"), InstanceSpec()]
    launches = planned_many(config, specs)
    assert [one.options.name for one in launches] == ["w001", "w000", "left", "w002"]
    assert [one.index for one in launches] == [1, 0, 2, 2]


@pytest.mark.parametrize(
    ("name", "index"), [("w12", 5), ("w0123", 123), ("W001", 5), ("w001x", 5), ("w" + "9" * 10, 5)]
)
def test_only_a_numbered_name_sets_the_index(config: WorldConfig, name: str, index: int) -> None:
    launches = planned_many(config, [*[InstanceSpec()] * 5, InstanceSpec(name=name)])
    assert launches[5].index == index


def test_each_spec_overrides_the_shared_options(config: WorldConfig, tmp_path: Path) -> None:
    for name in ("all.json", "own.json"):
        (tmp_path / "counter" / name).touch()
    specs = [
        InstanceSpec(),
        InstanceSpec(resume="own.json", env={"B": "3", "C": "4"}, record=False),
        InstanceSpec(env={}),
    ]
    launches = planned_many(config, specs, record=True, resume="all.json", env={"A": "1", "B": "2"})
    assert [one.record_dir is not None for one in launches] == [True, False, True]
    assert [one.resume_path for one in launches] == [
        config.dir / name for name in ("all.json", "own.json", "all.json")
    ]
    assert [dict(one.options.env) for one in launches] == [
        {"A": "1", "B": "2"},
        {"A": "1", "B": "3", "C": "4"},
        {"A": "1", "B": "2"},
    ]
    recording = planned_many(config, [InstanceSpec(record=True), InstanceSpec()])
    assert [one.record_dir is not None for one in recording] == [True, False]


def test_seeds_of_many_instances_count_up_from_the_first(config: WorldConfig) -> None:
    assert [one.options.reseed for one in planned_many(config, 3, reseed=40)] == [40, 41, 42]
    assert [one.options.reseed for one in planned_many(config, 2, taken=9, reseed=0)] == [0, 1]
    with pytest.raises(ConfigError) as caught:
        planned_many(config, 3, reseed=2**64 - 2)
    assert caught.value.value == 2**64


def test_a_fresh_instance_without_a_seed_draws_its_own(config: WorldConfig, tmp_path: Path) -> None:
    specs = [InstanceSpec(), InstanceSpec(), InstanceSpec(resume="parent.json")]
    (config.dir / "parent.json").write_text("{}")
    first, second, resumed = planned_many(config, specs)
    assert first.options.reseed != second.options.reseed
    assert all(seed in range(2**53) for seed in (first.options.reseed, second.options.reseed))
    assert resumed.options.reseed is None
    assert planned(config).options.reseed is not None
    assert planned(config, resume="parent.json").options.reseed is None
    (tmp_path / "fixed").mkdir()
    without = read_world_config(make_world(tmp_path / "fixed"))
    assert planned(without).options.reseed is None


def test_a_resumed_run_without_a_save_has_the_seed_of_its_record(config: WorldConfig) -> None:
    (launch,) = planned_many(config, 1)
    assert launch.recorded_options["reseed"] == launch.options.reseed
    assert launch.restored(Path("/saved.json"), "ab").options.reseed is None


@pytest.mark.parametrize(
    "names", [["one", "one"], ["w000", "one", "w000"]], ids=lambda names: ",".join(names)
)
def test_two_instances_cannot_have_the_same_name(config: WorldConfig, names: list[str]) -> None:
    with pytest.raises(ConfigError, match="two instances have the same name") as caught:
        planned_many(config, [InstanceSpec(name=name) for name in names])
    assert (caught.value.key, caught.value.value) == ("name", names)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "../up"}, "name"),
    ({"name": "a" * 65}, "name"),
    ({"env": {"WORLD_PORT": "1"}}, "env.WORLD_PORT"),
    ({"env": {"WORLD_RESEED": "1"}}, "env.WORLD_RESEED"),
    ({"env": {"A=B": "1"}}, "env.A=B"),
]


@pytest.mark.parametrize(("fields", "key"), WRONG, ids=[key for _, key in WRONG])
def test_spec_with_an_invalid_value_is_refused_on_creation(
    fields: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        InstanceSpec(**fields)
    assert caught.value.key == key


def test_a_missing_snapshot_of_one_spec_fails_the_whole_plan(
    config: WorldConfig,
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned_many(config, [InstanceSpec(), InstanceSpec(resume="missing.json")])
    assert caught.value.key == "resume"


def test_a_spec_can_be_given_as_a_mapping() -> None:
    given = {"name": "left", "resume": "a.json", "env": {"A": "1"}, "record": True, "labels": {}}
    spec = InstanceSpec.parse(given)
    assert attrs.asdict(spec) == given
    assert InstanceSpec.parse(spec) is spec
    assert InstanceSpec.parse({}) == InstanceSpec()


def test_the_error_names_an_unknown_key_of_a_spec() -> None:
    with pytest.raises(ConfigError, match="has only name, resume, env, record") as caught:
        InstanceSpec.parse({"name": "left", "port": 8080})
    assert (caught.value.key, caught.value.value) == ("instances.port", 8080)
    assert caught.value.hint is None
    with pytest.raises(ConfigError) as caught:
        InstanceSpec.parse({"naem": "left"})
    assert caught.value.hint == "did you mean name?"


def test_repr_of_a_spec_hides_its_variables() -> None:
    assert "hush" not in repr(InstanceSpec(env={"API_KEY": "hush"}))


# ----------------------------------------------------------------------------------- the parent


@pytest.fixture
def parent(tmp_path: Path) -> tuple[Path, str]:
    """Write a snapshot; return its path and its digest."""
    path = tmp_path / "parent.json"
    path.write_bytes(b'{"format": "counter-v1"}')
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_parent_snapshot_is_identified_by_path_and_digest(parent: tuple[Path, str]) -> None:
    path, digest = parent
    checkpoints: list[Any] = [
        *(path, str(path), path.name, {"path": path}, {"path": path.name, "sha256": None}),
        {"path": str(path), "sha256": digest, "format": "counter-v1"},
    ]
    for checkpoint in checkpoints:
        assert find_parent(checkpoint, path.parent) == parent


def test_changed_parent_snapshot_is_refused(parent: tuple[Path, str]) -> None:
    path, digest = parent
    path.write_bytes(b'{"format": "counter-v2"}')
    with pytest.raises(ConfigError, match="not the snapshot that was saved") as caught:
        find_parent({"path": path, "sha256": digest}, path.parent)
    assert (caught.value.path, caught.value.key, caught.value.value) == (path, "checkpoint", digest)


def test_unreadable_parent_snapshot_is_refused(
    parent: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("clawblox.rundir.snapshot_files.digest_file", fail)
    path, _ = parent
    with pytest.raises(ConfigError, match="cannot be read: Permission denied") as caught:
        find_parent(path, path.parent)
    assert (caught.value.path, caught.value.key) == (path, "checkpoint")
