"""The way to the batch service, which keeps files, batches and responses: past the picker, byte by byte.

An upload has up to hundreds of MB, so that nothing of it is collected here. The service has one pod. While that pod starts
anew nothing listens, so that a request waits for it a few seconds: connections that are refused are tried again, and each
request has one of its own, because a kept connection may be that of the ended pod.
"""

from llmendpoint_gateway.core.envoy import bounds
from llmendpoint_gateway.core.envoy.resources import KEEPALIVE, Resource

BATCH_CLUSTER = "batch-service"
PATHS = ("/v1/files", "/v1/uploads", "/v1/batches")
RESPONSES = "/v1/responses"
DIRECT_HEADER, DIRECT = "x-llmendpoint-responses", "direct"
"""The service itself asks endpoints with this header, so that its requests do not come back to it. Whoever else sends it
gets what an endpoint answers without the service: a response that is not stored."""
UNAVAILABLE_RETRY_AFTER = 2
DISABLED = (
    "Files, batches and stored responses are not served here: the batch service is off (the chart's value batch.enabled).",
    "batch_service_off",
    "invalid_request_error",
)
_LIMITS = {"max_connections": 1024, "max_pending_requests": 1024, "max_requests": 1024, "max_retries": 1024}
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def make_batch_cluster(address: str) -> Resource:
    """`address`: host and port of its Service."""
    host, _, port = address.rpartition(":")
    place = {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}
    return {
        "name": BATCH_CLUSTER,
        "type": "STRICT_DNS",
        "dns_lookup_family": "V4_PREFERRED",
        "connect_timeout": "2s",
        "per_connection_buffer_limit_bytes": bounds.CONNECTION_BUFFER_BYTES,
        "circuit_breakers": {"thresholds": [_LIMITS]},
        "upstream_connection_options": {"tcp_keepalive": KEEPALIVE},
        "typed_extension_protocol_options": {
            _OPTIONS: {
                "@type": f"type.googleapis.com/{_OPTIONS}",
                "common_http_protocol_options": {"max_requests_per_connection": 1},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
        "load_assignment": {
            "cluster_name": BATCH_CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": place}}]}],
        },
    }


def make_batch_action(idle: str) -> Resource:
    """Only what the service has not seen is sent again: a second upload would be a second file. `idle`: how long it may be
    silent."""
    return {
        "cluster": BATCH_CLUSTER,
        "timeout": "0s",
        "idle_timeout": idle,
        "retry_policy": {
            "retry_on": "connect-failure,refused-stream,reset-before-request",
            "num_retries": 6,
            "retry_back_off": {"base_interval": "0.5s", "max_interval": "3s"},
        },
    }


def not_direct() -> Resource:
    """A matcher of the header. A request for /v1/responses without it is for the batch service, if there is one."""
    exact = {"string_match": {"exact": DIRECT}, "invert_match": True}
    return {"name": DIRECT_HEADER, "treat_missing_header_as_empty": True, **exact}


def of_batches(there: bool) -> Resource:
    """A filter for local replies: the request was for the batch service. `there`: there is one."""
    kept = _header_filter(_path("/v1/(files|uploads|batches)([/?].*)?"))
    if not there:
        return kept
    responses = [_header_filter(_path("/v1/responses([/?].*)?")), _header_filter(not_direct())]
    return {"or_filter": {"filters": [kept, {"and_filter": {"filters": responses}}]}}


def _path(regex: str) -> Resource:
    return {"name": ":path", "string_match": {"safe_regex": {"regex": regex}}}


def _header_filter(header: Resource) -> Resource:
    return {"header_filter": {"header": header}}
