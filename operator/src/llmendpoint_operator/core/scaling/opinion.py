"""What the operator reports to an outside scaler (KEDA, a HorizontalPodAutoscaler): its own recommendation
before smoothing. The outside scaler applies bounds, windows, cooldown and fallback."""

from __future__ import annotations

from dataclasses import dataclass

from .scene import Scene
from .signals import recommend


@dataclass(frozen=True, slots=True)
class Opinion:
    """`active`: False only if the endpoint may be scaled to its idle count. `replicas`: the number that the
    load needs. None means unknown and is never reported as 0."""

    active: bool | None
    replicas: int | None


def find_opinion(scene: Scene) -> Opinion:
    """While a gateway is silent, a replica loads, or no first revision has served, the result never lowers
    the count. If no gateway would hold and report requests at zero, the endpoint stays active."""
    if scene.demand is None:
        return Opinion(True if scene.loading else None, None)
    starts = scene.loading or (scene.current > 0 and not scene.served)
    found = recommend(scene, scene.demand.only(scene.ready))
    most = max(recommendation.replicas for recommendation in found)
    lowers = not (scene.demand.partial or starts) and all(one.lowers for one in found)
    quiet = None if scene.demand.partial else False
    active = True if scene.called or starts or not scene.demand.held else quiet
    return Opinion(active, most if lowers else max(most, scene.current))
