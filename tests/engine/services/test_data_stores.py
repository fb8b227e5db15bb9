"""DataStoreService: answers at fixed ticks, and requests in a snapshot."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from clawblox.engine.datastore import worker as worker_module
from clawblox.engine.datastore.sqlite import SqliteStore
from clawblox.engine.datastore.store import (
    Answer,
    Info,
    Read,
    Request,
    Row,
    Store,
    StoreError,
)
from clawblox.engine.errors import WorldHalted
from clawblox.engine.services import data_stores
from tests.engine.services.bench import Bench
from tests.support.sampling import sampled


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    yield made
    made.close()


def script(world: Bench, source: str) -> None:
    world.run(f"local d = DataStoreService:GetDataStore('d')\n{source}")


def test_request_is_answered_at_the_start_of_the_next_tick(world: Bench) -> None:
    script(world, "d:SetAsync('k', {a = 1, b = {2, 'x'}}) print('set') print(d:GetAsync('k').b[2])")
    assert world.printed() == []
    world.tick()
    assert world.printed() == []  # started before tick 0, so part of that tick
    world.tick()
    assert world.printed() == ["set"]
    world.tick()
    assert world.printed() == ["x"]


def test_update_async_reads_and_writes_within_two_ticks(world: Bench) -> None:
    script(
        world,
        """
        RunService.Stepped:Once(function()
            print((d:UpdateAsync('n', function(old) print('old', old) return (old or 0) + 5 end)))
            print((d:GetAsync('n')))
        end)
        """,
    )
    world.tick()
    assert world.printed() == []
    world.tick()
    assert world.printed() == ["old\tnil"]
    world.tick()
    assert world.printed() == ["5"]
    world.tick()
    assert world.printed() == ["5"]


def test_updates_of_one_tick_do_not_lose_each_other(world: Bench) -> None:
    script(
        world,
        """
        RunService.Stepped:Once(function() d:SetAsync('n', 1) end)
        for i = 1, 3 do
            RunService.Stepped:Once(function()
                d:UpdateAsync('n', function(old) return old * 10 + i end)
            end)
        end
        RunService.Stepped:Once(function() d:SetAsync('n', 7) end)
        """,
    )
    world.tick(4)
    script(world, "print((d:GetAsync('n')))")
    world.tick(2)
    assert world.printed() == ["7123"]


def test_update_that_returns_nil_does_not_write(world: Bench) -> None:
    script(world, "d:SetAsync('n', 1) print(d:UpdateAsync('n', function() end), (d:GetAsync('n')))")
    world.tick(5)
    assert world.printed() == ["nil\t1"]


INFO = """
local function shown(value, info)
    if info == nil then return `{value} without info` end
    local metadata, ids = info:GetMetadata(), info:GetUserIds()
    assert(metadata ~= info:GetMetadata() and typeof(info) == 'DataStoreKeyInfo')
    local said = `{#ids} {ids[1]} {metadata.level}`
    return `{value} {info.CreatedTime} {info.UpdatedTime} {info.Version} {said}`
end
print(select('#', d:GetAsync('n')), d:SetAsync('n', 1, {7, 8}), shown(d:GetAsync('n')))
local seen
print(shown(d:UpdateAsync('n', function(old, info)
    seen = shown(old, info)
    return old + 1, info:GetUserIds(), {level = '\\u{2603}'}
end)))
print(seen, shown(d:GetAsync('n')))
print(shown(d:IncrementAsync('n', 5)))
print(shown(d:RemoveAsync('n')))
print(select('#', d:GetAsync('n')), d:RemoveAsync('n'))
print(shown(d:UpdateAsync('n', function(old, info) return tostring(info) end)))
local o = DataStoreService:GetOrderedDataStore('o')
print(o:SetAsync('n', 1), shown(o:GetAsync('n')))
print(shown(o:UpdateAsync('n', function(old, info) return 2, {7}, {level = 1} end)))
print(pcall(d.SetAsync, d, 'n', 1, 'me'))
print(pcall(function() d:UpdateAsync('n', function() return 1, {}, 5 end) end))
"""
TOLD = [
    "1\t0000000001\t1 17 17 0000000001 2 7 nil",
    "2 17 67 0000000002 2 7 \xe2\x98\x83",
    "1 17 17 0000000001 2 7 nil\t2 17 67 0000000002 2 7 \xe2\x98\x83",
    "7 17 117 0000000003 0 nil nil",
    "7 17 117 0000000003 0 nil nil",
    "1\tnil",
    "nil 200 200 0000000006 0 nil nil",
    "nil\t1 without info",
    "2 without info",
    "false\tSetAsync: user_ids must be a table, not string",
    "false\tscript:25: UpdateAsync: metadata must be a table, not number",
]


def test_key_info_has_the_times_and_metadata_of_a_value(world: Bench) -> None:
    script(world, INFO)
    world.tick(20)
    assert world.printed() == TOLD


@pytest.mark.parametrize("at", sampled([0, 3, 4, 5, 8, 12], every=3))
def test_key_info_is_restored_from_a_snapshot(tmp_path: Path, at: int) -> None:
    first = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    script(first, INFO)
    first.tick(at)
    text, lines = first.document(), first.printed()
    first.close()
    second = Bench(SqliteStore(tmp_path / "rows.db")).restore(text)
    assert second.document() == text
    second.tick(20)
    assert [*lines, *second.printed()] == TOLD
    second.close()


def test_metadata_from_options_is_stored_with_the_value_even_after_a_restore(
    world: Bench, tmp_path: Path
) -> None:
    script(
        world,
        """
        local options = Instance.new('DataStoreSetOptions')
        print(next(options:GetMetadata()))
        options:SetMetadata({kind = '\\u{2603}', list = {1}})
        print(pcall(options.SetMetadata, options, {print}))
        print(pcall(options.SetMetadata, options, 5))
        RunService.Heartbeat:Wait()
        d:SetAsync('n', 1, nil, options)
        local _, info = d:GetAsync('n')
        print(info:GetMetadata().kind, info:GetMetadata().list[1], #info:GetUserIds())
        """,
    )
    restored = Bench(SqliteStore(tmp_path / "rows.db")).restore(world.document())
    restored.tick(5)
    assert world.printed() == [
        "nil",
        "false\tSetMetadata: function has no JSON form",
        "false\tinvalid argument #1 to 'SetMetadata' (table expected, got number)",
    ]
    assert restored.printed() == ["\xe2\x98\x83\t1\t0"]
    restored.close()


def test_stores_with_different_scopes_have_separate_rows(world: Bench) -> None:
    world.run(
        """
        local options = Instance.new('DataStoreOptions')
        options:SetExperimentalFeatures({v2 = true})
        local plain = DataStoreService:GetDataStore('s')
        local eu = DataStoreService:GetDataStore('s', 'eu', options)
        print(plain == DataStoreService:GetDataStore('s', 'global', options), plain == eu)
        print(eu == DataStoreService:GetDataStore('s', 'eu'))
        plain:SetAsync('k', 1)
        eu:SetAsync('k', 2)
        print((plain:GetAsync('k')), (eu:GetAsync('k')))
        """
    )
    world.tick(6)
    assert world.printed() == ["true\tfalse", "true", "1\t2"]


PROFILES = """
local d = DataStoreService:GetDataStore('Profiles', 'live')
local function load(session)
    return d:UpdateAsync('Player_1', function(latest, info)
        if latest == nil then latest = {Data = {coins = 0}, MetaData = {loads = 0}} end
        if latest.MetaData.session and latest.MetaData.session[1] ~= session then
            return nil
        end
        latest.MetaData.session = {session}
        latest.MetaData.loads += 1
        return latest, latest.UserIds, latest.RobloxMetaData
    end)
end
local function save(session, data, release)
    return d:UpdateAsync('Player_1', function(latest)
        if latest.MetaData.session[1] == session then
            latest.Data = data
            latest.UserIds = {1}
            if release then latest.MetaData.session = nil end
        end
        return latest, latest.UserIds, latest.RobloxMetaData
    end)
end
local profile, info = load('a')
print(profile.Data.coins, profile.MetaData.loads, info.Version)
print(load('b'))
profile.Data.coins = 5
local saved, later = save('a', profile.Data)
print(saved.MetaData.session[1], later:GetUserIds()[1], later.Version)
print(save('a', profile.Data, true).MetaData.session)
profile, info = load('b')
print(profile.Data.coins, profile.MetaData.loads, info.CreatedTime < info.UpdatedTime)
"""


def test_a_profile_is_loaded_saved_released_and_loaded_by_another_session(world: Bench) -> None:
    world.run(PROFILES)
    world.tick(14)
    assert world.printed() == [
        "0\t1\t0000000001",
        "nil",
        "a\t1\t0000000002",
        "nil",
        "5\t2\ttrue",
    ]


def test_update_sees_the_info_of_earlier_updates_in_the_same_tick(world: Bench) -> None:
    script(
        world,
        """
        for i = 1, 3 do
            RunService.Stepped:Once(function()
                d:UpdateAsync('n', function(old, info)
                    print(old, info and info.Version, info and info:GetUserIds()[1])
                    return i, {i}
                end)
            end)
        end
        """,
    )
    world.tick(2)
    assert world.printed() == ["nil\tnil\tnil", "1\t0000000001\t1", "2\t0000000002\t2"]


def test_requests_of_an_older_engine_are_answered(tmp_path: Path) -> None:
    first = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    script(first, "d:SetAsync('k', 5) print('set')")
    script(first, "print(d:GetAsync('k'))")
    script(first, "print((d:UpdateAsync('k', function(old, info) return old + #info.Version end)))")
    first.tick()
    text = first.document()
    first.close()
    document = json.loads(text)
    stores = document["services"]["data_stores"]
    assert [call[2] for call in stores["sent"]] == [
        ["write", "d", "k", "5"],
        ["read", "d", "k"],
        ["read", "d", "k"],
    ]
    stores["answers"] = [None, "5", "5"]
    second = Bench(SqliteStore(tmp_path / "rows.db")).restore(json.dumps(document))
    second.tick(2)
    assert second.printed() == ["set", "5\tDataStoreKeyInfo", "15"]
    second.close()


def test_increment_adds_to_a_number_and_returns_the_sum(world: Bench) -> None:
    script(
        world,
        """
        print(d:IncrementAsync('n'), d:IncrementAsync('n', 4), (d:IncrementAsync('n', -2.5)))
        print((d:GetAsync('n')))
        d:SetAsync('word', 'x')
        print(pcall(function() return d:IncrementAsync('word') end))
        print(pcall(function() return d:IncrementAsync('n', 'x') end))
        print(pcall(function() return d:IncrementAsync('n', 1 / 0) end))
        """,
    )
    world.tick(14)
    refusal = "script:5: invalid argument #2 to 'IncrementAsync' (finite number expected)"
    first, second, word, *refused = world.printed()
    assert (first, second) == ("1\t5\t2.5", "2.5")
    assert word.endswith("IncrementAsync needs a number in the store, not string")
    assert [each.partition(": ")[2] for each in refused] == [refusal.partition(": ")[2]] * 2


def test_increment_in_an_ordered_store_changes_only_the_score(world: Bench) -> None:
    world.run(
        """
        local o = DataStoreService:GetOrderedDataStore('o')
        print(o:IncrementAsync('new', 3))
        o:SetAsync('old', {score = 5, name = 'Ann'})
        print(o:IncrementAsync('old'))
        local old = o:GetAsync('old')
        print(old.score, old.name, o:GetAsync('new'))
        local first = o:GetSortedAsync(false, 1)[1]
        print(first.key, first.value.score)
        """
    )
    world.tick(14)
    assert world.printed() == ["3", "6", "6\tAnn\t3", "old\t6"]


def test_ordered_store_returns_plain_numbers_among_tables(world: Bench) -> None:
    world.run(
        """
        local o = DataStoreService:GetOrderedDataStore('o')
        o:SetAsync('bare', 30)
        o:SetAsync('table', {score = 20})
        print(o:UpdateAsync('bare', function(old) return old / 2 end))
        print(o:GetAsync('bare'), o:IncrementAsync('bare', 10), o:GetAsync('bare'))
        for _, entry in o:GetSortedAsync(false) do
            print(entry.key, typeof(entry.value), entry.value == 25 or entry.value.score)
        end
        """
    )
    world.tick(12)
    assert world.printed() == ["15", "15\t25\t25", "bare\tnumber\ttrue", "table\ttable\t20"]


def test_concurrent_increments_are_all_applied_even_across_a_restore(
    world: Bench, tmp_path: Path
) -> None:
    script(
        world,
        """
        for i = 1, 3 do
            RunService.Stepped:Once(function() print((d:IncrementAsync('n', i))) end)
        end
        """,
    )
    world.tick()
    restored = Bench(SqliteStore(tmp_path / "rows.db")).restore(world.document())
    restored.tick(3)
    assert restored.printed() == ["1", "3", "6"]
    restored.close()


def test_remove_async_stores_a_null_that_reads_as_nil(world: Bench, tmp_path: Path) -> None:
    script(world, "d:SetAsync('k', 1) d:RemoveAsync('k') print(d:GetAsync('k'))")
    world.tick(5)
    assert world.printed() == ["nil"]
    world.close()
    store = SqliteStore(tmp_path / "rows.db")
    assert store.execute("game", [Read("d", "k")]) == [Row("null", Info(0, 17, 2))]
    store.close()


def test_sorted_entries_have_key_and_value(world: Bench) -> None:
    world.run(
        """
        local o = DataStoreService:GetOrderedDataStore('o')
        for i, key in {'c', 'a', 'b'} do
            RunService.Stepped:Once(function() o:SetAsync(key, {score = i // 2, n = i}) end)
        end
        RunService.Stepped:Once(function()
            o:RemoveAsync('word')
            o:SetAsync('word', {score = 'x'})
        end)
        RunService.Heartbeat:Wait()
        RunService.Heartbeat:Wait()
        RunService.Heartbeat:Wait()
        for _, ascending in {true, false} do
            local line = {}
            for i, entry in o:GetSortedAsync(ascending, 4) do
                table.insert(line, `{i} {entry.key} {entry.value.score}`)
            end
            print(table.concat(line, ', '))
        end
        print(#o:GetSortedAsync(false, 2), #o:GetSortedAsync(true))
        """
    )
    world.tick(9)
    assert world.printed() == [
        "1 c 0, 2 a 1, 3 b 1, 4 word x",
        "1 a 1, 2 b 1, 3 c 0, 4 word x",
        "2\t4",
    ]


PAGES = """
local o = DataStoreService:GetOrderedDataStore('o')
for i = 1, 7 do
    RunService.Stepped:Once(function() o:SetAsync(i, i * 10) end)
end
RunService.Heartbeat:Wait()
RunService.Heartbeat:Wait()
RunService.Heartbeat:Wait()
local pages = o:GetSortedAsync(true, 3, 20)
local function shown(list)
    local line = {}
    for i, entry in ipairs(list) do table.insert(line, `{i}:{entry.key}={entry.value}`) end
    return table.concat(line, ' ')
end
while true do
    print(pages.IsFinished, shown(pages:GetCurrentPage()), '|', #pages, shown(pages))
    if pages.IsFinished then break end
    local kept = pages:GetCurrentPage()
    print(pages:AdvanceToNextPageAsync())
    assert(kept ~= pages:GetCurrentPage())
end
print(pcall(pages.AdvanceToNextPageAsync, pages))
print(pcall(pages.AdvanceToNextPageAsync, {}))
print(pages[4], pages.Nothing, next(pages), #table.clone(pages))
"""
PRINTED = [
    "false\t1:2=20 2:3=30 3:4=40\t|\t3\t1:2=20 2:3=30 3:4=40",
    "",
    "true\t1:5=50 2:6=60 3:7=70\t|\t3\t1:2=20 2:3=30 3:4=40",
    "false\tAdvanceToNextPageAsync: this is the last page; look at IsFinished first",
    "false\tExpected ':' not '.' calling member function AdvanceToNextPageAsync",
]


def test_get_sorted_async_returns_pages_with_the_first_page_as_array(world: Bench) -> None:
    world.run(PAGES)
    world.tick(12)
    assert world.printed() == [*PRINTED, "nil\tnil\t1\t3"]


@pytest.mark.parametrize("at", sampled(range(8), every=3))
def test_pages_continue_after_a_restore_with_their_current_rows(tmp_path: Path, at: int) -> None:
    first = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    first.run(PAGES)
    first.tick(at)
    text, lines = first.document(), first.printed()
    first.close()
    second = Bench(SqliteStore(tmp_path / "rows.db")).restore(text)
    assert second.document() == text
    second.tick(12)
    assert [*lines, *second.printed()][:-1] == PRINTED
    second.close()


def test_pages_survive_a_changed_metatable_even_while_waiting(world: Bench) -> None:
    world.run(
        """
        local o = DataStoreService:GetOrderedDataStore('o')
        for i = 1, 5 do o:SetAsync(i, i) end
        local pages = o:GetSortedAsync(true, 2)
        local meta, current = getmetatable(pages), pages.GetCurrentPage
        coroutine.wrap(function() pages:AdvanceToNextPageAsync() print('advanced') end)()
        table.freeze(meta.__index)
        local taken = setmetatable({}, {pages = meta.pages})
        meta.pages = 5
        o:GetAsync(1)
        o:GetAsync(1)
        print(pcall(current, pages))
        print(current(taken)[1].key, pcall(function() return meta.pages.page end))
        print(#setmetatable(pages, nil), pages.IsFinished)
        """
    )
    world.tick(12)
    advanced, refused, *rest = world.printed()
    assert advanced == "advanced"
    assert refused.endswith("Expected ':' not '.' calling member function GetCurrentPage")
    assert rest[0].startswith("3\tfalse\t")
    assert rest[1] == "2\tnil"


def test_page_length_is_limited(world: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_stores, "MOST_ROWS", 2)
    world.run(
        """
        local o = DataStoreService:GetOrderedDataStore('o')
        for i = 1, 3 do RunService.Stepped:Once(function() o:SetAsync(i, i) end) end
        RunService.Heartbeat:Wait()
        RunService.Heartbeat:Wait()
        RunService.Heartbeat:Wait()
        local pages, none = o:GetSortedAsync(true, 1e9), o:GetSortedAsync(true, 0)
        print(#pages, pages.IsFinished, #none, none.IsFinished)
        print(pcall(function() o:GetSortedAsync(true, 1, 0 / 0) end))
        """
    )
    world.tick(9)
    counts, refused = world.printed()
    assert counts == "2\tfalse\t0\ttrue"
    assert refused.endswith("invalid argument #3 to 'GetSortedAsync' (number expected, got NaN)")


SECOND = '["sorted", "o", true, 3, 20.0, null, [40.0, "4"]]'
ROWS = '"answers": [[["5", "50"], ["6", "60"], ["7", "70"]]]'


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        (SECOND, '["read", "o", "4"]', "cannot continue with its request"),
        (SECOND, '["sorted", "o", true]', "is damaged at a request to a data store"),
        (ROWS, '"answers": ["50"]', "has the answer to another request"),
    ],
)
def test_damaged_pages_are_refused(tmp_path: Path, was: str, becomes: str, message: str) -> None:
    first = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    first.run(PAGES)
    first.tick(4)
    text = first.document()
    first.close()
    assert was in text
    with pytest.raises(ValueError, match=message):
        Bench().restore(text.replace(was, becomes))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("d:SetAsync('k', print)", "Failed to serialize value to JSON: function has no JSON form"),
        ("d:SetAsync('k', {0/0})", "Failed to serialize value to JSON: nan has no JSON form"),
        ("o:SetAsync('k', 'x')", "value must have a 'score' field, or be a number"),
        ("o:SetAsync('k', 0/0)", "Failed to serialize value to JSON: nan has no JSON form"),
        ("o:SetAsync('k', {points = 5})", "OrderedDataStore value must have a 'score' field"),
        ("o:UpdateAsync('k', function() return {} end)", "OrderedDataStore value must have a"),
        ("d:UpdateAsync('k', function() error('mine', 0) end)", "mine"),
        ("d:GetAsync('\\xff')", "Database error in GetAsync: a string is not valid UTF-8"),
        ("d:GetAsync(0/0)", "invalid argument #1 to 'GetAsync' (string expected, got NaN)"),
        ("d:GetDataStore('x')", "'GetDataStore' is not a valid member of DataStore 'd'"),
    ],
)  # fmt: skip
def test_invalid_data_store_calls_have_clear_errors(world: Bench, call: str, message: str) -> None:
    script(
        world,
        f"""
        local o = DataStoreService:GetOrderedDataStore('o')
        print(pcall(function() {call} end))
        """,
    )
    world.tick(4)
    (line,) = world.printed()
    assert line.startswith("false\t")
    assert message in line


def test_stores_can_be_opened_without_a_database_but_requests_fail() -> None:
    world = Bench().begin()
    script(world, "print(pcall(d.GetAsync, d, 'k'))")
    assert world.printed() == ["false\tDataStoreService not available (no database connection)"]


class Failing:
    """A database that fails while `reason` is set."""

    def __init__(self, store: Store) -> None:
        self.reason: str | None = None
        self.executed: list[Request] = []
        self._store = store

    def execute(self, game_id: str, requests: Sequence[Request]) -> list[Answer | StoreError]:
        if self.reason is not None:
            raise StoreError(self.reason)
        self.executed += requests
        return self._store.execute(game_id, requests)

    def copier(self) -> Callable[[Path], None] | None:
        return self._store.copier()

    def close(self) -> None:
        self._store.close()


@pytest.fixture
def store(tmp_path: Path) -> Failing:
    return Failing(SqliteStore(tmp_path / "rows.db"))


def test_lost_database_raises_a_script_error_and_is_logged(
    store: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    world = Bench(store).begin()
    script(world, "local n = 0\nwhile true do n += 1\nprint(pcall(function()\nreturn "
           "d:GetAsync(`{n}`) end)) end")  # fmt: skip
    store.reason = "gone"
    world.tick(3)
    assert world.printed() == ["false\tscript:5: Database error in GetAsync: gone"] * 2
    assert caplog.messages == ["data store 'd': Database error in GetAsync: gone"] * 2
    store.reason = None
    world.tick(2)
    assert world.printed() == ["true\tnil"] * 2
    world.close()


def test_tick_waits_only_once_for_a_stuck_database_and_requests_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "MAX_WAIT_S", 0.01)
    free = threading.Event()

    class Stuck:
        def execute(self, game_id: str, requests: Sequence[Request]) -> list[Answer | StoreError]:
            free.wait()
            return [Row("1")] * len(requests)

        def close(self) -> None:
            return

    world = Bench(Stuck()).begin()
    script(world, "while true do print(pcall(d.GetAsync, d, 'k')) end")
    world.tick(4)
    reasons = ["no answer within 0.01 s", *["the database has not answered an earlier request"] * 2]
    for line, reason in zip(world.printed(), reasons, strict=True):
        assert line.startswith(f"false\tDatabase error in GetAsync: {reason}")
    free.set()
    world.worker.close()  # the first request has been answered by now, but too late
    world.tick(2)
    assert world.printed()[-1] == "true\t1\tDataStoreKeyInfo"
    world.close()


def test_uncaught_database_error_halts_the_world(store: Failing) -> None:
    world = Bench(store).begin()
    store.reason = "gone"
    script(world, "\nd:SetAsync('k', 1)")
    world.tick()
    with pytest.raises(WorldHalted) as caught:
        world.tick()
    assert str(caught.value) == "Begin frame error: script:3: Database error in SetAsync: gone"
    assert caught.value.traceback == "script:3\n"
    world.close()


SHARED = """
local d = DataStoreService:GetDataStore('d')
local same = DataStoreService:GetDataStore('d')
local log = {}
local function count()
    while true do
        local ok, value = pcall(function()
            return d:UpdateAsync('n', function(old) return (old or 0) + 1 end)
        end)
        print(ok, value, d == same, DataStoreService:GetDataStore('d') == d)
        print((d:GetAsync('n')))
        d:SetAsync('other', {value})
    end
end
coroutine.wrap(count)()
coroutine.wrap(function() while true do print(#(d:GetAsync('other') or {})) end end)()
game:BindToClose(function() print('closed', d ~= nil) end)
"""


@pytest.mark.parametrize("at", sampled(range(8), every=3))
def test_pending_requests_continue_exactly_in_a_restored_world(tmp_path: Path, at: int) -> None:
    first = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    first.run(SHARED)
    first.tick(at)
    text = first.document()
    first.close()  # requests are not carried out after the snapshot
    (tmp_path / "copy.db").write_bytes((tmp_path / "rows.db").read_bytes() if at else b"")
    worlds = [Bench(SqliteStore(tmp_path / name)).restore(text) for name in ("rows.db", "copy.db")]
    assert worlds[0].document() == text
    for world in worlds:
        world.tick(6)
    documents = [world.document() for world in worlds]
    lines = [world.printed() for world in worlds]
    for world in worlds:
        world.close()
    assert lines[0] == lines[1]
    assert len(lines[0]) > 6
    assert all(line.startswith(("true", "closed")) or line.isdigit() for line in lines[0])
    assert documents[0] == documents[1]


def test_completed_request_is_not_repeated_after_a_restore(
    store: Failing,
) -> None:
    first = Bench(store).begin()
    script(first, "print(d:GetAsync('k')) d:SetAsync('k', 2) print(d:GetAsync('k'))")
    script(first, "d:SetAsync('k', 1) print('set')")
    first.tick()
    text = first.document()
    done = len(store.executed)
    written = {"value": "null", "info": [0, 0, 1, ""]}
    assert json.loads(text)["services"]["data_stores"]["answers"] == [None, written]
    first.tick(2)
    first.close()
    assert len(store.executed) > done
    second = Bench(store).restore(text)
    store.executed.clear()
    second.tick()  # the row is 2 by now, but the answer is from the snapshot
    assert second.printed() == ["nil", "set"]
    second.close()
    assert [type(request).__name__ for request in store.executed] == ["WriteRequest"]


ABSENT = "Database error in UpdateAsync: DataStoreService not available (no database connection)"


@pytest.mark.parametrize(
    ("at", "line"),
    [(0, f"false\t{ABSENT}"), (1, f"false\t{ABSENT}"), (2, "true\t1\tDataStoreKeyInfo")],
)
def test_pending_requests_fail_after_a_restore_without_a_database(
    tmp_path: Path, at: int, line: str
) -> None:
    first = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    script(first, "print(pcall(d.UpdateAsync, d, 'k', function() return 1 end))")
    first.tick(at)
    text = first.document()
    first.close()
    second = Bench().restore(text)
    second.tick(3)
    assert second.printed() == [line]


def test_closing_carries_out_the_requests_of_bind_to_close(tmp_path: Path) -> None:
    world = Bench(SqliteStore(tmp_path / "rows.db")).begin()
    script(world, "game:BindToClose(function() d:SetAsync('k', 'end') end)")
    world.tick()
    world = Bench(SqliteStore(tmp_path / "rows.db")).restore(world.document())
    assert world.services.at_close.close() == []
    world.services.data_stores.close()
    store = SqliteStore(tmp_path / "rows.db")
    assert store.execute("game", [Read("d", "k")]) == [Row('"end"', Info(17, 17, 1))]
    store.close()
