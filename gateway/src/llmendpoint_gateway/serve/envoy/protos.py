"""From plain dicts to Envoy's protobuf messages.

The imports look unused, but each registers messages that an "@type" in a dict may name. Only what the picker sends is
imported, because each import delays a picker's start. The bootstrap goes to Envoy as JSON.
"""

from envoy.config.cluster.v3 import cluster_pb2  # noqa: F401
from envoy.config.core.v3.health_check_pb2 import HealthStatus
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3 import listener_pb2  # noqa: F401
from envoy.config.route.v3 import route_pb2  # noqa: F401
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2  # noqa: F401
from envoy.extensions.access_loggers.grpc.v3 import als_pb2  # noqa: F401
from envoy.extensions.access_loggers.stats.v3 import stats_pb2  # noqa: F401
from envoy.extensions.access_loggers.stream.v3 import stream_pb2  # noqa: F401
from envoy.extensions.common.matching.v3 import extension_matcher_pb2  # noqa: F401
from envoy.extensions.filters.common.matcher.action.v3 import skip_action_pb2  # noqa: F401
from envoy.extensions.filters.http.adaptive_concurrency.v3 import adaptive_concurrency_pb2  # noqa: F401
from envoy.extensions.filters.http.buffer.v3 import buffer_pb2  # noqa: F401
from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2  # noqa: F401
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2  # noqa: F401
from envoy.extensions.filters.http.lua.v3 import lua_pb2  # noqa: F401
from envoy.extensions.filters.http.router.v3 import router_pb2  # noqa: F401
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,  # noqa: F401
)
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    header_mutation_pb2 as early_pb2,  # noqa: F401
)
from envoy.extensions.load_balancing_policies.least_request.v3 import least_request_pb2  # noqa: F401
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2  # noqa: F401
from envoy.extensions.load_balancing_policies.subset.v3 import subset_pb2  # noqa: F401
from envoy.extensions.request_id.uuid.v3 import uuid_pb2  # noqa: F401
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2  # noqa: F401
from envoy.type.matcher.v3 import http_inputs_pb2 as envoy_inputs_pb2  # noqa: F401
from google.protobuf.any_pb2 import Any
from google.protobuf.json_format import ParseDict
from xds.type.matcher.v3 import cel_pb2 as cel_matcher_pb2  # noqa: F401
from xds.type.matcher.v3 import http_inputs_pb2  # noqa: F401

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
