"""Vectors with a type name and members of the host, and 32-bit arithmetic."""

from __future__ import annotations

import re
import struct
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from clawblox.luau import VM, HostError, LuaError, Vector, VectorType, VMSnapshotError
from clawblox.luau.core.vectors import make_vector
from tests.luau.support import round_trip, run_plainly, value


def make_type() -> VectorType:
    return VectorType(
        "Vector3",
        properties={"Sum": lambda v: v.x + v.y + v.z, "Both": lambda v: "property"},
        methods={
            "Dot": lambda v, w: v.x * w.x + v.y * w.y + v.z * w.z,
            "Both": lambda v: "method",
        },
    )


def run(source: str, vectors: VectorType | None = None) -> tuple[Any, ...]:
    vm = VM(vectors=vectors or make_type())
    return vm.call(vm.load(f"local v = vector.create(1, 2, 3) {source}", "=space"))


def test_components_have_upper_and_lower_case_names() -> None:
    assert run("return v.X, v.Y, v.Z, v.x, v.y, v.z") == (1.0, 2.0, 3.0, 1.0, 2.0, 3.0)


def test_vectors_have_members_and_a_name() -> None:
    assert run("return v.Sum, v:Dot(v), v.Dot(v, v), v.Both, v:Both()") == (
        6.0, 14.0, 14.0, "property", "method",
    )  # fmt: skip
    assert run("return typeof(v), type(v), tostring(v)") == ("Vector3", "vector", "1, 2, 3")


@pytest.mark.parametrize("key", ["Length", "W", "XY", ""])
def test_unknown_members_are_errors_of_the_script(key: str) -> None:
    with pytest.raises(LuaError, match=f"^space:1: attempt to index Vector3 with '{key}'$"):
        run(f"return v['{key}']")
    with pytest.raises(LuaError, match=f"attempt to index Vector3 with '{key}'$"):
        run(f"local key = '{key}' return v[key]")
    with pytest.raises(LuaError, match="attempt to index Vector3 with number"):
        run("return v[1]")


def test_a_vector_cannot_be_changed() -> None:
    with pytest.raises(LuaError, match="attempt to index"):
        run("v.X = 2")


def test_vector_members_are_separate_per_vm() -> None:
    assert run("return v.Sum") == (6.0,)
    assert value("typeof(vector.create(1, 2, 3))") == "vector"
    plain = VM()
    with pytest.raises(LuaError, match="attempt to index vector with 'Sum'"):
        plain.call(plain.load("return vector.create(1, 2, 3).Sum"))
    with pytest.raises(LuaError, match="attempt to index vector with 'Dot'"):
        plain.call(plain.load("return vector.create(1, 2, 3):Dot()"))


def test_vector_methods_survive_a_restore() -> None:
    vectors = make_type()
    vm = VM(vectors=vectors)
    vm.call(vm.load("v = vector.create(0.1, 2, -0.0) dot = v.Dot"))
    restored = round_trip(vm, vectors=vectors)
    assert restored.call(restored.load("return dot(v, v) == v:Dot(v), 1 / v.Z")) == (
        True, float("-inf"),
    )  # fmt: skip
    with pytest.raises(VMSnapshotError, match="the host has no function 'Vector3:Dot'"):
        VM.restore(vm.snapshot())


def test_vector_method_must_be_a_plain_function() -> None:
    with pytest.raises(HostError, match="Vector3:Dot: must be a function made with def or lambda"):
        VectorType("Vector3", methods={"Dot": sum})


# Arithmetic

_OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def to_single(exact: Fraction) -> float:
    """Round a fraction to the nearest 32-bit float, ties to even, by comparing its neighbours."""
    (bits,) = struct.unpack("<i", struct.pack("<f", float(exact)))
    near = [struct.unpack("<f", struct.pack("<i", bits + step))[0] for step in (-1, 0, 1)]
    return min(
        near,
        key=lambda x: (abs(Fraction(x) - exact), struct.unpack("<i", struct.pack("<f", x))[0] & 1),
    )


def random_single(random: Random) -> float:
    number = (
        random.choice((1, -1))
        * random.randrange(1 << 23, 1 << 24)
        * 2.0 ** random.randrange(-30, 8)
    )
    return float(number)


@pytest.mark.parametrize("operator", list(_OPERATORS))
def test_vector_arithmetic_is_rounded_only_once(operator: str) -> None:
    random = Random(1)
    vm = VM()
    operate = vm.call(vm.load(f"return function(a, b) return a {operator} b end"))[0]
    for _ in range(80):
        a = Vector(*(random_single(random) for _ in range(3)))
        b = Vector(*(random_single(random) for _ in range(3)))
        (result,) = vm.call(operate, a, b)
        parts = zip((a.x, a.y, a.z), (b.x, b.y, b.z), strict=True)
        wanted = [to_single(_OPERATORS[operator](Fraction(x), Fraction(y))) for x, y in parts]
        assert [result.x, result.y, result.z] == wanted


@pytest.mark.parametrize("operator", ["*", "/"])
def test_a_number_is_rounded_before_it_scales(operator: str) -> None:
    random = Random(2)
    vm = VM()
    scale = vm.call(vm.load(f"return function(a, b) return a {operator} b end"))[0]
    for _ in range(80):
        vector = Vector(*(random_single(random) for _ in range(3)))
        number = random.uniform(-9.0, 9.0)
        rounded = Fraction(to_single(Fraction(number)))
        operands = [(vector, number), (number, vector)] if operator == "*" else [(vector, number)]
        for left, right in operands:
            (result,) = vm.call(scale, left, right)
            wanted = [
                to_single(_OPERATORS[operator](Fraction(part), rounded))
                for part in (vector.x, vector.y, vector.z)
            ]
            assert [result.x, result.y, result.z] == wanted


def test_vector_arithmetic_handles_overflow_and_nan() -> None:
    assert run("local a = v * 1e39 return a.X, (a * 0).X ~= (a * 0).X, (v / 0).X, (v * '2').Y, (2 / v).Y, (v // 2).Z") == (
        float("inf"), True, float("inf"), 4.0, 1.0, 1.0,
    )  # fmt: skip
    assert run("return (v / 1e-50).X, (-v / 0).Y, 1 / (v * -0.0).X, -v == vector.create(-1, -2, -3)") == (
        float("inf"), float("-inf"), float("-inf"), True,
    )  # fmt: skip
    assert run("return pcall(function() return v + 1 end)")[0] is False
    largest = 3.4028234663852886e38
    assert make_vector(largest + 1e30, largest * 2, float("nan")).x == largest


def test_vector_operators_use_metamethods_of_the_other_operand() -> None:
    assert run(
        """local meta = {__add = function(a, b) return 'added' end, __mul = function() return 'scaled' end}
        local other = setmetatable({}, meta)
        return v + other, other + v, other * v, v * other"""
    ) == ("added", "added", "scaled", "scaled")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("return v + 1", "attempt to perform arithmetic (add) on Vector3 and number"),
        ("return v + {}", "attempt to perform arithmetic (add) on Vector3 and table"),
        ("return v % v", "attempt to perform arithmetic (mod) on Vector3"),
        ("return v < v", "attempt to compare Vector3 < Vector3"),
        ("return v <= 1", "attempt to compare Vector3 <= number"),
        ("return v .. ''", "attempt to concatenate Vector3 with string"),
        ("return #v", "attempt to get length of a Vector3 value"),
        ("v.X = 2", "attempt to index Vector3 with 'X'"),
        ("v.X = nil", "attempt to index Vector3 with 'X'"),
        ("local k = 'X' v[k] = 2", "attempt to index Vector3 with 'X'"),
        ("v()", "attempt to call a Vector3 value"),
        ("v:Fly()", "attempt to index Vector3 with 'Fly'"),
        ("for i = 1, v do end", "invalid 'for' limit (number expected, got Vector3)"),
        ("for _ in v do end", "attempt to iterate over a Vector3 value"),
        ("math.abs(v)", "invalid argument #1 to 'abs' (number expected, got Vector3)"),
    ],
)
def test_messages_name_the_type_of_vectors(source: str, text: str) -> None:
    with pytest.raises(LuaError, match=f"^space:1: {re.escape(text)}$"):
        run(source)
    plain = VM()
    with pytest.raises(
        LuaError, match=f"^space:1: {re.escape(text.replace('Vector3', 'vector'))}$"
    ):
        plain.call(plain.load(f"local v = vector.create(1, 2, 3) {source}", "=space"))


def test_reading_a_component_works_on_vectors_tables_and_strings() -> None:
    source = """
        local v, t, s, e = vector.create(1, 2, 3), {X = 4, Y = v}, "text", setmetatable({}, {__index = {Z = 5}})
        print(v.X, v.Y, v.Z, (v + v).X, t.X, t.Z, e.Z, (function() return v end)().Z)
        print(pcall(function() local n return n.X end))
        print(pcall(function() return t.Y.X end))
    """
    assert run_plainly(source) == [
        "1\t2\t3\t2\t4\tnil\t5\t3",
        "false\ttest:4: attempt to index nil with 'X'",
        "false\ttest:5: attempt to index nil with 'X'",
    ]
