"""The routes: a large body goes to the inner listener, everything else to the cluster that the picker chose."""

from llmendpoint_gateway.core.envoy import batches, bounds, priorities
from llmendpoint_gateway.core.envoy.local_replies import error_json
from llmendpoint_gateway.core.envoy.resources import (
    CLUSTER_HEADER,
    KEPT_HEADER,
    LARGE_CLUSTER,
    WHOLE_HEADER,
    Resource,
)
from llmendpoint_gateway.core.envoy.upstream_logs import CRASHED_HEADER, RETRIABLE_HEADER
from llmendpoint_gateway.core.request.paths import SOCKET

BUFFER, EXT_PROC = "envoy.filters.http.buffer", "envoy.filters.http.ext_proc"
COMPLETION_PATHS = ("/v1/chat/completions", "/v1/completions")
RUN_AGAIN = (*COMPLETION_PATHS, SOCKET)
"""What a second replica gets although the first one may have seen it."""
SOCKET_PATH = f"(/[^/]+/[^/]+)?{SOCKET}"
PROCESSING = {
    "request_header_mode": "SEND",
    "request_body_mode": "NONE",
    "response_header_mode": "SKIP",
    "response_body_mode": "NONE",
    "request_trailer_mode": "SKIP",
    "response_trailer_mode": "SKIP",
}
"""What the picker gets. A route's mode replaces all of the filter's."""
BODILESS = ("GET", "HEAD")
REMOVED_HEADERS = ("authorization", "cookie", "proxy-authorization", "x-api-key", "api-key")
"""A caller's credentials are for the gateway. An engine runs third-party code."""


def make_routes(
    name: str, large_apart: bool, batch_service: bool = False, with_keys: bool = False
) -> Resource:
    """Each request goes to the cluster that the picker wrote into a header.

    A request keeps the route table that it started with. If the table named clusters, a request that waited for the
    picker during a switch would go to a removed cluster. Without the header there is no cluster, and Envoy answers 503.
    So the gateway fails closed although the filter is told to fail open.

    `large_apart`: requests with large bodies go to the inner listener, where the picker is asked. If False, routes for
    bodies come twice: first for the requests whose body is kept. `batch_service`: there is one.
    `with_keys`: the picker is asked about the caller of a large body before that is let in.
    """
    exact = [{"match": {"path": path}, "route": _action("reset")} for path in COMPLETION_PATHS]
    rest = {"match": {"prefix": "/"}, "route": _action("reset-before-request")}
    bodiless = [
        rest | {"match": {"prefix": "/", "headers": [_method(m)]}, "typed_per_filter_config": _small_body()}
        for m in BODILESS
    ]
    routes = (*exact, *bodiless, rest)
    kept = [] if large_apart else [_kept(route) for route in (*exact, rest)]
    picked = [route | {"request_headers_to_remove": list(REMOVED_HEADERS)} for route in (*kept, *routes)]
    large = (_over_limit(), _beyond_numbers(), _of_unknown_length())
    of_batches = [*(_of_batches(path, batch_service) for path in batches.PATHS), _of_responses(batch_service)]
    apart = [
        _refused_encoding(),
        *of_batches,
        *(_large(headers, with_keys) for headers in large),
        *_arriving(),
    ]
    return {
        "name": name,
        "virtual_hosts": [
            {
                "name": "all",
                "domains": ["*"],
                # A report of an attempt then says which attempt it was.
                "include_request_attempt_count": True,
                "request_body_buffer_limit": bounds.SMALL_BODY_BYTES,
                "routes": [_socket(decided=True), _socket(decided=False), *apart, *picked]
                if large_apart
                else picked,
            }
        ],
    }


def _socket(decided: bool) -> Resource:
    """A WebSocket: decided on the headers of its handshake. What follows them is no body that could be collected: with a
    buffer the handshake would wait for its end. While it is not `decided`, it may wait for a replica."""
    per_route = "type.googleapis.com/envoy.extensions.filters.http"
    upgrade = {"name": "upgrade", "string_match": {"exact": "websocket", "ignore_case": True}}
    has_cluster = {"name": CLUSTER_HEADER, "present_match": decided}
    return {
        "match": {"safe_regex": {"regex": SOCKET_PATH}, "headers": [_method("GET"), upgrade, has_cluster]},
        "route": _action("reset")
        | {
            "idle_timeout": bounds.SOCKET_IDLE_TIMEOUT if decided else bounds.STREAM_IDLE_TIMEOUT,
            "upgrade_configs": [{"upgrade_type": "websocket", "enabled": True}],
        },
        "request_headers_to_remove": list(REMOVED_HEADERS),
        "typed_per_filter_config": {
            BUFFER: {"@type": f"{per_route}.buffer.v3.BufferPerRoute", "disabled": True},
            # Envoy ends the picker's stream once it has nothing more to send on it. Trailers, which never come, keep it open, so
            # that its end is the connection's.
            EXT_PROC: {
                "@type": f"{per_route}.ext_proc.v3.ExtProcPerRoute",
                "overrides": {"processing_mode": PROCESSING | {"request_trailer_mode": "SEND"}},
            },
        },
    }


def _kept(route: Resource) -> Resource:
    """For requests that the picker marked. A caller cannot mark one: Envoy removes its `x-gateway-*` headers."""
    match = route["match"] | {"headers": [{"name": KEPT_HEADER, "present_match": True}]}
    return route | {"match": match, "request_body_buffer_limit": bounds.KEPT_BODY_BYTES}


def _over_limit() -> list[Resource]:
    return [{"name": "content-length", "range_match": {"start": bounds.SMALL_BODY_BYTES + 1, "end": 2**62}}]


def _beyond_numbers() -> list[Resource]:
    """A length of 19 digits or more: Envoy reads it as no number, or as one above every range."""
    return [{"name": "content-length", "string_match": {"safe_regex": {"regex": "[0-9]{19,}"}}}]


def _of_unknown_length() -> list[Resource]:
    bodiless = [{**_method(m), "invert_match": True} for m in BODILESS]
    return [{"name": "content-length", "present_match": False}, *bodiless]


def _method(name: str) -> Resource:
    return {"name": ":method", "string_match": {"exact": name}}


def _small_body() -> Resource:
    """A GET or HEAD needs no body. A chunked one above this size is refused, because it would be collected outside the
    inner listener."""
    kind = "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.BufferPerRoute"
    return {BUFFER: {"@type": kind, "buffer": {"max_request_bytes": bounds.SMALL_BODY_BYTES}}}


def _large(headers: list[Resource], with_keys: bool) -> Resource:
    """Not retried here: the inner listener retries."""
    return {
        "match": {"prefix": "/", "headers": headers},
        "route": {
            "cluster": LARGE_CLUSTER,
            "timeout": "0s",
            "idle_timeout": bounds.STREAM_IDLE_TIMEOUT,
        },
        "typed_per_filter_config": _by_headers() if with_keys else _undecided(),
    }


def _by_headers() -> Resource:
    """Envoy does not collect the body. The picker gets the headers alone, and judges the caller (serve/request/reading.py)."""
    kind = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute"
    return _undecided() | {EXT_PROC: {"@type": kind, "overrides": {"processing_mode": PROCESSING}}}


def _arriving() -> list[Resource]:
    """For a request until it is whole and marked as that (core/envoy/listener.py): the listener's own limit is that of
    uploads. Neither its wait for a replica nor its answer counts, so the routes below have no limit."""
    limit = {"max_stream_duration": {"max_stream_duration": bounds.REQUEST_TIMEOUT}}
    unmarked = {"name": WHOLE_HEADER, "present_match": False}

    def route(*more: Resource) -> Resource:
        match = {"prefix": "/", "headers": [unmarked, *more]}
        return {"match": match, "route": _action("reset-before-request") | limit}

    bodiless = [route(_method(m)) | {"typed_per_filter_config": _small_body()} for m in BODILESS]
    return [*bodiless, route()]


def _of_batches(path: str, there: bool) -> Resource:
    match = {"match": {"path_separated_prefix": path}, "typed_per_filter_config": _undecided()}
    if there:
        credentials = {"request_headers_to_remove": list(REMOVED_HEADERS)}
        return match | credentials | {"route": batches.make_batch_action(bounds.UPLOAD_IDLE_TIMEOUT)}
    return match | _direct(404, error_json(*batches.DISABLED))


def _of_responses(there: bool) -> Resource:
    """Without the service an endpoint answers `POST /v1/responses`, and nothing that was stored can be read."""
    if not there:
        match = {"match": {"prefix": f"{batches.RESPONSES}/"}, "typed_per_filter_config": _undecided()}
        return match | _direct(404, error_json(*batches.DISABLED))
    action = batches.make_batch_action(bounds.STREAM_IDLE_TIMEOUT)
    found = _of_batches(batches.RESPONSES, there) | {"route": action}
    return found | {"match": found["match"] | {"headers": [batches.not_direct()]}}


def _direct(status: int, body: str) -> Resource:
    """Envoy's own answer, JSON."""
    return {
        "direct_response": {"status": status, "body": {"inline_string": body}},
        "response_headers_to_add": [
            {
                "header": {"key": "content-type", "value": "application/json"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ],
    }


def _undecided() -> Resource:
    """Envoy does not collect the body, does not ask the picker, and leaves the priority for the picker to read."""
    return {
        name: {"@type": f"type.googleapis.com/{message}", "disabled": True}
        for name, message in (
            (BUFFER, "envoy.extensions.filters.http.buffer.v3.BufferPerRoute"),
            (EXT_PROC, "envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute"),
            (priorities.FILTER, "envoy.config.route.v3.FilterConfig"),
        )
    }


def _refused_encoding() -> Resource:
    """A compressed body is refused before it is read: a few kB may expand to gigabytes."""
    plain = {"string_match": {"safe_regex": {"regex": "(?i)(identity)?"}}}
    return {
        "match": {
            "prefix": "/",
            "headers": [
                {"name": "content-encoding", "present_match": True},
                {"name": "content-encoding", "invert_match": True, **plain},
            ],
        },
        **_direct(
            415,
            error_json(
                "The request body is compressed (Content-Encoding). Send it without compression.",
                "unsupported_encoding",
                "invalid_request_error",
            ),
        ),
        "typed_per_filter_config": _undecided(),
    }


def _action(on_reset: str) -> Resource:
    """One retry, on the second replica that the picker named.

    Envoy counts all causes together. A reset may have one retry only: with three, a request that kills its engine kills
    four. `reset` runs a request a second time, so it is for completions only. A request that may store something is
    retried only if the engine has not seen it.
    """
    return {
        "cluster_header": CLUSTER_HEADER,
        "timeout": "0s",
        "idle_timeout": bounds.STREAM_IDLE_TIMEOUT,
        "retry_policy": {
            "retry_on": f"connect-failure,refused-stream,{on_reset},retriable-headers",
            "retriable_headers": [
                {"name": name, "string_match": {"exact": "1"}} for name in (RETRIABLE_HEADER, CRASHED_HEADER)
            ],
            "num_retries": 1,
            "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
        },
    }
