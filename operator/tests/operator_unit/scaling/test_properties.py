"""docs/concepts/autoscaling.md: the bounds hold, nothing is decided without figures, and a constant load gives a constant number."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_operator.api.autoscaling import AutoscalingSpec
from llmendpoint_operator.core.scaling.demand import Demand, FirstTokens, Load

from ..scaling_stage import Stage, pods, rules


@st.composite
def specs(draw: st.DrawFn) -> AutoscalingSpec:
    """Any spec that the API server lets through, without schedules."""
    least = draw(st.integers(0, 6))
    most = draw(st.integers(max(1, least), 12))
    fields: dict[str, object] = {
        "minReplicas": least,
        "maxReplicas": most,
        "cooldownPeriod": draw(st.sampled_from([0, 30, 300])),
        "signals": draw(
            st.sampled_from(
                [
                    {"queueDepth": {"target": 4}},
                    {"concurrency": {"target": 6}},
                    {"kvCacheUtilization": {"target": 0.7}},
                    {"queueDepth": {"target": 2}, "concurrency": {"target": 6}},
                    {"queueDepth": {"target": 4}, "ttft": {"target": 1}},
                    {"concurrency": {"target": 6}, "ttft": {"target": 1}},
                ]
            )
        ),
        "behavior": draw(
            st.sampled_from(
                [
                    {},
                    {"scaleDown": {"stabilizationWindowSeconds": 0}},
                    {"scaleUp": {"policies": [{"type": "Percent", "value": 50, "periodSeconds": 30}]}},
                    {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
                ]
            )
        ),
    }
    if draw(st.booleans()) and least > 0:
        fields["idleReplicas"] = draw(st.integers(0, least - 1))
    if draw(st.booleans()):
        fields["fallback"] = {"replicas": draw(st.integers(0, most)), "failureThreshold": 2}
    return rules(**fields)


loads = st.builds(
    Load, st.integers(0, 8), st.integers(0, 20), st.floats(0, 1), st.sampled_from([0, 8])
)  # fmt: skip
demands = st.one_of(
    st.none(),
    st.builds(
        Demand,
        st.integers(0, 60),
        st.dictionaries(st.sampled_from(pods(12)), st.integers(0, 20)),
        st.dictionaries(st.sampled_from(pods(12)), loads),
        st.sampled_from([(), ("gw-1",)]),
        first_tokens=st.one_of(st.none(), st.builds(FirstTokens, st.floats(0, 3), st.integers(0, 50))),
    ),
)
moments = st.tuples(demands, st.booleans(), st.integers(0, 12), st.integers(1, 40))


@settings(max_examples=150, deadline=None)
@given(specs(), st.integers(0, 12), st.lists(moments, max_size=25))
def test_the_bounds_hold_and_nothing_is_decided_without_figures(
    spec: AutoscalingSpec, first: int, course: list[tuple[Demand | None, bool, int, int]]
) -> None:
    stage = Stage(spec, current=first)
    idle = spec.min_replicas if spec.idle_replicas is None else spec.idle_replicas
    for demand, loading, ready, seconds in course:
        stage.demand, stage.loading = demand, loading
        stage.ready = min(ready, stage.current)
        stage.now += timedelta(seconds=seconds)
        before = stage.current
        found = stage.look()
        assert idle <= found.replicas <= spec.max_replicas
        if demand is None and spec.fallback is None and idle <= before <= spec.max_replicas:
            assert found.replicas == before
        if loading and found.replicas < before:
            assert before > spec.max_replicas
        if (demand is None or demand.partial) and spec.fallback is None and found.replicas < before:
            assert before > spec.max_replicas
        assert (found.change is None) == (found.replicas == before)


@dataclass(frozen=True)
class Callers:
    """So many requests at any time, evenly on the replicas; what finds no room waits."""

    requests: int
    sequences: int = 8
    patience: int = 100
    """As many on one replica, and the first token is late."""

    def on(self, replicas: int) -> Demand:
        if replicas == 0:
            return Demand(waiting=self.requests)
        shares = [self.requests // replicas + (i < self.requests % replicas) for i in range(replicas)]
        found = {
            pod: Load(
                min(share, self.sequences),
                max(0, share - self.sequences),
                min(1.0, share / (2 * self.sequences)),
                self.sequences,
            )
            for pod, share in zip(pods(replicas), shares, strict=True)
        }
        late = FirstTokens(2.0 if max(shares) >= self.patience else 0.1, 20)
        return Demand(
            in_flight=dict(zip(pods(replicas), shares, strict=True)), loads=found, first_tokens=late
        )


@settings(max_examples=100, deadline=None)
@given(specs(), st.integers(0, 12), st.integers(0, 120), st.integers(1, 40))
def test_a_constant_load_settles_and_never_swings(
    spec: AutoscalingSpec, first: int, requests: int, patience: int
) -> None:
    """235 polls of 15 s: within the hour for which it is remembered when the first token was late."""
    stage, callers = Stage(spec, current=first), Callers(requests, patience=patience)
    for _ in range(235):
        stage.demand = callers.on(stage.current)
        stage.poll()
    assert len(set(stage.counts[200:])) == 1
    turns = [b - a for a, b in pairwise(stage.counts) if a != b]
    changes_of_direction = sum((a > 0) != (b > 0) for a, b in pairwise(turns))
    assert changes_of_direction <= 1
