"""Table literals have the same iteration order as in the reference."""

from __future__ import annotations

import pytest

from tests.luau.support import run_plainly

ORDERS = {
    "{foo = 1, bar = 2, thing = 3}": "thing bar foo",
    "{1, 2, a = 5, b = 6, c = 7}": "1 2 a c b",
    "{Mountains = 1, Canyons = 1, Dunes = 1, Arctic = 1, Lavaflow = 1, Hills = 1, Plains = 1, "
    "Marsh = 1, Water = 1}": "Arctic Dunes Canyons Water Mountains Hills Lavaflow Plains Marsh",
}


@pytest.mark.parametrize(("literal", "order"), ORDERS.items())
def test_table_iteration_order_equals_the_order_of_luau(literal: str, order: str) -> None:
    source = f"local s = {{}} for k in {literal} do s[#s + 1] = tostring(k) end print(table.concat(s, ' '))"
    assert run_plainly(source) == [order]
