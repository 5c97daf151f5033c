"""docs/contribute/contracts.md: what a gateway reads of LLMEndpoints and EndpointSlices, and what it refuses by name."""

from typing import Any

import pytest

from llmendpoint_gateway.core.endpoint.objects import (
    Assignment,
    Endpoint,
    Replica,
    parse_endpoint,
    parse_slice,
)
from llmendpoint_gateway.errors import MalformedObject

LABELS = {"llmendpoint.io/endpoint": "chat", "llmendpoint.io/revision": "r1"}


def slice_body(endpoints: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team-a", "name": "chat-r1-x", "labels": LABELS},
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": 9000}, {"name": "http", "port": 8000}],
        "endpoints": endpoints,
        **more,
    }


def test_an_endpoint_is_served_under_its_own_name_when_it_claims_none() -> None:
    body = {
        "metadata": {"namespace": "a", "name": "chat", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"model": {"source": "embedded://demo"}},
    }
    assert parse_endpoint(body) == Endpoint("a", "chat", "2026-01-01T00:00:00Z", ("chat",), None)
    body["spec"]["model"]["servedNames"] = ["gpt", "gpt-4"]  # type: ignore[assignment]
    body["status"] = {"activeRevision": "r1"}
    assert parse_endpoint(body) == Endpoint("a", "chat", "2026-01-01T00:00:00Z", ("gpt", "gpt-4"), "r1")


def endpoint_body(**status: Any) -> dict[str, Any]:
    metadata = {"namespace": "a", "name": "chat", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "status": status}


def test_traffic_wins_over_the_active_revision_and_keeps_only_weights_above_zero() -> None:
    weights = [
        {"revision": "r2", "weight": 10},
        {"revision": "r1", "weight": 90},
        {"revision": "r0", "weight": 0},
    ]
    traffic = {"epoch": 7, "weights": weights, "draining": ["p1"]}
    endpoint = parse_endpoint(endpoint_body(activeRevision="r1", traffic=traffic))
    assert endpoint.assignment == Assignment(7, (("r1", 90), ("r2", 10)))
    assert endpoint.draining == {"p1"}
    assert endpoint.proven is None
    assert parse_endpoint(endpoint_body(rollout={"state": "Observing", "blue": "r1"})).proven == "r1"
    assert parse_endpoint(endpoint_body(activeRevision="r1")).assignment == Assignment(None, (("r1", 100),))
    assert parse_endpoint(endpoint_body()).assignment is None


def test_the_paths_that_its_runtime_declares_are_in_the_status_and_no_others_pass() -> None:
    assert parse_endpoint(endpoint_body(paths=["/pooling", "/metrics"])).paths == {"/pooling"}
    assert parse_endpoint(endpoint_body()).paths == frozenset()


@pytest.mark.parametrize(
    "traffic", [{"epoch": 1, "weights": [{"revision": "r1"}]}, {"weights": []}, {"epoch": "x"}]
)
def test_traffic_that_cannot_be_read_is_named(traffic: dict[str, Any]) -> None:
    with pytest.raises(MalformedObject, match=r"a/chat: status.traffic is to be"):
        parse_endpoint(endpoint_body(traffic=traffic))


def test_a_slice_gives_replicas_on_its_http_port_with_their_conditions() -> None:
    pod = {"targetRef": {"kind": "Pod", "name": "p1"}}
    parsed = parse_slice(
        slice_body(
            [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, **pod},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": False}},
                {"addresses": ["10.0.0.3"], "conditions": {"ready": True, "terminating": True}},
                {"addresses": ["10.0.0.4"], "conditions": {}},
            ]
        )
    )
    assert (parsed.endpoint, parsed.revision) == ("team-a/chat", "r1")
    assert [r.address for r in parsed.replicas] == [f"10.0.0.{i}:8000" for i in (1, 2, 3, 4)]
    assert [r.routable for r in parsed.replicas] == [True, False, False, True]
    assert parsed.replicas[0].pod == "p1"


def test_ipv6_addresses_are_bracketed() -> None:
    parsed = parse_slice(slice_body([{"addresses": ["fd00::1"]}], addressType="IPv6"))
    assert parsed.replicas == (Replica("[fd00::1]:8000", "fd00::1", True, False),)


@pytest.mark.parametrize(
    "more", [{"addressType": "FQDN"}, {"ports": []}, {"ports": None}, {"endpoints": None}]
)
def test_a_slice_that_names_no_pod_has_no_replicas(more: dict[str, Any]) -> None:
    assert parse_slice(slice_body([{"addresses": ["a.example"]}]) | more).replicas == ()


def test_a_slice_without_its_labels_is_refused_by_name() -> None:
    body = slice_body([])
    body["metadata"]["labels"] = {"llmendpoint.io/endpoint": "chat"}
    with pytest.raises(MalformedObject, match=r"team-a/chat-r1-x.*llmendpoint.io/revision"):
        parse_slice(body)
