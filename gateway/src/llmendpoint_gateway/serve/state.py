"""The answer of `GET /state`. docs/contribute/contracts.md has the shape."""

from typing import Any

from llmendpoint_gateway.core.endpoint.names import conflicts
from llmendpoint_gateway.core.endpoint.objects import Endpoint
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.core.placement.prefixes import MOST
from llmendpoint_gateway.core.placement.routing import cluster_name
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.placement.control import Control


def describe(control: Control, ads: Ads) -> dict[str, Any]:
    placement = control.placement
    names: dict[str, list[str]] = {}
    for name, key in placement.view.names.items():
        names.setdefault(key, []).append(name)
    return {
        "generation": control.generation,
        "acknowledged": ads.acknowledged_generation,
        "connected": ads.connected,
        "synced": control.synced,
        "nack": ads.nack,
        "authentication": _authentication(control),
        "prefixes": {"links": len(placement.prompts.prefixes), "most": MOST},
        "endpoints": {
            key: _endpoint(
                placement, endpoint, names.get(key, []), control.held.waiting.count(key), control.now()
            )
            for key, endpoint in placement.view.endpoints.items()
        },
    }


def _authentication(control: Control) -> dict[str, Any]:
    """What is known of the LLMKeys, and nothing that is in them."""
    gate = control.gate
    if gate is None:
        return {"mode": "off"}
    keys = gate.keys
    return {
        "mode": gate.mode.value,
        "synced": keys.synced,
        "keys": len(keys.table),
        "left_out": keys.table.left_out,
        "problem": keys.problem if keys.reach.stale else None,
    }


def _endpoint(
    placement: Placement, endpoint: Endpoint, names: list[str], waiting: int, now: float
) -> dict[str, Any]:
    route = placement.route(endpoint.key)
    assignment = route.assignment if route else None
    replicas = [
        {
            "address": replica.address,
            "pod": replica.pod,
            "revision": revision,
            "ready": replica.routable,
            "draining": replica.pod in endpoint.draining,
            "in_flight": placement.in_flight.of(cluster_name(endpoint.key, revision), replica.address),
            "sockets": placement.sockets.of(cluster_name(endpoint.key, revision), replica.address),
            "breaker": placement.breakers.standing(replica.address, now).value,
        }
        for revision, members in placement.revisions(endpoint.key).items()
        for replica in members
    ]
    return {
        "names": names,
        "conflicts": conflicts(endpoint, placement.view.names),
        "paths": sorted(endpoint.paths),
        "activeRevision": endpoint.active_revision,
        "epoch": assignment.epoch if assignment else None,
        "weights": dict(assignment.weights) if assignment else {},
        "waiting": waiting,
        "breaker": placement.circuits.state(endpoint.key, now).standing.value,
        "replicas": replicas,
    }
