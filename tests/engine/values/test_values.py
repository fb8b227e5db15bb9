"""The value types in scripts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clawblox.luau import Vector
from tests.engine.values.support import error, run, text

H = math.sqrt(0.5)


def near(expression: str, *expected: float) -> None:
    """Check the numbers, or the parts of a vector or CFrame, that an expression returns."""
    found: Any = run(f"return {expression}")
    if isinstance(found, Vector):
        found = (found.x, found.y, found.z)
    elif not isinstance(found, tuple):
        found = found.parts()
    assert found == pytest.approx(expected, abs=1e-6)


# Vector3


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("Vector3.new()", "0, 0, 0"),
        ("Vector3.new(1)", "1, 0, 0"),
        ("Vector3.new(nil, 2)", "0, 2, 0"),
        ("Vector3.new('1', 2, 3)", "1, 2, 3"),
        ("Vector3.zero", "0, 0, 0"),
        ("Vector3.one", "1, 1, 1"),
        ("Vector3.xAxis", "1, 0, 0"),
        ("Vector3.yAxis", "0, 1, 0"),
        ("Vector3.zAxis", "0, 0, 1"),
        ("2 * Vector3.new(1, 2, 3)", "2, 4, 6"),
        ("Vector3.new(1, 2, 3) * 2", "2, 4, 6"),
        ("Vector3.new(2, 4, 6) / 2", "1, 2, 3"),
        ("12 / Vector3.new(2, 4, 6)", "6, 3, 2"),
        ("Vector3.new(1, 2, 3) * Vector3.new(4, 5, 6)", "4, 10, 18"),
        ("Vector3.new(1, 2, 3):Dot(Vector3.new(4, 5, 6))", "32"),
        ("Vector3.new(1, 2, 3):Cross(Vector3.new(4, 5, 6))", "-3, 6, -3"),
        ("Vector3.new(0, 0, 0):Lerp(Vector3.new(2, 4, 6), 0.5)", "1, 2, 3"),
        ("Vector3.new(-1, 2.5, -3.5):Abs()", "1, 2.5, 3.5"),
        ("Vector3.new(-1.5, 2.5, 0):Floor()", "-2, 2, 0"),
        ("Vector3.new(-1.5, 2.5, 0):Ceil()", "-1, 3, 0"),
        ("Vector3.new(-1.5, 2.5, 0):Sign()", "-1, 1, 0"),
        ("Vector3.new(1, 5, 3):Max(Vector3.new(4, 2, 0), Vector3.new(0, 0, 9))", "4, 5, 9"),
        ("Vector2.new(1, 5):Max(Vector2.new(4, 2), Vector2.new(0, 9))", "4, 9"),
        ("Vector2.new(1, 5):Min(Vector2.new(4, 2))", "1, 2"),
        ("Vector2.new(-1.5, 2.5):Abs()", "1.5, 2.5"),
        ("Vector2.new(-1.5, 2.5):Ceil()", "-1, 3"),
        ("Vector2.new(-1.5, 2.5):Floor()", "-2, 2"),
        ("Vector2.new(-1.5, 0):Sign()", "-1, 0"),
        ("Vector2.one:FuzzyEq(Vector2.new(1, 1.000001))", "true"),
        ("Vector2.one:FuzzyEq(Vector2.new(1, 1.5), 0.4)", "false"),
        ("math.round(math.deg(Vector2.yAxis:Angle(Vector2.xAxis)))", "90"),
        ("math.round(math.deg(Vector2.yAxis:Angle(Vector2.xAxis, true)))", "-90"),
        ("math.round(math.deg(Vector2.yAxis:Angle(-Vector2.yAxis)))", "180"),
        ("Vector3.new(1, 5, 3):Min(Vector3.new(4, 2, 0))", "1, 2, 0"),
        ("Vector3.new(3, 4, 0).Magnitude", "5"),
        ("Vector3.new(0, 3, 0).Unit", "0, 1, 0"),
        ("Vector3.new(0, 3, 0):Unit()", "0, 1, 0"),
        ("Vector3.new(0, 0, 0).Unit", "0, 0, 0"),
        ("Vector3.FromNormalId(Enum.NormalId.Front)", "0, 0, -1"),
        ("Vector3.FromAxis(Enum.Axis.Y)", "0, 1, 0"),
        ("typeof(Vector3.one)", "Vector3"),
    ],
)
def test_vector_operations_return_what_roblox_returns(expression: str, shown: str) -> None:
    assert text(expression) == shown


def test_vector_components_are_32_bit_floats() -> None:
    assert text("Vector3.new(0.1, 0, 0).X") == "0.10000000149011612"
    assert text("CFrame.new(0.1, 0, 0).X") == "0.10000000149011612"
    assert text("Color3.new(0.1, 0, 0).R") == "0.10000000149011612"
    assert text("UDim.new(0.1, 0).Scale") == "0.10000000149011612"
    assert text("CFrame.new(1e300, 0, 0).X") == "inf"


def test_fuzzy_eq_has_a_default_tolerance_of_1e_5() -> None:
    for kind in ("Vector3", "CFrame"):
        assert run(f"return {kind}.new(1, 0, 0):FuzzyEq({kind}.new(1.000009, 0, 0))") is True
        assert run(f"return {kind}.new(1, 0, 0):FuzzyEq({kind}.new(1.00002, 0, 0))") is False
        assert run(f"return {kind}.new(1, 0, 0):FuzzyEq({kind}.new(1.5, 0, 0), 0.6)") is True


def test_angles_between_vectors_are_signed_by_an_axis() -> None:
    near("Vector3.xAxis:Angle(Vector3.yAxis), Vector3.xAxis:Angle(Vector3.yAxis, -Vector3.zAxis)",
         math.pi / 2, -math.pi / 2)  # fmt: skip


# CFrame


IDENTITY = (1, 0, 0, 0, 1, 0, 0, 0, 1)


def test_cframe_new_accepts_nothing_vectors_or_numbers() -> None:
    near("CFrame.new()", 0, 0, 0, *IDENTITY)
    near("CFrame.new(Vector3.new(1, 2, 3))", 1, 2, 3, *IDENTITY)
    near("CFrame.new(1, 2, 3)", 1, 2, 3, *IDENTITY)
    near("CFrame.new(1, 2, 3, 0, 2, 0, 2)", 1, 2, 3, 0, 0, 1, 0, 1, 0, -1, 0, 0)
    numbers = "1, 2, 3, 0, 0, 1, 0, 1, 0, -1, 0, 0"
    assert text(f"CFrame.new({numbers})") == numbers
    near("CFrame.new(Vector3.zero, Vector3.new(5, 0, 0)).LookVector", 1, 0, 0)
    assert error("CFrame.new(1, 2)") == "invalid number of arguments to 'new': 2"
    assert error("CFrame.new({}, 2, 3)") == (
        "invalid argument #1 to 'new' (number expected, got table)"
    )


@pytest.mark.parametrize("name", ["Angles", "fromEulerAnglesXYZ", "fromEulerAngles"])
def test_cframe_angles_turn_about_x_then_y_then_z(name: str) -> None:
    c = math.cos
    s = math.sin
    x, y, z = 0.1, 0.2, 0.3
    near(
        f"CFrame.{name}({x}, {y}, {z})", 0, 0, 0,
        c(y) * c(z), -c(y) * s(z), s(y),
        c(x) * s(z) + s(x) * s(y) * c(z), c(x) * c(z) - s(x) * s(y) * s(z), -s(x) * c(y),
        s(x) * s(z) - c(x) * s(y) * c(z), s(x) * c(z) + c(x) * s(y) * s(z), c(x) * c(y),
    )  # fmt: skip
    assert run(
        "return CFrame.Angles(0.1, 0.2, 0.3):FuzzyEq(CFrame.Angles(0.1, 0, 0) "
        "* CFrame.Angles(0, 0.2, 0) * CFrame.Angles(0, 0, 0.3))"
    )


@pytest.mark.parametrize("name", ["fromOrientation", "fromEulerAnglesYXZ"])
def test_cframe_from_orientation_turns_about_y_then_x_then_z(name: str) -> None:
    assert run(
        f"return CFrame.{name}(0.1, 0.2, 0.3):FuzzyEq(CFrame.Angles(0, 0.2, 0) "
        "* CFrame.Angles(0.1, 0, 0) * CFrame.Angles(0, 0, 0.3))"
    )


def test_cframe_returns_the_angles_that_it_was_created_from() -> None:
    near("CFrame.Angles(0.1, -0.2, 3):ToEulerAnglesXYZ()", 0.1, -0.2, 3)
    near("CFrame.fromOrientation(0.1, -0.2, 3):ToOrientation()", 0.1, -0.2, 3)
    near("CFrame.fromOrientation(0.1, -0.2, 3):ToEulerAnglesYXZ()", 0.1, -0.2, 3)
    order = "Enum.RotationOrder.ZYX"
    near(f"CFrame.fromEulerAngles(0.1, -0.2, 3, {order}):ToEulerAngles({order})", 0.1, -0.2, 3)


def test_cframe_returns_the_axis_and_angle_that_it_was_created_from() -> None:
    axis, angle = run("return CFrame.fromAxisAngle(Vector3.new(0, 0, 2), 1.5):ToAxisAngle()")
    assert axis == Vector(0.0, 0.0, 1.0)
    assert angle == 1.5
    near("CFrame.new():AngleBetween(CFrame.Angles(0, 1, 0)), 0", 1, 0)


def test_look_at_points_minus_z_at_the_target() -> None:
    frame = "CFrame.lookAt(Vector3.new(1, 2, 3), Vector3.new(1, 2, 13))"
    near(f"{frame}.LookVector", 0, 0, 1)
    near(f"{frame}.RightVector", -1, 0, 0)
    near(f"{frame}.UpVector", 0, 1, 0)
    near(f"{frame}.Position", 1, 2, 3)
    near("CFrame.lookAlong(Vector3.one, Vector3.xAxis, Vector3.zAxis).UpVector", 0, 0, 1)


@pytest.mark.parametrize(
    "target", ["Vector3.new(1, 2, 3)", "Vector3.new(1, 9, 3)", "Vector3.new(1, -9, 3)"]
)
def test_look_at_an_undefined_direction_gives_an_unrotated_cframe(target: str) -> None:
    near(f"CFrame.lookAt(Vector3.new(1, 2, 3), {target})", 1, 2, 3, *IDENTITY)
    near(f"CFrame.new(Vector3.new(1, 2, 3), {target})", 1, 2, 3, *IDENTITY)


def test_cframe_from_matrix_takes_columns() -> None:
    columns = "Vector3.yAxis, -Vector3.xAxis"
    near(f"CFrame.fromMatrix(Vector3.one, {columns})", 1, 1, 1, 0, -1, 0, 1, 0, 0, 0, 0, 1)
    near(f"CFrame.fromMatrix(Vector3.one, {columns}, Vector3.zAxis).ZVector", 0, 0, 1)
    near("CFrame.fromRotationBetweenVectors(Vector3.xAxis, Vector3.yAxis) * Vector3.xAxis", 0, 1, 0)


FRAME = "CFrame.new(1, 2, 3) * CFrame.Angles(0, math.pi / 2, 0)"


def test_cframe_has_its_members() -> None:
    members = (
        "local f = {} return f.Position == Vector3.new(1, 2, 3) and f.p == f.Position, f.X, f.y"
    )
    assert run(members.format(FRAME)) == (True, 1.0, 2.0)
    near(f"({FRAME}).Rotation", 0, 0, 0, 0, 0, 1, 0, 1, 0, -1, 0, 0)
    near(f"({FRAME}).LookVector", -1, 0, 0)
    near(f"({FRAME}).RightVector", 0, 0, -1)
    near(f"({FRAME}).UpVector", 0, 1, 0)
    for name in ("GetComponents", "components"):
        near(f"({FRAME}):{name}()", 1, 2, 3, 0, 0, 1, 0, 1, 0, -1, 0, 0)


def test_cframe_converts_between_spaces() -> None:
    near(f"({FRAME}) * Vector3.new(0, 0, -1)", 0, 2, 3)
    near(f"({FRAME}):PointToWorldSpace(Vector3.new(0, 0, -1))", 0, 2, 3)
    near(f"({FRAME}):PointToObjectSpace(Vector3.new(0, 2, 3))", 0, 0, -1)
    near(f"({FRAME}):VectorToWorldSpace(Vector3.new(0, 0, -1))", -1, 0, 0)
    near(f"({FRAME}):VectorToObjectSpace(Vector3.new(-1, 0, 0))", 0, 0, -1)
    near(f"({FRAME}):ToObjectSpace({FRAME})", 0, 0, 0, *IDENTITY)
    near(f"({FRAME}):ToWorldSpace(CFrame.new(0, 0, -1)).Position", 0, 2, 3)
    near(f"({FRAME}):Inverse() * ({FRAME})", 0, 0, 0, *IDENTITY)
    both = run(f"return ({FRAME}):PointToWorldSpace(Vector3.zero, Vector3.zero)")
    assert both == (Vector(1.0, 2.0, 3.0), Vector(1.0, 2.0, 3.0))


def test_adding_a_vector_moves_a_cframe() -> None:
    near(f"({FRAME}) + Vector3.one", 2, 3, 4, 0, 0, 1, 0, 1, 0, -1, 0, 0)
    near(f"({FRAME}) - Vector3.one", 0, 1, 2, 0, 0, 1, 0, 1, 0, -1, 0, 0)
    for statement in ("CFrame.new() + 1", "1 * CFrame.new()", "Vector3.one * CFrame.new()"):
        assert error(f"return {statement}").startswith("attempt to perform arithmetic")


def test_cframe_lerp_turns_uniformly_along_the_shortest_path() -> None:
    goal = "CFrame.new(2, 0, 0) * CFrame.Angles(0, math.pi / 2, 0)"
    near(f"CFrame.new():Lerp({goal}, 0.5)", 1, 0, 0, H, 0, H, 0, 1, 0, -H, 0, H)
    assert run(f"return CFrame.new():Lerp({goal}, 1):FuzzyEq({goal})")


# Color3, UDim, UDim2, Region3


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("Color3.new()", "0, 0, 0"),
        ("Color3.new(2, -1, 0/0)", "1, 0, 0"),
        ("Color3.fromRGB(255, 0, 51)", "1, 0, 0.20000000298023224"),
        ("Color3.fromRGB(300, -3, 0)", "1, 0, 0"),
        ("Color3.fromHSV(0.5, 1, 1)", "0, 1, 1"),
        ("Color3.fromHex('#FF0000')", "1, 0, 0"),
        ("Color3.fromHex('00ff00')", "0, 1, 0"),
        ("Color3.fromRGB(255, 171, 1):ToHex()", "#FFAB01"),
        ("Color3.new(0, 0, 0):Lerp(Color3.new(1, 0.5, 0), 0.5)", "0.5, 0.25, 0"),
        ("table.concat({Color3.fromRGB(0, 255, 255):ToHSV()}, ' ')", "0.5 1 1"),
        ("Color3.fromRGB(255, 0, 0) == Color3.new(1, 0, 0)", "true"),
    ],
)
def test_color3_is_created_and_converted(expression: str, shown: str) -> None:
    assert text(expression) == shown


@pytest.mark.parametrize("hexadecimal", ["", "#", "12345", "#GG0000", "#ff00000"])
def test_invalid_hex_color_is_refused(hexadecimal: str) -> None:
    assert error(f"Color3.fromHex('{hexadecimal}')") == "Invalid hex color"


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("UDim.new()", "0, 0"),
        ("UDim.new(0.5, 3) + UDim.new(0.25, 4)", "0.75, 7"),
        ("UDim.new(0.5, 3) - UDim.new(0.25, 4)", "0.25, -1"),
        ("UDim2.new(0.5, 10, 1, -20)", "{0.5, 10}, {1, -20}"),
        ("UDim2.new(UDim.new(1, 2), UDim.new(3, 4))", "{1, 2}, {3, 4}"),
        ("UDim2.fromScale(0.5, 1)", "{0.5, 0}, {1, 0}"),
        ("UDim2.fromOffset(5, 6)", "{0, 5}, {0, 6}"),
        ("UDim2.new(1, 2, 3, 4) + UDim2.new(1, 1, 1, 1)", "{2, 3}, {4, 5}"),
        ("UDim2.new(1, 2, 3, 4) - UDim2.new(1, 1, 1, 1)", "{0, 1}, {2, 3}"),
        ("UDim2.new(0, 0, 0, 0):Lerp(UDim2.new(1, 10, 1, 5), 0.5)", "{0.5, 5}, {0.5, 2}"),
        ("UDim2.new(1, 2, 3, 4).X", "1, 2"),
        ("UDim2.new(1, 2, 3, 4).Height.Offset", "4"),
        ("UDim2.new(1, 2, 3, 4) == UDim2.new(1, 2, 3, 4)", "true"),
    ],
)
def test_udim_expression_has_the_expected_text(expression: str, shown: str) -> None:
    assert text(expression) == shown


def test_udim_offsets_are_truncated_to_integers() -> None:
    assert text("UDim.new(0, 10.9)") == "0, 10"
    assert text("UDim2.fromOffset(-3.9, 0/0)") == "{0, -3}, {0, 0}"
    assert text("UDim.new(0, 1/0)") == "0, 2147483647"


def test_regions_have_a_center_and_a_size() -> None:
    region = "Region3.new(Vector3.new(1, 0, 5), Vector3.new(0, 2, 9))"
    assert text(f"{region}.CFrame.Position") == "0.5, 1, 7"
    assert text(f"{region}.Size") == "1, 2, 4"
    assert text(f"{region}:ExpandToGrid(4).Size") == "4, 4, 8"
    assert error(f"{region}:ExpandToGrid(0)").endswith("needs a resolution above 0")


# Random


def test_random_streams_with_one_seed_are_equal_and_a_clone_continues_equally() -> None:
    assert run(
        "local a, b = Random.new(7), Random.new(7) "
        "for _ = 1, 5 do assert(a:NextNumber() == b:NextNumber()) end "
        "local c = a:Clone() return a:NextInteger(1, 1e9) == c:NextInteger(1, 1e9)"
    )


def test_random_numbers_stay_within_their_limits() -> None:
    assert run(
        "local r, seen = Random.new(1), {} "
        "for _ = 1, 200 do "
        "  local n = r:NextNumber(2, 3) assert(n >= 2 and n < 3) "
        "  local i = r:NextInteger(-1, 1) seen[i] = true assert(math.abs(i) <= 1) "
        "  local w = r:NextInteger(-2^50, 2^50) assert(math.abs(w) <= 2^50 and w % 1 == 0) "
        "  assert(math.abs(r:NextUnitVector().Magnitude - 1) < 1e-6) "
        "end "
        "return seen[-1] and seen[0] and seen[1]"
    )
    assert "interval is empty" in error("Random.new(1):NextInteger(2, 1)")
    assert "interval is too large" in error("Random.new(1):NextInteger(0, 1/0)")


def test_random_without_a_seed_draws_from_the_stream_of_math_random() -> None:
    draw = "return Random.new():NextNumber()"
    assert run(f"math.randomseed(1) {draw}") == run(f"math.randomseed(1) {draw}")
    assert run(f"math.randomseed(1) {draw}") != run(f"math.randomseed(2) {draw}")


def test_shuffle_keeps_every_item() -> None:
    assert (
        run(
            "local t = {} for i = 1, 50 do t[i] = i end Random.new(3):Shuffle(t) "
            "local moved = 0 for i, v in t do moved += i ~= v and 1 or 0 end assert(moved > 25) "
            "table.sort(t) for i = 1, 50 do assert(t[i] == i) end return #t"
        )
        == 50.0
    )
    assert "readonly" in error("Random.new(3):Shuffle(table.freeze({1, 2}))")


# Common properties of values


MADE = {
    "CFrame": "CFrame.new(1, 2, 3)",
    "Color3": "Color3.new(1, 0, 0)",
    "UDim": "UDim.new(1, 2)",
    "UDim2": "UDim2.new(1, 2, 3, 4)",
    "Region3": "Region3.new(Vector3.zero, Vector3.one)",
    "Random": "Random.new(1)",
    "RaycastParams": "RaycastParams.new()",
    "OverlapParams": "OverlapParams.new()",
}


@pytest.mark.parametrize(("name", "made"), MADE.items())
def test_values_have_a_type_name_and_refuse_unknown_members(name: str, made: str) -> None:
    assert text(f"typeof({made})") == name
    assert text(f"type({made})") == "userdata"
    assert error(f"return {made}.Nonsense") == f"'Nonsense' is not a valid member of {name}"
    assert (
        error(f"local v = {made} v.Nonsense = 1") == f"'Nonsense' is not a valid member of {name}"
    )
    assert error(f"return {made}:Nonsense()") == f"'Nonsense' is not a valid member of {name}"
    assert text(f"getmetatable({made})") == "The metatable is locked"


def test_the_members_of_a_vector2_have_older_names_in_lower_case() -> None:
    assert run("local v = Vector2.new(3, 4) return v.x, v.y, v.magnitude, v.unit == v.Unit") == (
        *(3.0, 4.0, 5.0),
        True,
    )


def test_values_cannot_be_changed() -> None:
    assert error("local f = CFrame.new() f.X = 1") == "X cannot be assigned to"
    assert error("local c = Color3.new() c.R = 1") == "R cannot be assigned to"
    assert "readonly" in error("Color3.new = nil")


@pytest.mark.parametrize("name", ["CFrame", "Color3", "UDim", "UDim2", "Region3"])
def test_values_are_compared_by_content_but_table_keys_by_identity(name: str) -> None:
    assert run(
        f"local a, b = {MADE[name]}, {MADE[name]} local t = {{[a] = 1}} "
        "return a == b and not rawequal(a, b) and t[a] == 1 and t[b] == nil"
    )
    assert run(f"return {MADE[name]} ~= 1")


def test_value_methods_refuse_a_receiver_of_another_type() -> None:
    assert error("CFrame.new().Inverse(5)") == (
        "invalid argument #1 to 'Inverse' (CFrame expected, got number)"
    )
    assert error("CFrame.new().Inverse()") == "missing argument #1 to 'Inverse' (CFrame expected)"
