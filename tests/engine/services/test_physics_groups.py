"""PhysicsService: collision groups of parts."""

from __future__ import annotations

from tests.engine.services.bench import Bench, bench, output


def test_there_are_32_groups_and_all_collide_at_first() -> None:
    source = """
    local p = PhysicsService
    for i = 1, 31 do p:RegisterCollisionGroup(`g{i}`) end
    p:RegisterCollisionGroup('g1')
    print(pcall(function() p:RegisterCollisionGroup('one more') end))
    print(#p:GetRegisteredCollisionGroups(), p:GetMaxCollisionGroups())
    print(p:CollisionGroupsAreCollidable('g1', 'g2'), p:CollisionGroupsAreCollidable('g1', 'g1'))
    p:CollisionGroupSetCollidable('g1', 'g2', false)
    print(p:CollisionGroupsAreCollidable('g2', 'g1'), p:CollisionGroupsAreCollidable('g1', 'g1'))
    print(pcall(function() p:CollisionGroupSetCollidable('g1', 'none', false) end))
    print(p:IsCollisionGroupRegistered('g31'), p:IsCollisionGroupRegistered('g32'))
    p:UnregisterCollisionGroup('g2')
    p:RegisterCollisionGroup('g2')
    print(p:CollisionGroupsAreCollidable('g2', 'g1'))
    """
    assert output(source) == [
        "false\tscript:5: Cannot register more than 32 collision groups",
        "32\t32",
        "true\ttrue",
        "false\ttrue",
        "false\tscript:10: Collision group 'none' is not registered",
        "true\tfalse",
        "true",
    ]


def test_older_collision_group_methods_still_work() -> None:
    source = """
    local p = PhysicsService
    print(p:CreateCollisionGroup('a'), p:CreateCollisionGroup('b'), p:GetCollisionGroupId('b'))
    local part = Instance.new('Part')
    p:SetPartCollisionGroup(part, 'b')
    print(part.CollisionGroup, p:CollisionGroupContainsPart('b', part))
    p:RemoveCollisionGroup('a')
    p:RenameCollisionGroup('b', 'c')
    local names = {}
    for _, group in p:GetCollisionGroups() do table.insert(names, `{group.id} {group.name}`) end
    print(table.concat(names, ', '))
    """
    world = Bench().begin()
    for effect in ("collide",):
        world.model.effects[effect] = lambda instance, name: None
    world.run(source)
    assert world.printed() == ["1\t2\t2", "b\ttrue", "0 Default, 2 c"]


def test_collision_groups_have_the_bits_for_physics() -> None:
    world = bench(
        "PhysicsService:RegisterCollisionGroup('a')\n"
        "PhysicsService:CollisionGroupSetCollidable('a', 'Default', false)"
    )
    groups = world.services.collision_groups
    every = (1 << 32) - 1
    assert groups.bits("Default") == (1, every & ~2)
    assert groups.bits("a") == (2, every & ~1)
    assert groups.bits("unknown") == groups.bits("Default")
