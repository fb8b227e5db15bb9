"""Late attributes of snapshots: absent while unused, and in older documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from clawblox.engine import shapes
from clawblox.engine.instances.classes import SERVICES
from clawblox.engine.saved_state import Layouts, SavedState, entries
from clawblox.engine.slots import Slots
from tests.engine.playing import say
from tests.engine.torture import Plan, torture

LATE = """
local first = Instance.new("Folder")
print(first:GetDebugId(), #game:GetChildren())
task.delay(0.1, function()
    print(game:GetService("StarterGui"), game.StarterGui == game:FindService("StarterGui"))
    print(Instance.new("Folder"):GetDebugId(), game:GetChildren()[#game:GetChildren()])
    local kept = Instance.new("Folder", game.StarterGui)
    kept.Name = "Kept"
    task.wait(0.1)
    print(game.StarterGui.Kept, game.StarterPack)
end)
"""


class _Part(SavedState):
    layouts: ClassVar[Layouts] = {"first": shapes.whole, "second": shapes.text}
    late: ClassVar[Layouts] = {"_rows": entries(shapes.text, shapes.whole)}

    def __init__(self) -> None:
        self.first, self.second = 1, "two"
        self._rows: dict[str, int] = {}


def test_late_attribute_is_saved_only_while_in_use() -> None:
    part, copy = _Part(), _Part()
    assert part.document(Slots()) == {"first": 1, "second": "two"}
    part._rows["a"] = 3
    document = part.document(Slots())
    assert document == {"first": 1, "second": "two", "rows": [["a", 3]]}
    shapes.check_shape(document, _Part.shape, "part")
    copy.restore(document, Slots())
    assert copy._rows == {"a": 3}


@pytest.mark.parametrize(
    ("document", "refused"),
    [
        ({"first": 1, "second": "two"}, None),
        ({"first": 1, "second": "two", "rows": [["a", -3]]}, r"part.rows\[0\]\[1\]: -3"),
        ({"first": 1, "rows": []}, "an object with the keys first, second, rows"),
        ({"first": 1, "second": "two", "third": []}, "an object with the keys"),
    ],
)
def test_only_late_attributes_may_be_absent(document: dict[str, Any], refused: str | None) -> None:
    if refused is None:
        shapes.check_shape(document, _Part.shape, "part")
    else:
        with pytest.raises(ValueError, match=refused):
            shapes.check_shape(document, _Part.shape, "part")


def test_late_service_gets_a_number_after_all_existing_instances(tmp_path: Path) -> None:
    lines = say(tmp_path, LATE, 15)
    first, services = map(int, lines[0].split("\t"))
    assert lines[1:] == [
        "StarterGui\ttrue",
        f"{first + 2}\tStarterGui",
        "Kept\tStarterPack",
    ]
    assert services == len(SERVICES)


def test_late_services_are_restored(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(LATE)
    (tmp_path / "world.toml").write_text('name = "late"')
    torture(tmp_path, Plan(), ticks=15, saves=(2, 8, 13))
