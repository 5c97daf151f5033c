"""Envoy's configuration as plain dicts in protobuf's JSON form: pure builders, one per resource.

The settings that look arbitrary were measured; each comment names what went wrong without it.
"""

from typing import Any

from llmendpoint_gateway.core.envoy import bounds

Resource = dict[str, Any]

DESTINATION_HEADER = "x-gateway-destination-endpoint"
CLUSTER_HEADER = "x-gateway-cluster"
TRIAL_HEADER = "x-gateway-trial"  # on a request whose every outcome is reported
KEPT_HEADER = "x-gateway-kept"  # on a request whose large body Envoy keeps for a second attempt
WHOLE_HEADER = "x-gateway-whole"  # on a request whose body has come in whole
TAG_HEADER = (
    "x-gateway-tag"  # core/request/request.py: it shows that a report of an attempt is of this request
)
ATTEMPT_HEADER = "x-envoy-attempt-count"  # Envoy's own: 1, and 2 on a retry
PRIORITY_HEADER = "x-llmendpoint-priority"  # from a client: high, normal or low
LOGGED_METADATA, KEY_FIELD = "llmendpoint", "key"  # what the picker tells Envoy for its log
RESERVED_PREFIX = "x-gateway-"
CONTROL_CLUSTER = "control"
PICKER_CLUSTER = "picker"
LARGE_CLUSTER = "large-bodies"  # Envoy's own inner listener
METADATA, METADATA_ENDPOINT = "llmendpoint", "endpoint"  # of a revision's cluster: which endpoint it is of
# A node without power answers nothing. Envoy closes an engine's connection after 30 s of silence and three probes, or
# if sent data stays unacknowledged for UNACKNOWLEDGED_MS. The kernel's defaults are two hours and 15 minutes.
KEEPALIVE = {"keepalive_time": 30, "keepalive_interval": 10, "keepalive_probes": 3}
UNACKNOWLEDGED_MS = 60_000
_IPPROTO_TCP, _TCP_USER_TIMEOUT = 6, 18
# Engines with a keep-alive of 5 s (uvicorn's default) may close a connection just as Envoy sends on it. So Envoy closes
# it first.
UPSTREAM_IDLE_TIMEOUT = "4s"

_LIMITS = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), 1_000_000)
NO_LIMITS: Resource = {"thresholds": [_LIMITS]}
ADS: Resource = {"ads": {}, "resource_api_version": "V3"}
"""A source of configuration: the stream to the picker."""


def extension(name: str, message: str, /, **config: Any) -> Resource:
    return {"name": name, "typed_config": {"@type": f"type.googleapis.com/{message}", **config}}


def skipped_where(predicate: Resource, one: Resource) -> Resource:
    """The filter, skipped for requests that match the predicate."""
    skip = extension("skip", "envoy.extensions.filters.common.matcher.action.v3.SkipFilter")
    rule = {"predicate": {"single_predicate": predicate}, "on_match": {"action": skip}}
    return extension(
        one["name"],
        "envoy.extensions.common.matching.v3.ExtensionWithMatcher",
        extension_config=one,
        xds_matcher={"matcher_list": {"matchers": [rule]}},
    )


def http2_options() -> Resource:
    """For callers' connections, and for both ends of connections to the inner listener.

    HTTP/2 forbids some of what HTTP/1.1 allows: an empty host, for example, or an engine's `te`. Such a message ends
    its own request. By default it would end the connection, with up to MAX_STREAMS other requests.
    """
    return {
        "override_stream_error_on_invalid_http_message": True,
        "max_concurrent_streams": bounds.MAX_STREAMS,
        "initial_stream_window_size": bounds.STREAM_WINDOW_BYTES,
        "initial_connection_window_size": bounds.CONNECTION_WINDOW_BYTES,
    }


def make_cluster(name: str) -> Resource:
    """The cluster of one revision. It never changes; only its endpoints change."""
    return {
        "name": name,
        "metadata": {"filter_metadata": {METADATA: {METADATA_ENDPOINT: name.rpartition("/")[0]}}},
        "type": "EDS",
        "connect_timeout": "1s",
        "per_connection_buffer_limit_bytes": bounds.CONNECTION_BUFFER_BYTES,
        "eds_cluster_config": {"eds_config": ADS},
        # The defaults (1,024) stall a gateway with more streams. A retry budget replaces max_retries; its minimum lets
        # a small gateway retry everything that a killed replica held.
        "circuit_breakers": {
            "thresholds": [
                {
                    **_LIMITS,
                    "retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 64},
                }
            ]
        },
        # In panic mode Envoy would send to replicas that are not ready instead of answering 503.
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "load_balancing_policy": {"policies": [{"typed_extension_config": _override_host()}]},
        "upstream_connection_options": {"tcp_keepalive": KEEPALIVE},
        "upstream_bind_config": {"socket_options": [user_timeout(UNACKNOWLEDGED_MS)]},
        "typed_extension_protocol_options": _http_options(
            common_http_protocol_options={"idle_timeout": UPSTREAM_IDLE_TIMEOUT},
            explicit_http_config={"http_protocol_options": {}},
        ),
    }


def user_timeout(milliseconds: int) -> Resource:
    """Ends a connection whose peer acknowledged nothing, or had no room for more, for this time."""
    return {
        "description": "TCP_USER_TIMEOUT",
        "level": _IPPROTO_TCP,
        "name": _TCP_USER_TIMEOUT,
        "int_value": milliseconds,
        "state": "STATE_PREBIND",
    }


def _override_host() -> Resource:
    """Tries the replicas that the picker named, in order, and no others: the picker knows which replicas are ejected,
    busy or of another revision.

    Envoy requires a fallback. This one is a subset without hosts, so that after the last named replica Envoy answers
    503 `replica_failed`.
    """
    child = extension(
        "envoy.load_balancing_policies.least_request",
        "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
    )
    nothing = extension(
        "envoy.load_balancing_policies.subset",
        "envoy.extensions.load_balancing_policies.subset.v3.Subset",
        fallback_policy="NO_FALLBACK",
        subset_lb_policy={"policies": [{"typed_extension_config": child}]},
    )
    return extension(
        "envoy.load_balancing_policies.override_host",
        "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
        override_host_sources=[{"header": DESTINATION_HEADER}],
        fallback_policy={"policies": [{"typed_extension_config": nothing}]},
    )


def make_picker_cluster(name: str, socket: str, requests: int | None = None) -> Resource:
    """ADS and ext_proc have a cluster each, so that the load of one does not delay the other. The keep-alive detects a
    hung picker. `requests`: the most concurrent ones."""
    cluster = _socket_cluster(name, socket, {"connection_keepalive": {"interval": "5s", "timeout": "3s"}})
    limits = {} if requests is None else {"max_requests": requests}
    return cluster | {"circuit_breakers": {"thresholds": [_LIMITS | limits]}}


def make_inner_cluster(socket: str) -> Resource:
    """Envoy's inner listener. With Envoy's default windows, two callers that do not read would block all others. It
    needs no keep-alive, because it lives as long as Envoy does. Callers share these connections, so a connection ends
    long before MAX_RESETS can close it."""
    return _socket_cluster(
        LARGE_CLUSTER,
        socket,
        http2_options() | {"initial_stream_window_size": bounds.INNER_WINDOW_BYTES},
        common_http_protocol_options={"max_requests_per_connection": bounds.INNER_REQUESTS},
    )


def _socket_cluster(name: str, socket: str, http2: Resource, **options: Any) -> Resource:
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "circuit_breakers": NO_LIMITS,
        "typed_extension_protocol_options": _http_options(
            explicit_http_config={"http2_protocol_options": http2}, **options
        ),
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": socket}}}}]}],
        },
    }


def _http_options(**options: Any) -> Resource:
    message = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {message: {"@type": f"type.googleapis.com/{message}", **options}}
