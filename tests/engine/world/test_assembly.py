"""The parts of a world fit together."""

from __future__ import annotations

import pytest

from clawblox.engine.instances.kinds import check_value
from clawblox.engine.settings import EngineSettings
from clawblox.engine.world.assembly import Assembly
from clawblox.engine.world.console import Console
from clawblox.luau import run_deep
from tests.engine.playing import play


@pytest.fixture
def assembly(tmp_path):
    (tmp_path / "main.lua").write_text("")
    made = Assembly(EngineSettings(directory=tmp_path), Console())
    run_deep(made.begin)
    return made


def test_every_effect_in_the_class_table_has_a_hook(assembly):
    effects = {
        rule.effect: spec.name
        for spec in assembly.model.classes
        for rule in spec.properties.values()
        if rule.effect is not None
    }
    assert {name: effects[name] for name in effects if name not in assembly.model.effects} == {}


def test_every_default_in_the_class_table_may_be_assigned(assembly):
    def check() -> None:
        with assembly.vm.entered():
            for spec in assembly.model.classes:
                for name, value in spec.defaults.items():
                    assert check_value(name, spec.properties[name], value) == value

    run_deep(check)


def test_every_creatable_class_can_be_created_copied_saved_and_destroyed(tmp_path):
    (tmp_path / "main.lua").write_text("")
    classes = Assembly(EngineSettings(directory=tmp_path), Console()).model.classes
    listed = ", ".join(f'"{spec.name}"' for spec in classes if spec.creatable)
    run = play(
        tmp_path,
        f"""
        for _, name in {{{listed}}} do
            local made = Instance.new(name)
            made.Parent = workspace
            local copy = made:Clone()
            copy.Parent = made
            assert(copy.ClassName == name)
        end
        task.wait(1 / 60)
        for _, child in workspace:GetChildren() do
            if not child:IsA("Terrain") then child:Destroy() end
        end
        print(#workspace:GetChildren())
        """,
        1,
    )
    saved = run.world.snapshot()
    run.step()
    assert run.lines == ["out [Lua] 1"]
    assert len(saved["tree"]["instances"]) > len(run.world.snapshot()["tree"]["instances"])


def test_characters_push_parts_only_if_the_world_allows_it(tmp_path):
    (tmp_path / "main.lua").write_text("")
    for pushes in (True, False):
        settings = EngineSettings(directory=tmp_path, player_object_physics=pushes)
        assert Assembly(settings, Console()).parts.space.walking.pushes is pushes
