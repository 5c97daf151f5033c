"""What a scaler outside the operator (KEDA, a HorizontalPodAutoscaler) is told: the builtin one's own recommendation,
before any smoothing. Bounds, windows, cooling down and the fallback are then theirs."""

from __future__ import annotations

from dataclasses import dataclass

from .scene import Scene
from .signals import recommend


@dataclass(frozen=True, slots=True)
class Opinion:
    """`active`: somebody calls, or a replica loads, or has yet to serve, that must not be taken. `replicas`: there is work for so many. None:
    not known, which is never told as 0."""

    active: bool | None
    replicas: int | None


def find_opinion(scene: Scene) -> Opinion:
    """While a gateway is silent or a replica loads, and before a first revision has served, nothing is said that would lower
    the count; where no gateway would hold and see who calls an endpoint at zero, nobody sleeps."""
    if scene.demand is None:
        return Opinion(True if scene.loading else None, None)
    starts = scene.loading or (scene.current > 0 and not scene.served)
    found = recommend(scene, scene.demand.only(scene.ready))
    most = max(recommendation.replicas for recommendation in found)
    lowers = not (scene.demand.partial or starts) and all(one.lowers for one in found)
    quiet = None if scene.demand.partial else False
    active = True if scene.called or starts or not scene.demand.held else quiet
    return Opinion(active, most if lowers else max(most, scene.current))
