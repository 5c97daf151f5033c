"""From plain dicts to Envoy's protobuf messages.

The imports look unused: each registers the messages that an "@type" in a dict may name.
"""

from typing import Any as Anything

from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.config.cluster.v3 import cluster_pb2  # noqa: F401
from envoy.config.endpoint.v3 import endpoint_pb2  # noqa: F401
from envoy.config.listener.v3 import listener_pb2  # noqa: F401
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2  # noqa: F401
from envoy.extensions.access_loggers.grpc.v3 import als_pb2  # noqa: F401
from envoy.extensions.access_loggers.stats.v3 import stats_pb2  # noqa: F401
from envoy.extensions.access_loggers.stream.v3 import stream_pb2  # noqa: F401
from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2  # noqa: F401
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2  # noqa: F401
from envoy.extensions.filters.http.router.v3 import router_pb2  # noqa: F401
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,  # noqa: F401
)
from envoy.extensions.load_balancing_policies.least_request.v3 import least_request_pb2  # noqa: F401
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2  # noqa: F401
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2  # noqa: F401
from google.protobuf.any_pb2 import Any
from google.protobuf.json_format import ParseDict

from llmendpoint_gateway.core.resources import Resource

__all__ = ["Any", "check_bootstrap", "pack"]


def pack(type_url: str, body: Resource) -> Any:
    """Raises google.protobuf.json_format.ParseError when the dict does not fit its type."""
    return ParseDict({"@type": type_url, **body}, Any())


def check_bootstrap(body: Resource) -> Anything:
    return ParseDict(body, bootstrap_pb2.Bootstrap())
