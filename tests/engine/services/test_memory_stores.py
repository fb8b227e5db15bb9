"""MemoryStoreService: maps and queues, their limits, and their state in snapshots."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.engine.datastore.sqlite import SqliteStore
from clawblox.engine.services import memory_rows
from clawblox.engine.services.memory_rows import Item, MemoryRows, QueuedItem, RowsFull
from clawblox.luau import VMSnapshotError
from tests.engine.services.bench import Bench
from tests.support.sampling import sampled

HEAD = """
local m = game:GetService('MemoryStoreService')
local function pause(ticks) for _ = 1, ticks do m:GetHashMap(''):GetAsync('') end end
"""


def run(source: str, ticks: int) -> Bench:
    world = Bench().begin()
    world.run(HEAD + source)
    world.tick(ticks)
    return world


def test_each_memory_store_call_takes_a_tick() -> None:
    world = run("local h = m:GetHashMap('h') h:SetAsync('k', 1, 9) print(h:GetAsync('k'))", 1)
    assert world.printed() == []
    world.tick()
    assert world.printed() == []
    world.tick()
    assert world.printed() == ["1"]


def test_memory_store_read_takes_a_tick_even_after_a_data_store_answer(tmp_path: Path) -> None:
    world = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    world.run(
        HEAD
        + """
        local q, now = m:GetQueue('q'), 0
        RunService.Heartbeat:Connect(function() now += 1 end)
        q:AddAsync(5, 9)
        DataStoreService:GetDataStore('d'):GetAsync('k')
        local start = now
        local values = q:ReadAsync(1)
        print(values[1], now - start)
        """
    )
    world.tick(6)
    world.close()
    assert world.printed() == ["5\t1"]


def test_a_hash_map_keeps_values_until_they_expire() -> None:
    world = run(
        """
        local h = m:GetHashMap('h')
        assert(h == m:GetHashMap('h') and h ~= m:GetHashMap('other'))
        print(h:GetAsync('k'), h:SetAsync('k', {list = {1, 'x'}}, 0.5, 'no sort key'))
        local read = h:GetAsync('k')
        read.list[1] = 2
        print(select('#', h:GetAsync('k')), h:GetAsync('k').list[1])
        print(m:GetHashMap('other'):GetAsync('k'))
        print(h:UpdateAsync(5, function(...) print('old', ...) return 7 end, 1))
        print(h:UpdateAsync(5, function(old) return nil end, 1), h:GetAsync('5'))
        print(select('#', h:RemoveAsync(5)), h:GetAsync(5))
        local there = h:GetAsync('k') ~= nil
        pause(30)
        print(there, h:GetAsync('k'))
        """,
        60,
    )
    assert world.printed() == [
        "nil\ttrue",
        "1\t1",
        "nil",
        "old\tnil",
        "7",
        "nil\t7",
        "0\tnil",
        "true\tnil",
    ]


def test_value_exists_until_the_tick_of_its_expiry() -> None:
    world = run(
        """
        local h = m:GetHashMap('h')
        h:SetAsync('k', 1, 0.1)
        for tick = 1, 6 do print(tick, h:GetAsync('k')) end
        """,
        9,
    )
    assert world.printed() == [f"{tick}\t{1 if tick < 6 else 'nil'}" for tick in range(1, 7)]


def test_hash_map_lists_items_in_pages_even_after_a_restore() -> None:
    world = run(
        """
        local h = m:GetHashMap('h')
        for _, key in {'b', 'a', 'é', '\\xff', 'gone', 'c'} do
            h:SetAsync(key, {#key, key:byte()}, key == 'gone' and 0.01 or 99)
        end
        local pages = h:ListItemsAsync(2)
        pause(3)
        while true do
            for _, item in pages:GetCurrentPage() do
                local size, first = unpack(item.value)
                print(#item.key == size, item.key:byte() == first, first)
            end
            if pages.IsFinished then break end
            print('turn', pages:AdvanceToNextPageAsync())
        end
        print(#pages, pcall(pages.AdvanceToNextPageAsync, pages))
        print(#m:GetHashMap('other'):ListItemsAsync(200), (pcall(h.ListItemsAsync, h, 201)))
        """,
        9,
    )
    saved = Bench().restore(world.document())
    for each in (world, saved):
        each.tick(9)
    lines = world.printed()
    assert lines == saved.printed()
    assert lines == [
        *("true\ttrue\t97", "true\ttrue\t98", "turn"),
        *("true\ttrue\t99", "true\ttrue\t195", "turn", "true\ttrue\t255"),
        "2\tfalse\tAdvanceToNextPageAsync: this is the last page; look at IsFinished first",
        "0\tfalse",
    ]


def test_hash_map_methods_refuse_pages_of_a_data_store(tmp_path: Path) -> None:
    world = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    world.run(
        HEAD
        + """
        local listed = m:GetHashMap('h'):ListItemsAsync(2)
        local sorted = DataStoreService:GetOrderedDataStore('o'):GetSortedAsync(true, 2)
        print(#listed.GetCurrentPage(listed), pcall(sorted.GetCurrentPage, listed))
        print(#sorted.GetCurrentPage(sorted), pcall(listed.GetCurrentPage, sorted))
        """
    )
    world.tick(4)
    world.close()
    error = "false\tExpected ':' not '.' calling member function GetCurrentPage"
    assert world.printed() == [f"0\t{error}"] * 2


def test_damaged_pages_in_a_snapshot_are_refused() -> None:
    world = run(
        """
        local h = m:GetHashMap('h')
        for key = 1, 3 do h:SetAsync(key, 'x', 99) end
        local pages = h:ListItemsAsync(2)
        pause(3)
        print(pages)
        """,
        5,
    )
    saved = world.document()
    last = json.dumps(json.dumps([None, "2"]))[1:-1]
    assert last in saved
    with pytest.raises(VMSnapshotError, match="surrogates"):
        Bench().restore(saved.replace(last, json.dumps(json.dumps([None, "\ud800"]))[1:-1]))


def test_a_queue_has_a_size_with_or_without_hidden_values() -> None:
    world = run(
        """
        local q = m:GetQueue('q', 0.1)
        for at = 1, 3 do q:AddAsync(at, at == 3 and 0.01 or 99) end
        q:ReadAsync(1)
        print(q:GetSizeAsync(), q:GetSizeAsync(false), q:GetSizeAsync(true))
        pause(9)
        print(q:GetSizeAsync(true), m:GetQueue('none'):GetSizeAsync())
        """,
        30,
    )
    assert world.printed() == ["2\t2\t1", "2\t0"]


def test_a_sorted_map_orders_by_numbers_then_texts_then_keys() -> None:
    world = run(
        """
        local s = m:GetSortedMap('s')
        for key, order in {b = 2, a = 10, c = 'x', d = 'w', e = false, A = 2} do
            s:SetAsync(key, key .. '!', 99, order or nil)
        end
        s:SetAsync('f', 1, 99)
        local function shown(...)
            local line = {}
            for _, entry in s:GetRangeAsync(...) do
                table.insert(line, entry.key .. tostring(entry.sortKey))
            end
            print(table.concat(line, ' '))
        end
        shown('Ascending', 200)
        shown('Descending', 3)
        shown('Ascending', 200, {sortKey = 2})
        shown('Ascending', 200, {sortKey = 2, key = 'A'}, {sortKey = 'x'})
        shown('Ascending', 200, 'e')
        shown('Descending', 200, nil, {key = 'f'})
        shown('Ascending', 200, {})
        print(s:GetAsync('a'))
        print(s:UpdateAsync('a', function(old, order) return old .. order, order + 1 end, 99))
        print(s:UpdateAsync('a', function(old, order) return old end, 99))
        """,
        40,
    )
    assert world.printed() == [
        "A2 b2 a10 dw cx enil fnil",
        "fnil enil cx",
        "a10 dw cx enil fnil",
        "b2 a10 dw",
        "fnil",
        "enil cx dw a10 b2 A2",
        "A2 b2 a10 dw cx enil fnil",
        "a!\t10",
        "a!10\t11",
        "a!10\tnil",
    ]


def test_updates_of_one_tick_do_not_lose_each_other() -> None:
    world = run(
        """
        local h = m:GetHashMap('h')
        for i = 1, 3 do
            RunService.Stepped:Once(function()
                h:UpdateAsync('n', function(old) return (old or 0) * 10 + i end, 9)
            end)
        end
        pause(2)
        print(h:GetAsync('n'))
        """,
        5,
    )
    assert world.printed() == ["123"]


QUEUE = """
local q = m:GetQueue('q', 0.2)
local now = 0
RunService.Heartbeat:Connect(function() now += 1 end)
local function read(...)
    local start = now
    local items, id = q:ReadAsync(...)
    print(`{table.concat(items, ' ')} {id} after {now - start}`)
    return id
end
read(5, false, 0)
read(5, false, 0.1)
q:AddAsync('low', 9)
q:AddAsync('high', 9, 5)
q:AddAsync('soon', 0.05)
local late = read(2)
read(2, true, 0)
local id = read(9, false)
q:RemoveAsync(late)
q:RemoveAsync(id)
read(1, false, 0.3)
coroutine.wrap(function() read(2, true) end)()
q:AddAsync('one', 9)
q:AddAsync('two', 9)
pause(4)
q:RemoveAsync('nothing')
id = read(2, true, 9)
pause(14)
q:RemoveAsync(id)
read(2, true, 0)
"""
READ = [
    " nil after 1",
    " nil after 6",
    "high low 4 after 1",
    " nil after 1",
    "high low 5 after 11",
    " nil after 18",
    "one two 8 after 2",
    "one two 9 after 7",
    "one two 10 after 1",
]


def test_queue_returns_high_priorities_first_and_hides_read_values() -> None:
    assert run(QUEUE, 90).printed() == READ


@pytest.mark.parametrize("at", sampled([0, 1, 4, 7, 11, 12, 13, 20, 25, 30, 45, 60], every=4))
def test_memory_stores_continue_from_a_snapshot(at: int) -> None:
    first = run(QUEUE, at)
    text, lines = first.document(), first.printed()
    first.tick(90 - at)
    second = Bench().restore(text)
    assert second.document() == text
    second.tick(90 - at)
    assert [*lines, *second.printed()] == READ
    assert second.document() == first.document()


UPDATE = """
local s = m:GetSortedMap('s')
s:SetAsync('k', {1}, 5, 'x')
local ok, text = pcall(function()
    s:UpdateAsync('k', function() s:SetAsync('other', 1, 9) end, 9)
end)
print(ok, text, s:GetAsync('other'))
print(pcall(function() s:UpdateAsync('k', function() error('mine', 0) end, 9) end))
"""


def test_update_function_cannot_wait_and_its_errors_reach_the_caller() -> None:
    refused, failed = run(UPDATE, 6).printed()
    assert refused.startswith("false\tscript:8: attempt to yield")
    assert refused.endswith("\tnil\tnil")
    assert failed == "false\tmine"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("h:GetAsync()", "invalid argument #1 to 'GetAsync' (string expected, got nil)"),
        ("h:SetAsync('k', 1)", "invalid argument #3 to 'SetAsync' (number from 0 to 3888000 ex"),
        ("h:SetAsync('k', 1, 1e9)", "invalid argument #3 to 'SetAsync' (number from 0 to 3888000 "),
        ("h:SetAsync('k', print, 1)", "Failed to serialize value to JSON: function has no JSON"),
        ("s:SetAsync('k', 1, 1, {})", "SetAsync: the sort key must be a string or a finite numb"),
        ("s:SetAsync('k', 1, 1, 0/0)", "SetAsync: the sort key must be a string or a finite numb"),
        ("h:UpdateAsync('k', 1, 1)", "invalid argument #2 to 'UpdateAsync' (function expected"),
        ("s:GetRangeAsync(1, 1)", "#1 to 'GetRangeAsync' (Enum.SortDirection expected, got num"),
        ("s:GetRangeAsync('Ascending', 201)", "#2 to 'GetRangeAsync' (number from 1 to 200 exp"),
        ("s:GetRangeAsync('Ascending', 1, 5)", "(table with key or sortKey expected, got number"),
        ("q:AddAsync(1)", "invalid argument #2 to 'AddAsync' (number from 0 to 3888000 expected"),
        ("q:AddAsync(1, 1, 1/0)", "invalid argument #3 to 'AddAsync' (finite number expected"),
        ("q:ReadAsync(0)", "invalid argument #1 to 'ReadAsync' (number from 1 to 100 expected"),
        ("q:ReadAsync(1, true, 'x')", "invalid argument #3 to 'ReadAsync' (number expected"),
        ("m:GetQueue('q', -1)", "invalid argument #2 to 'GetQueue' (number from 0 to 3888000"),
        ("h.GetAsync(s, 'k')", "Expected ':' not '.' calling member function GetAsync"),
    ],
)  # fmt: skip
def test_invalid_memory_store_calls_have_clear_errors(call: str, message: str) -> None:
    world = run(
        f"""
        local h, s, q = m:GetHashMap('h'), m:GetSortedMap('s'), m:GetQueue('q')
        print(pcall(function() {call} end))
        """,
        2,
    )
    (line,) = world.printed()
    assert line.startswith("false\t")
    assert message in line


def test_full_store_refuses_values_until_others_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_rows, "MOST_ROWS", 2)
    monkeypatch.setattr(memory_rows, "MOST_BYTES", 20)
    world = run(
        """
        local h, q = m:GetHashMap('h'), m:GetQueue('q')
        h:SetAsync('long', 1, 9)
        q:AddAsync(2, 0.1)
        print(pcall(function() h:SetAsync('third', 3, 9) end))
        print(pcall(function() h:SetAsync('long', string.rep('x', 20), 9) end))
        print(h:SetAsync('long', 5, 9), h:GetAsync('long'))
        pause(6)
        print(h:SetAsync('third', 3, 9))
        """,
        20,
    )
    full = "MemoryStoreService is full, at 10000 values or 8 MiB"
    assert world.printed() == [
        f"false\tscript:8: SetAsync: {full}",
        f"false\tscript:9: SetAsync: {full}",
        "true\t5",
        "true",
    ]


def test_world_without_memory_stores_has_an_unchanged_snapshot() -> None:
    world = Bench().begin()
    world.tick()
    text = world.document()
    assert "memory_stores" not in json.loads(text)["services"]
    assert "MemoryStore" not in text
    world.run("m = game:GetService('MemoryStoreService') m:GetHashMap('h'):GetAsync('k')")
    world.tick(2)
    assert "memory_stores" not in json.loads(world.document())["services"]


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        ('"[1]"', '"[1"', "."),
        ('["queue", "MemoryStoreQueue/q", 1,', '["queue", 7, 1,', "a thread that reads from a qu"),
    ],
)
def test_damaged_memory_stores_are_refused(was: str, becomes: str, message: str) -> None:
    world = run("m:GetHashMap('h'):SetAsync('k', {1}, 9) m:GetQueue('q'):ReadAsync(1)", 2)
    text = world.document()
    assert was in text
    with pytest.raises(ValueError, match=message):
        Bench().restore(text.replace(was, becomes))


KEYS = st.sampled_from(["a", "b", ""])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(1, 4), st.sampled_from([None, 1, "x"])),
        st.tuples(st.just("remove"), KEYS),
        st.tuples(st.just("add"), st.integers(1, 6), st.integers(-1, 1)),
        st.tuples(st.just("read"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("drop"), st.integers(0, 9)),
    ),
    max_size=30,
)


@given(STEPS)
def test_memory_rows_match_a_plain_model_even_after_a_restore(
    steps: list[tuple[Any, ...]],
) -> None:
    rows, kept, queue = MemoryRows(), {}, {}
    for tick, (verb, *rest) in enumerate(steps):
        if verb == "put":
            key, life, order = rest
            item = Item(str(tick), tick + life, order)
            rows.put("m", key, item, tick)
            kept[key] = item
        elif verb == "remove":
            rows.remove("m", rest[0])
            kept.pop(rest[0], None)
        elif verb == "add":
            rows.add("q", QueuedItem(str(tick), tick + rest[0], rest[1]), tick)
            queue[str(tick)] = [tick + rest[0], -rest[1], tick, 0, 0]
        elif verb == "read":
            count, only_all = rest
            reading, values = rows.read("q", count, only_all=only_all, tick=tick, hidden=2)
            ready = {text: row for text, row in queue.items() if row[3] <= tick < row[0]}
            expected = sorted(ready, key=lambda text: ready[text][1:3])[:count]
            assert values == ([] if only_all and len(expected) < count else expected)
            for text in values:
                queue[text][3:] = tick + 2, reading
        else:
            rows.drop("q", rest[0], tick)
            for text in [text for text, row in queue.items() if row[4] == rest[0] > 0]:
                if tick < queue[text][3]:
                    del queue[text]
        alive = {key: item for key, item in kept.items() if tick < item.expires}
        assert {key: rows.find("m", key, tick) for key in alive} == alive
        assert dict(rows.select("m", None, None, tick)) == alive
        document = json.loads(json.dumps(rows.document(None)))
        again = MemoryRows()
        again.restore(document, None)
        assert again.document(None) == document
        assert (again._count, again._size) == (rows._count, rows._size)
        rows = again


def test_map_keeps_its_values_when_a_write_finds_it_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_rows, "MOST_BYTES", 5)
    rows = MemoryRows()
    rows.put("m", "k", Item("1", 9), 0)
    with pytest.raises(RowsFull):
        rows.put("m", "k", Item("123456", 9), 0)
    assert rows.find("m", "k", 0) == Item("1", 9)


def test_full_store_is_searched_for_expired_values_at_most_once_per_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[int] = []
    drop = memory_rows._drop_expired

    def count(stores: dict[str, Any], tick: int) -> None:
        searches.append(tick)
        drop(stores, tick)

    monkeypatch.setattr(memory_rows, "_drop_expired", count)
    monkeypatch.setattr(memory_rows, "MOST_ROWS", 2)
    rows = MemoryRows()
    rows.put("m", "a", Item("1", 3), 0)
    rows.put("m", "b", Item("1", 9), 0)
    for tick in (1, 1, 2, 3, 3, 4, 4):
        with contextlib.suppress(RowsFull):
            rows.put("m", f"new {tick}", Item("1", tick + 1), tick)
            rows.put("m", "another", Item("1", 9), tick)
    assert searches == [3, 3, 4, 4]  # maps and queues
