"""Makes the deciding parts of a picker, and gives each the parts that it uses."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from llmendpoint_gateway.core.endpoint.permits import Permits
from llmendpoint_gateway.core.envoy.bounds import KEPT_BODY_BYTES, KEPT_BYTES, SMALL_BODY_BYTES
from llmendpoint_gateway.core.identity.authentication import Authentication
from llmendpoint_gateway.core.placement.kept import Kept
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.core.placement.waiting import Waiting
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.identity.gate import Gate
from llmendpoint_gateway.serve.identity.known_keys import KnownKeys
from llmendpoint_gateway.serve.metrics import Metrics
from llmendpoint_gateway.serve.outcome.outcomes import Outcomes
from llmendpoint_gateway.serve.placement.control import Control
from llmendpoint_gateway.serve.placement.demand_stream import DemandStream
from llmendpoint_gateway.serve.request.answers import Answers
from llmendpoint_gateway.serve.request.ext_proc import Picker
from llmendpoint_gateway.serve.request.held import Held, HeldRequests, Later
from llmendpoint_gateway.serve.traces.traces import Traces, Untraced


@dataclass(frozen=True, slots=True)
class Parts:
    ads: Ads
    placement: Placement
    held: HeldRequests
    demand: DemandStream
    control: Control
    outcomes: Outcomes
    picker: Picker
    metrics: Metrics
    traces: Traces
    gate: Gate | None = None


def make_parts(
    ads: Ads,
    clock: Callable[[], float],
    later: Later,
    hold_seconds: float = 0.0,
    first_ticket: int = 1,
    trusted_hops: int = 0,
    traces_endpoint: str | None = None,
    trace_sampling: float = 1.0,
    authentication: Authentication = Authentication.OFF,
    wall_clock: Callable[[], float] = time.time,
) -> Parts:
    """`clock`: seconds, monotonic. `wall_clock`: seconds since 1970. `traces_endpoint`: where spans go; None: nowhere. The other arguments are as in Placement, HeldRequests and Settings."""
    kept = Kept(SMALL_BODY_BYTES, KEPT_BODY_BYTES, KEPT_BYTES)
    placement, metrics = Placement(kept, clock(), hold_seconds, first_ticket), Metrics()
    waiting: Waiting[Held] = Waiting()
    demand = DemandStream(placement, waiting, clock)
    traces = _make_traces(traces_endpoint, trace_sampling, clock, metrics)
    answers = Answers(placement, metrics, clock, traces)
    gate = None
    if authentication is not Authentication.OFF:
        gate = Gate(authentication, KnownKeys(), Permits(), metrics, wall_clock)
    again = gate.judge_again if gate else None
    held = HeldRequests(placement, waiting, answers, metrics, clock, later, demand.first_wait, again)
    control = Control(ads, placement, held, clock, gate)
    outcomes = Outcomes(placement, held, control, clock)
    picker = Picker(placement, answers, held, outcomes, clock, traces, trusted_hops, gate)
    return Parts(ads, placement, held, demand, control, outcomes, picker, metrics, traces, gate)


def _make_traces(
    endpoint: str | None, sampling: float, clock: Callable[[], float], metrics: Metrics
) -> Traces:
    if endpoint is None:
        return Untraced()
    # Imported here, so that OpenTelemetry takes neither memory nor time where there are no traces.
    from llmendpoint_gateway.serve.traces.otlp import make_tracer

    return make_tracer(endpoint, sampling, clock, metrics)
