"""The list of models in OpenAI's shape, as values that become JSON."""

from datetime import datetime
from typing import Any

from llmendpoint_gateway.core.endpoint.view import View
from llmendpoint_gateway.core.request.refusals import Rejected, unknown_model


def model_list(view: View) -> dict[str, Any]:
    """Every model name that a request may use, sorted."""
    return {"object": "list", "data": [_model(name, view) for name in sorted(view.names)]}


def one_model(name: str, view: View) -> dict[str, Any] | Rejected:
    return _model(name, view) if name in view.names else unknown_model(name)


def _model(name: str, view: View) -> dict[str, Any]:
    endpoint = view.endpoints[view.names[name]]
    created = int(datetime.fromisoformat(endpoint.created).timestamp())
    return {"id": name, "object": "model", "created": created, "owned_by": endpoint.key}
