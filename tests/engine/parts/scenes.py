"""A random scene of parts that scripts change in every tick, from any document."""

import hashlib
import json
import random
import sys

from tests.engine.parts.bench import Bench

GROUND = """
local floor = Instance.new("Part")
floor.Name, floor.Anchored, floor.Size = "Floor", true, Vector3.new(80, 1, 80)
floor.Parent = workspace
"""
SHAPES = ("Ball", "Block", "Cylinder", "Wedge", "Ring")


def build(seed):
    choose = random.Random(seed)
    bench = Bench()
    lines = [GROUND]
    for number in range(60):
        x, y, z = (round(choose.uniform(*span), 2) for span in ((-12, 12), (1, 15), (-12, 12)))
        lines.append(
            f'do local p = Instance.new("Part") p.Name = "P{number}" '
            f"p.Shape = Enum.PartType.{choose.choice(SHAPES)} "
            f"p.Anchored = {str(number < 20).lower()} "
            f"p.CanCollide = {str(choose.random() < 0.85).lower()} "
            f"p.Size = Vector3.new({', '.join(str(choose.uniform(0.5, 4)) for _ in 'xyz')}) "
            f"p.CFrame = CFrame.new({x}, {y}, {z}) * CFrame.Angles({y}, {z}, 0) "
            "p.Parent = workspace end"
        )
    for number in range(8):
        kind = choose.choice(("Weld", "WeldConstraint"))
        one, other = choose.sample(range(60), 2)
        lines.append(
            f'do local w = Instance.new("{kind}") w.Name = "W{number}" '
            f"w.Part0, w.Part1 = workspace.P{one}, workspace.P{other} w.Parent = workspace end"
        )
    lines.append(
        'local push = Instance.new("BodyVelocity") push.Velocity = Vector3.new(0, 2, 1) '
        "push.Parent = workspace.P55"
    )
    bench.run("\n".join(lines))
    return bench


def act(seed, tick):
    """Return the script of a tick."""
    choose = random.Random(seed * 7919 + tick)
    number = choose.randrange(60)
    at = ", ".join(str(round(choose.uniform(-9, 9), 2)) for _ in "xyz")
    shift = choose.uniform(-0.2, 0.2)
    lines = [
        "for i = 0, 9 do local p = workspace:FindFirstChild('P' .. i)",
        f"if p then p.Position += Vector3.new({shift}, 0, 0.1) end end",
        f"local p = workspace:FindFirstChild('P{number}')",
        "if p then",
        choose.choice(
            (
                f"p.Position = Vector3.new({at})",
                f"p.CFrame *= CFrame.Angles({at})",
                f"p.Velocity = Vector3.new({at})",
                f"p:ApplyImpulse(Vector3.new({at}))",
                "p.Anchored = not p.Anchored",
                "p.CanCollide = not p.CanCollide",
                "p.Size *= 1.1",
                "p:Destroy()",
                "p.Parent = nil p.Parent = workspace workspace:GetPartsInPart(p)",
                f"workspace:Raycast(Vector3.new({at}), Vector3.new(0, -50, 0))",
            )
        ),
        "end",
        f"local w = workspace:FindFirstChild('W{number % 8}')",
        f"if w then w.Enabled = {str(choose.random() < 0.5).lower()} end",
    ]
    if choose.random() < 0.2:
        lines.append(
            f'local n = Instance.new("Part") n.Name = "P{choose.randrange(60)}" '
            f"n.Position = Vector3.new({at}) n.Parent = workspace"
        )
    return "\n".join(lines)


def go_on(bench, seed, last, every):
    """Return digests of the document, one every ``every`` ticks."""
    digests = []
    while bench.scheduler.tick < last:
        tick = bench.scheduler.tick
        bench.run(act(seed, tick))
        bench.tick()
        if (tick + 1) % every == 0:
            text = json.dumps(bench.document())
            digests.append(hashlib.sha256(text.encode()).hexdigest())
    return digests


if __name__ == "__main__":
    seed, last, every = map(int, sys.argv[1:])
    print(json.dumps(go_on(Bench(json.load(sys.stdin)), seed, last, every)))
