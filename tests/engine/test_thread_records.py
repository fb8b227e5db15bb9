"""Counting and rate limiting of thread errors in the log."""

from __future__ import annotations

from clawblox.engine.errors import WorldHalted
from clawblox.engine.slots import Slots
from clawblox.engine.thread_records import ThreadErrors


def error(at: int, text: str = "no") -> WorldHalted:
    return WorldHalted("End frame error", f"main.lua:{at}: {text}", f"main.lua:{at}\nmain.lua:99\n")


def test_place_is_logged_again_after_a_second_with_the_number_of_omitted_errors() -> None:
    logged: list[tuple[str, int]] = []
    errors = ThreadErrors(lambda failure, left_out: logged.append((failure.reason, left_out)))
    for tick in (0, 1, 59, 60, 61):
        errors.add(error(1, f"at {tick}"), tick)
    errors.add(error(2), 61)
    assert logged == [("main.lua:1: at 0", 0), ("main.lua:1: at 60", 2), ("main.lua:2: no", 0)]
    assert (errors.count, errors.last) == (6, "End frame error: main.lua:2: no")


def test_places_per_second_are_limited_but_all_errors_are_counted() -> None:
    logged: list[str] = []
    errors = ThreadErrors(lambda failure, _: logged.append(failure.reason))
    for at in range(1000):
        errors.add(error(at), 0)
    assert len(logged) == 257  # the last line represents all other places
    assert errors.count == 1000
    errors.add(error(5000), 60)
    assert logged[-1] == "main.lua:5000: no"


def test_long_error_text_is_truncated() -> None:
    errors = ThreadErrors(lambda *_: None)
    errors.add(error(1, "x" * 10_000), 0)
    assert len(errors.last) == 1000


def test_error_counts_and_log_continue_after_a_restore() -> None:
    logged: list[int] = []
    errors, restored = (ThreadErrors(lambda _, left: logged.append(left)) for _ in range(2))
    for tick in range(30):
        errors.add(error(1), tick)
    restored.restore(errors.document(Slots()), Slots())
    restored.add(error(1), 59)
    restored.add(error(1), 60)
    assert (restored.count, logged) == (32, [0, 30])
