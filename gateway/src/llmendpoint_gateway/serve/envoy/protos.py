"""From plain dicts to Envoy's protobuf messages.

The imports look unused, but each registers messages that an "@type" in a dict may name. Only what the picker sends is
imported, because each import delays a picker's start. The bootstrap goes to Envoy as JSON.
"""

from envoy.config.cluster.v3 import cluster_pb2  # noqa: F401
from envoy.config.core.v3.health_check_pb2 import HealthStatus
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.extensions.load_balancing_policies.least_request.v3 import least_request_pb2  # noqa: F401
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2  # noqa: F401
from envoy.extensions.load_balancing_policies.subset.v3 import subset_pb2  # noqa: F401
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2  # noqa: F401
from google.protobuf.any_pb2 import Any
from google.protobuf.json_format import ParseDict

from llmendpoint_gateway.core.envoy.resources import Resource
from llmendpoint_gateway.core.envoy.snapshot import Health, Hosts
from llmendpoint_gateway.core.envoy.xds import ENDPOINTS

__all__ = ["Any", "pack", "pack_endpoints"]

_STATUS = {health: HealthStatus.Value(health.value) for health in Health}


def pack(type_url: str, body: Resource) -> Any:
    """Raises google.protobuf.json_format.ParseError if the dict does not fit its type."""
    return ParseDict({"@type": type_url, **body}, Any())


def pack_endpoints(cluster: str, hosts: Hosts) -> Any:
    """A cluster's hosts. Not by way of a dict: they change most often, and that takes twelve times as long."""
    message = ClusterLoadAssignment(cluster_name=cluster)
    places = message.endpoints.add().lb_endpoints
    for host in hosts:
        place = places.add()
        place.health_status = _STATUS[host.health]
        ip, _, port = host.address.rpartition(":")
        address = place.endpoint.address.socket_address
        address.address, address.port_value = ip.strip("[]"), int(port)
    return Any(type_url=ENDPOINTS, value=message.SerializeToString())
