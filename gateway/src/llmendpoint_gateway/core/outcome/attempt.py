"""What became of a request: each attempt at a replica, as Envoy tells it, and its end."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from llmendpoint_gateway.core.request.request import Tag


class Outcome(Enum):
    """What an attempt says of its replica."""

    ANSWERED = "answered"
    FAILED = "failed"  # a 5xx, or a connection that broke
    UNREACHABLE = "unreachable"  # no connection
    TIMED_OUT = "timed out"  # a connection, and no answer in time


NO_TAG = Tag()


def read_outcome(
    status: int, *, unreachable: bool, timed_out: bool, broken: bool, retriable: bool
) -> Outcome | None:
    """`status` 0: no answer has come. None: nothing is known yet, or the client went away first.

    A 5xx marked retriable is an engine that drains: it speaks the truth about itself.
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
    """What Envoy tells of one attempt at a replica. `outcome` None: nothing is known. `trial`: it was one. `told`: what
    came of it is what the client was told, as it was not tried again. `again`: it was the retry. `retried`: another
    follows. `broken`: the replica went away, or the request may have taken it down; `whole`: it was answered to its end.
    `over`: it has ended; of a trial Envoy also tells every second that it goes on."""

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
    """A request that was with a replica is over: its answer is complete, or broke off, or its client has left."""

    ticket: int
