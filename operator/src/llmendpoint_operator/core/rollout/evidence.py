"""What was seen outside the API server, and on which a rollout decides: who acknowledged, what was answered, how fast.

It lives in the leader's memory. After a restart it is gathered again: that takes time and never gives another verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from llmendpoint_verdicts.shares import Share

from .prospects import Told
from .tails import Tail

ACKNOWLEDGE_SECONDS = 10
"""So long a switch, and a replica that goes, waits for a Ready gateway; blue's pods wait for longer."""


@dataclass(frozen=True, slots=True)
class GatewayView:
    """One Ready gateway pod, asked for its `/state`. `epoch` is what new requests of this endpoint follow there;
    None when it did not answer, or does not know the endpoint."""

    pod: str
    epoch: int | None
    in_flight: Mapping[str, int] = field(default_factory=dict)
    """Requests that this gateway has under way, by engine pod, of every revision."""


Window = tuple[str, int | None, int | None]
"""The new revision, the canary's step, and its weight."""


class Outcome(StrEnum):
    """Of a check that takes time."""

    RUNNING = "Running"
    PASSED = "Passed"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Verification:
    """Warm-up and verification prompts sent to a revision's pods. `message` of a failure names the prompt, what was
    expected and what came, shortened; never more of an answer than 80 characters."""

    revision: str
    outcome: Outcome
    message: str = ""


BLAMED_SHARE, BLAMED_FAILURES = 0.75, 5
"""Of the failures are of one replica where it is named for them, and so many failures there are: of fewer, chance may make
most fall to one."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one revision over one window: requests that ended, those of them that failed, and latencies in seconds. A latency
    is None when nothing was measured. `clumping`: how many requests tell as much as an independent one (llmendpoint_verdicts.shares)."""

    requests: int = 0
    errors: int = 0
    ttft: Tail | None = None
    itl: Tail | None = None
    e2e: Tail | None = None
    clumping: float = 1.0
    seconds: float | None = None
    """Length of the window, which is shorter than the rollout's state after a restart of the operator; None: as long."""
    drift: float = 1.0
    """Of a baseline: how many requests tell as much as one would if failures did not change over the hours."""
    worst: tuple[str, int] | None = None
    """The replica with the most failures, and how many; None where none failed, or only one got requests."""

    def latency(self, name: str) -> Tail | None:
        """`ttft`, `itl` or `e2e`."""
        found: Tail | None = getattr(self, name)
        return found

    def with_latencies(self, change: Callable[[str, Tail | None], Tail | None]) -> Figures:
        """With what `change` makes of each latency, given its name."""
        ttft, itl, e2e = change("ttft", self.ttft), change("itl", self.itl), change("e2e", self.e2e)
        return replace(self, ttft=ttft, itl=itl, e2e=e2e)

    @property
    def failed(self) -> Share:
        """Those that failed, of all."""
        return Share(self.requests, self.errors, self.clumping, self.drift)

    @property
    def blamed(self) -> tuple[str, int] | None:
        """The replica that most of the failures are of, and how many; None where there is none."""
        if self.worst is None or self.errors < BLAMED_FAILURES:
            return None
        replica, failed = self.worst[0], min(self.worst[1], self.errors)
        return (replica, failed) if failed >= BLAMED_SHARE * self.errors else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is known now. `figures` holds, by revision: before the switch what was measured lately, from the
    switch or canary step on what was measured since then. A revision is absent when nothing was measured yet."""

    gateways: tuple[GatewayView, ...] = ()
    gateways_known: bool = False
    """Whether the gateways were asked since the assignment last changed: not while there are some of which none is Ready.
    Without any gateway (`gateways` empty and this true) an assignment is acknowledged at once: the plain Service follows
    it."""
    verification: Verification | None = None
    figures: Mapping[str, Figures] = field(default_factory=dict)
    window: Window | None = None
    """What `figures` were counted in; None before the switch."""
    gateways_lost: bool = False
    """Whether there are gateways, and none was Ready for so long that no caller reaches one: nobody is waited for. Nothing
    else follows from it: an assignment is not acknowledged, and what was not seen is not good."""
    watched: float = math.inf
    """Seconds for which `figures` have been gathered: less than the rollout's state lasts after a restart of the operator,
    and then nothing follows yet from there being none."""
    verifying: float = math.inf
    """The same for `verification`, without the time in which prompts waited for a slot."""
    told: Mapping[str, Told] = field(default_factory=dict)
    """What Events say of pods that wait, by pod; without those that nobody has asked about yet."""
    endpoints: int = 1
    """How many are measured at once."""
