"""docs/decisions/envoy-and-python.md: Envoy's configuration parses as Envoy's own types, and holds what each trap taught us."""

import resource
from pathlib import Path

import pytest
from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.resource_monitors.downstream_connections.v3 import (
    downstream_connections_pb2,  # noqa: F401  (these register what an "@type" may name)
)
from envoy.extensions.resource_monitors.fixed_heap.v3 import fixed_heap_pb2  # noqa: F401
from envoy.extensions.resource_monitors.injected_resource.v3 import injected_resource_pb2  # noqa: F401
from google.protobuf import json_format
from google.protobuf.json_format import ParseDict

from llmendpoint_gateway.core.envoy.bootstrap import make_bootstrap
from llmendpoint_gateway.core.envoy.bounds import Share
from llmendpoint_gateway.core.envoy.front import Front, make_front, read_front
from llmendpoint_gateway.core.envoy.resources import NO_LIMITS, Resource, make_cluster
from llmendpoint_gateway.core.envoy.routes import make_routes
from llmendpoint_gateway.core.envoy.snapshot import Health, Host
from llmendpoint_gateway.core.envoy.xds import CLUSTER, ENDPOINTS
from llmendpoint_gateway.errors import EnvoyNotFound
from llmendpoint_gateway.serve.envoy import open_files
from llmendpoint_gateway.serve.envoy.process import find_envoy
from llmendpoint_gateway.serve.envoy.protos import pack, pack_endpoints

ARGUMENTS = (
    "/run/gateway/control.sock",
    "/run/gateway/decisions.sock",
    "/run/gateway/envoy-inner.sock",
    "/run/gateway/envoy-connections",
    "0.0.0.0",
    8080,
    "/run/gateway/admin.sock",
    "i-1",
    Share(),
)
BOOTSTRAP = make_bootstrap(*ARGUMENTS)
WITH_BATCHES = make_bootstrap(*ARGUMENTS, "llmendpoint-batch.llm.svc:80")


@pytest.mark.parametrize("config", [BOOTSTRAP, WITH_BATCHES])
def test_every_resource_parses_as_its_type(config: Resource) -> None:
    bootstrap = ParseDict(config, bootstrap_pb2.Bootstrap())
    front = read_front(json_format.MessageToDict(bootstrap.node.metadata))
    assert front == Front("0.0.0.0", 8080, ARGUMENTS[2], Share(), config is WITH_BATCHES)
    assert not bootstrap.static_resources.listeners
    for kind, found in make_front(front).items():
        assert found.keys() == {"openai", "large"}
        for body in found.values():
            assert pack(kind, body).type_url == kind
    assert pack(CLUSTER, make_cluster("a/chat/r1")).type_url == CLUSTER
    hosts = (Host("10.0.0.1:8000", Health.HEALTHY), Host("[fd00::1]:8000", Health.DRAINING))
    packed = pack_endpoints("a/chat/r1", hosts)
    assert packed.type_url == ENDPOINTS
    assignment = endpoint_pb2.ClusterLoadAssignment.FromString(packed.value)
    assert assignment.cluster_name == "a/chat/r1"
    places = [
        (one.endpoint.address.socket_address, one.health_status)
        for one in assignment.endpoints[0].lb_endpoints
    ]
    assert [(address.address, address.port_value, health) for address, health in places] == [
        ("10.0.0.1", 8000, health_check_pb2.HEALTHY),
        ("fd00::1", 8000, health_check_pb2.DRAINING),
    ]


def test_trap_8_every_circuit_breaker_limit_is_raised_on_control_clusters_too() -> None:
    """The one on requests at the picker is meant: it is as high as there are connections."""
    clusters = [*BOOTSTRAP["static_resources"]["clusters"], make_cluster("a/chat/r1")]
    assert len(clusters) == 4
    for cluster in clusters:
        (threshold,) = cluster["circuit_breakers"]["thresholds"]
        places = {"max_requests": Share().connections} if cluster["name"] == "picker" else {}
        assert (NO_LIMITS["thresholds"][0] | places).items() <= threshold.items()
        assert len(NO_LIMITS["thresholds"][0]) == 4


def test_trap_2_no_route_names_a_cluster_of_replicas() -> None:
    for route in make_routes("large", large_apart=False)["virtual_hosts"][0]["routes"]:
        assert route["route"]["cluster_header"] == "x-gateway-cluster"
        assert "cluster" not in route["route"]


def test_ads_and_the_picker_have_clusters_of_their_own() -> None:
    clusters = [cluster["name"] for cluster in BOOTSTRAP["static_resources"]["clusters"]]
    assert clusters == ["control", "picker", "large-bodies"]


def test_trap_8_the_open_file_limit_is_raised_to_the_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert open_files.raise_open_file_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_an_envoy_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvoyNotFound, match="no-envoy"):
        find_envoy(tmp_path / "no-envoy")
