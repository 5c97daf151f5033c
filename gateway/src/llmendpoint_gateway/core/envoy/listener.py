"""The listeners. Envoy strips the reserved headers of each request, asks the picker, and routes by its answer.

The outer listener faces the callers. It passes large bodies to the inner listener, over HTTP/2 on a Unix socket. Envoy
measures the memory of a single request on HTTP/2 only, so only there can it reset requests one by one.
"""

from typing import Any

from llmendpoint_gateway.core.envoy import bounds
from llmendpoint_gateway.core.envoy.local_replies import make_local_replies
from llmendpoint_gateway.core.envoy.places import make_places
from llmendpoint_gateway.core.envoy.priorities import make_priorities
from llmendpoint_gateway.core.envoy.request_ids import make_request_ids
from llmendpoint_gateway.core.envoy.request_stats import make_request_stats
from llmendpoint_gateway.core.envoy.resources import (
    ADS,
    KEY_FIELD,
    LOGGED_METADATA,
    PICKER_CLUSTER,
    PRIORITY_HEADER,
    RESERVED_PREFIX,
    WHOLE_HEADER,
    Resource,
    extension,
    http2_options,
    user_timeout,
)
from llmendpoint_gateway.core.envoy.routes import BUFFER, EXT_PROC, PROCESSING
from llmendpoint_gateway.core.envoy.upstream_logs import PERIOD, make_upstream_logs
from llmendpoint_gateway.core.identity.credentials import HEADERS as CREDENTIALS
from llmendpoint_gateway.core.request.paths import MODEL_HEADER
from llmendpoint_gateway.core.request.prompt import SESSION_HEADERS
from llmendpoint_gateway.core.request.trace_context import TRACEPARENT

READ_HEADERS = (
    ":path",
    ":method",
    "content-encoding",
    "content-type",
    "x-forwarded-for",
    "upgrade",
    MODEL_HEADER,
    PRIORITY_HEADER,
    TRACEPARENT,
    *SESSION_HEADERS,
)
NAME, INNER_NAME = STATS_NAME, INNER_STATS_NAME = "openai", "large"
"""Of the listeners and of their routes, and in Envoy's statistics."""
MAX_LOGGED = 128  # characters of a value that a caller chose


def make_listener(
    host: str, port: int, share: bounds.Share, batch_service: bool = False, with_keys: bool = False
) -> Resource:
    """`batch_service`: there is one. `with_keys`: the picker asks for API keys."""
    manager = _connection_manager(
        [make_request_ids(), *make_places(share)],
        [_mark_whole()],
        batch_service,
        with_keys,
        stat_prefix=STATS_NAME,
        # It has no other time for a single route. The routes to replicas have a shorter one (core/envoy/routes.py).
        request_timeout=bounds.UPLOAD_TIMEOUT,
        rds=_routes(NAME),
        max_request_headers_kb=bounds.MAX_HEADERS_KB,
        common_http_protocol_options={
            "idle_timeout": bounds.IDLE_TIMEOUT,
            "max_headers_count": bounds.MAX_HEADERS,
        },
        http_protocol_options={"accept_http_10": True, "default_host_for_http_10": "gateway"},
        use_remote_address=True,
        # Before a route is chosen. `_strip()` comes after that.
        early_header_mutation_extensions=[_strip_reserved()],
    )
    return {
        "name": NAME,
        "address": {"socket_address": {"address": host, "port_value": port}},
        "per_connection_buffer_limit_bytes": bounds.CONNECTION_BUFFER_BYTES,
        # Also ends a connection whose reader left its window full for this time.
        "socket_options": [user_timeout(1000 * bounds.READER_TIMEOUT)],
        "filter_chains": [{"filters": [manager]}],
    }


def make_inner_listener(socket: str, with_keys: bool = False) -> Resource:
    """Its requests have passed the outer listener, which added headers and applied the limits of connections."""
    manager = _connection_manager(
        [],
        [],
        False,
        with_keys,
        stat_prefix=INNER_STATS_NAME,
        request_timeout=bounds.REQUEST_TIMEOUT,
        codec_type="HTTP2",
        rds=_routes(INNER_NAME),
        max_request_headers_kb=2 * bounds.MAX_HEADERS_KB,
        common_http_protocol_options={"max_headers_count": 2 * bounds.MAX_HEADERS},
        skip_xff_append=True,
    )
    return {
        "name": INNER_NAME,
        "address": {"pipe": {"path": socket, "mode": 0o600}},
        "filter_chains": [{"filters": [manager]}],
        "ignore_global_conn_limit": True,
        "bypass_overload_manager": True,
    }


def _connection_manager(
    first: list[Resource], whole: list[Resource], batch_service: bool, with_keys: bool, **config: Any
) -> Resource:
    """`first`: filters that run before those of both listeners. `whole`: those that run once the body is there. `batch_service`: requests
    may go there. `with_keys`: the picker reads them."""
    return extension(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stream_idle_timeout=bounds.STREAM_IDLE_TIMEOUT,
        stream_flush_timeout=f"{bounds.READER_TIMEOUT}s",
        request_headers_timeout=bounds.HEADERS_TIMEOUT,
        http2_protocol_options=http2_options(),
        normalize_path=True,
        merge_slashes=True,
        # A caller can find its request by its own id, in the gateway's log and in the engine's.
        preserve_external_request_id=True,
        always_set_request_id_in_response=True,
        request_id_extension=_request_ids(),
        http_filters=[
            *first,
            _strip(),
            _whole_body(),
            *whole,
            _picker(with_keys),
            make_priorities(),
            _router(),
        ],
        local_reply_config=make_local_replies(batch_service),
        access_log=[_access_log(), *make_request_stats()],
        **config,
    )


def _routes(name: str) -> Resource:
    """From the picker. No timeout: without routes a listener would answer everything with 404."""
    return {"route_config_name": name, "config_source": {**ADS, "initial_fetch_timeout": "0s"}}


def _strip() -> Resource:
    """Remove the headers by which a client could choose its replica, or Envoy's retries and timeouts."""
    removals = [
        {"remove_on_match": {"key_matcher": {"prefix": prefix}}} for prefix in (RESERVED_PREFIX, "x-envoy-")
    ]
    return extension(
        "envoy.filters.http.header_mutation",
        "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        mutations={"request_mutations": removals},
    )


def _strip_reserved() -> Resource:
    return extension(
        "envoy.http.early_header_mutation.header_mutation",
        "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        mutations=[{"remove_on_match": {"key_matcher": {"prefix": RESERVED_PREFIX}}}],
    )


def _mark_whole() -> Resource:
    """Has the route chosen again, now that the body is there: one without the time limit for its arrival. Envoy has no filter
    that does this and nothing else."""
    script = f'function envoy_on_request(handle) handle:headers():replace("{WHOLE_HEADER}", "1") end'
    return extension(
        "envoy.filters.http.lua",
        "envoy.extensions.filters.http.lua.v3.Lua",
        default_source_code={"inline_string": script},
    )


def _whole_body() -> Resource:
    """Collect the whole body, up to a limit of its own, before asking the picker. The limit would otherwise be the
    connection's buffers. These hold answers too, and on HTTP/2 they are 16 MiB."""
    return extension(
        BUFFER, "envoy.extensions.filters.http.buffer.v3.Buffer", max_request_bytes=bounds.MAX_BODY_BYTES
    )


def _request_ids() -> Resource:
    """Leave ids as they are: by default Envoy changes a bit of a caller's UUID to say whether it is traced."""
    config = extension(
        "unused",
        "envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig",
        pack_trace_reason=False,
    )
    return {"typed_config": config["typed_config"]}


def _picker(with_keys: bool) -> Resource:
    """Headers SEND with the body BUFFERED is the only mode in which Envoy always waits for the answer.

    `failure_mode_allow`: if False, a picker that dies breaks every started stream; if True, none.
    """
    read = (*READ_HEADERS, *CREDENTIALS) if with_keys else READ_HEADERS
    return extension(
        EXT_PROC,
        "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": PICKER_CLUSTER}, "timeout": "0s"},
        processing_mode=PROCESSING | {"request_body_mode": "BUFFERED"},
        # The picker reads no other header, and each one costs it time.
        forward_rules={"allowed_headers": {"patterns": [{"exact": name} for name in read]}},
        # The picker sets an answer's time limit in one of Envoy's own headers. `_strip()` removed those that clients
        # sent.
        mutation_rules={"allow_envoy": True},
        metadata_options={"receiving_namespaces": {"untyped": [LOGGED_METADATA]}},
        failure_mode_allow=True,
        # For each message: how long a hung picker goes unnoticed. With 1 s, 2,442 of 3,000 simultaneous requests on two
        # busy cores failed: their time ran out before Envoy read the answers.
        message_timeout="5s",
        max_message_timeout="3600s",
        status_on_error={"code": "ServiceUnavailable"},
    )


def _router() -> Resource:
    """Logs every attempt, so that the picker learns at once which replica is dead."""
    return extension(
        "envoy.filters.http.router",
        "envoy.extensions.filters.http.router.v3.Router",
        upstream_log=make_upstream_logs(),
        upstream_log_options={"upstream_log_flush_interval": PERIOD},
    )


def _access_log() -> Resource:
    """Ids, sizes and times; never a query, a body or a credential. `key`: the name of the LLMKey."""
    fields = {
        "time": "%START_TIME%",
        "event": "request",
        "key": f"%DYNAMIC_METADATA({LOGGED_METADATA}:{KEY_FIELD})%",
        "id": f"%REQ(X-REQUEST-ID):{MAX_LOGGED}%",
        "protocol": "%PROTOCOL%",
        "method": "%REQ(:METHOD)%",
        "path": f"%PATH(NQ:ORIG_OR_PATH):{MAX_LOGGED}%",
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
