"""``RaycastParams``, ``OverlapParams`` and ``RaycastResult``."""

from __future__ import annotations

import functools

import pytest

from clawblox.engine.values.enums import enum_item
from clawblox.engine.values.query_params import RaycastResult
from clawblox.luau import Vector
from tests.engine.gui.support import GuiWorld

shared_world = functools.cache(GuiWorld)

DEFAULTS = {
    "FilterType": "Enum.RaycastFilterType.Exclude",
    "CollisionGroup": "Default",
    "RespectCanCollide": "false",
}


@pytest.mark.parametrize(
    ("name", "own", "default"),
    [("RaycastParams", "IgnoreWater", "false"), ("OverlapParams", "MaxParts", "0")],
)
def test_query_params_have_the_documented_defaults(name: str, own: str, default: str) -> None:
    for member, shown in {**DEFAULTS, own: default}.items():
        assert shared_world().run(f"return tostring({name}.new().{member})") == shown
    assert shared_world().run(f"return #{name}.new().FilterDescendantsInstances") == 0.0


def test_query_params_accept_only_their_own_members() -> None:
    assert "not a valid member" in shared_world().error("RaycastParams.new().MaxParts = 1")
    assert "not a valid member" in shared_world().error("OverlapParams.new().IgnoreWater = true")


@pytest.mark.parametrize("name", ["RaycastParams", "OverlapParams"])
def test_filter_list_is_copied_on_read_and_write(name: str) -> None:
    world = shared_world()
    a, b = world.add("Part", None), world.add("Part", None)
    assert world.run(
        f"local p, list = {name}.new(), {{a, nil}} p.FilterDescendantsInstances = list list[1] = b "
        "local read = p.FilterDescendantsInstances assert(#read == 1 and read[1] == a) read[2] = b "
        "assert(#p.FilterDescendantsInstances == 1) p:AddToFilter(b) p:AddToFilter({a, nil, b}) "
        "p.FilterType = Enum.RaycastFilterType.Whitelist return p", a=a, b=b,
    ).filtered == [a, b, a, b]  # fmt: skip


def test_query_params_refuse_invalid_values() -> None:
    error = shared_world().error
    assert error("RaycastParams.new().FilterType = Enum.Material.Neon") == (
        "invalid value for 'FilterType' (Enum.RaycastFilterType expected, got EnumItem)"
    )
    assert error("RaycastParams.new().FilterDescendantsInstances = gui") == (
        "invalid value for 'FilterDescendantsInstances' (table expected, got Instance)"
    )
    assert error("RaycastParams.new().FilterDescendantsInstances = {gui, 1}") == (
        "invalid value for 'FilterDescendantsInstances' (table of Instances expected, got number)"
    )
    assert error("OverlapParams.new().MaxParts = 'x'") == (
        "invalid value for 'MaxParts' (number expected, got string)"
    )


def test_include_filters_count_only_the_listed_instances() -> None:
    run = shared_world().run
    assert not run("return RaycastParams.new()").includes
    for name in ("Include", "Whitelist"):
        made = run(f"local p = RaycastParams.new() p.FilterType = Enum.RaycastFilterType.{name} "
                   "return p")  # fmt: skip
        assert made.includes


def test_raycast_result_has_its_members() -> None:
    world = shared_world()
    part = world.add("Part", None)
    result = RaycastResult(part, Vector(1.0, 2.0, 3.0), Vector(0.0, 1.0, 0.0), 5.0,
                           enum_item("Material", "Neon"))  # fmt: skip
    assert world.run(
        "assert(r.Instance == part and r.Position == Vector3.new(1, 2, 3)) "
        "assert(r.Normal == Vector3.yAxis and r.Distance == 5 and r.Material.Name == 'Neon') "
        "return tostring(r)", r=result, part=part,
    ) == ("RaycastResult{Part @ 1, 2, 3; normal = 0, 1, 0; material = Enum.Material.Neon; "
          "distance = 5}")  # fmt: skip
    assert world.error("r.Distance = 3", r=result) == "Distance cannot be assigned to"
