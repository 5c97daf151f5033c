"""Before a rollout: which of its limits can be decided with this traffic, and the smallest change that would be seen.

The limits are read from the spec as the operator reads them, and the evidence that they need is the operator's:

| to show | evidence |
|---|---|
| a limit is broken | falseRollbackRate, shared by all limits in all windows: the steps of a canary, and the whole rollout |
| a limit is kept within the margin | missRate |

When all is well, so many requests fail as now, and half as many are slow as a limit of a 95th percentile allows.

| at a step | the new revision is compared with |
|---|---|
| the old one keeps requests: a canary, or `observe.control` | its requests of the same seconds |
| the new one gets all | the old one's of `observe.duration` seconds before the switch. The operator may count more: from the beginning of the rollout, or hours, as far as they changed little. It counts less where they changed much |

A limit of errors that the old revision breaks as well is not the new one's fault. Then it counts only what is worse than the old one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from llmendpoint_verdicts.outlook import (
    requests_to_compare,
    requests_to_show,
    smallest_increase_seen,
    smallest_seen,
)
from llmendpoint_verdicts.shares import CELL_REQUESTS, FIRST_CLUMP, Required, Share, best, near

from .observe_spec import Asked, Limit, Step

MOST_REQUESTS = 10_000_000
MOST_SECONDS = 86_400
"""That spec.rollout.observe.maxDuration may be."""
MOST_MARGIN, MARGIN_STEP = 0.495, 0.005
CELL_SECONDS, ENGINES_S = 0.2, 1.0
"""The operator looks for failures that come together in cells of CELL_REQUESTS, or of so many seconds where there are more: of
those between two readings of the gateways, or for a latency of the engines."""
CONTROL = 20
"""Percent that the old revision may keep, in a proposal."""
HOURS_S = 7_200
"""Seconds of the old revision at rest that the operator compares with at most."""
NO_REQUESTS = "not decidable: there are no requests"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What callers send to the endpoint now. `error_rate`: 0..1."""

    requests_per_second: float
    error_rate: float


@dataclass(frozen=True, slots=True)
class Row:
    """One limit at one share of the requests. `requests`, `seconds`: until it is known to be kept; None: never. `within`:
    seconds for which the operator waits at most. `smallest_seen`: the smallest share of the requests (0..1) that would be seen to
    break the limit in that time, in 19 of 20 rollouts; None: none would. `near`: whether the figure of now is so near to its
    limit that the operator may go on watching until `within`. `why`: empty if it can be decided."""

    field: str
    limit: str
    weight: int
    requests_per_second: float
    requests: int | None
    seconds: float | None
    within: float
    smallest_seen: float | None
    seen: str
    near: bool
    why: str = ""

    @property
    def decidable(self) -> bool:
        return not self.why


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one endpoint. `decidable`: whether each limit is, at each step."""

    endpoint: str
    requests_per_second: float
    error_rate: float
    decidable: bool
    rows: tuple[Row, ...]


def make_plan(endpoint: str, asked: Asked, traffic: Traffic) -> Plan:
    """A row for each limit at each step that is observed."""
    rows = tuple(_rows(asked, traffic))
    every = all(row.decidable for row in rows)
    return Plan(endpoint, traffic.requests_per_second, traffic.error_rate, every, rows)


def _rows(asked: Asked, traffic: Traffic) -> Iterator[Row]:
    for step in asked.steps:
        for limit in asked.limits if step.duration > 0 else ():
            yield _row(asked, limit, step, traffic)


def _row(asked: Asked, limit: Limit, step: Step, traffic: Traffic) -> Row:
    rate, within = traffic.requests_per_second * step.weight / 100, asked.patience(step)
    compared = _compared(asked, limit, traffic, step.beside)
    requests = _requests(asked, limit, rate, traffic, compared)
    row = Row(
        limit.field, limit.text, step.weight, rate, requests,
        requests / rate if requests is not None and rate > 0 else None,
        within, _smallest(asked, limit, traffic, rate, within, compared), limit.seen,
        requests is not None and _near(limit, requests, rate, traffic, compared),
    )  # fmt: skip
    return replace(row, why=_why(asked, limit, row, traffic, compared))


@dataclass(frozen=True, slots=True)
class _Compared:
    """The old revision. `before`: its requests from before the switch that count. `beside`: how many it gets for each one of the
    new revision's. `fails_too`: whether it breaks this limit of errors, too."""

    before: Share
    beside: float
    fails_too: bool = False

    def after(self, requests: float, rate: float) -> Share:
        """When the new one has so many."""
        more = requests * self.beside
        return Share(self.before.requests + more, self.before.hits + more * rate)


def _compared(asked: Asked, limit: Limit, traffic: Traffic, beside: float) -> _Compared:
    requests = traffic.requests_per_second * asked.duration
    blue = Share(requests, requests * _healthy(limit, traffic))
    fails_too = limit.errors and not limit.relative and traffic.error_rate > limit.allowed
    return _Compared(Share() if beside > 0 else blue, beside, fails_too)


def _healthy(limit: Limit, traffic: Traffic) -> float:
    """The share of requests to expect of a good revision."""
    return traffic.error_rate if limit.healthy is None else limit.healthy


def _cell(limit: Limit, rate: float) -> float:
    return max(CELL_REQUESTS, rate * (CELL_SECONDS if limit.errors else ENGINES_S))


def _requests(asked: Asked, limit: Limit, rate: float, traffic: Traffic, blue: _Compared) -> int | None:
    """Until it is known that the limit is kept, at least minRequests; None: never."""
    required, healthy, cell = _required(asked), _healthy(limit, traffic), _cell(limit, rate)
    if blue.beside > 0 and not limit.relative:
        # Either of two tests may show it, so each needs twice the evidence.
        required = replace(required, kept=required.kept + math.log(2))

    def compared(increase: float, kept: float) -> int | None:
        return requests_to_compare(
            Share(), blue.before, increase, asked.margin, replace(required, kept=kept),
            most=MOST_REQUESTS, beside=blue.beside, rates=(healthy, healthy), cell=cell,
        ).kept  # fmt: skip

    if limit.relative:
        found = [compared(limit.allowed, required.kept)]
    else:
        found = [requests_to_show(
            Share(), limit.allowed, asked.margin, required, most=MOST_REQUESTS, rate=healthy, cell=cell
        ).kept]  # fmt: skip
        found += [compared(0.0, required.kept)] if blue.beside > 0 else []
    kept = min((one for one in found if one is not None), default=None)
    return None if kept is None else max(kept, asked.min_requests)


def _near(limit: Limit, requests: int, rate: float, traffic: Traffic, blue: _Compared) -> bool:
    """Whether the operator, which knows by then that the limit is kept, watches on. Not where the new revision has to be worse than
    the old one as well. Of latencies nothing is known but that half as many are slow as may be."""
    if not limit.errors or (not limit.relative and (blue.beside > 0 or blue.fails_too)):
        return False
    expected = traffic.error_rate
    share = Share(requests, requests * expected, _clumping(limit, rate, requests))
    return near(share, limit.allowed + (expected if limit.relative else 0.0))


def _clumping(limit: Limit, rate: float, requests: float) -> float:
    """What the operator assumes, because few cells were seen."""
    return min(FIRST_CLUMP, max(1.0, FIRST_CLUMP * _cell(limit, rate) / requests))


def _required(asked: Asked) -> Required:
    return Required.of(len(asked.limits) * asked.windows, asked.false_rollback_rate, asked.miss_rate)


def _smallest(
    asked: Asked, limit: Limit, traffic: Traffic, rate: float, within: float, blue: _Compared
) -> float | None:
    """The larger one where two tests have to show it: above the limit, and above the old revision."""
    requests, required = rate * within, _required(asked).broken
    if requests < 1:
        return None
    clumping = _clumping(limit, rate, requests)
    found = []
    if not limit.relative:
        found.append(smallest_seen(requests, limit.allowed, required, clumping))
    if limit.relative or blue.fails_too or blue.beside > 0:
        old = blue.after(requests, _healthy(limit, traffic))
        increase = limit.allowed if limit.relative else 0.0
        found.append(smallest_increase_seen(requests, old, increase, required, clumping))
    shown = [one for one in found if one is not None]
    return max(shown) if len(shown) == len(found) else None


def _why(asked: Asked, limit: Limit, row: Row, traffic: Traffic, blue: _Compared) -> str:
    """What stands in the way, and what would help."""
    if row.requests_per_second <= 0:
        return NO_REQUESTS
    if limit.relative and not _comparable(asked, limit, blue):
        return _too_few_before(asked, limit, row, traffic, blue.before)
    if row.requests is None:
        also = f", or write control: {CONTROL}" if blue.fails_too and blue.beside == 0 else ""
        return (
            f"not decidable: {_healthy(limit, traffic):.1%} of the requests fail now, and the limit and the margin allow "
            f"{limit.allowed + asked.margin:.1%}" + _helps(asked, limit, row, traffic, "the limit") + also
        )
    if row.seconds is not None and row.seconds > row.within:
        return (
            f"not decidable in {row.within:g} s: at {_figure(row.requests_per_second)} requests/s it takes {row.requests:,} "
            f"requests, {row.seconds:,.0f} s" + _helps(asked, limit, row, traffic, _longer(asked.patience_field, row.seconds))
        )  # fmt: skip
    return ""


def _too_few_before(asked: Asked, limit: Limit, row: Row, traffic: Traffic, blue: Share) -> str:
    needed = _first_number(lambda n: _comparable(asked, limit, _Compared(Share(n, blue.rate * n), 0.0)))
    takes = f", {needed:,} are needed" if needed else ""
    longer = _longer("duration", needed / traffic.requests_per_second) if needed else ""
    hours = ""
    if needed and needed <= HOURS_S * traffic.requests_per_second:
        hours = ". Not needed if the operator has counted the old revision for hours in which its figures changed little"
    return (
        f"not decidable, and not waited for: about {blue.requests:,.0f} requests of the old revision in {asked.duration:g} s before "
        f"the switch are too few{takes}" + _helps(asked, limit, row, traffic, longer) + hours
    )


def _comparable(asked: Asked, limit: Limit, blue: _Compared) -> bool:
    """Whether so many requests of the old revision suffice, with plenty of the new one's; or whether it gets more."""
    return blue.beside > 0 or best(blue.before, limit.allowed + asked.margin) >= _required(asked).kept


def _first_number(enough: Callable[[int], bool]) -> int | None:
    """The smallest number that is enough, to a twentieth; None: there is none."""
    number = 10
    while not enough(number):
        if number > MOST_REQUESTS:
            return None
        number = math.ceil(number * 1.05)
    return number


def _helps(asked: Asked, limit: Limit, row: Row, traffic: Traffic, other: str) -> str:
    """`; raise maxDuration to 960, or margin to 0.08`. `other`: what helps beside a wider margin, if anything does."""
    margin = _wider(asked, limit, row, traffic)
    helps = [help for help in (other, f"margin to {margin:g}" if margin is not None else "") if help]
    return f"; raise {', or '.join(helps)}" if helps else "; more requests are needed"


def _longer(field: str, seconds: float) -> str:
    """Empty if the field cannot be so much."""
    return f"{field} to {math.ceil(seconds)}" if seconds <= MOST_SECONDS else ""


def _wider(asked: Asked, limit: Limit, row: Row, traffic: Traffic) -> float | None:
    """The smallest margin with which this limit can be decided; None if none is wide enough."""

    def decides(steps: int) -> bool:
        wider = replace(asked, margin=round(steps * MARGIN_STEP, 3))
        rate, beside = row.requests_per_second, (100 - row.weight) / row.weight
        blue = _compared(wider, limit, traffic, beside)
        found = _requests(wider, limit, rate, traffic, blue)
        return (
            found is not None
            and found <= rate * row.within
            and (not limit.relative or _comparable(wider, limit, blue))
        )

    low, high = math.floor(asked.margin / MARGIN_STEP), round(MOST_MARGIN / MARGIN_STEP)
    if high <= low or not decides(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return round(high * MARGIN_STEP, 3)


def _figure(rate: float) -> str:
    return f"{rate:.2g}" if rate < 10 else f"{rate:,.0f}"
