"""What the gateway answers in its own name, in OpenAI's shapes, as values that become JSON."""

from datetime import datetime
from typing import Any

from llmendpoint_gateway.core.pick import Rejected, unknown_model
from llmendpoint_gateway.core.view import View


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


def model_list(view: View) -> dict[str, Any]:
    """Every name that a request may carry, in order."""
    return {"object": "list", "data": [_model(name, view) for name in sorted(view.names)]}


def one_model(name: str, view: View) -> dict[str, Any] | Rejected:
    return _model(name, view) if name in view.names else unknown_model(name)


def unknown_path(method: str, path: str) -> Rejected:
    return Rejected(
        404,
        "unknown_url",
        f"Invalid URL ({method} {path.partition('?')[0][:200]}). Paths are /v1/... or /<namespace>/<name>/v1/...",
    )


def bad_request(message: str, param: str | None = None) -> Rejected:
    return Rejected(400, "invalid_request", message, param)


def _model(name: str, view: View) -> dict[str, Any]:
    endpoint = view.endpoints[view.names[name]]
    created = int(datetime.fromisoformat(endpoint.created).timestamp())
    return {"id": name, "object": "model", "created": created, "owned_by": endpoint.key}
