"""What happens again and again is told at once, and then once a minute."""

from __future__ import annotations

from clawblox.telemetry.throttle import Throttle


def test_it_is_told_at_once_and_then_once_a_minute() -> None:
    now = 100.0
    throttle = Throttle(lambda: now)
    assert throttle.count() == 1
    assert [throttle.count() for _ in range(5)] == [0] * 5
    now += 59.9
    assert throttle.count() == 0
    now += 0.1
    assert throttle.count() == 7
    assert throttle.count() == 0
    now += 1000.0
    assert throttle.count() == 2
