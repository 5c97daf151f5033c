"""Makes the deciding parts of a picker, and gives each the parts that it uses."""

from collections.abc import Callable
from dataclasses import dataclass

from llmendpoint_gateway.core.envoy.bounds import KEPT_BODY_BYTES, KEPT_BYTES, SMALL_BODY_BYTES
from llmendpoint_gateway.core.placement.kept import Kept
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.core.placement.waiting import Waiting
from llmendpoint_gateway.serve.envoy.ads import Ads
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


def make_parts(
    ads: Ads,
    clock: Callable[[], float],
    later: Later,
    hold_seconds: float = 0.0,
    first_ticket: int = 1,
    trusted_hops: int = 0,
    traces_endpoint: str | None = None,
    trace_sampling: float = 1.0,
) -> Parts:
    """`clock`: seconds, monotonic. `traces_endpoint`: where spans go; None: nowhere. The other arguments are as in Placement, HeldRequests and Settings."""
    kept = Kept(SMALL_BODY_BYTES, KEPT_BODY_BYTES, KEPT_BYTES)
    placement, metrics = Placement(kept, clock(), hold_seconds, first_ticket), Metrics()
    waiting: Waiting[Held] = Waiting()
    demand = DemandStream(placement, waiting, clock)
    traces = _make_traces(traces_endpoint, trace_sampling, clock, metrics)
    answers = Answers(placement, metrics, clock, traces)
    held = HeldRequests(placement, waiting, answers, metrics, clock, later, demand.first_wait)
    control = Control(ads, placement, held, clock)
    outcomes = Outcomes(placement, held, control, clock)
    picker = Picker(placement, answers, held, outcomes, clock, traces, trusted_hops)
    return Parts(ads, placement, held, demand, control, outcomes, picker, metrics, traces)


def _make_traces(
    endpoint: str | None, sampling: float, clock: Callable[[], float], metrics: Metrics
) -> Traces:
    if endpoint is None:
        return Untraced()
    # Imported here, so that OpenTelemetry takes neither memory nor time where there are no traces.
    from llmendpoint_gateway.serve.traces.otlp import make_tracer

    return make_tracer(endpoint, sampling, clock, metrics)
