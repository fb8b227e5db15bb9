import math

import pytest

from clawblox.engine.errors import WorldHalted
from clawblox.luau import Vector

FLOOR = """
local floor = Instance.new("Part")
floor.Name, floor.Anchored = "Floor", true
floor.Size, floor.Position = Vector3.new(60, 1, 60), Vector3.new(0, -0.5, 0)
floor.Parent = workspace
local function part(name, x, y, z, properties)
    local made = Instance.new("Part")
    made.Name, made.Position, made.Size = name, Vector3.new(x, y, z), Vector3.new(2, 2, 2)
    for key, value in properties or {} do made[key] = value end
    made.Parent = workspace
    return made
end
"""


def triple(vector):
    return (vector.x, vector.y, vector.z)


def near(vector, expected, tolerance=0.06):
    return all(abs(a - b) <= tolerance for a, b in zip(triple(vector), expected, strict=True))


def position(bench, name):
    return bench.model.workspace.find_child(name).read("Position")


def test_unanchored_part_falls_and_anchored_part_stays(bench):
    bench.run(FLOOR + 'part("A", 0, 5, 0) part("B", 9, 5, 0, {Anchored = true})')
    bench.tick(90)
    assert near(position(bench, "A"), (0, 1, 0))
    assert triple(position(bench, "B")) == (9, 5, 0)


def test_part_without_collision_falls_through_everything(bench):
    bench.run(FLOOR + 'part("A", 0, 5, 0, {CanCollide = false})')
    bench.tick(60)
    assert position(bench, "A").y < -50


def test_position_written_to_an_unanchored_part_takes_effect(bench):
    bench.run(FLOOR + 'part("A", 0, 1, 0)')
    bench.tick(60)
    bench.run("workspace.A.Position = Vector3.new(5, 30, 5) report()")
    assert triple(position(bench, "A")) == (5, 30, 5)
    bench.tick()
    assert near(position(bench, "A"), (5, 30, 5), 0.1)


def test_velocity_written_to_an_unanchored_part_moves_it(bench):
    bench.run(FLOOR + 'local a = part("A", 0, 20, 0) a.Velocity = Vector3.new(0, 0, 60)')
    (before,) = bench.run("report(workspace.A.AssemblyLinearVelocity)")
    bench.tick(3)
    (after,) = bench.run("report(workspace.A.Velocity)")
    assert triple(before) == (0, 0, 60)
    assert after.z == pytest.approx(60)
    assert position(bench, "A").z == pytest.approx(3, abs=0.01)


def test_setting_position_keeps_the_rotation(bench):
    frame = bench.run(
        'local p = Instance.new("Part") p.Orientation = Vector3.new(0, 90, 0)'
        "p.Position = Vector3.new(1, 2, 3) report(p.CFrame, p.Orientation)"
    )
    assert triple(frame[0].position) == (1, 2, 3)
    assert frame[0].rotation[2] == pytest.approx(1.0)
    assert near(frame[1], (0, 90, 0), 1e-3)


def test_a_part_outside_workspace_has_no_body(bench):
    bench.run(FLOOR + 'part("A", 0, 5, 0)')
    bench.tick()
    assert len(bench.parts.space.bodies) == 2
    bench.run("kept = workspace.A kept.Parent = nil")
    bench.tick()
    assert len(bench.parts.space.bodies) == 1
    bench.run("kept.Parent = workspace")
    bench.tick(90)
    assert near(position(bench, "A"), (0, 1, 0))


def test_changing_the_size_rebuilds_the_collider(bench):
    bench.run(FLOOR + 'part("A", 0, 1, 0)')
    bench.tick(30)
    bench.run("workspace.A.Size = Vector3.new(4, 8, 4) report()")
    (top,) = bench.run("report(workspace:Raycast(Vector3.new(1.9, 99, 0), -99 * Vector3.yAxis))")
    assert top.contents()[0].name == "A"
    assert top.contents()[1].y == pytest.approx(5, abs=0.05)
    assert bench.run("report(workspace.A:GetMass())") == (128,)


@pytest.mark.parametrize(
    ("shape", "x", "hit"),
    [("Ball", 1.9, False), ("Block", 1.9, True), ("Wedge", -1.9, True), ("Wedge", 1.9, False)],
)
def test_parts_of_each_shape_have_the_right_collider(bench, shape, x, hit):
    bench.run(
        f'local p = Instance.new("Part") p.Anchored = true p.Shape = Enum.PartType.{shape}'
        " p.Size = Vector3.new(4, 4, 4) p.Parent = workspace"
    )
    (found,) = bench.run(
        f"report(workspace:Raycast(Vector3.new({x}, 1.5, 9), Vector3.new(0, 0, -18)) ~= nil)"
    )
    assert found is hit


def test_gravity_is_read_in_every_tick(bench):
    bench.run(FLOOR + 'part("A", 0, 20, 0) workspace.Gravity = 0')
    bench.tick(30)
    assert triple(position(bench, "A")) == (0, 20, 0)
    bench.run("workspace.Gravity = 60")
    bench.tick(30)
    assert position(bench, "A").y == pytest.approx(20 - 60 * 0.5 * 0.25, abs=0.3)


def test_restored_gravity_wakes_sleeping_bodies(bench):
    bench.run(FLOOR + 'workspace.Gravity = 0 part("A", 0, 20, 0)')
    bench.tick(200)
    bench.run("workspace.Gravity = 60")
    bench.tick(30)
    assert position(bench, "A").y < 19


def test_moving_platform_carries_and_pushes_parts(bench):
    bench.run(FLOOR + 'part("Push", -4, 1, 0, {Anchored = true}) part("A", 0, 1, 0)')
    bench.tick(60)
    for _ in range(40):
        bench.run("workspace.Push.Position += Vector3.new(0.1, 0, 0)")
        bench.tick()
    assert position(bench, "A").x > 1.5


def test_part_below_the_destroy_height_is_destroyed(bench):
    bench.run('local p = Instance.new("Part") p.Name = "A" p.Parent = workspace')
    bench.tick(60 * 5)
    assert bench.model.workspace.find_child("A") is None
    assert not bench.parts.space.bodies or bench.tick() or not bench.parts.space.bodies


@pytest.mark.parametrize(
    "write",
    [
        "workspace.A.Position = Vector3.new(0/0, 0, 0)",
        "workspace.A.CFrame = CFrame.new(0, 1/0, 0)",
        "workspace.A.Velocity = Vector3.new(0/0, 0, 0)",
        "workspace.A.Size = Vector3.new(0/0, 1, 1)",
        "workspace.A:ApplyImpulse(Vector3.new(0/0, 1, 1))",
    ],
)
def test_assignment_of_non_finite_numbers_is_refused(bench, write):
    bench.run(FLOOR + 'part("A", 0, 1, 0)')
    with pytest.raises(WorldHalted, match="finite"):
        bench.run(write)
    bench.tick(5)
    assert near(position(bench, "A"), (0, 1, 0))


@pytest.mark.parametrize(
    "write",
    [
        "Position = Vector3.new(1e30, 1e30, 0)",
        "Size = Vector3.new(1e30, 1e30, 1e30)",
        "Size = Vector3.new(-5, 0, 1e-30)",
        "Velocity = Vector3.new(1e30, -1e30, 1e30)",
        "CFrame = CFrame.new(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)",
        "AssemblyAngularVelocity = Vector3.new(1e30, 1e30, 1e30)",
    ],
)
def test_extreme_values_neither_hang_nor_crash(bench, write):
    bench.run(FLOOR + 'workspace.FallenPartsDestroyHeight = -1e9 part("A", 0, 1, 0)')
    bench.run(f"workspace.A.{write}")
    bench.tick(5)
    bench.run("workspace:Raycast(Vector3.new(0, 9, 0), Vector3.new(0, -1e20, 0))")
    bench.document()


def test_impulses_change_the_velocity_in_inverse_proportion_to_mass(bench):
    bench.run(FLOOR + 'workspace.Gravity = 0 part("A", 0, 20, 0)')
    (mass,) = bench.run(
        "local a = workspace.A a:ApplyImpulse(Vector3.new(80, 0, 0))"
        "a:ApplyAngularImpulse(Vector3.new(0, 8, 0)) report(a:GetMass())"
    )
    velocity, spin = bench.run(
        "report(workspace.A.AssemblyLinearVelocity, workspace.A.AssemblyAngularVelocity)"
    )
    assert mass == 8
    assert near(velocity, (10, 0, 0), 1e-4)
    assert spin.y == pytest.approx(8 / (8 * 4 / 6), rel=1e-3)
    bench.run("workspace.A:ApplyImpulseAtPosition(Vector3.new(0, 0, 8), Vector3.new(1, 20, 0))")
    (spin,) = bench.run("report(workspace.A.AssemblyAngularVelocity)")
    assert spin.y == pytest.approx(1.5 - 1.5, abs=1e-3)


def test_custom_physical_properties_set_the_density(bench):
    (mass,) = bench.run(
        FLOOR + 'local a = part("A", 0, 9, 0) a.CustomPhysicalProperties = {Density = 3}'
        " report(a:GetMass())"
    )
    assert mass == 24


def test_set_primary_part_cframe_moves_all_parts_rigidly(bench):
    bench.run(
        'local m = Instance.new("Model") m.Name = "M" m.Parent = workspace '
        'local a = Instance.new("Part") a.Name, a.Anchored, a.Parent = "A", true, m '
        'local b = Instance.new("Part") b.Name, b.Anchored, b.Parent = "B", true, m '
        "b.Position = Vector3.new(5, 0, 0) m:SetPrimaryPartCFrame(CFrame.new(0, 99, 0)) "
        "m.PrimaryPart = a "
        "m:SetPrimaryPartCFrame(CFrame.new(0, 9, 0) * CFrame.Angles(0, math.pi / 2, 0))"
    )
    a, b, pivot = bench.run(
        "local m = workspace.M report(m.A.Position, m.B.Position, m:GetPivot())"
    )
    assert triple(a) == (0, 9, 0)
    assert near(b, (0, 9, -5), 1e-4)
    assert pivot.position == a


def test_model_without_primary_part_turns_about_its_centre(bench):
    pivot, after, b = bench.run(
        'local m = Instance.new("Model") m.Parent = workspace '
        'local a = Instance.new("Part") a.Size, a.Anchored, a.Parent = Vector3.one, true, m '
        'local b = Instance.new("Part") b.Size, b.Anchored, b.Parent = Vector3.one, true, m '
        "b.Position = Vector3.new(4, 0, 0) local pivot = m:GetPivot() "
        "m:PivotTo(CFrame.new(0, 0, 0) * CFrame.Angles(0, math.pi, 0)) "
        "report(pivot, m:GetPivot(), b.Position)"
    )
    assert triple(pivot.position) == (2, 0, 0)
    assert triple(after.position) == (0, 0, 0)
    assert near(b, (-2, 0, 0), 1e-4)


def test_pose_writes_fire_change_events(bench):
    (seen,) = bench.run(
        'local p = Instance.new("Part") local seen = {} '
        'for _, name in {"Position", "CFrame", "Velocity"} do '
        "p:GetPropertyChangedSignal(name):Connect(function() table.insert(seen, name) end) end "
        "p.CFrame = CFrame.new(1, 2, 3) p.CFrame = CFrame.new(1, 2, 3) "
        "p.Velocity = Vector3.one report(table.concat(seen, ' '))"
    )
    assert seen == "CFrame Position Velocity"


def test_clone_has_the_pose_of_the_original(bench):
    (frame,) = bench.run(
        'local p = Instance.new("Part") p.CFrame = CFrame.Angles(0, 1, 0) + Vector3.one '
        "report(p:Clone().CFrame)"
    )
    assert frame.rotation[0] == pytest.approx(math.cos(1))
    assert frame.position == Vector(1, 1, 1)


@pytest.mark.parametrize("anchored", ["true", "false"])
def test_crowd_in_one_place_halts_the_world(bench, anchored):
    bench.run(f"""
        for i = 1, 2000 do
            local p = Instance.new("Part")
            p.Anchored = {anchored}
            p.Parent = workspace
        end
    """)
    with pytest.raises(
        WorldHalted, match=r"Physics: more than \d+ pairs of bodies overlap, .*'Part'"
    ):
        bench.tick()


def test_a_crowd_that_grows_over_many_ticks_halts_the_world(bench):
    def grow():
        for _ in range(30):
            bench.run(
                "for i = 1, 20 do local p = Instance.new('Part') p.CanCollide = false "
                "p.Parent = workspace end"
            )
            bench.tick()

    bench.run("workspace.Gravity = 0")
    with pytest.raises(WorldHalted, match="pairs of bodies overlap"):
        grow()


def test_many_adjacent_parts_do_not_count_as_a_crowd(bench):
    bench.run(
        FLOOR
        + """
        for i = 0, 1999 do
            part("A", i % 50 * 2, 1, i // 50 * 2, {Anchored = i % 4 > 0})
        end
    """
    )
    bench.tick(2)


def test_rotation_uses_the_order_xyz_and_orientation_the_order_yxz(bench):
    same, read, oriented = bench.run(
        "local function turns(p, other) "
        "return (p.LookVector - other.LookVector).Magnitude < 1e-5 "
        "and (p.UpVector - other.UpVector).Magnitude < 1e-5 end "
        'local p = Instance.new("Part") p.Position = Vector3.new(1, 2, 3) '
        "p.Rotation = Vector3.new(10, 20, 30) "
        "local xyz = turns(p.CFrame, CFrame.Angles(math.rad(10), math.rad(20), math.rad(30))) "
        "local read = p.Rotation "
        "p.Orientation = Vector3.new(10, 20, 30) "
        "report(xyz and p.Position == Vector3.new(1, 2, 3), read, "
        "turns(p.CFrame, CFrame.fromOrientation(math.rad(10), math.rad(20), math.rad(30))))"
    )
    assert same is True
    assert near(read, (10, 20, 30), 1e-4)
    assert oriented is True


def test_attachment_orientation_equals_the_orientation_of_its_cframe(bench):
    kept, read, turned = bench.run(
        'local at = Instance.new("Attachment") at.Position = Vector3.new(1, 2, 3) '
        "at.Orientation = Vector3.new(10, 20, 30) "
        "local wanted = CFrame.fromOrientation(math.rad(10), math.rad(20), math.rad(30)) "
        "report(at.Position == Vector3.new(1, 2, 3) and at.CFrame.Position == at.Position, "
        "at.Orientation, (at.CFrame.UpVector - wanted.UpVector).Magnitude)"
    )
    assert kept is True
    assert near(read, (10, 20, 30), 1e-4)
    assert turned < 1e-5
