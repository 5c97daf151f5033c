"""Envoy's own answers, in OpenAI's shape."""

import json
from typing import Any

from llmendpoint_gateway.core.envoy import bounds
from llmendpoint_gateway.core.envoy.batches import UNAVAILABLE_RETRY_AFTER, of_batches
from llmendpoint_gateway.core.envoy.places import FULL_STATUS
from llmendpoint_gateway.core.envoy.resources import CLUSTER_HEADER, Resource, extension
from llmendpoint_gateway.core.request.paths import SOCKET
from llmendpoint_gateway.core.request.refusals import RESTART_RETRY_AFTER

_NO_CLUSTER, _UPSTREAM_FAILED = ["NC"], ["UH", "UF", "UC", "UO", "URX", "UR", "LR", "NR", "UPE"]
_UPSTREAM_LATE, _OVERLOADED, _MALFORMED = ["UT"], ["OM"], ["DPE"]


def make_local_replies(batch_service: bool = False) -> Resource:
    """`batch_service`: requests may go there. The first mapper that matches applies. The picker's own answers carry no flag and pass unchanged."""
    return {
        "mappers": [
            _mapper(
                _status(FULL_STATUS),
                "As many requests as the gateway has room for are under way. Try again.",
                "gateway_overloaded",
                retry_after=RESTART_RETRY_AFTER,
            )
            | {"status_code": 503},
            _mapper(
                {
                    "and_filter": {
                        "filters": [
                            {"response_flag_filter": {"flags": _UPSTREAM_FAILED}},
                            of_batches(batch_service),
                        ]
                    }
                },
                "The batch service does not answer now; it may be starting. Try again.",
                "batch_service_unavailable",
                retry_after=UNAVAILABLE_RETRY_AFTER,
            ),
            _mapper(
                {"and_filter": {"filters": [_status(408), of_batches(False)]}},
                f"The upload stood still for {bounds.UPLOAD_IDLE_TIMEOUT}, or did not come in whole within {bounds.UPLOAD_TIMEOUT}.",
                "request_timeout",
                kind="invalid_request_error",
            ),
            _mapper(
                _cut_inside(),
                "The gateway holds as much of large requests as it can. Try again.",
                "gateway_overloaded",
                retry_after=RESTART_RETRY_AFTER,
            ),
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
                {"response_flag_filter": {"flags": _OVERLOADED}},
                "The gateway has no memory left for another request. Try again.",
                "gateway_overloaded",
                retry_after=RESTART_RETRY_AFTER,
            ),
            _mapper(
                _upgrade_failed(),
                f"The gateway passes an upgrade of a connection at {SOCKET} only, to a WebSocket.",
                "upgrade_refused",
                kind="invalid_request_error",
            ),
            _mapper(
                _status(408),
                f"The request did not come in whole within {bounds.REQUEST_TIMEOUT}.",
                "request_timeout",
                kind="invalid_request_error",
            ),
            _mapper(
                _status(413),
                f"The request body is over the limit of {bounds.MAX_BODY_BYTES} bytes.",
                "body_too_large",
                kind="invalid_request_error",
            ),
            _mapper(
                _status(431),
                f"The request's headers are over the limit of {bounds.MAX_HEADERS_KB} KiB or {bounds.MAX_HEADERS} "
                "headers.",
                "headers_too_large",
                kind="invalid_request_error",
            ),
            _mapper(
                {"response_flag_filter": {"flags": _MALFORMED}},
                "The request is not valid HTTP.",
                "invalid_http",
                kind="invalid_request_error",
            ),
        ]
    }


def _cut_inside() -> Resource:
    """The inner listener reset a large request. The missing header shows that the picker was not asked at the outer
    listener."""
    undecided = {"header_filter": {"header": {"name": CLUSTER_HEADER, "present_match": False}}}
    return {"and_filter": {"filters": [{"response_flag_filter": {"flags": _UPSTREAM_FAILED}}, undecided]}}


def _upgrade_failed() -> Resource:
    """By its detail: the picker has a 403 of its own."""
    return {
        "extension_filter": extension(
            "envoy.access_loggers.extension_filters.cel",
            "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
            expression="response.code_details == 'upgrade_failed'",
        )
    }


def _mapper(
    condition: Resource,
    message: str,
    code: str,
    *,
    kind: str = "server_error",
    retry_after: int | None = None,
) -> Resource:
    mapper: dict[str, Any] = {
        "filter": condition,
        "body": {"inline_string": error_json(message, code, kind)},
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


def error_json(message: str, code: str, kind: str) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _status(code: int) -> Resource:
    value = {"default_value": code, "runtime_key": "unused"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}
