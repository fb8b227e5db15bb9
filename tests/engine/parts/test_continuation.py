import json
import subprocess
import sys

import pytest

from clawblox.engine.physics.saved import LIBRARY

from . import scenes
from .bench import Bench
from .test_parts import FLOOR, near, position, triple


@pytest.mark.parametrize(
    ("seed", "after", "every"),
    [
        (23, 40, 20),
        *(pytest.param(seed, 180, 1, marks=pytest.mark.thorough) for seed in range(2, 22)),
    ],
)
def test_parts_continue_exactly_in_a_new_process(seed, after, every):
    saved_at = 12 + seed * 37 % 60
    bench = scenes.build(seed)
    scenes.go_on(bench, seed, saved_at, every)
    document = bench.document()
    here = scenes.go_on(bench, seed, saved_at + after, every)
    answer = subprocess.run(
        [sys.executable, "-m", scenes.__name__, str(seed), str(saved_at + after), str(every)],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == here


def test_a_touching_sleeping_pile_continues_without_events(bench):
    bench.run(FLOOR + "for i = 1, 5 do part('P' .. i, 0, 2 * i, 0) end")
    bench.tick(240)
    other = Bench(bench.document())
    log = (
        'log = {} for _, p in workspace:GetChildren() do if p:IsA("Part") then '
        "for _, e in {p.Touched, p.TouchEnded} do "
        "e:Connect(function() table.insert(log, p.Name) end) end end end"
    )
    for each in (bench, other):
        each.run(log)
        each.tick(30)
        assert each.run("report(#log)") == (0,)
    assert other.document() == bench.document()


@pytest.mark.thorough
def test_saving_does_not_change_the_run(bench):
    other = scenes.build(3)
    bench = scenes.build(3)
    for tick in range(12):
        for each in (bench, other):
            each.run(scenes.act(3, tick))
            each.tick()
        bench.document()
    assert bench.document() == other.document()


def test_another_library_is_refused_unless_the_restore_is_logical(bench):
    bench.run(FLOOR + 'part("A", 3, 5, 0) part("B", 9, 5, 0, {Anchored = true})')
    bench.tick(10)
    bench.run("workspace.B.Position += Vector3.yAxis")
    document = bench.document()
    document["parts"]["space"]["library"] = "rapier3d 9.9.9 pdp11"
    with pytest.raises(ValueError, match=f"saved by rapier3d 9.9.9 pdp11, but this is {LIBRARY}"):
        Bench(document)
    other = Bench(document, logical_restore=True)
    for each in (bench, other):
        each.tick(90)
    assert near(position(other, "A"), triple(position(bench, "A")), 0.1)
    assert triple(position(other, "B")) == (9, 6, 0)


def test_space_is_empty_after_a_thousand_additions_and_removals(bench):
    bench.run(FLOOR)
    bench.tick()
    for _ in range(5):
        bench.run(
            "for i = 1, 200 do local p = Instance.new('Part') p.Anchored = i % 3 == 0 "
            "p.Position = Vector3.new(i % 10 * 5 - 25, 0.4, i // 10 * 2.5 - 25) "
            "p.Parent = workspace end"
        )
        bench.tick()
        bench.run(
            "for _, p in workspace:GetChildren() do if p.Name == 'Part' then p:Destroy() end end"
        )
        bench.tick()
    assert len(bench.parts.space.bodies) == 1
    document = bench.document()["parts"]
    assert document["touching"] == []
    assert document["marks"]["marked"] == []
    assert document["space"]["overlaps"] == []


def test_body_created_by_a_query_is_placed_without_pushing(bench):
    bench.run(
        FLOOR + 'part("A", 0, 1, 0)'
        'part("B", -3, 1, 0, {Anchored = true}) workspace:Raycast(Vector3.zero, Vector3.one)'
    )
    other = Bench(bench.document())
    for each in (bench, other):
        each.run("workspace.B.Position = Vector3.new(-2.1, 1, 0)")
        each.tick()
        each.run("workspace.B.Position = Vector3.new(-3, 1, 0)")
        each.tick(30)
    assert near(position(bench, "A"), (0, 1, 0), 0.1)
    assert other.document() == bench.document()
