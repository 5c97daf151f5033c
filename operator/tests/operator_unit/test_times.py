"""docs/contribute/contracts.md: a time that cannot be true is left out, and what the operator writes it reads back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.times import parse_time, time_text

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=ZONES)


@given(TIMES)
def test_a_time_is_read_in_utc_whatever_its_zone(time: datetime) -> None:
    found = parse_time(time.isoformat())
    assert found == time
    assert found.tzinfo is UTC


@given(TIMES)
def test_what_is_written_is_read_back_to_the_millisecond(time: datetime) -> None:
    text = time_text(time)
    found = parse_time(text)
    assert found is not None
    assert timedelta() <= time - found < timedelta(milliseconds=1)
    assert time_text(found) == text


@given(st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.lists(st.text()), st.booleans()))
def test_whatever_is_read_is_a_time_in_utc_or_none(garbage: object) -> None:
    found = parse_time(garbage)
    assert found is None or found.tzinfo is UTC


@given(st.datetimes())
def test_a_time_without_its_zone_is_none(time: datetime) -> None:
    assert parse_time(time.isoformat()) is None


@pytest.mark.parametrize("text", [None, "", 0, "Z", "soon", "2026-01-01", "0001-01-01T00:00:00+10:00"])
def test_what_is_no_time_in_utc_is_none(text: object) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(
    "text", ["2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.500000999Z", "2026-01-01T02:00:00.5+02:00"]
)
def test_fractions_and_offsets_are_read(text: str) -> None:
    assert parse_time(text) == datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)


def test_no_time_is_written_as_none() -> None:
    assert time_text(None) is None
