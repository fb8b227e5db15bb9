"""The lead time of the signal that pauses a batch job."""

from __future__ import annotations

from clawblox.experiment.tables.lead_time import LeadTime, find_lead_time
from tests.experiment.journals import Journal, make_plan


def test_lead_time_without_a_measured_save_is_the_default() -> None:
    journal = Journal()
    journal.open("r1", 1).work().checkpoint()  # of a version that did not measure it
    assert find_lead_time(make_plan(), journal.lines) == LeadTime(pause_s=None, lead_s=300)


def test_the_lead_time_is_twice_the_pause_time_in_whole_minutes() -> None:
    journal = Journal()
    attempt = journal.open("r1", 1).work()
    for save_s in (1.0, 40.0, 2.0):
        attempt.checkpoint(save_s=save_s)
    one, both = make_plan(limits={"worlds": 1}), make_plan(limits={"worlds": 9})
    assert find_lead_time(one, journal.lines) == LeadTime(pause_s=55.0, lead_s=120)
    assert find_lead_time(both, journal.lines) == LeadTime(pause_s=95.0, lead_s=240)
