"""How often a judge rolls a healthy revision back, and how soon it sees a bad one, over simulated rollouts.

`make bench-verdicts`. Virtual time: every run with the same seed gives the same verdicts. All rules judge the same requests
with the same limits. A healthy revision is the same as the old one; a degraded one is worse than a limit allows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from tests.bench.results import Result, save
from tests.bench.verdicts import tables
from tests.bench.verdicts.product import Product
from tests.bench.verdicts.rollouts import run
from tests.bench.verdicts.rules import LOOK_S
from tests.bench.verdicts.settings import DEGRADED, HEALTHY, Setting
from tests.bench.verdicts.streams import Rollout

COST_ENDPOINTS, COST_SECONDS = 1000, 20
LOOK_GOAL_US = 100

EXAMPLES = """examples:
  python -m tests.bench.verdicts
  python -m tests.bench.verdicts --rollouts 100 --only 'errors 0.5 %' --only canary
"""


def chosen(settings: Sequence[Setting], words: Sequence[str]) -> list[Setting]:
    """Those whose name holds one of the words; all without words."""
    return [setting for setting in settings if not words or any(word in setting.name for word in words)]


def cost(setting: Setting, endpoints: int, seed: int) -> list[Result]:
    """Microseconds of CPU time of a look, in this process alone: until the verdict, and the reading before it. So many endpoints
    observe at once, and are looked at in turn."""
    observed = []
    for number in range(endpoints):
        rollout, product = Rollout(setting, number, seed), Product(setting)
        product.before(rollout.before)
        product.begin()
        observed.append((product, *rollout.window(0)))
    samples, judgements = [], []
    for at in range(LOOK_S, COST_SECONDS + 1, LOOK_S):
        for product, green, blue in observed:
            began = time.thread_time_ns()
            product.sample(at, green, blue)
            read = time.thread_time_ns()
            product.judge(at)
            judged = time.thread_time_ns()
            samples.append((read - began) / 1000)
            judgements.append((judged - read) / 1000)
    return [
        _cost_row(f"figures and verdict, {endpoints} endpoints at once", judgements, f"<= {LOOK_GOAL_US} us"),
        _cost_row(f"counters read, {endpoints} endpoints at once", samples),
    ]


def _cost_row(what: str, micros: Sequence[float], goal: str = "") -> Result:
    tail = sorted(micros)[int(0.99 * len(micros))]
    return Result(
        f"cost of a look, {what}: mean of {len(micros)}; p99 {tail:.0f} us",
        statistics.fmean(micros),
        "us",
        goal=goal,
    )


def measure(rollouts: int, words: Sequence[str], seed: int, workers: int) -> list[Result]:
    """Print both tables, and return one row for each setting."""
    healthy, degraded = chosen(HEALTHY, words), chosen(DEGRADED, words)
    found = run([*healthy, *degraded], rollouts, seed, workers)
    costs = cost(replace(HEALTHY[7], before=60, rest=0), min(rollouts, COST_ENDPOINTS), seed)
    for head, settings, rows_of in (
        (tables.HEALTHY_HEAD, healthy, tables.healthy_rows),
        (tables.DEGRADED_HEAD, degraded, tables.degraded_rows),
    ):
        rows = [row for setting in settings for row in rows_of(setting, found[setting.name])]
        if rows:
            print("\n".join(tables.table(head, rows)), end="\n\n")
    for row in costs:
        print(f"{row.metric}: {row.value:.1f} us")
    return [
        *(tables.healthy_result(setting, found[setting.name]) for setting in healthy),
        *(tables.degraded_result(setting, found[setting.name]) for setting in degraded),
        *costs,
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write build/bench/verdicts.json."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.verdicts",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rollouts", type=int, default=1000, help="of each setting (default: 1000)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="settings whose name holds this; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=0, help="another number, other rollouts (default: 0)")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)"
    )
    args = parser.parse_args(argv)
    if args.rollouts < 1:
        parser.error("--rollouts must be 1 or more")
    if not chosen([*HEALTHY, *DEGRADED], args.only):
        names = "; ".join(setting.name for setting in (*HEALTHY, *DEGRADED))
        parser.error(f"--only names no setting; there are: {names}")
    began = time.monotonic()
    path = save("verdicts", measure(args.rollouts, args.only, args.seed, args.workers))
    print(f"written to {path.relative_to(path.parent.parent.parent)}")
    print(f"{args.rollouts} rollouts of each setting in {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
