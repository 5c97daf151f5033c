"""The static listener: every request is stripped of our headers, put to the picker, and routed by its answer."""

import json
from typing import Any

from llmendpoint_gateway.core.pick import RESTART_RETRY_AFTER
from llmendpoint_gateway.core.resources import (
    CLUSTER_HEADER,
    MAX_BODY_BYTES,
    PICKER_CLUSTER,
    PRIORITY_HEADER,
    RESERVED_PREFIX,
    Resource,
    extension,
)
from llmendpoint_gateway.core.upstream_logs import (
    CRASHED_HEADER,
    PERIOD,
    RETRIABLE_HEADER,
    make_upstream_logs,
)

READ_HEADERS = (
    ":path",
    ":method",
    "content-encoding",
    "content-type",
    "x-forwarded-for",
    "x-request-id",
    PRIORITY_HEADER,
)
# What callers prove who they are with is the gateway's to read, and no engine's.
CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key")
COMPLETION_PATHS = ("/v1/chat/completions", "/v1/completions")
# A stream may be silent for as long as an engine prefills; nothing ends it but its own end.
STREAM_IDLE_TIMEOUT = "3600s"

_NO_CLUSTER, _UPSTREAM_FAILED = ["NC"], ["UH", "UF", "UC", "UO", "URX", "UR", "LR", "NR", "UPE"]
_UPSTREAM_LATE = ["UT"]


def make_listener(host: str, port: int) -> Resource:
    return {
        "name": "openai",
        "address": {"socket_address": {"address": host, "port_value": port}},
        # What a buffered body may hold: above it 413. Prompts of several MB pass.
        "per_connection_buffer_limit_bytes": MAX_BODY_BYTES,
        "filter_chains": [{"filters": [_connection_manager()]}],
    }


def _connection_manager() -> Resource:
    return extension(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="openai",
        route_config=make_routes(),
        stream_idle_timeout=STREAM_IDLE_TIMEOUT,
        request_headers_timeout="10s",
        use_remote_address=True,
        # A caller finds its own request id in the answer; the picker replaces one that is too long or not plain.
        preserve_external_request_id=True,
        always_set_request_id_in_response=True,
        normalize_path=True,
        merge_slashes=True,
        http_filters=[_strip(), _picker(), _router()],
        local_reply_config=make_local_replies(),
        access_log=[_access_log()],
    )


def make_routes() -> Resource:
    """One destination for all: the cluster that the picker wrote into a header.

    A request keeps the route table that it started with, so a table that named clusters would send what was
    waiting for the picker during a switch to a cluster that is gone. Without the header there is no cluster, and
    503: that is how the gateway fails closed though the filter is told to fail open.
    """
    exact = [{"match": {"path": path}, "route": _action("reset")} for path in COMPLETION_PATHS]
    return {
        "name": "openai",
        "virtual_hosts": [
            {
                "name": "all",
                "domains": ["*"],
                # So that a report of an attempt says which one it was.
                "include_request_attempt_count": True,
                "request_headers_to_remove": list(CREDENTIALS),
                "routes": [*exact, {"match": {"prefix": "/"}, "route": _action("reset-before-request")}],
            }
        ],
    }


def _action(on_reset: str) -> Resource:
    """One retry, on the second replica that the picker named.

    Envoy counts all causes together. One is what a reset may have: with three a request that kills its engine
    kills four. `reset` runs a request a second time, so it is for completions alone; what may store something is
    retried only when the engine has not seen it.
    """
    return {
        "cluster_header": CLUSTER_HEADER,
        "timeout": "0s",
        "idle_timeout": STREAM_IDLE_TIMEOUT,
        "retry_policy": {
            "retry_on": f"connect-failure,refused-stream,{on_reset},retriable-headers",
            "retriable_headers": [
                {"name": name, "string_match": {"exact": "1"}} for name in (RETRIABLE_HEADER, CRASHED_HEADER)
            ],
            "num_retries": 1,
            "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
        },
    }


def _strip() -> Resource:
    """A client chooses neither its replica nor Envoy's retries and timeouts."""
    removals = [
        {"remove_on_match": {"key_matcher": {"prefix": prefix}}} for prefix in (RESERVED_PREFIX, "x-envoy-")
    ]
    return extension(
        "envoy.filters.http.header_mutation",
        "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        mutations={"request_mutations": removals},
    )


def _picker() -> Resource:
    """Headers SEND with the body BUFFERED is the only mode in which Envoy always waits for the answer.

    failure_mode_allow: with false a picker's death cuts every started stream, with true none.
    """
    return extension(
        "envoy.filters.http.ext_proc",
        "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": PICKER_CLUSTER}, "timeout": "0s"},
        processing_mode={
            "request_header_mode": "SEND",
            "request_body_mode": "BUFFERED",
            "response_header_mode": "SKIP",
            "response_body_mode": "NONE",
            "request_trailer_mode": "SKIP",
            "response_trailer_mode": "SKIP",
        },
        # Nothing else is read, and each header sent costs the picker time.
        forward_rules={"allowed_headers": {"patterns": [{"exact": name} for name in READ_HEADERS]}},
        # The time that an answer may take to begin is a header of Envoy's own; _strip() took off what clients sent.
        mutation_rules={"allow_envoy": True},
        failure_mode_allow=True,
        # Of each message, how long a picker that hangs goes unnoticed. With 1 s, 2,442 of 3,000 requests that came at once
        # on two busy cores were lost: their time ran out before Envoy itself came to read the answers.
        message_timeout="5s",
        max_message_timeout="3600s",
        status_on_error={"code": "ServiceUnavailable"},
    )


def _router() -> Resource:
    """With a note of every attempt, from which the picker learns at once who is dead."""
    return extension(
        "envoy.filters.http.router",
        "envoy.extensions.filters.http.router.v3.Router",
        upstream_log=make_upstream_logs(),
        upstream_log_options={"upstream_log_flush_interval": PERIOD},
    )


def make_local_replies() -> Resource:
    """Envoy's own answers in OpenAI's shape; the first that fits. The picker's carry no flag and pass as they are."""
    return {
        "mappers": [
            _mapper(
                {"response_flag_filter": {"flags": _NO_CLUSTER}},
                "The gateway cannot place requests at this moment. Try again.",
                "gateway_unavailable",
                retry_after=RESTART_RETRY_AFTER,
            ),
            _mapper(
                {"response_flag_filter": {"flags": _UPSTREAM_LATE}},
                "The answer of the replica did not begin in time. Try again.",
                "replica_timeout",
                retry_after=1,
            ),
            _mapper(
                {"response_flag_filter": {"flags": _UPSTREAM_FAILED}},
                "The replica that was to answer failed before it answered. Try again.",
                "replica_failed",
                retry_after=1,
            ),
            _mapper(
                {"status_code_filter": {"comparison": {"op": "EQ", "value": _runtime(413)}}},
                f"The request body is over the limit of {MAX_BODY_BYTES} bytes.",
                "body_too_large",
                kind="invalid_request_error",
            ),
        ]
    }


def _mapper(
    condition: Resource,
    message: str,
    code: str,
    *,
    kind: str = "server_error",
    retry_after: int | None = None,
) -> Resource:
    body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})
    mapper: dict[str, Any] = {
        "filter": condition,
        "body": {"inline_string": body},
        "body_format_override": {
            "text_format_source": {"inline_string": "%LOCAL_REPLY_BODY%"},
            "content_type": "application/json",
        },
    }
    if retry_after is not None:
        mapper["headers_to_add"] = [
            {
                "header": {"key": "retry-after", "value": str(retry_after)},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ]
    return mapper


def _runtime(value: int) -> Resource:
    return {"default_value": value, "runtime_key": "unused"}


def _access_log() -> Resource:
    """Ids, sizes and times; never a query or a body."""
    fields = {
        "time": "%START_TIME%",
        "event": "request",
        "id": "%REQ(X-REQUEST-ID)%",
        "method": "%REQ(:METHOD)%",
        "path": "%PATH(NQ)%",
        "status": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "cluster": "%UPSTREAM_CLUSTER%",
        "replica": "%UPSTREAM_HOST%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "bytes_in": "%BYTES_RECEIVED%",
        "bytes_out": "%BYTES_SENT%",
        "first_byte_ms": "%RESPONSE_DURATION%",
        "duration_ms": "%DURATION%",
    }
    return extension(
        "envoy.access_loggers.stdout",
        "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
        log_format={"json_format": fields},
    )
