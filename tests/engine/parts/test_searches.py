import pytest

from clawblox.engine.services.terrain import make_terrain

from .test_parts import FLOOR, near, triple

INCLUDE = "Enum.RaycastFilterType.Include"
DOWN = "workspace:Raycast(Vector3.new(0, 50, 0), Vector3.new(0, -100, 0)"


def names(bench, expression):
    source = (
        f"local found = {{}} for _, each in {expression} do table.insert(found, each.Name) end "
        "report(table.concat(found, ' '))"
    )
    return bench.run(source)[0]


def test_ray_finds_the_nearest_part_even_before_the_first_tick(bench):
    found = bench.run(
        FLOOR + 'part("A", 0, 9, 0) '
        f"local r = {DOWN}) report(r.Instance.Name, r.Position, r.Normal, r.Distance, "
        "r.Material.Name)"
    )
    assert found[0] == "A"
    assert triple(found[1]) == (0, 10, 0)
    assert triple(found[2]) == (0, 1, 0)
    assert found[3:] == (40, "Plastic")


def test_ray_hits_a_part_moved_earlier_in_the_same_handler(bench):
    bench.run(FLOOR + 'part("A", 0, 9, 0, {Anchored = true})')
    bench.tick(3)
    first, second = bench.run(
        f"workspace.A.Position += Vector3.new(20, 0, 0) local first = {DOWN}).Instance.Name "
        f"workspace.A.Position -= Vector3.new(20, 0, 0) report(first, {DOWN}).Instance.Name)"
    )
    assert (first, second) == ("Floor", "A")


@pytest.mark.thorough
def test_query_does_not_change_the_push_of_a_platform(bench):
    other = type(bench)()
    for each, query in ((bench, f"{DOWN})"), (other, "")):
        each.run(FLOOR + 'part("P", -4, 1, 0, {Anchored = true}) part("A", 0, 1, 0)')
        each.tick(30)
        for _ in range(40):
            each.run(f"workspace.P.Position += Vector3.new(0.1, 0, 0) {query}")
            each.tick()
    a, b = (each.model.workspace.find_child("A").read("Position") for each in (bench, other))
    assert a.x > 0.5
    assert near(a, triple(b), 0.01)


def test_ray_ties_are_resolved_by_tree_order(bench):
    bench.run(
        FLOOR
        + 'local b = part("B", 0, 9, 0) b.Parent = nil part("A", 0, 9, 0) b.Parent = workspace'
    )
    assert bench.run(f"report({DOWN}).Instance.Name)") == ("A",)
    bench.run("local a = workspace.A a.Parent = nil a.Parent = workspace")
    assert bench.run(f"report({DOWN}).Instance.Name)") == ("B",)


def test_ray_from_inside_a_part_hits_its_far_face(bench):
    found = bench.run(
        FLOOR + 'part("A", 0, 9, 0) local r = workspace:Raycast(Vector3.new(0, 9.5, 0), '
        "Vector3.new(0, 20, 0)) report(r.Instance.Name, r.Distance, r.Normal)"
    )
    assert found[0] == "A"
    assert found[1] == pytest.approx(0.5)
    assert triple(found[2]) == (0, 1, 0)


def test_ray_misses_parts_beyond_its_end_or_excluded_from_queries(bench):
    bench.run(FLOOR + 'part("A", 0, 9, 0, {CanQuery = false}) part("B", 9, 9, 0)')
    short, none, outside = bench.run(
        "local from = Vector3.new(9, 20, 0) workspace.B.Parent.Name = 'W' "
        "report(workspace:Raycast(from, Vector3.new(0, -5, 0)), "
        "workspace:Raycast(from, Vector3.zero), workspace:Raycast(from, Vector3.new(0, 50, 0)))"
    )
    assert (short, none, outside) == (None, None, None)
    assert bench.run(f"report({DOWN}).Instance.Name)") == ("Floor",)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", "Glass"),
        ("p.FilterDescendantsInstances = {workspace.Folder}", "Ghost"),
        ("p.FilterDescendantsInstances = {workspace.Folder, workspace.Ghost}", "Floor"),
        (f"p.FilterType = {INCLUDE} p.FilterDescendantsInstances = {{workspace.Ghost}}", "Ghost"),
        ("p.RespectCanCollide = true", "Ghost"),
        ("p.CollisionGroup = 'Ghosts'", "Ghost"),
    ],
)  # fmt: skip
def test_raycast_params_filter_the_hits_of_a_ray(bench, settings, expected):
    bench.groups.register_collision_group(None, "Ghosts")
    bench.groups.collision_group_set_collidable(None, "Ghosts", "Default", False)
    bench.run(
        FLOOR + 'local f = Instance.new("Folder") f.Parent = workspace '
        'part("Ghost", 0, 9, 0, {CollisionGroup = "Ghosts"}) '
        'part("Glass", 0, 19, 0, {CanCollide = false, Transparency = 1}).Parent = f'
    )
    assert bench.run(
        f"local p = RaycastParams.new() {settings} report({DOWN}, p).Instance.Name)"
    ) == (expected,)


@pytest.mark.parametrize(
    ("group", "found"),
    [("Team", "Own"), ("Nobody", ""), ("Default", "Own Other"), ("", "Own Other")],
)
def test_query_in_an_unregistered_group_finds_parts_of_that_group(bench, group, found):
    bench.run(
        FLOOR + 'part("Own", 0, 5, 0, {CollisionGroup = "Team"}) part("Other", 0, 9, 0) '
        'part("Probe", 50, 5, 0, {Anchored = true}).Size = Vector3.new(9, 8, 9)'
    )

    ray = "Raycast(Vector3.new(0, 3, 0), Vector3.new(0, 20, 0), params)"
    hit = bench.run(
        f"local params = RaycastParams.new() params.CollisionGroup = '{group}' "
        f"local hit = workspace:{ray} report(hit and hit.Instance.Name or '')"
    )
    assert hit == (found[:3],)
    overlaps = (
        "GetPartBoundsInBox(CFrame.new(0, 7, 0), Vector3.new(8, 8, 8), params)",
        "GetPartBoundsInRadius(Vector3.new(0, 7, 0), 4, params)",
        "GetPartsInPart(workspace.Probe, params)",
    )
    bench.run("workspace.Probe.CollisionGroup = 'Probes' workspace.Probe.CanQuery = false")
    bench.run("workspace.Probe.Position = Vector3.new(0, 7, 0)")
    for query in overlaps:
        bench.run(f"params = OverlapParams.new() params.CollisionGroup = '{group}'")
        assert names(bench, f"workspace:{query}") == found, query


def test_find_part_on_ray_returns_the_nearest_part(bench):
    bench.run(FLOOR + 'part("A", 0, 9, 0)')
    ray = "{Origin = Vector3.new(0, 50, 0), Direction = Vector3.new(0, -100, 0)}"
    part, at, normal, material = bench.run(f"report(workspace:FindPartOnRay({ray}))")
    assert (part.name, triple(at), triple(normal), material.name) == (
        "A", (0, 10, 0), (0, 1, 0), "Plastic"
    )  # fmt: skip
    (part,) = bench.run(f"report((workspace:FindPartOnRay({ray}, workspace.A)))")
    assert part.name == "Floor"
    part, at, *_ = bench.run(
        f"report(workspace:FindPartOnRayWithIgnoreList({ray}, {{workspace.A, workspace.Floor}}))"
    )
    assert part is None
    assert triple(at) == (0, -50, 0)


def test_box_query_ignores_shapes_and_returns_parts_in_tree_order(bench):
    bench.run(
        FLOOR + 'part("B", 5, 5, 0, {Shape = Enum.PartType.Ball}) part("A", 0, 5, 0) '
        'part("Turned", 12, 5, 0).Orientation = Vector3.new(0, 45, 0)'
    )
    box = "workspace:GetPartBoundsInBox(CFrame.new({}), Vector3.new({}))"
    assert names(bench, box.format("3, 5, 0", "4.2, 1, 1")) == "B A"
    assert names(bench, box.format("6.2, 6.2, 1.2", "1, 1, 1")) == "B"
    assert names(bench, box.format("10.8, 5, 0", "0.2, 1, 1")) == "Turned"
    assert names(bench, box.format("10.8, 5, 1", "0.2, 1, 1")) == ""
    assert names(bench, box.format("0, 7, 0", "2, 2, 2")) == ""
    assert names(bench, box.format("0, 5, 0", "0, 0, 0")) == "A"


def test_radius_query_respects_max_parts(bench):
    bench.run(FLOOR + 'part("A", 0, 5, 0) part("B", 4, 5, 0)')
    assert names(bench, "workspace:GetPartBoundsInRadius(Vector3.new(2, 5, 0), 1)") == "A B"
    assert names(bench, "workspace:GetPartBoundsInRadius(Vector3.new(2, 5, 0), 0.9)") == ""
    bench.run("most = OverlapParams.new() most.MaxParts = 1")
    assert names(bench, "workspace:GetPartBoundsInRadius(Vector3.new(2, 5, 0), 9, most)") == "Floor"


def test_get_parts_in_part_uses_exact_shapes_and_excludes_the_part(bench):
    bench.run(
        FLOOR + 'local ball = part("Ball", 0, 9, 0, {Shape = Enum.PartType.Ball, Anchored = true}) '
        "ball.Size = Vector3.new(6, 6, 6) "
        'part("Near", 0, 12, 0, {Anchored = true}) part("Corner", 3, 12, 3, {Anchored = true})'
    )
    assert names(bench, "workspace:GetPartsInPart(workspace.Ball)") == "Near"


def test_parts_block_the_line_of_sight_of_characters(bench):
    bench.run(FLOOR + 'part("A", 0, 3, 0) part("B", 10, 3, 0) part("C", 0, 3, 20)')
    a, b, c = (bench.model.workspace.find_child(name) for name in "ABC")
    for each in (a, b, c):
        each.props["Size"] = type(each.read("Size"))(2.0, 5.0, 2.0)
        bench.parts.make_character(each)
    bench.tick()
    assert bench.parts.sees(a, b)
    bench.run(
        'local w = Instance.new("Part") w.Anchored, w.CanCollide, w.Transparency = true, false, 1 '
        "w.Size, w.Position, w.Parent = Vector3.new(1, 9, 9), Vector3.new(5, 3, 0), workspace"
    )
    bench.tick()
    assert not bench.parts.sees(a, b)
    assert bench.parts.sees(a, c)


@pytest.mark.parametrize(
    "call",
    [
        "Raycast(1, Vector3.one)",
        "Raycast(Vector3.one, Vector3.one, 5)",
        "GetPartsInPart(workspace)",
        "GetPartBoundsInBox(Vector3.one, Vector3.one)",
        "GetPartBoundsInRadius(Vector3.one, 'x')",
    ],
)
def test_wrong_arguments_are_named(bench, call):
    (message,) = bench.run(f"report(select(2, pcall(function() workspace:{call} end)))")
    assert "expected" in message
    (result,) = bench.run(
        "local nan = Vector3.new(0/0, 1, 1) report(workspace:Raycast(nan, nan) == nil)"
    )
    assert result is True


def test_terrain_is_hit_by_rays_and_supports_parts(bench):
    make_terrain(bench.model)
    terrain = bench.model.workspace.read("Terrain")
    for z in range(-3, 3):
        terrain.extra.fill_row((-3, -1, z), 6, 1)
    bench.run(
        'local p = Instance.new("Part") p.Name, p.Position = "A", Vector3.new(1, 5, 1) '
        "p.Parent = workspace"
    )
    hit = "workspace:Raycast(Vector3.new(6, 50, 0), Vector3.new(0, -100, 0))"
    (result,) = bench.run(f"report({hit})")
    assert result.contents()[0] is terrain
    assert triple(result.contents()[1]) == (6, 0, 0)
    bench.tick(90)
    assert near(bench.model.workspace.find_child("A").read("Position"), (1, 0.5, 1), 0.1)
    for z in range(-3, 3):
        terrain.extra.fill_row((-3, -1, z), 6, 0)
    assert bench.run(f"report({hit} == nil)") == (True,)
    bench.tick()
    assert len(bench.parts.space.bodies) == 1
