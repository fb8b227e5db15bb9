import pytest

from .test_parts import FLOOR, near, position, triple

WELD = """
local function weld(first, second, c0, c1)
    local joint = Instance.new("Weld")
    joint.Name, joint.Part0, joint.Part1 = "Joint", first, second
    joint.C0, joint.C1 = c0 or CFrame.new(), c1 or CFrame.new()
    joint.Parent = workspace
    return joint
end
"""


def test_weld_places_part1_at_part0_times_c0_times_inverse_c1(bench):
    bench.run(
        FLOOR + WELD + 'local a = part("A", 0, 9, 0, {Anchored = true}) '
        "a.Orientation = Vector3.new(0, 90, 0) "
        'local b = part("B", 30, 9, 0, {Anchored = true, CanCollide = false}) '
        "weld(a, b, CFrame.new(1, 2, 3), CFrame.new(0, 0, 1))"
    )
    bench.tick()
    (frame,) = bench.run("report(workspace.B.CFrame)")
    assert near(frame.position, (2, 11, -1), 1e-4)
    assert frame.rotation[2] == pytest.approx(1)
    bench.run("workspace.Joint.Enabled = false workspace.B.Position = Vector3.new(30, 9, 0)")
    bench.tick(2)
    assert triple(position(bench, "B")) == (30, 9, 0)


def test_welded_parts_fall_as_one_body(bench):
    bench.run(
        FLOOR + WELD + 'local a, b = part("A", 0, 9, 0), part("B", 4, 9, 0) '
        "weld(a, b, CFrame.new(4, 0, 0))"
    )
    bench.tick(120)
    a, b = position(bench, "A"), position(bench, "B")
    assert near(a, (0, 1, 0), 0.2)
    assert abs(b.x - a.x - 4) < 0.02
    assert abs(b.y - a.y) < 0.05
    mass, count = bench.run("report(workspace.A.AssemblyMass, #workspace.B:GetConnectedParts())")
    assert (mass, count) == (16, 2)


def test_collision_of_a_welded_part_moves_the_whole_assembly(bench):
    bench.run(
        FLOOR + WELD + 'local a, b = part("A", 0, 9, 0), part("B", 0, 6, 0) '
        "weld(a, b, CFrame.new(0, -3, 0))"
    )
    bench.tick(60)
    assert position(bench, "A").y == pytest.approx(4, abs=0.1)


def test_removing_a_weld_releases_the_part(bench):
    bench.run(
        FLOOR + WELD + 'local a, b = part("A", 0, 20, 0, {Anchored = true}), part("B", 0, 9, 0) '
        "weld(a, b, CFrame.new(5, 0, 0))"
    )
    bench.tick(30)
    assert triple(position(bench, "B")) == (5, 20, 0)
    bench.run("workspace.Joint:Destroy()")
    bench.tick(90)
    assert near(position(bench, "B"), (5, 1, 0), 0.3)


def test_welded_chain_follows_its_root_and_cycles_are_ignored(bench):
    bench.run(
        FLOOR + WELD + 'local a = part("A", 0, 20, 0, {Anchored = true}) '
        'local b, c = part("B", 9, 9, 9), part("C", 9, 9, 9) '
        "weld(b, c, CFrame.new(0, 1, 0)) weld(a, b, CFrame.new(1, 0, 0)) weld(c, a)"
    )
    bench.tick()
    assert triple(position(bench, "B")) == (1, 20, 0)
    assert triple(position(bench, "C")) == (1, 21, 0)
    bench.run("workspace.A.Position = Vector3.new(0, 30, 0)")
    bench.tick()
    assert triple(position(bench, "C")) == (1, 31, 0)


def test_weld_constraint_keeps_the_relative_pose_of_its_parts(bench):
    bench.run(
        FLOOR + 'local a, b = part("A", 0, 20, 0, {Anchored = true}), part("B", 3, 21, 0) '
        'local joint = Instance.new("WeldConstraint") joint.Part0, joint.Part1 = b, a '
        "joint.Parent = workspace"
    )
    bench.tick(10)
    assert near(position(bench, "B"), (3, 21, 0), 1e-4)
    bench.run("workspace.A.CFrame = CFrame.new(0, 40, 0) * CFrame.Angles(0, math.pi, 0)")
    bench.tick(2)
    assert near(position(bench, "B"), (-3, 41, 0), 1e-4)


def test_part_welded_to_a_character_moves_along_and_touches(bench):
    bench.run(
        FLOOR + WELD + 'local root = part("Root", 0, 9, 0) '
        'local sword = part("Sword", 0, 30, 0, {CanCollide = false, Massless = true}) '
        "weld(root, sword, CFrame.new(0, 0, -3)) log = {} "
        "sword.Touched:Connect(function(other) table.insert(log, other.Name) end) "
        'part("Dummy", 0, 9, -4, {Anchored = true})'
    )
    root = bench.model.workspace.find_child("Root")
    bench.parts.make_character(root)
    bench.tick()
    assert triple(position(bench, "Sword")) == (0, 9, -3)
    assert bench.run("report(table.concat(log, ' '))") == ("Dummy",)
    moved = bench.parts.space.move_character(root.number, (0.0, 0.0, 0.5))
    assert moved.z == pytest.approx(0.5)


def test_animated_weld_offset_keeps_the_body_and_its_touches(bench):
    bench.run(
        FLOOR + WELD + 'local a, b = part("A", 0, 20, 0, {Anchored = true}), part("B", 0, 9, 0) '
        "weld(a, b, CFrame.new(5, 0, 0))"
    )
    bench.tick(2)
    number = bench.model.workspace.find_child("B").number
    before = bench.parts.space.bodies[number]
    bench.run("workspace.Joint.C0 = CFrame.new(6, 0, 0)")
    bench.tick(2)
    assert bench.parts.space.bodies[number] is before
    (hit,) = bench.run("report(workspace:Raycast(Vector3.new(6.5, 99, 0), -99 * Vector3.yAxis))")
    assert hit.contents()[0].name == "B"
    assert triple(position(bench, "B")) == (6, 20, 0)
