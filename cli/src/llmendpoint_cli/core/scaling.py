"""Whether a user may set the number of replicas, and when this number is reached."""

from __future__ import annotations

from .objects import Object, conditions_of, is_observed, is_true, reason_text, status_of


def refusal(endpoint: Object) -> str | None:
    """Why a number that a user sets would not last; None if it would."""
    autoscaling = endpoint["spec"].get("autoscaling")
    if not autoscaling:
        return None
    provider = autoscaling.get("provider", "builtin")
    if provider == "none":
        return None
    return (
        f"autoscaling sets the number of replicas (provider {provider}); change spec.autoscaling.minReplicas and "
        "maxReplicas, or set spec.autoscaling.provider to none"
    )


def reached(endpoint: Object, count: int) -> bool:
    """Whether exactly this many replicas exist, and all are ready."""
    status = status_of(endpoint)
    there, ready = int(status.get("replicas", 0)), int(status.get("readyReplicas", 0))
    return is_observed(endpoint) and there == count and ready == count


def hopeless(endpoint: Object) -> str | None:
    """Why the number cannot be reached without a change; None while it can."""
    stalled = conditions_of(endpoint).get("Stalled")
    if stalled is None or not is_true(stalled) or not is_observed(endpoint):
        return None
    return reason_text(stalled)
