"""Touches, with the characters' bodies driven by hand."""

import pytest

from clawblox.engine.errors import WorldHalted

from .test_parts import FLOOR

WATCH = """
log = {}
local function watch(part)
    part.Touched:Connect(function(other) table.insert(log, part.Name .. "+" .. other.Name) end)
    part.TouchEnded:Connect(function(other) table.insert(log, part.Name .. "-" .. other.Name) end)
end
"""


def log(bench):
    return bench.run("report(table.concat(log, ' '))")[0]


def make_character(bench, x, y, z):
    bench.run(FLOOR + f'watch = function() end part("Root", {x}, {y}, {z})')
    root = bench.model.workspace.find_child("Root")
    bench.parts.make_character(root)
    return root


def test_touch_events_fire_for_the_smaller_number_first(bench):
    bench.run(FLOOR + WATCH + 'watch(floor) watch(part("A", 0, 3, 0))')
    bench.tick(60)
    assert log(bench) == "Floor+A A+Floor"
    bench.run("workspace.A.Position = Vector3.new(0, 50, 0)")
    bench.tick(2)
    assert log(bench) == "Floor+A A+Floor Floor-A A-Floor"


def test_touch_events_are_sorted_with_new_touches_before_ended_touches(bench):
    bench.run(
        FLOOR + WATCH + "workspace.Gravity = 0 "
        'part("B", 0, 9, 0, {Anchored = true}) part("C", 20, 9, 0, {Anchored = true}) '
        'local a = part("A", 0, 9.5, 0, {CanCollide = false}) '
        'local d = part("D", 1, 9, 0, {CanCollide = false}) '
        "for _, each in {workspace.B, workspace.C, a, d} do watch(each) end"
    )
    bench.tick(2)
    assert log(bench) == "B+A A+B B+D D+B A+D D+A"
    bench.run("log = {} workspace.A.Position = Vector3.new(20, 9, 0)")
    bench.tick(2)
    assert log(bench) == "C+A A+C B-A A-B A-D D-A"


def test_touch_requires_can_touch_on_both_parts(bench):
    bench.run(FLOOR + WATCH + 'watch(floor) watch(part("A", 0, 1, 0, {CanTouch = false}))')
    bench.tick(10)
    assert log(bench) == ""
    bench.run("workspace.A.CanTouch = true")
    bench.tick()
    assert log(bench) == "Floor+A A+Floor"


def test_two_anchored_parts_never_touch(bench):
    bench.run(FLOOR + WATCH + 'watch(floor) watch(part("A", 0, 0, 0, {Anchored = true}))')
    for _ in range(5):
        bench.run("workspace.A.Position += Vector3.new(0.1, 0, 0)")
        bench.tick()
    assert log(bench) == ""


def test_touches_of_a_destroyed_part_end_without_events(bench):
    bench.run(FLOOR + WATCH + 'watch(floor) watch(part("A", 0, 1, 0))')
    bench.tick(10)
    bench.run("workspace.A:Destroy()")
    bench.tick(3)
    assert log(bench) == "Floor+A A+Floor"


def test_a_handler_may_destroy_a_touching_part(bench):
    bench.run(
        FLOOR + WATCH + 'part("A", 0, 1, 0) '
        "floor.Touched:Connect(function(other) other:Destroy() end) watch(workspace.A)"
    )
    bench.tick(5)
    assert log(bench) == ""
    assert bench.model.workspace.find_child("A") is None


def test_character_touches_the_floor_below_it(bench):
    root = make_character(bench, 0, 2.55, 0)
    bench.run(WATCH + "watch(workspace.Root)")
    bench.tick()
    assert log(bench) == "Root+Floor"
    bench.parts.space.place(root.number, (0.0, 2.65, 0.0))
    bench.tick()
    assert log(bench) == "Root+Floor Root-Floor"


def test_characters_touch_each_other_and_anchored_sensors(bench):
    make_character(bench, 0, 9, 0)
    bench.run(
        'workspace.Root.Name = "First" local coin = Instance.new("Part") coin.Name = "Coin" '
        "coin.Anchored, coin.CanCollide, coin.Position = true, false, Vector3.new(0, 9, 1) "
        "coin.Parent = workspace"
    )
    make_character(bench, 1, 9, 0)
    bench.run(WATCH + "watch(workspace.First)")
    bench.tick()
    assert log(bench) == "First+Coin First+Root"


def test_failing_touch_handler_halts_the_world_with_touch_event(bench):
    bench.run(FLOOR + 'part("A", 0, 1, 0).Touched:Connect(function() error("ouch") end)')
    with pytest.raises(WorldHalted, match=r"Touch event: .*ouch"):
        bench.tick(5)


def test_parts_in_non_colliding_groups_pass_without_touching(bench):
    bench.groups.register_collision_group(None, "Ghosts")
    bench.groups.collision_group_set_collidable(None, "Ghosts", "Default", False)
    bench.run(FLOOR + WATCH + 'watch(part("A", 0, 1, 0, {CollisionGroup = "Ghosts"}))')
    bench.tick(60)
    assert log(bench) == ""
    assert bench.model.workspace.find_child("A").read("Position").y < -20


def test_a_group_that_stops_colliding_lets_a_sleeping_part_fall(bench):
    bench.groups.register_collision_group(None, "Ghosts")
    bench.run(FLOOR + 'part("A", 0, 1, 0, {CollisionGroup = "Ghosts"})')
    bench.tick(120)
    bench.groups.collision_group_set_collidable(None, "Ghosts", "Default", False)
    bench.tick(60)
    assert bench.model.workspace.find_child("A").read("Position").y < -20


def test_part_becomes_a_character_and_a_part_again(bench):
    bench.run(FLOOR + 'part("Root", 0, 9, 0, {Orientation = Vector3.new(0, 0, 90)})')
    bench.tick()
    root = bench.model.workspace.find_child("Root")
    bench.parts.make_character(root)
    bench.tick(5)
    space = bench.parts.space
    height = space.position(root.number)[1]
    assert height > 8
    bench.parts.sync()
    moved = space.move_character(root.number, (0.5, -20.0, 0.0))
    assert moved.grounded
    bench.tick()
    assert space.position(root.number)[1] == pytest.approx(2.55, abs=0.01)
    bench.parts.forget_character(root)
    bench.tick(60)
    assert root.read("Position").y == pytest.approx(1, abs=0.1)


def test_position_written_by_a_touch_handler_takes_effect(bench):
    bench.run(
        FLOOR + 'local a = part("A", 0, 1.5, 0) '
        "a.Touched:Connect(function() a.Position = Vector3.new(0, 40, 0) end)"
    )
    root = bench.model.workspace.find_child("A")
    for _ in range(20):
        bench.tick()
        if root.read("Position").y > 30:
            break
    assert root.read("Position").y == 40
    bench.tick()
    assert root.read("Position").y == pytest.approx(40, abs=0.1)
