"""What one pod is to load and unload, by what it is to have and what it says that it has. The time is an argument, in
seconds.

| the pod has | the spec has | move |
|---|---|---|
| an adapter | none of this name | let it go |
| none of this name | an adapter | load it |
| an adapter from another source | an adapter | load it in the other's place |

Pods unload first, because that makes room. A load that failed is tried again after a pause that grows up to
LONGEST_PAUSE_S. It holds up no other adapter, and a changed source is tried at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...api import Adapter
from ..pauses import growing_pause
from .mounts import engine_source

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
ATTEMPTS_AWAITED = 3
"""After this many failures a rollout does not wait for an adapter any more."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An adapter that a pod is to have. `source`: as the engine gets it."""

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class Load:
    """Load an adapter, in place of another one of this name if there is one."""

    adapter: Wanted


@dataclass(frozen=True, slots=True)
class Unload:
    """Let an adapter go."""

    name: str


Move = Load | Unload


@dataclass(frozen=True, slots=True)
class Failure:
    """A move that failed `times` times in a row. `source` is empty for an adapter that was to be unloaded. `refused`: the
    engine said that it will not do it."""

    source: str
    times: int
    again_at: float
    message: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class PodAdapters:
    """What a pod has: source by name; None until the pod has said it. `failures`: by adapter's name."""

    held: Mapping[str, str] | None = None
    failures: Mapping[str, Failure] = field(default_factory=dict)

    def has(self, adapter: Wanted) -> bool:
        """Whether the pod has this adapter, from this source."""
        return self.held is not None and self.held.get(adapter.name) == adapter.source

    def failure(self, adapter: Wanted) -> Failure | None:
        """Why the pod does not have it; None if it has, or was not asked to load it from this source yet."""
        found = self.failures.get(adapter.name)
        return found if found is not None and found.source == adapter.source else None

    def settled(self, wanted: Iterable[Wanted]) -> bool:
        """Whether the pod has all of them, but for those that it will probably never have."""
        return all(self.has(one) or _hopeless(self.failure(one)) for one in wanted)


def wanted_adapters(adapters: Iterable[Adapter]) -> tuple[Wanted, ...]:
    """What each pod is to have, in the spec's order."""
    return tuple(Wanted(one.name, engine_source(one.source)) for one in adapters)


def due_moves(wanted: Iterable[Wanted], pod: PodAdapters, now: float) -> tuple[Move, ...]:
    """The moves that are due, in order; none while the pod has not said what it has."""
    if pod.held is None:
        return ()
    return tuple(move for move in _moves(tuple(wanted), pod) if _due_at(move, pod) <= now)


def next_due(wanted: Iterable[Wanted], pod: PodAdapters) -> float | None:
    """When the next move is due; None if the pod is as it is to be, or has not said what it has."""
    return min((_due_at(move, pod) for move in _moves(tuple(wanted), pod)), default=None)


def succeeded(pod: PodAdapters, move: Move) -> PodAdapters:
    """The pod after a move."""
    held, name = dict(pod.held or {}), _name(move)
    if isinstance(move, Load):
        held[name] = move.adapter.source
    else:
        held.pop(name, None)
    return PodAdapters(held, _without(pod.failures, name))


def failed(pod: PodAdapters, move: Move, message: str, now: float, *, refused: bool = False) -> PodAdapters:
    """The pod after a move that failed."""
    name, source = _name(move), _source(move)
    before = pod.failures.get(name)
    times = before.times + 1 if before is not None and before.source == source else 1
    failure = Failure(
        source, times, now + growing_pause(FIRST_PAUSE_S, times, LONGEST_PAUSE_S), message, refused
    )
    return replace(pod, failures={**pod.failures, name: failure})


def said(pod: PodAdapters, held: Mapping[str, str], wanted: Iterable[Wanted]) -> PodAdapters:
    """The pod after it said what it has. A failure counts until the adapter is there, or is not wanted any more."""
    sources = {one.name: one.source for one in wanted}
    kept = {
        name: failure
        for name, failure in pod.failures.items()
        if held.get(name, "") != failure.source and sources.get(name, "") == failure.source
    }
    return PodAdapters(dict(held), kept)


def _moves(wanted: tuple[Wanted, ...], pod: PodAdapters) -> Iterable[Move]:
    if pod.held is None:
        return
    names = {one.name for one in wanted}
    yield from (Unload(name) for name in sorted(pod.held.keys() - names))
    yield from (Load(one) for one in wanted if not pod.has(one))


def _due_at(move: Move, pod: PodAdapters) -> float:
    found = pod.failures.get(_name(move))
    return found.again_at if found is not None and found.source == _source(move) else 0.0


def _name(move: Move) -> str:
    return move.adapter.name if isinstance(move, Load) else move.name


def _source(move: Move) -> str:
    return move.adapter.source if isinstance(move, Load) else ""


def _without(failures: Mapping[str, Failure], name: str) -> dict[str, Failure]:
    return {other: failure for other, failure in failures.items() if other != name}


def _hopeless(failure: Failure | None) -> bool:
    return failure is not None and (failure.refused or failure.times >= ATTEMPTS_AWAITED)
