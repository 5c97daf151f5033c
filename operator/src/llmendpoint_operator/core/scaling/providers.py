"""Outside scalers: an endpoint's ScaledObject for KEDA, or its HorizontalPodAutoscaler.

Both write the endpoint's /scale and never a Deployment, so that `spec.replicas` has one writer. Both follow
one figure, the operator's recommendation (opinion.py). Objects that the chosen provider does not need are
deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from ...api.autoscaling import AutoscalingSpec, Provider, ScalingRules
from ..endpoint.snapshot import ScalerAddress, Snapshot
from ..endpoint.steps import Apply, Delete, Event, Step
from ..pods.drift import first_difference
from ..pods.manifests import Manifest, Owner, child_metadata
from ..pods.state import find_condition
from ..sentences import fitting
from .outcome import Outlook

SCALED_OBJECT = ("keda.sh/v1alpha1", "ScaledObject")
AUTOSCALER = ("autoscaling/v2", "HorizontalPodAutoscaler")
RECOMMENDED_METRIC = "llmendpoint_operator_recommended_replicas"
RETRY_SECONDS = 10.0
DIGEST = "llmendpoint.io/spec-digest"
ENDPOINT_NAME = "llmendpoint"
"""Label of that metric; its value is the endpoint's name."""
NOT_PASSED_ON = {"scaledobject.keda.sh/hpa-excluded-labels": "app.kubernetes.io/managed-by"}
"""KEDA copies a ScaledObject's labels to the autoscaler that it creates, which would then look like ours."""


def make_scaled_object(owner: Owner, spec: AutoscalingSpec, scaler: ScalerAddress) -> Manifest:
    """A ScaledObject with an external-push trigger: KEDA learns at once of a request that waits at zero."""
    wanted: Manifest = {
        "scaleTargetRef": _target(owner),
        "pollingInterval": spec.polling_interval,
        "cooldownPeriod": spec.cooldown_period,
        # Without it KEDA scales an endpoint that it has never seen active to zero at the first check.
        "initialCooldownPeriod": spec.cooldown_period,
        "minReplicaCount": spec.min_replicas,
        "maxReplicaCount": spec.max_replicas,
        "triggers": [
            {
                "type": "external-push",
                "metricType": "AverageValue",
                "metadata": {"scalerAddress": scaler.address},
                "authenticationRef": {
                    "kind": "ClusterTriggerAuthentication",
                    "name": scaler.authentication,
                },
            }
        ],
    }
    if spec.idle_replicas is not None:
        wanted["idleReplicaCount"] = spec.idle_replicas
    if spec.fallback is not None:
        wanted["fallback"] = {
            "failureThreshold": spec.fallback.failure_threshold,
            "replicas": spec.fallback.replicas,
            "behavior": spec.fallback.behavior,
        }
    if behavior := _behavior(spec):
        wanted["advanced"] = {"horizontalPodAutoscalerConfig": {"behavior": behavior}}
    made = _child(SCALED_OBJECT, owner, wanted)
    made["metadata"]["annotations"] |= NOT_PASSED_ON
    return made


def make_autoscaler(owner: Owner, spec: AutoscalingSpec) -> Manifest:
    """A HorizontalPodAutoscaler on an external metric; a metrics adapter reads it from the operator."""
    selector = {"matchLabels": {ENDPOINT_NAME: owner.name}}
    metric = {
        "metric": {"name": RECOMMENDED_METRIC, "selector": selector},
        "target": {"type": "AverageValue", "averageValue": "1"},
    }
    wanted: Manifest = {
        "scaleTargetRef": _target(owner),
        "minReplicas": spec.min_replicas,
        "maxReplicas": spec.max_replicas,
        "metrics": [{"type": "External", "external": metric}],
    }
    if behavior := _behavior(spec):
        wanted["behavior"] = behavior
    return _child(AUTOSCALER, owner, wanted)


def provider_steps(snapshot: Snapshot) -> Iterator[Step]:
    """Unwanted scalers are deleted first, because two scalers of one endpoint would fight."""
    endpoint = snapshot.endpoint
    wanted = _wanted(snapshot)
    for (version, kind), live in snapshot.scalers.items():
        if "deletionTimestamp" in live["metadata"]:
            continue  # KEDA's finalizer keeps it until KEDA has cleaned up
        if wanted is None or kind != wanted["kind"]:
            said = f"{kind} {live['metadata']['name']} is not what spec.autoscaling.provider asks for"
            yield Delete(
                version, kind, endpoint.namespace, live["metadata"]["name"], Event("ScalerRemoved", said)
            )
    if wanted is None:
        return
    found = snapshot.scalers.get((wanted["apiVersion"], wanted["kind"]))
    # Compared as a whole: a trigger or metric that another writer adds would scale too.
    field = "triggers" if wanted["kind"] == SCALED_OBJECT[1] else "metrics"
    added = found is not None and len(found["spec"].get(field, ())) != len(wanted["spec"][field])
    difference = first_difference(wanted, found)
    if difference is not None or added:
        said = f"{wanted['kind']} {wanted['metadata']['name']}: {difference or f'spec.{field}'} restored"
        yield Apply(wanted, Event("ScalerChanged", said) if found else None)


def provider_retry(snapshot: Snapshot) -> float | None:
    """Seconds after which to check again whether KEDA is installed (no event reports that), or None."""
    spec = snapshot.endpoint.spec.autoscaling if snapshot.endpoint.spec else None
    waits = spec is not None and spec.provider is Provider.KEDA and snapshot.keda_missing
    return RETRY_SECONDS if waits else None


def provider_outlook(snapshot: Snapshot) -> Outlook | None:
    """The state of the outside scaler, from its own conditions; None without one."""
    spec = snapshot.endpoint.spec
    if spec is None or spec.autoscaling is None:
        return None
    if spec.autoscaling.provider is Provider.KEDA:
        return _keda_outlook(snapshot)
    if spec.autoscaling.provider is Provider.HPA:
        live = snapshot.scalers.get(AUTOSCALER)
        return _said(live, "ScalingActive", "ScaledByHpa", "HpaNotActive", "HorizontalPodAutoscaler")
    return None


def _keda_outlook(snapshot: Snapshot) -> Outlook:
    hint = "or set spec.autoscaling.provider to builtin"
    if snapshot.scaler_address is None:
        said = f"this operator was started without --keda-address; set the chart's keda.enabled, {hint}"
        return Outlook(False, "KedaNotServed", said)
    if snapshot.keda_missing:
        said = f"the cluster has no resource ScaledObject (keda.sh/v1alpha1); install KEDA, {hint}"
        return Outlook(False, "KedaMissing", said)
    live = snapshot.scalers.get(SCALED_OBJECT)
    # Ready is about the ScaledObject. KEDA's autoscaler may still lack figures or KEDA's metrics API
    # (HPAActive).
    ready, active = (find_condition(live or {}, kind).get("status") for kind in ("Ready", "HPAActive"))
    telling = "HPAActive" if (ready, active) == ("True", "False") else "Ready"
    return _said(live, telling, "ScaledByKeda", "KedaNotReady", "ScaledObject")


def _said(live: Manifest | None, condition: str, good: str, bad: str, kind: str) -> Outlook:
    found = find_condition(live or {}, condition)
    if found.get("status") == "False":
        return Outlook(False, bad, fitting(f"the {kind} says {found.get('reason')}: {found.get('message')}"))
    if not found:
        return Outlook(False, "ScalerStarting", f"the {kind} has no status yet", partly=True)
    return Outlook(True, good, f"spec.replicas is set by the {kind} of the same name")


def _wanted(snapshot: Snapshot) -> Manifest | None:
    endpoint = snapshot.endpoint
    spec = endpoint.spec.autoscaling if endpoint.spec else None
    if spec is None:
        return None
    if spec.provider is Provider.HPA:
        return make_autoscaler(endpoint.owner, spec)
    if spec.provider is not Provider.KEDA or snapshot.keda_missing or snapshot.scaler_address is None:
        return None
    return make_scaled_object(endpoint.owner, spec, snapshot.scaler_address)


def _child(kind: tuple[str, str], owner: Owner, spec: Manifest) -> Manifest:
    version, name = kind
    metadata = child_metadata(owner, owner.name, None)
    # A field that is no longer wanted is no difference by itself. The digest differs, and the next apply
    # removes it.
    text = json.dumps(spec, sort_keys=True)
    metadata["annotations"] = {DIGEST: hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {"apiVersion": version, "kind": name, "metadata": metadata, "spec": spec}


def _target(owner: Owner) -> Manifest:
    return {"apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMEndpoint", "name": owner.name}


def _behavior(spec: AutoscalingSpec) -> Manifest:
    directions = {"scaleUp": spec.behavior.scale_up, "scaleDown": spec.behavior.scale_down}
    return {name: found for name, rules in directions.items() if (found := _rules(rules))}


def _rules(rules: ScalingRules) -> Manifest:
    """The rules; empty if they equal the defaults of a HorizontalPodAutoscaler."""
    found: Manifest = rules.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return found
