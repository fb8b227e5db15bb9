import pytest

from .test_parts import FLOOR, position

MAKE = """
local function make(class, parent, properties)
    local made = Instance.new(class)
    for key, value in properties do made[key] = value end
    made.Parent = parent
    return made
end
local a = part("A", 0, 20, 0)
"""


def velocity(bench, name="AssemblyLinearVelocity"):
    return bench.run(f"report(workspace.A.{name})")[0]


def test_a_body_velocity_holds_its_velocity_against_gravity(bench):
    bench.run(FLOOR + MAKE + 'make("BodyVelocity", a, {Velocity = Vector3.new(0, 3, 0)})')
    bench.tick(60)
    assert velocity(bench).y == pytest.approx(3, abs=0.01)
    assert position(bench, "A").y == pytest.approx(23, abs=0.1)


def test_part_falls_if_its_body_velocity_is_too_weak(bench):
    bench.run(FLOOR + MAKE + 'make("BodyVelocity", a, {MaxForce = Vector3.new(4000, 100, 4000)})')
    bench.tick(20)
    assert velocity(bench).y < -20


@pytest.mark.parametrize(
    ("mover", "limit", "goal", "seen"),
    [
        ("BodyVelocity", "MaxForce", "Velocity", "AssemblyLinearVelocity"),
        ("BodyAngularVelocity", "MaxTorque", "AngularVelocity", "AssemblyAngularVelocity"),
    ],
)
def test_mover_without_a_force_limit_reaches_its_goal_for_any_mass(bench, mover, limit, goal, seen):
    bench.run(
        FLOOR + MAKE + "a.Size = Vector3.new(30, 30, 30) a.Position = Vector3.new(0, 90, 0) "
        f'make("{mover}", a, {{{limit} = Vector3.one * math.huge, {goal} = Vector3.new(0, 3, 0)}})'
    )
    bench.tick(30)
    assert velocity(bench, seen).y == pytest.approx(3, abs=0.01)
    for wrong in (f"{limit} = Vector3.one * (0/0)", f"{goal} = Vector3.one * (1/0)"):
        call = f"pcall(function() workspace.A.{mover}.{wrong} end)"
        assert "must be finite" in bench.run(f"report({call})")[1]


def test_a_body_force_accelerates_by_force_over_mass(bench):
    bench.run(
        FLOOR + MAKE + 'workspace.Gravity = 0 make("BodyForce", a, {Force = Vector3.new(80, 0, 0)})'
    )
    bench.tick(60)
    assert velocity(bench).x == pytest.approx(10, rel=0.01)


def test_a_body_angular_velocity_turns_its_part(bench):
    bench.run(
        FLOOR + MAKE + "workspace.Gravity = 0 a.Size = Vector3.new(1, 2, 4) "
        'make("BodyAngularVelocity", a, {AngularVelocity = Vector3.new(0, 2, 0)})'
    )
    bench.tick(30)
    assert velocity(bench, "AssemblyAngularVelocity").y == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize(("relative", "axis"), [("nil", "z"), ('"World"', "x")])
def test_a_vector_force_is_relative_to_its_attachment(bench, relative, axis):
    bench.run(
        FLOOR + MAKE + "workspace.Gravity = 0 "
        'local at = make("Attachment", a, {CFrame = CFrame.Angles(0, -math.pi / 2, 0)}) '
        'make("VectorForce", a, {Attachment0 = at, Force = Vector3.new(80, 0, 0), '
        f"ApplyAtCenterOfMass = true, RelativeTo = {relative}}})"
    )
    bench.tick(60)
    assert getattr(velocity(bench), axis) == pytest.approx(10, rel=0.01)


def test_align_position_moves_a_part_to_its_goal(bench):
    bench.run(
        FLOOR + MAKE + 'local at = make("Attachment", a, {}) '
        'make("AlignPosition", a, {Attachment0 = at, Position = Vector3.new(5, 25, 0), '
        "MaxForce = math.huge, Responsiveness = 20})"
    )
    bench.tick(60)
    assert position(bench, "A").x == pytest.approx(5, abs=0.05)
    assert position(bench, "A").y == pytest.approx(25, abs=0.05)


def test_align_position_with_a_negative_limit_does_not_move_its_part(bench):
    bench.run(
        FLOOR + MAKE + 'workspace.Gravity = 0 local at = make("Attachment", a, {}) '
        'make("AlignPosition", a, {Attachment0 = at, Position = Vector3.new(5, 25, 0), '
        "MaxForce = math.huge, MaxVelocity = -1})"
    )
    bench.tick(30)
    assert position(bench, "A").x == pytest.approx(0, abs=0.01)


def test_align_orientation_turns_a_part_to_its_goal(bench):
    bench.run(
        FLOOR + MAKE + 'workspace.Gravity = 0 local at = make("Attachment", a, {}) '
        'make("AlignOrientation", a, {Attachment0 = at, CFrame = CFrame.Angles(0, 1, 0)})'
    )
    bench.tick(90)
    (frame,) = bench.run("report(workspace.A.CFrame)")
    assert frame.rotation[2] == pytest.approx(0.8415, abs=0.01)


def test_disabled_constraint_has_no_effect(bench):
    bench.run(
        FLOOR + MAKE + 'workspace.Gravity = 0 local at = make("Attachment", a, {}) '
        'make("VectorForce", a, {Attachment0 = at, Force = Vector3.one, Enabled = false})'
    )
    bench.tick(10)
    assert velocity(bench).x == 0


def test_attachment_has_a_world_position(bench):
    at, frame = bench.run(
        FLOOR + MAKE + "a.Orientation = Vector3.new(0, 90, 0) "
        'local at = make("Attachment", a, {Position = Vector3.new(1, 0, 0)}) '
        "report(at.WorldPosition, at.CFrame)"
    )
    assert at.z == pytest.approx(-1)
    assert frame.position.x == 1
