"""One rollout under one rule, and many under all of them on all cores."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.bench.verdicts.product import Product
from tests.bench.verdicts.rules import LOOK_S, Answer, ArgoCounts, CumulativeShare, OmeLimit, Rule
from tests.bench.verdicts.settings import Setting
from tests.bench.verdicts.streams import Rollout

PRODUCT = "this product"
RULES: Mapping[str, Callable[[Setting], Rule]] = {
    PRODUCT: Product,
    "cumulative share": lambda setting: CumulativeShare(setting.limits),
    "Argo Rollouts": lambda setting: ArgoCounts(setting.limits),
    "OME": lambda setting: OmeLimit(setting.limits),
}
CHUNK = 20
"""Rollouts that a process does at once."""
SAID_EVERY_S = 10.0


class End(StrEnum):
    """Of a rollout."""

    GOOD = "Good"
    BAD = "Bad"
    INCONCLUSIVE = "Inconclusive"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds and requests of the new revision from the switch to the end; where it has a fault, since that began. Not
    above 0 when the end came before the fault."""

    end: End
    seconds: int
    requests: int


Outcomes = Mapping[str, Sequence[Outcome]]
"""By rule."""


def simulate(rollout: Rollout, rule: Rule) -> Outcome:
    """Window after window: the first Bad ends it, and a window without a verdict after maxDuration."""
    setting = rollout.setting
    rule.before(rollout.before, rollout.rest)
    starts = setting.fault.starts if setting.fault is not None else 0
    seconds, requests = -starts, -int(rollout.window(0)[0].requests[starts])
    for index in range(len(setting.weights)):
        answer, at = _watch(rollout, rule, index)
        seconds += at
        requests += int(rollout.window(index)[0].requests[at])
        if answer is not Answer.GOOD:
            return Outcome(End.BAD if answer is Answer.BAD else End.INCONCLUSIVE, seconds, requests)
    return Outcome(End.GOOD, seconds, requests)


def _watch(rollout: Rollout, rule: Rule, index: int) -> tuple[Answer, int]:
    """One window: the answer, and after how many seconds."""
    green, blue = rollout.window(index)
    rule.begin()
    longest = rollout.setting.limits.max_duration
    for at in range(LOOK_S, longest + 1, LOOK_S):
        answer = rule.look(at, green, blue)
        if answer is not Answer.WAIT:
            return answer, at
    return Answer.WAIT, longest


@dataclass(frozen=True, slots=True)
class Task:
    """Rollouts `first` to `last` (exclusive) of a setting."""

    setting: Setting
    first: int
    last: int
    seed: int


def do(task: Task) -> tuple[str, dict[str, list[Outcome]]]:
    """The setting's name, and the outcomes by rule."""
    done: dict[str, list[Outcome]] = {name: [] for name in RULES}
    for number in range(task.first, task.last):
        rollout = Rollout(task.setting, number, task.seed)
        for name, make in RULES.items():
            done[name].append(simulate(rollout, make(task.setting)))
    return task.setting.name, done


def run(settings: Sequence[Setting], count: int, seed: int, workers: int) -> dict[str, Outcomes]:
    """By setting: `count` rollouts of each under every rule, the same whatever the number of workers."""
    tasks = [
        Task(setting, first, min(first + CHUNK, count), seed)
        for setting in settings
        for first in range(0, count, CHUNK)
    ]
    found = {setting.name: {rule: list[Outcome]() for rule in RULES} for setting in settings}
    for name, outcomes in _told(_results(tasks, workers), {s.name: count for s in settings}):
        for rule, some in outcomes.items():
            found[name][rule] += some
    return dict(found)


Done = tuple[str, dict[str, list[Outcome]]]


def _results(tasks: Sequence[Task], workers: int) -> Iterator[Done]:
    """In the order of the tasks."""
    if workers < 2:
        yield from map(do, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(do, tasks)


def _told(results: Iterable[Done], counts: Mapping[str, int]) -> Iterator[Done]:
    """Says on stderr how far it is: at the end of each setting, and now and then."""
    began = said = time.monotonic()
    done = dict.fromkeys(counts, 0)
    for name, outcomes in results:
        done[name] += len(outcomes[PRODUCT])
        now = time.monotonic()
        if done[name] == counts[name] or now - said >= SAID_EVERY_S:
            said, share = now, sum(done.values()) / sum(counts.values())
            left = (now - began) * (1 - share) / share
            print(
                f"  {name}: {done[name]} of {counts[name]}, about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
        yield name, outcomes
