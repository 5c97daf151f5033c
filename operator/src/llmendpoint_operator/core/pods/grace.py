"""How long a replica that is stopped may take to end its requests.

As long as its longest generation: `engine.maxModelLen` tokens at `slo.itlSeconds` each after `slo.ttftSeconds`. A pod
ends as soon as its last request has, so a generous bound costs nothing but on a node that is drained under load. What
the user wrote holds; the default, which cannot be told from the same number written out, is raised to what the longest
generation takes. It is recorded with the revision: a later change of `slo` restarts nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...api import LLMEndpointSpec, PodInputs
from ..endpoint.steps import Event
from ..names import DRAIN_MARGIN_SECONDS, PRE_STOP_SECONDS
from .revision import Revision

TOKEN_SECONDS = 0.05
"""Between two tokens where `slo.itlSeconds` says nothing: 20 tokens a second, which is slow."""
LONGEST_SECONDS = 3600
"""What is derived goes no further: nodes that are drained seldom wait longer. Who wants more writes it."""
DEFAULT_SECONDS: int = PodInputs.model_fields["termination_grace_period_seconds"].default


def longest_generation_seconds(spec: LLMEndpointSpec) -> float | None:
    """Seconds of the longest allowed generation; None where its length is the model's own."""
    if spec.engine.max_model_len is None:
        return None
    return (spec.slo.ttft_seconds or 0.0) + spec.engine.max_model_len * (
        spec.slo.itl_seconds or TOKEN_SECONDS
    )


def derived_grace(spec: LLMEndpointSpec) -> int | None:
    """What a new revision records; None where the spec's own `terminationGracePeriodSeconds` holds."""
    written, longest = spec.termination_grace_period_seconds, longest_generation_seconds(spec)
    if written != DEFAULT_SECONDS or longest is None:
        return None
    derived = min(_whole(longest), LONGEST_SECONDS)
    return derived if derived > written else None


def with_grace(revision: Revision) -> Revision:
    """As it is rendered: what was derived when it was made takes the place of the default."""
    if revision.grace_seconds is None:
        return revision
    update = {"termination_grace_period_seconds": revision.grace_seconds}
    return replace(revision, inputs=revision.inputs.model_copy(update=update))


def too_short(spec: LLMEndpointSpec) -> Event | None:
    """A warning where requests that are allowed would be cut when their replica is stopped."""
    longest, grace = (
        longest_generation_seconds(spec),
        derived_grace(spec) or spec.termination_grace_period_seconds,
    )
    if longest is None or grace >= _whole(longest):
        return None
    return Event(
        "GraceTooShort",
        f"a generation of spec.engine.maxModelLen={spec.engine.max_model_len} tokens may take {longest:.0f} s, but a "
        f"replica that is stopped has {grace} s: longer ones are cut then. Raise spec.terminationGracePeriodSeconds to "
        f"{_whole(longest)}, or lower maxModelLen",
        "Warning",
    )


def _whole(longest: float) -> int:
    """With the time before a replica is told, and the margin after its last request."""
    return math.ceil(longest) + PRE_STOP_SECONDS + DRAIN_MARGIN_SECONDS
