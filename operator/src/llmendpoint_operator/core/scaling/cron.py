"""Cron expressions with five fields: minute, hour, day of the month, month, day of the week.

A field is a list of values, ranges and steps: `*`, `5`, `1-5`, `*/15`, `8-18/2`, `1,15`. Months and days have
names of three letters; Sunday is 0 or 7. If both day fields are restricted, as in `0 8 1 * mon`, a match of
either is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LONGEST_DAYS = 366 * 8 + 1
"""Every date recurs within this many days, even the 29th of February."""


class CronError(ValueError):
    """The text is no cron expression; the message names the field and the fault."""


@dataclass(frozen=True, slots=True)
class Cron:
    """The values that each field allows. `either_day`: both day fields are restricted, and either
    suffices."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def last(self, now: datetime) -> datetime | None:
        """The latest matching time not after `now`, in the time zone of `now`; None if there is none."""
        for back in range(LONGEST_DAYS):
            day = now.date() - timedelta(days=back)
            if not self._on(day.month, day.day, day.isoweekday() % 7):
                continue
            for hour in reversed(self.hours):
                for minute in reversed(self.minutes):
                    found = datetime.combine(day, time(hour, minute), now.tzinfo)
                    if found <= now or (now.fold and _comes_twice(found)):
                        return found
        return None

    def _on(self, month: int, day: int, weekday: int) -> bool:
        if month not in self.months:
            return False
        matches = (day in self.days, weekday in self.weekdays)
        return any(matches) if self.either_day else all(matches)


def _comes_twice(wall: datetime) -> bool:
    """Whether this wall time occurs twice, at the end of summer time. In the second hour it has occurred
    once."""
    return wall.utcoffset() != wall.replace(fold=1).utcoffset()


def parse_cron(text: str) -> Cron:
    """Raises CronError for an invalid expression."""
    fields = text.lower().split()
    if len(fields) != 5:
        raise CronError(f"'{text}' has {len(fields)} fields, not the five of cron")
    minute, hour, day, month, weekday = fields
    weekdays = {value % 7 for value in _values("day of the week", weekday, 0, 7, WEEKDAYS)}
    return Cron(
        minutes=tuple(sorted(_values("minute", minute, 0, 59))),
        hours=tuple(sorted(_values("hour", hour, 0, 23))),
        days=frozenset(_values("day of the month", day, 1, 31)),
        months=frozenset(_values("month", month, 1, 12, MONTHS)),
        weekdays=frozenset(weekdays),
        either_day=not day.startswith("*") and not weekday.startswith("*"),
    )


def _values(field: str, text: str, low: int, high: int, names: tuple[str, ...] = ()) -> set[int]:
    """All values that a field allows."""
    found: set[int] = set()
    for item in text.split(","):
        span, slash, step = item.partition("/")
        first, dash, last = span.partition("-")
        try:
            begin = low if first == "*" else _number(first, low, names)
            end = high if first == "*" or (slash and not dash) else begin
            end = _number(last, low, names) if dash else end
            width = int(step) if slash else 1
        except ValueError:
            raise CronError(f"{field}: '{item}' is not a value, a range or a step") from None
        if not low <= begin <= end <= high or width < 1:
            raise CronError(f"{field}: '{item}' is not within {low} to {high}")
        found |= set(range(begin, end + 1, width))
    return found


def _number(text: str, low: int, names: tuple[str, ...]) -> int:
    """A number or a name; names count from the field's lowest value."""
    return names.index(text) + low if text in names else int(text)
