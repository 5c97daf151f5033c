"""Replica-hours and missed deadlines of bursty days, under the operator's own policy, KEDA's and a fixed count.

`make bench-day`. Virtual time: a day takes seconds, and every run of it is the same. A request is missed when its first
token comes later than 2 s after it was sent, or when it was refused after waiting for 60 s. KEDA's threshold on requests
in flight is chosen so that it spends as many replica-hours as the operator; the fixed count is the first that spends no
fewer.
"""

from __future__ import annotations

import argparse
import functools
import math
import operator
from collections.abc import Callable, Sequence

from llmendpoint_operator.api.autoscaling import AutoscalingSpec
from tests.bench.day.fleet import Engine, Fleet, Outcome, Policy
from tests.bench.day.policies import Builtin, Fixed, Keda, in_flight, waiting
from tests.bench.day.trace import Arrival, Shape, arrivals
from tests.bench.results import Result, write

LEAST, MOST, FIRST = 1, 24, 2
TTFT_LIMIT_S, PATIENCE_S = 2.0, 60.0
SPEC = {"minReplicas": LEAST, "maxReplicas": MOST}
WAITING_THRESHOLD = 5.0

EXAMPLES = """examples:
  python -m tests.bench.day
  python -m tests.bench.day --seeds 7       another day
"""

Days = Sequence[Sequence[Arrival]]


def run(days: Days, make: Callable[[], Policy], first: int) -> Outcome:
    """Each day by a policy of its own, which has seen nothing before."""
    outcomes = (Fleet(Engine(), TTFT_LIMIT_S, PATIENCE_S, first).run(day, make()) for day in days)
    return functools.reduce(operator.add, outcomes)


def keda(value: Callable[[Fleet], int], threshold: float) -> Callable[[], Policy]:
    return lambda: Keda(value, threshold, LEAST, MOST)


def keda_at(days: Days, hours: float) -> tuple[float, Outcome]:
    """KEDA on requests in flight, with the largest threshold found at which it spends no fewer than `hours`."""
    low, high = 0.5, 2.0 * Engine().sequences
    best = low, run(days, keda(in_flight, low), FIRST)
    for _ in range(7):
        threshold = (low + high) / 2
        found = run(days, keda(in_flight, threshold), FIRST)
        if found.replica_hours >= hours:
            low, best = threshold, (threshold, found)
        else:
            high = threshold
    return best


def measure(seeds: Sequence[int]) -> list[Result]:
    """One row for each policy."""
    days = [list(arrivals(Shape(), seed)) for seed in seeds]
    print(f"  {len(days)} days, {sum(map(len, days))} requests", flush=True)
    ours = run(days, lambda: Builtin(AutoscalingSpec.model_validate(SPEC)), FIRST)
    threshold, tuned = keda_at(days, ours.replica_hours)
    fixed = math.ceil(ours.replica_hours / 24 / len(days))
    queued = run(days, keda(waiting, WAITING_THRESHOLD), FIRST)
    return [
        _row("builtin, as it comes", ours, None, "below KEDA's at equal hours"),
        _row(f"KEDA, {threshold:.1f} in flight a replica", tuned, ours),
        _row(f"KEDA, {WAITING_THRESHOLD:.0f} waiting a replica", queued, ours),
        _row(f"{fixed} replicas at all times", run(days, lambda: Fixed(fixed), fixed), ours),
    ]


def _row(name: str, outcome: Outcome, ours: Outcome | None, goal: str = "") -> Result:
    metric = (
        f"deadlines missed by {name}: {outcome.replica_hours:.0f} replica-hours, at most {outcome.most}, "
        f"{outcome.changes} changes"
    )
    share = 100 * outcome.missed_share
    if ours is None:
        return Result(metric, share, "%", goal=goal)
    return Result(
        metric, share, "%", f"builtin, {100 * ours.missed_share:.2f} %", outcome.missed / max(1, ours.missed)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write build/bench/day.json."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.day",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="which days (default: 1 2 3)")
    write("day", measure(parser.parse_args(argv).seeds))


if __name__ == "__main__":
    main()
