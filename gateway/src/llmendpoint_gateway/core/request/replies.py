"""The gateway's own answers, in OpenAI's shapes, as values that become JSON."""

from typing import Any

from llmendpoint_gateway.core.request.paths import MODEL_HEADER, MOST_PATH, SOCKET
from llmendpoint_gateway.core.request.refusals import Rejected
from llmendpoint_gateway.core.request.request import Body, Head


def error_body(rejected: Rejected) -> dict[str, Any]:
    kind = "server_error" if rejected.status >= 500 else "invalid_request_error"
    if rejected.status == 429:
        kind = "rate_limit_error"
    return {
        "error": {
            "message": rejected.message,
            "type": kind,
            "param": rejected.param,
            "code": rejected.code,
        }
    }


def unknown_path(head: Head) -> Rejected:
    return Rejected(
        404,
        "unknown_url",
        f"Invalid URL ({head.method} {head.path.partition('?')[0]}). The gateway passes /v1/models, the paths of "
        "inference APIs, such as /v1/chat/completions, and those that the endpoint's LLMRuntime declares in spec.paths, "
        "also as /<namespace>/<name>/v1/...",
    )


def wrong_method(head: Head, allowed: str) -> Rejected:
    return Rejected(
        405,
        "method_not_allowed",
        f"{head.path.partition('?')[0]} does not take {head.method}, but {allowed}.",
        allow=allowed,
    )


def path_too_long() -> Rejected:
    return Rejected(
        414, "uri_too_long", f"The path and its query are longer than the limit of {MOST_PATH} characters."
    )


def no_model(head: Head, body: Body) -> Rejected:
    """The reason why a body names no model."""
    if head.encoded:
        return Rejected(
            415, "unsupported_encoding", "The gateway reads bodies without content-encoding only. Send JSON."
        )
    if head.media:
        return Rejected(
            415,
            "unsupported_media_type",
            f"The gateway reads `model` from a JSON body, not from {head.media}. "
            "Where the endpoint takes this type, send it to /<namespace>/<name>/v1/...",
        )
    return Rejected(
        400, "invalid_request", body.problem, "model" if body.problem.startswith(("`", "You")) else None
    )


def no_socket_model() -> Rejected:
    return Rejected(
        400,
        "invalid_request",
        f"You must say which `model` the connection is for: {SOCKET}?model=<name>, /<namespace>/<name>{SOCKET}, or the header "
        f"{MODEL_HEADER}. GET /v1/models lists what there is.",
        "model",
    )


def no_upgrade(head: Head) -> Rejected:
    return Rejected(
        426,
        "upgrade_required",
        f"{head.path.partition('?')[0]} is a WebSocket: open it with its handshake (Upgrade: websocket), over HTTP/1.1.",
    )


def failed() -> Rejected:
    """An error in the gateway itself; it affects this request only."""
    return Rejected(500, "gateway_error", "The gateway failed to decide on this request; its log says why.")
