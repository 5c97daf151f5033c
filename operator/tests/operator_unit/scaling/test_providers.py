"""docs/concepts/autoscaling.md: KEDA or a HorizontalPodAutoscaler gets its object and one figure, and `Scaling` passes on its words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llmendpoint_operator.api import LLMEndpointSpec
from llmendpoint_operator.core.endpoint.plan import Apply, Delete, Step
from llmendpoint_operator.core.endpoint.snapshot import Endpoint, ScalerAddress, Snapshot
from llmendpoint_operator.core.scaling.demand import Demand
from llmendpoint_operator.core.scaling.opinion import Opinion, find_opinion
from llmendpoint_operator.core.scaling.providers import (
    AUTOSCALER,
    SCALED_OBJECT,
    provider_outlook,
    provider_retry,
    provider_steps,
)
from llmendpoint_operator.core.scaling.scene import Scene

from ..fake_cluster import make_spec
from ..scaling_stage import loads, pods, rules

ADDRESS = ScalerAddress("llmendpoint-operator.llm.svc:8083", "llmendpoint-operator.llm")
TARGET = {"apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMEndpoint", "name": "chat"}


def snapshot(spec: LLMEndpointSpec, **fields: Any) -> Snapshot:
    endpoint = Endpoint("team-a", "chat", "uid-1", 1, "1", False, spec)
    return Snapshot(endpoint, None, **{"scaler_address": ADDRESS, **fields})


def scaled_by(provider: str, **fields: Any) -> LLMEndpointSpec:
    return make_spec(autoscaling={"provider": provider, "maxReplicas": 5, **fields})


def only(steps: list[Step]) -> dict[str, Any]:
    [step] = steps
    assert isinstance(step, Apply)
    return step.manifest


def live(manifest: dict[str, Any], **status: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(manifest["apiVersion"], manifest["kind"]): {**manifest, "status": status}}


def test_keda_gets_a_scaled_object_of_the_endpoints_scale_and_never_of_a_deployment() -> None:
    spec = scaled_by(
        "keda", minReplicas=0, cooldownPeriod=60, pollingInterval=5, idleReplicas=None,
        fallback={"failureThreshold": 4, "replicas": 2},
        behavior={"scaleDown": {"stabilizationWindowSeconds": 0}},
    )  # fmt: skip
    made = only(list(provider_steps(snapshot(spec))))
    assert made["spec"]["scaleTargetRef"] == TARGET
    counts = {key: made["spec"][key] for key in ("minReplicaCount", "maxReplicaCount", "cooldownPeriod", "pollingInterval")}  # fmt: skip
    assert counts == {"minReplicaCount": 0, "maxReplicaCount": 5, "cooldownPeriod": 60, "pollingInterval": 5}
    assert made["spec"]["initialCooldownPeriod"] == 60, "a new endpoint is not asleep at once"
    assert made["spec"]["fallback"] == {"failureThreshold": 4, "replicas": 2, "behavior": "static"}
    behavior = made["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == {"scaleDown": {"stabilizationWindowSeconds": 0}}
    [trigger] = made["spec"]["triggers"]
    assert trigger["metadata"] == {"scalerAddress": ADDRESS.address}
    assert trigger["authenticationRef"] == {
        "kind": "ClusterTriggerAuthentication",
        "name": ADDRESS.authentication,
    }


def test_a_horizontal_pod_autoscaler_follows_the_recommendation_of_its_endpoint() -> None:
    made = only(list(provider_steps(snapshot(scaled_by("hpa", minReplicas=2)))))
    assert made["spec"]["scaleTargetRef"] == TARGET
    assert (made["spec"]["minReplicas"], made["spec"]["maxReplicas"]) == (2, 5)
    [metric] = made["spec"]["metrics"]
    assert metric["external"]["metric"]["selector"] == {"matchLabels": {"llmendpoint": "chat"}}
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}


@pytest.mark.parametrize("provider", ["keda", "hpa"])
def test_a_scaler_as_it_is_wanted_is_not_written_again(provider: str) -> None:
    spec = scaled_by(provider)
    made = only(list(provider_steps(snapshot(spec))))
    assert list(provider_steps(snapshot(spec, scalers=live(made)))) == []


@pytest.mark.parametrize(("provider", "field"), [("keda", "triggers"), ("hpa", "metrics")])
def test_what_somebody_adds_to_scale_by_is_taken_away(provider: str, field: str) -> None:
    spec = scaled_by(provider)
    made = only(list(provider_steps(snapshot(spec))))
    more = {**made, "spec": {**made["spec"], field: [*made["spec"][field], {"type": "cpu"}]}}
    assert only(list(provider_steps(snapshot(spec, scalers=live(more))))) == made


def test_a_field_that_the_spec_drops_is_dropped_from_the_scaler() -> None:
    before = only(list(provider_steps(snapshot(scaled_by("keda", fallback={"replicas": 2})))))
    after = only(list(provider_steps(snapshot(scaled_by("keda"), scalers=live(before)))))
    assert "fallback" not in after["spec"]


@pytest.mark.parametrize("spec", [scaled_by("builtin"), scaled_by("none"), scaled_by("hpa"), make_spec()])
def test_the_scaler_of_a_provider_that_is_not_wanted_any_more_goes_first(spec: LLMEndpointSpec) -> None:
    old = only(list(provider_steps(snapshot(scaled_by("keda")))))
    [first, *_] = provider_steps(snapshot(spec, scalers=live(old)))
    assert isinstance(first, Delete)
    assert (first.kind, first.name) == ("ScaledObject", "chat")


def test_a_scaler_that_is_on_its_way_out_is_not_deleted_again() -> None:
    old = only(list(provider_steps(snapshot(scaled_by("keda")))))
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert list(provider_steps(snapshot(scaled_by("builtin"), scalers=live(old)))) == []


@pytest.mark.parametrize(
    ("fields", "reason", "part"),
    [
        ({"keda_missing": True}, "KedaMissing", "install KEDA"),
        ({"scaler_address": None}, "KedaNotServed", "keda.enabled"),
    ],
)
def test_without_keda_nothing_is_made_and_the_condition_says_what_is_missing(
    fields: dict[str, Any], reason: str, part: str
) -> None:
    found = snapshot(scaled_by("keda"), **fields)
    assert list(provider_steps(found)) == []
    outlook = provider_outlook(found)
    assert outlook is not None
    assert (outlook.follows, outlook.reason) == (False, reason)
    assert part in outlook.message


def test_a_missing_keda_is_looked_for_again_and_nothing_else_is() -> None:
    assert provider_retry(snapshot(scaled_by("keda"), keda_missing=True)) == 10
    assert provider_retry(snapshot(scaled_by("keda"))) is None
    assert provider_retry(snapshot(scaled_by("hpa"), keda_missing=True)) is None


@pytest.mark.parametrize(
    ("provider", "condition", "good", "bad"),
    [("keda", "Ready", "ScaledByKeda", "KedaNotReady"), ("hpa", "ScalingActive", "ScaledByHpa", "HpaNotActive")],
)  # fmt: skip
def test_the_outside_scalers_own_words_are_passed_on(
    provider: str, condition: str, good: str, bad: str
) -> None:
    key = SCALED_OBJECT if provider == "keda" else AUTOSCALER

    def reason(*conditions: dict[str, str]) -> str:
        found = {key: {"metadata": {"name": "chat"}, "spec": {}, "status": {"conditions": list(conditions)}}}
        outlook = provider_outlook(snapshot(scaled_by(provider), scalers=found))
        assert outlook is not None
        return outlook.reason

    assert reason() == "ScalerStarting"
    assert reason({"type": condition, "status": "True"}) == good
    assert (
        reason({"type": condition, "status": "False", "reason": "FailedGet", "message": "no metrics"}) == bad
    )


def test_what_keda_says_of_its_autoscaler_is_passed_on_where_its_own_object_is_ready() -> None:
    def said(*conditions: tuple[str, str]) -> str:
        found = [{"type": kind, "status": status, "reason": f"{kind}Reason"} for kind, status in conditions]
        live = {"metadata": {"name": "chat"}, "spec": {}, "status": {"conditions": found}}
        outlook = provider_outlook(snapshot(scaled_by("keda"), scalers={SCALED_OBJECT: live}))
        assert outlook is not None
        return f"{outlook.reason}: {outlook.message}"

    assert said(("Ready", "True"), ("HPAActive", "True")).startswith("ScaledByKeda")
    blind = said(("Ready", "True"), ("HPAActive", "False"))
    assert blind.startswith("KedaNotReady: the ScaledObject says HPAActiveReason")
    both = said(("Ready", "False"), ("HPAActive", "False"))
    assert both.startswith("KedaNotReady: the ScaledObject says ReadyReason"), (
        "the cause, not what follows from it"
    )


def test_the_autoscaler_that_keda_makes_does_not_call_itself_ours() -> None:
    """KEDA copies the labels of a ScaledObject to it, but for those that an annotation names."""
    made = only(list(provider_steps(snapshot(scaled_by("keda")))))
    [excluded] = [text for key, text in made["metadata"]["annotations"].items() if "excluded-labels" in key]
    assert excluded in made["metadata"]["labels"]
    other = only(list(provider_steps(snapshot(scaled_by("hpa")))))
    assert not [key for key in other["metadata"]["annotations"] if "keda" in key]


def scene(demand: Demand | None, **fields: Any) -> Scene:
    found = Scene(rules(provider="keda", minReplicas=0), current=2, ready=pods(2), demand=demand)
    return replace(found, **fields)


def test_the_opinion_is_the_recommendation_of_the_builtin_scaler_without_bounds_or_windows() -> None:
    assert find_opinion(scene(Demand(waiting=100, loads=loads(2, 8)))) == Opinion(True, 27)
    assert find_opinion(scene(Demand(loads=loads(2, 0)))) == Opinion(False, 0)


def test_what_nobody_told_is_no_opinion() -> None:
    assert find_opinion(scene(None)) == Opinion(None, None)
    assert find_opinion(scene(None, ready=(), served=False)) == Opinion(None, None)


def test_a_silent_gateway_lowers_nothing_and_sends_nobody_to_sleep() -> None:
    assert find_opinion(scene(Demand(loads=loads(2, 0), silent=("gateway-1",)))) == Opinion(None, 2)


def test_a_replica_that_loads_is_not_taken() -> None:
    assert find_opinion(scene(Demand(loads=loads(2, 0)), loading=True)) == Opinion(True, 2)
    assert find_opinion(scene(None, loading=True)).active is True


def test_a_new_endpoint_serves_before_it_may_sleep_and_one_without_replicas_is_not_woken() -> None:
    new = Demand(loads={})
    assert find_opinion(scene(new, ready=(), served=False)) == Opinion(True, 2)
    assert find_opinion(scene(new, ready=(), served=False, current=0)) == Opinion(False, 0)


def test_nobody_sleeps_where_no_gateway_would_see_who_calls() -> None:
    assert find_opinion(scene(Demand(loads=loads(2, 0), held=False))).active is True
