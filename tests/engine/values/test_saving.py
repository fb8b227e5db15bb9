"""Values in snapshots."""

from __future__ import annotations

import json

from clawblox.engine.values.libraries import lend_values
from clawblox.engine.values.vector3 import VECTOR_TYPE
from clawblox.luau import VM
from tests.engine.values.support import EnumHost, make_vm

SETUP = """
local length = UDim.new(0.5, 3)
local params = RaycastParams.new()
params.CollisionGroup = "Ghosts"
local kept = {
  frame = CFrame.new(1, 2, 3) * CFrame.Angles(0.1, 0.2, 0.3), color = Color3.fromRGB(1, 2, 3),
  length = length, size = UDim2.new(length, length), box = Region3.new(Vector3.zero, Vector3.one),
  stream = Random.new(4), params = params, overlap = OverlapParams.new(),
  brick = BrickColor.new("Bright red"), ray = Ray.new(Vector3.one, Vector3.yAxis * 2),
  heavy = PhysicalProperties.new(5, 0.1, 0.9),
  range = NumberRange.new(1, 2), fade = NumberSequence.new(0, 1),
  glow = ColorSequence.new(Color3.new(1, 0, 0), Color3.new(0, 0, 1)),
  from = NumberSequenceKeypoint.new(0, 1, 0.5), to = ColorSequenceKeypoint.new(1, Color3.new()),
  font = Font.new("rbxasset://a.json", Enum.FontWeight.Bold),
  slice = Rect.new(1, 2, 3, 4), key = Enum.KeyCode.Space, keys = Enum.KeyCode,
  nan = CFrame.new(0/0, 0, 0), moment = DateTime.fromUnixTimestamp(-5),
  item = Enum.Material.Neon, enum = Enum.Material, enums = Enum, turn = CFrame.Angles,
  dot = Vector3.one.Dot,
  inverse = CFrame.new().Inverse, isA = Enum.Material.Neon.IsA,
}
kept.again = kept.frame
kept.stream:NextNumber()
coroutine.yield()
assert(rawequal(kept.again, kept.frame) and rawequal(kept.size.X, length))
assert(rawequal(kept.item, Enum.Material.Neon) and kept.enum == Enum.Material)
assert(kept.enums == Enum and kept.keys == Enum.KeyCode)
assert(rawequal(kept.key, Enum.KeyCode.Space))
assert(kept.turn == CFrame.Angles and kept.dot == Vector3.one.Dot)
assert(kept.inverse(CFrame.new(1, 2, 3)) == CFrame.new(-1, -2, -3))
assert(kept.isA(kept.item, "Material") and kept.params.CollisionGroup == "Ghosts")
assert(kept.params.FilterType == Enum.RaycastFilterType.Exclude)
local texts = {}
for _, name in {"frame", "color", "length", "size", "box", "overlap", "nan", "brick", "ray",
  "heavy", "range", "fade", "glow", "from", "to", "font", "slice", "moment"} do
  table.insert(texts, tostring(kept[name]))
end
return table.concat(texts, "; "), kept.stream:NextNumber()
"""


def test_values_continue_after_a_restore_as_the_same_objects() -> None:
    vm = make_vm()
    vm.roots["main"] = vm.coroutine(vm.load(SETUP, "=t", vm.new_environment()))
    vm.resume(vm.roots["main"])
    document = json.dumps(vm.snapshot())
    expected = vm.resume(vm.roots["main"])

    host = EnumHost()
    lend_values(host)
    restored = VM.restore(json.loads(document), host=host, vectors=VECTOR_TYPE)
    assert json.dumps(restored.snapshot()) == document
    assert restored.resume(restored.roots["main"]) == expected
    assert "1, 2, 3, " in expected[0]
