"""What Envoy's router records of each attempt at a replica: two counters per cluster, and a log of failures for the
picker.

These are attempts, not requests: a retried request has two. The counters are Envoy's own, so they cost the picker
nothing. Only failures and trials are logged to the picker.
"""

from typing import Any

from llmendpoint_gateway.core.envoy.resources import (
    ATTEMPT_HEADER,
    CLUSTER_HEADER,
    CONTROL_CLUSTER,
    KEPT_HEADER,
    TAG_HEADER,
    TRIAL_HEADER,
    Resource,
    extension,
)

# An engine sets this on a 503 that another replica may answer (draining, not ready).
RETRIABLE_HEADER = "x-llmendpoint-retriable"
# An engine sets this on a 500 for a request that was present when it crashed and whose answer had not begun.
CRASHED_HEADER = "x-llmendpoint-crashed"
LENGTH_HEADER = "content-length"  # always present, because Envoy collects the whole body first
SWITCHED = 101
"""The status of an open WebSocket. The engine is the one that closes its connection, in good order too, and Envoy reports
that as a broken answer. So nothing that comes after this status counts as a failure."""
STATS_PREFIX = "attempts"
ENDED, FAILED, CLUSTER_TAG = "ended", "failed", "cluster"
# A trial with a long stream is known to be good this long after its first byte.
PERIOD = "1s"


def make_upstream_logs() -> list[Resource]:
    ended = _log_types("UpstreamEnd")
    # Excludes those to the gateway's own inner listener, for which the picker has not decided yet.
    placed = {"header_filter": {"header": {"name": CLUSTER_HEADER, "present_match": True}}}
    # A client that leaves before the first byte leaves neither a status nor a flag. Such an attempt is not counted,
    # because its outcome is unknown.
    requests = _all(ended, placed, _any(_broken(), _status(100)))
    broken = _all(_broken(), _status(SWITCHED, "NE"))
    errors = _all(ended, placed, _any(broken, _bad_status()))
    trials = {"header_filter": {"header": {"name": TRIAL_HEADER, "present_match": True}}}
    reported = _any(_all(ended, placed, _any(broken, _status(500))), trials)
    return [_counter(ENDED, requests), _counter(FAILED, errors), _report(reported)]


def _counter(name: str, condition: Resource) -> Resource:
    tag = {"name": CLUSTER_TAG, "value_format": "%UPSTREAM_CLUSTER%"}
    return (
        extension(
            "envoy.access_loggers.stats",
            "envoy.extensions.access_loggers.stats.v3.Config",
            stat_prefix=STATS_PREFIX,  # Envoy 1.40 warns that a newer field replaces it, which older ones do not know
            counters=[{"stat": {"name": name, "tags": [tag]}, "value_fixed": 1}],
        )
        | {"filter": condition}
    )


def _report(condition: Resource) -> Resource:
    return extension(
        "envoy.access_loggers.http_grpc",
        "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
        common_config={
            "log_name": "attempts",
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": CONTROL_CLUSTER}},
            "buffer_flush_interval": "0.01s",
        },
        additional_request_headers_to_log=[
            TRIAL_HEADER,
            TAG_HEADER,
            ATTEMPT_HEADER,
            LENGTH_HEADER,
            KEPT_HEADER,
        ],
        additional_response_headers_to_log=[RETRIABLE_HEADER, CRASHED_HEADER],
    ) | {"filter": condition}


def _broken() -> Resource:
    """No connection, a connection that broke before the answer ended, or a late answer."""
    return {"response_flag_filter": {"flags": ["UF", "UC", "UR", "UT", "UPE"]}}


def _bad_status() -> Resource:
    expression = f"response.code >= 500 && !('{RETRIABLE_HEADER}' in response.headers)"
    return {
        "extension_filter": extension(
            "envoy.access_loggers.extension_filters.cel",
            "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
            expression=expression,
        )
    }


def _status(code: int, op: str = "GE") -> Resource:
    value = {"default_value": code, "runtime_key": "unused"}
    return {"status_code_filter": {"comparison": {"op": op, "value": value}}}


def _log_types(*types: str) -> Resource:
    return {"log_type_filter": {"types": list(types)}}


def _all(*filters: Resource) -> Resource:
    return {"and_filter": {"filters": list(filters)}}


def _any(*filters: Resource) -> Resource:
    return {"or_filter": {"filters": list[Any](filters)}}
