"""The list of models in OpenAI's shape, as values that become JSON."""

from datetime import datetime
from typing import Any

from llmendpoint_gateway.core.endpoint.names import split_adapter
from llmendpoint_gateway.core.endpoint.view import View
from llmendpoint_gateway.core.request.refusals import Rejected, unknown_model


def model_list(view: View) -> dict[str, Any]:
    """Every model name that a request may use, sorted. Adapters follow the endpoint's key and its first bare name alone:
    the list would be long otherwise, and they are served under the other names all the same."""
    names = (
        name
        for base in sorted(view.names)
        for name in (base, *(_with_adapters(base, view) if _is_main(base, view) else ()))
    )
    return {"object": "list", "data": [_model(name, view) for name in names]}


def _is_main(base: str, view: View) -> bool:
    endpoint = view.endpoints[view.names[base]]
    return base in (endpoint.key, *endpoint.served_names[:1])


def _with_adapters(base: str, view: View) -> list[str]:
    """Without those that are another endpoint's own name."""
    found = (f"{base}:{adapter}" for adapter in sorted(view.endpoints[view.names[base]].adapters))
    return [name for name in found if name not in view.names]


def one_model(name: str, view: View) -> dict[str, Any] | Rejected:
    base, adapter = split_adapter(name, view.names.__contains__)
    known = name in view.names or (adapter != "" and name in _with_adapters(base, view))
    return _model(name, view) if known else unknown_model(name)


def _model(name: str, view: View) -> dict[str, Any]:
    """An adapter's `parent` is the model's name, as in an engine's own list."""
    base, adapter = split_adapter(name, view.names.__contains__)
    endpoint = view.endpoints[view.names[base]]
    created = int(datetime.fromisoformat(endpoint.created).timestamp())
    model = {"id": name, "object": "model", "created": created, "owned_by": endpoint.key}
    return {**model, "parent": base} if adapter else model
