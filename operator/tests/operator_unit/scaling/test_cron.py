"""docs/concepts/autoscaling.md: schedules are five fields of cron in a time zone; where several hold, the largest bounds do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_operator.api.autoscaling import Schedule
from llmendpoint_operator.core.scaling.bounds import find_bounds
from llmendpoint_operator.core.scaling.cron import CronError, parse_cron

from ..scaling_stage import rules

MONDAY = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", "2026-01-05T12:30"),
        ("30 12 * * *", "2026-01-05T12:30"),
        ("31 12 * * *", "2026-01-04T12:31"),
        ("30 7 * * mon-fri", "2026-01-05T07:30"),
        ("0 8 * * 0", "2026-01-04T08:00"),
        ("0 8 * * 7", "2026-01-04T08:00"),
        ("0 8 * * SUN", "2026-01-04T08:00"),
        ("*/20 * * * *", "2026-01-05T12:20"),
        ("5/20 * * * *", "2026-01-05T12:25"),
        ("0 8-18/4 * * *", "2026-01-05T12:00"),
        ("0 0 1,15 * *", "2026-01-01T00:00"),
        ("0 0 1 dec *", "2025-12-01T00:00"),
        ("0 0 3 * fri", "2026-01-03T00:00"),  # either day
        ("0 0 29 2 *", "2024-02-29T00:00"),
    ],
)
def test_when_a_cron_last_came(text: str, expected: str) -> None:
    found = parse_cron(text).last(MONDAY)
    assert found is not None
    assert found.isoformat(timespec="minutes").removesuffix("+00:00") == expected


def test_a_day_that_never_comes_has_no_last_time() -> None:
    assert parse_cron("0 0 31 2 *").last(MONDAY) is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("* * * *", "4 fields"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of the month"),
        ("* * * foo *", "month"),
        ("* * * * 5-1", "day of the week"),
        ("*/0 * * * *", "minute"),
        ("a * * * *", "minute"),
        ("1-2-3 * * * *", "minute"),
        ("1,, * * * *", "minute"),
    ],
)
def test_what_is_no_cron_is_refused_with_the_field(text: str, field: str) -> None:
    with pytest.raises(CronError, match=field):
        parse_cron(text)


@settings(max_examples=50)
@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    weekday=st.integers(0, 6),
    minutes=st.integers(0, 60 * 24 * 30),
)
def test_the_last_time_is_the_latest_that_matches(minute: int, hour: int, weekday: int, minutes: int) -> None:
    now = MONDAY + timedelta(minutes=minutes)
    found = parse_cron(f"{minute} {hour} * * {weekday}").last(now)
    assert found is not None
    assert timedelta() <= now - found < timedelta(days=7)
    assert (found.minute, found.hour, found.isoweekday() % 7) == (minute, hour, weekday)


def schedule(**fields: object) -> Schedule:
    given = {"name": "office", "start": "0 8 * * *", "end": "0 18 * * *", **fields}
    return Schedule.model_validate(given)


@pytest.mark.parametrize(
    ("utc", "holds"),
    [("00:15", False), ("00:45", True), ("01:15", True), ("01:45", True), ("08:59", True), ("09:01", False)],
)
def test_a_schedule_that_begins_in_the_hour_that_comes_twice_goes_on_through_it(
    utc: str, holds: bool
) -> None:
    """02:30 in Berlin on the day when summer time ends: 00:30 UTC, and the clock shows it again at 01:30."""
    night = schedule(minReplicas=3, timeZone="Europe/Berlin", start="30 2 * * *", end="0 10 * * *")
    spec = rules(schedules=[night.model_dump(by_alias=True)])
    assert find_bounds(spec, datetime.fromisoformat(f"2026-10-25T{utc}+00:00")).least == (3 if holds else 1)


def test_a_schedule_is_in_its_own_time_zone() -> None:
    spec = rules(schedules=[schedule(minReplicas=3, timeZone="Asia/Tokyo").model_dump(by_alias=True)])
    there = datetime(2026, 1, 5, 8, 30, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert find_bounds(spec, there.astimezone(UTC)).least == 3
    assert find_bounds(spec, datetime(2026, 1, 5, 9, 30, tzinfo=UTC)).least == 1


def test_a_schedule_holds_over_midnight() -> None:
    spec = rules(
        schedules=[schedule(start="0 22 * * *", end="0 6 * * *", maxReplicas=2).model_dump(by_alias=True)]
    )
    held = {hour: find_bounds(spec, MONDAY.replace(hour=hour)).most for hour in (5, 6, 21, 22, 23)}
    assert held == {5: 2, 6: 10, 21: 10, 22: 2, 23: 2}


def test_of_two_schedules_that_hold_the_largest_bounds_do() -> None:
    found = find_bounds(
        rules(
            schedules=[
                {"name": "a", "start": "0 8 * * *", "end": "0 18 * * *", "minReplicas": 3},
                {
                    "name": "b",
                    "start": "0 9 * * *",
                    "end": "0 18 * * *",
                    "minReplicas": 2,
                    "maxReplicas": 20,
                },
            ]
        ),
        MONDAY,
    )
    assert (found.least, found.most, found.schedules) == (3, 20, ("a", "b"))


def test_an_unknown_time_zone_is_said_and_the_schedule_does_not_hold() -> None:
    spec = rules(schedules=[schedule(minReplicas=3, timeZone="Mars/Olympus").model_dump(by_alias=True)])
    found = find_bounds(spec, MONDAY)
    assert found.least == 1
    assert "timeZone 'Mars/Olympus'" in found.problem
