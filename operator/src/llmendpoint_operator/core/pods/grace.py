"""How long a stopping replica may take to finish its requests.

It gets as long as its longest generation takes: `slo.ttftSeconds` plus `engine.maxModelLen` tokens at
`slo.itlSeconds` each. A pod ends with its last request, so a generous bound costs time only when a loaded
node is drained. A value that the user wrote holds, except the default: it cannot be told from the same number
written out, and is raised to the longest generation. The value is recorded with the revision, so a later
change of `slo` restarts nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...api import LLMEndpointSpec, PodInputs
from ..endpoint.steps import Event
from ..names import DRAIN_MARGIN_SECONDS, PRE_STOP_SECONDS
from .revision import Revision

TOKEN_SECONDS = 0.05
"""Seconds per token if `slo.itlSeconds` is unset: 20 tokens a second, which is slow."""
LONGEST_SECONDS = 3600
"""Upper bound of a derived grace period: drained nodes seldom wait longer. Users who want more write it."""
DEFAULT_SECONDS: int = PodInputs.model_fields["termination_grace_period_seconds"].default


def longest_generation_seconds(spec: LLMEndpointSpec) -> float | None:
    """Seconds of the longest allowed generation; None if only the model limits its length."""
    if spec.engine.max_model_len is None:
        return None
    return (spec.slo.ttft_seconds or 0.0) + spec.engine.max_model_len * (
        spec.slo.itl_seconds or TOKEN_SECONDS
    )


def derived_grace(spec: LLMEndpointSpec) -> int | None:
    """The grace period in seconds that a new revision records; None if the spec's value holds."""
    written, longest = spec.termination_grace_period_seconds, longest_generation_seconds(spec)
    if written != DEFAULT_SECONDS or longest is None:
        return None
    derived = min(_whole(longest), LONGEST_SECONDS)
    return derived if derived > written else None


def with_grace(revision: Revision) -> Revision:
    """The revision as rendered: its derived grace period replaces the default."""
    if revision.grace_seconds is None:
        return revision
    update = {"termination_grace_period_seconds": revision.grace_seconds}
    return replace(revision, inputs=revision.inputs.model_copy(update=update))


def too_short(spec: LLMEndpointSpec) -> Event | None:
    """A warning if allowed requests would be cut when their replica stops."""
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
    """The generation plus the preStop sleep and the margin after the last request, in whole seconds."""
    return math.ceil(longest) + PRE_STOP_SECONDS + DRAIN_MARGIN_SECONDS
