"""Repeated events are reported immediately, and then once a minute."""

from __future__ import annotations

from clawblox.telemetry.throttle import Rate, Throttle


def test_an_event_is_reported_immediately_and_then_once_a_minute() -> None:
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


def test_a_rate_admits_a_burst_and_then_a_constant_amount_per_second() -> None:
    rate = Rate(1000.0, 2000.0)
    assert sum(rate.admits(100.0) for _ in range(5000)) == 2000
    admitted = sum(rate.admits(100.0 + number / 10_000) for number in range(1, 50_001))
    assert 4999 <= admitted <= 5001
    assert sum(rate.admits(1000.0, 100.0) for _ in range(50)) == 20
    assert not rate.admits(900.0)  # a clock that goes backwards admits no more
