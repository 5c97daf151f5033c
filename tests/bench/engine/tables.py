"""Seconds of rounds as rows: this project's figure beside each peer's, with the goal."""

from __future__ import annotations

import statistics

from tests.bench.engine.contenders import INT8, OURS, OURS_INT8, Contender
from tests.bench.engine.limits import Machine
from tests.bench.engine.rounds import Field
from tests.bench.engine.shapes import Shape, Work
from tests.bench.results import Result, figure

SHARE_OF_LIMIT = "ratio >= 0.5"

Seconds = dict[str, list[float]]


def rows(
    work: Work,
    seconds: Seconds,
    contenders: Field,
    peers: tuple[Contender, ...],
    shape: Shape,
    machine: Machine,
) -> list[Result]:
    """A row for each peer, then one for the machine's limit if the work decodes."""
    found = [_row(work, seconds, contenders, peer, machine) for peer in peers]
    if work.decodes:
        most = machine.tokens_per_second(shape, work)
        mine = statistics.median(rates(work, seconds[OURS.name]))
        against = f"this machine's limit for decoding: {most:.0f}"
        found.append(
            Result(metric(work, _form(machine)), mine, "tokens/s", against, mine / most, SHARE_OF_LIMIT)
        )
    return found


def _row(work: Work, seconds: Seconds, contenders: Field, peer: Contender, machine: Machine) -> Result:
    own = OURS_INT8 if peer.weights == INT8 and OURS_INT8.name in seconds else OURS
    mine = rates(work, seconds[own.name])
    name = metric(work, own.weights or _form(machine))
    unit = "tokens/s" if work.decodes else "ms"
    if peer.name not in seconds:
        against = f"{peer.name} did not run: {contenders.absent.get(peer.name, 'it was left out')}"
        return Result(name, statistics.median(mine), unit, against)
    theirs = rates(work, seconds[peer.name])
    against = f"{contenders.titles[peer.name]}: {figure(statistics.median(theirs))}"
    ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
    goal = ("ratio >= 1" if work.decodes else "ratio <= 1") if own.weights == peer.weights else ""
    return Result(name, statistics.median(mine), unit, against, ratio, goal)


def rates(work: Work, seconds: list[float]) -> list[float]:
    """Tokens per second of work that decodes; milliseconds of work that ends with its first token."""
    if work.decodes:
        return [work.count * work.tokens_out / s for s in seconds]
    return [1000 * s for s in seconds]


def metric(work: Work, form: str) -> str:
    if work.decodes:
        return f"output tokens/s, {work.count} at a time, {form}"
    return f"TTFT, {work.tokens_in} tokens, {form}"


def _form(machine: Machine) -> str:
    return str(machine.dtype).removeprefix("torch.")
