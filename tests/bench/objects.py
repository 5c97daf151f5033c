"""Objects of thousands of endpoints, as the API server holds them, for the gateway's benchmarks."""

from typing import Any

REVISIONS = ("r1", "r2")
REPLICAS = 2


def endpoint_object(n: int) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team", "name": f"chat{n}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"model": {"source": "embedded://demo"}, "replicas": REPLICAS},
        "status": {"activeRevision": REVISIONS[0]},
    }


def slice_object(n: int, revision: str, ready: bool = True, port: int = 8000) -> dict[str, Any]:
    """A revision's EndpointSlice; `ready`: whether its first replica is. Each replica has an address of this machine."""
    base = (n * len(REVISIONS) + REVISIONS.index(revision)) * REPLICAS
    return {
        "metadata": {
            "namespace": "team",
            "name": f"chat{n}-{revision}",
            "labels": {"llmendpoint.io/endpoint": f"chat{n}", "llmendpoint.io/revision": revision},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port}],
        "endpoints": [
            {
                "addresses": [f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"],
                "conditions": {"ready": ready or number > base, "terminating": False},
                "targetRef": {"kind": "Pod", "name": f"chat{n}-{revision}-{number}"},
            }
            for number in range(base, base + REPLICAS)
        ],
    }
