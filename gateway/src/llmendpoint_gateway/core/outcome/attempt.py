"""How a request ends: each attempt at a replica, as Envoy reports it, and the end of the whole request."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from llmendpoint_gateway.core.request.request import Tag


class Outcome(Enum):
    """What an attempt shows of its replica."""

    ANSWERED = "answered"
    FAILED = "failed"  # a 5xx, or a connection that broke
    UNREACHABLE = "unreachable"  # no connection
    TIMED_OUT = "timed out"  # a connection, but no answer in time


NO_TAG = Tag()


def read_outcome(
    status: int, *, unreachable: bool, timed_out: bool, broken: bool, retriable: bool
) -> Outcome | None:
    """`status` 0: no answer came. None: nothing is known yet, or the client left first.

    A 5xx marked retriable comes from an engine that drains. It counts as an answer, because the engine reports its
    state correctly.
    """
    if unreachable:
        return Outcome.UNREACHABLE
    if timed_out:
        return Outcome.TIMED_OUT
    if broken or (status >= 500 and not retriable):
        return Outcome.FAILED
    return Outcome.ANSWERED if status else None


@dataclass(frozen=True, slots=True)
class Attempt:
    """Envoy's report of one attempt at a replica. `outcome` None: unknown. `trial`: it was a trial. `told`: the client
    got its result, because no retry followed. `again`: it was the retry. `retried`: a retry follows. `broken`: the
    replica went away, or the request may have crashed it. `whole`: its answer was complete. `over`: it has ended; Envoy
    also reports a running trial every second."""

    address: str
    cluster: str
    outcome: Outcome | None
    trial: bool
    told: bool
    again: bool
    tag: Tag = NO_TAG
    retried: bool = False
    broken: bool = False
    whole: bool = False
    over: bool = True


class Ended(NamedTuple):
    """A request that was with a replica is over: its answer is complete or broke off, or its client left."""

    ticket: int
