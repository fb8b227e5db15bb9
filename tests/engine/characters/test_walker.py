import json
import math

import attrs
import pytest

from clawblox.engine.characters.walker import WALKER, Gait, Walker
from clawblox.engine.physics.bodies import CHARACTER, DYNAMIC, Traits
from clawblox.engine.physics.colliders import BLOCK, CYLINDER, WEDGE, Shape
from clawblox.engine.physics.space import Space
from clawblox.engine.saved_state import from_json, to_json
from clawblox.engine.slots import Slots

CAPSULE = Shape(CYLINDER, 2.0, 5.0, 2.0)
ROOT = 2
STANDING = 2.55
GAIT = Gait(walk_speed=16.0, jump_power=50.0, jump_height=7.2, gravity=196.2)


@attrs.define
class Scene:
    """A floor whose top is at height 0, and one character."""

    space: Space
    walker: Walker
    gait: Gait = GAIT
    tick: int = 0

    @property
    def at(self):
        return self.space.position(ROOT)

    def step(self, ticks=1, **placed):
        for _ in range(ticks):
            self.space.prepare()
            moved = self.walker.move(self.space, ROOT, self.gait, self.tick)
            self.space.step()
            self.tick += 1
        return moved

    def jump(self):
        self.walker.jump_asked = self.tick


@pytest.fixture
def scene():
    space = Space()
    space.add(1, Traits(Shape(BLOCK, 200.0, 1.0, 200.0)), (0.0, -0.5, 0.0))
    space.add(ROOT, Traits(CAPSULE, motion=CHARACTER), (0.0, STANDING, 0.0))
    space.refresh()
    made = Scene(space, Walker())
    made.step(2)
    return made


def add(scene, number, size, at, **options):
    scene.space.add(number, Traits(Shape(BLOCK, *size), **options), at)
    scene.space.refresh()


def test_a_character_stands_5_hundredths_above_its_floor(scene):
    scene.space.place(ROOT, (0.0, 9.0, 0.0))
    scene.step(60)
    assert scene.walker.grounded
    assert scene.at[1] == pytest.approx(2.55, abs=1e-3)


def test_jump_starts_in_the_same_tick_and_rises_6_8_studs(scene):
    scene.jump()
    first = scene.step()
    heights = [scene.at[1]]
    while not scene.walker.grounded:
        scene.step()
        heights.append(scene.at[1])
    assert first.y == pytest.approx(50.0 / 60.0)
    assert max(heights) - STANDING == pytest.approx(6.8, abs=0.02)


def test_a_jump_is_never_higher_than_jump_height(scene):
    scene.gait = GAIT._replace(jump_power=500.0)
    scene.jump()
    assert scene.step().y == pytest.approx(math.sqrt(2.0 * 196.2 * 7.2) / 60.0)


@pytest.mark.parametrize(("ticks_before_landing", "jumps"), [(11, True), (13, False)])
def test_jump_requested_in_the_air_waits_12_ticks_for_the_ground(
    scene, ticks_before_landing, jumps
):
    scene.space.place(ROOT, (0.0, 14.0, 0.0))
    trial = Scene(scene.space, Walker())
    ticks = 0
    while not trial.walker.grounded:
        trial.step()
        ticks += 1
    scene.space.place(ROOT, (0.0, 14.0, 0.0))
    scene.walker.grounded = False
    scene.step(ticks - ticks_before_landing)
    scene.jump()
    scene.step(ticks_before_landing + 1)
    assert (scene.walker.rising > 0.0) is jumps


def test_jumps_are_at_least_11_ticks_apart(scene):
    scene.gait = GAIT._replace(jump_power=1.0)
    scene.jump()
    scene.step()
    first = scene.tick - 1
    while scene.walker.jumped == first:
        scene.jump()
        scene.step()
    assert scene.walker.jumped - first == 11


def test_a_ceiling_ends_a_rise(scene):
    add(scene, 3, (10.0, 1.0, 10.0), (0.0, 7.0, 0.0))
    scene.jump()
    while scene.at[1] < 3.5:
        scene.step()
    scene.step(2)
    assert scene.walker.rising <= 0.0


def test_walking_has_full_speed_from_the_first_to_the_last_tick(scene):
    scene.walker.target = (0.0, 0.0, -3.0)
    steps = [scene.step().z for _ in range(9)]
    assert steps == pytest.approx([-16.0 / 60.0] * 9, abs=2e-3)


def test_velocity_in_the_air_changes_by_220_studs_per_second_squared(scene):
    scene.jump()
    scene.step()
    scene.walker.direction = (1.0, 0.0)
    steps = [scene.step().x * 60.0 for _ in range(6)]
    assert steps == pytest.approx([220.0 / 60.0 * n for n in (1, 2, 3, 4)] + [16.0] * 2, abs=1e-4)


def test_character_in_the_air_slows_down_gradually_without_a_target(scene):
    scene.walker.direction = (1.0, 0.0)
    scene.step()
    scene.jump()
    scene.step()
    scene.walker.direction = None
    assert scene.step().x * 60.0 == pytest.approx(16.0 - 220.0 / 60.0, abs=1e-4)
    assert scene.step(10).x == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("distance", "ends"), [(0.5, True), (0.51, None)])
def test_target_is_reached_within_half_a_stud_at_any_height(distance, ends):
    walker = Walker(target=(distance, 50.0, 0.0))
    assert walker.steer((0.0, 0.0, 0.0), 1) is ends
    assert (walker.target is None) is bool(ends)


def test_target_is_abandoned_after_8_seconds():
    walker = Walker(target=(9.0, 0.0, 0.0), target_since=7)
    assert walker.steer((0.0, 0.0, 0.0), 7 + 479) is None
    assert walker.steer((0.0, 0.0, 0.0), 7 + 480) is False
    assert walker.target is None


def test_a_fast_character_does_not_run_past_its_target(scene):
    scene.gait = GAIT._replace(walk_speed=100.0)
    scene.walker.target = (24.2, 0.0, 0.0)
    for _ in range(20):
        if scene.walker.steer(scene.at, scene.tick) is None:
            scene.step()
    assert scene.at[0] == pytest.approx(24.2, abs=0.02)


@pytest.mark.parametrize(("height", "passes"), [(0.9, True), (1.0, True), (1.3, False)])
def test_steps_up_to_1_stud_are_climbed(scene, height, passes):
    add(scene, 3, (4.0, height, 10.0), (5.0, height / 2, 0.0))
    scene.walker.direction = (1.0, 0.0)
    scene.step(60)
    assert (scene.at[0] > 4.0) is passes


@pytest.mark.parametrize(("degrees", "climbs"), [(40, True), (50, False)])
def test_slopes_up_to_45_degrees_are_climbed(scene, degrees, climbs):
    rise = 8.0 * math.tan(math.radians(degrees))
    scene.space.add(3, Traits(Shape(WEDGE, 8.0, rise, 10.0)), (-6.0, rise / 2, 0.0))
    scene.space.refresh()
    scene.walker.direction = (-1.0, 0.0)
    scene.step(60)
    assert (scene.at[1] > 5.0) is climbs


def test_a_character_slides_along_a_wall(scene):
    add(scene, 3, (1.0, 10.0, 60.0), (3.0, 5.0, 0.0))
    scene.walker.direction = (math.sqrt(0.5), math.sqrt(0.5))
    scene.step(60)
    assert scene.at[0] == pytest.approx(1.45, abs=0.01)
    assert scene.at[2] == pytest.approx(16.0 * math.sqrt(0.5), abs=0.3)


def test_characters_pass_through_each_other_and_through_sensors(scene):
    scene.space.add(3, Traits(CAPSULE, motion=CHARACTER), (3.0, STANDING, 0.0))
    add(scene, 4, (1.0, 10.0, 10.0), (6.0, 5.0, 0.0), solid=False)
    scene.walker.direction = (1.0, 0.0)
    scene.step(60)
    assert scene.at[0] == pytest.approx(16.0, abs=0.02)


@pytest.mark.parametrize("speed", [-24.0, -6.0, 6.0, 24.0])
def test_lift_carries_a_character_that_stands_on_it_throughout(scene, speed):
    height = 20.0
    add(scene, 3, (6.0, 1.0, 6.0), (20.0, height, 0.0))
    scene.space.place(ROOT, (20.0, height + 0.5 + STANDING, 0.0))
    scene.step(3)
    for _ in range(30):
        height += speed / 60.0
        scene.space.place(3, (20.0, height, 0.0))
        scene.step()
        assert scene.walker.grounded
    scene.step(2)
    assert scene.walker.grounded
    assert scene.at[1] == pytest.approx(height + 0.5 + STANDING, abs=1e-3)


def test_a_platform_carries_a_character_sideways(scene):
    add(scene, 3, (6.0, 1.0, 6.0), (20.0, 5.0, 0.0))
    scene.space.place(ROOT, (20.0, 5.5 + STANDING, 0.0))
    scene.step(3)
    for n in range(1, 31):
        scene.space.place(3, (20.0 + n * 0.2, 5.0, n * 0.1))
        scene.step()
    assert scene.at == pytest.approx((26.0, 5.5 + STANDING, 3.0), abs=1e-3)


def test_a_character_who_jumps_lands_on_a_rising_lift(scene):
    add(scene, 3, (6.0, 1.0, 6.0), (20.0, 5.0, 0.0))
    scene.space.place(ROOT, (20.0, 5.5 + STANDING, 0.0))
    scene.step(2)
    scene.jump()
    height, stood = 5.0, []
    for _ in range(60):
        height += 0.1
        scene.space.place(3, (20.0, height, 0.0))
        scene.step()
        stood.append(scene.walker.grounded)
        assert scene.at[1] > height + 0.5 + 2.5
    assert stood.index(True) > 10
    assert all(stood[stood.index(True) :])
    assert scene.at[1] == pytest.approx(height + 0.5 + STANDING, abs=1e-3)


def test_moving_wall_pushes_a_character(scene):
    add(scene, 3, (1.0, 5.0, 10.0), (-3.0, 2.5, 0.0))
    for n in range(1, 61):
        scene.space.place(3, (-3.0 + n * 0.1, 2.5, 0.0))
        scene.step()
    assert scene.at[0] == pytest.approx(3.0 + 1.5, abs=0.2)
    scene.walker.direction = (1.0, 0.0)
    scene.step(10)
    assert scene.at[0] > 4.5 + 2.0


def test_moving_sensor_does_not_push_a_character(scene):
    add(scene, 3, (1.0, 5.0, 10.0), (-3.0, 2.5, 0.0), solid=False)
    for n in range(1, 61):
        scene.space.place(3, (-3.0 + n * 0.1, 2.5, 0.0))
        scene.step()
    assert scene.at[0] == 0.0


def test_a_thrown_velocity_lasts_in_the_air_and_decays_on_the_ground(scene):
    scene.walker.throw((30.0, 40.0, 0.0))
    assert scene.step().x == pytest.approx(0.5)
    flight = [scene.step().x for _ in range(10)]
    assert flight == pytest.approx([0.5] * 10, abs=1e-5)
    while not scene.walker.grounded:
        scene.step()
    scene.step(10)
    assert scene.walker.thrown == (0.0, 0.0)
    assert scene.step().x == pytest.approx(0.0, abs=1e-6)


def test_a_wall_ends_a_thrown_velocity(scene):
    add(scene, 3, (1.0, 20.0, 10.0), (3.0, 10.0, 0.0))
    scene.walker.throw((60.0, 60.0, 0.0))
    scene.step(6)
    assert not scene.walker.grounded
    assert scene.walker.thrown == (0.0, 0.0)


@pytest.mark.parametrize("pushes", [True, False])
def test_characters_push_dynamic_parts_if_the_world_allows_it(scene, pushes):
    add(scene, 3, (2.0, 2.0, 2.0), (3.0, 1.0, 0.0), motion=DYNAMIC)
    scene.space.walking.pushes = pushes
    scene.step(20)
    scene.walker.direction = (1.0, 0.0)
    scene.step(60)
    moved = scene.space.position(3)[0] - 3.0
    assert moved > 3.0 if pushes else abs(moved) < 0.1


def test_extreme_numbers_from_scripts_keep_a_character_within_the_world(scene):
    scene.gait = Gait(math.inf, math.inf, math.inf, math.inf)
    scene.walker.direction = (1.0, 0.0)
    scene.walker.throw((3e38, 3e38, 0.0))
    for gravity in (math.inf, -math.inf, -1e300):
        scene.gait = scene.gait._replace(gravity=gravity)
        for _ in range(2000):
            scene.jump()
            scene.step()
            if scene.tick % 1000 == 0:
                assert all(abs(part) <= 1e6 for part in scene.at)


def test_walker_continues_exactly_from_its_document(scene):
    scene.walker.target = (9.0, 0.0, 1.0)
    scene.walker.throw((30.0, 40.0, 0.0))
    scene.step(7)
    scene.walker.direction = (0.5, 0.25)
    saved = to_json(WALKER, scene.walker, Slots())
    again = from_json(WALKER, json.loads(json.dumps(saved)), Slots())
    assert attrs.asdict(again) == attrs.asdict(scene.walker)


def idle(scene):
    scene.step(5)
    assert scene.walker.idle_since is not None
    return scene


def test_idle_character_falls_when_its_floor_is_removed(scene):
    idle(scene).space.remove(1)
    scene.step(3)
    assert scene.at[1] < 2.5


def test_idle_character_rises_with_a_floor_that_starts_to_move(scene):
    add(scene, 3, (6.0, 1.0, 6.0), (20.0, 5.0, 0.0))
    scene.space.place(ROOT, (20.0, 5.5 + STANDING, 0.0))
    idle(scene)
    for n in range(1, 4):
        scene.space.place(3, (20.0, 5.0 + n * 0.1, 0.0))
        scene.step()
        assert scene.at[1] == pytest.approx(5.5 + STANDING + n * 0.1, abs=1e-3)


def test_idle_character_is_pushed_by_a_part_that_approaches(scene):
    add(scene, 3, (1.0, 5.0, 10.0), (-30.0, 2.5, 0.0))
    scene.space.place(3, (-29.9, 2.5, 0.0))
    scene.step()
    idle(scene)
    scene.space.place(3, (-1.0, 2.5, 0.0))
    scene.step()
    scene.space.place(3, (-0.9, 2.5, 0.0))
    scene.step()
    assert scene.at[0] > 0.05


def test_an_idle_character_notices_a_sensor_that_becomes_solid_and_moves(scene):
    add(scene, 3, (6.0, 1.0, 6.0), (0.0, 8.0, 0.0), solid=False)
    idle(scene).space.set_solid(3, solid=True)
    scene.jump()
    scene.step(10)
    assert scene.at[1] < 5.05


def test_skipping_idle_characters_gives_the_same_motion():
    def run(*, forget):
        space = Space()
        space.add(1, Traits(Shape(BLOCK, 200.0, 1.0, 200.0)), (0.0, -0.5, 0.0))
        space.add(3, Traits(Shape(BLOCK, 6.0, 1.0, 6.0)), (5.0, 0.5, 0.0))
        space.add(4, Traits(Shape(BLOCK, 2.0, 2.0, 2.0), motion=DYNAMIC), (-4.0, 12.0, 0.0))
        for number in range(10, 15):
            space.add(number, Traits(CAPSULE, motion=CHARACTER), (number * 2.5 - 30.0, 4.0, 0.0))
        walkers = {number: Walker() for number in range(10, 15)}
        seen, skipped = [], 0
        for tick in range(240):
            if tick % 80 > 60:
                space.place(3, (5.0 + tick % 80 - 60.0, 0.5, 0.0))
            for number, walker in walkers.items():
                if forget:
                    walker.idle_since = None
                walker.direction = (1.0, 0.1) if tick % (number * 10) < 20 else None
                before = walker.idle_since
                walker.move(space, number, GAIT, tick)
                skipped += before is not None and walker.idle_since == before
            space.step()
            space.moved_bodies()
            seen.append([space.position(number) for number in (4, *walkers)])
        return seen, skipped

    whole, _ = run(forget=True)
    short, skipped = run(forget=False)
    assert skipped > 100
    assert short == whole
