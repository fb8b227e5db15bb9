"""Rotations as tuples."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from clawblox.engine.values import rotations
from clawblox.engine.values.rotations import IDENTITY, Rotation

ORDERS = ["".join(order) for order in itertools.permutations("XYZ")]


def some_rotations(count: int = 20) -> list[Rotation]:
    generator = random.Random(7)
    return [
        rotations.from_euler("XYZ", tuple(generator.uniform(-3, 3) for _ in range(3)))
        for _ in range(count)
    ]


def is_near(a: Rotation, b: Rotation) -> bool:
    return a == pytest.approx(b, abs=1e-9)


@pytest.mark.parametrize("order", ORDERS)
def test_euler_angles_round_trip_in_every_order(order: str) -> None:
    angles = (0.4, -0.7, 1.1)
    rotation = rotations.from_euler(order, angles)
    product = IDENTITY
    for axis in order:
        at = "XYZ".index(axis)
        product = rotations.multiply(product, rotations.about_axis(at, angles[at]))
    assert is_near(rotation, product)
    assert rotations.to_euler(order, rotation) == pytest.approx(angles)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tilt", [math.pi / 2, -math.pi / 2])
def test_euler_angles_of_a_gimbal_lock_give_the_same_rotation(order: str, tilt: float) -> None:
    angles = [0.3, 0.3, 0.3]
    angles["XYZ".index(order[1])] = tilt
    rotation = rotations.from_euler(order, (angles[0], angles[1], angles[2]))
    again = rotations.from_euler(order, rotations.to_euler(order, rotation))
    assert again == pytest.approx(rotation, abs=1e-6)


def test_quaternions_and_axes_round_trip_in_every_branch() -> None:
    halves = [rotations.about_axis(axis, math.pi) for axis in range(3)]
    for rotation in [IDENTITY, *halves, *some_rotations()]:
        assert is_near(rotations.from_quaternion(*rotations.to_quaternion(rotation)), rotation)
        assert is_near(rotations.from_axis_angle(*rotations.to_axis_angle(rotation)), rotation)


def test_inverse_reverses_a_rotation() -> None:
    for rotation in some_rotations():
        assert is_near(rotations.multiply(rotation, rotations.invert(rotation)), IDENTITY)
        turned = rotations.apply(rotation, 1.0, 2.0, 3.0)
        assert rotations.apply_inverse(rotation, *turned) == pytest.approx((1.0, 2.0, 3.0))


def test_slerp_turns_uniformly_along_the_shortest_path() -> None:
    start, goal = rotations.about_axis(1, 0.2), rotations.about_axis(1, 0.2 - 3.0)
    for alpha in (0.0, 0.25, 0.5, 1.0):
        expected = rotations.about_axis(1, 0.2 - 3.0 * alpha)
        assert is_near(rotations.slerp(start, goal, alpha), expected)


def test_smallest_rotation_maps_one_direction_to_another() -> None:
    for start, goal in itertools.product([(1, 0, 0), (0, 2, 0), (0, 0, -3), (-1, 0, 0)], repeat=2):
        turned = rotations.apply(rotations.between(start, goal), *start)
        assert rotations.normalize(turned) == pytest.approx(rotations.normalize(goal), abs=1e-9)


def test_a_drifted_matrix_becomes_a_rotation_again() -> None:
    drifted = tuple(part * 1.01 for part in rotations.about_axis(0, 0.3))
    assert is_near(rotations.orthonormalize(drifted), rotations.about_axis(0, 0.3))
    assert rotations.orthonormalize((0.0,) * 9) == IDENTITY


@pytest.mark.parametrize("angle", [math.inf, -math.inf, math.nan])
def test_non_finite_angles_give_nan_without_an_error(angle: float) -> None:
    assert math.isnan(rotations.about_axis(0, angle)[4])
    assert math.isnan(rotations.from_axis_angle((1.0, 0.0, 0.0), angle)[4])
    assert math.isnan(rotations.slerp(IDENTITY, rotations.about_axis(0, 1.0), angle)[4])
    turned = rotations.about_axis(1, angle)
    for order in ORDERS:
        rotations.to_euler(order, turned)
    rotations.to_axis_angle(turned)
    rotations.slerp(IDENTITY, turned, 0.5)
    rotations.facing((angle, 0.0, 0.0), (0.0, 1.0, 0.0))
